"""Measure a model: its accuracy (`evaluate`), its speed and memory on devices (`bench`), reports of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msdc.lazy import exports

if TYPE_CHECKING:
    from msdc.bench.accuracy.verbs import evaluate as evaluate
    from msdc.bench.accuracy.verbs import evaluate_all as evaluate_all
    from msdc.bench.benchmark import BenchResult as BenchResult
    from msdc.bench.benchmark import bench as bench

_MODULES = {
    "BenchResult": "msdc.bench.benchmark",
    "bench": "msdc.bench.benchmark",
    "evaluate": "msdc.bench.accuracy.verbs",
    "evaluate_all": "msdc.bench.accuracy.verbs",
}
__all__ = ["BenchResult", "bench", "evaluate", "evaluate_all"]
__getattr__ = exports(__name__, _MODULES)
