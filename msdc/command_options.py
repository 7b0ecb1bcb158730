"""What the command lines of several packages share: a command that takes its defaults from a function, and options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, get_args, get_origin

import click

from msdc.lazy import load
from msdc.progress import be_quiet

if TYPE_CHECKING:
    from msdc.options import Options

Command = TypeVar("Command", bound=Callable[..., object])


def combined(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
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
prompt_options = combined(
    click.option("--prompt-name", help="Name of one of the model's prompts. Default: the model's default prompt."),
    click.option("--prompt", help="Text to put before every text; an empty text disables the default prompt."),
)
# Arguments of `encode`.
encode_options = combined(
    prompt_options,
    click.option(
        "--truncate-dim", type=click.IntRange(min=1),
        help="Keep the first N dimensions of every vector. Default: the model's own.",
    ),
)  # fmt: skip


class Numbers(click.ParamType[tuple[int, ...] | str]):
    """Comma-separated whole numbers, as a tuple of int, or one of `words`."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        self.words = words
        self.name = "|".join([*words, "N,N"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...] | str:
        """Parse the text of an option; a tuple (a default) passes through."""
        if isinstance(value, tuple) or value in self.words:
            return cast("tuple[int, ...] | str", value)
        try:
            return tuple(int(part) for part in str(value).split(",") if part.strip())
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers; expected numbers such as 8,32,128", param, ctx)


def _kind(annotation: Any) -> Any:
    """The type of an option whose value has this annotation."""
    types = [annotation]
    for hint in types:  # grows by what is inside of each
        types += [*get_args(hint), *filter(None, [get_origin(hint)])]
    if int in types and Sequence in types:
        return Numbers([value for value in types if isinstance(value, str)])
    if Literal in types:
        return click.Choice([value for value in types if isinstance(value, str)])
    return click.Path(path_type=Path) if Path in types else next((kind for kind in (int, float) if kind in types), str)


def options_of(model: type[Options], leave_out: Sequence[str], **changes: Mapping[str, Any]) -> Callable[[Any], Any]:
    """The click options of the fields of `model`, without those of `leave_out`, as one decorator.

    `changes` are arguments of `click.option` by field, with `names` its spellings.
    """
    fields, decorators = model.documented(), []
    for name in [name for name in fields if name not in leave_out]:
        settings, kind = dict(changes.get(name, {})), fields[name].annotation
        text, _, default = (fields[name].description or "").partition("; None: ")
        text = text[:1].upper() + text[1:] + "." + "  Repeatable." * bool(settings.get("multiple"))
        text += f"  [default: {default}]" if default else ""
        text = re.sub(r"`(\w+)`", lambda match: f"--{match[1]}" if match[1] in fields else match[1], text)
        names = settings.pop("names", (f"--{name.removesuffix('_s').replace('_', '-')}",))
        typed = {"is_flag": True} if kind is bool else {"type": _kind(kind)}
        decorators.append(click.option(*names, name, **{"help": text, **typed, **settings}))
    return combined(*decorators)
