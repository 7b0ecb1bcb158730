"""Accuracy tasks, one file each, over any encoder or bundle."""

from msdc.bench.accuracy.evaluate import evaluate

__all__ = ["evaluate"]
