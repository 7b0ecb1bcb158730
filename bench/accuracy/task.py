"""What all evaluations share: settings, the data that a task scores, its scores, and the task itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import ConfigDict, Field

from msdc.bench.accuracy.parallel import Parallel
from msdc.bench.accuracy.statistics import RESAMPLES, Items
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.options import Options
from msdc.text.scored_pairs import ScoredPairs
from msdc.text.text_files import SourceFile

Margin = Literal["ratio", "distance", "absolute"]


class Settings(Options):
    """Settings of the tasks."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    resamples: int = Field(
        default=RESAMPLES, ge=0, description="resamples of bootstrap and permutation; 0 skips intervals and tests"
    )
    seed: int = Field(default=0, description="seed of both")
    threads: int | None = Field(default=None, ge=1, description="threads of artifacts and of the neighbour search")
    neighbours: int = Field(default=4, description="k of the margin of bitext mining")
    margin: Margin = Field(default="ratio", description="ratio, distance or absolute")
    candidates: int = Field(default=200_000, description="sentences in XSR's pool")
    queries: int = Field(default=2_000, description="queries of XSR")
    folds: int = Field(default=10, description="folds of SentEval's cross-validation")
    progress: bool = Field(default=False, description="show progress")
    # The float model (drift) or teacher (mse) to compare with.
    goal: CachedEncoder | None = None
    # The model of the documents' vectors (retrieval); None: the one that is scored.
    index: CachedEncoder | None = None


@dataclass(frozen=True)
class TaskData:
    """A data set: what its task scores (`content`, of the type that the task's `score` takes) and the sentences in it.

    `tested` are the sentences that are scored; `others` (training rows, distractors, those of a picture) are encoded
    only. `notes` are remarks for the report.
    """

    name: str
    content: Any
    tested: list[str]
    others: list[str] = field(default_factory=list)
    sources: list[SourceFile] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, content: ScoredPairs | Parallel) -> TaskData:
        """Scored pairs, or parallel sentences, as they are."""
        return cls(content.name, content, content.texts(), [], content.sources, content.notes)

    def texts(self) -> list[str]:
        """Every sentence that is encoded for the score."""
        return self.tested + self.others


def plain(value: Any) -> Any:
    """JSON values: numpy scalars and tuples become plain, numbers that are not finite become None."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Outcome(NamedTuple):
    """Scores of a task as JSON values, and the per-item results for a paired test."""

    scores: dict[str, Any]
    items: Items | None = None


@dataclass(frozen=True)
class AccuracyTask:
    """One kind of measurement. `main` is the key of the headline score in `Outcome.scores`."""

    name: str
    summary: str
    main: str
    read: Callable[[Path], TaskData]
    score: Callable[[CachedEncoder, Any, Settings], Outcome]
    needs_reference: bool = False
