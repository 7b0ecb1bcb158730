"""`msdc search`."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import click


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("queries", nargs=-1, required=True, metavar="QUERY...")
@click.option("--model", "-m", default="msdc-mini", show_default=True, help="A shipped name, a folder, or a bundle.")
@click.option("--runtime", type=click.Choice(["executorch", "onnx"]), help="Runtime of a bundle.")
@click.option("--top", "-k", type=click.IntRange(1, 1000), default=5, show_default=True, help="Entries shown.")
@click.option(
    "--index", type=click.Path(file_okay=False, path_type=Path), help="Folder of the index [the user's cache]."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    file: Path, queries: tuple[str, ...], model: str, runtime: str | None, top: int, index: Path | None, as_json: bool
) -> None:
    """Find the lines of FILE that mean what QUERY says, in any of the model's languages.

    msdc search notes.txt "wo habe ich das Auto geparkt?"
    """
    from msdc.encoders.open import open_model
    from msdc.search import read_lines, search

    lines = read_lines(file)  # before the model is loaded: a wrong file is said at once
    opened, answers = search(file, queries, open_model(model, runtime), top, index, lines)
    if as_json:
        head = {"file": str(file), "lines": len(opened.texts), "encoded": opened.encoded, "open_s": opened.open_s}
        click.echo(json.dumps({**head, "queries": [dataclasses.asdict(a) for a in answers]}, ensure_ascii=False))
        return
    made = f"{opened.encoded} of them encoded now" if opened.encoded else "all from disk"
    click.echo(f"{len(opened.texts)} lines, {made}, in {opened.open_s:.2f} s: {opened.folder}", err=True)
    for answer in answers:
        click.echo(f"\n{answer.query}")
        for hit in answer.hits:
            click.echo(f"  {hit.cosine:6.3f}  {hit.line:>6}  {hit.text}")
        click.echo(f"  {answer.encode_ms:.1f} ms for the query's vector, {answer.search_ms:.1f} ms to search", err=True)
