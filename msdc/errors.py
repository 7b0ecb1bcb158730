"""Errors that a user can act on: one line with the problem and its remedy, and the exit code."""

from __future__ import annotations

import contextlib
import difflib
import errno
import re
from collections.abc import Iterable, Iterator
from typing import Any

# Control characters except line end and tab (ESC starts a terminal's commands), and marks that change text direction.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """`text` with what could control a terminal replaced by U+FFFD; for output of devices and files."""
    return _UNSAFE.sub("\ufffd", text)


def first_line(error: BaseException) -> str:
    """The first line of an exception's message, or its type."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def first_problem(error: Any) -> str:
    """`KEY: problem` of the first mistake in a `pydantic.ValidationError`: one line of bounded length."""
    first = error.errors()[0]
    problem = first["msg"].removeprefix("Value error, ")
    where = ".".join(map(str, first["loc"]))[:500]
    return printable(" ".join(": ".join(filter(None, (where, problem[:500]))).split()))


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """`; did you mean 'corpora'?` for a word similar to a known one, else the known ones; empty if there are none."""
    words = list(dict.fromkeys(choices))
    near = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f" (known: {', '.join(words)})" if words else ""


class MsdcError(Exception):
    """A valid request failed. Exit code 1."""

    exit_code = 1


class DiskFullError(MsdcError):
    """There is no space for a file."""


class InputError(MsdcError, ValueError):
    """Invalid input: a path, a recipe, a corpus line, an option. Exit code 2. Also a `ValueError`."""

    exit_code = 2


class InUse(InputError):
    """A file that another process writes."""


class OtherModel(InputError):
    """An intact search index of another model: `rebuild` encodes its documents again."""


class ReplacedIndex(InputError):
    """A search index whose path has another file than the one that was opened, or none: open it again."""


class TornFile(InputError):
    """A file that ends in the middle, or is damaged from `line` on (the last one that could be read)."""

    def __init__(self, path: object, line: int, what: str, error: object) -> None:
        super().__init__(f"{path}: {what} after line {line} ({error})")
        self.line, self.why = line, f"{what} ({error})"


class GateError(MsdcError):
    """A quality gate failed (parity, size, delegation). Exit code 1."""


# A thread that finds no memory for its stack is a resource that is "temporarily unavailable".
_NO_MEMORY = re.compile(
    r"bad.alloc|out of memory|not enough memory|(can't|cannot|failed to) allocate memory|resource temporarily unavail|"
    "failed to map segment",  # of a shared library
    re.I,
)


def shortage(error: Exception) -> str:
    """What the process lacked, memory or file descriptors, whatever that led to: libraries report it as a fault of a
    file. Empty if neither."""
    cause: BaseException | None = error
    while cause is not None:
        # An error of our own may quote the words of a child process, whose memory is bounded.
        if isinstance(cause, MemoryError) or (not isinstance(cause, MsdcError) and _NO_MEMORY.search(str(cause))):
            return "out of memory" + (f" ({first_line(cause)})" if str(cause) else "")
        if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
            return "too many open files: raise the limit (`ulimit -n`) and run again"
        cause = cause.__cause__
    return ""


@contextlib.contextmanager
def named_shortage(what: str) -> Iterator[None]:
    """One line that names the lack of memory or of file descriptors."""
    try:
        yield
    except Exception as error:
        if reason := shortage(error):
            raise MsdcError(f"{what}: {reason}") from error
        raise


class InconclusiveError(MsdcError):
    """A gate neither passed nor failed: the machine was too noisy. Exit code 3."""

    exit_code = 3
