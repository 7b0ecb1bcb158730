"""Progress bars and messages on standard error, so that standard output stays for results."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], label: str, *, enabled: bool = True, total: int | None = None) -> Iterator[Item]:
    """Iterate with a progress bar on standard error; silent when disabled or when nobody watches a terminal."""
    if not enabled or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as rich_track

    if total is None and isinstance(items, Sized):
        total = len(items)
    yield from rich_track(items, description=label, total=total, console=Console(stderr=True), transient=True)


def say(message: str) -> None:
    """One line for the person watching, on standard error."""
    print(message, file=sys.stderr, flush=True)
