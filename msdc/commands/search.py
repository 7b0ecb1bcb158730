"""`msdc search`: the lines of a text file, the cells of a table's column, or the documents of an index."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from msdc.commands import encode_options, json_option, quiet_option, require_utf8, runtime_option
from msdc.encoders.encoder import configured, open_model
from msdc.encoders.folder import DEFAULT_MODEL
from msdc.errors import InputError, printable
from msdc.files import regular_size
from msdc.progress import say
from msdc.search.index import Hit, Index, cached, is_index
from msdc.tables import Table, heads, to_text

SHOWN = 160  # characters of a passage


def _conditions(words: Sequence[str]) -> dict[str, Any]:
    """`column=value,value` and `column=least..most`."""
    found: dict[str, Any] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise InputError(f"--where {word!r}: expected COLUMN=VALUE, COLUMN=ONE,OTHER or COLUMN=LEAST..MOST")
        least, dots, most = value.partition("..")
        try:
            found[name] = (float(least) if least else None, float(most) if most else None) if dots else value.split(",")
        except ValueError as error:
            raise InputError(f"--where {word!r}: LEAST and MOST must be numbers") from error
    return found


def _row(hit: Hit) -> tuple[str, ...]:
    """One hit: its id, scores and passage, with the passage's position unless it is the whole text."""
    passage = " ".join(hit.passage.split())
    place = "" if hit.passage == hit.text else f" [{hit.start}-{hit.end}]"
    title = f"{hit.title}: " if hit.title else ""
    shown = passage if len(passage) <= SHOWN else f"{passage[: SHOWN - 1]}…"
    return f"{hit.id}{place}", f"{hit.cosine:.3f}", f"{hit.words:.1f}", title + shown


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("--model", "-m", default=DEFAULT_MODEL, show_default=True, help="A shipped name, a folder, or a bundle.")
@runtime_option
@click.option("--top", "-k", type=click.IntRange(1, 1000), default=5, show_default=True, help="Entries shown.")
@click.option("--mode", type=click.Choice(["words", "vectors", "both"]), default="both", show_default=True,
              help="Rank by words (BM25), by meaning, or by both.")  # fmt: skip
@click.option("--threshold", type=click.FloatRange(-1, 1), help="Show entries of at least this cosine.")
@click.option("--where", multiple=True, metavar="COLUMN=VALUE",
              help="Only entries with this value; ONE,OTHER: any of them; LEAST..MOST: a range.")  # fmt: skip
@click.option("--column", help="Column of a table (csv, tsv, jsonl, parquet): its name, or its number from 1.")
@click.option("--index", type=click.Path(dir_okay=False, path_type=Path),
              help="File of the index.  [default: in the user's cache]")  # fmt: skip
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
    top: int,
    mode: Any,
    threshold: float | None,
    where: tuple[str, ...],
    column: str | None,
    index: Path | None,
    line_prompt_name: str | None,
    line_prompt: str | None,
    as_json: bool,
    **encoding: Any,
) -> None:
    """Find the entries closest to QUERY, by its words and by its meaning in any language.

    FILE is text with one entry per line (plain or gzip), a table with --column, or an index (.sqlite) written by
    msdc.open_index. The index of a text or table is stored; if FILE has changed, only new entries are encoded.

    --prompt-name and --prompt apply to the queries; --line-prompt-name and --line-prompt to the entries.

    msdc search notes.txt "wo habe ich das Auto geparkt?"
    """
    if any(not query.strip() for query in require_utf8(queries, "QUERY")):
        raise InputError("a query is empty")
    regular_size(file)  # before the model is loaded, so that a wrong file fails early
    conditions = _conditions(where)
    began = time.perf_counter()
    loaded = open_model(model, runtime)
    asking = configured(loaded, **encoding)
    reading = configured(loaded, line_prompt_name, line_prompt, encoding["truncate_dim"])
    asking.encode(["warm"])  # the first text of a model includes its set-up
    load_s = time.perf_counter() - began
    if is_index(file):
        opened = Index(reading, file, query_model=asking)
    else:
        place = index or cached(file, column, reading)
        opened = Index(reading, place, file=file, column=column, query_model=asking)
    with opened:
        results = [opened.search(query, top, threshold, mode=mode, where=conditions) for query in queries]
        unread, entries = opened.unread, len(opened)
    if as_json:
        head = {"file": str(file), "lines": entries, "encoded": opened.encoded, "unread": unread,
                "load_s": load_s, "open_s": opened.open_s}  # fmt: skip
        found = [dataclasses.asdict(one) for one in results]
        for result, one in zip(results, found, strict=True):
            for hit, fields in zip(result.hits, one["hits"], strict=True):
                fields |= {"line": int(hit.id) if hit.id.isdecimal() else None, "passage": hit.passage}
        click.echo(json.dumps({**head, "queries": found}, ensure_ascii=False))
        return
    state = f"{opened.encoded} encoded now" if opened.encoded else "all from disk"
    state += f", {unread} of characters that {reading.name} does not know (found by their words)" if unread else ""
    say(f"{loaded.name} loaded in {load_s:.2f} s; {entries} entries, {state}, in {opened.open_s:.2f} s: {opened.path}")
    for result in results:
        click.echo(f"\n{printable(result.query)}")
        if result.hits:
            rows = [_row(hit) for hit in result.hits]
            click.echo(to_text(Table("", heads("Entry | Cosine | Words | Text <"), rows)))
        else:
            click.echo("  (none)" if threshold is None else f"  (none with a cosine of at least {threshold})")
        say(f"  {result.encode_ms:.1f} ms to encode, {result.search_ms:.1f} ms to search")
