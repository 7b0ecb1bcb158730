"""Accuracy of any encoder or bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from msdc.lazy import exports

if TYPE_CHECKING:
    from msdc.bench.accuracy.verbs import evaluate as evaluate


class SupportsEncode(Protocol):
    """Anything that turns a list of N texts into numbers [N, D]: ours, a SentenceTransformer, a class of your own."""

    def encode(self, texts: list[str], /) -> object:
        """One row per text; numpy must be able to read it."""
        ...


__getattr__ = exports(__name__, {"evaluate": "msdc.bench.accuracy.verbs"})
