"""The lightweight model's tasks: masked tokens, both sides through the same student, and a tied output.

All objectives share one pass of each side, masked tokens included. SMLM and UGT mask one token per pair and predict it
from the pooled vector; the baseline MLM masks 15 % of the tokens of both sides and predicts each from its own state.
The sentence losses use the pooled vector; the generative losses apply a dense layer, GELU, layer norm and the
transposed token table to it. This head is not saved with the student.

Source: Mao et al. 2021; Devlin et al. 2019 (MLM). Simplified: the mask is the unknown token, whose row nothing else
trains; the vocabulary is a unigram one.

Shapes: B pairs, T tokens, D sentence width, M masked tokens, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msdc.distill.data import Batch
from msdc.distill.objectives import Objective
from msdc.distill.parallel import gather, rank_and_world, share, weighted
from msdc.distill.tasks.sentence import SentenceTask, encode_sides, stage_inputs
from msdc.errors import InputError

MASKED_SHARE = 0.15  # Devlin et al. 2019


def mask_one(ids_BT: Tensor, mask_BT: Tensor, here_B: Tensor, draw_B: Tensor, mask_id: int) -> tuple[Tensor, Tensor]:
    """Mask one token of each row where `here_B`; returns the new ids [B, T] and the masked token's id [B].

    `draw_B` in [0, 1) picks it uniformly among the tokens between the special ones.
    """
    inner_B = (mask_BT.sum(1) - 2).clamp(min=1)
    at_B1 = (1 + (draw_B * inner_B).long()).clamp(max=ids_BT.shape[1] - 1).unsqueeze(1)
    token_B = ids_BT.gather(1, at_B1).squeeze(1)
    filled_BT = ids_BT.scatter(1, at_B1, mask_id)
    return torch.where(here_B.unsqueeze(1), filled_BT, ids_BT), token_B


def mask_many(
    ids_BT: Tensor, mask_BT: Tensor, draw_BT: Tensor, how_BT: Tensor, other_BT: Tensor, mask_id: int
) -> tuple[Tensor, Tensor]:
    """Mask 15 % of the tokens as BERT does; returns the new ids [B, T] and True for tokens to predict.

    Tokens between the special ones with `draw_BT` (in [0, 1)) below 0.15 are picked; `how_BT` chooses the replacement:
    the mask (80 %), the token of `other_BT` (10 %), or the token itself.
    """
    picked_BT = inside(mask_BT) & (draw_BT < MASKED_SHARE)
    filled_BT = torch.where(picked_BT & (how_BT < 0.8), mask_id, ids_BT)
    return torch.where(picked_BT & (how_BT >= 0.9), other_BT, filled_BT), picked_BT


class GenerativeTask(SentenceTask):
    """MLM, SMLM, XTR, UGT, with sentence alignment and similarity if the stage has them."""

    provides = frozenset(["logits_BV", "token_logits_MV"])
    on_vectors = False

    def build(self) -> None:
        """The head that predicts tokens."""
        super().build()
        student, stage = self.student, self.stage
        self.many = "token_logits_MV" in stage_inputs(stage)
        single_token_losses = [use.name for use in stage.objective if use.name in ("smlm", "unified_generative")]
        if self.many and single_token_losses:
            raise InputError(
                f"stage {stage.name}: mlm masks many tokens and {single_token_losses[0]} one: they need two stages"
            )
        if self.mask_id is None:
            raise InputError(f"stage {stage.name}: a masked token needs a SentencePiece vocabulary")
        self.mask = self.mask_id
        width = student.width
        if width != student.config.hidden:
            raise InputError(f"stage {stage.name}: the generative objectives need a student without a dense head")
        self.dense = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.bias_V = nn.Parameter(torch.zeros(student.config.vocabulary))

    def logits(self, sentence_BD: Tensor) -> Tensor:
        """[B, V] from pooled vectors, [M, V] from states of masked tokens."""
        inner = self.norm(F.gelu(self.dense(sentence_BD)))
        embedding = self.student.embedding
        if embedding.project is not None:
            inner = inner @ embedding.project.weight
        return F.linear(inner, embedding.rows(), self.bias_V)

    def forward(self, batch: Batch, train_source: bool = True) -> dict[str, Tensor]:
        """The loss and its parts."""
        if batch.target is None:
            raise InputError(f"stage {self.stage.name}: the generative objectives need sentence pairs")
        sides = (batch.source, batch.target)
        if self.many:
            return self._many(batch, sides)
        draw = self._random(batch)
        in_source_B, draw_B = draw() < 0.5, draw()
        here = (in_source_B, ~in_source_B)
        masked = [mask_one(*side, here_B, draw_B, self.mask) for side, here_B in zip(sides, here, strict=True)]
        token_B = torch.where(in_source_B, masked[0][1], masked[1][1])
        local = encode_sides(self.student, [(ids, mask) for (ids, _), (_, mask) in zip(masked, sides, strict=True)])
        return self._total(batch, local, self._generated(batch, local, token_B, here))

    @staticmethod
    def _random(batch: Batch) -> Callable[..., Tensor]:
        """A source of numbers in [0, 1), [B, ...]: those of these pairs, with any number of processes."""
        generator = torch.Generator().manual_seed(batch.seed)

        def draw(*widths: int) -> Tensor:
            random_rows = torch.rand(batch.size, *widths, generator=generator)[share(batch.size)]
            return random_rows.to(batch.source[0].device)

        return draw

    def _generated(
        self, batch: Batch, local: list[Tensor], token_B: Tensor, here: tuple[Tensor, Tensor]
    ) -> list[dict[str, Tensor]]:
        """The inputs of the generative objectives for each side: its predictions and the other side's tokens."""
        assert batch.target is not None
        return [
            {"logits_BV": self.logits(vectors_BD), "masked_token_B": token_B, "masked_here_B": here_B,
             "partner_ids_BT": ids_BT, "partner_mask_BT": inside(mask_BT)}
            for vectors_BD, here_B, (ids_BT, mask_BT) in zip(local, here, (batch.target, batch.source), strict=True)
        ]  # fmt: skip

    def _many(self, batch: Batch, sides: tuple[tuple[Tensor, Tensor], ...]) -> dict[str, Tensor]:
        """MLM: many masked tokens in both sides, predicted from their states; XTR from the same pass."""
        local, states, tokens = [], [], []
        draw, length = self._random(batch), self.stage.max_length
        for ids_BT, mask_BT in sides:
            # Drawn for the longest text of the stage: padding, which differs between processes, changes nothing.
            picked, how, other = (draw(length)[:, : ids_BT.shape[1]] for _ in range(3))
            other_BT = (other * self.student.config.vocabulary).long()
            masked_BT, picked_BT = mask_many(ids_BT, mask_BT, picked, how, other_BT, self.mask)
            hidden_BTH = self.student.hidden(masked_BT, mask_BT)
            local.append(self.student.head(hidden_BTH, mask_BT))
            states.append(hidden_BTH[picked_BT])
            tokens.append(ids_BT[picked_BT])
        masked_M = torch.cat(tokens)
        logits_MV = self.logits(torch.cat(states))
        nowhere_B = torch.zeros(len(batch), dtype=torch.bool, device=masked_M.device)
        generated: list[dict[str, Tensor]] = []
        if "logits_BV" in stage_inputs(self.stage):
            generated = self._generated(batch, local, nowhere_B.long(), (nowhere_B, nowhere_B))
        tokens_of = {"token_logits_MV": logits_MV, "masked_ids_M": masked_M}
        return self._total(batch, local, generated, tokens_of)

    def _total(
        self,
        batch: Batch,
        local: list[Tensor],
        generated: list[dict[str, Tensor]],
        masked: dict[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """The weighted sum of sentence losses (over the gathered batch) and generative ones (over own rows)."""
        source, target = (gather(vectors, batch.size) for vectors in local)
        teacher = None if batch.teacher_source_BD is None else gather(batch.teacher_source_BD, batch.size)
        student_vectors = [source, target] if self.project is None else [self.project(source), self.project(target)]
        tensors: dict[str, Tensor | None] = {
            "source_BD": source,
            "target_BD": target,
            "student_source_BD": student_vectors[0],
            "student_target_BD": student_vectors[1],
            "teacher_source_BD": teacher,
            **self.texts(batch),
        }

        def loss(objective: Objective, options: dict[str, Any]) -> Tensor:
            # Generative terms are means over this process's masked tokens, or over its rows, one per side.
            if "token_logits_MV" in objective.inputs:
                assert masked is not None
                return weighted(objective(masked), torch.tensor(len(masked["masked_ids_M"])).to(source.device))
            if "logits_BV" not in objective.inputs:
                return objective(tensors, **options)
            if len(batch):
                both = sum((objective(side_tensors, **options) for side_tensors in generated), source.new_zeros(()))
                return len(batch) * rank_and_world()[1] / batch.size * both
            # No rows here, but the other processes expect gradients of every parameter.
            return sum((side_tensors["logits_BV"].sum() for side_tensors in generated), source.new_zeros(()))

        return self._sum(loss)


def inside(mask_BT: Tensor) -> Tensor:
    """True for the tokens between the special ones."""
    last_B1 = (mask_BT.sum(1, keepdim=True) - 1).clamp(min=0)
    real_BT = mask_BT.bool().clone()
    real_BT[:, 0] = False
    return real_BT.scatter(1, last_B1, False)
