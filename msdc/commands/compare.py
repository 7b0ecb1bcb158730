"""`msdc compare`: print the cosine similarity of a few texts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from msdc.commands.options import encode_options, given_texts, model_and_texts, model_options, quiet_option

if TYPE_CHECKING:
    from msdc.encoders.encoder import SentenceEncoder


def similarities(model: SentenceEncoder, texts: Sequence[str]) -> list[float]:
    """Cosine of the first text with each of the others."""
    from msdc.scores import cosine_rows, require_finite

    vectors_ND = require_finite(model.encode(texts), model.name)
    cosines: list[float] = cosine_rows(vectors_ND[:1].repeat(len(texts) - 1, axis=0), vectors_ND[1:]).tolist()
    return cosines


@click.command()
@model_options
@encode_options
@quiet_option
def command(
    words: tuple[str, ...],
    model: str | None,
    runtime: str | None,
    as_json: bool,
    prompt_name: str | None,
    prompt: str | None,
    truncate_dim: int | None,
) -> None:
    """Print the cosine of the first TEXT with each of the others."""
    name, texts = model_and_texts(words, model)
    lines = given_texts(texts)  # before torch is imported, so that a wrong text fails early
    from msdc.encoders.encoder import open_model

    if len(lines) < 2:
        raise click.UsageError("compare needs at least two texts")
    opened = open_model(name, runtime, prompt_name=prompt_name, prompt=prompt, truncate_dim=truncate_dim)
    cosines = similarities(opened, lines)
    if as_json:
        answer = {"query": lines[0], "texts": lines[1:], "cosine": [round(cosine, 6) for cosine in cosines]}
        click.echo(json.dumps(answer, ensure_ascii=False))
        return
    for text, cosine in sorted(zip(lines[1:], cosines, strict=True), key=lambda pair: -pair[1]):
        click.echo(f"{cosine:7.4f}  {text}")
