"""Measure: speed and memory on devices, accuracy, reports. `evaluate` is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msdc.bench.accuracy import evaluate as evaluate


def __getattr__(name: str) -> Any:
    if name != "evaluate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from msdc.bench.accuracy import evaluate

    return evaluate
