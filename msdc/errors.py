"""Errors a user can act on: one line that says what is wrong and what to do, and the exit code that goes with it."""

from __future__ import annotations


class MsdcError(Exception):
    """The work failed although the request was understood. Exit code 1."""

    exit_code = 1


class InputError(MsdcError):
    """What the user handed over is wrong: a path, a recipe, a corpus line, an option. Exit code 2."""

    exit_code = 2


class GateError(MsdcError):
    """A promised quality fell short (parity, size, delegation). Exit code 1."""
