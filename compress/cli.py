"""`msdc compress`: plan sizes; make, code, trim or quantize a student. Only parsing and printing, no work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

import msdc
from msdc.commands import quiet_option

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
FORCE = click.option("--force", is_flag=True, help="Replace the folder if it exists.")
OUT = click.option(
    "-o", "--output", "out", type=click.Path(path_type=Path), required=True,
    help="Folder to write.",
)  # fmt: skip
PLACE = click.option("--place", type=click.Choice(["word", "embedding"]), default="word", show_default=True,
                     help="word: the paper's bottleneck; embedding: a stock AlbertModel.")  # fmt: skip


@click.group()
def command() -> None:
    """Plan sizes; make, code, trim or quantize a student."""


def _mb(size: int) -> str:
    return f"{size / 1e6:,.2f} MB"


def _print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*row)
    # A pipe has no width of its own; cut columns would be useless there.
    console = Console()
    Console(width=None if console.is_terminal else 160).print(table)


@command.command()
@click.argument("model", required=False)
@click.option("--shape", help="A published shape by name, in place of MODEL (see --list).")
@click.option("--list", "list_shapes", is_flag=True, help="List the shapes known by name.")
@click.option("--bottleneck", type=int, help="Width of the token table's rows.")
@click.option("--unit", type=int, help="Stored layers of the recurring unit.")
@click.option("--repeats", type=int, help="How often the unit is applied; default: layers / unit.")
@click.option("--vocabulary", type=int, help="Rows of the token table.")
@click.option("--max-length", type=int, help="Longest input in tokens.")
@click.option("--base-rows", type=int, help="Rows of a coded table's base.")
@click.option("--links", type=int, help="Code the table: each row is a sum of this many base rows, 2 to 5.")
@PLACE
@click.option("--budget", help="List every student that fits, e.g. 10MB, and mark the Pareto set.")
@click.option("--runtime", type=click.Choice(msdc.RUNTIMES.names()), default="executorch", show_default=True,
              help="Runtime whose file the budget is for.")  # fmt: skip
@click.option("--all", "show_all", is_flag=True, help="With --budget: also candidates outside the Pareto set.")
@click.option("--top", type=int, default=25, show_default=True, help="With --budget: rows to print; --json prints all.")
@JSON
def plan(model: str | None, shape: str | None, list_shapes: bool, as_json: bool, **options: Any) -> None:
    """Parameters, bytes and operations before anything is trained.

    MODEL is a shipped name, a folder or a hub id; --shape needs no model at all.
    """
    from msdc.compress.size.plan import PlanRequest, known_shapes, run_budget, run_plan

    if list_shapes:
        click.echo(json.dumps(known_shapes()) if as_json else "\n".join(known_shapes()))
        return
    if (model is None) == (shape is None):
        raise click.UsageError("expected either MODEL or --shape NAME")
    budget, show_all, top = options.pop("budget"), options.pop("show_all"), options.pop("top")
    request = PlanRequest(model=model, shape=shape, **options)
    if budget is None:
        sizes = run_plan(request)
        if as_json:
            click.echo(sizes.model_dump_json(indent=2))
            return
        config = sizes.config
        click.echo(f"{sizes.shape}: vocabulary {config.vocabulary:,}, table width {config.table_width}, hidden "
                   f"{config.hidden}, {config.unit} layers x {config.repeats}")  # fmt: skip
        click.echo(f"embedding {sizes.embedding_parameters / 1e6:.2f} M parameters, encoder "
                   f"{sizes.encoder_parameters / 1e6:.2f} M, all {sizes.parameters / 1e6:.2f} M")  # fmt: skip
        click.echo(f"{sizes.macs_per_token / 1e6:.2f} M multiply-accumulates per token at length {sizes.macs_length}")
        rows = [[name, *(_mb(value) for value in row.values())] for name, row in sizes.bytes.items()]
        _print_table("predicted bytes", ["precision", *next(iter(sizes.bytes.values()))], rows)
        return
    found = run_budget(request, budget)
    shown = found if show_all else [row for row in found if row.pareto]
    if as_json:
        click.echo(json.dumps([row.model_dump() for row in shown], indent=2))
        return
    rows = [
        [f"{row.vocabulary:,}" + (f", {row.links} of {row.base_rows:,}" if row.links else ""),
         str(row.bottleneck or "-"), f"{row.unit} x {row.repeats}",
         row.precision + (" (QAT)" if row.needs_qat else ""), _mb(row.bytes), f"{row.macs_per_token / 1e6:.2f} M",
         f"{row.parameters / 1e6:.2f} M", f"{row.expected_loss:.1f}", "*" if row.pareto else ""]
        for row in shown[:top]
    ]  # fmt: skip
    columns = [
        "vocabulary",
        "bottleneck",
        "layers",
        "precision",
        "bytes",
        "MACs/token",
        "parameters",
        "expected loss",
        "Pareto",
    ]
    front = sum(row.pareto for row in found)
    fits = f"{len(found)} combinations fit {budget} ({request.runtime}), {front} on the Pareto set; {len(rows)} shown"
    _print_table(fits, columns, rows)
    click.echo(
        "expected loss orders candidates (Spearman points, from published ablations); train two or three of them."
    )


@command.command()
@click.argument("model", default="msdc-mini")
@OUT
@click.option("--languages", help="Keep pieces in the alphabets of these languages, e.g. de,es.")
@click.option(
    "--corpus", multiple=True, type=click.Path(path_type=Path), help="Keep pieces that this text uses (repeatable)."
)
@click.option("--size", type=int, help="Keep at most this many pieces, the most frequent ones.")
@click.option("--check", multiple=True, type=click.Path(path_type=Path),
              help="Measure the change on this text (repeatable).")  # fmt: skip
@FORCE
@JSON
@quiet_option
def vocabulary(model: str, languages: str | None, as_json: bool, **options: Any) -> None:
    """Remove unused pieces and table rows, and verify that nothing else changed."""
    from msdc.compress.vocabulary.trim import TrimRequest, trim

    codes = tuple(code.strip() for code in (languages or "").split(",") if code.strip())
    report = trim(TrimRequest(model=model, languages=codes, **options))
    if as_json:
        click.echo(report.model_dump_json(indent=2))
        return
    click.echo(f"{report.out}: {report.vocabulary_after:,} of {report.vocabulary_before:,} pieces, "
               f"{report.parameters_after / 1e6:.2f} of {report.parameters_before / 1e6:.2f} M parameters")  # fmt: skip
    rows = [
        [proof.source, f"{proof.texts:,}", f"{proof.changed_share:.2%}", f"{proof.unchanged_max_abs:.1e}",
         "-" if proof.changed_mean_cosine is None else f"{proof.changed_mean_cosine:.4f}",
         f"{proof.tokens_before:.1f} > {proof.tokens_after:.1f}"]
        for proof in report.proofs
    ]  # fmt: skip
    columns = [
        "texts of",
        "texts",
        "tokenized differently",
        "max difference otherwise",
        "cosine of the changed",
        "tokens per text",
    ]
    _print_table("proof", columns, rows)


@command.command()
@click.argument("model", default="msdc-mini")
@OUT
@click.option("--bottleneck", type=int, help="Width of the token table's rows; default: the model's own.")
@click.option("--unit", type=int, help="Keep the first M layers as the recurring unit.")
@click.option("--layers", help="Keep these layers instead, e.g. 0,2,5.")
@click.option("--repeats", type=int, help="How often the unit is applied; default: layers / unit.")
@PLACE
@click.option("--max-length", type=int, help="Longest input in tokens.")
@click.option("--corpus", type=click.Path(path_type=Path), help="Text whose pieces weight the bottleneck's SVD.")
@click.option("--materialise", is_flag=True, help="Write the equal plain BertModel: unrolled, V x H table.")
@FORCE
@JSON
@quiet_option
def student(model: str, layers: str | None, as_json: bool, **options: Any) -> None:
    """Cut a student out of any encoder: layers of the recurring unit, and a bottleneck from the SVD of its table."""
    from msdc.compress.student.cut import StudentRequest, make

    picked = None
    if layers is not None:
        try:
            picked = tuple(int(index) for index in layers.split(","))
        except ValueError:
            raise click.BadParameter(
                f"{layers!r} is not a list of numbers such as 0,2,5", param_hint="--layers"
            ) from None
    report = make(StudentRequest(model=model, layers=picked, **options))
    if as_json:
        click.echo(report.model_dump_json(indent=2))
        return
    config, sizes = report.sizes.config, report.sizes
    picked_text = ", ".join(map(str, report.layers))
    click.echo(f"{report.out}: layers {picked_text} x {config.repeats}, table {config.vocabulary:,} x "
               f"{config.table_width}, {sizes.parameters / 1e6:.2f} M parameters")  # fmt: skip
    if report.kept_variance is not None:
        click.echo(
            f"the bottleneck keeps {report.kept_variance:.1%} of the table's variance (frequencies: {report.frequency})"
        )
    click.echo(f"mean cosine to {report.model} before training: {report.cosine:.4f}")


@command.command()
@click.argument("model", default="msdc-mini")
@OUT
@click.option("--base-rows", type=int, required=True, help="Rows of the base table.")
@click.option("--links", type=int, default=4, show_default=True, help="Base rows that a row is a sum of, 2 to 5.")
@click.option("--corpus", type=click.Path(path_type=Path), help="Text whose pieces weight the fit.")
@click.option("--rounds", type=int, default=4, show_default=True, help="How often links and base are fitted in turn.")
@FORCE
@JSON
@quiet_option
def code(as_json: bool, **options: Any) -> None:
    """Code a model's token table: each row becomes a weighted sum of a few rows of a small base table."""
    from msdc.compress.student.code import CodeRequest, run_code

    report = run_code(CodeRequest(**options))
    if as_json:
        click.echo(report.model_dump_json(indent=2))
        return
    config, sizes = report.sizes.config, report.sizes
    click.echo(f"{report.out}: {config.vocabulary:,} rows, each a sum of {config.links} of {config.base_rows:,} base "
               f"rows of {config.table_width}; int8 weights {_mb(sizes.bytes['int8']['weights'])}")  # fmt: skip
    click.echo(f"the code keeps {report.kept_variance:.1%} of the table's variance (frequencies: {report.frequency})")
    click.echo(f"mean cosine to {report.model} before training: {report.cosine:.4f}")


@command.command()
@click.argument("model", default="msdc-mini")
@OUT
@click.option(
    "--precision", default="int8", show_default=True, help="int8, int8-embed4, int4-embed4 (after QAT), or auto."
)
@click.option("--max-loss", type=float, default=0.3, show_default=True,
              help="With auto: Spearman points that similarities may lose on the calibration text.")  # fmt: skip
@click.option(
    "--calibration", type=click.Path(path_type=Path), help="Text to measure on; default: the embedded corpus."
)
@click.option("--int4-linears", is_flag=True, help="With auto: try int4 linears too (ExecuTorch only).")
@FORCE
@JSON
@quiet_option
def quantize(as_json: bool, **options: Any) -> None:
    """Store a model as integers and scales, and report what each weight cost."""
    from msdc.compress.quantization.quantize import QuantizeRequest, run_quantize

    report = run_quantize(QuantizeRequest(**options))
    if as_json:
        click.echo(report.model_dump_json(indent=2))
        return
    rows = []
    for line in report.weights:
        ratio = "-" if line["sqnr_db"] is None else f"{line['sqnr_db']:.1f}"
        cost = [f"{line['mean_cosine']:.6f}", f"{line['loss']:.3f}"]
        rows.append([line["name"], line["dtype"], f"{line['bytes']:,}", ratio, *cost])
    _print_table(f"{report.precision}: each weight alone, on {report.texts} texts of the {report.calibration}",
                 ["weight", "dtype", "bytes", "SQNR dB", "mean cosine", "loss"], rows)  # fmt: skip
    click.echo(f"all together: loss {report.loss:.2f} Spearman points, cosine mean {report.mean_cosine:.5f}, "
               f"min {report.min_cosine:.5f}")  # fmt: skip
    click.echo(f"{report.out}: {_mb(report.file_bytes)} of weights, {_mb(report.bytes_before)} in float")
