"""From result files to a report, and a report to a file: one HTML page, Markdown, or JSON."""

from __future__ import annotations

import datetime
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msdc.bench.compare import Comparison, compare
from msdc.bench.report.blocks import Report, joined
from msdc.bench.report.data import ReportData
from msdc.bench.report.parts import accuracy, comparison, evaluation, memory, method, overview, peers, speed, teaching
from msdc.bench.report.training import read_training
from msdc.bench.result import BenchFile
from msdc.errors import InputError
from msdc.files import refuse_existing, write_json, write_text

TEMPLATES = Path(__file__).resolve().parent
KINDS = (".html", ".md", ".json")


def build_report(
    results: BenchFile,
    *,
    created: str | None = None,
    title: str | None = None,
    run_folder: Path | None = None,
    before: BenchFile | None = None,
    with_peers: bool = False,
    evaluations: Sequence[dict[str, Any]] = (),
) -> Report:
    """A report of `results`; with the training of `run_folder`, a comparison with `before`, and documents of `msdc
    evaluate` when given.

    Raises:
        InputError: nothing to report, a bad run folder, or nothing in common with `before`.
    """
    if not results.runs and not results.models and not evaluations:
        raise InputError("the result files hold no run and no model: nothing to report")
    comparisons: tuple[Comparison, ...] = tuple(compare(before, results)) if before is not None else ()
    bundles = list(dict.fromkeys(run.artifact.bundle for run in results.runs))
    data = ReportData(
        results=results,
        title=title or joined(bundles or [model.name for model in results.models]) or "Evaluation",
        training=read_training(run_folder) if run_folder is not None else None,
        comparisons=comparisons,
        peers=with_peers,
    )
    found = (
        overview.artifacts(data),
        accuracy.section(data),
        accuracy.trade(data),
        *evaluation.sections(evaluations),
        comparison.section(data),
        speed.latency(data),
        speed.samples(data),
        speed.counted(data),
        memory.section(data),
        overview.parameters(data),
        teaching.section(data),
        peers.section(with_peers),
        method.section(data),
    )
    devices = list(dict.fromkeys(f"{run.device.name}" for run in results.runs))
    return Report(
        title=data.title,
        subtitle=f"Size, accuracy and latency on {joined(devices)}" if devices else "Size and accuracy",
        created=created or datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        tiles=overview.tiles(data),
        sections=tuple(section for section in found if section is not None),
    )


def to_html(report: Report) -> str:
    """The page: one file, no outside link, no script."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    from msdc.bench.report.svg import marker

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def swatch(color: str, shape: str) -> Markup:
        # Our own drawing code, no text of a stranger in it.
        drawn = marker(shape, 8, 8, color, size=5)
        return Markup(f'<svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">{drawn}</svg>')

    environment.globals["swatch"] = swatch
    environment.filters["drawing"] = Markup
    return environment.get_template("page.html.j2").render(report=report)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def to_markdown(report: Report) -> str:
    """Tables and sentences; a figure becomes its description."""
    out = [f"# {report.title}", "", f"{report.subtitle}. {report.created}.", ""]
    out += [f"* {tile.label}: **{tile.value}**{f' ({tile.detail})' if tile.detail else ''}" for tile in report.tiles]
    for section in report.sections:
        out += ["", f"## {section.title}", ""]
        if section.lead:
            out += [section.lead, ""]
        for table in section.tables:
            heads = [c.title + (f" ({c.unit})" if c.unit else "") for c in table.columns]
            out += [f"**{table.caption}**", "", "| " + " | ".join(map(_cell, heads)) + " |"]
            out.append("|" + "|".join(":---" if c.align == "left" else "---:" for c in table.columns) + "|")
            out += ["| " + " | ".join(map(_cell, row)) + " |" for row in table.rows]
            out += ["", *([table.note, ""] if table.note else [])]
        out += [line for note in section.notes for line in (note, "")]
        if not section.tables:
            out += [line for figure in section.figures for line in (f"*{figure.alt}*", "")]
    return "\n".join(out).rstrip() + "\n"


TERMINAL_SECTIONS = ("artifacts", "accuracy", "comparison", "latency", "instructions")


def to_text(report: Report) -> str:
    """The tables a terminal wants, columns aligned."""
    out: list[str] = []
    for section in report.sections:
        if section.id not in TERMINAL_SECTIONS:
            continue
        for table in section.tables:
            heads = tuple(c.title + (f" [{c.unit}]" if c.unit else "") for c in table.columns)
            rows = [heads, *table.rows]
            widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
            out += ["", table.caption]
            for row in rows:
                cells = [
                    cell.ljust(width) if column.align == "left" else cell.rjust(width)
                    for cell, width, column in zip(row, widths, table.columns, strict=True)
                ]
                out.append("  " + "  ".join(cells).rstrip())
    return "\n".join(out).lstrip("\n")


def to_json(report: Report, results: BenchFile) -> dict[str, Any]:
    """Tables as lists, and the results they were made from."""
    sections = [
        {
            "id": section.id,
            "title": section.title,
            "lead": section.lead,
            "tables": [
                {
                    "caption": table.caption,
                    "columns": [{"title": c.title, "unit": c.unit} for c in table.columns],
                    "rows": [list(row) for row in table.rows],
                    "note": table.note,
                }
                for table in section.tables
            ],
            "notes": list(section.notes),
        }
        for section in report.sections
    ]
    return {
        "format": 1,
        "kind": "report",
        "title": report.title,
        "created": report.created,
        "sections": sections,
        "results": results.model_dump(mode="json"),
    }


def check_output(target: Path, force: bool) -> None:
    """Refuse a bad place before any long work.

    Raises:
        InputError: an unknown ending, or the file exists and `force` is false.
    """
    if target.suffix not in KINDS:
        raise InputError(f"{target}: a report ends in {', '.join(KINDS)}")
    refuse_existing(target, force)


def write_report(report: Report, results: BenchFile, target: Path, force: bool = False) -> Path:
    """Write the report in the form that the file's ending names.

    Raises:
        InputError: see `check_output`.
    """
    check_output(target, force)
    if target.suffix == ".json":
        write_json(target, json.loads(json.dumps(to_json(report, results))))
    else:
        write_text(target, to_html(report) if target.suffix == ".html" else to_markdown(report))
    return target
