"""Evaluations of pairwise similarity: STS, language bias, geometry, drift of an artifact, distance to the teacher.

Shapes: N pairs or texts, P points or positives, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.accuracy.parallel import Parallel, read_parallel
from msdc.bench.accuracy.statistics import Items, chunks, interval, percentiles, resampled_spearman
from msdc.bench.accuracy.task import AccuracyTask, Outcome, Settings, TaskData
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.errors import InputError, MsdcError
from msdc.files import without_system_files
from msdc.scores import cosine_rows, mse, spearman, unit_rows
from msdc.text.scored_pairs import ANY_SCORE, ScoredPairs, join_pairs, read_pairs
from msdc.text.text_files import SourceFile, read_lines

# Cosines of identical vectors differ by rounding only; a rank correlation of rounding noise is meaningless.
CONSTANT_SPREAD = 1e-6
PICTURE_POINTS = 250
# Pairs above this gold score are positives: DCSE follows SimCSE, "STS-B pairs with a score higher than 4".
POSITIVE_ABOVE = 4.0
MAX_SENTENCES = 5000  # of uniformity and isotropy
MAX_ROWS = 300  # of language separability
EDGES = (-1.0, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0)
# characters: about a phrase, a short sentence, a sentence, a long one
LENGTHS = ((1, 20), (21, 60), (61, 120), (121, 240), (241, None))


# Semantic textual similarity (all four papers). A set of several parts (STS12-16) is scored in both usual ways: "all"
# (all pairs in one list; the headline) and "mean" (mean over the parts).


def pair_cosines(store: CachedEncoder, pairs: ScoredPairs) -> np.ndarray:
    """Cosine of each pair, float64 [N]; refused where all are equal, for which Spearman is undefined."""
    vectors = store.encode(pairs.texts(), pairs.where)
    count = len(pairs)
    cosines_N = cosine_rows(vectors[:count], vectors[count:])
    if count >= 2 and np.ptp(cosines_N) < CONSTANT_SPREAD:
        raise MsdcError(
            f"{pairs.name} lines {pairs.lines[0]}..{pairs.lines[-1]}: {store.name} gives every pair the same cosine "
            f"({cosines_N[0]:.4f}), so Spearman is undefined; the model maps all sentences to one vector"
        )
    return cosines_N


def _correlations(cosines_N: np.ndarray, gold_N: np.ndarray, settings: Settings) -> dict[str, Any]:
    """Spearman and Pearson x 100, and the interval of Spearman."""
    return {
        "spearman": spearman(cosines_N, gold_N),
        "pearson": float(np.corrcoef(cosines_N, gold_N)[0, 1] * 100.0),
        "interval": interval(Items(cosines_N, gold_N), settings.resamples, settings.seed),
    }


def score_sts(store: CachedEncoder, pairs: ScoredPairs, settings: Settings) -> Outcome:
    """Spearman and Pearson x 100 with a bootstrap interval; by part, and their mean, when there are several.

    A part that is too small or has constant gold scores has no scores.
    """
    gold_N = pairs.gold_N
    if len(pairs) < 2 or np.ptp(gold_N) == 0:
        raise InputError(f"{pairs.name}: {len(pairs)} pairs, {len(set(gold_N))} gold value(s): no correlation")
    cosines_N = pair_cosines(store, pairs)
    scores = _correlations(cosines_N, gold_N, settings) | {"pairs": len(pairs)}
    if len(set(pairs.subsets)) > 1:
        scores["subsets"] = {}
        for subset in dict.fromkeys(pairs.subsets):
            mine_N = np.array(pairs.subsets) == subset
            subset_cosines, own_gold = cosines_N[mine_N], gold_N[mine_N]
            scorable = len(subset_cosines) >= 2 and np.ptp(own_gold) > 0 and np.ptp(subset_cosines) > 0
            scores["subsets"][subset] = {"pairs": len(subset_cosines)} | (
                _correlations(subset_cosines, own_gold, settings) if scorable else {}
            )
        scores["mean"] = float(
            np.mean(
                [part_scores["spearman"] for part_scores in scores["subsets"].values() if "spearman" in part_scores]
            )
        )
    return Outcome(scores, Items(cosines_N, gold_N))


# Language bias (MKD section 5.2): Spearman on all sets in one pool minus the mean over the sets; 0 is best. A model
# that gives sentences of one language similar vectors because of the language ranks pairs well within a set and badly
# across sets, so the score of the joint pool is below the mean.


def bias_data(
    pairs: ScoredPairs, parallel: Parallel | None = None, rows: int = PICTURE_POINTS, languages: int | None = 2
) -> TaskData:
    """Scored pairs, and parallel sentences from which a task uses the first `rows` of the first `languages`."""
    sides = list(parallel.sides.values())[:languages] if parallel else []
    others = [text for side in sides for text in side[:rows]]
    sources = pairs.sources + (parallel.sources if parallel else [])
    return TaskData(pairs.name, (pairs, parallel), pairs.texts(), others, sources, pairs.notes)


def read_bias_sets(path: str | Path) -> TaskData:
    """A folder of scored-pair files, one set each; or one file that is divided by its language columns."""
    path = Path(path)
    if not path.is_dir():
        pairs = read_pairs(path)
        return bias_data(pairs.renamed(f"bias/{pairs.name}"))
    inside = without_system_files(path.iterdir())
    files = [p for p in inside if p.name.removesuffix(".gz").endswith((".tsv", ".csv"))]
    if not files:
        raise InputError(f"{path}: no .tsv or .csv files of scored pairs")
    return bias_data(join_pairs(f"bias/{path.name}", [read_pairs(p) for p in files]))


def principal_plane(vectors_PD: np.ndarray) -> tuple[np.ndarray, list[float]]:
    """First two principal components of the rows: coordinates [P, 2] and the share of variance of each.

    The sign of a component is that of its largest coordinate, so that the picture is the same on every machine.
    """
    centred_PD = vectors_PD.astype(np.float64) - vectors_PD.mean(0, dtype=np.float64)
    left_vectors, strength, _ = np.linalg.svd(centred_PD, full_matrices=False)
    plane_P2 = left_vectors[:, :2] * strength[:2]
    plane_P2 = plane_P2 * np.sign(plane_P2[np.abs(plane_P2).argmax(0), [0, 1]])
    total = float((strength**2).sum())
    return plane_P2, [float(s**2) / total if total else 0.0 for s in strength[:2]]


def _picture(store: CachedEncoder, parallel: Parallel) -> dict[str, Any]:
    """Points of both languages in one plane, and the distance between the languages in it."""
    sides = {language: texts[:PICTURE_POINTS] for language, texts in list(parallel.sides.items())[:2]}
    plane_P2, explained = principal_plane(np.concatenate([store.encode(texts) for texts in sides.values()]))
    rounded = [[round(x, 4), round(y, 4)] for x, y in plane_P2.tolist()]
    count = len(rounded) // 2
    points = dict(zip(sides, (rounded[:count], rounded[count:]), strict=True))
    first, second = (np.array(side) for side in points.values())
    spread = float(np.sqrt((first.var(0).sum() + second.var(0).sum()) / 2))
    gap = float(np.linalg.norm(first.mean(0) - second.mean(0)))
    return {"points": points, "explained": explained, "gap": gap / spread if spread else 0.0, "source": parallel.name}


def resampled_bias(
    cosines_N: np.ndarray, gold_N: np.ndarray, members: list[np.ndarray], settings: Settings
) -> np.ndarray:
    """Joint Spearman minus the mean of the sets on resamples within each set; undefined ones are dropped."""
    generator = np.random.default_rng(settings.seed)
    draws = []
    for count in chunks(settings.resamples, sum(map(len, members))):
        rows = [rows[generator.integers(0, len(rows), size=(count, len(rows)))] for rows in members]
        singles = [resampled_spearman(cosines_N, gold_N, picks) for picks in rows]
        draws.append(resampled_spearman(cosines_N, gold_N, np.concatenate(rows, axis=1)) - np.mean(singles, axis=0))
    draws_R = np.concatenate(draws)
    return draws_R[np.isfinite(draws_R)]


def score_bias(store: CachedEncoder, data: tuple[ScoredPairs, Parallel | None], settings: Settings) -> Outcome:
    """Joint Spearman, mean Spearman of the sets, and their difference (all x 100) with interval and two-sided p.

    The interval resamples pairs within each set; p is twice the share of draws on the other side of 0.
    """
    pairs, parallel = data
    cosines_N = pair_cosines(store, pairs)
    subsets_N = np.array(pairs.subsets)
    members = [np.flatnonzero(subsets_N == name) for name in dict.fromkeys(pairs.subsets)]
    members = [rows for rows in members if len(rows) >= 2 and np.ptp(pairs.gold_N[rows]) > 0]
    if len(members) < 2:
        raise InputError(f"{pairs.name}: language bias needs at least two sets, found {len(members)}")
    member_rows = np.concatenate(members)
    sets = {str(subsets_N[rows[0]]): spearman(cosines_N[rows], pairs.gold_N[rows]) for rows in members}
    joint, mean = spearman(cosines_N[member_rows], pairs.gold_N[member_rows]), float(np.mean(list(sets.values())))
    scores: dict[str, Any] = {"bias": joint - mean, "interval": None, "p": None}
    if settings.resamples:
        draws = resampled_bias(cosines_N, pairs.gold_N, members, settings)
        tail = min(int((draws <= 0).sum()), int((draws >= 0).sum()))
        scores |= {"interval": percentiles(draws), "p": min(1.0, 2 * (tail + 1) / (len(draws) + 1))}
    scores |= {"joint": joint, "mean": mean, "sets": sets, "pairs": len(member_rows)}
    if parallel is not None:
        scores["picture"] = _picture(store, parallel)
    return Outcome(scores)


# Geometry: alignment and uniformity (Wang and Isola 2020; DCSE section 5), isotropy, and the accuracy of predicting a
# sentence's language from its vector. Vectors are on the unit sphere.


def geometry_data(pairs: ScoredPairs, parallel: Parallel | None = None) -> TaskData:
    """Scored pairs for alignment, uniformity and isotropy; parallel sentences for language separability."""
    return replace(bias_data(pairs, parallel, MAX_ROWS, None), name=f"geometry/{pairs.name}")


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


def language_separability(store: CachedEncoder, parallel: Parallel, seed: int) -> dict[str, Any]:
    """Cross-validated accuracy x 100 of a linear classifier that predicts the language; translations share a fold."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GroupKFold, cross_val_score

    rows, languages = min(len(parallel), MAX_ROWS), parallel.languages
    texts = [text for side in parallel.sides.values() for text in side[:rows]]
    labels = [language for language in languages for _ in range(rows)]
    marks = cross_val_score(
        LogisticRegression(C=10.0, max_iter=2000), unit_rows(store.encode(texts)), labels,
        groups=list(range(rows)) * len(languages), cv=GroupKFold(5, shuffle=True, random_state=seed),
    )  # fmt: skip
    chance = 100.0 / len(languages)
    accuracy = 100.0 * float(marks.mean())
    return {"accuracy": accuracy, "chance": chance, "languages": languages, "sentences": len(texts)}


def score_geometry(store: CachedEncoder, data: tuple[ScoredPairs, Parallel | None], settings: Settings) -> Outcome:
    """Alignment and uniformity (lower is better), isotropy, mean cosine and language separability."""
    pairs, parallel = data
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
    if parallel is not None:
        scores["language_separability"] = language_separability(store, parallel, settings.seed)
    return Outcome(scores)


# Drift of an artifact from its float model: cosine of the two vectors of each text, by language and length.


def drift_data(
    name: str, sides: dict[str, list[str]], sources: list[SourceFile], notes: Sequence[str] = ()
) -> TaskData:
    """Texts by language."""
    return TaskData(name, sides, [text for side in sides.values() for text in side], [], sources, list(notes))


def read_drift_texts(path: str | Path) -> TaskData:
    """A table with one language per column (.tsv), or plain text with one sentence per line."""
    path = Path(path)
    if path.name.removesuffix(".gz").endswith(".tsv"):
        parallel = read_parallel(path)
        return drift_data(f"drift/{parallel.name}", parallel.sides, parallel.sources, parallel.notes)
    lines = read_lines(path)
    texts = [line.strip() for line in lines.lines if line.strip()]
    if not texts:
        raise InputError(f"{path}: no text")
    return drift_data(f"drift/{path.name.split('.')[0]}", {"all": texts}, [lines.source], lines.notes)


def _reference(
    store: CachedEncoder, settings: Settings, texts: list[str], mine_ND: np.ndarray
) -> tuple[np.ndarray, str]:
    """The reference model's vectors of `texts` [N, D] and its name."""
    if settings.goal is None:
        raise InputError("this task compares with another model: name it as `reference`")
    goal_ND, name = settings.goal.encode(texts), settings.goal.name
    if goal_ND.shape[1] != mine_ND.shape[1]:
        raise InputError(f"{store.name} has width {mine_ND.shape[1]} and {name} {goal_ND.shape[1]}")
    return goal_ND, name


def score_drift(store: CachedEncoder, sides: dict[str, list[str]], settings: Settings) -> Outcome:
    """Mean cosine with the float model (1 is no drift), interval, histogram, and summaries by language and length."""
    texts = [text for side in sides.values() for text in side]
    mine_ND = store.encode(texts)
    goal_ND, name = _reference(store, settings, texts, mine_ND)
    cosine_N = np.clip(cosine_rows(mine_ND, goal_ND), -1.0, 1.0)
    languages_N = np.repeat(list(sides), [len(side) for side in sides.values()])
    lengths_N = np.array([len(text) for text in texts])

    def summary(chosen_N: np.ndarray) -> dict[str, Any]:
        cosines = cosine_N[chosen_N]
        p1, lowest = float(np.quantile(cosines, 0.01)), float(cosines.min())
        return {"texts": len(cosines), "mean": float(cosines.mean()), "p1": p1, "min": lowest}

    by_length = {
        f"{low}-{high}" if high else f"{low}+": summary(mine_N)
        for low, high in LENGTHS
        if (mine_N := (lengths_N >= low) & (lengths_N <= (high or np.inf))).any()
    }
    bounds = interval(Items(cosine_N), settings.resamples, settings.seed)
    overall, worst = summary(np.full(len(texts), True)), int(cosine_N.argmin())
    return Outcome(
        {
            "cosine": overall["mean"],
            "interval": [bound / 100.0 for bound in bounds] if bounds else None,
            "p1": overall["p1"],
            "min": overall["min"],
            "histogram": {"edges": list(EDGES), "counts": np.histogram(cosine_N, EDGES)[0].tolist()},
            "languages": {language: summary(languages_N == language) for language in sides},
            "lengths": by_length,
            "worst": {"language": str(languages_N[worst]), "characters": int(lengths_N[worst])},
            "reference": name,
            "pairs": len(cosine_N),
        },
    )


def score_mse(store: CachedEncoder, data: Parallel, settings: Settings) -> Outcome:
    """MSE x 100 between the teacher's vectors of the first language and the model's of both; lower is better.

    MKD's development measure (eq. 1).
    """
    first, second = data.two_sides()
    mine_ND = store.encode(data.texts(), data.where)
    goal_ND, name = _reference(store, settings, first, mine_ND)
    source_ND, target_ND = np.split(mine_ND, 2)
    scores = {
        "mse": 100.0 * mse(goal_ND, target_ND),
        "mse_source": 100.0 * mse(goal_ND, source_ND),
        "cosine_to_teacher": float(cosine_rows(goal_ND, target_ND).mean()),
        "languages": data.languages,
        "teacher": name,
        "pairs": len(second),
    }
    return Outcome(scores)


STS = AccuracyTask(
    "sts", "Spearman and Pearson of cosine against gold scores", "spearman",
    lambda path: TaskData.of(read_pairs(path, limits=ANY_SCORE)), score_sts,
)  # fmt: skip
BIAS = AccuracyTask(
    "bias", "Language bias: Spearman of the joint pool minus the mean of the sets", "bias", read_bias_sets, score_bias
)
GEOMETRY = AccuracyTask(
    "geometry", "Alignment, uniformity, isotropy, language separability", "uniformity",
    lambda path: geometry_data(read_pairs(path)), score_geometry,
)  # fmt: skip
MSE = AccuracyTask(
    "mse", "MSE x 100 to the teacher on parallel sentences", "mse",
    lambda path: TaskData.of(read_parallel(path)), score_mse, needs_reference=True,
)  # fmt: skip
DRIFT = AccuracyTask(
    "drift", "Cosine of an artifact with its float model", "cosine",
    read_drift_texts, score_drift, needs_reference=True,
)  # fmt: skip
