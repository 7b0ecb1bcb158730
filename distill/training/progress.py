"""Progress of a training stage on standard error: a bar in a terminal, else one line every 30 seconds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from msdc.progress import in_terminal, say

LINE_SECONDS = 30.0


def _duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


class StageProgress:
    """Shows rows read, then steps with the loss, its parts, learning rate, sentences per second and time left.

    A context manager. Losses and speed are means since the last line (the last half second of a bar). Parts, one per
    objective, are shown where there are several.

    Args:
        label: what is being trained.
        steps: the last step of the stage.
        enabled: false in all processes but the first.
        seconds: time between lines where standard error is no terminal.
        clock: seconds, increasing; a test passes its own.
    """

    def __init__(
        self,
        label: str,
        steps: int | None = None,
        *,
        enabled: bool = True,
        seconds: float = LINE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label = label
        self.steps = steps
        self.enabled = enabled
        self.clock = clock
        self._bar: Any = None
        self._task: Any = None
        self._terminal = enabled and in_terminal()
        self._every = 0.5 if self._terminal else seconds
        self._shown = clock()
        self._losses: list[float] = []
        self._parts: dict[str, list[float]] = {}
        self._sentences = 0
        self._first: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        if self._terminal:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            text = TextColumn("{task.description}"), TextColumn("{task.fields[text]}")
            columns = text[0], BarColumn(), MofNCompleteColumn(), text[1]
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task(self.label, total=self.steps, text="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def _due(self) -> bool:
        return self.enabled and self.clock() - self._shown >= self._every

    def _show(self, text: str, step: int | None = None) -> None:
        self._shown = self.clock()
        if self._bar is not None:
            self._bar.update(self._task, completed=step, text=text)
        else:
            at = "" if step is None else f"step {step}/{self.steps}, "
            say(f"{self.label}: {at}{text}")

    def reading(self, rows: int) -> None:
        """Rows of text read so far, before the first step."""
        if self._due():
            self._show(f"reading the corpora, {rows:,} rows")

    def validating(self) -> None:
        """A validation begins; only a bar shows it."""
        if self._bar is not None:
            self._bar.update(self._task, text="validation")

    def step(
        self, step: int, loss: float, learning_rate: float, sentences: int, parts: Mapping[str, float] | None = None
    ) -> None:
        """A step is done: its number from 1, loss, learning rate, sentences of its batch, and parts of the loss."""
        now = self.clock()
        if self._first is None:
            # Speed and time left are counted from here: filling the buffer and starting up are not training.
            self._first, self._shown, sentences = (now, step), now, 0
        self._losses.append(loss)
        for name, value in (parts or {}).items():
            self._parts.setdefault(name, []).append(value)
        self._sentences += sentences
        if not self._due():
            return
        spent = max(now - self._shown, 1e-9)
        began, first = self._first
        shown = f"loss {_mean(self._losses):.4g}"
        if len(self._parts) > 1:
            shown += f" ({', '.join(f'{name} {_mean(values):.3g}' for name, values in self._parts.items())})"
        words = [shown, f"lr {learning_rate:.2g}", f"{self._sentences / spent:,.0f} sentences/s"]
        if self.steps is not None and step > first:
            words.append(f"{_duration((now - began) / (step - first) * (self.steps - step))} left")
        self._losses, self._parts, self._sentences = [], {}, 0
        self._show(", ".join(words), step)
