"""The folder of a run: what lies where, how it is created and reopened, and what a related run can take over.

    recipe.yaml          the recipe as resolved
    environment.json     versions and machine
    metrics.jsonl        one JSON object per line: losses, evaluations, finished stages
    vocabulary/          tokenizer.model, where the recipe trains one
    assistant-start/     the untrained assistant, a model folder (where the recipe has one)
    student-start/       the untrained student, a model folder
    stages/N-NAME/       checkpoints/ (step-*.pt until the stage is finished, best.safetensors), model/, done.json
    student/             the finished student with its model card
    result.json          numbers of all stages and of the `report` files

Runs of a sweep differ in a few settings; the assistant and often the first stages are the same. A stage is taken over
from another run when everything that it follows from is equal: models, text, seed, and the stages before it.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from msdc.distill.catalog import set_paths
from msdc.distill.recipe import Recipe, Stage
from msdc.distill.training.metrics import FILE_NAME, Metrics
from msdc.errors import InputError
from msdc.files import read_json, staged_folder, write_json, write_text
from msdc.machine import environment
from msdc.progress import say

# Keys that no trained stage depends on: names, and what is said about the run.
INDEPENDENT = {
    "name",
    "about",
    "paper",
    "differs",
    "report",
    "student",
    "stages",
    "data_sources",
    "licenses",
    "stock_twin",
}


@dataclass(frozen=True)
class StageFolder:
    """The folder of one stage."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of the unfinished stage, and the best weights so far."""
        return self.path / "checkpoints"

    @property
    def model(self) -> Path:
        """The model folder that the finished stage leaves."""
        return self.path / "model"

    @property
    def end(self) -> Path:
        """The state at the last step, of a finished stage that may be extended (`--extendable`)."""
        return self.checkpoints / "end.pt"

    def take_up(self) -> None:
        """Make the state at the last step a checkpoint to continue from; its mark is moved last."""
        mark = self.end.with_suffix(".json")
        target = self.checkpoints / f"step-{int(read_json(mark)['step']):08d}.pt"
        if self.end.is_file():
            shutil.copy2(self.end, target)
        shutil.copy2(mark, target.with_suffix(".json"))

    def done(self) -> dict[str, float] | None:
        """Numbers of the finished stage; None while it is unfinished."""
        file = self.path / "done.json"
        return read_json(file) if file.is_file() else None

    def finish(self, numbers: dict[str, float]) -> None:
        """Mark the stage as finished and drop its checkpoints."""
        write_json(self.path / "done.json", numbers)
        self.drop_checkpoints()

    def drop_checkpoints(self) -> None:
        """Remove the checkpoints of a finished stage."""
        for path in self.checkpoints.glob("step-*"):
            path.unlink()


@dataclass(frozen=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def recipe_file(self) -> Path:
        """The recipe as resolved."""
        return self.path / "recipe.yaml"

    @property
    def student(self) -> Path:
        """The finished student."""
        return self.path / "student"

    @property
    def result_file(self) -> Path:
        """Numbers of all stages; the last file that a run writes."""
        return self.path / "result.json"

    @property
    def metrics(self) -> Metrics:
        """What was logged."""
        return Metrics(self.path / FILE_NAME)

    def stage(self, number: int, stage: Stage) -> StageFolder:
        """The folder of stage `number` (from 0)."""
        return StageFolder(self.path / "stages" / f"{number}-{stage.name}")

    def untrained(self, role: str) -> Path:
        """The model folder that `assistant` or `student` starts from."""
        return self.path / f"{role}-start"

    def newest(self, recipe: Recipe, role: str) -> Path:
        """Model folder of `assistant` or `student` after the last finished stage that trained it."""
        newest = self.untrained(role)
        for number, stage in enumerate(recipe.stages):
            folder = self.stage(number, stage)
            if stage.role == role and folder.done() is not None:
                newest = folder.model
        return newest

    def check(self, recipe: Recipe, resume: bool) -> None:
        """Refuse a folder that this run may not write to.

        Raises:
            InputError: it holds a run and `resume` is false, it belongs to another recipe, or it is no run folder.
        """
        if self.recipe_file.is_file():
            if not resume:
                raise InputError(f"{self.path} exists already: pass --resume to continue it, or -o another folder")
            if differences := differing(read_recipe(self.path), recipe):
                more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
                raise InputError(
                    f"{self.path} was started with another recipe: {'; '.join(differences[:3])}{more}. Resume with the "
                    f"recipe it was started with, or name another folder with -o"
                )
            self._check_extension(recipe)
        elif not self.unstarted():
            raise InputError(f"{self.path} exists and is no run folder: choose another with -o")

    def _is_extended(self, recipe: Recipe) -> bool:
        """Whether a recipe asks for more steps than the one that the run was started with; nothing else differs."""
        before, now = read_recipe(self.path).stages[-1], recipe.stages[-1]
        return (before.steps, before.epochs) != (now.steps, now.epochs)

    def _check_extension(self, recipe: Recipe) -> None:
        number = len(recipe.stages) - 1
        last = self.stage(number, recipe.stages[number])
        if self._is_extended(recipe) and last.done() is not None and not last.end.is_file():
            raise InputError(
                f"{self.path}: stage {recipe.stages[number].name} is finished and its optimizer state was dropped, so "
                "it cannot go on to more steps; a run with --extendable keeps it"
            )

    def extend(self, recipe: Recipe) -> None:
        """Take up a finished last stage again for a recipe with more steps, and keep that recipe.

        The recipe is written last: killed before, the same command does it again.
        """
        if not self._is_extended(recipe):
            return
        number = len(recipe.stages) - 1
        last = self.stage(number, recipe.stages[number])
        if last.done() is not None:
            last.take_up()
        for path in (self.result_file, last.path / "done.json"):
            path.unlink(missing_ok=True)
        for folder in (self.student, last.model):
            shutil.rmtree(folder, ignore_errors=True)
        self._write(recipe)
        say(f"{self.path}: stage {recipe.stages[number].name} goes on to more steps")

    def _write(self, recipe: Recipe) -> None:
        tree = json.loads(recipe.model_dump_json())
        write_text(self.recipe_file, yaml.safe_dump(tree, allow_unicode=True, sort_keys=False))

    def unstarted(self) -> bool:
        """Whether it is absent, empty, or holds only what a run leaves that was killed before it wrote its recipe."""
        if not self.path.is_dir():
            return not os.path.lexists(self.path)
        return all(
            path.name == "environment.json" or (path.name.startswith(".") and path.suffix == ".partial")
            for path in self.path.iterdir()
        )

    def create(self, recipe: Recipe) -> None:
        """Write the recipe and the environment, once; remove what a killed process left half-written."""
        for left in [*self.path.rglob(".*.partial"), *self.path.rglob(".*.old")]:
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)
        # The recipe first: it makes the folder a run's, which `resume` completes.
        if not self.recipe_file.is_file():
            self._write(recipe)
        else:
            self.extend(recipe)
        if not (self.path / "environment.json").is_file():
            write_json(self.path / "environment.json", environment())
        self.metrics.mend()

    def log(self, row: dict[str, Any]) -> None:
        """Append one line to metrics.jsonl."""
        self.metrics.append(row)

    def take_over(self, recipe: Recipe, other: Path) -> list[str]:
        """Link what the run in `other` has finished and `recipe` would repeat; names of the stages taken over."""
        theirs = read_recipe(other)
        if recipe.model_dump(exclude=INDEPENDENT) != theirs.model_dump(exclude=INDEPENDENT):
            return []
        before = next((n for n, stage in enumerate(recipe.stages) if stage.role != "assistant"), len(recipe.stages))
        for part in ("vocabulary", "assistant-start"):
            _link(other / part, self.path / part)
        if recipe.student == theirs.student and recipe.stages[:before] == theirs.stages[:before]:
            _link(other / "student-start", self.path / "student-start")
        taken = []
        for number in common_stages(recipe, theirs):
            stage = recipe.stages[number]
            source, target = RunFolder(other).stage(number, stage), self.stage(number, stage)
            if source.done() is not None and not target.path.exists():
                # Metrics first: the folder, which appears whole, is the mark that the stage is taken over.
                rows = [row for row in RunFolder(other).metrics.rows() if row.get("stage") == stage.name]
                self.metrics.replace(lambda row, name=stage.name: row.get("stage") == name, rows)  # type: ignore[misc]
                _link(source.path, target.path)
                taken.append(stage.name)
        return taken


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a run folder; keys that are newer than the run have their defaults.

    Raises:
        InputError: there is none, or it is not a recipe.
    """
    try:
        return Recipe(**yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{folder}/recipe.yaml cannot be read: {str(error).splitlines()[0]}") from error


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """(place, value) of everything in a recipe's mapping; stages by their names."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, (list, tuple)) and value:
        for number, inner in enumerate(value):
            name = inner.get("name") if isinstance(inner, dict) and place == "stages" else None
            yield from leaves(inner, f"{place}.{name or number}")
    else:
        yield place, value


def differing(old: Recipe, new: Recipe) -> list[str]:
    """Where two recipes differ, as `stages.teach.batch: 64 then, 32 now`; relative paths are those of this folder.

    More steps or epochs of the last stage are no difference: a resumed run goes on to them.
    """
    trees = [set_paths(json.loads(recipe.model_dump_json()), Path.cwd()) for recipe in (old, new)]
    before, now = (dict(leaves(tree)) for tree in trees)
    longer = tuple(f"stages.{new.stages[-1].name}.{key}" for key in ("steps", "epochs"))
    found = []
    for place in dict.fromkeys([*before, *now]):
        one, two = before.get(place), now.get(place)
        if one == two or (place in longer and one is not None and two is not None and two > one):
            continue
        found.append(f"{place}: {json.dumps(one, ensure_ascii=False)} then, {json.dumps(two, ensure_ascii=False)} now")
    return found


def common_stages(one: Recipe, other: Recipe) -> list[int]:
    """Numbers of the stages of `one` that end with equal weights in `other`."""
    if one.model_dump(exclude=INDEPENDENT) != other.model_dump(exclude=INDEPENDENT):
        return []
    found = []
    for number, (mine, theirs) in enumerate(zip(one.stages, other.stages, strict=False)):
        if mine != theirs:
            break
        if mine.train == "assistant" or one.student == other.student:
            found.append(number)
    return found


def _link_file(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        # Another file system, or one without hard links.
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS, errno.EINVAL):
            raise
        shutil.copy2(source, target)


def _link(source: Path, target: Path) -> None:
    """Make `target` a folder of links to the files of `source`, whole or not at all; an existing one is kept."""
    if source.is_dir() and not target.exists():
        with staged_folder(target) as stage:
            ignored = shutil.ignore_patterns("step-*", ".*.partial", ".*.old")
            shutil.copytree(source, stage, copy_function=_link_file, dirs_exist_ok=True, ignore=ignored)
