"""Progress and messages: the command line prints them on standard error, a program that uses the package gets them
in its log (`logging.getLogger("msdc")`).

Standard output is for results. A process may have no standard error, or one that is closed.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import TypeVar

from msdc.errors import printable

Item = TypeVar("Item")
LINE_SECONDS = 10.0  # between two lines in a file
LOG = logging.getLogger("msdc")
LOG.addHandler(logging.NullHandler())
_listeners: list[Callable[[str], object]] = []  # to the warnings


def track(
    items: Iterable[Item],
    label: str,
    *,
    enabled: bool = True,
    requested: bool = False,
    total: int | None = None,
    size: Callable[[Item], int] = lambda item: 1,
) -> Iterator[Item]:
    """Iterate with a progress bar and a rate on standard error; without a terminal with a line every ten seconds.

    Silent if not `enabled` or with `--quiet`. Outside the command line the bar is drawn only if a caller `requested`
    it, else the lines go to the log. `label` is the text in front; `total` the sum of the sizes of all items, if that
    is not their number; `size` how much an item counts.
    """
    if not enabled or _quiet:
        yield from items
        return
    if total is None and isinstance(items, Sized):
        total = len(items)
    began = last = time.monotonic()
    done = 0

    def state() -> str:
        rate = done / max(time.monotonic() - began, 1e-9)
        time_left = f", {(total - done) / rate:,.0f} s left" if total and rate else ""
        return f"{label}: {done:,}{f' of {total:,}' if total else ''} ({rate:,.1f} per second{time_left})"

    if not in_terminal(requested):
        for item in items:
            yield item
            done += size(item)
            if time.monotonic() - last >= LINE_SECONDS and done != total:
                last = time.monotonic()
                say(state())
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    with Progress(BarColumn(), TextColumn("{task.description}"), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        for item in items:
            yield item
            done += size(item)
            bar.update(task, completed=done, description=state())


_quiet = False
_prints = False


def print_messages(prints: bool = True) -> None:
    """Print messages and bars on standard error from now on: this process is the command line's."""
    global _prints
    _prints = prints


def is_command_line() -> bool:
    """Whether this process prints messages, so that its streams and libraries are the command line's own."""
    return _prints


def be_quiet(quiet: bool) -> None:
    """Switch off bars and the lines of `say` from now on, or on again: `--quiet` of the command line."""
    global _quiet
    _quiet = quiet


def in_terminal(requested: bool = False) -> bool:
    """Whether a bar is drawn: on a terminal, by the command line without `--quiet`, or where it is requested."""
    try:
        return (_prints or requested) and not _quiet and sys.stderr.isatty()
    except (AttributeError, ValueError, OSError):  # no standard error, a closed one, or an object of another kind
        return False


def say(message: str) -> None:
    """One line, progress or a remark: printed on standard error unless `--quiet` is set, else logged."""
    if not _prints:
        LOG.info("%s", printable(message))
    elif not _quiet:
        _write(message)


def warn(message: str) -> None:
    """A warning: printed on standard error, also with `--quiet`, else logged."""
    if _prints:
        _write(message)
    else:
        LOG.warning("%s", printable(message))
    for listener in _listeners:
        listener(message)


@contextmanager
def warnings_to(listener: Callable[[str], object]) -> Iterator[None]:
    """Call `listener` with each warning too."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def _write(message: str) -> None:
    stream = sys.stderr
    try:
        if stream is not None:  # `print` would take standard output for None
            print(printable(message), file=stream, flush=True)
    except (AttributeError, ValueError, OSError):
        return  # closed
