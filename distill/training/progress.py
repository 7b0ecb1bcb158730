"""The progress of a stage, on standard error and in experiment trackers, whose libraries are not dependencies.

Standard error has a bar in a terminal, else one line every 30 seconds. Trackers receive the rows of metrics.jsonl as
numbers under `STAGE/NAME`; steps are counted across stages. A resumed run continues the same TensorBoard folder, and
the same wandb, trackio or MLflow run: its id is stored in the run folder.
"""

from __future__ import annotations

import importlib
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import shorten
from time import monotonic
from typing import Any, Self

from msdc.errors import InputError, MsdcError, did_you_mean
from msdc.files import read_json, write_json
from msdc.progress import in_terminal, say, warn

LINE_SECONDS = 30.0
PROJECT = "msdc"
MOST_FAILURES = 20  # errors of a tracker in a row, after which it is dropped


def _duration(seconds: float) -> str:
    """`45 s`, `12 min`, `3 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


class StageProgress:
    """Shows steps with the loss, its parts, learning rate, sentences per second and time left.

    A context manager. Losses and speed are means since the last line (the last half second of a bar). The parts of the
    loss, one per objective, are shown if there are several.

    `enabled` is false in all processes but the first.
    """

    def __init__(self, label: str, steps: int | None = None, *, enabled: bool = True) -> None:
        self.label, self.steps, self.enabled = label, steps, enabled
        self._bar: Any = None
        self._task: Any = None
        self._terminal = enabled and in_terminal()
        self._every = 0.5 if self._terminal else LINE_SECONDS
        self._shown = monotonic()
        self._losses: list[float] = []
        self._parts: dict[str, list[float]] = {}
        self._sentences = 0
        self._first: tuple[float, int] | None = None

    def __enter__(self) -> Self:
        if self._terminal:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            name, text = TextColumn("{task.description}"), TextColumn("{task.fields[text]}")
            console = Console(stderr=True)
            self._bar = Progress(name, BarColumn(), MofNCompleteColumn(), text, console=console, transient=True)
            self._task = self._bar.add_task(self.label, total=self.steps, text="")
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, step: int, loss: float, learning_rate: float, sentences: int, parts: Mapping[str, float]) -> None:
        """A step is done: its number from 1, loss, learning rate, sentences of its batch, and parts of the loss."""
        now = monotonic()
        if self._first is None:
            # Speed and time left are counted from here, without filling the buffer and starting up.
            self._first, self._shown, sentences = (now, step), now, 0
        self._losses.append(loss)
        for name, value in parts.items():
            self._parts.setdefault(name, []).append(value)
        self._sentences += sentences
        if not self.enabled or now - self._shown < self._every:
            return
        spent = max(now - self._shown, 1e-9)
        began, first = self._first
        shown = f"loss {fmean(self._losses):.4g}"
        if len(self._parts) > 1:
            shown += f" ({', '.join(f'{name} {fmean(values):.3g}' for name, values in self._parts.items())})"
        words = [shown, f"lr {learning_rate:.2g}", f"{self._sentences / spent:,.0f} sentences/s"]
        if self.steps is not None and step > first:
            words.append(f"{_duration((now - began) / (step - first) * (self.steps - step))} left")
        self._losses, self._parts, self._sentences = [], {}, 0
        self._shown = monotonic()
        if self._bar is not None:
            self._bar.update(self._task, completed=step, text=", ".join(words))
        else:
            say(f"{self.label}: step {step}/{self.steps}, {', '.join(words)}")


# --- trackers -------------------------------------------------------------------------------------------------------

# A function that logs numbers by name at a step, and one that flushes and finishes.
Opened = tuple[Callable[[dict[str, float], int], Any], Callable[[], Any]]


def _tensorboard(folder: Path, name: str, settings: dict[str, Any], ident: str) -> Opened:
    from torch.utils.tensorboard import SummaryWriter

    writer: Any = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call]

    return lambda numbers, step: [writer.add_scalar(key, value, step) for key, value in numbers.items()], writer.close


def _wandb(folder: Path, name: str, settings: dict[str, Any], ident: str) -> Opened:
    import wandb

    run: Any = wandb.init(project=PROJECT, name=name, id=ident, resume="allow", dir=str(folder), config=settings)
    return lambda numbers, step: run.log(numbers, step=step), run.finish


def _trackio(folder: Path, name: str, settings: dict[str, Any], ident: str) -> Opened:
    import trackio

    # trackio identifies a run by its name.
    trackio.init(project=PROJECT, name=f"{name}-{ident}", resume="allow", config=settings)
    return lambda numbers, step: trackio.log(numbers, step=step), trackio.finish


def _mlflow(folder: Path, name: str, settings: dict[str, Any], ident: str) -> Opened:
    import mlflow

    mlflow.set_experiment(PROJECT)
    if runs := mlflow.search_runs(filter_string=f"tags.msdc_id = '{ident}'", output_format="list"):
        mlflow.start_run(run_id=runs[0].info.run_id)
    else:
        mlflow.start_run(run_name=name, tags={"msdc_id": ident})
        for key, value in settings.items():  # in one call at most 100
            mlflow.log_param(key, str(value)[:500])
    return lambda numbers, step: mlflow.log_metrics(numbers, step=step), mlflow.end_run


# By the name of the package.
TRACKERS: dict[str, Callable[[Path, str, dict[str, Any], str], Opened]] = {
    "tensorboard": _tensorboard, "wandb": _wandb, "trackio": _trackio, "mlflow": _mlflow,
}  # fmt: skip


def require_trackers(names: Sequence[str]) -> None:
    """Check that the packages are installed, before a run begins."""
    for name in names:
        if name not in TRACKERS:
            raise InputError(f"`trackers` {name!r} is unknown{did_you_mean(name, TRACKERS)}")
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise InputError(f"`trackers` {name}: not installed; pip install {name}") from error


def flat_numbers(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The finite numbers of a row of metrics; those of inner mappings as `outer/inner`."""
    numbers: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            numbers |= flat_numbers(value, f"{prefix}{key}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            numbers[f"{prefix}{key}"] = float(value)
    return numbers


class _Tracker:
    """One tracker, whose errors never end a run: rows that it did not take are sent again with the next one.

    After MOST_FAILURES errors in a row it is dropped. Both are said once.
    """

    def __init__(self, name: str, log: Callable[[dict[str, float], int], Any], close: Callable[[], Any]) -> None:
        self.name, self._log, self._close = name, log, close
        self._waiting: list[tuple[dict[str, float], int]] = []
        self._failures, self._dropped = 0, False

    def log(self, numbers: dict[str, float], step: int) -> None:
        if not self._dropped:
            self._waiting.append((numbers, step))
            self._send()

    def _send(self) -> None:
        try:
            while self._waiting:
                self._log(*self._waiting[0])
                del self._waiting[0]
                self._failures = 0
        except Exception as error:  # of the library, such as a server that is away
            self._failures += 1
            if self._failures == 1:
                self._say(error, "its rows wait for the next one, training goes on")
            if self._failures == MOST_FAILURES:
                self._dropped = True
                self._say(
                    error, f"no more rows are sent to it after {MOST_FAILURES} errors in a row; metrics.jsonl has all"
                )

    def _say(self, error: Exception, what: str) -> None:
        warn(f"tracker {self.name}: {shorten(' '.join(str(error).split()), 200) or type(error).__name__}: {what}")

    def close(self) -> None:
        """Send what waits and flush."""
        if not self._dropped and self._waiting:
            self._send()
        if self._waiting and not self._dropped:
            warn(f"tracker {self.name}: {len(self._waiting)} rows were not taken; metrics.jsonl has all")
        try:
            self._close()
        except Exception as error:
            self._say(error, "it was not closed properly")


class Trackers:
    """All trackers of a run: `names` of TRACKERS, in its folder, under its name, with its settings.

    A tracker that cannot be opened is an error, since the run has just begun; later errors are warnings.
    """

    def __init__(self, names: Sequence[str], folder: Path, name: str, settings: dict[str, Any]) -> None:
        self._before = self._last = 0
        self._stage: str | None = None
        self._open: list[_Tracker] = []
        file = folder / "trackers.json"
        if names and not file.is_file():
            write_json(file, {"id": uuid.uuid4().hex[:12]})
        for tracker_name in names:
            try:
                self._open.append(
                    _Tracker(tracker_name, *TRACKERS[tracker_name](folder, name, settings, str(read_json(file)["id"])))
                )
            except Exception as error:  # of the library, such as a missing login
                self.close()
                raise MsdcError(f"`trackers` {tracker_name}: {shorten(' '.join(str(error).split()), 200)}") from error

    def log(self, row: Mapping[str, Any]) -> None:
        """One row of metrics.jsonl."""
        stage = str(row.get("stage", "run"))
        if stage != self._stage:
            self._before, self._stage, self._last = self._before + self._last, stage, 0
        step = int(row.get("step", self._last))
        self._last = max(self._last, step)
        numbers = flat_numbers({key: value for key, value in row.items() if key != "step"}, f"{stage}/")
        for tracker in self._open:
            tracker.log(numbers, self._before + step)

    def skip(self, steps: int) -> None:
        """Count the steps of a stage that an earlier session finished."""
        self._before += steps

    def close(self) -> None:
        """Flush all of them."""
        for tracker in self._open:
            tracker.close()
        self._open = []
