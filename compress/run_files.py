"""The files in a run folder of `msdc distill` that hold models: a run may be named wherever a model is.

`msdc.distill.run_folder` lists all files of a run and writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msdc.errors import InputError


class StageFiles:
    """The files of one stage: `checkpoints` while it is trained, `model` when it is finished."""

    def __init__(self, path: Path) -> None:
        self.path, self.checkpoints, self.model = path, path / "checkpoints", path / "model"
        self.best = self.checkpoints / "best.safetensors"
        self.done_file = path / "done.json"

    @property
    def is_finished(self) -> bool:
        """Whether the stage has ended."""
        return self.done_file.is_file()


class TrainedStage(NamedTuple):
    """A stage by its name, the role that it trains (`assistant` or `student`), and its files."""

    name: str
    role: str
    files: StageFiles


def stage_path(run: Path, number: int, name: str) -> Path:
    """The folder of stage `number` (from 0)."""
    return run / "stages" / f"{number}-{name}"


def untrained_model(run: Path, role: str) -> Path:
    """The model folder that `assistant` or `student` starts from."""
    return run / f"{role}-start"


def trained_model(run: Path, stages: Sequence[TrainedStage], role: str) -> Path:
    """The model folder of `assistant` or `student` after the last finished stage that trained it."""
    models = [stage.files.model for stage in stages if stage.role == role and stage.files.is_finished]
    return models[-1] if models else untrained_model(run, role)


def is_run(folder: Path) -> bool:
    """Whether a folder is that of a run that has begun to train, and no model folder."""
    has = [(folder / file).is_file() for file in ("config.json", "recipe.yaml", "metrics.jsonl")]
    return has == [False, True, True]


def read_stages(run: Path) -> list[TrainedStage]:
    """The stages in a run's recipe, in order."""
    import yaml  # 15 ms, which models that are no runs do not need

    try:
        listed = yaml.safe_load((run / "recipe.yaml").read_text(encoding="utf-8"))["stages"]
        pairs = [(str(stage["name"]), str(stage.get("train", "student")).split(".")[0]) for stage in listed]
    except (OSError, TypeError, ValueError, LookupError, AttributeError, yaml.YAMLError) as error:
        raise InputError(f"{run}/recipe.yaml cannot be read: {str(error).splitlines()[0]}") from error
    return [
        TrainedStage(name, role, StageFiles(stage_path(run, number, name))) for number, (name, role) in enumerate(pairs)
    ]
