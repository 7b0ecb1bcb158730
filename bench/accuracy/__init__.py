"""Accuracy of any encoder or bundle; `evaluate` is that of `msdc.bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from msdc.bench import evaluate as evaluate


class SupportsEncode(Protocol):
    """Anything that turns a list of N texts into numbers [N, D]: ours, a SentenceTransformer, a class of your own."""

    def encode(self, texts: list[str], /) -> object:
        """One row per text; numpy must be able to read it."""
        ...


def __getattr__(name: str) -> Any:
    if name != "evaluate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from msdc.bench import evaluate

    return evaluate
