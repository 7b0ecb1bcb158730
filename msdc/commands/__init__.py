"""Subcommands that belong to no other package: encode, compare, search, push, doctor; options that verbs share."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

import msdc
from msdc.encoders.folder import bare_names, is_reserved
from msdc.errors import InputError
from msdc.progress import be_quiet, say

Command = TypeVar("Command", bound=Callable[..., object])
DEFAULT_MODEL = "msdc-mini"


def _together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order of the help page."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


def _set_quiet(context: click.Context, _: click.Parameter, quiet: bool) -> None:
    be_quiet(quiet)
    context.call_on_close(lambda: be_quiet(False))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_set_quiet,
    help="Print no progress and no remarks; results, warnings and errors stay.",
)  # fmt: skip
prompt_options = _together(
    click.option("--prompt-name", help="Name of one of the model's prompts. Default: the model's default prompt."),
    click.option("--prompt", help="Text to put before every text; an empty one switches the default prompt off."),
)
# How texts are encoded.
encode_options = _together(
    prompt_options,
    click.option(
        "--truncate-dim", type=click.IntRange(min=1),
        help="Keep the first N numbers of every vector. Default: the model's own.",
    ),
)  # fmt: skip


def runtime_option(command: Command) -> Command:
    """--runtime: one of the registry above this package."""
    return click.option("--runtime", type=click.Choice(msdc.RUNTIMES.names()), help="Runtime of a bundle.")(command)


def _names_a_model(word: str) -> bool:
    """Whether the first word of a command line is a model: a known name, a folder, a path, or like a hub id."""
    path = Path(word)
    if is_reserved(word) or word.startswith(("./", "../", "~")):
        return True
    hub_id = re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", word)
    return not re.search(r"\s", word) and (path.is_dir() or path.is_absolute() or hub_id is not None)


def model_and_texts(words: Sequence[str]) -> tuple[str, list[str]]:
    """The model and the texts of `[MODEL] [TEXT]...`: the first word is the model if it names one."""
    texts, model = list(words), DEFAULT_MODEL
    if texts and _names_a_model(texts[0]):
        model = texts.pop(0)
    elif texts:
        word = texts[0]
        near = difflib.get_close_matches(word.lower(), [name.lower() for name in bare_names()], n=1, cutoff=0.75)
        if near and not re.search(r"\s", word):
            raise InputError(
                f"{word}: no model of this name; did you mean {near[0]!r}? As a text it goes after a model: "
                f"{DEFAULT_MODEL} {word} ..."
            )
        say(f"model: {DEFAULT_MODEL} (another one goes before the texts)")
    for text in texts:
        if len(text) < 256 and not re.search(r"\s", text) and Path(text).is_file():
            raise InputError(
                f"{text}: this is a file; -i {text} reads its lines (a text of this name goes through standard input)"
            )
    return model, require_utf8(texts, "TEXT")


def require_piped() -> None:
    """Refuse to wait for texts that nobody pipes."""
    if sys.stdin.isatty():
        raise click.UsageError("give at least one TEXT, a file with -i, or pipe texts, one per line")


def require_utf8(texts: Sequence[str], what: str) -> list[str]:
    """Arguments of the command line, which Python decodes with surrogates where they are not UTF-8."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            place = len(text[: error.start].encode("utf-8", "surrogateescape"))
            raise InputError(f"{what} {number}: not valid UTF-8 (at byte {place})") from error
    return list(texts)
