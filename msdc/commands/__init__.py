"""The subcommands encode, compare, search, models, doctor and distill, and options of those that run any model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from msdc.command_options import combined
from msdc.errors import InputError


class RuntimeName(click.ParamType[str]):
    """One of the runtimes, which are imported only where the option is used or shown."""

    name = "runtime"

    def _choice(self) -> click.Choice[str]:
        from msdc.export.runtimes import RUNTIMES

        return click.Choice(RUNTIMES.names())

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str | None:
        """The names, as of a choice."""
        return self._choice().get_metavar(param, ctx)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """One of the names."""
        return self._choice().convert(value, param, ctx)


# Which program of a model computes the vectors.
program_options = combined(
    click.option("--runtime", type=RuntimeName(), help="Runtime of a bundle."),
    click.option(
        "--precision", type=click.Choice(["float", "int8"]),
        help="Precision of a model that is no bundle. Default: int8 for a shipped model, else float.",
    ),
)  # fmt: skip


def require_utf8(texts: Sequence[str], what: str) -> list[str]:
    """Check arguments of the command line, which Python decodes with surrogates if they are not UTF-8."""
    for number, text in enumerate(texts, 1):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            byte_offset = len(text[: error.start].encode("utf-8", "surrogateescape"))
            raise InputError(f"{what} {number}: not valid UTF-8 (at byte {byte_offset})") from error
    return list(texts)
