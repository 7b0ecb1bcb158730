"""Accuracy of teacher, assistant, float student and artifacts, its cost in bytes and time, and published figures."""

from __future__ import annotations

import csv
from pathlib import Path

from msdc.bench.report.charts import score_dots, trade_off
from msdc.bench.report.data import ReportData, Style, mean_spearman, score_of
from msdc.bench.report.model import Figure, Section
from msdc.bench.report.sections.overview import latency_at, middle_length
from msdc.bench.result import Accuracy
from msdc.tables import Column, Table, fixed, megabytes, number, signed

# At most this many data sets get a chart; the table lists all.
MAX_CHARTS = 6
PEERS = Path(__file__).resolve().parent.parent / "peers.csv"


def span_of(entry: Accuracy) -> tuple[float, float] | None:
    """The 95 % interval of a score; None when its task computed none."""
    interval = (entry.model_extra or {}).get("interval")
    if isinstance(interval, (list, tuple)) and len(interval) == 2:
        return float(interval[0]), float(interval[1])
    return None


def _owners(data: ReportData) -> list[tuple[Style, tuple[Accuracy, ...]]]:
    models = [(style, model.accuracy) for model, style in data.models()]
    return models + [(style, run.accuracy) for run, style in data.everything()]


def _lead(data: ReportData, tasks: list[tuple[str, str]]) -> str:
    """The lowest artifact against the float student, or the teacher where there is no student."""
    runs = [(m, s) for r, s in data.everything() if (m := mean_spearman(r.accuracy, tasks)) is not None]
    base = {
        model.role: value for model, _ in data.models() if (value := mean_spearman(model.accuracy, tasks)) is not None
    }
    if not runs:
        return ""
    worst, style = min(runs, key=lambda pair: pair[0])
    for role in ("student", "teacher"):
        if role in base:
            name = "float student" if role == "student" else "teacher"
            lowest = f"the lowest artifact, {style.name}, {fixed(worst, 1)} ({signed(worst - base[role], 1)})"
            return f"The {name} scores {base[role]:.1f}; {lowest}."
    return f"The lowest artifact, {style.name}, scores {worst:.1f}."


def section(data: ReportData) -> Section | None:
    """A table of all data sets and charts of the first six; None without scores."""
    tasks = data.tasks()
    owners = [(style, entries) for style, entries in _owners(data) if any(score_of(entries, task) for task in tasks)]
    if not tasks or not owners:
        return None
    figures: list[Figure] = []
    for task in tasks[:MAX_CHARTS]:
        rows = []
        for style, entries in owners:
            entry = score_of(entries, task)
            if entry is not None and entry.spearman is not None:
                rows.append((style, entry.spearman, span_of(entry)))
        pairs = next((e.pairs for _, entries in owners if (e := score_of(entries, task)) and e.pairs), None)
        figures.append(score_dots(task[1] + (f", {pairs} pairs" if pairs else ""), rows))
    table_rows = []
    for style, entries in owners:
        cells = [fixed(entry.spearman, 1) if (entry := score_of(entries, task)) else "–" for task in tasks]
        mean = [fixed(mean_spearman(entries, tasks), 1)] if len(tasks) > 1 else []
        table_rows.append((style.name, *cells, *mean))
    columns = [Column("Model or artifact", align="left"), *(Column(name) for _, name in tasks)]
    if len(tasks) > 1:
        columns.append(Column("Mean"))
    note = "Spearman × 100 of cosines against gold scores. An artifact is scored on the vectors that it computed."
    table = Table("Spearman × 100", tuple(columns), tuple(table_rows), note)
    return Section("accuracy", "Accuracy", _lead(data, tasks), tuple(figures), (table,))


def trade(data: ReportData) -> Section | None:
    """Size against accuracy and latency against accuracy with their Pareto lines; None without scores."""
    tasks = data.tasks()
    scored = [(run, style, value) for run, style in data.everything()
              if (value := mean_spearman(run.accuracy, tasks)) is not None]  # fmt: skip
    if not scored:
        return None
    length = middle_length(data)
    sizes = [(style, model.bytes / 1e6, value, f"{megabytes(model.bytes)} MB, {value:.1f}")
             for model, style in data.models()
             if model.bytes and (value := mean_spearman(model.accuracy, tasks)) is not None]  # fmt: skip
    for run, style, value in scored:
        at = latency_at(run, length) if length and run.clock == "wall" else None
        speed = f", {number(at)} ms" if at is not None else ""
        sizes.append(
            (style, run.artifact.bytes / 1e6, value, f"{megabytes(run.artifact.bytes)} MB, {value:.1f}{speed}")
        )
    figures = [trade_off("Size and accuracy", "MB, logarithmic", sizes, log=True)]
    times = []
    for run, style, value in scored:
        at = latency_at(run, length) if length and run.clock == "wall" else None
        if at is not None:
            times.append((style, at, value, f"{number(at)} ms, {value:.1f}, {megabytes(run.artifact.bytes)} MB"))
    if times:
        figures.append(trade_off("Latency and accuracy", f"ms at {length} tokens, median", times, log=False))
    sets = ", ".join(name for _, name in tasks)
    note = f"Accuracy is the mean Spearman × 100 over: {sets}."
    return Section(
        "trade-off", "Size, accuracy and latency", "Up and to the left is better.", tuple(figures), notes=(note,)
    )


def peers() -> Section:
    """Published figures of other systems, each with its source: the table in peers.csv."""
    lines = [line for line in PEERS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    reader = csv.DictReader(lines)
    names = list(reader.fieldnames or [])
    rows = tuple(tuple(row[name] or "–" for name in names) for row in reader)
    titles = {"system": "System", "embedding_M": "Embedding", "encoder_M": "Encoder", "source": "Source"}
    columns = tuple(
        Column(
            titles.get(name, name),
            "million" if name.endswith("_M") else "",
            "left" if name in ("system", "source") else "right",
        )
        for name in names
    )
    note = "Not measured here: figures for float models as printed in the papers; parameters as the papers count them."
    table = Table("Published: Spearman × 100 on STS2017", columns, rows, note)
    return Section("peers", "Published peers", "Figures from the literature, for orientation.", (), (table,))
