"""`msdc export` and `msdc inspect`: they parse options and call `export` and `inspect_path`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from msdc.command_options import VerbCommand, options_of, quiet_option
from msdc.errors import InputError
from msdc.export import export
from msdc.export.options import ExportOptions
from msdc.export.runtimes import runtime_choices
from msdc.export.schema import TARGETS

GROUPS = {"Common options": "target model_folder runtime precision output max_length force as_json"}


@click.command(cls=VerbCommand, verb="msdc.export.exporters:export", groups=GROUPS)
@click.argument("model", default="msdc-mini")
@options_of(
    ExportOptions,
    (),
    target={"type": click.Choice(TARGETS.names()), "help": "Platform the bundle is written for."},
    runtime={"type": click.Choice(runtime_choices())},
    output={"names": ("-o", "--output")},
    gates={
        "names": ("--no-gates",),
        "flag_value": False,
        "help": "Write the bundle even if a gate fails; the manifest records it.",
    },
    module={
        "names": ("--no-module",),
        "flag_value": False,
        "help": "Write no module for apps (android, ios, web), only the rest of the bundle.",
    },
)
@click.option("--sentence-transformers", "model_folder", is_flag=True,
              help="Write no bundle but a model folder of sentence-transformers' own classes.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@quiet_option
@click.pass_context
def command(
    context: click.Context, model: str, as_json: bool, model_folder: bool, target: str | None, **options: Any
) -> None:
    """Write the bundle of MODEL for a target: programs, tokenizer, golden vectors, manifest.

    MODEL is a shipped name, a folder, or a hub id: a student, or any encoder that sentence-transformers loads.
    """
    if model_folder:
        of_bundles = [
            option.opts[-1] for option in context.command.params
            if option.name not in ("model", "model_folder", "output", "force", "as_json")
            and context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        ]  # fmt: skip
        if of_bundles:
            raise InputError(f"--sentence-transformers writes no bundle: omit {', '.join(of_bundles)}")
        _write_model_folder(model, options["output"], options["force"], as_json)
        return
    if target is None:
        raise click.MissingParameter(ctx=context, param=next(p for p in context.command.params if p.name == "target"))
    folder, manifest = export(model, target=target, **options)
    if as_json:
        click.echo(manifest.model_dump_json(indent=2))
        return
    for runtime, parity in manifest.parity.items():
        size = manifest.program_bytes(runtime)
        cosines = f"mean cosine {parity.mean_cosine:.6f}  min {parity.min_cosine:.6f}"
        click.echo(f"{runtime:<10}  {size:>12,} bytes  {cosines}")
        if parity.outside:
            named = ", ".join(f"{operator} {count}" for operator, count in parity.outside.items())
            share = 100 * (parity.delegated_share or 0)
            click.echo(f"{'':<10}  {share:.0f} % of operators delegated; outside: {named}")
    click.echo(folder)


def _write_model_folder(model: str, out: Path | None, force: bool, as_json: bool) -> None:
    from msdc.export.exporters import export_sentence_transformers

    folder = export_sentence_transformers(model, out, force=force)
    files = {str(file.relative_to(folder)): file.stat().st_size for file in folder.rglob("*") if file.is_file()}
    if as_json:
        click.echo(json.dumps({"folder": str(folder), "bytes": sum(files.values()), "files": files}, indent=2))
        return
    click.echo(f"{sum(files.values()):,} bytes, of which weights {files['model.safetensors']:,}\n{folder}")


@click.command()
@click.argument("path", required=False, type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@quiet_option
def inspect(path: str | None, as_json: bool) -> None:
    """Show the content of a .pte, an .onnx or a bundle folder without running it: methods, operators, delegates, bytes,
    hashes. Without PATH: the shipped msdc-mini, exported once into the user's cache."""
    from msdc.export.exporters import bundle_or_shipped
    from msdc.export.inspect import as_text, inspect_path

    report = inspect_path(bundle_or_shipped(path))
    click.echo(json.dumps(report, ensure_ascii=False, indent=2) if as_json else as_text(report))
