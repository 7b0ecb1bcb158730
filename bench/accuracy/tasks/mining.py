"""Bitext mining as BUCC scores it (MKD section 4.2; Artetxe and Schwenk 2019).

Shapes: C mined candidates, best score first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from msdc.bench.accuracy.neighbours import Candidates, mine
from msdc.bench.accuracy.readers.bucc import Mining, Split, read_bucc
from msdc.bench.accuracy.task import Options, Outcome, Task
from msdc.bench.accuracy.vectors import VectorStore
from msdc.errors import InputError
from msdc.scores import unit_rows


def right_answers(mined: Candidates, gold: set[tuple[int, int]]) -> np.ndarray:
    """Whether each candidate is a gold pair, bool [C]."""
    return np.array(
        [pair in gold for pair in zip(mined.source_C.tolist(), mined.target_C.tolist(), strict=True)], dtype=bool
    )


def best_threshold(score_C: np.ndarray, right_C: np.ndarray, gold: int) -> float:
    """The threshold of the best F1: halfway between the last accepted and the first rejected score.

    It lies between two different scores, since a threshold cannot separate equal ones.
    """
    if not len(score_C):
        return 0.0
    hits_C = right_C.cumsum()
    f1_C = 2 * hits_C / (np.arange(1, len(score_C) + 1) + gold)
    following_C = np.append(score_C[1:], score_C[-1] - 2 * abs(score_C[-1]) - 1.0)
    f1_C = np.where(score_C > following_C, f1_C, -1.0)
    cut = int(f1_C.argmax())
    return float((score_C[cut] + following_C[cut]) / 2) if cut + 1 < len(score_C) else float(score_C[cut])


def scores_at(score_C: np.ndarray, right_C: np.ndarray, gold: int, threshold: float) -> dict[str, Any]:
    """Precision, recall and F1 x 100 of the candidates at or above `threshold`."""
    taken = int((score_C >= threshold).sum())
    hits = int(right_C[:taken].sum())
    precision = hits / taken if taken else 0.0
    recall = hits / gold if gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    return {"f1": 100 * f1, "precision": 100 * precision, "recall": 100 * recall, "extracted": taken, "gold": gold}


def _mine_split(store: VectorStore, split: Split, options: Options) -> Candidates:
    source_ND = unit_rows(store.encode(split.source))
    target_MD = unit_rows(store.encode(split.target))
    return mine(
        source_ND,
        target_MD,
        k=options.neighbours,
        kind=options.margin,
        threads=options.threads,
        progress=options.progress,
    )


def score(store: VectorStore, data: Mining, options: Options) -> Outcome:
    """F1, precision and recall x 100 on the test split, at the threshold that was best on the training split.

    Without published test gold the training split is scored at its own best threshold; `split` in the result names it.

    Raises:
        InputError: the training split has no gold pairs.
    """
    if not data.training.gold:
        raise InputError(f"{data.name}: the training split has no gold pairs, so there is no threshold")
    mined = _mine_split(store, data.training, options)
    right_C = right_answers(mined, data.training.gold)
    threshold = best_threshold(mined.score_C, right_C, len(data.training.gold))
    training = scores_at(mined.score_C, right_C, len(data.training.gold), threshold)
    final, split = training, "training"
    if data.test is not None and data.test.gold:
        mined = _mine_split(store, data.test, options)
        right_C = right_answers(mined, data.test.gold)
        final, split = scores_at(mined.score_C, right_C, len(data.test.gold), threshold), "test"
    shown = data.test if split == "test" and data.test is not None else data.training
    return Outcome(
        {
            **final,
            "split": split,
            "threshold": threshold,
            "margin": options.margin,
            "neighbours": options.neighbours,
            "sources": len(shown.source),
            "targets": len(shown.target),
            "training": training,
            "pairs": final["gold"],
        }
    )


TASK = Task("mining", "Bitext mining: margin over k neighbours, threshold from training, F1", "f1", read_bucc, score)
