"""Uncertainty of scores: bootstrap intervals, and paired tests between two models on the same items.

Shapes: N items, R resamples. Every random number comes from a seeded generator.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from msdc.scores import ranks

RESAMPLES = 1000
LEVEL = 0.95
CHUNK_NUMBERS = 4_000_000


class Items(NamedTuple):
    """Results of one model per item of a task, so that two models can be compared item by item.

    With gold scores `gold_N`, `values_N` are predicted similarities (Spearman x 100); without, per-item results whose
    mean x 100 is the score (1 right, 0 wrong).
    """

    values_N: np.ndarray
    gold_N: np.ndarray | None = None


def _pearson_rows(first_RN: np.ndarray, second_RN: np.ndarray) -> np.ndarray:
    """Pearson of each row pair; NaN where a side is constant."""
    first = first_RN - first_RN.mean(-1, keepdims=True)
    second = second_RN - second_RN.mean(-1, keepdims=True)
    scale = np.sqrt((first**2).sum(-1) * (second**2).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(scale > 0, (first * second).sum(-1) / scale, np.nan)


def resampled_ranks(values_N: np.ndarray, picks_RN: np.ndarray) -> np.ndarray:
    """`ranks(values_N[picks_RN])` without sorting every resample: values are sorted once and counted per resample."""
    distinct, place_N = np.unique(values_N, return_inverse=True)
    resamples, places = len(picks_RN), len(distinct)
    picked_RN = place_N[picks_RN]
    offsets_R1 = np.arange(resamples)[:, None] * places
    counts_RP = np.bincount((picked_RN + offsets_R1).ravel(), minlength=resamples * places).reshape(resamples, places)
    mean_rank_RP = counts_RP.cumsum(1) - (counts_RP - 1) / 2
    return np.take_along_axis(mean_rank_RP, picked_RN, 1)


def resampled_spearman(values_N: np.ndarray, gold_N: np.ndarray, picks_RN: np.ndarray) -> np.ndarray:
    """Spearman x 100 of each resample [R]; NaN where a side is constant."""
    return 100.0 * _pearson_rows(resampled_ranks(values_N, picks_RN), resampled_ranks(gold_N, picks_RN))


def chunks(resamples: int, count: int) -> list[int]:
    """How many resamples of `count` items are drawn at a time, so that memory stays bounded."""
    step = max(1, CHUNK_NUMBERS // count)
    return [min(step, resamples - start) for start in range(0, resamples, step)]


def resampled_scores(items: list[Items], resamples: int, seed: int) -> np.ndarray:
    """Scores [models, R] on bootstrap resamples, the same resample for every model."""
    count = len(items[0].values_N)
    generator = np.random.default_rng(seed)
    blocks = []
    for size in chunks(resamples, count):
        picks_RN = generator.integers(0, count, size=(size, count))
        blocks.append([
            100.0 * sample_items.values_N[picks_RN].mean(axis=1)
            if sample_items.gold_N is None
            else resampled_spearman(sample_items.values_N, sample_items.gold_N, picks_RN)
            for sample_items in items
        ])  # fmt: skip
    return np.concatenate(blocks, axis=1)


def percentiles(scores_R: np.ndarray) -> tuple[float, float] | None:
    """Percentile interval; None when every resample is undefined."""
    scores_R = scores_R[np.isfinite(scores_R)]
    if not len(scores_R):
        return None
    low, high = np.quantile(scores_R, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def interval(items: Items, resamples: int = RESAMPLES, seed: int = 0) -> tuple[float, float] | None:
    """Percentile bootstrap interval over items, in points (x 100); None for fewer than three items or no resamples."""
    if resamples < 1 or len(items.values_N) < 3:
        return None
    return percentiles(resampled_scores([items], resamples, seed)[0])


class PairedTest(NamedTuple):
    """Score of model A minus model B on the same items (x 100), its interval, and p of the paired permutation test."""

    difference: float
    low: float
    high: float
    p_value: float


def paired_test(first: Items, second: Items, resamples: int = RESAMPLES, seed: int = 0) -> PairedTest:
    """Paired test of two models: bootstrap over items for the interval, permutation for p.

    The permutation swaps the two models' results per item with probability one half, as if neither were better. For
    correlations the results are ranks, so that the scales of the models do not matter.
    """
    same_gold = np.array_equal(first.gold_N, second.gold_N)  # type: ignore[arg-type]  # True of None and None
    if len(first.values_N) != len(second.values_N) or not same_gold:
        raise ValueError("a paired test needs two models on the same items")
    scores = resampled_scores([first, second], resamples, seed)
    low, high = percentiles(scores[0] - scores[1]) or (float("nan"), float("nan"))
    observed, p_value = _permutation(first, second, resamples, seed + 1)
    return PairedTest(observed, low, high, p_value)


def _permutation(first: Items, second: Items, resamples: int, seed: int) -> tuple[float, float]:
    generator = np.random.default_rng(seed)
    first_values, second_values, gold_N = (
        first.values_N.astype(np.float64),
        second.values_N.astype(np.float64),
        first.gold_N,
    )
    if gold_N is not None:
        first_values, second_values, gold_N = ranks(first_values), ranks(second_values), ranks(gold_N)

    def score(values_RN: np.ndarray) -> np.ndarray:
        if gold_N is None:
            return 100.0 * values_RN.mean(-1)
        return 100.0 * _pearson_rows(values_RN, np.broadcast_to(gold_N, values_RN.shape))

    observed = float((score(first_values[None]) - score(second_values[None]))[0])
    extreme = 0
    for size in chunks(resamples, len(first_values)):
        swap_RN = generator.random((size, len(first_values))) < 0.5
        difference_R = score(np.where(swap_RN, second_values, first_values)) - score(
            np.where(swap_RN, first_values, second_values)
        )
        extreme += int((np.abs(difference_R) >= abs(observed) - 1e-12).sum())
    return observed, (extreme + 1) / (resamples + 1)
