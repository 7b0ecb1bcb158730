"""From results to a report, and its file: one self-contained HTML page, Markdown, JSON, CSV or plain text."""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msdc import tables
from msdc.bench.accuracy.document import Evaluation
from msdc.bench.compare import Comparison, compare_results
from msdc.bench.report import sections
from msdc.bench.report.drawing import marker, standalone
from msdc.bench.report.earlier import comparison, history
from msdc.bench.report.evaluation import evaluations as evaluation_sections
from msdc.bench.report.evaluation import parts, subject
from msdc.bench.report.model import (
    Report,
    ReportData,
    ReportSection,
    Strong,
    read_inputs,
    read_training,
)
from msdc.bench.report.recommendation import artifacts, recommend, warnings
from msdc.bench.report.rows import to_csv
from msdc.bench.report.sweep import sweep_figures, sweep_sections
from msdc.bench.report.targets import Limit, judge, missed, targets_section, undecided
from msdc.bench.result import BenchFile, moments
from msdc.distill.sweep_table import SweepTable
from msdc.errors import InputError, printable
from msdc.files import refuse_existing, write_json, write_text
from msdc.tables import joined

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).resolve().parent
SUFFIXES = (".html", ".md", ".json")
# Of measured runs alone.
ROWS_SUFFIX = ".csv"
TERMINAL_SECTIONS = ("choice", "targets", "comparison")
MANY_COLUMNS, MANY_WORDS = 9, 3  # more are many


def build_report(
    results: BenchFile,
    *,
    created: str | None = None,
    title: str | None = None,
    run_folder: Path | None = None,
    before: Sequence[BenchFile] = (),
    evaluations: Sequence[Evaluation] = (),
    sweeps: Sequence[SweepTable] = (),
    targets: Sequence[Limit] = (),
    comparisons: Sequence[Comparison] | None = None,
) -> Report:
    """A report of `results`, with the training run in `run_folder`, documents of `msdc evaluate`, and sweeps.

    `before` are earlier results: all are in the history, the last is compared with where there are no `comparisons`.
    `targets` are judged at the top.
    """
    if targets and not results.runs:
        raise InputError("targets are for measured artifacts, and the result files hold no run")
    if not (results.runs or results.models or evaluations or sweeps or run_folder is not None):
        raise InputError("the result files hold no run and no model: nothing to report")
    earlier = sorted(before, key=lambda file: max((run.created for run in file.runs), default=""))
    data = ReportData(
        results,
        evaluations,
        sweeps,
        earlier,
        comparisons=compare_results(earlier[-1], results) if earlier and comparisons is None else comparisons or (),
        stages=read_training(run_folder) if run_folder is not None else (),
        running=run_folder is not None and not (run_folder / "result.json").is_file(),
        wanted_length=next((int(target.subject) for target in targets if target.kind == "latency"), None),
    )
    judged = judge(data, targets)
    candidates = (
        artifacts(data, judged),
        targets_section(judged),
        comparison(data),
        history(data),
        sections.accuracy(data),
        sections.artifacts(data),
        sections.latency(data),
        sections.sustained(data),
        sections.counted(data),
        sections.memory(data),
        *evaluation_sections(evaluations),
        sections.training(data),
        *sweep_sections(sweeps),
        sections.method(data),
    )
    named = data.bundles or [model.name for model in results.models]
    named = named or [subject(document) for document in evaluations] or [sweep.recipe for sweep in sweeps]
    subtitle = "Size and accuracy" if named else "Training"
    if data.runs:
        subtitle = "Size, accuracy and latency"
    if run_folder is not None and not named:
        named = [run_folder.resolve().name]
    return Report(
        title=title or joined(list(dict.fromkeys(named))),
        subtitle=subtitle,
        created=created or datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        sections=[section for section in candidates if section is not None],
        warnings=warnings(data),
        recommendation=recommend(data, judged),
        missed=missed(judged),
        undecided=undecided(judged),
        comparisons=data.comparisons,
        source=results,
    )


def evaluation_report(document: Evaluation) -> Report:
    """The report of one `msdc evaluate`, dated as its document, so that the same document gives the same file."""
    created = f"{moments([document.created])[0]} UTC" if document.created else ""
    return Report("Accuracy", subject(document), created, parts(document), source=document)


def sweep_page(folder: Path) -> Path:
    """Write the report.html of the sweep in `folder`: its curves and its table; returns that path.

    Each drawing is also a file of its own: figure-1.svg, figure-2.svg, ...
    """
    (sweep,) = read_inputs([folder]).sweeps
    for number, figure in enumerate(sweep_figures(sweep), 1):
        write_text(folder / f"figure-{number}.svg", printable(standalone(figure, page_colors())) + "\n")
    report = build_report(BenchFile(), sweeps=[sweep])
    return write_report(report, folder / "report.html", force=True)


def layout(table: tables.Table) -> str:
    """The classes of a table in page.css, which decide what it becomes where it does not fit.

    A row is a card on a phone; of a table with many columns of words it is a list of cells at any width. Many columns
    of numbers stay a table, which is scrolled inside the page.
    """
    words = sum(column.align == "left" for column in table.columns[1:])
    if len(table.columns) > MANY_COLUMNS:
        return "records" if words > MANY_WORDS else "wide cards"
    return "cards" if len(table.columns) > 3 else ""


def interval_columns(table: tables.Table) -> frozenset[int]:
    """The columns of numbers in which some cells, but not all, have an interval: `76.9 [70.5, 82.2]`."""
    numeric = [i for i, column in enumerate(table.columns) if column.align == "right"]
    return frozenset(i for i in numeric if len({" [" in row[i] for row in table.rows if row[i]}) > 1)


@cache
def page_colors() -> dict[str, str]:
    """The colors of the page by the names of its CSS variables, in the light scheme."""
    light = (TEMPLATES / "page.css").read_text(encoding="utf-8").partition("@media")[0]
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", light))


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup, escape

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def swatch(color: str, shape: str) -> Markup:
        # The output of our own drawing code, which holds no foreign text.
        drawn = marker(shape, 8, 8, color, size=5)
        return Markup(f'<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">{drawn}</svg>')

    environment.globals.update(swatch=swatch)

    def code(text: str) -> Markup:
        """`name` between backticks as code."""
        pieces = [escape(piece) for piece in text.split("`")]
        if len(pieces) % 2 == 0:  # a backtick without its other
            return escape(text)
        return Markup("").join(
            Markup("<code>{}</code>").format(piece) if index % 2 else piece for index, piece in enumerate(pieces)
        )

    def interval(cell: str) -> Markup:
        """A score, then its interval in a box as wide in every cell: the scores of a column are aligned."""
        score, _, bounds = cell.partition(" [")
        return Markup('{} <span class="interval">{}</span>').format(score, f"[{bounds}" if bounds else "")

    environment.filters |= {"code": code, "interval": interval, "interval_columns": interval_columns}
    environment.filters["layout"] = layout
    environment.filters["drawing"] = Markup
    environment.tests["strong"] = lambda part: isinstance(part, Strong)
    # A number and its unit stay on one line.
    environment.filters["unbroken"] = lambda text: re.sub(
        r"(?<=\d) (?=(?:MB|MiB|ms|%)(?!\w)|\[\d)", "\N{NO-BREAK SPACE}", text
    )
    return environment


def to_html(report: Report) -> str:
    """One page without scripts that loads nothing from elsewhere; its JSON is inside."""
    text = json.dumps(to_json(report), ensure_ascii=False, separators=(",", ":"))
    data = base64.b64encode(text.encode("utf-8")).decode("ascii")
    return printable(_templates().get_template("page.html.j2").render(report=report, data=data))


def to_markdown(report: Report) -> str:
    """Tables and sentences; a figure is replaced by its description where its section has no table."""
    # Names of models, devices and recipes are in every text: all of it is escaped.
    line = tables.escape_line
    subtitle = f"{report.subtitle}. {report.created}." if report.created else report.subtitle
    out = [f"# {line(report.title)}", line(subtitle)]
    out += [f"**Warning:** {line(warning)}" for warning in report.warnings]
    out += [line("".join(sentence)) for sentence in report.recommendation]
    for section in report.sections:
        out += [f"## {line(section.title)}", line(section.lead)]
        for table in section.tables:
            caption = "" if table.caption == section.title else f"**{line(table.caption)}**"
            out += [caption, tables.to_markdown(table), line(table.note)]
        out.append("\n".join(f"* {line(note)}" for note in section.notes))
        if not section.tables:
            out += [f"*{line(figure.alt)}*" for figure in section.figures]
    return "\n\n".join(part for part in out if part) + "\n"


def to_text(report: Report, wide: bool = False) -> str:
    """The recommendation and main tables for a terminal, all of an evaluation; `wide`: all columns, no broken line."""
    width = None if wide else tables.terminal_width()
    out = [f"warning: {warning}" for warning in report.warnings] + [
        "".join(sentence) for sentence in report.recommendation
    ]
    out = [tables.filled(printable(text), width) for text in out]
    is_evaluation = isinstance(report.source, Evaluation)
    for section in report.sections:
        if section.id not in TERMINAL_SECTIONS and not is_evaluation:
            continue
        out += [tables.filled(printable(section.lead), width)] if is_evaluation and section.lead else []
        for table in section.tables:
            note = [tables.filled(printable(table.note), width, "  ")] if is_evaluation and table.note else []
            out.append("\n".join([tables.to_text(table, width), *note]))
        if is_evaluation and section.notes:
            notes = (tables.filled(printable(f"* {note}"), width, "  ") for note in section.notes)
            out.append("\n".join([section.title, *notes]))
    return "\n\n".join(out)


def to_json(report: Report) -> dict[str, Any]:
    """The tables as lists, and the results that they were made from; of an evaluation alone its document."""
    if isinstance(report.source, Evaluation):
        return report.source.as_json()

    def table(report_table: tables.Table) -> dict[str, Any]:
        columns = [{"title": column.title, "unit": column.unit} for column in report_table.columns]
        return {
            "caption": report_table.caption,
            "columns": columns,
            "rows": [list(row) for row in report_table.rows],
            "note": report_table.note,
        }

    def section(report_section: ReportSection) -> dict[str, Any]:
        fields = {"id": report_section.id, "title": report_section.title, "lead": report_section.lead}
        return {
            **fields,
            "tables": [table(part) for part in report_section.tables],
            "notes": list(report_section.notes),
        }

    return {
        "format": 1,
        "kind": "report",
        "title": report.title,
        "created": report.created,
        "warnings": list(report.warnings),
        "recommendation": ["".join(sentence) for sentence in report.recommendation],
        "missed": list(report.missed),
        "sections": [section(report_section) for report_section in report.sections],
        "results": (report.source or BenchFile()).model_dump(mode="json"),
    }


def check_output(target: Path, force: bool, *, of_runs: bool = True) -> None:
    """Refuse a file that could not be written, before any long work; `of_runs`: the report is of measured runs."""
    suffixes = [*SUFFIXES, *([ROWS_SUFFIX] if of_runs else [])]
    if target.suffix not in suffixes:
        raise InputError(f"{target}: written as {', '.join(suffixes)}; choose one of these suffixes")
    refuse_existing(target, force)


def write_report(report: Report, target: Path, force: bool = False) -> Path:
    """Write the report in the form that the suffix of `target` names; returns `target`."""
    runs = report.source if isinstance(report.source, BenchFile) else BenchFile()
    check_output(target, force, of_runs=bool(runs.runs))
    if target.suffix == ROWS_SUFFIX:
        write_text(target, to_csv(runs))
    elif target.suffix == ".json":
        write_json(target, to_json(report))
    else:
        write_text(target, to_html(report) if target.suffix == ".html" else to_markdown(report))
    return target
