"""Types of command line options that several verbs share."""

from __future__ import annotations

from typing import Any

import click


class Numbers(click.ParamType):
    """Comma-separated whole numbers, as a tuple of int."""

    name = "N,N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Parse the text of an option; a tuple (a default) passes through."""
        if isinstance(value, tuple):
            return value
        try:
            return tuple(int(part) for part in str(value).split(",") if part.strip())
        except ValueError:
            self.fail(f"{value!r} is not a list of whole numbers; expected numbers such as 8,32,128", param, ctx)


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
