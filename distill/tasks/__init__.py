"""The tasks of training stages. To add one: a class in a file of its own, and one line in `make_task`."""

from __future__ import annotations

from typing import Any

from msdc.distill.recipe import Stage
from msdc.distill.tasks.generative import GenerativeTask
from msdc.distill.tasks.hidden_states import HiddenStatesTask
from msdc.distill.tasks.sentence import EmbeddingTask, LabelledTask, SentenceTask, TrainingTask, stage_inputs
from msdc.distill.teacher import Teacher


def task_kind(stage: Stage) -> type[TrainingTask]:
    """The task of a stage: the first that provides a tensor which the stage's objectives need."""
    if stage.train == "student.embedding":
        return EmbeddingTask
    kinds: tuple[type[TrainingTask], ...] = (HiddenStatesTask, LabelledTask, GenerativeTask)
    return next((kind for kind in kinds if kind.provides & stage_inputs(stage)), SentenceTask)


def make_task(student: Any, stage: Stage, teacher: Teacher | None = None, mask_id: int | None = None) -> TrainingTask:
    """The task of a stage, ready to train."""
    return task_kind(stage)(student, stage, teacher, mask_id)
