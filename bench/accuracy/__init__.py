"""Accuracy of any encoder or bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msdc.lazy import exports

if TYPE_CHECKING:
    from msdc.bench.accuracy.vectors import SupportsEncode as SupportsEncode
    from msdc.bench.accuracy.verbs import evaluate as evaluate

_MODULES = {"SupportsEncode": "msdc.bench.accuracy.vectors", "evaluate": "msdc.bench.accuracy.verbs"}
__getattr__ = exports(__name__, _MODULES)
