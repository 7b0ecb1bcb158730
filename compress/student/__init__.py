"""The student: its class, its folders, and conversion from and to stock encoders."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from msdc.compress.student.config import StudentConfig

if TYPE_CHECKING:
    from msdc.compress.student.model import Student

__all__ = ["Student", "StudentConfig"]


def __getattr__(name: str) -> object:
    # On first use: the config and the weights are read without torch, the class is not.
    if name == "Student":
        found: object = importlib.import_module("msdc.compress.student.model").Student
        return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
