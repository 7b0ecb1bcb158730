"""`msdc encode` and `msdc compare`: try a model or a bundle on a few texts."""

from __future__ import annotations

import json
import sys

import click

RUNTIME = click.option("--runtime", type=click.Choice(["executorch", "onnx"]), help="Runtime of a bundle.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def _texts(texts: tuple[str, ...]) -> list[str]:
    """Texts from the command line, or one a line from standard input."""
    if texts:
        return list(texts)
    if sys.stdin.isatty():
        raise click.UsageError("give at least one TEXT, or pipe texts, one a line")
    return [line.rstrip("\n") for line in sys.stdin]


@click.command()
@click.argument("model")
@click.argument("texts", nargs=-1)
@RUNTIME
@JSON
def encode(model: str, texts: tuple[str, ...], runtime: str | None, as_json: bool) -> None:
    """Print one vector a line for TEXT... (or standard input, one a line)."""
    from msdc.encoders.encoder import open_model

    lines = _texts(texts)
    vectors_ND = open_model(model, runtime).encode(lines)
    if as_json:
        rows = [
            {"text": text, "vector": [round(float(x), 7) for x in row]}
            for text, row in zip(lines, vectors_ND, strict=True)
        ]
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in vectors_ND:
        click.echo(" ".join(f"{x:.6f}" for x in row))


@click.command()
@click.argument("model")
@click.argument("texts", nargs=-1)
@RUNTIME
@JSON
def compare(model: str, texts: tuple[str, ...], runtime: str | None, as_json: bool) -> None:
    """Print the cosine of the first TEXT with each of the others."""
    from msdc.encoders.encoder import open_model
    from msdc.scores import cosine_rows

    lines = _texts(texts)
    if len(lines) < 2:
        raise click.UsageError("compare needs at least two texts")
    vectors_ND = open_model(model, runtime).encode(lines)
    cosines = cosine_rows(vectors_ND[:1].repeat(len(lines) - 1, axis=0), vectors_ND[1:])
    if as_json:
        click.echo(
            json.dumps(
                {"query": lines[0], "texts": lines[1:], "cosine": [round(float(c), 6) for c in cosines]},
                ensure_ascii=False,
            )
        )
        return
    for text, cosine in sorted(zip(lines[1:], cosines, strict=True), key=lambda pair: -pair[1]):
        click.echo(f"{cosine:7.4f}  {text}")
