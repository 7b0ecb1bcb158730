"""Errors that a user can act on: one line that says what is wrong and what to do, and the exit code."""

from __future__ import annotations


class MsdcError(Exception):
    """A valid request failed. Exit code 1."""

    exit_code = 1


class InputError(MsdcError):
    """Invalid input: a path, a recipe, a corpus line, an option. Exit code 2."""

    exit_code = 2


class GateError(MsdcError):
    """A quality gate failed (parity, size, delegation). Exit code 1."""
