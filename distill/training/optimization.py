"""Optimizers of a stage and its learning rate schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from msdc.distill.recipe import Stage
from msdc.distill.tasks.sentence import Task


@dataclass(frozen=True)
class Schedule:
    """Learning rate over `steps` steps: linear warm-up, then `shape` (linear, cosine, constant)."""

    steps: int
    warmup: int
    shape: str

    def factor(self, step: int) -> float:
        """Multiplier of the learning rate at `step` (0-based)."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        progress = (step - self.warmup) / max(1, self.steps - self.warmup)
        if self.shape == "constant":
            return 1.0
        if self.shape == "cosine":
            return 0.5 * (1.0 + math.cos(math.pi * min(1.0, progress)))
        return max(0.0, 1.0 - progress)


def _table(student: Any) -> nn.Embedding:
    embedding: nn.Embedding = (
        student.embedding.table if hasattr(student, "embedding") else student.body.get_input_embeddings()
    )
    return embedding


def _code(student: Any) -> nn.Parameter | None:
    """Weights of a coded table that are trained; None without."""
    code = getattr(getattr(student, "embedding", None), "code", None)
    # Under quantization-aware training the attribute `weight` is a rounded copy.
    weight: nn.Parameter | None = None if code is None else code._parameters["weight"]
    return weight if weight is not None and weight.requires_grad else None


def make_optimizers(task: Task, stage: Stage) -> list[torch.optim.Optimizer]:
    """Fused AdamW without decay of biases, norms, the table and its code; table and code have their own learning rates.

    One rule for tables of any size and any number of processes: dense gradients, clipped together with all others.
    SparseAdam would update only the rows of the batch, which is another optimizer (moments of the other rows do not
    decay), and its gradients cannot be part of the clipped norm.
    """
    embedding = _table(task.student)
    table = embedding.weight if embedding.weight.requires_grad else None
    code = _code(task.student)
    decay: list[nn.Parameter] = []
    plain: list[nn.Parameter] = []
    for name, parameter in task.named_parameters():
        if parameter.requires_grad and parameter is not table and parameter is not code:
            (plain if parameter.dim() < 2 or "norm" in name.lower() else decay).append(parameter)
    rate = stage.learning_rate
    groups: list[dict[str, Any]] = [
        {"params": decay, "weight_decay": stage.weight_decay, "lr": rate, "base": rate},
        {"params": plain, "weight_decay": 0.0, "lr": rate, "base": rate},
    ]
    if table is not None:
        rate = stage.table_learning_rate or rate
        groups.append({"params": [table], "lr": rate, "base": rate, "weight_decay": 0.0})
    if code is not None:
        rate = stage.code_learning_rate or stage.learning_rate
        groups.append({"params": [code], "lr": rate, "base": rate, "weight_decay": 0.0})
    return [torch.optim.AdamW([group for group in groups if group["params"]], fused=True)]
