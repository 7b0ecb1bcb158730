"""`msdc encode`: print the vectors of a few texts."""

from __future__ import annotations

import json

import click

from msdc.commands.options import encode_options, given_texts, model_options


@click.command()
@model_options
@encode_options
def command(
    model: str,
    texts: tuple[str, ...],
    runtime: str | None,
    as_json: bool,
    prompt_name: str | None,
    prompt: str | None,
    truncate_dim: int | None,
) -> None:
    """Print one vector per line for TEXT... (or for each line of standard input)."""
    lines = given_texts(texts)  # before torch is imported, so that a wrong text fails early
    from msdc.encoders.encoder import open_model
    from msdc.scores import require_finite

    opened = open_model(model, runtime, prompt_name=prompt_name, prompt=prompt, truncate_dim=truncate_dim)
    vectors_ND = require_finite(opened.encode(lines), opened.name)
    if as_json:
        rows = [
            {"text": text, "vector": [round(float(x), 7) for x in row]}
            for text, row in zip(lines, vectors_ND, strict=True)
        ]
        click.echo(json.dumps(rows, ensure_ascii=False))
        return
    for row in vectors_ND:
        click.echo(" ".join(f"{x:.6f}" for x in row))
