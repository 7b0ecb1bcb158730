"""Zero-shot cross-lingual classification (LXS section 4.1): a linear classifier on frozen embeddings of one language,
tested on the others. MLDoc requires a licence; FLORES topics need FLORES only.

Shapes: N texts, D width.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.accuracy.readers.labelled import CrossLingual, read_flores_topics, read_mldoc
from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.task import Options, Outcome, Task
from msdc.bench.accuracy.vectors import VectorStore
from msdc.errors import InputError

# inverse regularisation strengths tried; chosen on the development file, or by 5-fold cross-validation on training rows
STRENGTHS = (0.1, 1.0, 10.0, 100.0)
FOLDS = 5
RUNS = 5  # of MLDoc: Mao et al. 2021 report the mean of five
EPOCHS = 100


def fit_linear(
    features_ND: np.ndarray, labels: list[str], development: tuple[np.ndarray, list[str]] | None, seed: int
) -> tuple[Any, float]:
    """Logistic regression whose inverse strength is chosen without test rows; returns classifier and strength."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score

    def model(strength: float) -> Any:
        return LogisticRegression(C=strength, max_iter=2000)

    folds = min(FOLDS, min(labels.count(label) for label in set(labels)))
    if development is not None:
        marks = [model(c).fit(features_ND, labels).score(*development) for c in STRENGTHS]
    elif folds >= 2:
        split = StratifiedKFold(folds, shuffle=True, random_state=seed)
        marks = [cross_val_score(model(c), features_ND, labels, cv=split).mean() for c in STRENGTHS]
    else:
        marks = [0.0, 1.0, 0.0, 0.0]
    strength = STRENGTHS[int(np.argmax(marks))]
    return model(strength).fit(features_ND, labels), strength


def run_again(features_ND: np.ndarray, labels: list[str], strength: float, seed: int) -> Any:
    """The same linear classifier trained by minibatches (Adam) from random weights, which follow from `seed`.

    The logistic regression of `fit_linear` has one optimum whatever the start; what varies between runs of the papers'
    classifiers is start and order.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear = MLPClassifier(
        (), alpha=1.0 / strength, batch_size=min(32, len(labels)), max_iter=EPOCHS, tol=0.0, n_iter_no_change=EPOCHS,
        random_state=seed,
    )  # fmt: skip
    with warnings.catch_warnings():
        # The number of epochs is fixed: that the loss still falls at its end is no fault.
        warnings.simplefilter("ignore", category=ConvergenceWarning)
        return make_pipeline(StandardScaler(), linear).fit(features_ND, labels)


def score(store: VectorStore, data: CrossLingual, options: Options) -> Outcome:
    """Accuracy x 100 by test language; the headline is the mean over the languages other than the training one.

    Raises:
        InputError: fewer than two classes in training.
    """
    from sklearn.metrics import f1_score

    if len(set(data.training.labels)) < 2:
        raise InputError(f"{data.name}: the training rows have one class only")
    development = None
    if data.development is not None:
        development = (store.encode(data.development.texts), data.development.labels)
    classifier, strength = fit_linear(
        store.encode(data.training.texts), data.training.labels, development, options.seed
    )
    by_language: dict[str, Any] = {}
    answers: dict[str, np.ndarray] = {}
    for language, test in data.tests.items():
        predicted = classifier.predict(store.encode(test.texts, lambda i, t=test: f"{data.name} line {t.lines[i]}"))  # type: ignore[misc]
        right_N = (predicted == np.array(test.labels)).astype(np.float64)
        answers[language] = right_N
        by_language[language] = {
            "accuracy": 100.0 * float(right_N.mean()),
            "interval": interval(Items("mean", right_N), options.resamples, options.seed),
            "macro_f1": 100.0 * float(f1_score(test.labels, predicted, average="macro", zero_division=0)),
            "texts": len(test),
        }
    runs: dict[str, Any] = {}
    if data.name.startswith("mldoc"):
        runs = {"runs": _five_runs(store, data, strength, options, by_language)}
    targets = [language for language in data.tests if language != data.source_language] or list(data.tests)
    items = Items("mean", np.concatenate([answers[language] for language in targets]))
    majority = max(set(data.training.labels), key=data.training.labels.count)
    tested = [label for language in targets for label in data.tests[language].labels]
    return Outcome(
        {
            "accuracy": float(np.mean([by_language[language]["accuracy"] for language in targets])),
            "interval": interval(items, options.resamples, options.seed),
            "majority_class": 100.0 * tested.count(majority) / len(tested),
            "classes": len(set(data.training.labels)),
            "training_language": data.source_language,
            "training_texts": len(data.training),
            "strength": strength,
            "languages": by_language,
            **runs,
            "pairs": len(items.values_N),
        },
        items,
    )


def _five_runs(
    store: VectorStore, data: CrossLingual, strength: float, options: Options, by_language: dict[str, Any]
) -> dict[str, float]:
    """Accuracy x 100 of RUNS classifiers, their mean over runs and target languages; each into `by_language`."""
    features_ND = store.encode(data.training.texts)
    seeds = range(options.seed, options.seed + RUNS)
    classifiers = [run_again(features_ND, data.training.labels, strength, seed) for seed in seeds]
    for language, test in data.tests.items():
        vectors_ND, truth = store.encode(test.texts), np.array(test.labels)
        right = [100.0 * float((one.predict(vectors_ND) == truth).mean()) for one in classifiers]
        by_language[language]["runs"] = right
        by_language[language]["mean_of_runs"] = float(np.mean(right))
    targets = [language for language in data.tests if language != data.source_language] or list(data.tests)
    means = [float(np.mean([by_language[language]["runs"][run] for language in targets])) for run in range(RUNS)]
    return {"count": RUNS, "accuracy": float(np.mean(means)), "deviation": float(np.std(means, ddof=1))}


def read(path: Path) -> CrossLingual:
    """A folder of MLDoc, or of FLORES with its metadata (every language it holds)."""
    folder = Path(path)
    if (folder / "metadata_dev.tsv").is_file():
        languages = sorted(p.name.split(".")[0] for p in (folder / "dev").glob("*.dev.gz"))
        return read_flores_topics(folder, languages)
    return read_mldoc(folder)


TASK = Task("classification", "Zero-shot cross-lingual classification on frozen embeddings", "accuracy", read, score)
