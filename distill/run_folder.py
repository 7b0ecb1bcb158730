"""The folder of a run: its files, how it is created and reopened, and which stages a related run can reuse.

    recipe.yaml          the recipe as resolved
    environment.json     versions and machine
    inputs.json          hashes of the text, files and local models that it reads
    metrics.jsonl        one JSON object per line: losses, evaluations, finished stages
    vocabulary/          tokenizer.model, if the recipe trains one
    assistant-start/     the untrained assistant, a model folder (if the recipe has one)
    student-start/       the untrained student, a model folder
    stages/N-NAME/       checkpoints/ (step-*.pt until the stage ends, best.safetensors), model/, done.json
    *.sha256.json        hashes of the files of the model folder next to it
    warnings.json        what the run warned of, for the model card
    snapshot/            best weights of an unfinished stage, as a model folder, once it was opened
    student/             the finished student with its model card
    result.json          numbers of all stages and of the `report` files
    running.json         the process that works in the folder and has locked .lock

Runs of a sweep differ in a few settings; the assistant and often the first stages are the same. A stage of another run
is reused if everything that it depends on is equal: models, text, seed, and the stages before it.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import yaml

from msdc.compress.run_files import StageFiles, TrainedStage, stage_path, trained_model, untrained_model
from msdc.distill.catalog import MODELS, PATHS, is_function
from msdc.distill.inputs import changes, is_folder
from msdc.distill.recipe import Recipe, Stage, corpus_label
from msdc.errors import InputError
from msdc.files import (
    HOLDER_FILE,
    LOCK_FILE,
    disk_errors,
    first_damaged,
    held,
    link_file,
    read_json,
    sha256_file,
    staged_folder,
    without_system_files,
    write_json,
    write_text,
)
from msdc.machine import environment
from msdc.progress import say, warn

# Keys that no trained stage depends on.
INDEPENDENT = {"name", "about", "paper", "differs", "report", "student", "stages", "data_sources", "licenses",
               "stock_twin"}  # fmt: skip
METRICS_FILE = "metrics.jsonl"
# What may change when a run is resumed: these keys of a recipe and of stages that are not finished, all paths if the
# files have the same content (msdc.distill.inputs), and the trackers.
RESUMED_RECIPE = ("name", "about", "paper", "differs", "report", "data_sources", "licenses", "stock_twin", "threads",
                  "cache")  # fmt: skip
RESUMED_STAGE = ("learning_rate", "table_learning_rate", "code_learning_rate", "schedule", "warmup_ratio",
                 "warmup_steps", "weight_decay", "clip", "steps", "epochs", "evaluate_every", "patience")  # fmt: skip
# In a finished student's card
REPORTED = ("report", "name", "about", "data_sources", "licenses", "stock_twin", "paper")
# Keys of earlier recipes and stages, with the values that left them unused.
REMOVED = {"accumulate": 1, "average": None, "compile": False}


class Metrics:
    """metrics.jsonl: a run that was killed and resumed leaves the rows of one that was not."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def rows(self) -> list[dict[str, Any]]:
        """All rows, without an incomplete last line (of a run that was killed, or is still running)."""
        metric_rows = []
        lines = self.path.read_bytes().split(b"\n")[:-1] if self.path.is_file() else []
        for number, line in enumerate(lines, 1):
            try:
                metric_rows.append(dict(json.loads(line)))
            except (ValueError, TypeError, RecursionError) as error:
                raise InputError(f"{self.path}, line {number}: not a metrics row ({type(error).__name__})") from error
        return metric_rows

    def last_step(self, stage: str) -> int:
        """The last step that a stage has logged; 0 if it has logged none."""
        return max((int(row.get("step", 0)) for row in self.rows() if row.get("stage") == stage), default=0)

    def append(self, row: dict[str, Any]) -> None:
        """Add one row, by one write."""
        with disk_errors(self.path), open(self.path, "ab") as handle:
            handle.write((json.dumps(row, ensure_ascii=False) + "\n").encode())
            handle.flush()
            # On the disk before the next checkpoint.
            os.fsync(handle.fileno())

    def mend(self) -> None:
        """Remove an incomplete last line, so that the next row begins a line."""
        if self.path.is_file() and (raw := self.path.read_bytes()) and not raw.endswith(b"\n"):
            write_text(self.path, raw[: raw.rfind(b"\n") + 1].decode("utf-8", "replace"))

    def replace(self, drop: Callable[[dict[str, Any]], bool], add: Sequence[dict[str, Any]] = ()) -> None:
        """Remove the rows for which `drop` is true and add others; the file is replaced once."""
        old = self.rows()
        remaining = [row for row in old if not drop(row)]
        if len(remaining) < len(old) or add:
            write_text(self.path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in [*remaining, *add]))

    def rewind(self, stage: str, step: int) -> None:
        """Remove what a stage has logged after `step`: it continues from there and logs it again."""
        self.replace(lambda row: row.get("stage") == stage and ("done" in row or row.get("step", 0) > step))


def _hashes_file(model: Path) -> Path:
    return model.with_name(f"{model.name}.sha256.json")


def has_hashes(model: Path) -> bool:
    """Whether the content of a model folder was noted."""
    return _hashes_file(model).is_file()


def note_hashes(model: Path) -> None:
    """Note the content of a model folder that later stages read back."""
    files = sorted(path for path in model.rglob("*") if path.is_file())
    write_json(_hashes_file(model), {path.relative_to(model).as_posix(): sha256_file(path) for path in files})


def damaged_file(model: Path) -> Path | None:
    """A file of a model folder that is not as it was noted; None if there is none, or for runs of earlier versions."""
    if not has_hashes(model):
        return None
    return first_damaged({model / name: sha256 for name, sha256 in read_json(_hashes_file(model)).items()})


class StageFolder(StageFiles):
    """The folder of one stage, which a run writes."""

    def done(self) -> dict[str, float] | None:
        """Numbers of the finished stage; None while it is unfinished."""
        return read_json(self.done_file) if self.is_finished else None

    def finish(self, numbers: dict[str, float]) -> None:
        """Mark the stage as finished and drop its checkpoints."""
        note_hashes(self.model)
        write_json(self.done_file, numbers)
        self.drop_checkpoints()

    def drop_checkpoints(self) -> None:
        """Remove the checkpoints of a finished stage, except the state at its end (`extendable`)."""
        for path in self.checkpoints.glob("step-*"):
            path.unlink()

    def reopen(self) -> None:
        """Make a finished stage unfinished, to train it further."""
        self.done_file.unlink(missing_ok=True)
        shutil.rmtree(self.model, ignore_errors=True)


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path) -> None:
        self.path, self.student = path, path / "student"
        self.inputs_file = path / "inputs.json"
        self.recipe_file, self.result_file = path / "recipe.yaml", path / "result.json"  # the first and the last
        self.metrics = Metrics(path / METRICS_FILE)
        self.warnings_file = path / "warnings.json"

    def stage(self, number: int, stage: Stage) -> StageFolder:
        """The folder of stage `number` (from 0)."""
        return StageFolder(stage_path(self.path, number, stage.name))

    def untrained(self, role: str) -> Path:
        """The model folder that `assistant` or `student` starts from."""
        return untrained_model(self.path, role)

    def trained(self, recipe: Recipe, role: str) -> Path:
        """Model folder of `assistant` or `student` after the last finished stage that trained it."""
        stages = [
            TrainedStage(stage.name, stage.role, self.stage(number, stage))
            for number, stage in enumerate(recipe.stages)
        ]
        return trained_model(self.path, stages, role)

    def warnings(self) -> list[str]:
        """What the run has warned of so far."""
        return list(read_json(self.warnings_file)["warnings"]) if self.warnings_file.is_file() else []

    def note_warning(self, text: str) -> None:
        """Add a warning, once."""
        if text not in (before := self.warnings()):
            write_json(self.warnings_file, {"warnings": [*before, text]})

    def unstarted(self) -> bool:
        """Whether it is absent, empty, or left by a run that was killed before it wrote its recipe."""
        if not self.path.is_dir():
            return not os.path.lexists(self.path)
        early = ("environment.json", "inputs.json", LOCK_FILE, HOLDER_FILE)
        remaining = [path for path in without_system_files(self.path.iterdir()) if path.name not in early]
        return all(path.name.startswith(".") and path.suffix == ".partial" for path in remaining)

    def started(self) -> bool:
        """Whether it has the files that a run writes first; a recipe alone may be the user's."""
        return self.recipe_file.is_file() and (self.path / "environment.json").is_file()

    def held(self) -> AbstractContextManager[None]:
        """Lock the folder against other processes; refuse one that is not a run folder."""
        if not self.recipe_file.is_file() and not self.unstarted():
            raise InputError(f"{self.path} exists and is not a run folder: choose another `output`")
        return held(self.path)

    def check(self, recipe: Recipe, resume: bool) -> None:
        """Refuse the folder of another run."""
        if not self.recipe_file.is_file():
            return
        if not resume:
            raise InputError(f"{self.path} exists already: pass `resume` to continue it, or another `output`")
        before = read_recipe(self.path)
        if differences := recipe_differences(before, recipe):
            raise InputError(
                f"{self.path} was started with another recipe: {_first_of(differences)}. Resume with the same recipe, "
                "or choose another `output`"
            )
        for number, stage in enumerate(recipe.stages):
            folder = self.stage(number, stage)
            changed = _changed_keys(before.stages[number], stage)
            if folder.done() is None or not changed:
                continue
            last = number == len(recipe.stages) - 1
            if not last or not changed <= {"steps", "epochs"} or not _is_longer(before.stages[number], stage):
                raise InputError(
                    f"{self.path}: stage {stage.name} is finished, its {', '.join(sorted(changed))} cannot change any "
                    "more (the last stage can continue to more steps)"
                )
            if not any(folder.checkpoints.glob("end-*.json")):
                raise InputError(
                    f"{self.path}: stage {stage.name} is finished and its optimizer state was dropped, so it cannot be "
                    "continued; a run with `extendable` keeps it"
                )

    def check_inputs(self, inputs: Mapping[str, str]) -> None:
        """Refuse to continue a run whose text, files or models have changed."""
        if not self.recipe_file.is_file():
            return
        if not self.inputs_file.is_file():
            warn(f"{self.path} was started by an earlier version: rows come in another order from here on")
        elif changed := changes(read_json(self.inputs_file), inputs):
            raise InputError(
                f"{self.path} was started with other inputs: {_first_of(changed)}. Restore them, or choose another "
                "`output`"
            )

    def create(self, recipe: Recipe, inputs: Mapping[str, str]) -> None:
        """Write the recipe, its inputs and the environment, once; remove the incomplete files of a killed process.

        A recipe with more steps replaces the one that the run was started with, and its last stage continues.
        """
        for leftover in [*self.path.rglob(".*.partial"), *self.path.rglob(".*.old")]:
            if leftover.is_dir():
                shutil.rmtree(leftover)
            else:
                leftover.unlink(missing_ok=True)
        before = read_recipe(self.path) if self.recipe_file.is_file() else None
        number, last = len(recipe.stages) - 1, recipe.stages[-1]
        extended = before is not None and self.stage(number, last).done() is not None
        extended = extended and bool(_changed_keys(before.stages[-1], last))  # type: ignore[union-attr]
        rewritten = before is not None and any(getattr(before, key) != getattr(recipe, key) for key in REPORTED)
        if extended or rewritten:
            # The recipe is written after this: if the process is killed before, the same command repeats it.
            self.result_file.unlink(missing_ok=True)
            shutil.rmtree(self.student, ignore_errors=True)
        if extended:
            self.stage(number, last).reopen()
            say(f"{self.path}: stage {last.name} continues to more steps")
        if before is not None and (changed := changed_settings(before, recipe)):
            warn(f"{self.path}: resumed with {'; '.join(changed)}")
        if inputs != (read_json(self.inputs_file) if self.inputs_file.is_file() else None):
            write_json(self.inputs_file, dict(inputs))
        if before != recipe:
            # Written first: it marks the folder as a run's, which can be resumed.
            tree = json.loads(recipe.model_dump_json())
            write_text(self.recipe_file, yaml.safe_dump(tree, allow_unicode=True, sort_keys=False))
        if not (self.path / "environment.json").is_file():
            write_json(self.path / "environment.json", environment())
        self.metrics.mend()

    def reuse(self, recipe: Recipe, other: Path) -> list[str]:
        """Link the finished stages of the run in `other` that `recipe` would repeat; returns their names."""
        earlier, shared = read_recipe(other), RunFolder(other).inputs_file
        if not shared.is_file() or read_json(shared) != read_json(self.inputs_file):
            return []  # other text, or a run of an earlier version, which did not record it
        if recipe.model_dump(exclude=INDEPENDENT) != earlier.model_dump(exclude=INDEPENDENT):
            return []
        for part in ("vocabulary", "assistant-start"):
            _link(other / part, self.path / part)
            _link_hashes(other / part, self.path / part)
        first = next((n for n, stage in enumerate(recipe.stages) if stage.role != "assistant"), len(recipe.stages))
        if recipe.student == earlier.student and recipe.stages[:first] == earlier.stages[:first]:
            _link(other / "student-start", self.path / "student-start")
            _link_hashes(other / "student-start", self.path / "student-start")
        reused = []
        for number, (stage, same) in enumerate(zip(recipe.stages, earlier.stages, strict=False)):
            if stage != same:
                break
            source, target = RunFolder(other).stage(number, stage), self.stage(number, stage)
            ends_equal = stage.train == "assistant" or recipe.student == earlier.student
            if ends_equal and source.done() is not None and not target.path.exists():
                # Metrics first: the folder, which appears whole, marks the stage as finished.
                rows = [row for row in RunFolder(other).metrics.rows() if row.get("stage") == stage.name]
                self.metrics.replace(lambda row, name=stage.name: row.get("stage") == name, rows)  # type: ignore[misc]
                _link(source.path, target.path)
                reused.append(stage.name)
        return reused


# --- recipes of runs --------------------------------------------------------------------------------------------------


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a run folder; keys that the run's version did not have get their defaults.

    Keys that went since are ignored if they changed nothing.
    """
    try:
        tree = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
        for part in (tree, *tree["stages"]):
            for key in [key for key, unused in REMOVED.items() if part.get(key, ...) == unused]:
                del part[key]
        return Recipe(**tree)
    except (OSError, AttributeError, LookupError, TypeError, ValueError, yaml.YAMLError) as error:
        raise InputError(f"{folder}/recipe.yaml cannot be read: {str(error).splitlines()[0]}") from error


def leaves(value: Any, key_path: str = "") -> Iterator[tuple[str, Any]]:
    """(key path, value) of all values in a recipe's mapping; stages and corpora by name."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{key_path}.{key}" if key_path else str(key))
    elif isinstance(value, (list, tuple)) and value:
        kind = key_path.rsplit(".", 1)[-1]
        names = [
            entry["name"] if kind == "stages" else corpus_label(entry) if kind == "corpora" else "" for entry in value
        ]
        for number, (name, inner) in enumerate(zip(names, value, strict=True)):
            yield from leaves(inner, f"{key_path}.{name if name and names.count(name) == 1 else number}")
    else:
        yield key_path, value


def recipe_differences(old: Recipe, new: Recipe) -> list[str]:
    """The differences of two recipes that a resumed run may not have, such as `stages.train.batch: 64 then, 32 now`."""
    return _differences(old, new, lambda key_path: not _may_change(key_path))


def changed_settings(old: Recipe, new: Recipe) -> list[str]:
    """The differences that it may have and that its training depends on."""
    return _differences(old, new, lambda key_path: key_path.startswith("stages.") and _may_change(key_path))


def _may_change(key_path: str) -> bool:
    parts = key_path.split(".")
    return parts[0] in RESUMED_RECIPE or (parts[0] == "stages" and len(parts) == 3 and parts[2] in RESUMED_STAGE)


def _changed_keys(before: Stage, now: Stage) -> set[str]:
    return {key for key in RESUMED_STAGE if getattr(before, key) != getattr(now, key)}


def _is_longer(before: Stage, now: Stage) -> bool:
    if before.steps is None or now.steps is None:
        return before.steps is None and now.steps is None and now.epochs > before.epochs
    return now.steps > before.steps


def _differences(old: Recipe, new: Recipe, counts: Callable[[str], bool]) -> list[str]:
    """The key paths for which `counts` is true where two recipes differ, with both values. Paths are no difference."""
    trees = [json.loads(recipe.model_dump_json()) for recipe in (old, new)]
    before, now = (dict(leaves(tree)) for tree in (_with_paths_of(trees[1], trees[0]), trees[1]))
    return [
        f"{key_path}: {json.dumps(before.get(key_path), ensure_ascii=False)} then, "
        f"{json.dumps(now.get(key_path), ensure_ascii=False)} now"
        for key_path in dict.fromkeys([*before, *now])
        if before.get(key_path) != now.get(key_path) and counts(key_path)
    ]


def _with_paths_of(new: Any, old: Any, key: str = "") -> Any:
    """`old` with the paths of `new` in their places: of files, and of models that are folders."""
    if isinstance(old, dict) and isinstance(new, dict):
        return {name: _with_paths_of(new.get(name), value, name) for name, value in old.items()}
    if isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new) and key not in PATHS:
            return old
        return (
            new
            if key in PATHS
            else [_with_paths_of(new_value, old_value, key) for old_value, new_value in zip(old, new, strict=True)]
        )
    same = key in PATHS or (key in MODELS and is_folder(old) and is_folder(new))
    same = same or (is_function(old, key) and is_function(new, key) and Path(old).name == Path(new).name)
    return new if same and old is not None and new is not None else old


def _first_of(reasons: Sequence[str]) -> str:
    others = f", and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return "; ".join(reasons[:3]) + others


def _link_hashes(source: Path, target: Path) -> None:
    if _hashes_file(source).is_file() and target.is_dir() and not _hashes_file(target).exists():
        link_file(_hashes_file(source), _hashes_file(target))


def _link(source: Path, target: Path) -> None:
    """Create `target` as a folder of links to the files of `source`, atomically; an existing one is kept."""
    if source.is_dir() and not target.exists():
        with staged_folder(target) as stage:
            ignored = shutil.ignore_patterns("step-*", ".*.partial", ".*.old")
            shutil.copytree(source, stage, copy_function=link_file, dirs_exist_ok=True, ignore=ignored)
