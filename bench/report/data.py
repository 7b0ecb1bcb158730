"""What the sections are generated from: runs and models, each with one name, color and marker in all of the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msdc.bench.compare import Comparison
from msdc.bench.report.drawing import SHAPES
from msdc.bench.report.inputs import TrainingLog
from msdc.bench.result import Accuracy, BenchFile, DeviceRun, ModelScores

RUN_COLORS = ("c1", "c2", "c3", "c4", "c5", "c6")
MODEL_STYLES = {
    "teacher": ("m1", "ring"),
    "assistant": ("m2", "ring"),
    "student": ("m3", "diamond"),
    "peer": ("m4", "cross"),
    "other": ("m4", "triangle"),
}


@dataclass(frozen=True)
class Style:
    """Name, color variable and marker shape of one run or model; color alone never tells two apart."""

    name: str
    color: str
    shape: str


def _label(run: DeviceRun, runs: Sequence[DeviceRun]) -> str:
    """The shortest name that distinguishes `run` from the others."""
    parts = [run.artifact.runtime, run.artifact.precision]
    if len({r.artifact.bundle for r in runs}) > 1:
        parts.insert(0, run.artifact.bundle)
    label = " ".join(parts)
    if len({(r.device.kind, r.device.name) for r in runs}) > 1:
        label += f" on {run.device.name}"
    if len({r.harness for r in runs if r.device == run.device}) > 1:
        label += f", {run.harness}"
    if len({r.threads for r in runs}) > 1:
        label += f", {run.threads} thread{'s' if run.threads > 1 else ''}"
    return label


def style_runs(runs: Sequence[DeviceRun]) -> list[Style]:
    """One style per run, in order; equal names are numbered."""
    names = [_label(run, runs) for run in runs]
    # Measured again on another day: the day says more than a number.
    dated = [f"{name}, {run.created[:10]}" for name, run in zip(names, runs, strict=True)]
    names = [
        day if names.count(name) > 1 and dated.count(day) == 1 else name for name, day in zip(names, dated, strict=True)
    ]
    styles = []
    for i, name in enumerate(names):
        if names.count(name) > 1:
            name = f"{name} ({names[: i + 1].count(name)})"
        color, shape = RUN_COLORS[i % len(RUN_COLORS)], SHAPES[(i + i // len(RUN_COLORS)) % 4]
        styles.append(Style(name, color, shape))
    return styles


def style_models(models: Sequence[ModelScores]) -> list[Style]:
    """One style per float model, by its role."""
    return [Style(f"{model.role}: {model.name}", *MODEL_STYLES[model.role]) for model in models]


@dataclass(frozen=True)
class Twin:
    """The student's twin with a recurring unit: name, run folder, and the gate that its int8 export missed, if any."""

    name: str
    folder: Path
    missed_gate: str = ""


@dataclass(frozen=True)
class ReportData:
    """Everything the sections read; one of `styles` per run and one of `model_styles` per model, in order.

    `twin` differs from the student in one respect, how often its unit is applied.
    """

    results: BenchFile
    title: str
    training: TrainingLog | None = None
    comparisons: tuple[Comparison, ...] = ()
    twin: Twin | None = None
    styles: list[Style] = field(default_factory=list)
    model_styles: list[Style] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.styles.extend(style_runs(self.results.runs))
        self.model_styles.extend(style_models(self.results.models))

    def wall(self) -> list[tuple[DeviceRun, Style]]:
        """Runs measured in time."""
        return [(r, s) for r, s in zip(self.results.runs, self.styles, strict=True) if r.clock == "wall"]

    def counted(self) -> list[tuple[DeviceRun, Style]]:
        """Runs measured in instructions."""
        return [(r, s) for r, s in zip(self.results.runs, self.styles, strict=True) if r.clock == "instructions"]

    def everything(self) -> list[tuple[DeviceRun, Style]]:
        """All runs with their styles."""
        return list(zip(self.results.runs, self.styles, strict=True))

    def models(self) -> list[tuple[ModelScores, Style]]:
        """All float models with their styles."""
        return list(zip(self.results.models, self.model_styles, strict=True))

    def tasks(self) -> list[tuple[str, str]]:
        """(task, data set) of every score with a Spearman, in order of appearance."""
        owners: list[Sequence[Accuracy]] = [m.accuracy for m in self.results.models]
        owners += [r.accuracy for r in self.results.runs]
        return list(dict.fromkeys((a.task, a.name) for entries in owners for a in entries if a.spearman is not None))


def score_of(entries: Sequence[Accuracy], task: tuple[str, str]) -> Accuracy | None:
    """The entry of one task and data set."""
    return next((a for a in entries if (a.task, a.name) == task and a.spearman is not None), None)


def mean_spearman(entries: Sequence[Accuracy], tasks: Sequence[tuple[str, str]]) -> float | None:
    """Mean over `tasks`; None unless all are there, because a mean over fewer sets is a different number."""
    found = [score_of(entries, task) for task in tasks]
    if not found or any(entry is None for entry in found):
        return None
    return sum(entry.spearman for entry in found if entry and entry.spearman is not None) / len(found)
