"""Semantic textual similarity: correlation of cosine with gold scores (all four papers).

A set of several parts (STS12-16) is scored in both usual ways: "all" (all pairs in one list; the headline) and "mean"
(mean over the parts). Shapes: N pairs, D sentence width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.task import Options, Outcome, Task
from msdc.bench.accuracy.vectors import VectorStore
from msdc.errors import InputError, MsdcError
from msdc.scores import cosine_rows, spearman
from msdc.text.scored_pairs import ScoredPairs, read_pairs

# Cosines of identical vectors differ by rounding only; a rank correlation of rounding noise is meaningless.
CONSTANT_SPREAD = 1e-6


def pair_cosines(store: VectorStore, pairs: ScoredPairs) -> np.ndarray:
    """Cosine of each pair, float64 [N].

    Raises:
        MsdcError: NaN vectors (with the line), or equal cosines, for which Spearman is undefined.
    """
    vectors = store.encode(pairs.texts(), pairs.where)
    count = len(pairs)
    cosines_N = cosine_rows(vectors[:count], vectors[count:])
    if count >= 2 and np.ptp(cosines_N) < CONSTANT_SPREAD:
        raise MsdcError(
            f"{pairs.name} lines {pairs.lines[0]}..{pairs.lines[-1]}: {store.name} gives every pair the same cosine "
            f"({cosines_N[0]:.4f}), so Spearman is undefined; the model maps all sentences to one vector"
        )
    return cosines_N


def correlations(cosines_N: np.ndarray, gold_N: np.ndarray) -> dict[str, float]:
    """Spearman and Pearson x 100."""
    return {"spearman": spearman(cosines_N, gold_N), "pearson": float(np.corrcoef(cosines_N, gold_N)[0, 1] * 100.0)}


def _subset_scores(pairs: ScoredPairs, cosines_N: np.ndarray, options: Options) -> dict[str, Any]:
    """Scores of each part in order of appearance; a part that is too small or has constant gold scores has none."""
    subsets_N = np.array(pairs.subsets)
    out: dict[str, Any] = {}
    for subset in dict.fromkeys(pairs.subsets):
        mine_N = subsets_N == subset
        entry: dict[str, Any] = {"pairs": int(mine_N.sum())}
        predicted_N, gold_N = cosines_N[mine_N], pairs.gold_N[mine_N]
        if len(gold_N) >= 2 and np.ptp(gold_N) > 0 and np.ptp(predicted_N) > 0:
            entry |= correlations(predicted_N, gold_N)
            entry["interval"] = interval(Items("correlation", predicted_N, gold_N), options.resamples, options.seed)
        out[subset] = entry
    return out


def score(store: VectorStore, pairs: ScoredPairs, options: Options) -> Outcome:
    """Spearman and Pearson x 100 with a bootstrap interval; by part, and their mean, when there are several.

    Raises:
        InputError: fewer than two pairs, or all gold scores equal.
        MsdcError: see `pair_cosines`.
    """
    if len(pairs) < 2 or np.ptp(pairs.gold_N) == 0:
        raise InputError(f"{pairs.name}: {len(pairs)} pairs, {len(set(pairs.gold_N))} gold value(s): no correlation")
    cosines_N = pair_cosines(store, pairs)
    items = Items("correlation", cosines_N, pairs.gold_N)
    scores: dict[str, Any] = {
        **correlations(cosines_N, pairs.gold_N),
        "interval": interval(items, options.resamples, options.seed),
        "pairs": len(pairs),
    }
    if len(set(pairs.subsets)) > 1:
        scores["subsets"] = _subset_scores(pairs, cosines_N, options)
        parts = [part["spearman"] for part in scores["subsets"].values() if "spearman" in part]
        scores["mean"] = float(np.mean(parts))
    return Outcome(scores, items)


TASK = Task("sts", "Spearman and Pearson of cosine against gold scores", "spearman", read_pairs, score)
