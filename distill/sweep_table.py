"""The table of a sweep: its rows, as they are stored, read and written.

Rows that differ only in their seed become one: mean and interval. No torch: a report reads tables of sweeps without it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from msdc.distill.recipe import parse
from msdc.tables import Column, Table, fixed, signed

TABLE_FILE = "table.json"
# What the columns of a sweep's table are.
NOTES = {
    ("mono", "cross", "avg"): "{}: Spearman x 100 on the recipe's `report` files.",
    ("dev",): "{}: mean on the graded development files, x 100.",
    (
        "held-out nearest",
        "held-out mse x 1000",
    ): "{}: pairs of the training text left out of it, no measure of a paper.",
    ("bytes",): "{}: int8 program for ONNX Runtime, predicted unless measured.",
    ("ms",): "{}: median of a text of 32 tokens on this machine.",
}
# 97.5 % quantile of Student's t by degrees of freedom; beyond these, 2.2.
STUDENT_T = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)


class _Stored(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class CurvePoint(_Stored):
    """One validation: `x` in steps or epochs of the last stage, `score` on the development data, x 100."""

    x: float
    score: float


class SweepRow(_Stored):
    """One point. `row` is its row in the paper's table; `paper` and `ours` are scores by column.

    `program` has `parameters`, `bytes` and, if measured, `ms` per text of 32 tokens. `failed` is the reason of a point
    that failed: it has no scores, or (if only its program failed) no measured program.
    """

    label: str
    row: str = ""
    paper: dict[str, float] = {}
    ours: dict[str, float] = {}
    report: dict[str, float] = {}
    seconds: float = 0.0
    unit: Literal["step", "epoch"] = "epoch"
    curve: tuple[CurvePoint, ...] = ()
    program: dict[str, float] = {}
    failed: str = ""

    @property
    def setting(self) -> str:
        """The label without its seed."""
        return " ".join(word for word in self.label.split(" ") if not word.startswith("seed=")) or "all seeds"

    @property
    def measure(self) -> str:
        """What the scores of its curve are: `dev`, the graded development files, or `held-out` pairs without any."""
        return "dev" if "dev" in self.ours else "held-out"

    @property
    def seed(self) -> str:
        """`seed=2` of its label; empty for a label without a seed."""
        return next((word for word in self.label.split(" ") if word.startswith("seed=")), "")


class SweepTable(_Stored):
    """A whole sweep: one row per point with the paper's figures, ours, and the curve of its last stage.

    Of a sweep that is not finished it has the rows so far; `points` is the number of all.
    """

    recipe: str
    sweep: str
    rows: tuple[SweepRow, ...]
    points: int = 0

    @property
    def count(self) -> str:
        """`4 points`; of a sweep that is not finished `3 of 4 points so far`."""
        many = len(self.rows)
        return f"{many} of {self.points} points so far" if many < self.points else f"{many} points"


def is_sweep(raw: Any) -> bool:
    """Whether parsed JSON looks like the table of a sweep."""
    return isinstance(raw, dict) and "sweep" in raw and "rows" in raw


def read_sweep(raw: Any, where: str) -> SweepTable:
    """The table in parsed JSON; `where` names the file in an error."""
    return parse(SweepTable, raw, f"{where} is not the table of a sweep")


def mean_and_interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean, and half of its 95 % interval over seeds (Student's t); None of one value."""
    if len(values) < 2:
        return float(np.mean(values)), None
    quantile = STUDENT_T[len(values) - 2] if len(values) < 11 else 2.2
    return float(np.mean(values)), quantile * float(np.std(values, ddof=1)) / len(values) ** 0.5


def by_setting(sweep: SweepTable) -> dict[str, list[SweepRow]]:
    """The points of each setting: those that differ only in their seed."""
    rows_by_setting: dict[str, list[SweepRow]] = {}
    for row in sweep.rows:
        rows_by_setting.setdefault(row.setting, []).append(row)
    return rows_by_setting if len(rows_by_setting) < len(sweep.rows) else {row.label: [row] for row in sweep.rows}


def _paired(scores: Mapping[str, float], base: Mapping[str, float]) -> tuple[float, float] | None:
    """Mean of scores - base over the seeds that both have, and half of its interval; None with fewer than two."""
    differences = [scores[seed] - base[seed] for seed in scores if seed in base]
    mean, half = mean_and_interval(differences) if differences else (0.0, None)
    return None if half is None else (mean, half)


def leading(sweep: SweepTable) -> tuple[str, float, float | None] | None:
    """Setting, mean and half interval of the highest scores of the last validations; None without curves.

    The setting is empty if another one may be as high: the interval of their difference over the seeds that both have
    includes 0, or without such seeds their intervals overlap. None also where the points have different measures.
    """
    if len({row.measure for row in sweep.rows if row.curve}) > 1:
        return None
    ends = {
        name: {row.seed or str(number): row.curve[-1].score for number, row in enumerate(rows) if row.curve}
        for name, rows in by_setting(sweep).items()
    }
    intervals = {name: mean_and_interval([*scores.values()]) for name, scores in ends.items() if scores}
    if not intervals:
        return None
    best = max(intervals, key=lambda name: intervals[name][0])
    least = intervals[best][0] - (intervals[best][1] or 0)

    def may_be_as_high(name: str) -> bool:
        mean, half = intervals[name]
        difference = None if half is None else _paired(ends[best], ends[name])
        return mean + (half or 0) >= least if difference is None else difference[0] <= difference[1]

    met = any(may_be_as_high(name) for name in intervals if name != best)
    return "" if met else best, *intervals[best]


def differences_of(sweep: SweepTable) -> Table | None:
    """Each setting less the sweep's first one, on the seeds that both have; None without two such seeds.

    A seed decides start and order of both runs, so that the interval of their difference is narrower than theirs.
    """
    (base, base_rows), *others = by_setting(sweep).items()
    keys = _names(sweep, "ours")

    def scores(rows: Sequence[SweepRow], key: str) -> dict[str, float]:
        return {row.seed: row.ours[key] for row in rows if row.seed and key in row.ours}

    lines = []
    for name, rows in others:
        values = [_paired(scores(rows, key), scores(base_rows, key)) for key in keys]
        if any(value is not None for value in values):
            cells = ("" if value is None else f"{signed(value[0], 1)} ± {fixed(value[1], 1)}" for value in values)
            lines.append((name, *cells))
    if not lines:
        return None
    columns = (Column("setting", align="left"), *(Column(key) for key in keys))
    note = "Mean over the seeds that both have, ± half of its 95 % interval; larger than that is more than chance."
    return Table(f"Differences from {base}", columns, tuple(lines), note)


def _names(sweep: SweepTable, kind: str) -> list[str]:
    """The names of all rows' numbers of a kind: ours, paper, report or program."""
    return list(dict.fromkeys(key for row in sweep.rows for key in getattr(row, kind)))


def to_csv(sweep: SweepTable) -> str:
    """One line per point and seed: setting, scores, the paper's figures, the program's numbers."""
    heads = {"ours": "{}", "paper": "{}, paper", "report": "report {}", "program": "{}"}
    failed = ["failed"] if any(row.failed for row in sweep.rows) else []
    columns = [(kind, key) for kind in heads for key in _names(sweep, kind)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        ["point", "row of the paper", *(heads[kind].format(key) for kind, key in columns), "seconds", *failed]
    )
    for row in sweep.rows:
        cells = [getattr(row, kind).get(key, "") for kind, key in columns]
        cells = [int(cell) if key in ("parameters", "bytes") and cell != "" else cell
                 for (_, key), cell in zip(columns, cells, strict=True)]  # fmt: skip
        writer.writerow([row.label, row.row, *cells, row.seconds, *([row.failed] if failed else [])])
    return text.getvalue()


def table_of(sweep: SweepTable) -> Table:
    """One row per setting; a column of the paper comes before ours of the same name."""
    published, measured = _names(sweep, "paper"), _names(sweep, "ours")
    columns = [(key, kind) for key in measured for kind in ("paper", "ours") if kind == "ours" or key in published]
    columns += [(key, "paper") for key in published if key not in measured]
    named = any(row.row for row in sweep.rows)
    shown = [column for column in (("parameters", 0), ("bytes", 0), ("ms", 2)) if column[0] in _names(sweep, "program")]
    settings = by_setting(sweep)
    seeds = max((sum(not row.failed for row in rows) for rows in settings.values()), default=1)
    any_failed = any(row.failed for row in sweep.rows)
    rows = []
    for name, points in settings.items():
        row = points[0]
        cells = []
        for key, kind in columns:
            values = [getattr(point, kind)[key] for point in points if key in getattr(point, kind)]
            # A published figure is a constant: seeds give it no interval.
            mean, half = mean_and_interval(values if kind == "ours" else values[:1]) if values else (0.0, None)
            cells.append("" if not values else fixed(mean, 1) + ("" if half is None else f" ± {fixed(half, 1)}"))
        for key, digits in shown:
            values = [point.program[key] for point in points if key in point.program]
            cells.append(fixed(float(np.mean(values)), digits) if values else "")
        cells.append(fixed(sum(point.seconds for point in points), 0) if any(point.ours for point in points) else "")
        outcome = ", ".join(point.seed or "yes" for point in points if point.failed)
        rows.append((name, *([outcome] if any_failed else []), *([row.row] if named else []), *cells))
    words = ["setting", *(["failed"] if any_failed else []), *(["the paper's row"] if named else [])]
    heads = tuple(Column(word, align="left") for word in words)
    numbers = tuple(Column(f"{key}, {kind}" if published else key) for key, kind in columns) + tuple(
        Column(key) for key, _ in shown
    )
    keys = [*dict.fromkeys(key for key, _ in columns), *(key for key, _ in shown)]
    notes_by_form = [(form, [name for name in names if name in keys]) for names, form in NOTES.items()]
    note = " ".join(form.format(", ".join(names)) for form, names in notes_by_form if names)
    note += " The paper's columns: its models, data and test sets." if published else ""
    note = note + (
        f" Mean of {seeds} seeds, ± half of the 95 % interval over seeds; it ends at 100." if seeds > 1 else ""
    )
    return Table(f"{sweep.recipe}, {sweep.sweep}", (*heads, *numbers, Column("seconds")), tuple(rows), note)


def failures(sweep: SweepTable) -> list[str]:
    """One line per point that failed, with its reason."""
    return [f"{row.label} failed: {row.failed}" for row in sweep.rows if row.failed]
