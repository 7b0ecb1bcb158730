"""Drift of an artifact from its float model: cosine of the two vectors of each text, by language and length.

Shapes: N texts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.accuracy.readers.parallel import read_parallel
from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.task import Options, Outcome, Task
from msdc.bench.accuracy.vectors import VectorStore
from msdc.errors import InputError
from msdc.scores import cosine_rows
from msdc.text.text_files import SourceFile, read_lines

EDGES = (-1.0, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0)
# characters: about a phrase, a short sentence, a sentence, a long one
LENGTHS = ((1, 20), (21, 60), (61, 120), (121, 240), (241, None))


@dataclass(frozen=True)
class DriftData:
    """Texts by language."""

    name: str
    sides: dict[str, list[str]]
    sources: list[SourceFile]
    notes: list[str] = field(default_factory=list)

    def __len__(self) -> int:
        return sum(len(texts) for texts in self.sides.values())

    def texts(self) -> list[str]:
        """Every sentence that is encoded."""
        return [text for texts in self.sides.values() for text in texts]


def read_texts(path: str | Path) -> DriftData:
    """A table with one language per column (.tsv), or plain text with one sentence per line.

    Raises:
        InputError: a bad file, with the line.
    """
    path = Path(path)
    if path.name.removesuffix(".gz").endswith(".tsv"):
        parallel = read_parallel(path)
        return DriftData(f"drift/{parallel.name}", parallel.sides, parallel.sources, parallel.notes)
    lines = read_lines(path)
    texts = [line.strip() for line in lines.lines if line.strip()]
    if not texts:
        raise InputError(f"{path}: no text")
    return DriftData(f"drift/{path.name.split('.')[0]}", {"all": texts}, [lines.source], lines.notes)


def _summary(cosine_N: np.ndarray) -> dict[str, Any]:
    return {
        "texts": len(cosine_N),
        "mean": float(cosine_N.mean()),
        "p1": float(np.quantile(cosine_N, 0.01)),
        "min": float(cosine_N.min()),
    }


def score(store: VectorStore, data: DriftData, options: Options) -> Outcome:
    """Mean cosine with the float model (1 is no drift), its interval, histogram, and summaries by language and length.

    Raises:
        InputError: no float model (`--reference`), or one of another width.
    """
    reference = options.reference
    if reference is None:
        raise InputError("drift compares with the float model: name it with --reference MODEL")
    texts = data.texts()
    mine_ND, goal_ND = store.encode(texts), reference.encode(texts)
    if mine_ND.shape[1] != goal_ND.shape[1]:
        raise InputError(f"{store.name} has width {mine_ND.shape[1]} and {reference.name} {goal_ND.shape[1]}")
    cosine_N = np.clip(cosine_rows(mine_ND, goal_ND), -1.0, 1.0)
    languages_N = np.array([language for language, side in data.sides.items() for _ in side])
    lengths_N = np.array([len(text) for text in texts])
    bounds = interval(Items("mean", cosine_N), options.resamples, options.seed)
    by_length = {}
    for low, high in LENGTHS:
        mine_N = (lengths_N >= low) & (lengths_N <= (high or np.inf))
        if mine_N.any():
            by_length[f"{low}-{high}" if high else f"{low}+"] = _summary(cosine_N[mine_N])
    worst = int(cosine_N.argmin())
    return Outcome(
        {
            "cosine": float(cosine_N.mean()),
            "interval": [bound / 100.0 for bound in bounds] if bounds else None,
            **{key: value for key, value in _summary(cosine_N).items() if key in ("p1", "min")},
            "histogram": {"edges": list(EDGES), "counts": np.histogram(cosine_N, EDGES)[0].tolist()},
            "languages": {language: _summary(cosine_N[languages_N == language]) for language in data.sides},
            "lengths": by_length,
            "worst": {"language": str(languages_N[worst]), "characters": int(lengths_N[worst])},
            "reference": reference.name,
            "pairs": len(cosine_N),
        },
    )


TASK = Task("drift", "Cosine of an artifact with its float model", "cosine", read_texts, score, needs_reference=True)
