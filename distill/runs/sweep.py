"""A sweep: one recipe in several settings, and one table with the paper's figures beside ours.

Points come from `table=5` (all variants of a paper's table), `variant=one,two`, or `KEY=a,b,c` (the keys of `--set`).
Stages that two points share are trained once (msdc.distill.run.folder). A sweep that was stopped continues where it
stopped; finished points are kept. The plot is drawn by `msdc report`, which the command line calls.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msdc.distill.catalog import load_recipe, variants_of
from msdc.distill.pipeline import Run
from msdc.distill.recipe import Recipe
from msdc.distill.run.folder import RunFolder, read_recipe
from msdc.distill.runs.sweep_table import TABLE_FILE, CurvePoint, SweepRow, SweepTable, markdown
from msdc.distill.training import parallel
from msdc.errors import InputError
from msdc.files import read_json, write_json, write_text
from msdc.progress import say

PAIR = re.compile(r"(?<![a-z])([a-z]{2})-([a-z]{2})(?![a-z])")


@dataclass(frozen=True)
class Sweep:
    """What to run: a recipe, the points (`over`), further overrides, the folder to write, the data folder."""

    recipe: str
    over: str
    overrides: tuple[str, ...]
    folder: Path
    data: Path | None = None


def points(
    recipe: str, over: str, overrides: tuple[str, ...] = (), data: str | Path | None = None
) -> dict[str, Recipe]:
    """The recipes of a sweep by label.

    Raises:
        InputError: `over` has no known form, or names no variant.
    """
    key, separator, value = over.partition("=")
    values = [part.strip() for part in value.split(",") if part.strip()]
    if not separator or not values:
        raise InputError(f"--sweep {over!r}: expected table=NUMBER, variant=NAME,NAME or KEY=VALUE,VALUE")
    if key in ("table", "variant"):
        variants = variants_of(recipe)
        names = values
        if key == "table":
            names = [name for name, variant in variants.items() if set(values) & set(variant.tables)]
            if not names:
                tables = sorted({table for variant in variants.values() for table in variant.tables})
                raise InputError(f"{recipe} has no variants of table {value}; it has tables {', '.join(tables)}")
        join = "+" if ":" in recipe else ":"
        return {name: load_recipe(f"{recipe}{join}{name}", overrides, data) for name in names}
    return {f"{key}={one}": load_recipe(recipe, (*overrides, f"{key}={one}"), data) for one in values}


def run_sweep(sweep: Sweep, draw: Callable[[Path], object] | None = None) -> Path:
    """Run all points, then write table.json and table.md into the sweep's folder; returns it.

    `draw` is called with the folder after that, in the first process only.

    Raises:
        MsdcError: a point failed; the others are kept, and the same command continues from there.
    """
    recipes = points(sweep.recipe, sweep.over, sweep.overrides, sweep.data)
    folders = {label: sweep.folder / re.sub(r"[^A-Za-z0-9._=+-]", "_", label) for label in recipes}
    for left in sweep.folder.glob(".*.partial"):
        left.unlink(missing_ok=True)  # of a process that was killed while it wrote a table
    for number, (label, recipe) in enumerate(recipes.items()):
        folder = folders[label]
        if (folder / "result.json").is_file() and read_recipe(folder) == recipe:
            continue
        say(f"sweep {number + 1}/{len(recipes)}: {label}")
        # Any run of the sweep may have trained a stage that this point shares.
        beside = sorted(path.parent for path in sweep.folder.glob("*/recipe.yaml") if path.parent != folder)
        Run(recipe, folder, (folder / "recipe.yaml").is_file(), beside).run()
    if parallel.rank_and_world()[0]:
        return sweep.folder
    rows = tuple(row(label, recipes[label], folders[label]) for label in recipes)
    table = SweepTable(recipe=sweep.recipe, sweep=sweep.over, rows=rows)
    write_json(sweep.folder / TABLE_FILE, table.model_dump(mode="json"))
    write_text(sweep.folder / "table.md", markdown(table))
    if draw is not None:
        draw(sweep.folder)
    return sweep.folder


def row(label: str, recipe: Recipe, folder: Path) -> SweepRow:
    """The scores of a finished point, and those of the paper."""
    result = read_json(folder / "result.json")
    last = recipe.stages[-1]
    done = result["stages"][last.name]
    report = result.get("report", {})
    ours: dict[str, float] = {}
    for kind in ("mono", "cross"):
        found = [
            v for name, v in report.items() if (pair := PAIR.search(name)) and (pair[1] == pair[2]) == (kind == "mono")
        ]
        if found:
            ours[kind] = float(np.mean(found))
    if report:
        ours["avg"] = float(np.mean(list(report.values())))
    if "graded" in done:
        ours["dev"] = done["graded"]
    ours["accuracy"] = done["heldout_accuracy"]
    if "heldout_mse" in done:
        ours["mse x 1000"] = 1000 * done["heldout_mse"]
    metrics = RunFolder(folder).metrics.rows()
    steps = max([r["step"] for r in metrics if r.get("stage") == last.name and "step" in r], default=1)
    evaluations = [r for r in metrics if r.get("stage") == last.name and "evaluation" in r]
    curve = tuple(
        CurvePoint(
            x=r["step"] if last.steps else r["step"] / steps * last.epochs,
            score=r["evaluation"].get("graded", r["evaluation"]["heldout_accuracy"]),
        )
        for r in evaluations
    )
    seconds = sum(stage.get("seconds", 0.0) for stage in result["stages"].values())
    return SweepRow(
        label=label,
        row=recipe.paper.get("row", ""),
        paper={key: value for key, value in recipe.paper.items() if isinstance(value, (int, float))},
        ours={key: round(value, 2) for key, value in ours.items()},
        report=report,
        seconds=round(seconds, 1),
        unit="step" if last.steps else "epoch",
        curve=curve,
    )
