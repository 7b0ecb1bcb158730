"""A task: a reader of its files, and a score over a vector store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict

from msdc.bench.accuracy.statistics import RESAMPLES, Items
from msdc.bench.accuracy.vectors import VectorStore
from msdc.text.text_files import SourceFile


@dataclass(frozen=True)
class Options:
    """Settings of the tasks."""

    resamples: int = RESAMPLES
    seed: int = 0
    neighbours: int = 4  # k of the margin
    margin: str = "ratio"  # ratio, distance or absolute
    candidates: int = 200_000  # XSR's pool
    queries: int = 2_000
    folds: int = 10  # SentEval's cross-validation
    threads: int | None = None
    progress: bool = False
    # float model (drift) or teacher (mse) to compare with
    reference: VectorStore | None = None


class Settings(TypedDict, total=False):
    """The fields of `Options` as keywords."""

    resamples: int
    seed: int
    neighbours: int
    margin: Literal["ratio", "distance", "absolute"]
    candidates: int
    queries: int
    folds: int
    threads: int | None
    progress: bool
    reference: VectorStore | None


class Data(Protocol):
    """Data of a task, as its reader returns them."""

    @property
    def name(self) -> str:
        """Name in results and messages."""
        ...

    @property
    def sources(self) -> list[SourceFile]:
        """Files that were read."""
        ...

    @property
    def notes(self) -> list[str]:
        """Remarks on the data for the report."""
        ...

    def __len__(self) -> int: ...
    def texts(self) -> list[str]:
        """Every sentence that is encoded for the score."""
        ...


def tested_texts(data: Data) -> list[str]:
    """The sentences that are scored, for the contamination check; without training rows and distractors."""
    own: Callable[[], list[str]] = getattr(data, "test_texts", data.texts)
    return own()


@dataclass(frozen=True)
class Outcome:
    """Scores of a task as JSON values, and the per-item results for a paired test."""

    scores: dict[str, Any]
    items: Items | None = None


@dataclass(frozen=True)
class Task:
    """One kind of measurement. `main` is the key of the headline score in `Outcome.scores`."""

    name: str
    summary: str
    main: str
    read: Callable[[Path], Any]
    score: Callable[[VectorStore, Any, Options], Outcome]
    needs_reference: bool = False
