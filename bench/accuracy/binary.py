"""Same or not, from one similarity: the best accuracy and F1 over thresholds, and average precision.

Shapes: N pairs.
"""

from __future__ import annotations

import numpy as np

from msdc.errors import InputError


def binary_scores(similarity_N: np.ndarray, same_N: np.ndarray) -> dict[str, float]:
    """Best accuracy and F1 (x 100) with their thresholds, and average precision (x 100).

    A threshold lies halfway between two different similarities, so it never parts equal ones. The thresholds are
    chosen on the pairs that are scored, as sentence-transformers' BinaryClassificationEvaluator does: read the
    scores as what the best threshold could reach.

    Raises:
        InputError: fewer than two pairs, one class only, or all similarities equal.
    """
    from sklearn.metrics import average_precision_score

    similarity_N, same_N = np.asarray(similarity_N, dtype=np.float64), np.asarray(same_N, dtype=bool)
    count, positives = len(same_N), int(same_N.sum())
    if count < 2 or positives in (0, count) or np.ptp(similarity_N) == 0:
        raise InputError(f"{count} pairs, {positives} of them the same: no threshold to look for")
    order = np.argsort(-similarity_N, kind="stable")
    scores, hits = similarity_N[order], same_N[order].cumsum()
    taken = np.arange(1, count)
    possible = scores[:-1] > scores[1:]
    # taken pairs are called the same, the others different
    accuracy = (hits[:-1] + (count - taken) - (positives - hits[:-1])) / count
    f1 = 2 * hits[:-1] / (taken + positives)
    best_accuracy = int(np.where(possible, accuracy, -1).argmax())
    best_f1 = int(np.where(possible, f1, -1).argmax())
    return {
        "accuracy": 100.0 * float(accuracy[best_accuracy]),
        "accuracy_threshold": float((scores[best_accuracy] + scores[best_accuracy + 1]) / 2),
        "f1": 100.0 * float(f1[best_f1]),
        "f1_threshold": float((scores[best_f1] + scores[best_f1 + 1]) / 2),
        "average_precision": 100.0 * float(average_precision_score(same_N, similarity_N)),
    }
