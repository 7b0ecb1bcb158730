"""Documents of `msdc evaluate`: a table per task, details by language or part, published tables, notes on the data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from msdc.bench.accuracy.document import (
    BiasScore,
    ClassificationScore,
    ContaminationCheck,
    Document,
    DriftScore,
    GeometryScore,
    ModelRecord,
    PublishedTable,
    Score,
    StsScore,
)
from msdc.bench.report.charts import histogram, scatter
from msdc.bench.report.model import Figure, Section
from msdc.tables import Column, Table, fixed, joined, signed

# task -> decimals of its scores; 1 where none is given
DECIMALS = {"geometry": 3, "mse": 3, "drift": 4, "bias": 2}
HEADLINES = {
    "sts": "Spearman",
    "mining": "F1",
    "tatoeba": "accuracy",
    "retrieval": "P@1",
    "bias": "bias",
    "classification": "accuracy",
    "transfer": "accuracy",
    "geometry": "uniformity",
    "mse": "MSE x 100",
    "drift": "cosine",
}
TITLES = {
    "sts": "Semantic textual similarity: Spearman x 100",
    "mining": "Bitext mining: F1 x 100",
    "tatoeba": "Translation retrieval: accuracy x 100, mean of both directions",
    "retrieval": "Retrieval in a large pool: P@1 x 100",
    "bias": "Language bias: Spearman of the joint pool minus the mean of the sets (0 is none)",
    "classification": "Zero-shot classification: accuracy x 100 on languages not trained on",
    "transfer": "Transfer: accuracy x 100 of a linear classifier",
    "geometry": "Geometry: uniformity (lower is better)",
    "mse": "Distance to the teacher: MSE x 100 (lower is better)",
    "drift": "Drift of an artifact from its float model: mean cosine",
}
# Columns whose cells are words; the cells of all others are numbers.
WORDS = ("set", "sets", "model", "against", "runs on", "precision", "gates of msdc export", "measure", "system")

UNSEEN = "unseen pairs"

AnyScore = TypeVar("AnyScore", bound=Score)


def _columns(titles: Iterable[str]) -> tuple[Column, ...]:
    return tuple(Column(title, align="left" if i == 0 or title in WORDS else "right") for i, title in enumerate(titles))


def _table(caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]], note: str = "") -> Table:
    return Table(caption, _columns(titles), tuple(tuple(row) for row in rows), note)


def _number(task: str, value: float | None) -> str:
    """A headline score in the format of its task."""
    return (signed if task == "bias" else fixed)(value, DECIMALS.get(task, 1))


def _with_interval(task: str, value: float | None, bounds: Sequence[float | None] | None) -> str:
    """`87.6 [83.9, 90.6]`."""
    if bounds is None:
        return _number(task, value)
    return f"{_number(task, value)} [{_number(task, bounds[0])}, {_number(task, bounds[1])}]"


def _p(value: float | None) -> str:
    return fixed(value, 3) if value is None or value >= 0.001 else "< 0.001"


def _contaminated(result: Score) -> str:
    """Test sentences found in the training text: exact + near of all."""
    counts = result.contamination
    if counts is None:
        return "not checked"
    near = "" if counts.near is None else f" + {counts.near} near"
    return f"{counts.exact}{near} of {counts.sentences}"


def _group(results: Iterable[AnyScore], key: Callable[[AnyScore], str]) -> dict[str, list[AnyScore]]:
    grouped: dict[str, list[AnyScore]] = {}
    for result in results:
        grouped.setdefault(key(result), []).append(result)
    return grouped


def _by_name(results: Iterable[AnyScore]) -> dict[str, list[AnyScore]]:
    return _group(results, lambda result: result.name)


def _models(results: Iterable[Score]) -> list[str]:
    return list(dict.fromkeys(result.model for result in results))


Cells = Mapping[tuple[str, str], Score]


def _mean_of(cells: Cells, names: Sequence[str], model: str) -> float | None:
    """Mean headline score over `names`; None unless the model has every one."""
    values = [cells[(name, model)].value for name in names if (name, model) in cells]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(names) else None


def _unseen_row(task: str, name: str, mine: Sequence[Score | None], checked: bool) -> list[str]:
    """The same set without the pairs of which the training text holds a side."""
    found = [None if result is None else result.unseen for result in mine]
    pairs = next(str(one.pairs) for one in found if one is not None)
    cells = [fixed(None, 1) if one is None else _with_interval(task, one.accuracy, one.interval) for one in found]
    return [f"{name}, {UNSEEN}", *cells, pairs, *([""] if checked else [])]


def _unseen_mean(cells: Cells, names: Sequence[str], model: str) -> float | None:
    """Mean over `names` of the accuracy on unseen pairs; None unless the model has every one."""
    values = [
        one.accuracy for name in names if (name, model) in cells and (one := cells[name, model].unseen) is not None
    ]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(names) else None


def _score_table(task: str, results: Sequence[Score]) -> Table:
    """One row per set, one column per model; a set of several parts gets a row with their mean."""
    models, names = _models(results), list(_by_name(results))
    cells = {(result.name, result.model): result for result in results}
    checked = any(result.contamination is not None for result in results)
    rows = []
    for place, name in enumerate(names):
        mine = [cells.get((name, model)) for model in models]
        some = next(result for result in mine if result is not None)
        row = [name, *(_with_interval(task, r.value, r.interval) if r else fixed(None, 1) for r in mine)]
        rows.append([*row, str(some.pairs or ""), *([_contaminated(some)] if checked else [])])
        if any(result is not None and result.unseen is not None for result in mine):
            rows.append(_unseen_row(task, name, mine, checked))
        family = name.split("/")[0]
        last = place + 1 == len(names) or names[place + 1].split("/")[0] != family
        parts = [one for one in names if one.startswith(f"{family}/")]
        if last and len(parts) > 1 and task != "bias":
            means = [_number(task, _mean_of(cells, parts, model)) for model in models]
            rows.append([f"{family}, mean of {len(parts)}", *means, *[""] * (1 + checked)])
            if all(cells[one, model].unseen for one in parts for model in models if (one, model) in cells):
                means = [_number(task, _unseen_mean(cells, parts, model)) for model in models]
                rows.append([f"{family}, mean of {len(parts)}, {UNSEEN}", *means, *[""] * (1 + checked)])
    titles = ["set", *models, "items", *(["sentences also in training text"] if checked else [])]
    notes = ["In brackets: 95 % bootstrap interval."] if any(result.interval for result in results) else []
    if any(result.unseen is not None for result in results):
        notes.append(
            "Unseen pairs: neither side is in the training text, exactly or nearly; candidates: the whole set."
        )
    if any("dev" in name.split("/")[0].split("-") for name in names):
        notes.append("Sets named dev are development data: a recipe may choose its checkpoints on them.")
    return _table(TITLES.get(task, task), titles, rows, " ".join(notes))


def _grid(
    caption: str, head: str, results: Sequence[Score], rows: Mapping[str, Mapping[str, str]], note: str = ""
) -> Table:
    """`rows` maps the name of a row to its cells by model."""
    models = _models(results)
    cells = [[name, *(by_model.get(model, fixed(None, 1)) for model in models)] for name, by_model in rows.items()]
    return _table(caption, [head, *models], cells, note)


Details = tuple[list[Table], list[Figure]]


def _sts(results: Sequence[StsScore]) -> Details:
    tables = []
    for name, own in _by_name(result for result in results if result.subsets).items():
        rows: dict[str, dict[str, str]] = {}
        for result in own:
            for part, score in (result.subsets or {}).items():
                text = _with_interval("sts", score.spearman, score.interval)
                rows.setdefault(f"{part} ({score.pairs})", {})[result.model] = text
        rows["mean of the parts"] = {result.model: _number("sts", result.mean) for result in own}
        tables.append(_grid(f"{name} by part: Spearman x 100", "part (pairs)", own, rows))
    return tables, []


def _classification(results: Sequence[ClassificationScore]) -> Details:
    tables = []
    for name, own in _by_name(results).items():
        rows: dict[str, dict[str, str]] = {}
        for result in own:
            for language, one in result.languages.items():
                text = _with_interval("classification", one.accuracy, one.interval)
                rows.setdefault(f"{language} ({one.texts})", {})[result.model] = text
        some = own[0]
        note = (
            f"Trained on {some.training_texts} texts in {some.training_language}; always predicting the largest class "
            f"scores {fixed(some.majority_class, 1)}."
        )
        tables.append(_grid(f"{name} by language: accuracy x 100", "language (texts)", own, rows, note))
    return tables, []


def _bias(results: Sequence[BiasScore]) -> Details:
    rows = [[r.name, r.model, fixed(r.joint, 1), fixed(r.mean, 1), _number("bias", r.bias), _p(r.p)] for r in results]
    figures, drawn = [], set()
    for result in results:
        picture = result.picture
        if picture is None or (result.model, picture.source) in drawn:
            continue
        drawn.add((result.model, picture.source))
        first, second = picture.explained
        caption = (
            f"{picture.source}; the two components hold {100 * first:.1f} and {100 * second:.1f} % of the variance; "
            f"the centres of the languages are {picture.gap:.2f} standard deviations apart."
        )
        figures.append(scatter(f"Two languages in one plane, {result.model}", picture.points, caption))
    return [_table("Language bias in detail", ["sets", "model", "joint", "mean", "bias", "p"], rows)], figures


def _geometry(results: Sequence[GeometryScore]) -> Details:
    rows = []
    for r in results:
        language = r.language_separability
        read = f"{fixed(language.accuracy, 1)} (chance {language.chance:.1f})" if language else fixed(None, 1)
        numbers = (r.alignment, r.uniformity, r.isotropy, r.mean_cosine)
        rows.append([r.model, *(fixed(value, 3) for value in numbers), read])
    titles = ["model", "alignment", "uniformity", "isotropy", "mean cosine", "language predicted from the vector"]
    return [_table("Geometry in detail", titles, rows)], []


def _drift(results: Sequence[DriftScore]) -> Details:
    tables, figures = [], []
    for name, own in _by_name(results).items():
        rows: dict[str, dict[str, str]] = {}
        for result in own:
            for group, suffix in ((result.languages, ""), (result.lengths, " characters")):
                for label, one in group.items():
                    text = f"{fixed(one.mean, 4)}, lowest {fixed(one.min, 4)}"
                    rows.setdefault(f"{label}{suffix} ({one.texts})", {})[result.model] = text
            labels = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(result.histogram.edges)]
            title = f"{name}: cosine of {result.model} with {result.reference}"
            figures.append(histogram(title, labels, result.histogram.counts))
        note = f"Cosine with {own[0].reference}."
        tables.append(_grid(f"{name}: mean and lowest cosine", "texts (count)", own, rows, note))
    return tables, figures


DETAILS: dict[str, Callable[[Any], Details]] = {
    "sts": _sts,
    "classification": _classification,
    "bias": _bias,
    "geometry": _geometry,
    "drift": _drift,
}


def _models_table(records: Sequence[ModelRecord]) -> Table:
    """Float models, and artifacts with their bytes and whether they pass the gates of msdc export."""
    rows = []
    for one in records:
        if one.runtime is None:
            stored = f"weights stored as {one.weights_stored_as}" if one.weights_stored_as else "float32"
            rows.append([one.label, "float", stored, fixed(None, 0), fixed(None, 0)])
        else:
            gates = {True: "passed", False: "failed", None: fixed(None, 0)}[one.gates_kept]
            rows.append([one.label, one.runtime, one.precision or "", fixed(one.bytes, 0), gates])
    return _table("Models", ["model", "runs on", "precision", "program bytes", "gates of msdc export"], rows)


def _overview(results: Sequence[Score]) -> Table | None:
    """The mean headline score of each family of sets; None for fewer than three families."""
    families: dict[tuple[str, str], list[str]] = {}
    for result in results:
        names = families.setdefault((result.task, result.name.split("/")[0]), [])
        names += [result.name] if result.name not in names else []
    if len(families) < 3:
        return None
    models, cells = _models(results), {(result.name, result.model): result for result in results}
    rows = []
    for (task, family), names in families.items():
        what = f"{family} ({len(names)} sets)" if len(names) > 1 else names[0]
        means = [_number(task, _mean_of(cells, names, model)) for model in models]
        rows.append([what, HEADLINES.get(task, task), *means])
        if any(result.unseen for result in results if result.name in names):
            means = [_number(task, _unseen_mean(cells, names, model)) for model in models]
            rows.append([f"{what}, {UNSEEN}", HEADLINES.get(task, task), *means])
    return _table("Overview", ["sets", "measure", *models], rows, "Means over the sets; each set is listed below.")


def _differences(results: Sequence[Score]) -> Table | None:
    """Paired tests, one row each."""
    rows = []
    for result in results:
        test = result.against
        if test is None or test.p is None:
            continue
        low, high = test.interval or (None, None)
        bounds = "" if low is None else f" [{signed(low, 2)}, {signed(high, 2)}]"
        rows.append([result.name, result.model, test.model, signed(test.difference, 2) + bounds, _p(test.p)])
    if not rows:
        return None
    note = "Same items, points x 100. Interval: paired bootstrap; p: two-sided paired permutation test."
    return _table("Differences between models", ["set", "model", "against", "difference", "p"], rows, note)


def _published(table: PublishedTable) -> Table:
    rows = []
    for row in table.rows:
        name = row.system if row.published else f"{row.system} (measured here)"
        rows.append([name, *(fixed(row.values.get(column), 2) for column in table.columns)])
    note = f"Published rows: {table.source}." + (f" Note on {table.note}." if table.note else "")
    return _table(table.title, ["system", *table.columns], rows, note)


def _corpora(check: ContaminationCheck) -> tuple[str, ...]:
    if not check.checked:
        return (f"none: {check.reason}",)
    return tuple(
        f"{one.file}: {one.sentences} sentences; test sentences among them: {one.exact} exact, {one.near} near"
        for one in check.corpora
    )


def subject(document: Document) -> str:
    """The models of a document, joined."""
    return joined([record.label for record in document.models])


def parts(document: Document) -> list[Section]:
    """A document as sections of a report of its own: one per task, with its details."""
    found: list[Section] = []

    def add(table: Table | None, key: str) -> None:
        if table is not None:
            found.append(Section(key, table.caption, tables=(table,)))

    if any(record.runtime is not None for record in document.models):
        add(_models_table(document.models), "models")
    add(_overview(document.results), "overview")
    for task, results in _group(document.results, lambda result: result.task).items():
        table = _score_table(task, results)
        tables, figures = DETAILS[task](results) if task in DETAILS else ([], [])
        found.append(Section(f"task-{task}", table.caption, "", tuple(figures), (table, *tables), tables_first=True))
    add(_differences(document.results), "differences")
    for i, published in enumerate(document.tables):
        add(_published(published), f"published-{i + 1}")
    lists = (
        ("absent", "Not scored, because the data was not found",
         tuple(f"{one.name}: looked for {one.looked_for}" for one in document.absent)),
        ("notes", "Notes on the data",
         tuple(dict.fromkeys(f"{result.name}: {note}" for result in document.results for note in result.notes))),
        ("training-text", "Training text searched for test sentences",
         _corpora(document.contamination) if document.contamination else ()),
    )  # fmt: skip
    return found + [Section(key, title, notes=notes) for key, title, notes in lists if notes]


def sections(documents: Sequence[Document]) -> list[Section]:
    """One section per document, beside those of device runs."""
    found = []
    for i, document in enumerate(documents):
        own = parts(document)
        found.append(
            Section(
                f"evaluation-{i + 1}" if len(documents) > 1 else "evaluation",
                f"Evaluation: {subject(document)}",
                figures=tuple(figure for part in own for figure in part.figures),
                tables=tuple(table for part in own for table in part.tables),
                notes=tuple(f"{part.title}: {note}" for part in own for note in part.notes),
                tables_first=True,
            )
        )
    return found
