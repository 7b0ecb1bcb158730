"""Scores shared by training, size planning and benchmarks.

Shapes: N pairs or points, D sentence width, K costs of a point, P pairs of rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from msdc.errors import InputError, MsdcError


def unit_rows(vectors_ND: np.ndarray) -> np.ndarray:
    """Rows of length 1, float32, contiguous; a zero row stays zero."""
    norms_N1 = np.linalg.norm(vectors_ND, axis=1, keepdims=True)
    rows_ND: np.ndarray = np.ascontiguousarray(vectors_ND / np.where(norms_N1 == 0, 1.0, norms_N1), dtype=np.float32)
    return rows_ND


def joined_rows(parts: Sequence[np.ndarray], weights: Sequence[float]) -> np.ndarray:
    """Rows of several models joined, float32 [N, sum of D]: the cosine of two is the weighted mean of the models' own.

    Each part [N, D] is scaled to unit length and by the root of its share of the weights; so a joined row has length 1.
    """
    total = sum(weights)
    scaled = [unit_rows(rows_ND) * (weight / total) ** 0.5 for rows_ND, weight in zip(parts, weights, strict=True)]
    return np.concatenate(scaled, axis=1, dtype=np.float32)


def require_finite(vectors_ND: np.ndarray, name: str) -> np.ndarray:
    """`vectors_ND` unchanged; `MsdcError` if it has NaN or infinity."""
    if not np.isfinite(vectors_ND).all():
        row = int(np.flatnonzero(~np.isfinite(vectors_ND).all(axis=1))[0])
        raise MsdcError(f"{name}: the vector of text {row + 1} holds NaN or infinity; the model is damaged")
    return vectors_ND


def int8_rows(vectors_ND: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows in int8 [N, D], and the float32 step [N] of each: row = codes * step, up to half a step."""
    steps_N = np.maximum(np.abs(vectors_ND).max(1, initial=0.0) / 127, 1e-12).astype(np.float32)
    return np.rint(vectors_ND / steps_N[:, None]).astype(np.int8), steps_N


def cosine_rows(first_ND: np.ndarray, second_ND: np.ndarray) -> np.ndarray:
    """Cosine of each row pair, float64 [N]; a zero vector has cosine 0 with everything."""
    first, second = first_ND.astype(np.float64), second_ND.astype(np.float64)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(1) / np.where(norms == 0, 1.0, norms)


def cosine_spread(vectors_ND: np.ndarray) -> tuple[float, float]:
    """Mean and standard deviation of the cosines of all pairs of rows, with six decimals."""
    unit_ND = unit_rows(vectors_ND).astype(np.float64)
    cosines = (unit_ND @ unit_ND.T)[np.triu_indices(len(unit_ND), 1)]
    return round(float(cosines.mean()), 6), round(float(cosines.std()), 6)


def near_pairs(vectors_ND: np.ndarray, cosine: float, block: int = 2048) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of rows whose cosine is at least `cosine`: duplicates, paraphrases, translations.

    Exact; memory for vectors, pairs and `block` x `block` cosines, time for N x N / 2 dot products.

    Args:
        vectors_ND: floats of any length; a zero row has cosine 0 with everything.
        cosine: above -1, at most 1.
        block: rows that are compared at once.

    Returns:
        Row numbers int64 [P, 2], the smaller one first, and cosines float32 [P]; the most similar pair first.

    Raises:
        InputError: no [N, D] floats, or `cosine` out of range.
        MsdcError: a vector has NaN or infinity.
    """
    vectors_ND = np.asarray(vectors_ND)
    if vectors_ND.ndim != 2 or vectors_ND.dtype.kind != "f":
        raise InputError(f"expected floats [N, D], got {vectors_ND.dtype} {list(vectors_ND.shape)}")
    if not -1 < cosine <= 1:
        raise InputError(f"a cosine is above -1 and at most 1, got {cosine}")
    if block < 1:
        raise InputError(f"a block has at least 1 row, got {block}")
    unit_ND = unit_rows(require_finite(vectors_ND, "vectors"))
    pairs, cosines = [np.zeros((0, 2), np.int64)], [np.zeros(0, np.float32)]
    for start in range(0, len(unit_ND), block):
        for other in range(start, len(unit_ND), block):
            cosine_MM = unit_ND[start : start + block] @ unit_ND[other : other + block].T
            # Of equal rows float32 may give a little less than 1.
            rows, columns = np.nonzero(cosine_MM >= np.float32(cosine) - 1e-6)
            upper = rows + start < columns + other
            rows, columns = rows[upper], columns[upper]
            pairs.append(np.stack([rows + start, columns + other], axis=1))
            cosines.append(cosine_MM[rows, columns])
    pairs_P2, cosines_P = np.concatenate(pairs), np.concatenate(cosines)
    order_P = np.lexsort((pairs_P2[:, 1], pairs_P2[:, 0], -cosines_P))
    return pairs_P2[order_P], cosines_P[order_P]


def ranks(values_RN: np.ndarray) -> np.ndarray:
    """Ranks along the last axis, from 1, ties averaged; float64."""
    values_RN = np.asarray(values_RN)
    order_RN = np.argsort(values_RN, axis=-1, kind="stable")
    sorted_RN = np.take_along_axis(values_RN, order_RN, -1)
    edge_R1 = np.ones((*values_RN.shape[:-1], 1), dtype=bool)
    changes_RN = sorted_RN[..., 1:] != sorted_RN[..., :-1]
    # First and last place of each run of equal values, which share the rank in their middle.
    place_N = np.arange(values_RN.shape[-1])
    first_RN = np.maximum.accumulate(np.where(np.concatenate([edge_R1, changes_RN], -1), place_N, 0), -1)
    ends_RN = np.where(np.concatenate([changes_RN, edge_R1], -1), place_N, len(place_N))
    last_RN = np.minimum.accumulate(ends_RN[..., ::-1], -1)[..., ::-1]
    found_RN = np.empty(values_RN.shape)
    np.put_along_axis(found_RN, order_RN, (first_RN + last_RN) / 2 + 1, -1)
    return found_RN


def spearman(predicted_N: np.ndarray, gold_N: np.ndarray) -> float:
    """Spearman rank correlation x 100, ties averaged.

    Raises:
        InputError: fewer than two pairs, NaN, or a constant side, for which the correlation is undefined.
    """
    predicted_N, gold_N = np.asarray(predicted_N, dtype=np.float64), np.asarray(gold_N, dtype=np.float64)
    if len(predicted_N) < 2 or len(predicted_N) != len(gold_N):
        raise InputError(
            f"a correlation needs two lists of equal length >= 2, got {len(predicted_N)} and {len(gold_N)}"
        )
    if np.isnan(predicted_N).any() or np.isnan(gold_N).any():
        raise InputError("a score or a similarity is NaN: the correlation is undefined")
    if np.ptp(predicted_N) == 0 or np.ptp(gold_N) == 0:
        raise InputError("all similarities (or all gold scores) are equal: Spearman is undefined")
    return float(np.corrcoef(ranks(predicted_N), ranks(gold_N))[0, 1] * 100.0)


def mse(first_ND: np.ndarray, second_ND: np.ndarray) -> float:
    """Mean squared error over all elements, as `torch.nn.functional.mse_loss`."""
    return float(np.mean((first_ND.astype(np.float64) - second_ND.astype(np.float64)) ** 2))


def explained_variance(teacher_ND: np.ndarray, student_ND: np.ndarray) -> float:
    """R²: 1 - the student's squared error over the teacher's variance, both summed over all dimensions.

    0 is as good as the teacher's mean vector, 1 is the teacher itself, also where its vectors are all equal.
    """
    teacher, student = teacher_ND.astype(np.float64), student_ND.astype(np.float64)
    error, spread = float(((teacher - student) ** 2).sum()), float(((teacher - teacher.mean(0)) ** 2).sum())
    return 1.0 - error / spread if spread > 0 else float(error == 0)


def pareto(costs_NK: Sequence[Sequence[float]]) -> list[bool]:
    """Which points no other point dominates, by being at most as costly in all K and less in one; equal points stay.

    Every value is a cost (smaller is better); pass a gain negated.
    """
    values_NK = np.asarray(costs_NK, dtype=np.float64)
    front_N = np.zeros(len(values_NK), dtype=bool)
    if not len(values_NK):
        return []
    front = np.empty((0, values_NK.shape[1]))
    # In lexicographic order a point can only be dominated by one before it.
    for index in np.lexsort(values_NK.T[::-1]):
        value = values_NK[index]
        if len(front) and bool(((front <= value).all(1) & (front < value).any(1)).any()):
            continue
        front_N[index] = True
        front = np.vstack([front, value])
    return front_N.tolist()
