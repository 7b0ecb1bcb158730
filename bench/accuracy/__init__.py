"""Accuracy of any encoder or bundle."""

from msdc.bench.accuracy.evaluation import evaluate

__all__ = ["evaluate"]
