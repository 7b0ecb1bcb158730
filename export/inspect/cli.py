"""`msdc inspect`: parses options and calls `inspect_path`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from msdc.commands import quiet_option


@click.command()
@click.argument("path", required=False, type=click.Path(path_type=Path))
@click.option("--tensors", type=click.IntRange(min=0), default=12, show_default=True, help="Largest tensors to list.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@quiet_option
def command(path: Path | None, tensors: int, as_json: bool) -> None:
    """Show the content of a .pte, an .onnx or a bundle folder without running it: methods, operators, delegates, bytes,
    hashes. Without PATH: the shipped msdc-mini, exported once into the user's cache."""
    from msdc.export.inspect.report import as_text, inspect_path
    from msdc.export.shipped import bundle_or_shipped

    report = inspect_path(bundle_or_shipped(path))
    click.echo(json.dumps(report, ensure_ascii=False, indent=2) if as_json else as_text(report, tensors))
