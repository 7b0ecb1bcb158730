"""Language bias (MKD section 5.2): Spearman on all sets in one pool minus the mean over the sets; 0 is best.

A model that gives sentences of one language similar vectors because of the language ranks pairs well within a set and
badly across sets, so the score of the joint pool is below the mean. Shapes: N pairs, P points, D width.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.accuracy.readers.parallel import PairsAndParallel, Parallel
from msdc.bench.accuracy.statistics import CHUNK_NUMBERS, percentiles, resampled_spearman
from msdc.bench.accuracy.task import Options, Outcome, Task
from msdc.bench.accuracy.tasks.sts import pair_cosines
from msdc.bench.accuracy.vectors import VectorStore
from msdc.errors import InputError
from msdc.scores import spearman
from msdc.text.scored_pairs import join_pairs, read_pairs

PICTURE_POINTS = 250


class BiasData(PairsAndParallel):
    """Scored pairs in at least two subsets, and parallel sentences of two languages for the picture."""

    ROWS, LANGUAGES = PICTURE_POINTS, 2


def read_sets(path: str | Path) -> BiasData:
    """A folder of scored-pair files, one set each; or one file that is divided by its language columns.

    Raises:
        InputError: fewer than two sets, or a bad file.
    """
    path = Path(path)
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.name.removesuffix(".gz").endswith((".tsv", ".csv")))
        if not files:
            raise InputError(f"{path}: no .tsv or .csv files of scored pairs")
        return BiasData(join_pairs(f"bias/{path.name}", [read_pairs(p) for p in files]))
    pairs = read_pairs(path)
    return BiasData(replace(pairs, name=f"bias/{pairs.name}"))


def principal_plane(vectors_PD: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """First two principal components of the rows: coordinates [P, 2] and the share of variance of each.

    The sign of a component is that of its largest coordinate, so that the picture is the same on every machine.
    """
    centred_PD = vectors_PD.astype(np.float64) - vectors_PD.mean(0, dtype=np.float64)
    left, strength, _ = np.linalg.svd(centred_PD, full_matrices=False)
    plane_P2 = left[:, :2] * strength[:2]
    plane_P2 = plane_P2 * np.sign(plane_P2[np.abs(plane_P2).argmax(0), [0, 1]])
    total = float((strength**2).sum())
    return plane_P2, [float(s**2) / total if total else 0.0 for s in strength[:2]]


def _picture(store: VectorStore, parallel: Parallel) -> dict[str, Any]:
    """Points of both languages in one plane, and the distance between the languages in it."""
    sides = {language: texts[:PICTURE_POINTS] for language, texts in list(parallel.sides.items())[:2]}
    vectors_PD = np.concatenate([store.encode(texts) for texts in sides.values()])
    plane_P2, explained = principal_plane(vectors_PD)
    points, start = {}, 0
    for language, texts in sides.items():
        points[language] = [[round(float(x), 4), round(float(y), 4)] for x, y in plane_P2[start : start + len(texts)]]
        start += len(texts)
    first, second = (np.array(values) for values in points.values())
    spread = float(np.sqrt((first.var(0).sum() + second.var(0).sum()) / 2))
    gap = float(np.linalg.norm(first.mean(0) - second.mean(0)))
    return {"points": points, "explained": explained, "gap": gap / spread if spread else 0.0, "source": parallel.name}


def _resampled_bias(
    cosines_N: np.ndarray, gold_N: np.ndarray, members: list[np.ndarray], options: Options
) -> np.ndarray:
    """Joint Spearman minus the mean of the sets on resamples within each set; undefined ones are dropped."""
    generator = np.random.default_rng(options.seed)
    step = max(1, CHUNK_NUMBERS // sum(map(len, members)))
    draws = []
    for start in range(0, options.resamples, step):
        count = min(step, options.resamples - start)
        rows = [rows[generator.integers(0, len(rows), size=(count, len(rows)))] for rows in members]
        singles = [resampled_spearman(cosines_N, gold_N, picks) for picks in rows]
        draws.append(resampled_spearman(cosines_N, gold_N, np.concatenate(rows, axis=1)) - np.mean(singles, axis=0))
    draws_R = np.concatenate(draws)
    return draws_R[np.isfinite(draws_R)]


def score(store: VectorStore, data: BiasData, options: Options) -> Outcome:
    """Joint Spearman, mean Spearman of the sets, and their difference (all x 100) with interval and two-sided p.

    The interval resamples pairs within each set; p is twice the share of draws on the other side of 0.

    Raises:
        InputError: fewer than two sets with differing gold scores.
    """
    pairs = data.pairs
    cosines_N = pair_cosines(store, pairs)
    subsets_N = np.array(pairs.subsets)
    members = [np.flatnonzero(subsets_N == name) for name in dict.fromkeys(pairs.subsets)]
    members = [rows for rows in members if len(rows) >= 2 and np.ptp(pairs.gold_N[rows]) > 0]
    if len(members) < 2:
        raise InputError(f"{pairs.name}: language bias needs at least two sets, found {len(members)}")
    kept = np.concatenate(members)

    sets = {str(subsets_N[rows[0]]): spearman(cosines_N[rows], pairs.gold_N[rows]) for rows in members}
    joint, mean = spearman(cosines_N[kept], pairs.gold_N[kept]), float(np.mean(list(sets.values())))
    scores: dict[str, Any] = {"bias": joint - mean, "interval": None, "p": None}
    if options.resamples:
        draws = _resampled_bias(cosines_N, pairs.gold_N, members, options)
        bounds = percentiles(draws)
        tail = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
        scores |= {"interval": bounds, "p": min(1.0, 2 * (tail + 1) / (len(draws) + 1))}
    scores |= {"joint": joint, "mean": mean, "sets": sets, "pairs": len(kept)}
    if data.parallel is not None:
        scores["picture"] = _picture(store, data.parallel)
    return Outcome(scores)


TASK = Task("bias", "Language bias: Spearman of the joint pool minus the mean of the sets", "bias", read_sets, score)
