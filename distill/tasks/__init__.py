"""Which task a stage is: the one place that knows them all."""

from __future__ import annotations

from typing import Any

from msdc.distill.recipe import Stage
from msdc.distill.tasks.generative import GENERATIVE, GenerativeTask
from msdc.distill.tasks.hidden_states import StatesModule, StatesTask, state_use
from msdc.distill.tasks.sentence import EmbeddingTask, SentenceTask, Task
from msdc.errors import InputError


def make_task(student: Any, stage: Stage, guide: Any, guide_width: int | None, mask_id: int | None = None) -> Task:
    """The task a stage asks for.

    `train: student.embedding` compares embedding layers; PKD and MetaKD need the guide's layer states
    (msdc.distill.tasks.hidden_states), the lightweight model's generative objectives a masked token; all else is about
    sentence vectors.

    Raises:
        InputError: the stage lacks what its objectives need.
    """
    if stage.train == "student.embedding":
        return EmbeddingTask(student, stage, guide, guide_width)
    if state_use(stage) is not None:
        if not isinstance(guide, StatesModule):
            raise InputError(f"stage {stage.name}: {stage.objective[0].name} needs a guide to compare states with")
        return StatesTask(student, stage, guide)
    if any(use.name in GENERATIVE for use in stage.objective):
        if mask_id is None:
            raise InputError(f"stage {stage.name}: a masked token needs a SentencePiece vocabulary")
        return GenerativeTask(student, stage, mask_id, guide, guide_width)
    return SentenceTask(student, stage, guide, guide_width)
