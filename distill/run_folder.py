"""What two runs have in common is taught once: finished stages of a related run are linked into a new one.

Runs of a sweep differ in a few settings; the assistant and often the first stages are the same. A stage may be taken
over when everything that it follows from is equal: models, text, seed, and the stages before it.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import yaml

from msdc.distill.recipe import Recipe
from msdc.errors import InputError

# What no stage follows from: names, and what is said about the run.
APART = {"name", "about", "paper", "report", "student", "stages", "data_sources", "licenses"}


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a run folder; values that came after it was begun have their defaults.

    Raises:
        InputError: there is none, or it is not a recipe.
    """
    try:
        return Recipe(**yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{folder}/recipe.yaml cannot be read: {str(error).splitlines()[0]}") from error


def common_stages(one: Recipe, other: Recipe) -> list[int]:
    """Numbers of the stages of `one` that end with equal weights in `other`."""
    if one.model_dump(exclude=APART) != other.model_dump(exclude=APART):
        return []
    found = []
    for number, (mine, theirs) in enumerate(zip(one.stages, other.stages, strict=False)):
        if mine != theirs:
            break
        if mine.train == "assistant" or one.student == other.student:
            found.append(number)
    return found


def _link(source: Path, target: Path) -> None:
    if source.is_dir() and not target.exists():
        shutil.copytree(source, target, copy_function=os.link)


def adopt(recipe: Recipe, folder: Path, other: Path) -> list[str]:
    """Link what `other` has finished and `recipe` would do again into `folder`; names of the stages taken over."""
    theirs = read_recipe(other)
    if recipe.model_dump(exclude=APART) != theirs.model_dump(exclude=APART):
        return []
    common = common_stages(recipe, theirs)
    before = next((n for n, stage in enumerate(recipe.stages) if stage.train != "assistant"), len(recipe.stages))
    for part in ("vocabulary", "assistant-start"):
        _link(other / part, folder / part)
    if recipe.student == theirs.student and recipe.stages[:before] == theirs.stages[:before]:
        _link(other / "student-start", folder / "student-start")
    taken = []
    for number in common:
        name = f"{number}-{recipe.stages[number].name}"
        if (other / "stages" / name / "done.json").is_file() and not (folder / "stages" / name).exists():
            _link(other / "stages" / name, folder / "stages" / name)
            taken.append(recipe.stages[number].name)
    if taken:
        lines = (other / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if json.loads(line).get("stage") in taken]
        with open(folder / "metrics.jsonl", "a", encoding="utf-8") as handle:
            handle.writelines(line + "\n" for line in kept)
    return taken
