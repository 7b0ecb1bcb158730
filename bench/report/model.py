"""What a report is made from (`ReportData`: result files, evaluations, sweeps, training runs) and what it
consists of: sections of tables and figures, each a function of `ReportData`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from msdc.bench.accuracy.document import Evaluation, is_document, read_document
from msdc.bench.compare import Comparison
from msdc.bench.report.drawing import SHAPES, Figure, Style
from msdc.bench.result import (
    Accuracy,
    BenchFile,
    DeviceRun,
    ModelScores,
    Timing,
    device_key,
    device_name,
    percentile,
    read_results,
    result_files,
)
from msdc.distill.run_folder import METRICS_FILE, Metrics
from msdc.distill.sweep_table import TABLE_FILE, SweepTable, is_sweep, read_sweep
from msdc.errors import InputError
from msdc.files import read_json
from msdc.tables import NONE, Field, RowT, Table, fixed, joined, millions, number, text_field

MODEL_STYLES = {
    "teacher": ("m1", "ring"),
    "assistant": ("m2", "ring"),
    "student": ("m3", "diamond"),
    "peer": ("m4", "cross"),
    "other": ("m4", "triangle"),
}
# Sets that ship with msdc: a few sentences written for it, no benchmark.
HOME_MADE = {"graded-pairs"}


@dataclass(frozen=True)
class ReportSection:
    """One section; `lead` states its main finding. Below a recommendation it is folded unless `open`.

    Figures are above the tables unless `tables_first`.
    """

    id: str
    title: str
    lead: str = ""
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    tables_first: bool = False
    open: bool = False


class Strong(str):
    """A part of a sentence that is emphasized."""


# A sentence in parts.
Sentence = Sequence[str | Strong]


@dataclass(frozen=True)
class Report:
    """The whole report. Without `created` (a date and time) no date is shown. `warnings` are at the top, then the
    sentences of the `recommendation`; `missed` has one line per target that is not met, `undecided` one per target that
    a phone's state leaves open; `comparisons` are those with
    an earlier result; `source` is what it was made from.
    """

    title: str
    subtitle: str
    created: str = ""
    sections: Sequence[ReportSection] = ()
    warnings: Sequence[str] = ()
    recommendation: Sequence[Sentence] = ()
    missed: Sequence[str] = ()
    undecided: Sequence[str] = ()
    comparisons: Sequence[Comparison] = ()
    source: BenchFile | Evaluation | None = None


@dataclass(frozen=True)
class Inputs:
    """The files of one `msdc report`, read."""

    results: BenchFile
    evaluations: Sequence[Evaluation] = ()
    sweeps: Sequence[SweepTable] = ()
    run: Path | None = None


def is_run(path: Path) -> bool:
    """Whether a folder is that of a run of msdc distill, finished or not."""
    return all((path / name).is_file() for name in ("recipe.yaml", METRICS_FILE))


def read_inputs(paths: Sequence[Path]) -> Inputs:
    """Read files, and folders of them; the folder of a sweep gives its table, one of a run for its curves."""
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


def numbered_style(name: str, index: int) -> Style:
    """The style of the i-th of several artifacts or curves."""
    return Style(name, f"c{index % 6 + 1}", SHAPES[(index + index // 6) % 4])


Scored = DeviceRun | ModelScores
Task = tuple[str, str]


def spearmans(accuracy: Sequence[Accuracy]) -> dict[Task, float]:
    """The scores that are a Spearman, by task and data set."""
    return {(a.task, a.name): a.spearman for a in accuracy if a.spearman is not None}


def interval_of(entry: Accuracy) -> tuple[float, float] | None:
    """The 95 % interval of a score; None when its task computed none."""
    match (entry.model_extra or {}).get("interval"):
        case [low, high]:
            return float(low), float(high)
    return None


def middle(timing: Timing) -> tuple[str, str]:
    """The 10th and the 90th percentile; noisy ones with two digits."""
    low, high = (number(value, 2 if timing.noisy else 3) for value in (percentile(timing.samples, 10), timing.p90))
    return low, high


def bounds_text(low: float, high: float) -> str:
    """An interval of scores in brackets; a wide one in whole points."""
    decimals = 0 if high - low > 4 else 1
    return f"[{fixed(low, decimals)}, {fixed(high, decimals)}]"


def sets_text(entries: Sequence[Accuracy]) -> str:
    """The sets of scores with their pairs: "graded-pairs (112 home-made pairs)", "7 sets (1,750 pairs)"."""
    pairs, are_home_made = sum(entry.pairs or 0 for entry in entries), {entry.name for entry in entries} <= HOME_MADE
    named = joined([entry.name for entry in entries]) if len(entries) < 3 else f"{len(entries)} sets"
    return named + (f" ({pairs:,} {'home-made ' if are_home_made else ''}pairs)" if pairs else "")


class Shown(NamedTuple):
    """A run, the style of its artifact (named by what distinguishes it), and where it was measured."""

    run: DeviceRun
    style: Style
    device_label: str


def fields_of(shown: Callable[[RowT], Shown]) -> list[Field[RowT]]:
    """The columns of a table of runs that name the artifact and, of several, the device."""
    return [
        text_field("Artifact", lambda row: shown(row).style.name),
        text_field("Device", lambda row: shown(row).device_label, varies=True),
    ]


def truncated_text(count: int | None) -> str:
    """Texts of a set that a model read only in part, in words."""
    return f"{count} text{'s are' if count != 1 else ' is'} longer than the model reads and only in part in its score"


def artifact_names(runs: Sequence[DeviceRun]) -> list[str]:
    """Per run the words in which the artifacts differ: bundle, runtime (always), precision."""
    words = [(run.artifact.bundle, run.artifact.runtime, run.artifact.precision) for run in runs]
    distinct = [i for i in range(3) if i == 1 or len({row[i] for row in words}) > 1]
    return [" ".join(row[i] for i in distinct) for row in words]


def label_device(run: DeviceRun, among: Sequence[DeviceRun]) -> str:
    """The device of `run`, with what distinguishes it from other runs on the same one."""
    device, key = run.device, device_key(run, among)
    same = [other for other in among if other.device.name == device.name and device_key(other, among)[2] == key[2]]
    words = ["emulated"] if device.emulated and "emulated" not in device.name else []
    if len({other.harness for other in same}) > 1:
        words.append({"python": "through Python", "native": "native"}.get(run.harness, run.harness))
    kinds = {other.device.kind for other in same if other.harness == run.harness}
    words += [device.kind] if len(kinds) > 1 else []
    words += [f"{run.threads} thread{'s' if run.threads > 1 else ''}"] if len({r.threads for r in same}) > 1 else []
    words += [run.pinned_to or "any CPU"] if len({other.pinned_to for other in same}) > 1 else []
    return device_name(run, among) + (f" ({', '.join(words)})" if words else "")


@dataclass(frozen=True)
class ReportData:
    """Everything the sections read. `earlier` are results before `results`, oldest first, and `comparisons` those with
    the last of them.
    """

    results: BenchFile
    evaluations: Sequence[Evaluation] = ()
    sweeps: Sequence[SweepTable] = ()
    earlier: Sequence[BenchFile] = ()
    comparisons: Sequence[Comparison] = ()
    stages: Sequence[StageLog] = ()
    running: bool = False
    wanted_length: int | None = None

    @cached_property
    def runs(self) -> list[Shown]:
        """The latest run of every artifact in every place; earlier ones are in the history alone."""
        latest: dict[tuple[str, str, str], DeviceRun] = {}
        for run in sorted(self.results.runs, key=lambda run: run.created):
            latest[run.artifact.sha256, run.artifact.bundle, label_device(run, self.results.runs)] = run
        latest_ids = set(map(id, latest.values()))
        runs = [run for run in self.results.runs if id(run) in latest_ids]
        names = artifact_names(runs)
        hashes = {name: {r.artifact.sha256 for r, n in zip(runs, names, strict=True) if n == name} for name in names}
        names = [name + (f" {run.artifact.sha256[:8]}" if len(hashes[name]) > 1 else "")
                 for run, name in zip(runs, names, strict=True)]  # fmt: skip
        styles = {name: numbered_style(name, i) for i, name in enumerate(dict.fromkeys(names))}
        return [Shown(run, styles[n], label_device(run, runs)) for run, n in zip(runs, names, strict=True)]

    @cached_property
    def places(self) -> dict[str, list[Shown]]:
        """The runs that were measured in time, by place."""
        by_device: dict[str, list[Shown]] = {}
        for shown in self.runs:
            if shown.run.clock == "wall":
                by_device.setdefault(shown.device_label, []).append(shown)
        return by_device

    @cached_property
    def artifacts(self) -> list[Shown]:
        """One run per artifact, the first with a score."""
        by_artifact: dict[str, Shown] = {}
        for shown in sorted(self.runs, key=lambda shown: not shown.run.accuracy):
            by_artifact.setdefault(shown.style.name, shown)
        return [by_artifact[name] for name in dict.fromkeys(shown.style.name for shown in self.runs)]

    @cached_property
    def models(self) -> list[tuple[ModelScores, Style]]:
        """All float models with their styles, by role."""
        return [
            (model, Style(f"{model.role}: {model.name}", *MODEL_STYLES[model.role])) for model in self.results.models
        ]

    @cached_property
    def tasks(self) -> list[Task]:
        """(task, data set) of every score with a Spearman, in order of appearance."""
        owners: list[Scored] = [*self.results.models, *self.results.runs]
        return list(dict.fromkeys(task for owner in owners for task in spearmans(owner.accuracy)))

    @cached_property
    def length(self) -> int | None:
        """The length in tokens of headline latencies: that of a target, 32, or the middle one of those that all runs
        measured."""
        sets = [{t.length for t in shown.run.latency if t.length} for shown in self.runs if shown.run.latency]
        shared = sorted(set.intersection(*sets)) if sets else []
        preferred_lengths = [length for length in (self.wanted_length, 32) if length in shared]
        return preferred_lengths[0] if preferred_lengths else shared[len(shared) // 2] if shared else None

    def timing(self, run: DeviceRun) -> Timing | None:
        """Samples at `length`; None where it was not measured."""
        return next((timing for timing in run.latency if self.length and timing.length == self.length), None)

    def latency(self, run: DeviceRun) -> float | None:
        """Median at `length`, in the unit of the run's clock; None where it was not measured."""
        return None if (timing := self.timing(run)) is None else timing.p50

    def time(self, run: DeviceRun) -> str:
        """The median at `length` with its unit; of noisy samples the range of their middle 80 %."""
        if (timing := self.timing(run)) is None:
            return NONE
        if timing.unit != "ms":
            return f"{millions(timing.p50, 1)} M instructions"
        return f"{' to '.join(middle(timing))} ms (noisy)" if timing.noisy else f"{number(timing.p50)} ms"

    def mean(self, accuracy: Sequence[Accuracy]) -> float | None:
        """Mean Spearman over `tasks`; None unless all are there: a mean over fewer sets is a different number."""
        values = list(spearmans(accuracy).values())
        return sum(values) / len(values) if values and len(values) == len(self.tasks) else None

    def interval(self, accuracy: Sequence[Accuracy]) -> tuple[float, float] | None:
        """The 95 % interval of `mean`; of several sets the mean of their bounds, which is wider than that of the mean.

        None where a set has no interval.
        """
        spans = [span for entry in accuracy if entry.spearman is not None and (span := interval_of(entry))]
        if self.mean(accuracy) is None or len(spans) < len(self.tasks):
            return None
        low, high = (sum(bounds) / len(spans) for bounds in zip(*spans, strict=True))
        return low, high

    def score_against_float(self, run: DeviceRun) -> tuple[float, float, list[Accuracy]] | None:
        """Mean Spearman of a run and of its float model on the sets that both have, and the run's scores on these;
        None without any.

        The float model is the one that the results name, else what the bundle kept of it at export.
        """
        named = [model for model in self.results.models if model.name == run.artifact.bundle]
        students = [model for model in self.results.models if model.role == "student"]
        model = named[0] if named else students[0] if len(students) == 1 and len(self.bundles) == 1 else None
        run_scores, others = spearmans(run.accuracy), spearmans(model.accuracy if model else run.float_accuracy)
        tasks = [task for task in run_scores if task in others]
        if not tasks:
            return None
        means = [sum(scores[task] for task in tasks) / len(tasks) for scores in (run_scores, others)]
        return means[0], means[1], [entry for entry in run.accuracy if (entry.task, entry.name) in tasks]

    @cached_property
    def bundles(self) -> list[str]:
        """Names of the bundles."""
        return list(dict.fromkeys(run.artifact.bundle for run in self.results.runs))
