"""`msdc export`: parses options and calls `export_model`."""

from __future__ import annotations

from pathlib import Path

import click

from msdc.commands import quiet_option
from msdc.export.runtimes import runtime_choices
from msdc.export.targets import TARGETS, default_runtimes_help


@click.command()
@click.argument("model", default="msdc-mini")
@click.option("--target", type=click.Choice(TARGETS.names()), required=True, help="Platform the bundle is written for.")
@click.option(
    "--runtime",
    type=click.Choice(runtime_choices()),
    help=f"Default: {default_runtimes_help()}.",
)
@click.option(
    "--precision",
    help="fp32, int8, int8-embed4 (4-bit token table), int4-embed4 (for students trained for it), or a plan's .json. "
    "Default: the plan of a folder made by `compress quantize`, else int8.",
)
@click.option("-o", "--output", "out", type=click.Path(path_type=Path),
              help="Bundle folder. Default: MODEL-TARGET here.")  # fmt: skip
@click.option(
    "--style",
    type=click.Choice(["multi-method", "forward"]),
    default="multi-method",
    show_default=True,
    help="ExecuTorch: embed, unit and pool, or one forward method.",
)
@click.option("--max-length", type=click.IntRange(min=2), help="Longest input in tokens. Default: that of the model.")
@click.option(
    "--way",
    type=click.Choice(["canonical", "generic"]),
    help="canonical: the student's own programs; generic: torch.export of any architecture. Default: canonical for "
    "students and BERT, RoBERTa / XLM-R, DistilBERT and ALBERT, else generic.",
)
@click.option("--with-sample", is_flag=True, help="Write a sample app as well: search over a list of notes (android).")
@click.option("--with-runtime", is_flag=True, help="Copy onnxruntime-web into the bundle (web); npm fetches it.")
@click.option("--no-gates", is_flag=True, help="Write the bundle even if a gate fails; the manifest records it.")
@click.option(
    "--no-module", is_flag=True, help="Write no module for apps (android, ios, web), only the rest of the bundle."
)
@click.option("--force", is_flag=True, help="Replace an existing folder.")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as JSON.")
@quiet_option
def command(
    model: str,
    target: str,
    runtime: str | None,
    precision: str | None,
    out: Path | None,
    style: str,
    max_length: int | None,
    way: str | None,
    with_sample: bool,
    with_runtime: bool,
    no_gates: bool,
    no_module: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write the bundle of MODEL for a target: programs, tokenizer, golden vectors, manifest.

    MODEL is a shipped name, a folder, or a hub id: a student, or any encoder that sentence-transformers loads.
    """
    from msdc.export.export import ExportRequest, export_model

    request = ExportRequest(
        model=model,
        target=target,
        runtime=runtime,
        precision=precision,
        out=out,
        style=style,
        max_length=max_length,
        gates=not no_gates,
        sample=with_sample,
        with_runtime=with_runtime,
        module=not no_module,
        force=force,
        way=way,
    )
    folder, manifest = export_model(request)
    if as_json:
        click.echo(manifest.model_dump_json(indent=2))
        return
    for runtime_name, parity in manifest.parity.items():
        size = manifest.program_bytes(runtime_name)
        click.echo(
            f"{runtime_name:<10}  {size:>12,} bytes  mean cosine {parity.mean_cosine:.6f}  min {parity.min_cosine:.6f}"
        )
        if parity.outside:
            named = ", ".join(f"{operator} {count}" for operator, count in parity.outside.items())
            click.echo(
                f"{'':<10}  {100 * (parity.delegated_share or 0):.0f} % of operators delegated; outside: {named}"
            )
    click.echo(folder)
