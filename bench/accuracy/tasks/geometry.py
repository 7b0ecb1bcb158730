"""Shape of the embedding space: alignment and uniformity (Wang and Isola 2020; DCSE section 5), isotropy, and the
accuracy of predicting a sentence's language from its vector.

Shapes: N sentences, P pairs, D width. Vectors are on the unit sphere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.accuracy.readers.parallel import PairsAndParallel, Parallel
from msdc.bench.accuracy.task import Options, Outcome, Task
from msdc.bench.accuracy.vectors import VectorStore
from msdc.errors import InputError
from msdc.scores import unit_rows
from msdc.text.scored_pairs import read_pairs

# Pairs above this gold score are positives: DCSE follows SimCSE, "STS-B pairs with a score higher than 4".
POSITIVE_ABOVE = 4.0
MAX_SENTENCES = 5000
MAX_ROWS = 300


class GeometryData(PairsAndParallel):
    """Scored pairs for alignment, uniformity and isotropy; parallel sentences for language separability."""

    ROWS = MAX_ROWS

    @property
    def name(self) -> str:
        """geometry/NAME of the pairs."""
        return f"geometry/{self.pairs.name}"


def alignment(first_PD: np.ndarray, second_PD: np.ndarray) -> float:
    """Mean squared distance of positives (Wang and Isola, eq. 1 with alpha = 2)."""
    return float(((first_PD.astype(np.float64) - second_PD) ** 2).sum(1).mean())


def uniformity(vectors_ND: np.ndarray) -> float:
    """log of the mean of exp(-2 squared distance) over all distinct pairs (Wang and Isola, eq. 2 with t = 2)."""
    from scipy.spatial.distance import pdist

    return float(np.log(np.exp(-2.0 * pdist(vectors_ND.astype(np.float64), "sqeuclidean")).mean()))


def partition_isotropy(vectors_ND: np.ndarray) -> float:
    """min over max of the partition function Z(c) = sum_i exp(c . v_i), c over the eigenvectors of V'V and their
    negatives (Mu and Viswanath 2018, eq. 4; an eigenvector's sign is arbitrary, so both are taken). 1 is isotropic."""
    vectors_ND = vectors_ND.astype(np.float64)
    _, axes_DD = np.linalg.eigh(vectors_ND.T @ vectors_ND)
    projections_ND = vectors_ND @ axes_DD
    sums = np.concatenate([np.exp(projections_ND).sum(0), np.exp(-projections_ND).sum(0)])
    return float(sums.min() / sums.max())


def mean_cosine(vectors_ND: np.ndarray) -> float:
    """Mean cosine of two different sentences: 0 for uniform directions, near 1 in a narrow cone."""
    vectors_ND = vectors_ND.astype(np.float64)
    count = len(vectors_ND)
    total_D = vectors_ND.sum(0)
    return float((total_D @ total_D - (vectors_ND**2).sum()) / (count * (count - 1)))


def language_separability(store: VectorStore, parallel: Parallel, seed: int) -> dict[str, Any]:
    """Cross-validated accuracy x 100 of a linear classifier that predicts the language; translations share a fold."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold, cross_val_score

    rows = min(len(parallel), MAX_ROWS)
    texts = [text for side in parallel.sides.values() for text in side[:rows]]
    labels = [language for language in parallel.languages for _ in range(rows)]
    groups = list(range(rows)) * len(parallel.languages)
    folds = GroupKFold(5, shuffle=True, random_state=seed)
    marks = cross_val_score(
        LogisticRegression(C=10.0, max_iter=2000), unit_rows(store.encode(texts)), labels, groups=groups, cv=folds
    )
    return {
        "accuracy": 100.0 * float(marks.mean()),
        "chance": 100.0 / len(parallel.languages),
        "languages": parallel.languages,
        "sentences": len(texts),
    }


def score(store: VectorStore, data: GeometryData, options: Options) -> Outcome:
    """Alignment and uniformity (lower is better), isotropy, mean cosine and language separability.

    Raises:
        InputError: no pair above the positive score, or fewer than two distinct sentences.
    """
    pairs = data.pairs
    count = len(pairs)
    vectors = unit_rows(store.encode(pairs.texts(), pairs.where))
    positive_N = pairs.gold_N > POSITIVE_ABOVE
    distinct = list(dict(zip(pairs.texts(), range(2 * count), strict=True)).values())[:MAX_SENTENCES]
    if not positive_N.any() or len(distinct) < 2:
        raise InputError(f"{pairs.name}: geometry needs a pair with gold above {POSITIVE_ABOVE:g} and two sentences")
    sentences_ND = vectors[distinct]
    scores: dict[str, Any] = {
        "uniformity": uniformity(sentences_ND),
        "alignment": alignment(vectors[:count][positive_N], vectors[count:][positive_N]),
        "isotropy": partition_isotropy(sentences_ND),
        "mean_cosine": mean_cosine(sentences_ND),
        "positives": int(positive_N.sum()),
        "sentences": len(distinct),
        "pairs": count,
    }
    if data.parallel is not None:
        scores["language_separability"] = language_separability(store, data.parallel, options.seed)
    return Outcome(scores)


def read(path: Path) -> GeometryData:
    """Scored pairs."""
    return GeometryData(read_pairs(path))


TASK = Task("geometry", "Alignment, uniformity, isotropy, language separability", "uniformity", read, score)
