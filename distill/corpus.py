"""`msdc corpus`: what training would read from files: format, language, rows, skipped rows, examples."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click

from msdc.commands import quiet_option
from msdc.distill.catalog import load_recipe
from msdc.distill.data.corpora import TextSource, open_corpora
from msdc.distill.data.exclusion import read_exclusion
from msdc.distill.recipe import KINDS, Corpus, parse
from msdc.errors import InputError, printable

SHOWN = 70  # characters of an example


@dataclass
class Reading:
    """The rows of one part of a corpus; `error` states why it cannot be read.

    `dropped` has for each reason `why`, the number of `rows`, and the `line` of the first (None if unknown).
    """

    name: str
    form: str = ""
    language: str = ""
    rows: int = 0
    all_rows: bool = True
    dropped: list[dict[str, Any]] = field(default_factory=list)
    examples: list[list[str]] = field(default_factory=list)
    error: str = ""


def _read_source(source: TextSource, examples: int, most: int | None) -> Reading:
    """Read a source as training does, up to `most` rows."""
    found = Reading(source.name, source.form, source.language)
    with closing(source.read()) as rows:
        try:
            for found.rows, row in enumerate(rows, start=1):
                if len(found.examples) < examples:
                    found.examples.append([text for text in (row.source, row.target, *row.negatives) if text])
                if found.rows == most:
                    found.all_rows = False
                    break
        except InputError as error:
            found.error = str(error)
    found.dropped = source.dropped()
    return found


def _to_text(one: Reading) -> str:
    if one.error and not one.rows:
        lines = [f"{one.name}: {one.error.removeprefix(f'{one.name}: ')}"]
    else:
        more = "" if one.all_rows else " (more were not read)"
        lines = [f"{one.name}: {one.form}; language {one.language}; {one.rows:,} rows{more}"]
    for drop in one.dropped:
        place = "" if drop["line"] is None else f", the first at line {drop['line']}"
        lines.append(f"  dropped {drop['rows']:,}: {drop['why']}{place}")
    for texts in one.examples:
        lines.append("  " + "  |  ".join(t if len(t) <= SHOWN else f"{t[: SHOWN - 1]}…" for t in texts))
    if one.error and one.rows:
        lines.append(f"  stops: {one.error}")
    return printable("\n".join(lines))


def describe_corpus(
    file: str, settings: Mapping[str, Any], *, rows: int | None = None, examples: int = 3, data: Path | None = None
) -> list[Reading]:
    """What training would read from a file, a folder, or the corpora of a recipe (.yaml), with `examples` of rows.

    `settings` are the keys of a corpus, for a file that is no recipe; `rows` is the most to read of each part (None:
    all); `data` replaces `{data}` in a recipe.
    """
    if Path(file).suffix in (".yaml", ".yml"):
        recipe = load_recipe(file, data=data)
        corpora, exclusion = list(dict.fromkeys(recipe.all_corpora)), read_exclusion(recipe.exclude)
    else:
        corpora, exclusion = [parse(Corpus, {"path": file, **settings}, file)], None
    found: list[Reading] = []
    for corpus in corpora:
        try:
            found += [_read_source(source, examples, rows) for source in open_corpora([corpus], exclusion)]
        except InputError as error:
            found.append(Reading(corpus.origin, error=str(error)))
    return found


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--source", default="en", show_default=True, help="Language of the source side.")
@click.option("--languages", default="", help="Target languages, e.g. de,es (default: all that are found).")
@click.option("--kind", type=click.Choice(KINDS), default="auto", show_default=True, help="Content of the files.")
@click.option("--columns", default="", help="Columns of a table: names, or numbers from 1, e.g. 2,4.")
@click.option("--rows", type=click.IntRange(min=1), help="Read at most this many rows of each file.")
@click.option("--examples", type=click.IntRange(min=0), default=3, show_default=True, help="Rows to show.")
@click.option("--data", type=click.Path(path_type=Path), envvar="MSDC_DATA",
              help="Folder that replaces {data} in a recipe [env MSDC_DATA].")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
@quiet_option
def command(
    context: click.Context,
    files: tuple[str, ...],
    source: str,
    languages: str,
    kind: str,
    columns: str,
    rows: int | None,
    examples: int,
    data: Path | None,
    as_json: bool,
) -> None:
    """Show what training would read from FILE...: files, folders, or the corpora of a recipe (FILE.yaml).

    For each part: format, language, rows, skipped rows with the reason, and examples. Exit code 2 if a part cannot be
    read. The options are the keys of a corpus in a recipe.
    """
    given = [cell.strip() for cell in columns.split(",") if cell.strip()]
    numbers = [int(cell) for cell in given if cell.isdigit()]
    settings = {
        "source": source,
        "languages": tuple(code.strip() for code in languages.split(",") if code.strip()),
        "kind": kind,
        "columns": tuple(numbers) if len(numbers) == len(given) else tuple(given),
    }
    readings = [
        one for file in files for one in describe_corpus(file, settings, rows=rows, examples=examples, data=data)
    ]
    shown = json.dumps([asdict(one) for one in readings], ensure_ascii=False)
    click.echo(shown if as_json else "\n".join(map(_to_text, readings)))
    if any(one.error for one in readings):
        context.exit(InputError.exit_code)
