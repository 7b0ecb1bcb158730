"""What a task is: a reader of its files and a score over a vector store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from msdc.bench.accuracy.statistics import RESAMPLES, Items
from msdc.bench.accuracy.vectors import VectorStore
from msdc.text.text_files import SourceFile


@dataclass(frozen=True)
class Options:
    """Settings that every task may read."""

    resamples: int = RESAMPLES
    seed: int = 0
    neighbours: int = 4  # k of the margin
    margin: str = "ratio"  # ratio, distance or absolute
    candidates: int = 200_000  # XSR's pool
    queries: int = 2_000
    folds: int = 10  # SentEval's cross-validation
    threads: int | None = None
    progress: bool = False
    # float model (drift) or teacher (mse) to hold against
    reference: VectorStore | None = None


class Data(Protocol):
    """What a reader returns."""

    @property
    def name(self) -> str: ...
    @property
    def sources(self) -> list[SourceFile]: ...
    @property
    def notes(self) -> list[str]: ...

    def __len__(self) -> int: ...
    def texts(self) -> list[str]:
        """Every sentence that the score needs a vector of."""
        ...


def tested_texts(data: Data) -> list[str]:
    """The sentences a score is about, for the contamination check: no training rows, no distractors."""
    own: Callable[[], list[str]] = getattr(data, "test_texts", data.texts)
    return own()


@dataclass(frozen=True)
class Outcome:
    """A task's scores as JSON values, and the per-item answers that a paired test needs."""

    scores: dict[str, Any]
    items: Items | None = None


@dataclass(frozen=True)
class Task:
    """One way to measure. `main` is the key of the headline number, `unit` what it counts."""

    name: str
    summary: str
    main: str
    read: Callable[[Path], Any]
    score: Callable[[VectorStore, Any, Options], Outcome]
    needs_reference: bool = False
