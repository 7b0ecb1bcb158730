"""Names that are imported when they are used: the packages' interfaces, and what a lower package asks of a higher one.

`import msdc` and `msdc --help` load no numpy and no torch; a verb loads what it runs. `HIGHER` lists every step from a
package to one above it; all other imports are checked by import-linter.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any

# What lower packages use of higher ones -> module.
HIGHER = {
    "RUNTIMES": "msdc.export.runtimes",  # msdc.commands, compress.cli: names of runtimes for an option
    "best_model": "msdc.distill.run",  # msdc.encoders: a run folder named as a model
    "load_bundle": "msdc.export.bundle",  # msdc.encoders: a bundle where a command takes any model
    "load_int8_encoder": "msdc.export.exporters",  # msdc.encoders: the same for a model of standard classes
    "load_program_encoder": "msdc.export.onnx.encoder",  # msdc.encoders: a student that ONNX Runtime runs
    "load_student": "msdc.compress.student.io",  # msdc.encoders: a student with PyTorch
    "program_numbers": "msdc.bench.quickstart",  # distill.cli: measurements of a sweep's students
    "sweep_page": "msdc.bench.report.page",  # distill.cli: the report of a sweep
}


def load(attribute_path: str) -> object:
    """The attribute at `MODULE:NAME`."""
    module, _, name = attribute_path.partition(":")
    value: object = getattr(importlib.import_module(module), name)
    return value


def import_from_upper_layer(name: str) -> Any:
    """One of `HIGHER`; the caller states its type."""
    return load(f"{HIGHER[name]}:{name}")


def exports(package: str, modules: Mapping[str, str]) -> Callable[[str], object]:
    """The `__getattr__` of a package whose names are in `modules`: name -> the module that defines it."""

    def __getattr__(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return load(f"{modules[name]}:{name}")

    return __getattr__
