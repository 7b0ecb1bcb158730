"""The models of a run: assistant and student as trained so far, and who learns from whom in a stage."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from msdc.compress.student.model import Student
from msdc.compress.student.stock import to_student
from msdc.distill.assistant import cut_student, make_assistant, make_student
from msdc.distill.models import load_named
from msdc.distill.recipe import Recipe, Stage, StudentShape
from msdc.distill.run.folder import RunFolder
from msdc.distill.run.text import RunText
from msdc.distill.tasks.hidden_states import layer_pairs
from msdc.distill.training import parallel
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.errors import InputError
from msdc.progress import warn


@dataclass(frozen=True)
class StageModels:
    """The models of a stage: who learns, who guides, and which of the guide's layers are compared.

    `student` is the module of `learner`. `guide_targets` says whether the guide can read the target side: the
    assistant is multilingual, a teacher is not.
    """

    learner: Encoder
    student: Student
    guide: Encoder | None
    guide_targets: bool
    guide_layers: tuple[int, ...]


class RunModels:
    """Makes and finds the models of a recipe in its run folder."""

    def __init__(self, recipe: Recipe, folder: RunFolder, text: RunText) -> None:
        self.recipe = recipe
        self.folder = folder
        self.text = text
        self.rank, _ = parallel.rank_and_world()

    def _make(self, role: str) -> None:
        """Write the untrained model of a role, once."""
        folder = self.folder.untrained(role)
        if role == "assistant":
            make_assistant(self.recipe, self.text.stream(), folder)
        elif not (folder / "config.json").is_file():
            if self.recipe.assistant is not None and self._cut_shape() is not None:
                self._make("assistant")
            make_student(self.recipe, self.folder.newest(self.recipe, "assistant"), self.text.stream(), folder)

    def newest(self, role: str) -> Path:
        """The model folder of a role as trained so far, made where it is not there yet."""
        if self.rank == 0:
            self._make(role)
        parallel.barrier()
        return self.folder.newest(self.recipe, role)

    def _cut_shape(self) -> StudentShape | None:
        """The shape of a student that is cut from the assistant; None for one by name or from random weights."""
        shape = self.recipe.student
        return shape if isinstance(shape, StudentShape) and shape.scratch is None else None

    def _set_start(self, stage: Stage, student: Student, folder: Path) -> None:
        """Apply `start` of a stage to the learner that was read from `folder`."""
        if stage.start == "random":
            student.embedding.apply(student._initialise)
        elif stage.start == "svd":
            shape = self._cut_shape()
            if shape is None or self.recipe.assistant is None or stage.role != "student":
                warn(f"stage {stage.name}: start: {stage.start} has no effect, the learner is cut from no assistant")
            elif folder != self.folder.untrained("student"):
                # A student's first stage starts from a fresh cut in any case; a later one is cut again in part.
                assistant = self.folder.newest(self.recipe, "assistant")
                fresh, _ = cut_student(self.recipe, shape, assistant, self.text.stream())
                part = {k: v for k, v in fresh.state_dict().items() if k.startswith("embedding.")}
                student.load_state_dict(student.state_dict() | part)

    def _guide_encoder(self, stage: Stage) -> Encoder | None:
        if stage.guide is None:
            return None
        if stage.guide.split(".")[0] == "assistant":
            if self.recipe.assistant is None:
                raise InputError(f"stage {stage.name}: the guide is the assistant, but the recipe has none")
            return load_encoder(self.newest("assistant"))
        return load_named(self.recipe.teacher if stage.guide == "teacher" else stage.guide)

    def prepare(self, number: int, stage: Stage) -> StageModels:
        """Learner and guide of a stage.

        Raises:
            InputError: the guide is the assistant of a recipe that has none, or its layers do not fit.
        """
        start = self.newest(stage.role)
        learner = load_encoder(start)
        # A student with stock classes (place: embedding) is trained in the canonical class.
        student = to_student(learner)
        learner.module = student
        torch.manual_seed(self.recipe.seed * 1000 + number)
        self._set_start(stage, student, start)
        guide = self._guide_encoder(stage)
        layers = () if guide is None else tuple(theirs for theirs, _ in layer_pairs(stage, guide, learner))
        return StageModels(learner, student, guide, (stage.guide or "").split(".")[0] == "assistant", layers)
