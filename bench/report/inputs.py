"""What a report is made from: result files, documents of `msdc evaluate`, sweeps and training runs.

`read_inputs` reads files; `Data` is what every section reads, each run and model with one style in all of the report.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from msdc.bench.accuracy.document import Document, is_document, read_document
from msdc.bench.compare import Comparison
from msdc.bench.report.drawing import SHAPES
from msdc.bench.report.model import Style
from msdc.bench.result import Accuracy, BenchFile, DeviceRun, ModelScores, read_results, result_files
from msdc.distill.run_folder import METRICS_FILE, Metrics
from msdc.distill.sweep import TABLE_FILE, SweepTable, is_sweep, read_sweep
from msdc.errors import InputError
from msdc.files import read_json

COLORS = ("c1", "c2", "c3", "c4", "c5", "c6")
MODEL_STYLES = {
    "teacher": ("m1", "ring"),
    "assistant": ("m2", "ring"),
    "student": ("m3", "diamond"),
    "peer": ("m4", "cross"),
    "other": ("m4", "triangle"),
}


@dataclass(frozen=True)
class Inputs:
    """The files of one `msdc report`, read."""

    results: BenchFile
    evaluations: Sequence[Document] = ()
    sweeps: Sequence[SweepTable] = ()
    run: Path | None = None


def is_run(path: Path) -> bool:
    """Whether a folder is that of a run of msdc distill, finished or not."""
    return all((path / name).is_file() for name in ("recipe.yaml", METRICS_FILE))


def read_inputs(paths: Sequence[Path]) -> Inputs:
    """Read files, and folders of them; the folder of a sweep stands for its table, one of a run for its curves."""
    runs = [path for path in paths if is_run(path)]
    if len(runs) > 1:
        raise InputError(f"{runs[1]}: a report has one run; `msdc distill --sweep` makes one page for several")
    files: list[Path] = []
    for path in paths:
        table = path / TABLE_FILE
        if path not in runs:
            files += [table] if table.is_file() and is_sweep(read_json(table)) else result_files([path])
    evaluations, sweeps, results = [], [], []
    for file in files:
        raw = read_json(file)
        if is_document(raw):
            evaluations.append(read_document(raw, str(file)))
        elif is_sweep(raw):
            sweeps.append(read_sweep(raw, str(file)))
        else:
            results.append(file)
    return Inputs(read_results(results) if results else BenchFile(), evaluations, sweeps, runs[0] if runs else None)


@dataclass
class StageLog:
    """One training stage. `losses` (mean since the previous row) and `validated` (numbers) are by step; `shares` are
    the parts of the loss by objective, of a finished stage.
    """

    name: str
    losses: dict[int, float] = field(default_factory=dict)
    validated: dict[int, dict[str, float]] = field(default_factory=dict)
    seconds: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """The last step that was logged."""
        return max((*self.losses, *self.validated), default=0)

    def chosen(self) -> tuple[int, dict[str, float]] | None:
        """The validation of the checkpoint that the stage kept, the one with the best `choice`; None without any."""
        scored = [row for row in self.validated.items() if "choice" in row[1]]
        return max(scored, key=lambda row: row[1]["choice"]) if scored else None


def _numbers(row: dict[str, object]) -> dict[str, float]:
    return {k: float(v) for k, v in row.items() if isinstance(v, (int, float)) and math.isfinite(v)}


def read_training(run_folder: Path) -> list[StageLog]:
    """The stages of a run in order of first appearance; of a step that was logged again the later row counts."""
    if not (run_folder / METRICS_FILE).is_file():
        raise InputError(f"{run_folder}: no {METRICS_FILE}; expected the run folder of msdc distill")
    stages: dict[str, StageLog] = {}
    for row in Metrics(run_folder / METRICS_FILE).rows():
        name, done, numbers = row.get("stage"), row.get("done"), _numbers(row)
        if isinstance(done, dict) and name in stages:
            shares = {key.removeprefix("share_"): v for key, v in _numbers(done).items() if key.startswith("share_")}
            stages[name].shares = shares
        if name is None or "step" not in row:
            continue  # the end of a stage, or a remark on the run
        stage, step = stages.setdefault(name, StageLog(name)), int(row["step"])
        if "loss" in numbers:
            stage.losses[step] = numbers["loss"]
            stage.seconds = max(stage.seconds, numbers.get("seconds", 0.0))
        if isinstance(row.get("evaluation"), dict):
            stage.validated[step] = _numbers(row["evaluation"])
    return list(stages.values())


def numbered_style(name: str, i: int) -> Style:
    """The style of the i-th of several runs or curves."""
    return Style(name, COLORS[i % len(COLORS)], SHAPES[(i + i // len(COLORS)) % 4])


def _label(run: DeviceRun, runs: Sequence[DeviceRun]) -> str:
    """The shortest name that distinguishes `run` from the others."""
    label = f"{run.artifact.runtime} {run.artifact.precision}"
    if len({r.artifact.bundle for r in runs}) > 1:
        label = f"{run.artifact.bundle} {label}"
    if len({(r.device.kind, r.device.name) for r in runs}) > 1:
        label += f" on {run.device.name}"
    if len({r.harness for r in runs if r.device == run.device}) > 1:
        label += f", {run.harness}"
    if len({r.threads for r in runs}) > 1:
        label += f", {run.threads} thread{'s' if run.threads > 1 else ''}"
    return label


def run_styles(runs: Sequence[DeviceRun]) -> list[Style]:
    """One style per run, in order; of equal names the day tells them apart, or a number."""
    labels = [_label(run, runs) for run in runs]
    dated = [f"{label}, {run.created[:10]}" for label, run in zip(labels, runs, strict=True)]
    names = [
        day if labels.count(label) > 1 and dated.count(day) == 1 else label
        for label, day in zip(labels, dated, strict=True)
    ]
    numbered = (f"{name} ({names[: i + 1].count(name)})" if names.count(name) > 1 else name
                for i, name in enumerate(names))  # fmt: skip
    return [numbered_style(name, i) for i, name in enumerate(numbered)]


@dataclass(frozen=True)
class Twin:
    """The student's twin with a recurring unit: name, run folder, and the gate that its int8 export missed, if any."""

    name: str
    folder: Path
    missed_gate: str = ""


Scored = DeviceRun | ModelScores
Task = tuple[str, str]


def spearmans(scored: Scored) -> dict[Task, Accuracy]:
    """The scores that are a Spearman, by task and data set."""
    return {(a.task, a.name): a for a in scored.accuracy if a.spearman is not None}


@dataclass(frozen=True)
class Data:
    """Everything the sections read. `twin` differs from the student only in how often its unit is applied."""

    results: BenchFile
    evaluations: Sequence[Document] = ()
    sweeps: Sequence[SweepTable] = ()
    comparisons: Sequence[Comparison] = ()
    stages: Sequence[StageLog] = ()
    running: bool = False
    twin: Twin | None = None

    @cached_property
    def runs(self) -> list[tuple[DeviceRun, Style]]:
        """All runs with their styles."""
        return list(zip(self.results.runs, run_styles(self.results.runs), strict=True))

    @cached_property
    def models(self) -> list[tuple[ModelScores, Style]]:
        """All float models with their styles, by role."""
        return [(one, Style(f"{one.role}: {one.name}", *MODEL_STYLES[one.role])) for one in self.results.models]

    @cached_property
    def timed(self) -> list[tuple[DeviceRun, Style]]:
        """Runs measured in time."""
        return [(run, style) for run, style in self.runs if run.clock == "wall"]

    @cached_property
    def counted(self) -> list[tuple[DeviceRun, Style]]:
        """Runs measured in instructions."""
        return [(run, style) for run, style in self.runs if run.clock == "instructions"]

    @cached_property
    def tasks(self) -> list[Task]:
        """(task, data set) of every score with a Spearman, in order of appearance."""
        owners: list[Scored] = [*self.results.models, *self.results.runs]
        return list(dict.fromkeys(task for one in owners for task in spearmans(one)))

    @cached_property
    def length(self) -> int | None:
        """The length in tokens of headline latencies: 32, or the middle one of those that all runs measured."""
        sets = [{t.length for t in run.latency if t.length} for run in self.results.runs if run.latency]
        shared = sorted(set.intersection(*sets)) if sets else []
        return 32 if 32 in shared else shared[len(shared) // 2] if shared else None

    def latency(self, run: DeviceRun) -> float | None:
        """Median at `length`, in the unit of the run's clock; None where it was not measured."""
        return next((timing.p50 for timing in run.latency if self.length and timing.length == self.length), None)

    def mean(self, scored: Scored) -> float | None:
        """Mean Spearman over `tasks`; None unless all are there: a mean over fewer sets is a different number."""
        values = [entry.spearman or 0.0 for entry in spearmans(scored).values()]
        return sum(values) / len(values) if values and len(values) == len(self.tasks) else None

    def scored_runs(self) -> list[tuple[DeviceRun, Style, float]]:
        """The runs that have every score, with their mean."""
        return [(run, style, mean) for run, style in self.runs if (mean := self.mean(run)) is not None]
