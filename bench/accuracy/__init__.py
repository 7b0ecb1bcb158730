"""Accuracy tasks, one file each, over any encoder or bundle."""

from msdc.bench.accuracy.evaluate import evaluate
from msdc.bench.accuracy.render import report_section

__all__ = ["evaluate", "report_section"]
