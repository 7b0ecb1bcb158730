"""Experiment trackers beside metrics.jsonl, written by the trackers' own libraries, which are not dependencies.

Each takes the rows of metrics.jsonl as numbers under `STAGE/NAME`; steps count on from stage to stage. A resumed run
continues the same TensorBoard folder, and the same wandb, trackio or MLflow run: its id is kept in the run folder.
"""

from __future__ import annotations

import importlib
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol

from msdc.errors import InputError, MsdcError
from msdc.files import read_json, write_json

PROJECT = "msdc"
IDS_FILE = "trackers.json"


class Tracker(Protocol):
    """Takes numbers by name at a step."""

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        """Numbers of one row."""

    def close(self) -> None:
        """Flush and finish."""


def flat_numbers(row: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The finite numbers of a row of metrics; those of inner mappings as `outer/inner`."""
    found: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, Mapping):
            found |= flat_numbers(value, f"{prefix}{key}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
            found[f"{prefix}{key}"] = float(value)
    return found


class _TensorBoard:
    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], ident: str) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(str(folder / "tensorboard"))  # type: ignore[no-untyped-call]

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        for key, value in numbers.items():
            self.writer.add_scalar(key, value, step)

    def close(self) -> None:
        self.writer.close()


class _Wandb:
    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], ident: str) -> None:
        import wandb

        self.run: Any = wandb.init(
            project=PROJECT, name=name, id=ident, resume="allow", dir=str(folder), config=dict(config)
        )

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self.run.log(dict(numbers), step=step)

    def close(self) -> None:
        self.run.finish()


class _Trackio:
    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], ident: str) -> None:
        import trackio

        # trackio knows a run by its name.
        self.run: Any = trackio.init(project=PROJECT, name=f"{name}-{ident}", resume="allow", config=dict(config))
        self.library: Any = trackio

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        self.library.log(dict(numbers), step=step)

    def close(self) -> None:
        self.library.finish()


class _MLflow:
    def __init__(self, folder: Path, name: str, config: Mapping[str, Any], ident: str) -> None:
        import mlflow

        self.library: Any = mlflow
        mlflow.set_experiment(PROJECT)
        known = mlflow.search_runs(filter_string=f"tags.msdc_id = '{ident}'", output_format="list")
        if known:
            mlflow.start_run(run_id=known[0].info.run_id)
            return
        mlflow.start_run(run_name=name, tags={"msdc_id": ident})
        for key, value in config.items():
            mlflow.log_param(key, str(value)[:500])

    def log(self, numbers: Mapping[str, float], step: int) -> None:
        # MLflow allows no brackets or percent signs in names; ours have none.
        self.library.log_metrics(dict(numbers), step=step)

    def close(self) -> None:
        self.library.end_run()


@dataclass(frozen=True)
class TrackerKind:
    """A tracker: the package it needs, and what opens it in a run folder with a name, settings and an id."""

    package: str
    open: Callable[[Path, str, Mapping[str, Any], str], Tracker]


TRACKERS: dict[str, TrackerKind] = {
    "tensorboard": TrackerKind("tensorboard", _TensorBoard),
    "wandb": TrackerKind("wandb", _Wandb),
    "trackio": TrackerKind("trackio", _Trackio),
    "mlflow": TrackerKind("mlflow", _MLflow),
}


def require_trackers(names: Sequence[str]) -> None:
    """Check that the packages are there, before a run begins.

    Raises:
        InputError: one is not installed; the message says how to install it.
    """
    for name in names:
        package = TRACKERS[name].package
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise InputError(f"--log {name}: not installed; pip install {package}") from error


class Trackers:
    """All trackers of a run.

    Args:
        names: of TRACKERS.
        folder: the run folder.
        name: of the run.
        config: settings to show beside it.

    Raises:
        MsdcError: a tracker's library cannot open a run.
    """

    def __init__(self, names: Sequence[str], folder: Path, name: str, config: Mapping[str, Any]) -> None:
        self._before = 0
        self._stage: str | None = None
        self._last = 0
        self._open: list[Tracker] = []
        if names:
            file = folder / IDS_FILE
            if not file.is_file():
                write_json(file, {"id": uuid.uuid4().hex[:12]})
            ident = str(read_json(file)["id"])
            for one in names:
                try:
                    self._open.append(TRACKERS[one].open(folder, name, config, ident))
                except Exception as error:  # of its library: no login, a store that it does not open
                    self.close()
                    raise MsdcError(f"--log {one}: {shorten(' '.join(str(error).split()), 200)}") from error

    def log(self, row: Mapping[str, Any]) -> None:
        """One row of metrics.jsonl."""
        if not self._open:
            return
        stage = str(row.get("stage", "run"))
        if stage != self._stage:
            self._before, self._stage = self._before + self._last, stage
            self._last = 0
        step = int(row.get("step", self._last))
        self._last = max(self._last, step)
        numbers = flat_numbers({key: value for key, value in row.items() if key != "step"}, f"{stage}/")
        for tracker in self._open:
            tracker.log(numbers, self._before + step)

    def skip(self, steps: int) -> None:
        """Count the steps of a stage that was finished before."""
        self._before += steps

    def close(self) -> None:
        """Flush all of them."""
        for tracker in self._open:
            tracker.close()
        self._open = []
