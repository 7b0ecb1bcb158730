"""`msdc search`: find the lines of a text file, or the cells of a table's column, by meaning."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from msdc.cli import runtime_names
from msdc.commands.options import encode_options, quiet_option, require_utf8
from msdc.commands.search_index import Found, Index, distinct_lines
from msdc.errors import InputError
from msdc.progress import say

if TYPE_CHECKING:
    from msdc.encoders.encoder import SentenceEncoder


def search(
    file: Path,
    queries: Sequence[str],
    model: SentenceEncoder,
    top: int = 5,
    folder: Path | None = None,
    lines: dict[str, int] | None = None,
    query_model: SentenceEncoder | None = None,
    *,
    column: str | None = None,
    threshold: float | None = None,
) -> tuple[Index, list[Found]]:
    """Index `file`, or reuse the index on disk, and answer `queries`; arguments as of `Index` and `Index.search`.

    Raises:
        InputError: no text in `file`, or an empty query.
    """
    if any(not query.strip() for query in queries):
        raise InputError("a query is empty")
    index = Index(model, file, folder, lines, query_model, column)
    index.query_model.encode(["warm"])  # the first text through a model pays for its set-up
    return index, [index.search(query, top, threshold) for query in queries]


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("--model", "-m", default="msdc-mini", show_default=True, help="A shipped name, a folder, or a bundle.")
@click.option("--runtime", type=click.Choice(runtime_names()), help="Runtime of a bundle.")
@click.option("--top", "-k", type=click.IntRange(1, 1000), default=5, show_default=True, help="Entries shown.")
@click.option("--threshold", type=click.FloatRange(-1, 1), help="Show entries of at least this cosine.")
@click.option("--column", help="Column of a table (csv, tsv, jsonl, parquet): its name, or its number from 1.")
@click.option(
    "--index", type=click.Path(file_okay=False, path_type=Path), help="Folder of the index [the user's cache]."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--line-prompt-name", help="The same as --prompt-name, for the lines of FILE.")
@click.option("--line-prompt", help="The same as --prompt, for the lines of FILE.")
@encode_options
@quiet_option
def command(
    file: Path,
    queries: tuple[str, ...],
    model: str,
    runtime: str | None,
    top: int,
    threshold: float | None,
    column: str | None,
    index: Path | None,
    as_json: bool,
    line_prompt_name: str | None,
    line_prompt: str | None,
    prompt_name: str | None,
    prompt: str | None,
    truncate_dim: int | None,
) -> None:
    """Find the lines of FILE (plain or gzip, or a column of a table) whose meaning is closest to QUERY.

    The index is kept; when FILE has changed, its new lines are encoded.

    --prompt-name and --prompt apply to the queries; --line-prompt-name and --line-prompt to the lines.

    msdc search notes.txt "wo habe ich das Auto geparkt?"
    """
    require_utf8(queries, "QUERY")
    from msdc.encoders.defaults import configured
    from msdc.encoders.encoder import open_model

    lines = distinct_lines(file, column)  # before the model is loaded, so that a wrong file fails early
    loaded = open_model(model, runtime)
    asking = configured(loaded, prompt_name, prompt, truncate_dim)
    reading = configured(loaded, line_prompt_name, line_prompt, truncate_dim)
    opened, answers = search(file, queries, reading, top, index, lines, asking, column=column, threshold=threshold)
    if as_json:
        head = {"file": str(file), "lines": len(opened.texts), "encoded": opened.encoded, "unread": opened.unread,
                "open_s": opened.open_s}  # fmt: skip
        click.echo(json.dumps({**head, "queries": [dataclasses.asdict(a) for a in answers]}, ensure_ascii=False))
        return
    made = f"{opened.encoded} of them encoded now" if opened.encoded else "all from disk"
    made += f", {opened.unread} of unknown characters left out" if opened.unread else ""
    say(f"{len(opened.texts)} lines, {made}, in {opened.open_s:.2f} s: {opened.folder}")
    for answer in answers:
        click.echo(f"\n{answer.query}")
        if not answer.hits:
            click.echo("  (none)" if threshold is None else f"  (none of at least {threshold})")
        for hit in answer.hits:
            click.echo(f"  {hit.cosine:6.3f}  {hit.line:>6}  {hit.text}")
        say(f"  {answer.encode_ms:.1f} ms for the query's vector, {answer.search_ms:.1f} ms to search")
