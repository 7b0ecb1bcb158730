"""Supervised contrastive fine-tuning on triples (DistilCSE, stage 2)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.numerics import (
    check_floating,
    check_rows,
    check_temperature,
    cosines,
    full_precision,
    shape,
)
from msdc.errors import InputError


@full_precision
def supervised_contrastive(
    anchor_BD: Tensor, positive_BD: Tensor, negative_BD: Tensor, temperature: float = 0.05
) -> Tensor:
    """Pick the entailed sentence of each premise out of all entailed and all contradicting ones.

    -log exp(f(h_i, h_i+)/tau) / sum_j ( exp(f(h_i, h_j+)/tau) + exp(f(h_i, h_j-)/tau) ), mean over i; f the cosine.

    Args:
        anchor_BD: vectors of the premises.
        positive_BD: vectors of the entailed sentences, row by row.
        negative_BD: vectors of the contradicting sentences; their number may differ from B.
        temperature: tau.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, the batch is empty, or the temperature is not above 0.

    Source: Gao et al. 2021 (DistilCSE), L_CL; the supervised objective of SimCSE.
    """
    name = "supervised_contrastive"
    check_rows(name, anchor_BD=anchor_BD, positive_BD=positive_BD)
    check_floating(name, "negative_BD", negative_BD, dimensions=2)
    check_temperature(name, temperature)
    if negative_BD.shape[1] != anchor_BD.shape[1]:
        raise InputError(f"{name}: negative_BD is {shape(negative_BD)} but anchor_BD is {shape(anchor_BD)}")
    similarity = torch.cat([cosines(anchor_BD, positive_BD), cosines(anchor_BD, negative_BD)], dim=1)
    return F.cross_entropy(similarity / temperature, torch.arange(len(anchor_BD), device=anchor_BD.device))
