"""Options and input that several commands share."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from msdc.cli import runtime_names
from msdc.errors import InputError
from msdc.progress import be_quiet, say
from msdc.text.inputs import stdin_texts

Command = TypeVar("Command", bound=Callable[..., object])
DEFAULT_MODEL = "msdc-mini"


def model_options(command: Command) -> Command:
    """[MODEL] [TEXT]..., --model, --runtime and --json."""
    for add in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--runtime", type=click.Choice(runtime_names()), help="Runtime of a bundle."),
        click.option(
            "--model", "-m", help=f"A shipped name, a folder, a bundle or a hub id. Default: {DEFAULT_MODEL}."
        ),
        click.argument("words", nargs=-1, metavar="[MODEL] [TEXT]..."),
    ):
        command = add(command)
    return command


def _set_quiet(context: click.Context, _: click.Parameter, quiet: bool) -> None:
    be_quiet(quiet)
    context.call_on_close(lambda: be_quiet(False))


def quiet_option(command: Command) -> Command:
    """-q, --quiet: the same for every command with progress or remarks."""
    add = click.option(
        "-q", "--quiet", is_flag=True, expose_value=False, callback=_set_quiet,
        help="Print no progress and no remarks; results, warnings and errors stay.",
    )  # fmt: skip
    return add(command)


class RenamedOption(click.Option):
    """An option whose earlier spellings (`old`) are still accepted, and are not shown in the help."""

    def __init__(self, declarations: list[str], *, old: tuple[str, ...], **attributes: Any) -> None:
        super().__init__([*declarations, *old], **attributes)
        self.old = old

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The help without the old spellings."""
        every, self.opts = self.opts, [name for name in self.opts if name not in self.old]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = every


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


def _names_a_model(word: str) -> bool:
    """Whether the first word of a command line is a model: a known name, a folder, a path, or like a hub id."""
    from msdc.encoders.locate import is_reserved

    if is_reserved(word) or word.startswith(("./", "../", "~")):
        return True
    if re.search(r"\s", word):
        return False
    path = Path(word)
    return path.is_dir() or path.is_absolute() or re.fullmatch(r"[\w.-]+/[\w.-]+(@[\w./-]+)?", word) is not None


def _refuse_near_name(texts: Sequence[str]) -> None:
    """Refuse a first word that is a shipped model's name but for a typo: its vector would be that of a text.

    Raises:
        InputError: such a word.
    """
    from msdc.encoders.locate import bare_names

    word = texts[0]
    near = difflib.get_close_matches(word.lower(), [name.lower() for name in bare_names()], n=1, cutoff=0.75)
    if near and not re.search(r"\s", word):
        raise InputError(
            f"{word}: no model of this name; did you mean {near[0]!r}? As a text it goes after a model: "
            f"{DEFAULT_MODEL} {word} ..."
        )


def model_and_texts(words: Sequence[str], model: str | None) -> tuple[str, list[str]]:
    """The model and the texts of `[MODEL] [TEXT]...`: the first word is the model if it names one.

    Raises:
        InputError: a first word that is nearly a model's name; a text that is a file's name, or is not UTF-8.
    """
    texts = list(words)
    if model is None and texts and _names_a_model(texts[0]):
        model = texts.pop(0)
    elif model is None and texts:
        _refuse_near_name(texts)
        say(f"model: {DEFAULT_MODEL} (-m names another)")
    for text in texts:
        if len(text) < 256 and not re.search(r"\s", text) and Path(text).is_file():
            raise InputError(
                f"{text}: this is a file; -i {text} reads its lines (a text of this name goes through standard input)"
            )
    return model or DEFAULT_MODEL, require_utf8(texts, "TEXT")


def given_texts(texts: Sequence[str]) -> list[str]:
    """Texts of the command line, or one per line from standard input.

    Raises:
        click.UsageError: no text, and standard input is a terminal.
        InputError: a text is not UTF-8.
    """
    if texts:
        return list(texts)
    require_piped()
    return [text for _, text in stdin_texts()]


def require_piped() -> None:
    """Refuse to wait for texts that nobody pipes.

    Raises:
        click.UsageError: standard input is a terminal.
    """
    if sys.stdin.isatty():
        raise click.UsageError("give at least one TEXT, a file with -i, or pipe texts, one per line")


def require_utf8(texts: Sequence[str], what: str) -> list[str]:
    """Arguments of the command line, which Python decodes with surrogates where they are not UTF-8.

    Raises:
        InputError: one is not UTF-8.
    """
    for number, text in enumerate(texts, 1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            place = len(text[: error.start].encode("utf-8", "surrogateescape"))
            raise InputError(f"{what} {number}: not valid UTF-8 (at byte {place})") from error
    return list(texts)
