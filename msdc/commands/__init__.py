"""The subcommands encode, compare, search and doctor, and options that several subcommands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from msdc.errors import InputError
from msdc.lazy import higher, load
from msdc.progress import be_quiet

Command = TypeVar("Command", bound=Callable[..., object])


def _combined(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Several options as one decorator, in the order of the help page."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


class VerbCommand(click.Command):
    """A command that calls the function at `verb` (MODULE:NAME), from whose arguments its options take their defaults.

    The function is imported for the help page too: verbs whose modules load torch state their defaults. `groups` are
    the headings of the help page with the names of their options; the others follow under "Other options".
    """

    def __init__(self, *args: Any, verb: str, groups: dict[str, str] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.verb, self.groups = verb, groups or {}

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Set the defaults, then parse."""
        arguments = inspect.signature(load(self.verb)).parameters  # type: ignore[arg-type]
        for option in self.params:
            default = arguments[option.name].default if option.name in arguments else None
            if isinstance(option, click.Option) and default not in (None, inspect.Parameter.empty):
                option.default = default
                option.show_default = not isinstance(default, (bool, tuple))
        return super().make_context(*args, **options)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options below the headings of `groups`."""
        if not self.groups:
            return super().format_options(ctx, formatter)
        records = {
            param.name: record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx))
        }
        parts = [(title, [records.pop(name) for name in names.split()]) for title, names in self.groups.items()]
        for title, rows in [*parts, ("Other options", list(records.values()))]:
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)


def _set_quiet(context: click.Context, _: click.Parameter, quiet: bool) -> None:
    be_quiet(quiet)
    context.call_on_close(lambda: be_quiet(False))


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
wide_option = click.option(
    "--wide", is_flag=True, help="Print all columns of tables.  [default: what fits the terminal]"
)
quiet_option = click.option(
    "-q", "--quiet", is_flag=True, expose_value=False, callback=_set_quiet,
    help="Print only results, warnings and errors.",
)  # fmt: skip
prompt_options = _combined(
    click.option("--prompt-name", help="Name of one of the model's prompts. Default: the model's default prompt."),
    click.option("--prompt", help="Text to put before every text; an empty text disables the default prompt."),
)
# Arguments of `encode`.
encode_options = _combined(
    prompt_options,
    click.option(
        "--truncate-dim", type=click.IntRange(min=1),
        help="Keep the first N dimensions of every vector. Default: the model's own.",
    ),
)  # fmt: skip


def runtime_option(command: Command) -> Command:
    """--runtime, with the names of all runtimes."""
    names = higher("RUNTIMES").names()
    return click.option("--runtime", type=click.Choice(names), help="Runtime of a bundle.")(command)


def require_utf8(texts: Sequence[str], what: str) -> list[str]:
    """Check arguments of the command line, which Python decodes with surrogates if they are not UTF-8."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            place = len(text[: error.start].encode("utf-8", "surrogateescape"))
            raise InputError(f"{what} {number}: not valid UTF-8 (at byte {place})") from error
    return list(texts)
