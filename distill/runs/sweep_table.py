"""The table of a sweep: one row per point with the paper's figures beside ours, and the curve of its last stage.

`msdc distill --sweep` writes it as table.json and table.md; `msdc report SWEEP_FOLDER` draws it.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from msdc.errors import InputError
from msdc.tables import Column, Table, escape_line, fixed, to_markdown

TABLE_FILE = "table.json"
NOTE = (
    "mono, cross, avg: Spearman x 100 on the recipe's `report` files; dev: mean on the graded development files; "
    "accuracy: nearest neighbour among held-out pairs. The paper's columns are its own models on its own data and "
    "test sets."
)


class CurvePoint(BaseModel):
    """One validation: `x` in steps or epochs of the last stage, `score` on the development data, x 100."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    x: float
    score: float


class SweepRow(BaseModel):
    """One finished point. `row` names its row in the paper's table; `paper` and `ours` are scores by column."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    label: str
    row: str = ""
    paper: dict[str, float] = {}
    ours: dict[str, float] = {}
    report: dict[str, float] = {}
    seconds: float = 0.0
    unit: Literal["step", "epoch"] = "epoch"
    curve: tuple[CurvePoint, ...] = ()


class SweepTable(BaseModel):
    """A whole sweep."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    recipe: str
    sweep: str
    rows: tuple[SweepRow, ...]


def is_sweep(raw: Any) -> bool:
    """Whether parsed JSON looks like the table of a sweep."""
    return isinstance(raw, dict) and "sweep" in raw and "rows" in raw


def read_sweep(raw: Any, where: str) -> SweepTable:
    """The table in parsed JSON; `where` names the file in an error.

    Raises:
        InputError: not what a sweep writes; names the first field that does not fit.
    """
    try:
        return SweepTable.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        raise InputError(f"{where} is not the table of a sweep: {field}: {first['msg']}") from error


def table_of(sweep: SweepTable) -> Table:
    """One row per point; a column of the paper stands before ours of the same name."""
    published = list(dict.fromkeys(key for row in sweep.rows for key in row.paper))
    measured = list(dict.fromkeys(key for row in sweep.rows for key in row.ours))
    columns = [(key, kind) for key in measured for kind in ("paper", "ours") if kind == "ours" or key in published]
    columns += [(key, "paper") for key in published if key not in measured]
    rows = []
    for row in sweep.rows:
        figures = {"paper": row.paper, "ours": row.ours}
        cells = [fixed(figures[kind][key], 1) if key in figures[kind] else "" for key, kind in columns]
        rows.append((row.label, row.row, *cells, fixed(row.seconds, 0)))
    heads = (Column("setting", align="left"), Column("the paper's row", align="left"))
    numbers = tuple(Column(f"{key}, {kind}") for key, kind in columns)
    return Table(f"{sweep.recipe}, {sweep.sweep}", (*heads, *numbers, Column("seconds")), tuple(rows), NOTE)


def markdown(sweep: SweepTable) -> str:
    """The content of table.md."""
    table = table_of(sweep)
    return f"# {escape_line(table.caption)}\n\n{to_markdown(table)}\n\n{table.note}\n"
