"""Progress bars and messages on standard error; standard output is for results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

from msdc.errors import printable

Item = TypeVar("Item")


def track(items: Iterable[Item], label: str, *, enabled: bool = True, total: int | None = None) -> Iterator[Item]:
    """Iterate with a progress bar on standard error; silent if not `enabled` or without a terminal.

    `label` is the text in front of the bar; `total` the number of items, if `items` has no length.
    """
    if not enabled or not in_terminal():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as rich_track

    if total is None and isinstance(items, Sized):
        total = len(items)
    yield from rich_track(items, description=label, total=total, console=Console(stderr=True), transient=True)


@contextmanager
def live_lines() -> Iterator[Callable[[list[str]], None]]:
    """A function that shows lines below the output and replaces them at each call; does nothing without a terminal."""
    if not in_terminal():
        yield lambda lines: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), transient=True, auto_refresh=False) as live:
        yield lambda lines: live.update(Text("\n".join(map(printable, lines))), refresh=True)


_quiet = False


def be_quiet(quiet: bool) -> None:
    """Switch off bars and the lines of `say` from now on, or on again: `--quiet` of the command line."""
    global _quiet
    _quiet = quiet


def in_terminal() -> bool:
    """Whether a bar can be drawn: standard error is a terminal, and `--quiet` is not set."""
    return not _quiet and sys.stderr.isatty()


def say(message: str) -> None:
    """Print one line on standard error, progress or a remark, unless `--quiet` is set."""
    if not _quiet:
        warn(message)


def warn(message: str) -> None:
    """Print a warning on standard error, also with `--quiet`."""
    print(printable(message), file=sys.stderr, flush=True)
