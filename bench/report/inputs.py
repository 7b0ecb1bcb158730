"""What a report is made from: result files of `msdc bench`, documents of `msdc evaluate`, sweeps and training runs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msdc.bench.accuracy.document import Document, is_document, read_document
from msdc.bench.result import BenchFile, read_results, result_files
from msdc.distill.runs.sweep_table import TABLE_FILE, SweepTable, is_sweep, read_sweep
from msdc.errors import InputError
from msdc.files import read_json

METRICS_FILE = "metrics.jsonl"
MAX_METRICS_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class Inputs:
    """The files of one `msdc report`, read."""

    results: BenchFile
    evaluations: tuple[Document, ...] = ()
    sweeps: tuple[SweepTable, ...] = ()
    run: Path | None = None


def read_inputs(paths: Sequence[Path]) -> Inputs:
    """Read files, and folders of them; the folder of a sweep stands for its table, one of a run for its curves.

    Raises:
        InputError: a file of no known kind, a folder without result files, several runs, or nothing at all.
    """
    files: list[Path] = []
    runs = [path for path in paths if is_run(path)]
    if len(runs) > 1:
        raise InputError(f"{runs[1]}: a report has one run; `msdc distill --sweep` makes one page for several")
    for path in paths:
        if path in runs:
            continue
        table = path / TABLE_FILE
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
    read = read_results(results) if results else BenchFile()
    return Inputs(read, tuple(evaluations), tuple(sweeps), runs[0] if runs else None)


def is_run(path: Path) -> bool:
    """Whether a folder is that of a run of msdc distill, finished or not."""
    return all((path / name).is_file() for name in ("recipe.yaml", METRICS_FILE))


@dataclass
class StageLog:
    """One stage. `losses` are (step, mean loss since the previous row); `validated` are (step, numbers); `shares` are
    the parts of the loss by objective, of a finished stage.
    """

    name: str
    losses: list[tuple[int, float]] = field(default_factory=list)
    validated: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    seconds: float = 0.0
    shares: dict[str, float] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """The last step that was logged."""
        return max((step for step, _ in [*self.losses, *((s, 0.0) for s, _ in self.validated)]), default=0)

    def validation_curves(self) -> dict[str, list[tuple[int, float]]]:
        """(step, value) of the validations: accuracy on held-out pairs, Spearman on development pairs."""
        headlines = {"heldout_accuracy": "held-out accuracy, %", "graded": "development Spearman × 100"}
        return {
            title: [(step, numbers[key]) for step, numbers in self.validated if key in numbers]
            for key, title in headlines.items()
        }

    def chosen(self) -> tuple[int, dict[str, float]] | None:
        """The validation of the checkpoint that the stage kept, the one with the best `choice`; None without any."""
        scored = [row for row in self.validated if "choice" in row[1]]
        return max(scored, key=lambda row: row[1]["choice"]) if scored else None


@dataclass(frozen=True)
class TrainingLog:
    """Stages in order of first appearance; `running`: the run has not written its result yet."""

    stages: tuple[StageLog, ...]
    running: bool = False


def _numbers(row: dict[str, object]) -> dict[str, float]:
    return {k: float(v) for k, v in row.items() if isinstance(v, (int, float)) and math.isfinite(v)}


def read_training(run_folder: Path) -> TrainingLog:
    """The stages of a training run, from its metrics.jsonl.

    A resumed run repeats steps that were logged before it was killed; the later row counts. An incomplete last line
    (the run was killed while writing, or still runs) is skipped.

    Raises:
        InputError: no metrics.jsonl in the folder, or a line that is not JSON.
    """
    path = run_folder / METRICS_FILE
    if not path.is_file():
        raise InputError(f"{run_folder}: no {METRICS_FILE}; expected the run folder of msdc distill")
    if path.stat().st_size > MAX_METRICS_BYTES:
        raise InputError(f"{path}: {path.stat().st_size} bytes, more than the metrics of any run")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    stages: dict[str, StageLog] = {}
    losses: dict[str, dict[int, float]] = {}
    validated: dict[str, dict[int, dict[str, float]]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if isinstance(row.get("done"), dict) and row.get("stage") in stages:
                done = _numbers(row["done"])
                stages[row["stage"]].shares = {
                    key.removeprefix("share_"): value for key, value in done.items() if key.startswith("share_")
                }
            if "step" not in row:
                continue  # the end of a stage, or a remark on the run
            name, step = str(row["stage"]), int(row["step"])
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):
                continue
            raise InputError(f"{path}, line {number}: not a metrics row ({type(error).__name__})") from error
        stage = stages.setdefault(name, StageLog(name))
        numbers = _numbers(row)
        if "loss" in numbers:
            losses.setdefault(name, {})[step] = numbers["loss"]
            stage.seconds = max(stage.seconds, numbers.get("seconds", 0.0))
        if isinstance(row.get("evaluation"), dict):
            validated.setdefault(name, {})[step] = _numbers(row["evaluation"])
    for name, stage in stages.items():
        stage.losses = sorted(losses.get(name, {}).items())
        stage.validated = sorted(validated.get(name, {}).items())
    return TrainingLog(tuple(stages.values()), running=not (run_folder / "result.json").is_file())
