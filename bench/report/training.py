"""What a run folder tells of the teaching: the loss and the judgements of each stage, from its metrics.jsonl."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from msdc.errors import InputError

METRICS_FILE = "metrics.jsonl"
MAX_METRICS_BYTES = 256 * 1024 * 1024


@dataclass
class StageLog:
    """One stage. `losses` are (step, mean loss since the row before); `judged` are (step, numbers)."""

    name: str
    losses: list[tuple[int, float]] = field(default_factory=list)
    judged: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def steps(self) -> int:
        return max((step for step, _ in [*self.losses, *((s, 0.0) for s, _ in self.judged)]), default=0)

    def chosen(self) -> tuple[int, dict[str, float]] | None:
        """The judgement whose weights the stage kept: the best `choice`."""
        scored = [row for row in self.judged if "choice" in row[1]]
        return max(scored, key=lambda row: row[1]["choice"]) if scored else None


@dataclass(frozen=True)
class TrainingLog:
    """Stages in order of first appearance."""

    stages: tuple[StageLog, ...]


def _numbers(row: dict[str, object]) -> dict[str, float]:
    return {k: float(v) for k, v in row.items() if isinstance(v, (int, float)) and math.isfinite(v)}


def read_training(run_folder: Path) -> TrainingLog:
    """The stages of a run.

    A resumed run repeats steps that were logged before it was killed; the later row counts. A torn last line (the
    run was killed while writing, or is running) is passed over.

    Raises:
        InputError: no metrics.jsonl in the folder, or a line that is not JSON.
    """
    path = run_folder / METRICS_FILE
    if not path.is_file():
        raise InputError(f"{run_folder}: no {METRICS_FILE}; name the folder of a distill run")
    if path.stat().st_size > MAX_METRICS_BYTES:
        raise InputError(f"{path}: {path.stat().st_size} bytes, larger than any run's metrics")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    stages: dict[str, StageLog] = {}
    losses: dict[str, dict[int, float]] = {}
    judged: dict[str, dict[int, dict[str, float]]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            if "step" not in row:
                continue  # a stage's end, or a remark on the run
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
            judged.setdefault(name, {})[step] = _numbers(row["evaluation"])
    for name, stage in stages.items():
        stage.losses = sorted(losses.get(name, {}).items())
        stage.judged = sorted(judged.get(name, {}).items())
    return TrainingLog(tuple(stages.values()))
