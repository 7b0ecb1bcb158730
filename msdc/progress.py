"""Progress bars and messages on standard error; standard output is for results."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

from msdc.errors import printable

Item = TypeVar("Item")


def track(items: Iterable[Item], label: str, *, enabled: bool = True, total: int | None = None) -> Iterator[Item]:
    """Iterate with a progress bar on standard error; silent if disabled or without a terminal.

    Args:
        items: what to iterate over.
        label: text in front of the bar.
        enabled: whether to show the bar at all.
        total: number of items, where `items` has no length.
    """
    if not enabled or not in_terminal():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as rich_track

    if total is None and isinstance(items, Sized):
        total = len(items)
    yield from rich_track(items, description=label, total=total, console=Console(stderr=True), transient=True)


def in_terminal() -> bool:
    """Whether standard error is a terminal, so that a bar can be drawn."""
    return sys.stderr.isatty()


def say(message: str) -> None:
    """Print one line on standard error."""
    print(printable(message), file=sys.stderr, flush=True)
