"""Accuracy on a device: the tasks' sentences go there, their vectors come back, the scores are made here.

Every device does the same: `collect` the tasks, embed `Tasks.texts` on the device, `Tasks.score` the vectors.

Shapes: U distinct texts, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.accuracy.registry import find_task
from bench.accuracy.task import Options, Task
from bench.accuracy.vectors import VectorStore
from bench.devices.base import BenchSettings
from bench.result import Accuracy
from msdc.errors import InputError, MsdcError

GRADED_PAIRS = Path(__file__).resolve().parent.parent / "msdc" / "data" / "quickstart" / "graded_pairs.tsv"
# Names that stand for a file of a task: (task, pattern under the data folder).
NAMED = {
    "sts17": ("sts", "sts2017/STS2017.*.tsv"),
    "stsb": ("sts", "stsb/sts-test.tsv.gz"),
}
# The translation-quality track of STS2017 is not similarity as the papers count it.
LEFT_OUT = ("STS2017.es-en.4b.tsv",)


class VectorTable:
    """Something with `.encode` whose vectors were made elsewhere."""

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
            MsdcError: a text that was never embedded.
        """
        try:
            return self._vectors_UD[[self._rows[text] for text in texts]]
        except KeyError as error:
            raise MsdcError(f"{self.name}: no vector of {str(error)[:60]}") from error


@dataclass(frozen=True)
class Tasks:
    """Tasks with their data read and checked."""

    loaded: tuple[tuple[Task, Any], ...]

    def texts(self) -> list[str]:
        """Every sentence of every task, once, in order of appearance."""
        return list(dict.fromkeys(text for _, data in self.loaded for text in data.texts()))

    def score(self, model: Any, resamples: int = 1000) -> tuple[Accuracy, ...]:
        """Scores of `model` (anything with `.encode`); a sentence is encoded once however many tasks hold it."""
        store = model if isinstance(model, VectorStore) else VectorStore(model)
        found = []
        for task, data in self.loaded:
            scores = task.score(store, data, Options(resamples=resamples)).scores
            found.append(Accuracy(task=task.name, name=data.name, **scores))
        return tuple(found)

    def score_vectors(self, name: str, texts: Sequence[str], vectors_UD: np.ndarray) -> tuple[Accuracy, ...]:
        """Scores of vectors [U, D] that a device made of `texts`."""
        return self.score(VectorTable(name, texts, vectors_UD)) if self.loaded else ()


def task_files(spec: str, data: Path | None) -> list[tuple[str, Path]]:
    """(task, file) pairs of one `--tasks` entry: a name, or TASK=FILE.

    Raises:
        InputError: unknown name, or the data folder that it needs is not given or lacks the file.
    """
    name, separator, file = spec.partition("=")
    if separator:
        return [(name, Path(file))]
    if name == "graded-pairs":
        return [("sts", GRADED_PAIRS)]
    if name not in NAMED:
        known = ", ".join(["graded-pairs", *NAMED])
        raise InputError(f"unknown task {name!r}; known: {known}, and TASK=FILE such as sts=pairs.tsv")
    task, pattern = NAMED[name]
    if data is None:
        raise InputError(f"task {name} needs its files: give --data FOLDER (with {pattern} in it)")
    files = sorted(path for path in data.glob(pattern) if path.name not in LEFT_OUT)
    if not files:
        raise InputError(f"{data}: no {pattern} for task {name}")
    return [(task, path) for path in files]


def collect(settings: BenchSettings) -> Tasks:
    """Read every asked task's data.

    Raises:
        InputError: an unknown task or a bad file.
    """
    pairs = [pair for spec in settings.tasks for pair in task_files(spec, settings.data)]
    return Tasks(tuple((find_task(name), find_task(name).read(path)) for name, path in dict.fromkeys(pairs)))
