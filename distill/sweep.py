"""A sweep: one recipe in several settings, one table and one plot, the paper's numbers beside ours.

Points come from `table=5` (all variants of a paper's table), `variant=one,two`, or `KEY=a,b,c` (the keys of `--set`).
Stages that two points have in common are taught once (msdc.distill.run_folder). A sweep that was stopped goes on where
it was; finished points are kept.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msdc.distill import parallel
from msdc.distill.catalog import load_recipe, variants_of
from msdc.distill.pipeline import Run
from msdc.distill.recipe import Recipe
from msdc.distill.run_folder import read_recipe
from msdc.errors import InputError
from msdc.files import atomic_path, read_json, write_json, write_text
from msdc.progress import say

PAIR = re.compile(r"(?<![a-z])([a-z]{2})-([a-z]{2})(?![a-z])")


@dataclass(frozen=True)
class Sweep:
    """What to run: a recipe, the sweep's own words, further overrides, and where."""

    recipe: str
    over: str
    overrides: tuple[str, ...]
    folder: Path


def points(recipe: str, over: str, overrides: tuple[str, ...] = ()) -> dict[str, Recipe]:
    """The recipes of a sweep by label.

    Raises:
        InputError: the words are no sweep, or name no variant.
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
        return {name: load_recipe(f"{recipe}{join}{name}", overrides) for name in names}
    return {f"{key}={one}": load_recipe(recipe, (*overrides, f"{key}={one}")) for one in values}


def run_sweep(sweep: Sweep) -> Path:
    """Run all points, then write table.json, table.md and convergence.png into the sweep's folder; returns it.

    Raises:
        MsdcError: a point failed; the others are kept, and the same command goes on from there.
    """
    recipes = points(sweep.recipe, sweep.over, sweep.overrides)
    folders = {label: sweep.folder / re.sub(r"[^A-Za-z0-9._=+-]", "_", label) for label in recipes}
    for number, (label, recipe) in enumerate(recipes.items()):
        folder = folders[label]
        if (folder / "result.json").is_file() and read_recipe(folder) == recipe:
            continue
        say(f"sweep {number + 1}/{len(recipes)}: {label}")
        # Any run beside this one may have taught a stage already; a finished one has most to give.
        beside = sorted(path.parent for path in sweep.folder.glob("*/recipe.yaml") if path.parent != folder)
        Run(recipe, folder, (folder / "recipe.yaml").is_file(), beside).run()
    if parallel.rank_and_world()[0]:
        return sweep.folder
    rows = [row(label, recipes[label], folders[label]) for label in recipes]
    write_json(sweep.folder / "table.json", {"recipe": sweep.recipe, "sweep": sweep.over, "rows": rows})
    write_text(sweep.folder / "table.md", markdown(sweep, rows))
    plot(rows, sweep.folder / "convergence.png")
    return sweep.folder


def row(label: str, recipe: Recipe, folder: Path) -> dict[str, Any]:
    """What a finished point came to, and what the paper says of it."""
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
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    steps = max([r["step"] for r in metrics if r.get("stage") == last.name and "step" in r], default=1)
    evaluations = [r for r in metrics if r.get("stage") == last.name and "evaluation" in r]
    curve = [
        {
            "x": r["step"] if last.steps else r["step"] / steps * last.epochs,
            "score": r["evaluation"].get("graded", r["evaluation"]["heldout_accuracy"]),
        }
        for r in evaluations
    ]
    paper = {key: value for key, value in recipe.paper.items() if isinstance(value, (int, float))}
    seconds = sum(stage.get("seconds", 0.0) for stage in result["stages"].values())
    return {
        "label": label,
        "row": recipe.paper.get("row", ""),
        "paper": paper,
        "ours": {key: round(value, 2) for key, value in ours.items()},
        "report": report,
        "seconds": round(seconds, 1),
        "unit": "step" if last.steps else "epoch",
        "curve": curve,
    }


def markdown(sweep: Sweep, rows: list[dict[str, Any]]) -> str:
    """The table; the paper's columns stand beside ours of the same name."""
    published = list(dict.fromkeys(key for r in rows for key in r["paper"]))
    measured = list(dict.fromkeys(key for r in rows for key in r["ours"]))
    columns = [(key, kind) for key in measured for kind in ("paper", "ours") if kind == "ours" or key in published]
    columns += [(key, "paper") for key in published if key not in measured]
    head = ["setting", "the paper's row", *(f"{key}, {kind}" for key, kind in columns), "seconds"]
    lines = [f"# {sweep.recipe}, {sweep.over}", "", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for r in rows:
        cells = [f"{r[kind][key]:.1f}" if key in r[kind] else "" for key, kind in columns]
        lines.append("| " + " | ".join([r["label"], r["row"], *cells, f"{r['seconds']:.0f}"]) + " |")
    lines += [
        "",
        "mono, cross, avg: Spearman x 100 on the recipe's `report` files; dev: mean on the graded development files; "
        "accuracy: nearest neighbour among held-out pairs. The paper's columns are its own models on its own data and "
        "test sets.",
        "",
    ]
    return "\n".join(lines)


def plot(rows: list[dict[str, Any]], target: Path) -> None:
    """Score on the development files (held-out accuracy where there are none) by epoch, the last stage of each."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for r in rows:
        axes.plot(
            [p["x"] for p in r["curve"]], [p["score"] for p in r["curve"]], marker="o", markersize=3, label=r["label"]
        )
    units = {r["unit"] for r in rows}
    axes.set_xlabel(f"{' / '.join(sorted(units))} of the last stage")
    axes.set_ylabel("score on development data")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    with atomic_path(target) as temporary:
        figure.savefig(temporary, format="png", dpi=150)
    pyplot.close(figure)
