"""The options of every verb, frozen: a change of the command line is a change of `command_line.json`.

Write the file again with `MSDC_WRITE_COMMAND_LINE=1 python -m pytest tests/msdc/test_command_line.py`, and read the
difference before committing it.
"""

import json
import os
from pathlib import Path

import click

from msdc.cli import msdc

FROZEN = Path(__file__).with_name("command_line.json")


def _parameter(parameter: click.Parameter) -> str:
    """What a script that calls `msdc` depends on, as one line; help texts and defaults are free to change."""
    spellings = sorted([*parameter.opts, *parameter.secondary_opts])
    words = ["ARGUMENT"] if isinstance(parameter, click.Argument) else spellings
    words = [*words, f"({parameter.type.name})"]
    choices = getattr(parameter.type, "choices", None)
    words += ["|".join(map(str, choices))] if choices else []
    words += [name for name in ("required", "multiple", "is_flag") if getattr(parameter, name, False)]
    return " ".join(words + (["many"] if parameter.nargs != 1 else []))


def _tree(command: click.Command, context: click.Context, path: str = "msdc") -> dict[str, list[str]]:
    """Command path -> its parameters."""
    found = {path: sorted(_parameter(parameter) for parameter in command.params)}
    if isinstance(command, click.Group):
        children = {name: command.get_command(context, name) for name in command.list_commands(context)}
        for name, child in children.items():
            assert child is not None
            found |= _tree(child, context, f"{path} {name}")
    return found


def current() -> dict[str, list[str]]:
    return _tree(msdc, click.Context(msdc))


def test_the_options_are_the_frozen_ones():
    text = json.dumps(current(), indent=1, ensure_ascii=False) + "\n"
    if os.environ.get("MSDC_WRITE_COMMAND_LINE"):
        FROZEN.write_text(text, encoding="utf-8")
    assert json.loads(text) == json.loads(FROZEN.read_text(encoding="utf-8")), "see the head of this file"
