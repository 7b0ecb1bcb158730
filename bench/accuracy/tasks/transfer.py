"""SentEval-style transfer (DCSE, appendix): logistic regression on frozen embeddings of MR CR SUBJ MPQA SST2 TREC MRPC.

Shapes: N texts or pairs, D width, F features (D, or 2 D for pairs).
"""

from __future__ import annotations

import numpy as np

from msdc.bench.accuracy.readers.senteval import Transfer, read_senteval
from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.task import Options, Outcome, Task
from msdc.bench.accuracy.tasks.classification import fit_linear
from msdc.bench.accuracy.vectors import VectorStore
from msdc.errors import InputError
from msdc.scores import cosine_rows


def _features(store: VectorStore, texts: list[str], second: list[str] | None) -> np.ndarray:
    """Vectors; for pairs SentEval's |u - v| and u * v side by side, [N, F]."""
    first_ND = store.encode(texts)
    if second is None:
        return first_ND
    second_ND = store.encode(second)
    return np.concatenate([np.abs(first_ND - second_ND), first_ND * second_ND], axis=1)


def binary_scores(similarity_N: np.ndarray, same_N: np.ndarray) -> dict[str, float]:
    """Best accuracy and F1 (x 100) with their thresholds, and average precision (x 100).

    A threshold is halfway between two different similarities, so it never separates equal ones. Thresholds are
    chosen on the scored pairs, as in sentence-transformers' BinaryClassificationEvaluator: the scores are those of the
    best possible threshold.

    Raises:
        InputError: fewer than two pairs, one class only, or all similarities equal.
    """
    from sklearn.metrics import average_precision_score

    similarity_N, same_N = np.asarray(similarity_N, dtype=np.float64), np.asarray(same_N, dtype=bool)
    count, positives = len(same_N), int(same_N.sum())
    if count < 2 or positives in (0, count) or np.ptp(similarity_N) == 0:
        raise InputError(f"{count} pairs, {positives} of them the same: no threshold exists")
    order = np.argsort(-similarity_N, kind="stable")
    scores, hits = similarity_N[order], same_N[order].cumsum()
    taken = np.arange(1, count)
    possible = scores[:-1] > scores[1:]
    # pairs above the threshold are predicted the same, the others different
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


def score(store: VectorStore, data: Transfer, options: Options) -> Outcome:
    """Accuracy x 100 on the test rows, or by stratified cross-validation where SentEval has no test rows.

    The regularisation is chosen inside the training rows of each fold, never on the rows that are scored.

    Raises:
        InputError: fewer than two classes, or a class with fewer rows than folds.
    """
    from sklearn.metrics import f1_score
    from sklearn.model_selection import StratifiedKFold

    labels = np.array(data.training.labels)
    counts = {str(label): int((labels == label).sum()) for label in np.unique(labels)}
    folds = options.folds
    if len(counts) < 2 or (data.test is None and min(counts.values()) < folds):
        raise InputError(f"{data.name}: needs two classes with at least {folds} rows each, got {counts}")
    training_NF = _features(store, data.training.texts, data.second.get("train"))
    scores: dict[str, object] = {}
    if data.test is not None:
        development = None
        if data.development is not None:
            development = (_features(store, data.development.texts, None), data.development.labels)
        classifier, _ = fit_linear(training_NF, data.training.labels, development, options.seed)
        predicted = classifier.predict(_features(store, data.test.texts, data.second.get("test")))
        truth = np.array(data.test.labels)
        scores["protocol"] = "test rows"
        if data.second:
            scores["f1"] = 100.0 * float(f1_score(truth, predicted, pos_label="1"))
            cosine_N = cosine_rows(store.encode(data.test.texts), store.encode(data.second["test"]))
            scores["by_cosine"] = binary_scores(cosine_N, truth == "1")
    else:
        predicted, truth = np.empty_like(labels), labels
        for fit, held in StratifiedKFold(folds, shuffle=True, random_state=options.seed).split(training_NF, labels):
            classifier, _ = fit_linear(training_NF[fit], labels[fit].tolist(), None, options.seed)
            predicted[held] = classifier.predict(training_NF[held])
        scores["protocol"] = f"{folds}-fold cross-validation"
    items = Items("mean", (predicted == truth).astype(np.float64))
    return Outcome(
        {
            "accuracy": 100.0 * float(items.values_N.mean()),
            "interval": interval(items, options.resamples, options.seed),
            **scores,
            "classes": counts,
            "pairs": len(truth),
        },
        items,
    )


TASK = Task("transfer", "SentEval transfer: logistic regression on frozen embeddings", "accuracy", read_senteval, score)
