"""A model folder from a run that still goes on: its best weights so far, to be evaluated beside the training.

A stage writes the weights of its best validation to `checkpoints/best.safetensors`; the snapshot puts them into the
model that the stage started from. It lies in the run folder, `snapshot/`, and is made again when they have changed.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from msdc.compress.student.io import read_tensors, save_student
from msdc.compress.student.stock import to_student
from msdc.distill.recipe import Recipe
from msdc.distill.run.folder import RunFolder, read_recipe
from msdc.encoders.encoder import load_encoder
from msdc.errors import InputError
from msdc.files import sha256_file
from msdc.progress import say


def newest_model(run: Path) -> Path:
    """The finished student of a run, else the newest weights of its student, or of its assistant before that.

    Raises:
        InputError: no stage has been validated yet, or the folder is damaged.
    """
    folder = RunFolder(run)
    if folder.student.is_dir():
        return folder.student
    recipe = read_recipe(run)
    for number in reversed(range(len(recipe.stages))):
        stage = folder.stage(number, recipe.stages[number])
        if stage.done() is not None:
            say(f"{run}: the model of stage {recipe.stages[number].name}, which is finished")
            return stage.model
        if (stage.checkpoints / "best.safetensors").is_file():
            return _snapshot(folder, recipe, number)
    raise InputError(f"{run}: no stage of this run has been validated yet, there are no weights to open")


def _snapshot(folder: RunFolder, recipe: Recipe, number: int) -> Path:
    stage = recipe.stages[number]
    best = folder.stage(number, stage).checkpoints / "best.safetensors"
    target = folder.path / "snapshot" / f"{stage.name}-{sha256_file(best)[:12]}"
    say(f"{folder.path}: the best weights so far of stage {stage.name}, which still goes on")
    if target.is_dir():
        return target
    start = load_encoder(folder.newest(recipe, stage.role))
    student = to_student(start)
    if stage.quantize is not None:
        from msdc.compress.quantization import rounding

        rounding.prepare(student, stage.quantize)
    try:
        student.load_state_dict(read_tensors(best))
    except RuntimeError as error:
        raise InputError(f"{best}: not weights of this stage ({str(error).splitlines()[0]})") from error
    if stage.quantize is not None:
        student = rounding.convert(student)
    for old in target.parent.glob("*"):
        shutil.rmtree(old, ignore_errors=True)
    save_student(student, start.tokenizer.files[0], target, force=True, defaults=start.defaults)
    return target
