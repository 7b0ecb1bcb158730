"""The folder of a run: what lies where, how it is created and reopened, and what a related run can take over.

    recipe.yaml          the recipe as resolved
    environment.json     versions and machine
    metrics.jsonl        one JSON object per line: losses, evaluations, finished stages
    vocabulary/          tokenizer.model, where the recipe trains one
    assistant-start/     the untrained assistant, a model folder (where the recipe has one)
    student-start/       the untrained student, a model folder
    stages/N-NAME/       checkpoints/ (step-*.pt until the stage is finished, best.safetensors), model/, done.json
    snapshot/            best weights of a stage that still goes on, as a model folder, once somebody has opened it
    student/             the finished student with its model card
    result.json          numbers of all stages and of the `report` files
    running.json         which process works in the folder, while one does; it holds the lock of the file .lock

Runs of a sweep differ in a few settings; the assistant and often the first stages are the same. A stage is taken over
from another run when everything that it follows from is equal: models, text, seed, and the stages before it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from msdc.distill.catalog import set_paths
from msdc.distill.recipe import Recipe, Stage, corpus_label
from msdc.errors import InputError
from msdc.files import (
    HOLDER_FILE,
    LOCK_FILE,
    disk_errors,
    held,
    link_file,
    read_json,
    staged_folder,
    write_json,
    write_text,
)
from msdc.machine import environment
from msdc.progress import say

# Keys that no trained stage depends on: names, and what is said about the run.
INDEPENDENT = {"name", "about", "paper", "differs", "report", "student", "stages", "data_sources", "licenses",
               "stock_twin"}  # fmt: skip
METRICS_FILE = "metrics.jsonl"


class Metrics:
    """metrics.jsonl: a run that was killed and resumed leaves the rows of one that was not."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[dict[str, Any]]:
        """All rows; a last line that was not written to its end (a killed run, or one that still runs) is skipped."""
        found = []
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.is_file() else []
        for number, line in enumerate(lines, 1):
            try:
                found.append(dict(json.loads(line)))
            except (ValueError, TypeError, RecursionError) as error:
                raise InputError(f"{self.path}, line {number}: not a metrics row ({type(error).__name__})") from error
        return found

    def last_step(self, stage: str) -> int:
        """The last step that a stage has logged; 0 without any."""
        return max((int(row.get("step", 0)) for row in self.rows() if row.get("stage") == stage), default=0)

    def append(self, row: dict[str, Any]) -> None:
        """Add one row, by one write."""
        with disk_errors(self.path), open(self.path, "ab") as handle:
            handle.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
            handle.flush()
            # What a checkpoint follows on is on the disk before the checkpoint is.
            os.fsync(handle.fileno())

    def mend(self) -> None:
        """Cut off a last line that was not written to its end, so that the next row begins a line."""
        if self.path.is_file() and (raw := self.path.read_bytes()) and not raw.endswith(b"\n"):
            write_text(self.path, raw[: raw.rfind(b"\n") + 1].decode("utf-8", "replace"))

    def replace(self, drop: Callable[[dict[str, Any]], bool], add: Sequence[dict[str, Any]] = ()) -> None:
        """Remove the rows for which `drop` is true and add others, in one replacement of the file."""
        old = self.rows()
        kept = [row for row in old if not drop(row)]
        if len(kept) < len(old) or add:
            write_text(self.path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in [*kept, *add]))

    def rewind(self, stage: str, step: int) -> None:
        """Forget what a stage has logged after `step`: it continues from there, and says it again."""
        self.replace(lambda row: row.get("stage") == stage and ("done" in row or row.get("step", 0) > step))


class StageFolder:
    """The folder of one stage: `checkpoints` while it is trained, `model` when it is finished."""

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints, self.model = path, path / "checkpoints", path / "model"
        self.best = self.checkpoints / "best.safetensors"
        self._mark = path / "done.json"

    def done(self) -> dict[str, float] | None:
        """Numbers of the finished stage; None while it is unfinished."""
        return read_json(self._mark) if self._mark.is_file() else None

    def finish(self, numbers: dict[str, float]) -> None:
        """Mark the stage as finished and drop its checkpoints."""
        write_json(self._mark, numbers)
        self.drop_checkpoints()

    def drop_checkpoints(self) -> None:
        """Remove the checkpoints of a finished stage, but for the state at its end (`--extendable`)."""
        for path in self.checkpoints.glob("step-*"):
            path.unlink()

    def reopen(self) -> None:
        """Take away what a finished stage leaves: it goes on."""
        self._mark.unlink(missing_ok=True)
        shutil.rmtree(self.model, ignore_errors=True)


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path, self.student = path, path / "student"
        self.recipe_file, self.result_file = path / "recipe.yaml", path / "result.json"  # the first and the last
        self.metrics = Metrics(path / METRICS_FILE)

    def stage(self, number: int, stage: Stage) -> StageFolder:
        """The folder of stage `number` (from 0)."""
        return StageFolder(self.path / "stages" / f"{number}-{stage.name}")

    def untrained(self, role: str) -> Path:
        """The model folder that `assistant` or `student` starts from."""
        return self.path / f"{role}-start"

    def trained(self, recipe: Recipe, role: str) -> Path:
        """Model folder of `assistant` or `student` after the last finished stage that trained it."""
        found = self.untrained(role)
        for number, stage in enumerate(recipe.stages):
            folder = self.stage(number, stage)
            if stage.role == role and folder.done() is not None:
                found = folder.model
        return found

    def unstarted(self) -> bool:
        """Whether it is absent, empty, or holds only what a run leaves that was killed before it wrote its recipe."""
        if not self.path.is_dir():
            return not os.path.lexists(self.path)
        early = ("environment.json", LOCK_FILE, HOLDER_FILE)
        left = [path for path in self.path.iterdir() if path.name not in early]
        return all(path.name.startswith(".") and path.suffix == ".partial" for path in left)

    def started(self) -> bool:
        """Whether it holds what a run writes first: a recipe alone may be the user's own."""
        return self.recipe_file.is_file() and (self.path / "environment.json").is_file()

    def held(self) -> AbstractContextManager[None]:
        """Keep other processes out for as long as this one works in the folder; refuse what is no run's."""
        if not self.recipe_file.is_file() and not self.unstarted():
            raise InputError(f"{self.path} exists and is no run folder: choose another with -o")
        return held(self.path)

    def check(self, recipe: Recipe, resume: bool) -> None:
        """Refuse the folder of another run."""
        if not self.recipe_file.is_file():
            return
        if not resume:
            raise InputError(f"{self.path} exists already: pass `resume` to continue it, or another `output`")
        if differences := differing(read_recipe(self.path), recipe):
            more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
            raise InputError(
                f"{self.path} was started with another recipe: {'; '.join(differences[:3])}{more}. Resume with the "
                f"recipe it was started with, or name another folder with -o"
            )
        last = self.stage(len(recipe.stages) - 1, recipe.stages[-1])
        if self._is_extended(recipe) and last.done() is not None and not any(last.checkpoints.glob("end-*.json")):
            raise InputError(
                f"{self.path}: stage {recipe.stages[-1].name} is finished and its optimizer state was dropped, so it "
                "cannot go on to more steps; a run with `extendable` keeps it"
            )

    def create(self, recipe: Recipe) -> None:
        """Write the recipe and the environment, once; remove what a killed process left half-written.

        A recipe with more steps replaces the one that the run was started with; its last stage goes on.
        """
        for left in [*self.path.rglob(".*.partial"), *self.path.rglob(".*.old")]:
            if left.is_dir():
                shutil.rmtree(left)
            else:
                left.unlink(missing_ok=True)
        extended = self.recipe_file.is_file() and self._is_extended(recipe)
        if extended:
            # The recipe is written after this: killed before, the same command does it again.
            self.result_file.unlink(missing_ok=True)
            shutil.rmtree(self.student, ignore_errors=True)
            self.stage(len(recipe.stages) - 1, recipe.stages[-1]).reopen()
            say(f"{self.path}: stage {recipe.stages[-1].name} goes on to more steps")
        if extended or not self.recipe_file.is_file():
            # Before all else: it makes the folder a run's, which `resume` completes.
            tree = json.loads(recipe.model_dump_json())
            write_text(self.recipe_file, yaml.safe_dump(tree, allow_unicode=True, sort_keys=False))
        if not (self.path / "environment.json").is_file():
            write_json(self.path / "environment.json", environment())
        self.metrics.mend()

    def _is_extended(self, recipe: Recipe) -> bool:
        """Whether a recipe asks for more steps than the one that the run was started with; nothing else differs."""
        before, now = read_recipe(self.path).stages[-1], recipe.stages[-1]
        return (before.steps, before.epochs) != (now.steps, now.epochs)

    def reuse(self, recipe: Recipe, other: Path) -> list[str]:
        """Link the finished stages of the run in `other` that `recipe` would repeat; returns their names."""
        theirs = read_recipe(other)
        if recipe.model_dump(exclude=INDEPENDENT) != theirs.model_dump(exclude=INDEPENDENT):
            return []
        for part in ("vocabulary", "assistant-start"):
            _link(other / part, self.path / part)
        first = next((n for n, stage in enumerate(recipe.stages) if stage.role != "assistant"), len(recipe.stages))
        if recipe.student == theirs.student and recipe.stages[:first] == theirs.stages[:first]:
            _link(other / "student-start", self.path / "student-start")
        reused = []
        for number, (stage, same) in enumerate(zip(recipe.stages, theirs.stages, strict=False)):
            if stage != same:
                break
            source, target = RunFolder(other).stage(number, stage), self.stage(number, stage)
            ends_equal = stage.train == "assistant" or recipe.student == theirs.student
            if ends_equal and source.done() is not None and not target.path.exists():
                # Metrics first: the folder, which appears whole, is the mark that the stage is taken over.
                rows = [row for row in RunFolder(other).metrics.rows() if row.get("stage") == stage.name]
                self.metrics.replace(lambda row, name=stage.name: row.get("stage") == name, rows)  # type: ignore[misc]
                _link(source.path, target.path)
                reused.append(stage.name)
        return reused


# --- recipes of runs --------------------------------------------------------------------------------------------------


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a run folder; keys that are newer than the run have their defaults."""
    try:
        return Recipe(**yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8")))
    except (OSError, TypeError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{folder}/recipe.yaml cannot be read: {str(error).splitlines()[0]}") from error


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """(place, value) of everything in a recipe's mapping; stages and corpora by their names."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, (list, tuple)) and value:
        kind = place.rsplit(".", 1)[-1]
        names = [one["name"] if kind == "stages" else corpus_label(one) if kind == "corpora" else "" for one in value]
        for number, (name, inner) in enumerate(zip(names, value, strict=True)):
            yield from leaves(inner, f"{place}.{name if name and names.count(name) == 1 else number}")
    else:
        yield place, value


def differing(old: Recipe, new: Recipe) -> list[str]:
    """Where two recipes differ, as `stages.train.batch: 64 then, 32 now`; relative paths are those of this folder.

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


def _link(source: Path, target: Path) -> None:
    """Make `target` a folder of links to the files of `source`, whole or not at all; an existing one is kept."""
    if source.is_dir() and not target.exists():
        with staged_folder(target) as stage:
            ignored = shutil.ignore_patterns("step-*", ".*.partial", ".*.old")
            shutil.copytree(source, stage, copy_function=link_file, dirs_exist_ok=True, ignore=ignored)
