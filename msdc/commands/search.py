"""`msdc search`: lines of a text file, cells of a table's column, notes of a folder, or documents of an index."""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from msdc.command_options import encode_options, json_option, quiet_option
from msdc.commands import program_options, require_utf8
from msdc.encoders.encoder import Precision, SentenceEncoder, configured
from msdc.encoders.folder import DEFAULT_MODEL
from msdc.errors import InputError, printable
from msdc.files import regular_size
from msdc.loading import open_model
from msdc.progress import say
from msdc.search.documents import Hit
from msdc.search.index import index_of
from msdc.tables import Field, draw, text_field, to_text

SHOWN = 160  # characters of a passage


def _conditions(words: Sequence[str]) -> dict[str, Any]:
    """`column=value`, `column=least..most`, `column=` (no value), and `!=` for none of these.

    Several of one column are alternatives.
    """
    conditions: dict[str, Any] = {}
    excluded: dict[str, list[Any]] = {}
    for word in require_utf8(words, "--where"):
        name, sign, value = word.partition("=")
        negated = name.endswith("!")
        name = name.removesuffix("!")
        least, dots, most = value.partition("..")
        if not sign or not name or value == "..":
            raise InputError(f"--where {word!r}: expected COLUMN=VALUE, COLUMN!=VALUE or COLUMN=LEAST..MOST")
        alternative = (least or None, most or None) if dots else value or None
        (excluded if negated else conditions).setdefault(name, []).append(alternative)
    for name, alternatives in excluded.items():
        if name in conditions:
            raise InputError(f"--where: {name} has values with = and with !=; choose one")
        conditions[name] = {"not": alternatives}
    return conditions


def _entry(hit: Hit) -> str:
    """The id of a hit, with the position of its passage unless that is the whole text."""
    position = "" if hit.passage == hit.text else f" [{hit.start}-{hit.end}]"
    equal = f" (+{hit.count - 1} equal)" if hit.count > 1 else ""
    return f"{hit.id}{position}{equal}"


def _passage(hit: Hit) -> str:
    passage = " ".join(hit.passage.split())
    title = f"{hit.title}: " if hit.title else ""
    return title + (passage if len(passage) <= SHOWN else f"{passage[: SHOWN - 1]}…")


def _nothing(least: float, calibrated: bool) -> str:
    note = "; --threshold -1 shows the nearest" if calibrated else ""
    return f"  (none with a cosine of at least {least:.3g}{note})"


def _score(score: float | None) -> str:
    return "" if score is None else f"{score:.3g}"


HIT_FIELDS: list[Field[Hit]] = [
    text_field("Entry", _entry),
    Field("Cosine", lambda hit: _score(hit.cosine)),
    Field("Words", lambda hit: _score(hit.words)),
    text_field("Text", _passage),
]


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("queries", nargs=-1, metavar="QUERY...")
@click.option("--model", "-m", default=DEFAULT_MODEL, show_default=True, help="A shipped name, a folder, or a bundle.")
@program_options
@click.option("--top", "-k", type=click.IntRange(1, 1000), default=5, show_default=True, help="Entries shown.")
@click.option("--mode", type=click.Choice(["words", "vectors", "both"]), default="both", show_default=True,
              help="Rank by words (BM25), by meaning, or by both.")  # fmt: skip
@click.option("--offset", type=click.IntRange(min=0), default=0, show_default=True, help="Entries to skip, for pages.")
@click.option("--threshold", type=click.FloatRange(-1, 1),
              help="Show entries of this cosine (default: the model's own), or with every word of QUERY.")  # fmt: skip
@click.option("--where", multiple=True, metavar="COLUMN=VALUE",
              help="Only entries with this value, in the range LEAST..MOST, or (!=) without it.")  # fmt: skip
@click.option("--order", multiple=True, metavar="COLUMN",
              help="Sort what matches by this column, -COLUMN: greatest first; up to three.")  # fmt: skip
@click.option("--group", metavar="COLUMN", help="Show one entry of each value of this column.")
@click.option("--duplicates", is_flag=True, help="List entries with the same words one by one.")
@click.option("--syntax", type=click.Choice(["operators", "plain"]), default="operators", show_default=True,
              help='With operators, "quotes" and -word have a meaning.')  # fmt: skip
@click.option("--column", help="Column of a table (csv, tsv, jsonl, parquet): its name, or its number from 1.")
@click.option("--id", "id_column", metavar="COLUMN", help="Column with the ids.  [default: the number of the row]")
@click.option("--title", "title_column", metavar="COLUMN", help="Column with the titles.")
@click.option("--missing", type=click.Choice(["refuse", "null"]), default="refuse", show_default=True,
              help="A missing number (NaN) in a table: an error, or no value.")  # fmt: skip
@click.option("--index", type=click.Path(dir_okay=False, path_type=Path),
              help="Also write the entries to this file, a new index.")  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an index at --index.")
@click.option(
    "--check/--no-check", default=None, help="Compare all of an index with its checksums.  [default: if it has changed]"
)
@click.option("--line-prompt-name", help="The same as --prompt-name, for the lines of FILE.")
@click.option("--line-prompt", help="The same as --prompt, for the lines of FILE.")
@encode_options
@json_option
@quiet_option
def command(
    file: Path,
    queries: tuple[str, ...],
    model: str,
    runtime: str | None,
    precision: Precision | None,
    top: int,
    mode: Any,
    offset: int,
    threshold: float | None,
    where: tuple[str, ...],
    order: tuple[str, ...],
    group: str | None,
    duplicates: bool,
    syntax: Any,
    column: str | None,
    id_column: str | None,
    title_column: str | None,
    missing: Any,
    index: Path | None,
    force: bool,
    check: bool | None,
    line_prompt_name: str | None,
    line_prompt: str | None,
    as_json: bool,
    **encoding: Any,
) -> None:
    """Find the entries closest to QUERY, by its words and by its meaning in any language.

    FILE is text with one entry per line (plain or gzip), a table with --column, a folder of notes (Markdown, HTML, Org,
    plain text), or an index (.sqlite), which is only read. The vectors of texts, tables and notes are kept in the
    user's cache, so that only new entries are encoded; --index writes an index, which opens faster.

    In QUERY, entries with "words in quotes" come first, and entries with -excluded words are left out. The last word
    may be the beginning of one.

    --prompt-name and --prompt apply to the queries; --line-prompt-name and --line-prompt to the entries.

    msdc search notes.txt "wo habe ich das Auto geparkt?"
    """
    if not queries and index is None:
        raise InputError("name a QUERY, or --index FILE to write an index alone")
    if any(not query.strip() for query in require_utf8(queries, "QUERY")):
        raise InputError("a query is empty")
    if not file.is_dir():
        regular_size(file)  # before the model is loaded, so that a wrong file fails early
    conditions = _conditions(where)

    load_s = [0.0]

    @functools.cache
    def loaded() -> SentenceEncoder:
        began = time.perf_counter()
        opened_model = open_model(model, runtime, precision=precision)
        opened_model.encode(["warm"])  # the first text of a model includes its set-up
        load_s[0] = time.perf_counter() - began
        say(f"{opened_model.name} loaded in {load_s[0]:.2f} s")
        return opened_model

    def reading() -> SentenceEncoder:
        return configured(loaded(), line_prompt_name, line_prompt, encoding["truncate_dim"])

    opened = index_of(
        file, None if mode == "words" and index is None else reading, column=column, id_column=id_column,
        title_column=title_column, missing=missing, index=index, force=force,
        query_model=lambda: configured(loaded(), **encoding), check=check is not False,
    )  # fmt: skip
    with opened:
        if check:
            opened.check()
        least = opened.relevant_cosine if threshold is None else threshold
        results = [
            opened.search(
                query,
                top,
                least,
                mode=mode,
                where=conditions,
                offset=offset,
                distinct=not duplicates,
                syntax=syntax,
                order=order,
                group=group,
            )
            for query in queries
        ]
        unread, entries = opened.unread if mode != "words" else 0, len(opened)
    if as_json:
        head = {"file": str(file), "lines": entries, "encoded": opened.encoded, "unread": unread,
                "load_s": load_s[0], "open_s": opened.open_s}  # fmt: skip
        records = [dataclasses.asdict(record) for record in results]
        for result, record in zip(results, records, strict=True):
            for hit, fields in zip(result.hits, record["hits"], strict=True):
                fields |= {"line": int(hit.id) if hit.id.isdecimal() else None, "passage": hit.passage}
        click.echo(json.dumps({**head, "queries": records}, ensure_ascii=False))
        return
    state = f"{opened.encoded} encoded now" if opened.encoded else "none to encode"
    state += f", {unread} that {model} cannot read (found by their words)" if unread else ""
    say(f"{entries} entries, {state}, in {opened.open_s:.2f} s: {opened.path or file}")
    for result in results:
        click.echo(f"\n{printable(result.query)}")
        if result.hits:
            click.echo(to_text(draw("", HIT_FIELDS, result.hits)))
        else:
            click.echo("  (none)" if least is None or mode == "words" else _nothing(least, threshold is None))
        say(f"  {result.encode_ms:.1f} ms to encode, {result.search_ms:.1f} ms to search")
