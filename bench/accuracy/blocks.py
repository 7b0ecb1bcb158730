"""A result document as tables and pictures, before anyone decides between Markdown and HTML."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# task -> how its headline number is written
FORMATS = {"geometry": "{:.3f}", "mse": "{:.3f}", "drift": "{:.4f}", "bias": "{:+.2f}"}
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
    "tatoeba": "Translation retrieval: accuracy x 100, both directions averaged",
    "retrieval": "Retrieval in a large pool: P@1 x 100",
    "bias": "Language bias: Spearman of the joint pool minus the mean of the sets (0 is none)",
    "classification": "Zero-shot classification: accuracy x 100 on languages not trained on",
    "transfer": "Transfer: accuracy x 100 of a linear classifier",
    "geometry": "Geometry: uniformity (lower is better)",
    "mse": "Distance to the teacher: MSE x 100 (lower is better)",
    "drift": "Drift of an artifact from its float model: mean cosine",
}


@dataclass(frozen=True)
class Table:
    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str = ""


@dataclass(frozen=True)
class Points:
    """Points of two languages in the plane of their first two principal components."""

    title: str
    points: dict[str, list[list[float]]]
    caption: str = ""


@dataclass(frozen=True)
class Bars:
    """A histogram."""

    title: str
    labels: list[str]
    counts: list[int]
    caption: str = ""


@dataclass(frozen=True)
class Text:
    title: str
    lines: list[str] = field(default_factory=list)


Block = Table | Points | Bars | Text


def number(task: str, value: float | None) -> str:
    """A headline number as its task is written; a dash for none."""
    return "-" if value is None else FORMATS.get(task, "{:.1f}").format(value)


def with_interval(task: str, value: float | None, bounds: Iterable[float] | None) -> str:
    """`87.6 [83.9, 90.6]`."""
    if bounds is None:
        return number(task, value)
    low, high = bounds
    return f"{number(task, value)} [{number(task, low)}, {number(task, high)}]"


def _found(result: dict[str, Any]) -> str:
    """Test sentences seen in training: exact + near of all."""
    counts = result.get("contamination")
    if not counts:
        return "not checked"
    near = "" if counts["near"] is None else f" + {counts['near']} near"
    return f"{counts['exact']}{near} of {counts['sentences']}"


def _by_task(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        grouped.setdefault(result["task"], []).append(result)
    return grouped


def _models(results: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(result["model"] for result in results))


def _score_table(task: str, results: list[dict[str, Any]]) -> Table:
    """One row a set, one column a model; sets of several parts get a row with their mean."""
    models, names = _models(results), list(dict.fromkeys(result["name"] for result in results))
    cell = {(result["name"], result["model"]): result for result in results}
    checked = any("contamination" in result for result in results)
    rows = []
    for place, name in enumerate(names):
        mine = [cell.get((name, model)) for model in models]
        some = next(result for result in mine if result is not None)
        row = [name]
        for result in mine:
            value = None if result is None else result.get(result["main"])
            row.append(with_interval(task, value, result.get("interval") if result else None))
        row.append(str(some.get("pairs", "")))
        rows.append(row + ([_found(some)] if checked else []))
        family = name.split("/")[0]
        last = place + 1 == len(names) or names[place + 1].split("/")[0] != family
        parts = [one for one in names if one.startswith(f"{family}/")]
        if last and len(parts) > 1 and task != "bias":
            means = [_mean_of(cell, parts, model) for model in models]
            rows.append([f"{family}, mean of {len(parts)}", *(number(task, m) for m in means), *[""] * (1 + checked)])
    columns = ["set", *models, "items", *(["sentences also in training text"] if checked else [])]
    notes = ["In brackets: 95 % bootstrap interval."] if any(result.get("interval") for result in results) else []
    if any("dev" in name.split("/")[0].split("-") for name in names):
        notes.append("Sets named dev are development data: a recipe may choose its checkpoints on them.")
    return Table(TITLES.get(task, task), columns, rows, " ".join(notes))


def _mean_of(cell: dict[tuple[str, str], dict[str, Any]], parts: list[str], model: str) -> float | None:
    found = [cell[(part, model)] for part in parts if (part, model) in cell]
    values = [result[result["main"]] for result in found]
    return sum(values) / len(values) if len(values) == len(parts) and None not in values else None


def _grid(
    title: str, head: str, results: list[dict[str, Any]], rows: dict[str, dict[str, str]], caption: str = ""
) -> Table:
    """`rows` maps a row's name to its cell by model."""
    models = _models(results)
    cells = [[name, *(by_model.get(model, "-") for model in models)] for name, by_model in rows.items()]
    return Table(title, [head, *models], cells, caption)


def _by_name(results: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for result in results:
        grouped.setdefault(result["name"], []).append(result)
    return grouped


def _test_table(results: list[dict[str, Any]]) -> Table | None:
    rows = []
    for result in results:
        test = result.get("against")
        if test and "p" in test:
            low, high = test["interval"]
            bounds = "" if low is None else f" [{low:+.2f}, {high:+.2f}]"
            rows.append(
                [result["name"], result["model"], test["model"], f"{test['difference']:+.2f}{bounds}", _p(test["p"])]
            )
    if not rows:
        return None
    caption = "Same items, points x 100. Interval: paired bootstrap; p: two-sided paired permutation test."
    return Table("Differences between models", ["set", "model", "against", "difference", "p"], rows, caption)


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _subsets(results: list[dict[str, Any]]) -> list[Block]:
    blocks: list[Block] = []
    for name, own in _by_name([result for result in results if result.get("subsets")]).items():
        rows: dict[str, dict[str, str]] = {}
        for result in own:
            for part, scores in result["subsets"].items():
                text = with_interval("sts", scores.get("spearman"), scores.get("interval"))
                rows.setdefault(f"{part} ({scores['pairs']})", {})[result["model"]] = text
            rows.setdefault("mean of the parts", {})[result["model"]] = number("sts", result.get("mean"))
        rows["mean of the parts"] = rows.pop("mean of the parts")
        blocks.append(_grid(f"{name} by part: Spearman x 100", "part (pairs)", own, rows))
    return blocks


def _languages(results: list[dict[str, Any]]) -> list[Block]:
    blocks: list[Block] = []
    for name, own in _by_name(results).items():
        rows: dict[str, dict[str, str]] = {}
        for result in own:
            for language, one in result["languages"].items():
                text = with_interval("sts", one["accuracy"], one.get("interval"))
                rows.setdefault(f"{language} ({one['texts']})", {})[result["model"]] = text
        some = own[0]
        caption = f"Trained on {some['training_texts']} texts in {some['training_language']}; always answering the "
        caption += f"largest class: {some['majority_class']:.1f}."
        blocks.append(_grid(f"{name} by language: accuracy x 100", "language (texts)", own, rows, caption))
    return blocks


def _bias(results: list[dict[str, Any]]) -> list[Block]:
    rows = [
        [
            r["name"],
            r["model"],
            f"{r['joint']:.1f}",
            f"{r['mean']:.1f}",
            f"{r['bias']:+.2f}",
            "-" if r["p"] is None else _p(r["p"]),
        ]
        for r in results
    ]
    blocks: list[Block] = [Table("Language bias in detail", ["sets", "model", "joint", "mean", "bias", "p"], rows)]
    drawn = set()
    for result in results:
        picture = result.get("picture")
        if not picture or (result["model"], picture["source"]) in drawn:
            continue
        drawn.add((result["model"], picture["source"]))
        first, second = picture["explained"]
        caption = (
            f"{picture['source']}; the two components hold {100 * first:.1f} and {100 * second:.1f} % of the variance; "
        )
        caption += f"the languages' centres lie {picture['gap']:.2f} standard deviations apart."
        blocks.append(Points(f"Two languages in one plane, {result['model']}", picture["points"], caption))
    return blocks


def _geometry(results: list[dict[str, Any]]) -> list[Block]:
    keys = ("alignment", "uniformity", "isotropy", "mean_cosine")
    rows = []
    for r in results:
        language = r.get("language_separability")
        read = f"{language['accuracy']:.1f} (chance {language['chance']:.1f})" if language else "-"
        rows.append([r["model"], *(f"{r[key]:.3f}" for key in keys), read])
    columns = ["model", "alignment", "uniformity", "isotropy", "mean cosine", "language read off the vector"]
    return [Table("Geometry in detail", columns, rows)]


def _drift(results: list[dict[str, Any]]) -> list[Block]:
    blocks: list[Block] = []
    for name, own in _by_name(results).items():
        rows: dict[str, dict[str, str]] = {}
        for result in own:
            for group, suffix in (("languages", ""), ("lengths", " characters")):
                for label, one in result[group].items():
                    text = f"{one['mean']:.4f}, least {one['min']:.4f}"
                    rows.setdefault(f"{label}{suffix} ({one['texts']})", {})[result["model"]] = text
        caption = f"Cosine with {own[0]['reference']}."
        blocks.append(_grid(f"{name}: mean and least cosine", "texts (count)", own, rows, caption))
        for result in own:
            edges = result["histogram"]["edges"]
            labels = [f"{low:g} to {high:g}" for low, high in itertools.pairwise(edges)]
            title = f"{name}: cosine of {result['model']} with {result['reference']}"
            blocks.append(Bars(title, labels, result["histogram"]["counts"]))
    return blocks


def _published(tables: list[dict[str, Any]]) -> list[Block]:
    blocks: list[Block] = []
    for table in tables:
        rows = []
        for row in table["rows"]:
            name = row["system"] if row["published"] else f"{row['system']} (measured here)"
            cells = [row["values"][column] for column in table["columns"]]
            rows.append([name, *("-" if value is None else f"{value:.2f}" for value in cells)])
        caption = f"Published rows: {table['source']}."
        caption += f" Note on {table['note']}." if table.get("note") else ""
        blocks.append(Table(table["title"], ["system", *table["columns"]], rows, caption))
    return blocks


DETAILS = {"sts": _subsets, "classification": _languages, "bias": _bias, "geometry": _geometry, "drift": _drift}


def _models_table(records: list[dict[str, Any]]) -> Table:
    """What was scored: float models, and artifacts with their bytes and whether msdc export's gates hold for them."""
    rows = []
    for one in records:
        if "runtime" not in one:
            stored = one.get("weights_stored_as")
            rows.append([one["label"], "float", f"weights stored as {stored}" if stored else "float32", "-", "-"])
        else:
            kept = {True: "kept", False: "one falls short", None: "-"}[one.get("gates_kept")]
            rows.append([one["label"], one["runtime"], one["precision"], f"{one['bytes']:,}", kept])
    return Table("Models", ["model", "runs on", "precision", "program bytes", "gates of msdc export"], rows)


def _overview(results: list[dict[str, Any]]) -> Table | None:
    """One line for each family of sets: the mean of its headline numbers. None for a handful of results."""
    families: dict[tuple[str, str], list[str]] = {}
    for result in results:
        names = families.setdefault((result["task"], result["name"].split("/")[0]), [])
        names += [result["name"]] if result["name"] not in names else []
    if len(families) < 3:
        return None
    models, cell = _models(results), {(result["name"], result["model"]): result for result in results}
    rows = []
    for (task, family), names in families.items():
        what = f"{family} ({len(names)} sets)" if len(names) > 1 else names[0]
        means = [number(task, _mean_of(cell, names, model)) for model in models]
        rows.append([what, HEADLINES.get(task, task), *means])
    return Table("Overview", ["sets", "measure", *models], rows, "Means over the sets; each set is below.")


def blocks_of(document: dict[str, Any]) -> list[Block]:
    """Every table and picture of one result document."""
    records = document.get("models", [])
    out: list[Block] = [_models_table(records)] if any(one["kind"] == "artifact" for one in records) else []
    overview = _overview(document.get("results", []))
    out += [overview] if overview else []
    for task, results in _by_task(document.get("results", [])).items():
        out.append(_score_table(task, results))
        detail = DETAILS.get(task)
        out += detail(results) if detail else []
    test = _test_table(document.get("results", []))
    out += [test] if test else []
    out += _published(document.get("tables", []))
    absent = [f"{one['name']}: looked for {one['looked_for']}" for one in document.get("absent", [])]
    if absent:
        out.append(Text("Not scored, because the data is not here", absent))
    notes = [f"{r['name']}: {note}" for r in document.get("results", []) for note in r.get("notes", [])]
    if notes:
        out.append(Text("Notes on the data", list(dict.fromkeys(notes))))
    contamination = document.get("contamination")
    if contamination:
        out.append(Text("Training text looked through", _corpora(contamination)))
    return out


def _corpora(record: dict[str, Any]) -> list[str]:
    if not record.get("checked"):
        return [f"none: {record.get('reason', 'not checked')}"]
    return [
        f"{one['file']}: {one['sentences']} sentences, {one['exact']} test sentences in it, {one['near']} nearly"
        for one in record["corpora"]
    ]
