"""Evaluations by a linear classifier on frozen embeddings: MLDoc across languages, SentEval.

Shapes: N texts or pairs, D width, F features (D, or 2 D for pairs).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.task import AccuracyTask, Outcome, Settings, TaskData
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.errors import InputError
from msdc.processes import quiet
from msdc.text.text_files import Lines, read_lines

# inverse regularisation strengths tried; chosen on the development file, or by 5-fold cross-validation on training rows
STRENGTHS = (0.1, 1.0, 10.0, 100.0)
FOLDS = 5
RUNS = 5  # of MLDoc: Mao et al. 2021 report the mean of five
EPOCHS = 100
MLDOC_LANGUAGES = {
    "en": "english", "de": "german", "fr": "french", "es": "spanish",
    "it": "italian", "ja": "japanese", "ru": "russian", "zh": "chinese",
}  # fmt: skip


class Labelled(NamedTuple):
    """Texts with one label each; `second` are the other sentences of a task of pairs."""

    texts: list[str]
    labels: list[str]
    second: list[str]


class LabelledSet(NamedTuple):
    """Training rows, test rows by language (or one part, "test"), and rows that choose the regularisation if given.

    Without test rows the set is scored by cross-validation on the training rows.
    """

    name: str
    training: Labelled
    tests: dict[str, Labelled]
    development: Labelled | None = None
    source_language: str = "en"

    def data(self, files: list[Lines], notes: Sequence[str] = ()) -> TaskData:
        """As the data of a task, read from `files`."""
        tested = list(self.tests.values()) or [self.training]
        others = [part for part in (self.training, self.development) if part and part not in tested]
        texts, seconds = ([text for part in parts for text in part.texts + part.second] for parts in (tested, others))
        notes = [*notes, *(f"{file.path.name} {note}" for file in files for note in file.notes)]
        return TaskData(self.name, self, texts, seconds, [file.source for file in files], notes)


def _labelled(lines: Lines, pattern: str, expected: str, skip: int = 0) -> Labelled:
    """The lines after the first `skip`: groups `label` and `text` of `pattern`, and `second` of a pair."""
    rows: list[dict[str, str]] = []
    for number, line in enumerate(lines.lines[skip:], start=1 + skip):
        match = re.fullmatch(pattern, line)
        rows.append({key: cell.strip() for key, cell in match.groupdict().items()} if match else {"text": ""})
        if not all(rows[-1].values()):
            raise lines.error(number, f"expected {expected}")
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    return Labelled(texts, labels, [row["second"] for row in rows if "second" in row])


def read_mldoc(path: str | Path, source: str = "en") -> TaskData:
    """A folder as MLDoc writes it (label, tab, text): `english.train.1000`, `english.dev`, `german.test`, ..."""
    folder, word = Path(path), MLDOC_LANGUAGES[source]
    files = {code: folder / f"{name}.test" for code, name in MLDOC_LANGUAGES.items()}
    files |= {"training": folder / f"{word}.train.1000", "development": folder / f"{word}.dev"}
    read = {part: read_lines(file) for part, file in files.items() if file.is_file()}
    if "training" not in read or not set(MLDOC_LANGUAGES) & set(read):
        raise InputError(f"{folder}: expected {word}.train.1000 and at least one LANGUAGE.test, as MLDoc writes them")
    layout = (r"(?P<label>[^\t]*)\t(?P<text>.*)", "a label, a tab and a text")
    parts = {part: _labelled(lines, *layout) for part, lines in read.items()}
    training, development = parts.pop("training"), parts.pop("development", None)
    return LabelledSet(f"mldoc/{source}", training, parts, development, source).data(list(read.values()))


def _fit(
    features_ND: np.ndarray, labels: list[str], development: tuple[np.ndarray, list[str]] | None, seed: int
) -> tuple[Any, float]:
    """Logistic regression whose inverse strength is chosen without test rows; returns classifier and strength."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    count, folds = len(labels), min(FOLDS, min(map(labels.count, set(labels))))
    rows, truth, split = features_ND, labels, StratifiedKFold(max(folds, 2), shuffle=True, random_state=seed)
    if development is not None:
        rows, truth = np.concatenate([rows, development[0]]), labels + development[1]
        split = [(np.arange(count), np.arange(count, len(truth)))]
    model, strength = LogisticRegression(max_iter=2000), 1.0
    if development is not None or folds >= 2:
        search = GridSearchCV(model, {"C": STRENGTHS}, cv=split, refit=False).fit(rows, truth)
        strength = search.best_params_["C"]
    return model.set_params(C=strength).fit(features_ND, labels), strength


def fit_by_minibatches(features_ND: np.ndarray, labels: list[str], strength: float, seed: int) -> Any:
    """The same linear classifier trained by minibatches (Adam) from random weights, which follow from `seed`.

    A logistic regression has one optimum whatever the start; what varies between runs of the papers'
    classifiers is start and order.
    """
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear = MLPClassifier(
        (), alpha=1.0 / strength, batch_size=min(32, len(labels)), max_iter=EPOCHS, tol=0.0, n_iter_no_change=EPOCHS,
        random_state=seed,
    )  # fmt: skip
    with quiet():  # the number of epochs is fixed: that the loss still falls at its end is no fault
        return make_pipeline(StandardScaler(), linear).fit(features_ND, labels)


def _share(right_N: np.ndarray, settings: Settings) -> dict[str, Any]:
    """Accuracy x 100 of rows that are right (1) or wrong (0), with its interval."""
    bounds = interval(Items(right_N), settings.resamples, settings.seed)
    return {"accuracy": 100.0 * float(right_N.mean()), "interval": bounds}


def _chosen_on(store: CachedEncoder, part: Labelled | None) -> tuple[np.ndarray, list[str]] | None:
    return None if part is None else (_features(store, part), part.labels)


def score_classification(store: CachedEncoder, data: LabelledSet, settings: Settings) -> Outcome:
    """Zero-shot cross-lingual classification (LXS section 4.1): accuracy x 100 by test language.

    The headline is the mean over the languages other than the training one. MLDoc also has the mean of five runs.
    """
    from sklearn.metrics import f1_score

    labels, source = data.training.labels, data.source_language
    if len(set(labels)) < 2:
        raise InputError(f"{data.name}: the training rows have one class only")
    features_ND = store.encode(data.training.texts)
    classifier, strength = _fit(features_ND, labels, _chosen_on(store, data.development), settings.seed)
    five = range(settings.seed, settings.seed + RUNS) if data.name.startswith("mldoc") else ()
    classifiers = [fit_by_minibatches(features_ND, labels, strength, seed) for seed in five]
    by_language: dict[str, Any] = {}
    answers: dict[str, np.ndarray] = {}
    for language, test in data.tests.items():
        vectors_ND, truth = store.encode(test.texts), np.array(test.labels)
        predicted = classifier.predict(vectors_ND)
        answers[language] = (predicted == truth).astype(np.float64)
        macro = 100.0 * float(f1_score(test.labels, predicted, average="macro", zero_division=0))
        by_language[language] = _share(answers[language], settings) | {"macro_f1": macro, "texts": len(test.texts)}
        if right := [100.0 * float((fitted.predict(vectors_ND) == truth).mean()) for fitted in classifiers]:
            by_language[language] |= {"runs": right, "mean_of_runs": float(np.mean(right))}
    targets = [language for language in data.tests if language != source] or list(data.tests)
    runs: dict[str, Any] = {}
    if classifiers:
        means = [float(np.mean([by_language[language]["runs"][run] for language in targets])) for run in range(RUNS)]
        runs["runs"] = {"count": RUNS, "accuracy": float(np.mean(means)), "deviation": float(np.std(means, ddof=1))}
    items = Items(np.concatenate([answers[language] for language in targets]))
    majority = max(set(labels), key=labels.count)
    tested = [label for language in targets for label in data.tests[language].labels]
    scores = _share(items.values_N, settings) | {
        "accuracy": float(np.mean([by_language[language]["accuracy"] for language in targets])),
        "majority_class": 100.0 * tested.count(majority) / len(tested), "classes": len(set(labels)),
        "training_language": source, "training_texts": len(labels), "strength": strength, "languages": by_language,
        **runs, "pairs": len(items.values_N),
    }  # fmt: skip
    return Outcome(scores, items)


# SentEval-style transfer (DCSE, appendix): logistic regression on frozen embeddings of MR CR SUBJ MPQA SST2 TREC MRPC,
# in the files of SentEval's download script: one latin-1 file per class, or a file per part.
BY_CLASS = {
    "MR": ("rt-polarity.pos", "rt-polarity.neg"),
    "CR": ("custrev.pos", "custrev.neg"),
    "SUBJ": ("subj.subjective", "subj.objective"),
    "MPQA": ("mpqa.pos", "mpqa.neg"),
}


# task -> files of training, development and test, pattern of a line, what it should be, lines of a header
BY_PART: dict[str, tuple[dict[str, str], str, str, int]] = {
    "SST2": (
        {"training": "sentiment-train", "development": "sentiment-dev", "test": "sentiment-test"},
        r"(?P<text>.*)\t\s*(?P<label>[01])\s*", "a sentence, a tab and 0 or 1", 0,
    ),
    "TREC": (
        {"training": "train_5500.label", "test": "TREC_10.label"},
        r"(?P<label>[^ :]*):[^ ]* (?P<text>.*)", "COARSE:fine, a space and a question", 0,
    ),
    "MRPC": (
        {"training": "msr_paraphrase_train.txt", "test": "msr_paraphrase_test.txt"},
        r"\s*(?P<label>[01])\s*\t[^\t]*\t[^\t]*\t(?P<text>[^\t]*)\t(?P<second>[^\t]*)",
        "5 tab-separated columns: 0 or 1, two ids, two sentences", 1,
    ),
}  # fmt: skip
SENTEVAL = (*BY_CLASS, *BY_PART)


def _read_latin(path: Path) -> Lines:
    """SentEval's older files are latin-1; a file in valid UTF-8 is read as UTF-8."""
    try:
        return read_lines(path)
    except InputError as error:
        if "UTF-8" not in str(error):
            raise
        return read_lines(path, "latin-1")


def read_senteval(path: str | Path) -> TaskData:
    """The folder of one task, named as SentEval names it: `.../MR`, `.../SST/binary`, `.../TREC`."""
    folder = Path(path)
    for name, files in BY_CLASS.items():
        if (folder / files[0]).is_file():
            read = [_read_latin(folder / file) for file in files]
            positive, negative = ([line.strip() for line in lines.lines] for lines in read)
            labels = ["1"] * len(positive) + ["0"] * len(negative)
            return LabelledSet(name, Labelled(positive + negative, labels, []), {}).data(read)
    for name, (by_part, pattern, expected, header) in BY_PART.items():
        if (folder / by_part["training"]).is_file():
            tables = {part: _read_latin(folder / file) for part, file in by_part.items()}
            parts = {part: _labelled(lines, pattern, expected, header) for part, lines in tables.items()}
            tests = {"test": parts["test"]}
            return LabelledSet(name, parts["training"], tests, parts.get("development")).data(list(tables.values()))
    raise InputError(f"{folder}: no files of a SentEval task ({', '.join(SENTEVAL)})")


def _features(store: CachedEncoder, part: Labelled) -> np.ndarray:
    """Vectors; for pairs SentEval's |u - v| and u * v side by side, [N, F]."""
    first_ND = store.encode(part.texts)
    if not part.second:
        return first_ND
    second_ND = store.encode(part.second)
    return np.concatenate([np.abs(first_ND - second_ND), first_ND * second_ND], axis=1)


def score_transfer(store: CachedEncoder, data: LabelledSet, settings: Settings) -> Outcome:
    """Accuracy x 100 on the test rows, or by stratified cross-validation where SentEval has no test rows.

    The regularisation is chosen inside the training rows of each fold, never on the rows that are scored.
    """
    from sklearn.metrics import f1_score
    from sklearn.model_selection import StratifiedKFold

    labels, test, folds = np.array(data.training.labels), data.tests.get("test"), settings.folds
    counts = {str(label): int((labels == label).sum()) for label in np.unique(labels)}
    if len(counts) < 2 or (test is None and min(counts.values()) < folds):
        raise InputError(f"{data.name}: needs two classes with at least {folds} rows each, got {counts}")
    training_NF = _features(store, data.training)
    protocol: dict[str, Any] = {"protocol": f"{folds}-fold cross-validation"}
    if test is not None:
        chosen = _chosen_on(store, data.development)
        classifier, _ = _fit(training_NF, data.training.labels, chosen, settings.seed)
        predicted, truth = classifier.predict(_features(store, test)), np.array(test.labels)
        protocol = {"protocol": "test rows"}
        if test.second:
            protocol["f1"] = 100.0 * float(f1_score(truth, predicted, pos_label="1"))
    else:
        predicted, truth = np.empty_like(labels), labels
        for fit, held in StratifiedKFold(folds, shuffle=True, random_state=settings.seed).split(training_NF, labels):
            classifier, _ = _fit(training_NF[fit], labels[fit].tolist(), None, settings.seed)
            predicted[held] = classifier.predict(training_NF[held])
    right_N = (predicted == truth).astype(np.float64)
    return Outcome(_share(right_N, settings) | protocol | {"classes": counts, "pairs": len(truth)}, Items(right_N))


CLASSIFICATION = AccuracyTask(
    "classification", "Zero-shot cross-lingual classification on frozen embeddings", "accuracy",
    read_mldoc, score_classification,
)  # fmt: skip
TRANSFER = AccuracyTask(
    "transfer", "SentEval transfer: logistic regression on frozen embeddings", "accuracy", read_senteval, score_transfer
)
