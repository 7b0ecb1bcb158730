"""Documents of `msdc evaluate`: a table per task, details by language or part, published tables, notes on the data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import PurePath
from typing import Any, NamedTuple, TypeVar

from msdc.bench.accuracy import document as scored
from msdc.bench.accuracy.document import Evaluation, Score
from msdc.bench.report import charts
from msdc.bench.report.drawing import Figure, Style
from msdc.bench.report.model import ReportSection, numbered_style, truncated_text
from msdc.tables import NONE, Field, Table, draw, fixed, joined, signed, text_field

# task -> headline score, decimals, title of its table
TASKS = {
    "sts": ("Spearman", 1, "Semantic textual similarity: Spearman x 100"),
    "mining": ("F1", 1, "Bitext mining: F1 x 100"),
    "tatoeba": ("accuracy", 1, "Translation retrieval: accuracy x 100, mean of both directions"),
    "xsr": ("P@1", 1, "Translations in a large pool: P@1 x 100"),
    "retrieval": ("MRR@10", 1, "Questions to paragraphs by vectors: MRR@10 x 100"),
    "bias": ("bias", 2, "Language bias: Spearman of the joint pool minus the mean of the sets (0 is none)"),
    "classification": ("accuracy", 1, "Zero-shot classification: accuracy x 100 on languages not trained on"),
    "transfer": ("accuracy", 1, "Transfer: accuracy x 100 of a linear classifier"),
    "geometry": ("uniformity", 3, "Geometry: uniformity (lower is better)"),
    "mse": ("MSE x 100", 3, "Distance to the teacher: MSE x 100 (lower is better)"),
    "drift": ("cosine", 4, "Drift of an artifact from its float model: mean cosine"),
    "mteb": ("main score", 1, "Tasks of mteb: main score x 100"),
}
UNSEEN = "unseen pairs"
# Tasks whose scores are x 100 and better when higher; a chart shows these.
HUNDREDS = ("sts", "mining", "tatoeba", "xsr", "retrieval", "classification", "transfer", "mteb")
MAX_WORDS, MAX_DOTS = 4, 16
GATES = {True: "passed", False: "failed", None: None}
# The level at which p and the 95 % interval are compared.
ALPHA = 0.05

ScoreT = TypeVar("ScoreT", bound=Score)
Details = tuple[list[Table], list[Figure]]


class _Measured(NamedTuple):
    """A score, or the mean of several, which has no interval."""

    task: str
    value: float | None
    interval: Sequence[float | None] | None = None

    def text(self) -> str:
        """Its number and its interval."""
        return _number(*self)


class _Row(NamedTuple):
    """A set, a part of one, or a family of sets, with a value per model; a system, with one per published column."""

    name: str
    values: Mapping[str, Any]
    measure: str = ""
    items: int | None = None
    in_training_text: str = ""


def _by_model(models: Sequence[str], form: Callable[[Any], str] = str) -> list[Field[_Row]]:
    """A field per model, also for one without any value."""

    def field(model: str) -> Field[_Row]:
        return Field(model, lambda row: form(row.values[model]) if model in row.values else NONE)

    return list(map(field, models))


def _number(task: str, value: float | None, interval: Sequence[float | None] | None = None) -> str:
    """A score in the format of its task: `87.6`, or `87.6 [83.9, 90.6]`."""
    shown = signed if task == "bias" else fixed
    decimals = TASKS[task][1] if task in TASKS else 1
    bounds = "" if interval is None else f" [{', '.join(shown(bound, decimals) for bound in interval)}]"
    return shown(value, decimals) + bounds


def _p_value_text(value: float) -> str:
    return fixed(value, 3) if value >= 0.001 else "< 0.001"


def _by(results: Iterable[ScoreT], key: str) -> dict[str, list[ScoreT]]:
    """Results grouped by their `name`, `task` or `model`."""
    grouped: dict[str, list[ScoreT]] = {}
    for result in results:
        grouped.setdefault(getattr(result, key), []).append(result)
    return grouped


def _measured(
    results: Sequence[Score], names: Sequence[str], models: Sequence[str], unseen: bool = False
) -> dict[str, _Measured]:
    """Per model its score with its interval, or the mean over several sets, or of their unseen pairs.

    A mean has no value unless the model has every one of the sets.
    """
    measured, task = {}, results[0].task
    for model in models:
        scores = {score.name: score for score in results if score.model == model and score.name in names}.values()
        values_and_intervals = [(score.value, score.interval) for score in scores]
        if unseen:
            values_and_intervals = [(score.unseen.accuracy, score.unseen.interval) for score in scores if score.unseen]
        values = [value for value, _ in values_and_intervals if value is not None]
        if len(names) == 1 and values_and_intervals:
            measured[model] = _Measured(task, *values_and_intervals[0])
        else:
            measured[model] = _Measured(task, sum(values) / len(values) if len(values) == len(names) else None)
    return measured


def _in_training_text(contamination: scored.Contamination | None) -> str:
    if contamination is None:
        return "not checked"
    near = "" if contamination.near is None else f" + {contamination.near} near"
    return f"{contamination.exact}{near} of {contamination.sentences}"


def _score_table(task: str, results: Sequence[Score]) -> Table:
    """One row per set, one column per model; a set of several parts gets a row with their mean."""
    models, by_name = list(_by(results, "model")), _by(results, "name")
    rows: list[_Row] = []
    for name, set_scores in by_name.items():
        first = set_scores[0]
        in_training_text = _in_training_text(first.contamination)
        rows.append(
            _Row(name, _measured(results, [name], models), items=first.pairs, in_training_text=in_training_text)
        )
        # The same set without the pairs with a side in the training text.
        if part := next((score.unseen for score in set_scores if score.unseen), None):
            rows.append(_Row(f"{name}, {UNSEEN}", _measured(results, [name], models, unseen=True), items=part.pairs))
        family = name.split("/")[0]
        parts = [part for part in by_name if part.startswith(f"{family}/")]
        if len(parts) > 1 and task != "bias" and name == parts[-1]:
            rows.append(_Row(f"{family}, mean of {len(parts)}", _measured(results, parts, models)))
            if all(result.unseen for result in results if result.name in parts):
                mean = f"{family}, mean of {len(parts)}, {UNSEEN}"
                rows.append(_Row(mean, _measured(results, parts, models, unseen=True)))
    fields = [
        text_field("set", lambda row: row.name),
        *_by_model(models, _Measured.text),
        Field("items", lambda row: str(row.items or "")),
    ]
    if any(result.contamination is not None for result in results):
        fields.append(Field("sentences also in training text", lambda row: row.in_training_text))
    notes = {
        "In brackets: 95 % bootstrap interval.": any(result.interval for result in results),
        "Unseen pairs: neither side is in the training text, exactly or nearly; candidates: the whole set.":
            any(result.unseen for result in results),
        "Sets named dev are development data: a recipe may choose its checkpoints on them.":
            any("dev" in name.split("/")[0].split("-") for name in by_name),
    }  # fmt: skip
    title = TASKS[task][2] if task in TASKS else task
    return draw(title, fields, rows, " ".join(note for note, holds in notes.items() if holds))


def _grids(
    results: Iterable[ScoreT],
    caption: str,
    head: str,
    cells: Callable[[ScoreT], Iterable[tuple[str, str]]],
    note: Callable[[ScoreT], str] = lambda _: "",
) -> list[Table]:
    """One table per set with a column per model; `cells` are the (name of a row, text) of a result."""
    tables = []
    for name, set_results in _by(results, "name").items():
        texts: dict[str, dict[str, str]] = {}
        for result in set_results:
            for row_name, text in cells(result):
                texts.setdefault(row_name, {})[result.model] = text
        fields = [text_field(head, lambda row: row.name), *_by_model(list(_by(set_results, "model")))]
        rows = [_Row(row_name, by_model) for row_name, by_model in texts.items()]
        tables.append(draw(f"{name}{caption}", fields, rows, note(set_results[0])))
    return tables


def _sts(results: Sequence[scored.StsScore]) -> Details:
    def cells(result: scored.StsScore) -> Iterable[tuple[str, str]]:
        for part, score in (result.subsets or {}).items():
            yield f"{part} ({score.pairs})", _number("sts", score.spearman, score.interval)
        yield "mean of the parts", _number("sts", result.mean)

    return _grids((r for r in results if r.subsets), " by part: Spearman x 100", "part (pairs)", cells), []


def _classification(results: Sequence[scored.ClassificationScore]) -> Details:
    def cells(result: scored.ClassificationScore) -> Iterable[tuple[str, str]]:
        for language, score in result.languages.items():
            yield f"{language} ({score.texts})", _number("classification", score.accuracy, score.interval)

    def note(score: scored.ClassificationScore) -> str:
        trained = f"Trained on {score.training_texts} texts in {score.training_language}"
        return f"{trained}; always predicting the largest class scores {fixed(score.majority_class, 1)}."

    return _grids(results, " by language: accuracy x 100", "language (texts)", cells, note), []


def _bias(results: Sequence[scored.BiasScore]) -> Details:
    fields: list[Field[scored.BiasScore]] = [
        text_field("sets", lambda score: score.name),
        text_field("model", lambda score: score.model),
        Field("joint", lambda score: score.joint, ",.1f"),
        Field("mean", lambda score: score.mean, ",.1f"),
        Field("bias", lambda score: score.bias, partial(_number, "bias")),
        Field("p", lambda score: score.p, _p_value_text),
    ]
    figures, drawn = [], set()
    for result in results:
        picture = result.picture
        if picture is None or (result.model, picture.source) in drawn:
            continue
        drawn.add((result.model, picture.source))
        groups = [(numbered_style(name, i), side) for i, (name, side) in enumerate(picture.points.items())]
        first, second = picture.explained
        caption = (
            f"{picture.source}; the two components hold {100 * first:.1f} and {100 * second:.1f} % of the variance; "
            f"the centres of the languages are {picture.gap:.2f} standard deviations apart."
        )
        figures.append(charts.scatter(f"Two languages in one plane, {result.model}", groups, caption))
    return [draw("Language bias in detail", fields, results)], figures


def _geometry(results: Sequence[scored.GeometryScore]) -> Details:
    fields: list[Field[scored.GeometryScore]] = [
        text_field("model", lambda score: score.model),
        Field("alignment", lambda score: score.alignment, ",.3f"),
        Field("uniformity", lambda score: score.uniformity, ",.3f"),
        Field("isotropy", lambda score: score.isotropy, ",.3f"),
        Field("mean cosine", lambda score: score.mean_cosine, ",.3f"),
        Field("language predicted from the vector", lambda score: score.language_separability,
              lambda language: f"{fixed(language.accuracy, 1)} (chance {language.chance:.1f})"),
    ]  # fmt: skip
    return [draw("Geometry in detail", fields, results)], []


def _drift(results: Sequence[scored.DriftScore]) -> Details:
    def cells(result: scored.DriftScore) -> Iterable[tuple[str, str]]:
        for group, suffix in ((result.languages, ""), (result.lengths, " characters")):
            for label, statistics in group.items():
                yield (
                    f"{label}{suffix} ({statistics.texts})",
                    f"{fixed(statistics.mean, 4)}, lowest {fixed(statistics.min, 4)}",
                )

    figures = []
    for result in (result for set_results in _by(results, "name").values() for result in set_results):
        labels = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(result.histogram.edges)]
        title, total = f"{result.name}: cosine of {result.model} with {result.reference}", sum(result.histogram.counts)
        bins = [(Style(label), float(count), f"{count} ({100 * count / max(total, 1):.1f} %)")
                for label, count in zip(labels, result.histogram.counts, strict=True)]  # fmt: skip
        figures.append(charts.bars(title, bins))
    note = "Cosine with {0.reference}.".format
    return _grids(results, ": mean and lowest cosine", "texts (count)", cells, note), figures


class _Ranked(NamedTuple):
    """How well a set is searched in one way."""

    name: str
    model: str
    ranking: scored.SearchScore | scored.SearchPart

    @property
    def mrr(self) -> float | None:
        """The mean reciprocal rank."""
        return self.ranking.value if isinstance(self.ranking, scored.Score) else self.ranking.mrr


def _search(results: Sequence[scored.SearchScore]) -> Details:
    rows = [
        _Ranked(f"{score.name}, {way}", score.model, ranking)
        for score in results
        for way, ranking in (("vectors", score), ("words", score.words), ("both", score.both))
        if ranking is not None and ranking.acc1 is not None
    ]
    fields: list[Field[_Ranked]] = [
        text_field("set", lambda row: row.name),
        text_field("model", lambda row: row.model),
        Field("acc@1", lambda row: row.ranking.acc1, ",.1f"),
        Field("acc@5", lambda row: row.ranking.acc5, ",.1f"),
        Field("MRR@10", lambda row: row.mrr, ",.1f"),
        Field("nDCG@10", lambda row: row.ranking.ndcg, ",.1f"),
    ]
    note = "Words: SQLite's FTS5 (BM25). Both: bm25 + the scaled cosine of the best passage, as msdc search ranks."
    return ([draw("Search by vectors, words and both", fields, rows, note)] if rows else []), []


DETAILS: dict[str, Callable[[Any], Details]] = {
    "sts": _sts, "classification": _classification, "bias": _bias, "geometry": _geometry, "drift": _drift,
    "retrieval": _search,
}  # fmt: skip


def _precision(model: scored.ModelRecord) -> str:
    """Of an artifact, or in which the weights of a float model are stored."""
    if model.precision or model.runtime is not None:
        return model.precision or ""
    return f"weights stored as {model.weights_stored_as}" if model.weights_stored_as else "float32"


def _models(document: Evaluation) -> Table | None:
    """Float models, and artifacts with their bytes and whether they pass the gates; None without artifacts."""
    if all(model.runtime is None for model in document.models):
        return None
    fields: list[Field[scored.ModelRecord]] = [
        text_field("model", lambda model: model.label),
        text_field("runs on", lambda model: model.runtime or model.kind),
        text_field("precision", _precision),
        Field("program bytes", lambda model: model.runtime and model.bytes, ",.0f"),
        text_field("gates of msdc export", lambda model: model.runtime and GATES[model.gates_kept]),
    ]
    return draw("Models", fields, document.models)


def _families(document: Evaluation) -> Iterable[tuple[str, str, list[Score], list[str]]]:
    """Per family of sets: its name with the number of sets, its measure, its results, the names of its sets."""
    families: dict[tuple[str, str], dict[str, None]] = {}
    for result in document.results:
        families.setdefault((result.task, result.name.split("/")[0]), {})[result.name] = None
    for (task, family), names in families.items():
        family_results = [result for result in document.results if result.task == task and result.name in names]
        what = f"{family} ({len(names)} sets)" if len(names) > 1 else next(iter(names))
        yield what, TASKS[task][0] if task in TASKS else task, family_results, list(names)


def _spread(results: Sequence[Score], names: Sequence[str], model: str) -> str:
    """The lowest and highest score of several sets, next to their mean; one set has its interval."""
    values = [score.value for score in results if score.model == model and score.value is not None]
    if not names[1:] or not values:
        return ""
    lowest, highest = (_number(results[0].task, value) for value in (min(values), max(values)))
    return f" ({lowest} to {highest})"


def _with_labels(document: Evaluation) -> Evaluation:
    """The document with files of the user's own by their names, and a note of their paths: TASK=PATH is no heading."""
    labels = {name: PurePath(name).stem for name in (result.name for result in document.results) if "=" in name}
    if len(set(labels.values())) < len(labels):  # of two folders
        return document
    results = [
        result.model_copy(update={
            "name": labels[result.name], "notes": (f"`{result.name.partition('=')[2]}`", *result.notes)
        })
        if result.name in labels
        else result
        for result in document.results
    ]  # fmt: skip
    return document.model_copy(update={"results": tuple(results)})


def _verdict(document: Evaluation) -> str:
    """Which model is better, by how much, and whether that is certain; empty without paired tests."""
    sentences = []
    for tested in _paired_tests(document):
        (result, test), difference = tested[:2], tested.test.difference
        if difference is None or result.task not in HUNDREDS:
            continue
        sign, (better, worse) = (1, (result.model, test.model)) if difference > 0 else (-1, (test.model, result.model))
        is_certain = tested.p_value < ALPHA and not tested.undecided
        bounds = sorted(sign * bound for bound in test.interval or () if bound is not None)
        interval = f" [{', '.join(fixed(bound, 1) for bound in bounds)}]" if bounds else ""
        certainty = "certain at 95 %" if is_certain else "not certain"
        points = f"{fixed(abs(difference), 1)}{interval} points"
        sentences.append(f"{better} is ahead of {worse} by {points} on {result.name} ({certainty}).")
    remainder = f" {len(sentences) - MAX_WORDS} more differences are below." if len(sentences) > MAX_WORDS else ""
    return " ".join(sentences[:MAX_WORDS]) + remainder


def _summary(document: Evaluation) -> ReportSection | None:
    """The scores of the first model in a sentence; the sets of the first task in a chart, with all models if few."""
    if not document.results:
        return None
    model = document.results[0].model
    headlines = [
        (_measured(family_results, names, [model])[model].text(), _spread(family_results, names, model), measure, what)
        for what, measure, family_results, names in _families(document)
    ]
    words = [f"{measure} {score}{spread} on {what}" for score, spread, measure, what in headlines if NONE not in score]
    shown = words[:MAX_WORDS] + ([f"{len(words) - MAX_WORDS} more below"] if len(words) > MAX_WORDS else [])
    results = [
        result for result in document.results if result.task == document.results[0].task and result.value is not None
    ]
    # Many rows are those of the first model alone, on the first sets.
    charted = [result for result in results if len(results) <= MAX_DOTS or result.model == model]
    models, names = list(_by(charted, "model")), list(_by(charted, "name"))[:MAX_DOTS]
    rows, labels = [], []
    for result in sorted(
        (result for result in charted if result.name in names), key=lambda result: names.index(result.name)
    ):
        low, high = result.interval or (None, None)
        style = numbered_style(result.model, models.index(result.model))
        labels.append(result.name)
        span = None if low is None or high is None else (low, high)
        rows.append((style, result.value or 0.0, span, _number(result.task, result.value)))
    scope_note = f" {model} on {len(names)} sets; all are below." if len(rows) < len(results) else ""
    caption = ("Lines: 95 % bootstrap interval." if any(row[2] for row in rows) else "") + scope_note
    title = TASKS[results[0].task][2] if results and results[0].task in TASKS else "Scores"
    figures = [charts.dots(title, rows, caption.strip(), labels=labels)] if rows and results[0].task in HUNDREDS else []
    scores = f"{model}: {joined(shown)}." if shown else ""
    return ReportSection("summary", "Summary", " ".join(filter(None, (_verdict(document), scores))), figures)


def _overview(document: Evaluation) -> Table | None:
    """The mean headline score of each family of sets; None for fewer than three families."""
    models, families = list(_by(document.results, "model")), list(_families(document))
    rows = [
        _Row(what + (f", {UNSEEN}" if unseen else ""), _measured(family_results, names, models, unseen), measure)
        for what, measure, family_results, names in families
        for unseen in ((False, True) if any(result.unseen for result in family_results) else (False,))
    ]
    fields = [
        text_field("sets", lambda row: row.name),
        text_field("measure", lambda row: row.measure),
        *_by_model(models, lambda measured: _number(measured.task, measured.value)),
    ]
    note = "Means over the sets; each set is listed below."
    return draw("Overview", fields, rows, note) if len(families) > 2 else None


class _Tested(NamedTuple):
    """A score, the paired test of it against that of another model, and its p."""

    score: Score
    test: scored.Against
    p_value: float

    @property
    def difference(self) -> str:
        """In points, with its interval."""
        bounds = f" [{', '.join(signed(bound, 2) for bound in self.test.interval)}]" if self.test.interval else ""
        return signed(self.test.difference, 2) + bounds

    @property
    def undecided(self) -> bool:
        """Whether p and the interval disagree."""
        low, high = self.test.interval or (None, None)
        has_zero = low is not None and high is not None and low <= 0 <= high
        return self.test.interval is not None and (self.p_value < ALPHA) == has_zero


def _paired_tests(document: Evaluation) -> list[_Tested]:
    return [
        _Tested(result, result.against, result.against.p)
        for result in document.results
        if result.against is not None and result.against.p is not None
    ]


def _differences(document: Evaluation) -> Table | None:
    """Paired tests, one row each; where p and the interval disagree, the row is marked as undecided."""
    rows = _paired_tests(document)
    fields: list[Field[_Tested]] = [
        text_field("set", lambda row: row.score.name),
        text_field("model", lambda row: row.score.model),
        text_field("against", lambda row: row.test.model),
        Field("difference", lambda row: row.difference),
        Field("p", lambda row: _p_value_text(row.p_value) + " *" * row.undecided),
    ]
    note = "Same items, points x 100. Interval: paired bootstrap; p: two-sided paired permutation test."
    if any(row.undecided for row in rows):
        note += " * The two tests disagree at 5 %: the difference is not decided."
    return draw("Differences between models", fields, rows, note) if rows else None


def _published(table: scored.PublishedTable) -> Table:
    # As many decimals as the paper has; its 78.9 is not 78.90.
    published_values = [
        value for row in table.rows if row.published for value in row.values.values() if value is not None
    ]
    decimals = max((len(f"{value:.2f}".rstrip("0").partition(".")[2]) for value in published_values), default=1)
    rows = [_Row(row.system if row.published else f"{row.system} (measured here)", row.values) for row in table.rows]
    columns = _by_model(table.columns, lambda value: fixed(value, decimals))
    note = f"Published rows: {table.source}." + (f" Note on {table.note}." if table.note else "")
    return draw(table.title, [text_field("system", lambda row: row.name), *columns], rows, note)


def _lists(document: Evaluation) -> list[ReportSection]:
    """What was not found, notes on the data, and the training text that was searched."""
    absent = [f"{data_set.name}: looked for {data_set.looked_for}" for data_set in document.absent]
    notes = list(dict.fromkeys(f"{result.name}: {note}" for result in document.results for note in result.notes))
    notes += [f"{result.name}, {result.model}: {truncated_text(result.truncated)}"
              for result in document.results if result.truncated]  # fmt: skip
    searched = []
    if (check := document.contamination) is not None:
        searched = (
            [f"none: {check.reason}"]
            if not check.checked
            else [
                f"{corpus.file}: {corpus.sentences} sentences; "
                f"test sentences among them: {corpus.exact} exact, {corpus.near} near"
                for corpus in check.corpora
            ]
        )
    lists = (
        ReportSection("absent", "Not scored, because the data was not found", notes=absent),
        ReportSection("notes", "Notes on the data", notes=notes),
        ReportSection("training-text", "Training text searched for test sentences", notes=searched),
    )
    return [section for section in lists if section.notes]


def subject(document: Evaluation) -> str:
    """The models of a document, joined."""
    return joined([record.label for record in document.models])


def parts(document: Evaluation) -> list[ReportSection]:
    """A document as sections of a report of its own: one per task, with its details."""

    def of_tables(keyed_tables: Sequence[tuple[str, Table | None]]) -> list[ReportSection]:
        return [ReportSection(key, table.caption, tables=[table]) for key, table in keyed_tables if table is not None]

    document, tasks = _with_labels(document), []
    for task, results in _by(document.results, "task").items():
        table = _score_table(task, results)
        tables, figures = DETAILS[task](results) if task in DETAILS else ([], [])
        tasks.append(ReportSection(f"task-{task}", table.caption, "", figures, [table, *tables], tables_first=True))
    published = [(f"published-{i}", _published(table)) for i, table in enumerate(document.tables, 1)]
    summary = _summary(document)
    return [
        *([summary] if summary is not None else []),
        *of_tables([("models", _models(document)), ("overview", _overview(document))]),
        *tasks,
        *of_tables([("differences", _differences(document)), *published]),
        *_lists(document),
    ]


def evaluations(documents: Sequence[Evaluation]) -> list[ReportSection]:
    """One section per document, after those of device runs."""
    sections = []
    for position, document in enumerate(documents, 1):
        document_sections = parts(document)
        key = f"evaluation-{position}" if len(documents) > 1 else "evaluation"
        figures = [figure for part in document_sections for figure in part.figures]
        tables = [table for part in document_sections for table in part.tables]
        notes = [f"{part.title}: {note}" for part in document_sections for note in part.notes]
        title = f"Evaluation: {subject(document)}"
        sections.append(
            ReportSection(
                key,
                title,
                document_sections[0].lead if document_sections else "",
                figures,
                tables,
                notes,
                tables_first=True,
            )
        )
    return sections
