"""Progress bars and messages on standard error; standard output is for results."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, Self, TypeVar

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


class Counter:
    """Counts things of unknown number on standard error: a bar in a terminal, else one line every 30 seconds.

    A context manager. `noun` is what is counted.
    """

    def __init__(self, noun: str, seconds: float = 30.0) -> None:
        self.noun, self.count, self._every = noun, 0, seconds
        self._bar: Any = None
        self._began = self._said = time.monotonic()

    def __enter__(self) -> Self:
        if in_terminal():
            from rich.console import Console
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task(f"0 {self.noun}", total=None)
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def add(self, number: int) -> None:
        """So many more are done."""
        self.count += number
        now = time.monotonic()
        text = f"{self.count:,} {self.noun}, {self.count / max(now - self._began, 1e-9):,.0f}/s"
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=text)
        elif now - self._said >= self._every:
            self._said = now
            say(text)


_quiet = False


def be_quiet(quiet: bool) -> None:
    """Whether bars and the lines of `say` are left out from now on: `--quiet` of the command line."""
    global _quiet
    _quiet = quiet


def in_terminal() -> bool:
    """Whether a bar can be drawn: standard error is a terminal, and nobody asked for silence."""
    return not _quiet and sys.stderr.isatty()


def say(message: str) -> None:
    """Print one line on standard error: progress, or a remark; none with `--quiet`."""
    if not _quiet:
        warn(message)


def warn(message: str) -> None:
    """Print one line on standard error, also with `--quiet`: what is not as asked, or what is to be done."""
    print(printable(message), file=sys.stderr, flush=True)
