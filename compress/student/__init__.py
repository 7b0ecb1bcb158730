"""The student: its class, its folders, and conversion from and to stock encoders."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msdc.compress.student.config import StudentConfig
from msdc.lazy import exports

if TYPE_CHECKING:
    from msdc.compress.student.model import Student

__all__ = ["Student", "StudentConfig"]
# The config and the weights are read without torch, the class is not.
__getattr__ = exports(__name__, {"Student": "msdc.compress.student.model"})
