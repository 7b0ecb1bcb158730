"""Names that are imported when they are used: the packages' interfaces, and commands by name.

`import msdc` and `msdc --help` load no numpy and no torch; a verb loads what it runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def load(attribute_path: str) -> object:
    """The attribute at `MODULE:NAME`."""
    module, _, name = attribute_path.partition(":")
    value: object = getattr(importlib.import_module(module), name)
    return value


def exports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose names are in `modules`: name -> the module that defines it."""

    def __getattr__(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return load(f"{modules[name]}:{name}")

    return __getattr__
