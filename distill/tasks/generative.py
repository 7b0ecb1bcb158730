"""The lightweight model's tasks: one masked token per pair, both sides through the same student, and a tied output.

One pass of each side serves all objectives: the side that has the mask is encoded with it. The sentence losses (and
later the user) see the pooled vector; the generative loss sees it after a dense layer, GELU and layer norm, through the
transposed token table. That head belongs to the task and is not saved.

Source: Mao et al. 2021. Simplified: the mask is the unknown piece's id (nothing else trains that row), the vocabulary
a unigram one.

Shapes: B pairs, T tokens, D sentence width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msdc.distill.data.batches import Batch
from msdc.distill.guide import Guide
from msdc.distill.objectives import find_objective
from msdc.distill.parallel import gather
from msdc.distill.recipe import Stage
from msdc.distill.tasks.sentence import SentenceTask, encode_sides
from msdc.errors import InputError


def mask_one(ids_BT: Tensor, mask_BT: Tensor, here_B: Tensor, draw_B: Tensor, mask_id: int) -> tuple[Tensor, Tensor]:
    """Mask one token of each row where `here_B`; returns the new ids [B, T] and the masked token's id [B].

    `draw_B` in [0, 1) picks it, evenly, among the tokens between the first and the last, which are special.
    """
    inner_B = (mask_BT.sum(1) - 2).clamp(min=1)
    at_B1 = (1 + (draw_B * inner_B).long()).clamp(max=ids_BT.shape[1] - 1).unsqueeze(1)
    token_B = ids_BT.gather(1, at_B1).squeeze(1)
    filled_BT = ids_BT.scatter(1, at_B1, mask_id)
    return torch.where(here_B.unsqueeze(1), filled_BT, ids_BT), token_B


class GenerativeTask(SentenceTask):
    """MLM, SMLM, XTR, UGT, with sentence alignment and similarity where the stage asks for them."""

    def __init__(self, student: Any, stage: Stage, guide: Guide | None = None, mask_id: int | None = None) -> None:
        super().__init__(student, stage, guide, mask_id)
        if mask_id is None:
            raise InputError(f"stage {stage.name}: a masked token needs a SentencePiece vocabulary")
        width = student.width
        if width != student.config.hidden:
            raise InputError(f"stage {stage.name}: the generative objectives need a student without a dense head")
        self.mask_id = mask_id
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.bias_V = nn.Parameter(torch.zeros(student.config.vocabulary))

    def logits(self, sentence_BD: Tensor) -> Tensor:
        """[B, V] from the pooled vector."""
        inner = self.norm(F.gelu(self.dense(sentence_BD)))
        embedding = self.student.embedding
        if embedding.project is not None:
            inner = inner @ embedding.project.weight
        return F.linear(inner, embedding.table.weight, self.bias_V)

    def forward(self, batch: Batch, teach_source: bool = True) -> dict[str, Tensor]:
        """The loss and its parts.

        Raises:
            InputError: a batch without a target side.
        """
        if batch.target is None:
            raise InputError(f"stage {self.stage.name}: the generative objectives need sentence pairs")
        sides = (batch.source, batch.target)
        # Drawn on the CPU, whose random state a checkpoint keeps in any case.
        in_source_B = (torch.rand(len(batch)) < 0.5).to(batch.source[0].device)
        draw_B = torch.rand(len(batch)).to(batch.source[0].device)
        masked = [
            mask_one(ids_BT, mask_BT, here_B, draw_B, self.mask_id)
            for (ids_BT, mask_BT), here_B in zip(sides, (in_source_B, ~in_source_B), strict=True)
        ]
        token_B = torch.where(in_source_B, masked[0][1], masked[1][1])
        local = encode_sides(self.student, [(ids, mask) for (ids, _), (_, mask) in zip(masked, sides, strict=True)])
        source, target = (gather(vectors) for vectors in local)
        tensors: dict[str, Tensor | None] = {
            "source_BD": source,
            "target_BD": target,
            "student_source_BD": source,
            "student_target_BD": target,
            "teacher_source_BD": None if batch.guide_source_BD is None else gather(batch.guide_source_BD),
        }
        generated = [
            {
                "logits_BV": self.logits(vectors_BD),
                "masked_token_B": token_B,
                "masked_here_B": here_B,
                "partner_ids_BT": partner[0],
                "partner_mask_BT": inside(partner[1]),
            }
            for vectors_BD, here_B, partner in zip(local, (in_source_B, ~in_source_B), sides[::-1], strict=True)
        ]
        parts: dict[str, Tensor] = {}
        total = source.new_zeros(())
        for use, objective in self.uses:
            # Generative terms are means over this process' own rows, one per side; averaging the gradients of processes
            # with equally many rows gives the whole batch's.
            masked_token = "logits_BV" in find_objective(use.name).inputs
            given = generated if masked_token else [tensors]
            if masked_token and not len(batch):
                value = sum((one["logits_BV"].sum() for one in generated), source.new_zeros(()))
            else:
                value = torch.stack([objective(one, **use.options) for one in given]).sum()
            parts[use.name] = value.detach()
            total = total + use.weight * value
        return {"loss": total, **parts}


def inside(mask_BT: Tensor) -> Tensor:
    """True on the tokens between the special ones: what a translation consists of."""
    last_B1 = (mask_BT.sum(1, keepdim=True) - 1).clamp(min=0)
    real_BT = mask_BT.bool().clone()
    real_BT[:, 0] = False
    return real_BT.scatter(1, last_B1, False)
