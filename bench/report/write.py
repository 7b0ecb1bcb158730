"""A report as a file: one self-contained HTML page, Markdown, JSON or plain text."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msdc import tables
from msdc.bench.report.drawing import marker
from msdc.bench.report.model import Report, Section
from msdc.bench.result import BenchFile
from msdc.errors import InputError, printable
from msdc.files import refuse_existing, write_json, write_text

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).resolve().parent
SUFFIXES = (".html", ".md", ".json")
# A longer title is cut at its colon in the navigation.
NAVIGATION_LETTERS = 32
TERMINAL_SECTIONS = ("targets", "artifacts", "accuracy", "comparison", "latency", "instructions")


@cache
def _templates() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

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

    environment.globals["swatch"] = swatch
    environment.globals["short_title"] = lambda title: (
        title if len(title) <= NAVIGATION_LETTERS else title.split(":")[0]
    )
    environment.filters["drawing"] = Markup
    return environment


def to_html(report: Report) -> str:
    """One page without scripts that loads nothing from elsewhere."""
    return _templates().get_template("page.html.j2").render(report=report)


def section_to_html(section: Section, css_class: str) -> str:
    """A `<section>` to put into another page; it brings its own style, restricted to `css_class`."""
    return _templates().get_template("embedded.html.j2").render(section=section, css_class=css_class)


def to_markdown(report: Report) -> str:
    """Tables and sentences; a figure is replaced by its description where its section has no table."""
    # Names of models, devices and recipes are in every text: all of it is escaped.
    line = tables.escape_line
    out = [
        f"# {line(report.title)}",
        line(f"{report.subtitle}. {report.created}." if report.created else report.subtitle),
    ]
    tiles = [
        (line(tile.label), line(tile.value), f" ({line(tile.detail)})" if tile.detail else "") for tile in report.tiles
    ]
    out += [f"**Warning:** {line(warning)}" for warning in report.warnings]
    out.append("\n".join(f"* {label}: **{value}**{detail}" for label, value, detail in tiles))
    for section in report.sections:
        out += [f"## {line(section.title)}", line(section.lead)]
        for table in section.tables:
            caption = "" if table.caption == section.title else f"**{line(table.caption)}**"
            out += [caption, tables.to_markdown(table), line(table.note)]
        out.append("\n".join(f"* {line(note)}" for note in section.notes))
        if not section.tables:
            out += [f"*{line(figure.alt)}*" for figure in section.figures]
    return "\n\n".join(part for part in out if part) + "\n"


def to_text(report: Report) -> str:
    """The main tables with aligned columns, for a terminal."""
    shown = (section for section in report.sections if section.id in TERMINAL_SECTIONS)
    parts = [tables.to_text(table) for section in shown for table in section.tables]
    return printable("\n\n".join([*parts, *(f"warning: {warning}" for warning in report.warnings)]))


def to_json(report: Report, results: BenchFile) -> dict[str, Any]:
    """The tables as lists, and the results that they were made from."""
    sections = [
        {
            "id": section.id,
            "title": section.title,
            "lead": section.lead,
            "tables": [
                {
                    "caption": table.caption,
                    "columns": [{"title": column.title, "unit": column.unit} for column in table.columns],
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
        "warnings": list(report.warnings),
        "missed": list(report.missed),
        "sections": sections,
        "results": results.model_dump(mode="json"),
    }


def check_output(target: Path, force: bool) -> None:
    """Refuse a file that could not be written, before any long work.

    Raises:
        InputError: an unknown suffix, or the file exists and `force` is false.
    """
    if target.suffix not in SUFFIXES:
        raise InputError(f"{target}: written as {', '.join(SUFFIXES)}; choose one of these suffixes")
    refuse_existing(target, force)


def write_report(report: Report, results: BenchFile, target: Path, force: bool = False) -> Path:
    """Write the report in the form that the suffix of `target` names; returns `target`.

    Raises:
        InputError: see `check_output`.
    """
    check_output(target, force)
    if target.suffix == ".json":
        write_json(target, to_json(report, results))
    else:
        write_text(target, to_html(report) if target.suffix == ".html" else to_markdown(report))
    return target
