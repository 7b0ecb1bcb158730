"""The tasks of training stages. To add one: a class in a file of its own, and one line in `make_task`."""

from __future__ import annotations

from typing import Any

from msdc.distill.recipe import Stage
from msdc.distill.tasks.generative import GENERATIVE_INPUTS, GenerativeTask
from msdc.distill.tasks.hidden_states import HiddenStatesTask
from msdc.distill.tasks.sentence import EmbeddingTask, LabelledTask, SentenceTask, TrainingTask, stage_inputs
from msdc.distill.teacher_cache import CachedTeacher


def task_kind(stage: Stage) -> type[TrainingTask]:
    """The task of a stage: the first that applies, by the tensors that the stage's objectives need."""
    kinds: tuple[tuple[type[TrainingTask], bool], ...] = (
        (EmbeddingTask, stage.train == "student.embedding"),
        (HiddenStatesTask, HiddenStatesTask.applies(stage)),
        (LabelledTask, LabelledTask.applies(stage)),
        (GenerativeTask, bool(stage_inputs(stage) & GENERATIVE_INPUTS)),
        (SentenceTask, True),
    )
    return next(kind for kind, applies in kinds if applies)


def make_task(
    student: Any, stage: Stage, teacher: CachedTeacher | None = None, mask_id: int | None = None
) -> TrainingTask:
    """The task of a stage, ready to train."""
    return task_kind(stage)(student, stage, teacher, mask_id)
