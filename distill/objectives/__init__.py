"""The losses of the four papers and a few others, as pure functions on tensors: one module per paper.

Shapes: B batch, T tokens, L layers, H hidden, D sentence width, K memory bank, P domains, V vocabulary.

Inputs are the batch of one process or the gathered batch of all. Everything is computed in at least float32; the result
is a scalar tensor. InputError: shapes differ, a batch is empty or an option is out of range.
"""

from __future__ import annotations

from msdc.distill.objectives.distilcse import (
    MemoryBank,
    contrastive_distillation,
    domain_adversarial,
    domain_prototypes,
    kd,
    layer_subset,
    metakd,
    pkd,
    similarity_distillation,
    supervised_contrastive,
)
from msdc.distill.objectives.lightweight import (
    masked_language_model,
    sentence_alignment,
    sentence_similarity,
    unified_generative,
)
from msdc.distill.objectives.multi_stage import (
    contrastive_cross_entropy,
    embedding_alignment,
    multilingual_contrastive,
    multilingual_mse,
)
from msdc.distill.objectives.registry import OBJECTIVES, Objective, find_objective
from msdc.distill.objectives.relational import relational
from msdc.distill.objectives.retrieval import candidate_scores, guided_contrastive, listwise_kl, margin_mse, matryoshka
from msdc.distill.objectives.sbert import cosine_regression, softmax_classification

__all__ = [
    "OBJECTIVES", "MemoryBank", "Objective", "candidate_scores", "contrastive_cross_entropy",
    "contrastive_distillation", "cosine_regression", "domain_adversarial", "domain_prototypes", "embedding_alignment",
    "find_objective", "guided_contrastive", "kd", "layer_subset", "listwise_kl", "margin_mse", "masked_language_model",
    "matryoshka", "metakd", "multilingual_contrastive", "multilingual_mse", "pkd", "relational", "sentence_alignment",
    "sentence_similarity", "similarity_distillation",
    "softmax_classification", "supervised_contrastive", "unified_generative",
]  # fmt: skip
