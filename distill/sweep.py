"""Sweeps: a recipe in several settings, with one table of results.

Points of a sweep come from `table=5` (all variants of a paper's table), `variant=one,two`, or `KEY=a,b,c` (the keys of
`--set`), or from every combination of several of them. Stages that two points share are trained once
(msdc.distill.run_folder). A stopped sweep continues where it stopped. After every point it writes table.json, .csv, .md
and .tex; `msdc report SWEEP_FOLDER` plots them. Points that differ only in their seed become one row: mean and
interval. A point that fails is a row with its reason; the others are trained.
"""

from __future__ import annotations

import errno
import gc
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from msdc.distill.catalog import load_recipe, read_file, split_name
from msdc.distill.dry_run import Plan, dry_run
from msdc.distill.inputs import read_inputs
from msdc.distill.recipe import Recipe
from msdc.distill.run_folder import METRICS_FILE, Metrics, RunFolder, changed_settings, read_recipe
from msdc.distill.sweep_table import (
    TABLE_FILE,
    CurvePoint,
    SweepRow,
    SweepTable,
    differences_of,
    failures,
    table_of,
    to_csv,
)
from msdc.errors import DiskFullError, InputError, MsdcError, first_line, named_shortage, printable
from msdc.files import held, plain_name, read_json, write_json, write_text
from msdc.progress import say, warn
from msdc.tables import escape_line, to_latex, to_markdown

# Training code is imported where it is used: `points` are listed without torch.

PROGRAM_FILE = "program.json"
# Keys of a recipe without an effect on the student.
UNTRAINED = {"name", "about", "paper", "differs"}
PAIR = re.compile(r"(?<![a-z])([a-z]{2})-([a-z]{2})(?![a-z])")


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


def _reasons_text(reasons: Mapping[str, str]) -> str:
    """The first points with their reasons, on one line."""
    shown = [
        f"{label} ({textwrap.shorten(reason, 240, placeholder=' ...')})" for label, reason in list(reasons.items())[:3]
    ]
    return "; ".join([*shown, *([f"and {len(reasons) - 3} more"] if len(reasons) > 3 else [])])


def dry_sweep(recipes: Mapping[str, Recipe]) -> tuple[dict[str, Plan], InputError | None]:
    """The dry runs of a sweep's points by label, and an error if some cannot be trained: their plan is its reason."""
    plans: dict[str, Plan] = {}
    for label, recipe in recipes.items():
        try:
            plans[label] = dry_run(recipe)
        except InputError as error:
            plans[label] = {"failed": str(error)}
    failed = {label: plan["failed"] for label, plan in plans.items() if "failed" in plan}
    problem = f"{len(failed)} of {len(plans)} points cannot be trained: {_reasons_text(failed)}"
    return plans, InputError(problem) if failed else None


class FailedPointsError(MsdcError):
    """Points of a sweep failed; the others are in its table, in `folder`."""

    def __init__(self, folder: Path, reasons: Mapping[str, str], total: int) -> None:
        super().__init__(
            f"{len(reasons)} of {total} points failed: {_reasons_text(reasons)}. The same command tries them again"
        )
        self.folder = folder


@dataclass
class _Sweep:
    """The points of a sweep by label: their recipes, run folders, and the rows of those that have ended."""

    recipe: str
    axes: str
    folder: Path
    recipes: dict[str, Recipe]
    published: tuple[str, ...] | None
    draw: Callable[[Path], object] | None
    measure: Callable[[Path], dict[str, float]] | None
    rows: dict[str, SweepRow] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folders = {label: self.folder / name for label, name in point_names(self.recipes).items()}

    def finished_rows(self) -> dict[str, SweepRow]:
        """The rows of the points that are finished in the locked folder."""
        for leftover in self.folder.glob(".*.partial"):
            leftover.unlink(missing_ok=True)  # of a process that was killed while it wrote a table
        finished = {}
        for label, recipe in self.recipes.items():
            # A damaged folder is an error of its point.
            with suppress(InputError, LookupError, TypeError):
                if _is_finished(self.folders[label], recipe):
                    finished[label] = _row(label, recipe, self.folders[label], self.published)
        for label in finished:
            RunFolder(self.folders[label]).check_inputs(read_inputs(self.recipes[label]))
        return finished

    def train(self, label: str) -> None:
        """Train a point, or continue its run."""
        from msdc.distill.run import Run

        run_path = self.folders[label]
        is_started = (run_path / "recipe.yaml").is_file()
        # A run may be resumed with some other settings; a point is what its label and the recipe say.
        if is_started and (changed := changed_settings(read_recipe(run_path), self.recipes[label])):
            raise InputError(f"{run_path} was started with other settings: {changed[0]}; choose another `output`")
        # Any run of the sweep may have trained a stage that this point shares.
        others = sorted(path.parent for path in self.folder.glob("*/recipe.yaml") if path.parent != run_path)
        Run(self.recipes[label], run_path, is_started, list(filter(_is_intact, others))).run()

    def row(self, label: str) -> SweepRow:
        """The row of a trained point, whose program is measured first."""
        run_path, failed = self.folders[label], ""
        if self.measure is not None and not (run_path / PROGRAM_FILE).is_file():
            try:
                write_json(run_path / PROGRAM_FILE, self.measure(run_path / "student"))
            except Exception as error:
                if _is_full(error):
                    raise
                failed = f"its program: {_reason(error)}"
        return _row(label, self.recipes[label], run_path, self.published).model_copy(update={"failed": failed})

    def failed_row(self, label: str, reason: str) -> SweepRow:
        """The row of a point that has no result."""
        paper = self.recipes[label].paper
        return SweepRow(label=label, row=paper.get("row", ""), paper=_figures(paper, self.published), failed=reason)

    def write(self) -> None:
        """The table in all its forms, and the report."""
        rows = tuple(self.rows[label] for label in self.recipes if label in self.rows)
        table = SweepTable(recipe=self.recipe, sweep=self.axes, rows=rows, points=len(self.recipes))
        write_json(self.folder / TABLE_FILE, table.model_dump(mode="json"))
        write_text(self.folder / "table.csv", to_csv(table))
        text = table_of(table)
        write_text(self.folder / "table.tex", to_latex(text))
        parts = [f"# {escape_line(text.caption)}", to_markdown(text), text.note]
        if (differences := differences_of(table)) is not None:
            parts += [f"## {escape_line(differences.caption)}", to_markdown(differences), differences.note]
        parts += ["\n".join(f"* {escape_line(line)}" for line in failures(table))]
        write_text(self.folder / "table.md", "\n\n".join(filter(None, parts)) + "\n")
        if self.draw is not None:
            try:
                self.draw(self.folder)
            except Exception as error:
                if _is_full(error):
                    raise
                warn(f"{self.folder}: the report was not drawn: {_reason(error)}")


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
        measure: called with each finished student, once: "bytes" and "ms" of its exported program.

    Raises:
        InputError: the recipe is invalid at some point, or text of finished points has changed.
        FailedPointsError: at the end: points failed, and are rows of the table with their reasons.
        MsdcError: the disk is full, or one of several processes failed alone.
    """
    from msdc.distill import parallel

    base, chosen = split_name(recipe)
    named = "-".join(filter(None, [Path(base).stem, chosen, "sweep"]))
    folder = Path(output) if output is not None else Path("runs") / named
    recipes = points(recipe, over, overrides, data)
    axes = over if isinstance(over, str) else " x ".join(over)
    parallel.start()
    sweep = _Sweep(recipe, axes, folder, recipes, _published(recipe, over), draw, measure)
    rows = sweep.rows
    with ExitStack() as stack:

        def open_folder() -> dict[str, SweepRow]:
            stack.enter_context(held(folder))
            return sweep.finished_rows()

        rows.update(parallel.on_rank_zero(open_folder))
        finished = set(rows)
        for number, label in enumerate(recipes, 1):
            progress = f"sweep {number}/{len(recipes)}: {label}"
            reason = ""
            if label not in finished:
                say(progress)
                reason = _failure(partial(sweep.train, label))
            if not reason:
                result = partial(parallel.on_rank_zero, partial(sweep.row, label))
                reason = _failure(lambda name=label, row=result: rows.update({name: row()}))  # type: ignore[misc]
            if reason:
                rows[label] = sweep.failed_row(label, reason)
            if rows[label].failed and parallel.rank_and_world()[0] == 0:
                warn(f"{progress} failed: {rows[label].failed}")
            if label not in finished or label == list(recipes)[-1]:
                parallel.on_rank_zero(sweep.write)
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
        reasons: list[tuple[str, bool]] = parallel.exchange_outcomes((_reason(error), ends))
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
        with named_shortage("training"):
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
