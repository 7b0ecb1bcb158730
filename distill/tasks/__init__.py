"""The tasks of training stages. To add one: a file with its class, and one record in TASKS."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msdc.distill.guide import Guide
from msdc.distill.recipe import Stage
from msdc.distill.tasks.generative import GENERATIVE_INPUTS, GenerativeTask
from msdc.distill.tasks.hidden_states import HiddenStatesTask
from msdc.distill.tasks.labelled import LabelledTask
from msdc.distill.tasks.sentence import EmbeddingTask, SentenceTask, Task, stage_inputs


@dataclass(frozen=True)
class TaskRecord:
    """One kind of task.

    Attributes:
        name: for messages.
        applies: whether a stage is of this kind; follows from the tensors that its objectives need.
        make: (student, stage, guide, id of the mask token) -> the task.
    """

    name: str
    applies: Callable[[Stage], bool]
    make: Callable[[Any, Stage, Guide | None, int | None], Task]


# The first that applies is taken.
TASKS = (
    TaskRecord("embedding", lambda stage: stage.train == "student.embedding", EmbeddingTask),
    TaskRecord("hidden states", HiddenStatesTask.applies, HiddenStatesTask),
    TaskRecord("labelled", LabelledTask.applies, LabelledTask),
    TaskRecord("generative", lambda stage: bool(stage_inputs(stage) & GENERATIVE_INPUTS), GenerativeTask),
    TaskRecord("sentence", lambda stage: True, SentenceTask),
)


def make_task(student: Any, stage: Stage, guide: Guide | None = None, mask_id: int | None = None) -> Task:
    """The task of a stage.

    Raises:
        InputError: the stage lacks what its objectives need.
    """
    return next(record for record in TASKS if record.applies(stage)).make(student, stage, guide, mask_id)
