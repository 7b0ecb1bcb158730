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
