"""Options and input that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from msdc.cli import runtime_names
from msdc.errors import InputError

Command = TypeVar("Command", bound=Callable[..., object])


def model_options(command: Command) -> Command:
    """MODEL, TEXT..., --runtime and --json."""
    for add in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--runtime", type=click.Choice(runtime_names()), help="Runtime of a bundle."),
        click.argument("texts", nargs=-1, metavar="[TEXT]..."),
        click.argument("model"),
    ):
        command = add(command)
    return command


def encode_options(command: Command) -> Command:
    """--prompt-name, --prompt, --truncate-dim: how texts are encoded."""
    truncate = click.option(
        "--truncate-dim",
        type=click.IntRange(min=1),
        help="Keep the first N numbers of every vector. Default: the model's own.",
    )
    return prompt_options(truncate(command))


def prompt_options(command: Command) -> Command:
    """--prompt-name and --prompt."""
    for add in (
        click.option("--prompt", help="Text to put before every text; an empty one switches the default prompt off."),
        click.option("--prompt-name", help="Name of one of the model's prompts. Default: the model's default prompt."),
    ):
        command = add(command)
    return command


def given_texts(texts: Sequence[str]) -> list[str]:
    """Texts of the command line, or one per line from standard input.

    Raises:
        click.UsageError: no text, and standard input is a terminal.
        InputError: a text is not UTF-8.
    """
    if texts:
        return require_utf8(texts, "TEXT")
    if sys.stdin.isatty():
        raise click.UsageError("give at least one TEXT, or pipe texts, one per line")
    lines = []
    for number, raw in enumerate(sys.stdin.buffer, 1):
        try:
            lines.append(raw.decode("utf-8").removesuffix("\n").removesuffix("\r"))
        except UnicodeDecodeError as error:
            raise InputError(f"standard input line {number}: not valid UTF-8 ({error.reason})") from error
    return lines


def require_utf8(texts: Sequence[str], what: str) -> list[str]:
    """Arguments of the command line, which Python decodes with surrogates where they are not UTF-8.

    Raises:
        InputError: one is not UTF-8.
    """
    for number, text in enumerate(texts, 1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InputError(f"{what} {number}: not valid UTF-8 (at character {error.start + 1})") from error
    return list(texts)
