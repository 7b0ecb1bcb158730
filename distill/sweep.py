"""Sweeps: a recipe in several settings, with one table of results. Dry runs: a recipe's rows and steps, counted.

Points of a sweep come from `table=5` (all variants of a paper's table), `variant=one,two`, or `KEY=a,b,c` (the keys of
`--set`), or from every combination of several of them. Stages that two points share are trained once
(msdc.distill.run_folder). A stopped sweep continues where it stopped. After every point it writes table.json, .csv, .md
and .tex; `msdc report SWEEP_FOLDER` plots them. Points that differ only in their seed become one row: mean and
interval. A point that fails is a row with its reason; the others are trained.
"""

from __future__ import annotations

import csv
import errno
import gc
import io
import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from msdc.distill.catalog import load_recipe, read_file, recipe_facts, split_name
from msdc.distill.data.corpora import TextSource, is_here, open_corpora
from msdc.distill.data.exclusion import Exclusion, read_exclusion
from msdc.distill.data.tables import stored_about, tables_folder
from msdc.distill.inputs import read_inputs
from msdc.distill.recipe import Corpus, Recipe, Stage, parse
from msdc.distill.run_folder import METRICS_FILE, Metrics, RunFolder, changed_settings, read_recipe
from msdc.errors import DiskFullError, InputError, MsdcError, first_line, named_memory, printable
from msdc.files import held, plain_name, read_json, write_json, write_text
from msdc.progress import say, warn
from msdc.tables import Column, Table, escape_line, fixed, to_latex, to_markdown
from msdc.text.tabular import JSON_LINES, suffix_of
from msdc.text.text_files import unpacked

# Training code is imported where it is used: a report reads tables of sweeps without torch.

TABLE_FILE, PROGRAM_FILE = "table.json", "program.json"
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
# Keys of a recipe without an effect on the student.
UNTRAINED = {"name", "about", "paper", "differs"}
PAIR = re.compile(r"(?<![a-z])([a-z]{2})-([a-z]{2})(?![a-z])")


# --- the table of a sweep ---------------------------------------------------------------------------------------------


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


def leading(sweep: SweepTable) -> tuple[str, float, float | None] | None:
    """Setting, mean and half interval of the highest scores of the last validations; None without curves.

    The setting is empty if its interval overlaps with that of another one. None also where the points have different
    measures.
    """
    if len({row.measure for row in sweep.rows if row.curve}) > 1:
        return None
    ends = {name: [row.curve[-1].score for row in rows if row.curve] for name, rows in by_setting(sweep).items()}
    intervals = {name: mean_and_interval(scores) for name, scores in ends.items() if scores}
    if not intervals:
        return None
    best = max(intervals, key=lambda name: intervals[name][0])
    least = intervals[best][0] - (intervals[best][1] or 0)
    met = any(mean + (half or 0) >= least for name, (mean, half) in intervals.items() if name != best)
    return "" if met else best, *intervals[best]


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


# --- a sweep ----------------------------------------------------------------------------------------------------------


def points(
    recipe: str, over: str | Sequence[str], overrides: Sequence[str] = (), data: str | Path | None = None
) -> dict[str, Recipe]:
    """The recipes of a sweep by label: every combination of the values of its axes."""
    axes = [over] if isinstance(over, str) else over
    keys = [axis.partition("=")[0] for axis in axes]
    if twice := next((key for key in keys if key != "variant" and keys.count(key) > 1), None):
        raise InputError(f"`over` names {twice} twice; give all its values at once: {twice}=VALUE,VALUE")
    if both := next((key for key in keys if key in {change.partition("=")[0].strip() for change in overrides}), None):
        raise InputError(f"`overrides` sets {both}, which `over` varies: give it once")
    base, chosen = split_name(recipe)
    recipe_of_label = {}
    for combination in product(*(_axis(recipe, axis) for axis in axes)):
        changes = [value for value in combination if "=" in value]
        variants = "+".join(filter(None, [chosen, *(value for value in combination if "=" not in value)]))
        name = f"{base}:{variants}" if variants else base
        label = " ".join(combination)
        if label in recipe_of_label:
            raise InputError(f"`over` has the point {label!r} twice; give each value once")
        recipe_of_label[label] = load_recipe(name, (*overrides, *changes), data)
    labels: dict[str, str] = {}  # by recipe
    for label, recipe_of_point in recipe_of_label.items():
        if (other := labels.setdefault(recipe_of_point.model_dump_json(exclude=UNTRAINED), label)) != label:
            raise InputError(f"`over`: {other!r} and {label!r} are the same recipe; give each setting once")
    labels.clear()
    for label, recipe_of_point in recipe_of_label.items():
        if (other := labels.setdefault(_effective(recipe_of_point), label)) != label:
            warn(f"sweep: {other} and {label} differ only in a setting without effect (steps replace epochs)")
    return recipe_of_label


def _effective(recipe: Recipe) -> str:
    """What is trained, without settings that others of the recipe replace."""
    tree = recipe.model_dump(mode="json", exclude=UNTRAINED)
    for stage in tree["stages"]:
        for key, replaced in (("steps", "epochs"), ("warmup_steps", "warmup_ratio")):
            if stage[key] is not None:
                del stage[replaced]
        if stage["mined_negatives"] is None:
            del stage["mine_margin"]
    return json.dumps(tree)


def _values(text: str) -> list[str]:
    """The values of `a,b`; a comma inside brackets or quotes belongs to a value, such as [0, 4]."""
    parts, depth, quote = [""], 0, ""
    for sign in text:
        if quote:
            quote = "" if sign == quote else quote
        elif sign in "\"'" and not parts[-1].strip():
            quote = sign
        else:
            depth += (sign in "[{") - (sign in "]}")
        if sign == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return [part.strip() for part in parts]


def _axis(recipe: str, over: str) -> list[str]:
    """The points of one axis: names of variants, or changes `KEY=VALUE`."""
    key, _, value = over.partition("=")
    values = _values(value)
    if not values or not all(values):
        raise InputError(f"`over` {over!r}: expected table=NUMBER, variant=NAME,NAME or KEY=VALUE,VALUE")
    if key == "variant":
        return values
    if key != "table":
        return [f"{key}={variant}" for variant in values]
    file, chosen = read_file(recipe), split_name(recipe)[1].split("+")
    tables, skips = (
        file.tables,
        {variant for part in chosen if part in file.variants for variant in file.variants[part].skips},
    )
    names = dict.fromkeys(name for number in values if number in tables for name in tables[number].rows)
    numbers = ", ".join(number for number, table in tables.items() if table.rows)
    if unknown := [number for number in values if number not in tables]:
        raise InputError(f"{recipe} has no table {', '.join(unknown)}; it has tables {numbers}")
    if fitting := [name for name in names if skips.isdisjoint(name.split("+"))]:
        return fitting
    raise InputError(f"{recipe} has no rows of table {value}; it has tables {numbers}")


def point_names(labels: Iterable[str]) -> dict[str, str]:
    """The names of the points' folders by label, different also where a file system ignores case."""
    names = {label: plain_name(label.replace(" ", "_"), r"[^A-Za-z0-9._=+-]+") for label in labels}
    if len({name.casefold() for name in names.values()}) < len(names):
        raise InputError(f"`over`: folders of several points would have one name: {', '.join(names)}")
    return names


def _listed(reasons: Mapping[str, str]) -> str:
    """The first points with their reasons, on one line."""
    shown = [
        f"{label} ({textwrap.shorten(reason, 240, placeholder=' ...')})" for label, reason in list(reasons.items())[:3]
    ]
    return "; ".join([*shown, *([f"and {len(reasons) - 3} more"] if len(reasons) > 3 else [])])


class FailedPointsError(MsdcError):
    """Points of a sweep failed; the others are in its table, in `folder`."""

    def __init__(self, folder: Path, reasons: Mapping[str, str], total: int) -> None:
        super().__init__(
            f"{len(reasons)} of {total} points failed: {_listed(reasons)}. The same command tries them again"
        )
        self.folder = folder


def run_sweep(
    recipe: str,
    over: str | Sequence[str],
    output: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    data: str | Path | None = None,
    draw: Callable[[Path], object] | None = None,
    measure: Callable[[Path], dict[str, float]] | None = None,
) -> Path:
    """Run a recipe at all points, and write the table into the sweep's folder; returns it.

    The table is written after each point: table.json, table.csv, table.md and table.tex.

    Args:
        recipe, overrides, data: as of `distill`.
        over: the points: `table=5`, `variant=one,two`, or `KEY=a,b,c`; several give every combination.
        output: the folder; None: runs/NAME-sweep.
        draw: called with the folder when the table was written, in the first process only.
        measure: called with each finished student, once: `bytes` and `ms` of its exported program.

    Raises:
        InputError: the recipe is invalid at some point, or text of finished points has changed.
        FailedPointsError: at the end: points failed, and are rows of the table with their reasons.
        MsdcError: the disk is full, or one of several processes failed alone.
    """
    from msdc.distill import parallel
    from msdc.distill.run import Run

    recipes = points(recipe, over, overrides, data)
    base, chosen = split_name(recipe)
    named = "-".join(filter(None, [Path(base).stem, chosen, "sweep"]))
    folder = Path(output) if output is not None else Path("runs") / named
    folders = {label: folder / name for label, name in point_names(recipes).items()}
    parallel.start()
    rows: dict[str, SweepRow] = {}
    axes = over if isinstance(over, str) else " x ".join(over)

    def train(label: str) -> None:
        run_path = folders[label]
        # A run may be resumed with some other settings; a point is what its label and the recipe say.
        if (run_path / "recipe.yaml").is_file() and (
            changed := changed_settings(read_recipe(run_path), recipes[label])
        ):
            raise InputError(f"{run_path} was started with other settings: {changed[0]}; choose another `output`")
        # Any run of the sweep may have trained a stage that this point shares.
        others = sorted(path.parent for path in folder.glob("*/recipe.yaml") if path.parent != run_path)
        Run(recipes[label], run_path, (run_path / "recipe.yaml").is_file(), list(filter(_is_intact, others))).run()

    def result(label: str) -> SweepRow:
        run_path, failed = folders[label], ""
        if measure is not None and not (run_path / PROGRAM_FILE).is_file():
            try:
                write_json(run_path / PROGRAM_FILE, measure(run_path / "student"))
            except Exception as error:
                if _is_full(error):
                    raise
                failed = f"its program: {_reason(error)}"
        return _row(label, recipes[label], run_path, published).model_copy(update={"failed": failed})

    published = _published(recipe, over)

    def write() -> None:
        finished = tuple(rows[label] for label in recipes if label in rows)
        table = SweepTable(recipe=recipe, sweep=axes, rows=finished, points=len(recipes))
        write_json(folder / TABLE_FILE, table.model_dump(mode="json"))
        write_text(folder / "table.csv", to_csv(table))
        shown = table_of(table)
        write_text(folder / "table.tex", to_latex(shown))
        parts = [f"# {escape_line(shown.caption)}", to_markdown(shown), shown.note]
        parts += ["\n".join(f"* {escape_line(line)}" for line in failures(table))]
        write_text(folder / "table.md", "\n\n".join(filter(None, parts)) + "\n")
        if draw is not None:
            try:
                draw(folder)
            except Exception as error:
                if _is_full(error):
                    raise
                warn(f"{folder}: the report was not drawn: {_reason(error)}")

    def open_folder() -> dict[str, SweepRow]:
        """Lock the folder; returns the rows of the points that are finished."""
        stack.enter_context(held(folder))
        for leftover in folder.glob(".*.partial"):
            leftover.unlink(missing_ok=True)  # of a process that was killed while it wrote a table
        finished = {}
        for label in recipes:
            # A damaged folder is an error of its point.
            with suppress(InputError, LookupError, TypeError):
                if _is_finished(folders[label], recipes[label]):
                    finished[label] = _row(label, recipes[label], folders[label], published)
        for label in finished:
            RunFolder(folders[label]).check_inputs(read_inputs(recipes[label]))
        return finished

    with ExitStack() as stack:
        rows.update(parallel.on_rank_zero(open_folder))
        finished = set(rows)
        for number, label in enumerate(recipes, 1):
            if label not in finished:
                say(f"sweep {number}/{len(recipes)}: {label}")
            reason = _failure(partial(train, label)) if label not in finished else ""
            if not reason:
                reason = _failure(lambda name=label: rows.update({name: parallel.on_rank_zero(partial(result, name))}))  # type: ignore[misc]
            if reason:
                paper = recipes[label].paper
                rows[label] = SweepRow(
                    label=label, row=paper.get("row", ""), paper=_figures(paper, published), failed=reason
                )
            if rows[label].failed and parallel.rank_and_world()[0] == 0:
                warn(f"sweep {number}/{len(recipes)}: {label} failed: {rows[label].failed}")
            if label not in finished or label == list(recipes)[-1]:
                parallel.on_rank_zero(write)
    if failed := {label: rows[label].failed for label in recipes if rows[label].failed}:
        raise FailedPointsError(folder, failed, len(recipes))
    return folder


def _failure(work: Callable[[], object]) -> str:
    """Do a part of a point's work; returns why it failed, in all processes, or nothing.

    Raises the error if the sweep cannot continue: the disk is full, or one of several processes failed in the middle of
    an exchange with the others.
    """
    import torch

    from msdc.distill import parallel

    error: Exception | None = None
    try:
        work()
    except Exception as caught:
        error = caught
    # Errors that all processes raise at the same place are MsdcErrors; after any other one they may be out of step.
    alone = parallel.rank_and_world()[1] > 1 and not isinstance(error, MsdcError)
    ends = error is not None and (alone or _is_full(error))
    try:
        reasons: list[tuple[str, bool]] = parallel.meet((_reason(error), ends))
    except MsdcError as missing:
        raise error or missing from missing
    reason = next((text for text, _ in reasons if text), "")
    if any(ends_here for _, ends_here in reasons):
        raise error or MsdcError(reason)
    if error is not None:
        # The tensors of the failed point are in the frames of its error.
        del error
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    return reason


def _reason(error: Exception | None) -> str:
    """An error as one line; empty for None."""
    if error is None:
        return ""
    try:
        with named_memory("training"):
            raise error
    except MsdcError as named:
        text = " ".join(printable(str(named)).split()) or type(named).__name__
        return text.removesuffix("; `resume` continues from the last checkpoint")  # here the same command does
    except Exception:
        return printable(f"{type(error).__name__}: {first_line(error)}")


def _is_full(error: Exception) -> bool:
    """Whether the disk is full: no other point can be trained either."""
    return isinstance(error, DiskFullError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)


def _is_finished(folder: Path, recipe: Recipe) -> bool:
    """Whether a run of `recipe` in `folder` is finished."""
    return (folder / "result.json").is_file() and read_recipe(folder) == recipe


def _is_intact(run: Path) -> bool:
    """Whether the files of another point can be read: a damaged one is an error of that point alone."""
    try:
        read_recipe(run), RunFolder(run).metrics.rows()
        for path in [run / "inputs.json", *run.glob("stages/*/done.json")]:
            read_json(path)
    except InputError:
        return False
    return True


def _published(recipe: str, over: str | Sequence[str]) -> tuple[str, ...] | None:
    """The columns of the paper's tables that a sweep names; None without one: all that a row of it has.

    A row may also be in other tables, whose columns the other rows of this sweep do not have.
    """
    axes = [over] if isinstance(over, str) else over
    numbers = [part.strip() for axis in axes if axis.startswith("table=") for part in axis[6:].split(",")]
    tables = read_file(recipe).tables if numbers else {}
    return tuple(column for number in numbers for column in tables[number].columns) if numbers else None


def _figures(paper: Mapping[str, Any], published: Sequence[str] | None) -> dict[str, float]:
    """The published figures in a recipe's row of a paper, of the columns `published` or of all."""
    return {
        key: value
        for key, value in paper.items()
        if isinstance(value, (int, float)) and (published is None or key in published)
    }


def _row(label: str, recipe: Recipe, folder: Path, published: Sequence[str] | None) -> SweepRow:
    """The scores of a finished point and of the paper; bytes of its program are measured, or predicted."""
    from msdc.compress.size import size_plan
    from msdc.compress.student.weights import read_weights

    plan = size_plan("", read_weights(folder / "student").config)
    measured = read_json(folder / PROGRAM_FILE) if (folder / PROGRAM_FILE).is_file() else {}
    result = read_json(folder / "result.json")
    last = recipe.stages[-1]
    done, report = result["stages"][last.name], result.get("report", {})
    pairs = {name: pair.groups() for name in report if (pair := PAIR.search(name))}
    scores = {
        "mono": [report[name] for name, (source_code, target_code) in pairs.items() if source_code == target_code],
        "cross": [report[name] for name, (source_code, target_code) in pairs.items() if source_code != target_code],
        "avg": list(report.values()),
        "dev": [done["graded"]] if "graded" in done else [],
        "held-out nearest": [done["heldout_accuracy"]] if "heldout_accuracy" in done else [],
        "held-out mse x 1000": [1000 * done["heldout_mse"]] if "heldout_mse" in done else [],
    }
    metrics = [row for row in Metrics(folder / METRICS_FILE).rows() if row.get("stage") == last.name]
    steps = max((row["step"] for row in metrics if "step" in row), default=1)
    measure = "graded" if "graded" in done else "heldout_accuracy"
    curve = tuple(
        CurvePoint(x=row["step"] if last.steps else row["step"] / steps * last.epochs, score=row["evaluation"][measure])
        for row in metrics
        if measure in row.get("evaluation", {})
    )
    return SweepRow(
        label=label,
        row=recipe.paper.get("row", ""),
        paper=_figures(recipe.paper, published),
        ours={key: round(float(np.mean(values)), 2) for key, values in scores.items() if values},
        report=report,
        seconds=round(sum(stage.get("seconds", 0.0) for stage in result["stages"].values()), 1),
        unit="step" if last.steps else "epoch",
        curve=curve,
        program={"parameters": plan.parameters, "bytes": plan.bytes["int8"]["onnx"], **measured},
    )


# --- a dry run --------------------------------------------------------------------------------------------------------

COUNTED_ROWS = 100_000  # rows to read of all sources together; longer files are estimated by their lines
LINES = (".tsv", ".txt", ".csv", *JSON_LINES)
BLOCK = 2**20  # bytes
Plan = dict[str, Any]


def dry_run(recipe: Recipe) -> Plan:
    """Check a recipe, and count its rows and steps; nothing is trained, downloaded or written.

    Returns:
        The resolved recipe's `facts`, the rows of its `sources` (of long files that no run has read estimated, before
        `exclude`) with what was dropped, the steps of its `stages`, and what it `needs`, without which other values are
        None (unknown).
    """
    from msdc.distill.preflight import check_recipe

    needs = check_recipe(recipe, download=False)
    excluded = read_exclusion(recipe.exclude)
    texts = dict.fromkeys([recipe.corpora, *map(recipe.corpora_of, recipe.stages)])
    counted = {text: _count(recipe, text, excluded) for text in texts}
    return {
        "name": recipe.name, "facts": recipe_facts(recipe), "differs": list(recipe.differs), "needs": needs,
        "sources": counted[recipe.corpora],
        "stages": [
            {"name": stage.name, "steps": count_steps(recipe, stage, counted[recipe.corpora_of(stage)])}
            for stage in recipe.stages
        ],
    }  # fmt: skip


def dry_sweep(recipes: Mapping[str, Recipe]) -> tuple[dict[str, Plan], InputError | None]:
    """The dry runs of a sweep's points by label, and an error if some cannot be trained: their plan is its reason."""
    plans: dict[str, Plan] = {}
    for label, recipe in recipes.items():
        try:
            plans[label] = dry_run(recipe)
        except InputError as error:
            plans[label] = {"failed": str(error)}
    failed = {label: plan["failed"] for label, plan in plans.items() if "failed" in plan}
    problem = f"{len(failed)} of {len(plans)} points cannot be trained: {_listed(failed)}"
    return plans, InputError(problem) if failed else None


def plan_text(plan: Plan) -> str:
    """A dry run as text."""
    if "failed" in plan:
        return f"cannot be trained: {plan['failed']}"
    lines = [f"recipe {plan['name']}", *(f"  {key}: {value}" for key, value in plan["facts"].items())]
    lines += [*(f"  differs: {text}" for text in plan["differs"]), "sources"]
    for source in plan["sources"]:
        rows = "not here" if source["rows"] is None else f"{source['rows']} rows"
        lines.append(f"  {source['name']} [{source['language']}]: {rows}")
        lines += [f"    dropped {drop['rows']}: {drop['why']}" for drop in source["dropped"]]
    lines.append("stages")
    for stage in plan["stages"]:
        steps = "steps unknown" if stage["steps"] is None else f"{stage['steps']} steps"
        lines.append(f"  {stage['name']}: {steps}")
    return "\n".join([*lines, *(f"needs {name}" for name in plan["needs"])])


def _count(recipe: Recipe, corpora: tuple[Corpus, ...], excluded: Exclusion | None) -> list[Plan]:
    """Usable rows of every source (all languages of word_by_word together); None for one that is not here."""
    plans: list[Plan] = []
    here = [corpus for corpus in corpora if is_here(corpus)]
    most = COUNTED_ROWS // max(1, sum(len(open_corpora((corpus,), languages=recipe.languages)) for corpus in here))
    for corpus in corpora:
        if corpus not in here:
            plans.append({"name": corpus.origin, "language": ", ".join(corpus.languages), "rows": None, "dropped": []})
            continue
        for source in open_corpora((corpus,), excluded, recipe.languages):
            about = stored_about(source, tables_folder(recipe))
            rows = _rows(source, most) if about is None else about["rows"]
            dropped = source.drops() if about is None else about["dropped"]
            rows *= max(1, len(corpus.word_by_word))
            plans.append({"name": source.name, "language": source.language, "rows": rows, "dropped": dropped})
    return plans


def _rows(source: TextSource, most: int) -> int:
    """Usable rows of a source; estimated by lines for a text file with more than `most`."""
    rows = source.read()
    taken = sum(1 for _ in islice(rows, most))
    path = Path(source.name.split(" + ")[0])
    if taken < most or suffix_of(path) not in LINES or not path.is_file():
        return taken + sum(1 for _ in rows)
    usable = taken / (taken + sum(drop["rows"] for drop in source.drops()))
    with open(path, "rb") as raw, unpacked(raw) as text:
        lines = sum(block.count(b"\n") for block in iter(partial(text.read, BLOCK), b""))
    return min(round(lines * usable), source.corpus.limit or lines)


def count_steps(recipe: Recipe, stage: Stage, counted: Sequence[Plan]) -> int | None:
    """About how many steps a stage has; None if its text must be downloaded, or batches are cut by tokens."""
    if stage.steps is not None:
        return stage.steps
    rows = [count["rows"] for count in counted]
    if None in rows or stage.batch_tokens is not None:
        return None
    # An epoch has as many rows as all sources together, whatever the balance.
    languages: Counter[str] = Counter()
    for count in counted:
        languages[count["language"]] += count["rows"]
    share = (1 - recipe.heldout.enough(languages).share) * (recipe.sample if stage.sample is None else stage.sample)
    return max(1, round(stage.epochs * share * sum(rows) / (stage.batch * stage.accumulate)))
