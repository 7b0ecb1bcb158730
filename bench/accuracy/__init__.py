"""Accuracy of any encoder or bundle; one module per task."""

from msdc.bench.accuracy.evaluate import evaluate

__all__ = ["evaluate"]
