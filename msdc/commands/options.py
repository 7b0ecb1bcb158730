"""Options and input that several commands share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from msdc.cli import runtime_names

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


def given_texts(texts: Sequence[str]) -> list[str]:
    """Texts of the command line, or one per line from standard input.

    Raises:
        click.UsageError: no text, and standard input is a terminal.
    """
    if texts:
        return list(texts)
    if sys.stdin.isatty():
        raise click.UsageError("give at least one TEXT, or pipe texts, one per line")
    return [line.rstrip("\n") for line in sys.stdin]
