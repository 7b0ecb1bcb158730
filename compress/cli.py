"""`msdc compress`: plan sizes; create, code, trim or quantize a student. This module only parses and prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from msdc import compress
from msdc.command_options import VerbCommand, json_option, quiet_option, wide_option
from msdc.compress.size import PROGRAM_BYTES
from msdc.compress.student.config import SHAPES
from msdc.tables import Column, Table, megabytes, terminal_width, to_text

FILE = click.Path(path_type=Path)
MODEL = click.argument("model", default="msdc-mini")
OUTPUT = click.option("-o", "--output", type=FILE, required=True, help="Folder to write.")
FORCE = click.option("--force", is_flag=True, help="Replace the folder if it exists.")
PLACE = click.option("--place", type=click.Choice(["word", "embedding"]), default="word", show_default=True,
                     help="word: the paper's bottleneck; embedding: a stock AlbertModel.")  # fmt: skip
SHOWN = 25


@click.group()
def command() -> None:
    """Plan sizes; create, code, trim or quantize a student."""


def _table(caption: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], width: int | None = None) -> None:
    first, *others = columns
    click.echo(to_text(Table(caption, (Column(first, align="left"), *map(Column, others)), tuple(rows)), width))


def _shapes(as_json: bool) -> None:
    plans = [compress.plan(shape=name) for name in SHAPES]
    if as_json:
        click.echo(json.dumps([sizes.model_dump(mode="json") for sizes in plans], indent=2))
        return
    rows = [(row.shape, f"{row.config.vocabulary:,}", str(row.config.hidden), str(row.config.unit * row.config.repeats),
             f"{row.parameters / 1e6:.1f}", *(megabytes(row.bytes[name]["onnx"]) for name in ("fp32", "int8")))
            for row in plans]  # fmt: skip
    columns = ["shape", "vocabulary", "hidden", "layers", "M parameters", "fp32 MB", "int8 MB"]
    _table("published shapes, for --shape NAME; bytes of ONNX files", columns, rows)


@command.command("plan", cls=VerbCommand, verb="msdc.compress.budget:plan_budget")
@click.argument("model", required=False)
@click.option("--shape", help="A published shape by name, instead of MODEL: xlmr-base, minilm, bert-base, ...")
@click.option("--bottleneck", type=int, help="Width of the token table's rows.")
@click.option("--unit", type=int, help="Stored layers of the recurring unit.")
@click.option("--repeats", type=int, help="How often the unit is applied; default: layers / unit.")
@click.option("--vocabulary", type=int, help="Rows of the token table.")
@click.option("--max-length", type=int, help="Longest input in tokens.")
@click.option("--base-rows", type=int, help="Rows of a coded table's base.")
@click.option("--nonzeros", type=int, help="Code the table: each row is a sum of this many base rows, 2 to 5.")
@PLACE
@click.option("--budget", help="List every student that fits, e.g. 10MB, and mark the Pareto set.")
@click.option("--runtime", type=click.Choice(list(PROGRAM_BYTES)),
              help="Runtime whose file the budget is for.")  # fmt: skip
@click.option("--all", "show_all", is_flag=True, help="With --budget: also candidates outside the Pareto set.")
@wide_option
@json_option
def plan_command(budget: str | None, runtime: str, show_all: bool, wide: bool, as_json: bool, **options: Any) -> None:
    """Parameters, bytes and operations before anything is trained.

    MODEL is a shipped name, a folder or a hub id; --shape needs no model at all. Without both: the published shapes.
    """
    if budget is None and not any(options[name] for name in ("model", "shape")):
        _shapes(as_json)
        return
    if budget is None:
        sizes = compress.plan(**options)
        if as_json:
            click.echo(sizes.model_dump_json(indent=2))
            return
        config = sizes.config
        click.echo(f"{sizes.shape}: vocabulary {config.vocabulary:,}, table width {config.table_width}, hidden "
                   f"{config.hidden}, {config.unit} layers x {config.repeats}")  # fmt: skip
        click.echo(f"embedding {sizes.embedding_parameters / 1e6:.2f} M parameters, encoder "
                   f"{sizes.encoder_parameters / 1e6:.2f} M, all {sizes.parameters / 1e6:.2f} M")  # fmt: skip
        click.echo(f"{sizes.macs_per_token / 1e6:.2f} M multiply-accumulates per token at length {sizes.macs_length}")
        rows = [(name, *map(megabytes, row.values())) for name, row in sizes.bytes.items()]
        _table("predicted bytes, MB", ["precision", *sizes.bytes["fp32"]], rows)
        return
    plans = compress.plan_budget(budget, runtime=runtime, **options)
    shown = [row for row in plans if show_all or row.pareto]
    if as_json:
        click.echo(json.dumps([row.model_dump() for row in shown], indent=2))
        return
    rows = [
        (f"{row.vocabulary:,}" + (f", {row.nonzeros} of {row.base_rows:,}" if row.nonzeros else ""),
         str(row.bottleneck or "-"), f"{row.unit} x {row.repeats}",
         row.precision + (" (QAT)" if row.needs_qat else ""), megabytes(row.bytes),
         f"{row.macs_per_token / 1e6:.2f}", f"{row.parameters / 1e6:.2f}", f"{row.expected_loss:.1f}",
         "*" if row.pareto else "")
        for row in shown[:SHOWN]
    ]  # fmt: skip
    columns = ["vocabulary", "bottleneck", "layers", "precision", "MB", "M MACs/token", "M parameters",
               "expected loss", "Pareto"]  # fmt: skip
    front = sum(row.pareto for row in plans)
    fits = f"{len(plans)} combinations fit {budget} ({runtime}), {front} on the Pareto set; {len(rows)} shown"
    _table(fits, columns, rows, None if wide else terminal_width())
    click.echo(
        "expected loss ranks candidates (Spearman points, from published ablations); train two or three of them."
    )


def _proofs(proofs: Sequence[Any]) -> None:
    rows = [
        (proof.source, f"{proof.texts:,}", f"{proof.changed_share:.2%}", f"{proof.unchanged_max_abs:.1e}",
         "-" if proof.changed_mean_cosine is None else f"{proof.changed_mean_cosine:.4f}",
         f"{proof.tokens_before:.1f} > {proof.tokens_after:.1f}")
        for proof in proofs
    ]  # fmt: skip
    columns = ["texts of", "texts", "tokenized differently", "max difference of the others",
               "cosine of the changed", "tokens per text"]  # fmt: skip
    _table("check", columns, rows)


def _add_words(languages: str, terms: tuple[Path, ...], as_json: bool, options: dict[str, Any]) -> None:
    """`add_words` with the options of `vocabulary`; those that remove tokens are refused."""
    least = click.get_current_context().get_parameter_source("least_cosine")
    removing = {"--languages": languages, "--corpus": options.pop("corpus"), "--size": options.pop("size"),
                "--least-cosine": least is not click.core.ParameterSource.DEFAULT}  # fmt: skip
    options.pop("least_cosine")
    if named := [name for name, value in removing.items() if value]:
        raise click.UsageError(f"--add cannot be used with {', '.join(named)}: remove tokens first, then add words")
    report = compress.add_words(terms=terms, **options)
    if as_json:
        click.echo(report.model_dump_json(indent=2))
        return
    click.echo(f"{report.out}: {report.added:,} new tokens of {report.terms:,} terms ({report.existing:,} words were "
               f"tokens), {report.vocabulary_after:,} in all; {report.bytes_added / 1000:+,.1f} kB")  # fmt: skip
    click.echo(f"tokens per term: {report.tokens_before:.2f} > {report.tokens_after:.2f}; mean cosine of texts with a "
               f"term to their vectors before: {report.with_terms.mean_cosine:.4f}")  # fmt: skip
    _proofs(report.proofs)


@command.command()
@MODEL
@OUTPUT
@click.option("--languages", default="", help="Keep tokens in the alphabets of these languages, e.g. de,es.")
@click.option("--corpus", multiple=True, type=FILE, help="Keep tokens that this text uses (repeatable).")
@click.option("--size", type=int, help="Keep at most this many tokens, the most frequent ones.")
@click.option("--add", "terms", multiple=True, type=FILE,
              help="Instead, add the words of this file, one term per line (repeatable).")  # fmt: skip
@click.option("--check", multiple=True, type=FILE, help="Measure the change on this text (repeatable).")
@click.option("--least-cosine", type=float, default=0.98, show_default=True,
              help="Refuse a lower mean cosine between vectors before and after; 0: no limit.")  # fmt: skip
@FORCE
@json_option
@quiet_option
def vocabulary(languages: str, terms: tuple[Path, ...], as_json: bool, **options: Any) -> None:
    """Remove unused tokens and table rows, or --add words of a domain, and verify that nothing else changed."""
    if terms:
        _add_words(languages, terms, as_json, options)
        return
    report = compress.trim(languages=[code.strip() for code in languages.split(",") if code.strip()], **options)
    if as_json:
        click.echo(report.model_dump_json(indent=2))
        return
    click.echo(f"{report.out}: {report.vocabulary_after:,} of {report.vocabulary_before:,} tokens, "
               f"{report.parameters_after / 1e6:.2f} of {report.parameters_before / 1e6:.2f} M parameters")  # fmt: skip
    _proofs(report.proofs)


@command.command()
@MODEL
@OUTPUT
@click.option("--bottleneck", type=int, help="Width of the token table's rows; default: the model's own.")
@click.option("--unit", type=int, help="Keep the first layers, this many, as the recurring unit.")
@click.option("--layers", help="Keep these layers instead, e.g. 0,2,5; none: a table and a mean.")
@click.option("--repeats", type=int,
              help="How often the unit is applied; default: layers / unit, with --layers as in the model.")  # fmt: skip
@PLACE
@click.option("--max-length", type=int, help="Longest input in tokens.")
@click.option("--corpus", type=FILE, help="Text whose token frequencies weight the bottleneck's SVD.")
@FORCE
@json_option
@quiet_option
def student(layers: str | None, as_json: bool, **options: Any) -> None:
    """Cut a student from any encoder: its layers become the recurring unit, an SVD of its table the bottleneck."""
    try:
        names = [] if layers in (None, "none") else str(layers).split(",")
        picked = None if layers is None else [int(index) for index in names]
    except ValueError:
        raise click.BadParameter(f"{layers!r} is not a list of numbers such as 0,2,5", param_hint="--layers") from None
    report = compress.cut_student(layers=picked, **options)
    if as_json:
        click.echo(report.model_dump_json(indent=2))
        return
    config = report.sizes.config
    stored = ", ".join(map(str, report.layers)) or "none"
    click.echo(f"{report.out}: layers {stored} x {config.repeats}, table {config.vocabulary:,} x {config.table_width}, "
               f"{report.sizes.parameters / 1e6:.2f} M parameters")  # fmt: skip
    if report.kept_variance is not None:
        click.echo(
            f"the bottleneck keeps {report.kept_variance:.1%} of the table's variance (frequencies: {report.frequency})"
        )
    click.echo(f"mean cosine to {report.model} before training: {report.cosine:.4f}")


@command.command()
@MODEL
@OUTPUT
@click.option("--base-rows", type=int, required=True, help="Rows of the base table.")
@click.option("--nonzeros", type=int, default=4, show_default=True, help="Base rows that a row is a sum of, 2 to 5.")
@click.option("--corpus", type=FILE, help="Text whose token frequencies weight the fit.")
@FORCE
@json_option
@quiet_option
def code(as_json: bool, **options: Any) -> None:
    """Code a model's token table: each row becomes a weighted sum of a few rows of a small base table."""
    report = compress.code_table(**options)
    if as_json:
        click.echo(report.model_dump_json(indent=2))
        return
    config = report.sizes.config
    weights = megabytes(report.sizes.bytes["int8"]["weights"])
    click.echo(f"{report.out}: {config.vocabulary:,} rows, each a sum of {config.nonzeros} of {config.base_rows:,} "
               f"base rows of {config.table_width}; int8 weights {weights} MB")  # fmt: skip
    click.echo(f"the code keeps {report.kept_variance:.1%} of the table's variance (frequencies: {report.frequency})")
    click.echo(f"mean cosine to {report.model} before training: {report.cosine:.4f}")


@command.command("centre")
@MODEL
@OUTPUT
@click.option("--corpus", type=FILE, help="Text like that which will be encoded; default: the embedded corpus.")
@FORCE
@json_option
@quiet_option
def centre_command(as_json: bool, **options: Any) -> None:
    """Subtract the mean vector, so that the cosines of a model such as E5 use their range."""
    report = compress.centre(**options)
    if as_json:
        click.echo(report.model_dump_json(indent=2))
        return
    click.echo(
        f"{report.out}: mean cosine of two of {report.texts:,} texts {report.after:.3f}, before {report.before:.3f}"
    )


@command.command("quantize")
@MODEL
@OUTPUT
@click.option("--precision", default="int8", show_default=True,
              help="int8, int8-embed4, int4-embed4 (after QAT), or auto.")  # fmt: skip
@click.option("--max-loss", type=float, default=0.3, show_default=True,
              help="With auto: Spearman points that similarities may lose on the calibration text.")  # fmt: skip
@click.option("--calibration", type=FILE, help="Text to measure on; default: the embedded corpus.")
@click.option("--int4-linears", is_flag=True, help="With auto: also try int4 linear layers (ExecuTorch only).")
@FORCE
@json_option
@quiet_option
def quantize_command(as_json: bool, **options: Any) -> None:
    """Store a model as integers and scales, and report what each weight cost."""
    report = compress.quantize(**options)
    if as_json:
        click.echo(report.model_dump_json(indent=2))
        return
    rows = []
    for line in report.weights:
        ratio = "-" if line["sqnr_db"] is None else f"{line['sqnr_db']:.1f}"
        cost = (f"{line['mean_cosine']:.6f}", f"{line['loss']:.3f}")
        rows.append((line["name"], line["dtype"], f"{line['bytes']:,}", ratio, *cost))
    _table(f"{report.precision}: each weight alone, on {report.texts} texts of the {report.calibration}",
           ["weight", "dtype", "bytes", "SQNR dB", "mean cosine", "loss"], rows)  # fmt: skip
    click.echo(f"all together: loss {report.loss:.2f} Spearman points, cosine mean {report.mean_cosine:.5f}, "
               f"min {report.min_cosine:.5f}")  # fmt: skip
    click.echo(
        f"{report.out}: {megabytes(report.file_bytes)} MB of weights, {megabytes(report.bytes_before)} MB in float"
    )
