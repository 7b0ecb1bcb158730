"""Which part of the loss each objective is, stage by stage, in the shipped recipes.

    python benchmarks/loss_shares.py --data DATA --work WORK --write docs/results/loss-shares.md

First a trial of every stage of recipes with more than one objective (where there is one, it is all of the loss): the
recipe's models, batch sizes, rates and weights on a few hundred rows of each corpus, as `msdc distill --dry-run` has
it, with more steps. Then, from the rows of benchmarks/papers.py in --work, the shares over whole stages at small size.
A share is of the sum of all weighted parts, in absolute value.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from results_page import add_write_option, table, write_page

from msdc.distill.catalog import load_recipe, objective_text
from msdc.distill.recipe import Recipe
from msdc.distill.run import Run
from msdc.distill.sweep import trial_recipe

STEPS = 8
SUMMED = "stages.contrast.objective=[multilingual_contrastive, {name: multilingual_mse, options: {reduction: sum}}]"
RECIPES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("quickstart", ()),
    ("msd:small", ()),
    ("msd:small", (SUMMED,)),
    ("distilcse:small+pkd", ()),
    ("distilcse:small+metakd", ()),
    ("lightweight:small", ()),
)


def shares_of(numbers: dict[str, float]) -> dict[str, float]:
    """The shares among the numbers of a finished stage, by objective."""
    return {key.removeprefix("share_"): value for key, value in numbers.items() if key.startswith("share_")}


def percent(shares: dict[str, float]) -> str:
    """For a cell; three digits, so that a tiny part is seen."""
    return ", ".join(f"{name} {100 * share:.3g} %" for name, share in shares.items())


def trial(recipe: Recipe, steps: int) -> dict[str, dict[str, float]]:
    """Shares of every stage over the first `steps` steps, on a sample of the text.

    Raises:
        MsdcError: what a run would refuse.
    """
    with tempfile.TemporaryDirectory(prefix="msdc-shares-") as folder:
        small = trial_recipe(recipe, Path(folder) / "guides")
        assert small is not None, "a stage's corpora need the network"
        stages = tuple(one.model_copy(update={"steps": steps, "evaluate_every": steps}) for one in small.stages)
        done = Run(small.model_copy(update={"stages": stages, "threads": 1}), Path(folder) / "run").run()
    return {name: shares_of(numbers) for name, numbers in done.stages.items()}


def last_stages(work: Path) -> Iterable[tuple[str, str, dict[str, float], int]]:
    """Table and row, stage and steps, mean shares, and number of seeds, of rows of `work` with several objectives."""
    found: dict[tuple[str, str], dict[int, dict[str, float]]] = {}
    for line in (work / "rows.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if len(row.get("shares", {})) > 1:
            stage, steps = list(row["steps"].items())[-1]
            # Of a row that was measured twice, the later one.
            found.setdefault((f"{row['table']}, {row['row']}", f"{stage}, {steps} steps"), {})[row["seed"]] = row[
                "shares"
            ]
    for (name, stage), seeds in sorted(found.items()):
        shares = list(seeds.values())
        yield name, stage, {key: float(np.mean([one[key] for one in shares])) for key in shares[0]}, len(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="data folder (docs/guides/data.md)")
    parser.add_argument("--work", type=Path, help="that of benchmarks/papers.py; default: the trial alone")
    parser.add_argument(
        "--recipes", nargs="*", help="of the trial, by name; default: all of RECIPES, without names: none"
    )
    parser.add_argument("--steps", type=int, default=STEPS, help=f"of each stage's trial; default: {STEPS}")
    add_write_option(parser, "loss-shares")
    options = parser.parse_args()
    rows = []
    for name, overrides in RECIPES:
        if options.recipes is not None and name not in options.recipes:
            continue
        recipe = load_recipe(name, overrides, options.data)
        found = trial(recipe, options.steps)
        for stage in recipe.stages:
            rows.append((f"`{name}`", stage.name, objective_text(stage.objective), percent(found[stage.name])))
    text: list[str] = []
    if rows:
        text += [
            f"## The first {options.steps} steps of every stage",
            "",
            "On a sample of the text, with a vocabulary of 2,000 pieces; the stages before have had as many steps. "
            "Recipes with one objective per stage are not listed: it is all of the loss (`msdc-mini`: "
            "`multilingual_mse`).",
            "",
            table(("recipe", "stage", "loss", "shares"), rows),
            "",
        ]
    if options.work is not None:
        whole = [(row, stage, percent(mean), str(seeds)) for row, stage, mean, seeds in last_stages(options.work)]
        text += ["## Whole stages", "",
                 "The last stage of those rows of [the papers' tables](papers.md) that have more than one objective in "
                 "it; means over seeds.", "", table(("table, row", "stage", "shares", "seeds"), whole)]  # fmt: skip
    if options.write:
        write_page(options.write, "Loss shares of the shipped recipes", "students of a few steps, taught in these runs",
                   "\n".join(text), libraries=("torch", "transformers"))  # fmt: skip
    else:
        print("\n".join(text))


if __name__ == "__main__":
    main()
