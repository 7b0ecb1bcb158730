"""Vectors against labels: classes of pairs (SBERT on NLI), gold scores (SBERT on STS-B), domains (the MetaKD teacher).

The classifiers over the vectors belong to the task and are not saved with the student.

Shapes: B pairs, D sentence width, C classes, F = 3 D features, P domains.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from msdc.distill.data.batches import Batch
from msdc.distill.data.labelled_pairs import NLI_CLASSES
from msdc.distill.data.stream import TextStream
from msdc.distill.guide import Guide
from msdc.distill.recipe import Stage
from msdc.distill.tasks.sentence import SentenceTask, stage_inputs
from msdc.distill.training.parallel import gather
from msdc.errors import InputError

# Kinds of corpora whose rows have the label that an objective reads.
LABELS = {"label_B": "nli-pairs", "score_B": "scored"}
DOMAINS = "domains_PD"


class LabelledTask(SentenceTask):
    """Classification and regression of labelled pairs, and the adversarial loss over domains."""

    def __init__(self, student: Any, stage: Stage, guide: Guide | None = None, mask_id: int | None = None) -> None:
        super().__init__(student, stage, guide, mask_id)
        needed = stage_inputs(stage)
        self.classifier: nn.Linear | None = None
        self.domains: nn.Linear | None = None
        if "label_B" in needed:
            self.classifier = nn.Linear(3 * student.width, len(NLI_CLASSES))
        if DOMAINS in needed:
            self.domains = nn.Linear(student.width, count_domains(stage))

    @staticmethod
    def applies(stage: Stage) -> bool:
        """Whether an objective of the stage reads labels or domains, and none needs a guide's prototypes."""
        return bool(stage_inputs(stage) & {*LABELS, DOMAINS})

    def forward(self, batch: Batch, teach_source: bool = True) -> dict[str, Tensor]:
        """The loss and its parts.

        Raises:
            InputError: a batch without labels.
        """
        source, target, third = self._vectors(batch.source, batch.target, batch.third)
        device = batch.source[0].device
        tensors: dict[str, Tensor | None] = {
            "source_BD": source, "target_BD": target, "anchor_BD": source, "positive_BD": target, "negative_BD": third,
        }  # fmt: skip
        if stage_inputs(self.stage) & set(LABELS):
            labels = [row.label for row in batch.rows]
            if any(label is None for label in labels):
                raise InputError(f"stage {self.stage.name}: rows without a label; see `kind` of its corpora")
            label_B1 = torch.tensor(labels, dtype=torch.float32, device=device).view(-1, 1)
            score_B = gather(label_B1).squeeze(1)
            tensors |= {"score_B": score_B, "label_B": score_B.long()}
        if self.classifier is not None:
            tensors |= {"classifier_CF": self.classifier.weight, "bias_C": self.classifier.bias}
        if self.domains is not None:
            domain_B1 = torch.tensor([[row.domain] for row in batch.rows], device=device, dtype=torch.float32)
            tensors |= {
                DOMAINS: self.domains.weight,
                "bias_P": self.domains.bias,
                "domain_B": gather(domain_B1).squeeze(1).long(),
            }
        return self._sum(tensors)

    def prepare(self, stream: TextStream) -> None:
        """Check that the stage's text has as many domains as the classifier."""
        found = len({source.domain for source in stream.sources})
        if self.domains is not None and found != self.domains.out_features:
            raise InputError(
                f"stage {self.stage.name}: domain_adversarial was made for {self.domains.out_features} corpora, the "
                f"stage reads {found}"
            )


def count_domains(stage: Stage) -> int:
    """Number of corpora (domains) of a stage.

    Raises:
        InputError: the stage does not list its corpora, or lists one only.
    """
    if stage.corpora is None or len(stage.corpora) < 2:
        raise InputError(f"stage {stage.name}: domain_adversarial needs two corpora or more, listed in the stage")
    return len(stage.corpora)
