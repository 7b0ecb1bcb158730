"""The losses of the four papers and a few others, as pure functions on tensors.

Shapes: B batch, T tokens, L layers, H hidden, D sentence width, K memory bank, P domains, V vocabulary.

A batch may be one process's or the gathered batch of all. Everything is computed in at least float32.
"""

from __future__ import annotations

from msdc.distill.objectives.contrastive.contrastive_cross_entropy import contrastive_cross_entropy
from msdc.distill.objectives.contrastive.contrastive_distillation import contrastive_distillation
from msdc.distill.objectives.contrastive.memory_bank import MemoryBank
from msdc.distill.objectives.contrastive.multilingual_contrastive import multilingual_contrastive
from msdc.distill.objectives.contrastive.similarity_distillation import similarity_distillation
from msdc.distill.objectives.contrastive.supervised_contrastive import supervised_contrastive
from msdc.distill.objectives.embedding_alignment import embedding_alignment
from msdc.distill.objectives.kd import kd
from msdc.distill.objectives.labelled.cosine_regression import cosine_regression
from msdc.distill.objectives.labelled.domain_adversarial import domain_adversarial
from msdc.distill.objectives.labelled.softmax_classification import softmax_classification
from msdc.distill.objectives.masked_language_model import masked_language_model
from msdc.distill.objectives.metakd import domain_prototypes, metakd
from msdc.distill.objectives.multilingual_mse import multilingual_mse
from msdc.distill.objectives.pkd import layer_subset, pkd
from msdc.distill.objectives.registry import OBJECTIVES, Objective, find_objective
from msdc.distill.objectives.sentence_alignment import sentence_alignment
from msdc.distill.objectives.sentence_similarity import sentence_similarity
from msdc.distill.objectives.unified_generative import unified_generative

__all__ = [
    "OBJECTIVES",
    "MemoryBank",
    "Objective",
    "contrastive_cross_entropy",
    "contrastive_distillation",
    "cosine_regression",
    "domain_adversarial",
    "domain_prototypes",
    "embedding_alignment",
    "find_objective",
    "kd",
    "layer_subset",
    "masked_language_model",
    "metakd",
    "multilingual_contrastive",
    "multilingual_mse",
    "pkd",
    "sentence_alignment",
    "sentence_similarity",
    "similarity_distillation",
    "softmax_classification",
    "supervised_contrastive",
    "unified_generative",
]
