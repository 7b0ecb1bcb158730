"""A stage's task holds the student, what belongs to teaching only (projection, memory bank), and the criterion.

`forward(batch)` returns a dict with `loss` and its named parts; nothing of a task but the student is saved as a model.

Shapes: B pairs, T tokens, H hidden, D sentence width.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from distill import objectives
from distill.batches import Batch
from distill.parallel import gather
from msdc.recipe import ObjectiveUse, Stage

BANK_SIZE = 65_536  # Gao et al. 2021
# options a recipe gives to an objective that are the task's to read
TASK_OPTIONS = ("bank",)


class Task(nn.Module):
    """Student, objectives, and the named tensors they are computed from."""

    needs_guide_vectors = True

    def __init__(self, student: Any, stage: Stage, guide: Any = None, guide_width: int | None = None) -> None:
        super().__init__()
        self.student = student
        self.stage = stage
        # Not a submodule: the guide is frozen, not trained, not saved.
        self._guide = [guide]
        self.uses: list[tuple[ObjectiveUse, objectives.Objective]] = []
        for use in stage.objective:
            objective = objectives.find_objective(use.name)
            objective.check_options({k: v for k, v in use.options.items() if k not in TASK_OPTIONS})
            self.uses.append((use, objective))

    def _sum(self, tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
        parts: dict[str, Tensor] = {}
        total: Tensor | None = None
        for use, objective in self.uses:
            value = objective(tensors, **{k: v for k, v in use.options.items() if k not in TASK_OPTIONS})
            parts[use.name] = value.detach()
            total = use.weight * value if total is None else total + use.weight * value
        assert total is not None
        return {"loss": total, **parts}

    def after_step(self) -> None:
        """What may only happen once the gradients are computed."""


class SentenceTask(Task):
    """Sentence vectors of both sides against the guide's (MSD stages 1, 3, 4; MKD; DistilCSE)."""

    def __init__(self, student: Any, stage: Stage, guide: Any = None, guide_width: int | None = None) -> None:
        super().__init__(student, stage, guide, guide_width)
        self.project: nn.Linear | None = None
        if guide_width is not None and guide_width != student.width:
            # DistilCSE's learned map M to the teacher's width; dropped with the task.
            self.project = nn.Linear(student.width, guide_width, bias=False)
        self.bank: objectives.MemoryBank | None = None
        self._newest: Tensor | None = None
        if any("bank_KD" in objective.inputs for _, objective in self.uses):
            size = next((int(use.options["bank"]) for use, _ in self.uses if "bank" in use.options), BANK_SIZE)
            self.bank = objectives.MemoryBank(guide_width or student.width, size)

    def _vectors(self, side: tuple[Tensor, Tensor]) -> Tensor:
        sentence_BD = self.student(*side)
        return gather(sentence_BD if self.project is None else self.project(sentence_BD))

    def forward(self, batch: Batch, teach_source: bool = True) -> dict[str, Tensor]:
        guide_source = None if batch.guide_source_BD is None else gather(batch.guide_source_BD)
        guide_target = None if batch.guide_target_BD is None else gather(batch.guide_target_BD)
        target = None if batch.target is None else self._vectors(batch.target)
        if not teach_source and target is not None and guide_source is not None:
            # The source side is learnt fast; such a step pays for the target side alone.
            loss = objectives.kd(guide_source if guide_target is None else guide_target, target)
            return {"loss": loss, "target_only": loss.detach()}
        source = self._vectors(batch.source)
        third = None if batch.third is None else self._vectors(batch.third)
        result = self._sum(
            {
                "teacher_source_BD": guide_source,
                "teacher_target_BD": guide_target,
                "teacher_BD": guide_source,
                "student_source_BD": source,
                "student_target_BD": source if target is None else target,
                "student_BD": source,
                "source_BD": source,
                "target_BD": source if target is None else target,
                "anchor_BD": source,
                "positive_BD": target,
                "negative_BD": third,
                "bank_KD": None if self.bank is None else self.bank.vectors(),
            }
        )
        if self.bank is not None and guide_source is not None and self.training:
            self._newest = guide_source.detach()
        return result

    def after_step(self) -> None:
        # The bank is a view inside the loss' graph: it may only move on after the backward pass.
        if self.bank is not None and self._newest is not None:
            self.bank.push(self._newest)
            self._newest = None


class EmbeddingTask(Task):
    """Eq. 3: the student's embedding layer against the assistant's, token by token, on both sides."""

    needs_guide_vectors = False

    def forward(self, batch: Batch, teach_source: bool = True) -> dict[str, Tensor]:
        total: dict[str, Tensor] = {}
        sides = [batch.source] + ([batch.target] if batch.target is not None else [])
        for ids_BT, mask_BT in sides:
            with torch.no_grad():
                guide_BTH = self._guide[0].embed(ids_BT)
            part = self._sum({"guide_BTH": guide_BTH, "student_BTH": self.student.embed(ids_BT), "mask_BT": mask_BT})
            total = part if not total else {key: total[key] + part[key] for key in total}
        return total


TASKS: dict[str, type[Task]] = {"sentence": SentenceTask, "embedding": EmbeddingTask}


def make_task(student: Any, stage: Stage, guide: Any, guide_width: int | None) -> Task:
    """The task a stage asks for: `train: student.embedding` compares embedding layers, all else sentence vectors."""
    kind = "embedding" if stage.train == "student.embedding" else "sentence"
    return TASKS[kind](student, stage, guide, guide_width)
