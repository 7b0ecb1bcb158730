"""Accuracy on a device: sentences are embedded on the device, scores are computed on the host.

Every device follows the same steps: `collect` the tasks, embed `Tasks.texts` on the device, `Tasks.score` the vectors.

Shapes: U distinct texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msdc.bench.accuracy.sets import find_data_folder, select_sets
from msdc.bench.accuracy.task import Settings, Task, plain
from msdc.bench.accuracy.vectors import VectorStore
from msdc.bench.result import Accuracy
from msdc.bench.settings import BenchSettings
from msdc.errors import InputError, MsdcError

RESAMPLES = 1000


class VectorTable:
    """Vectors that were computed elsewhere, behind the `.encode` of a model."""

    def __init__(self, name: str, texts: Sequence[str], vectors_UD: np.ndarray) -> None:
        if len(texts) != len(vectors_UD):
            raise MsdcError(f"{name}: {len(vectors_UD)} vectors came back for {len(texts)} texts")
        self.name = name
        self.width = int(vectors_UD.shape[1])
        self._rows = {text: row for row, text in enumerate(texts)}
        self._vectors_UD = vectors_UD

    def encode(self, texts: Sequence[str], **_ignored: Any) -> np.ndarray:
        """Rows of `texts`, float32 [N, D].

        Raises:
            MsdcError: a text without a vector.
        """
        try:
            return self._vectors_UD[[self._rows[text] for text in texts]]
        except KeyError as error:
            raise MsdcError(f"{self.name}: no vector for {str(error)[:60]}") from error


@dataclass(frozen=True)
class Tasks:
    """Tasks with their data, read and checked: (name as requested, task, data)."""

    loaded: tuple[tuple[str, Task, Any], ...]

    def texts(self) -> list[str]:
        """Distinct sentences of all tasks, in order of appearance."""
        return list(dict.fromkeys(text for _, _, data in self.loaded for text in data.texts()))

    def score(self, model: Any, resamples: int = RESAMPLES) -> tuple[Accuracy, ...]:
        """Scores of `model` (anything with `.encode`); each distinct sentence is encoded once."""
        store = model if isinstance(model, VectorStore) else VectorStore(model)
        found = []
        for name, task, data in self.loaded:
            scores = plain(task.score(store, data.content, Settings(resamples=resamples)).scores)
            found.append(Accuracy(task=task.name, name=name, **scores))
        return tuple(found)

    def score_vectors(self, name: str, texts: Sequence[str], vectors_UD: np.ndarray) -> tuple[Accuracy, ...]:
        """Scores of vectors [U, D] that a device computed for `texts`."""
        return self.score(VectorTable(name, texts, vectors_UD)) if self.loaded else ()


def collect(settings: BenchSettings) -> Tasks:
    """Read the data of every requested task; names are those of `msdc evaluate`: graded-pairs, sts17/es-en, sts=FILE.

    Raises:
        InputError: an unknown task, absent or bad data, or a task that needs a second model.
    """
    found = select_sets(settings.tasks, find_data_folder(settings.data))
    for job in found.sets:
        if job.task.needs_reference:
            raise InputError(f"task {job.name} compares two models: run it with msdc evaluate")
    return Tasks(tuple((job.name, job.task, job.load()) for job in found.sets))
