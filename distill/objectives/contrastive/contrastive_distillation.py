"""Contrastive knowledge distillation with a memory bank (DistilCSE, stage 1)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.numerics import check_bank, check_rows, check_temperature, cosines, full_precision


@full_precision
def contrastive_distillation(
    student_BD: Tensor, teacher_BD: Tensor, bank_KD: Tensor, temperature: float = 0.05
) -> Tensor:
    """Pick the teacher's vector of the same sentence out of the batch's and the bank's.

    -log exp(f(h_S_i M, h_T_i)/tau) / ( sum_j exp(f(h_S_i M, h_T_j)/tau) + sum_q exp(f(h_S_i M, h_T_q)/tau) ), mean
    over i; f the cosine. The bank may be empty ([0, D]), as it is in the first step. A batch of 1 with an empty bank
    gives 0. Equal sentences count as negatives of each other, as in the paper.

    Args:
        student_BD: the student's vectors after the learned map M to the teacher's width.
        teacher_BD: the teacher's vectors of the same sentences.
        bank_KD: teacher vectors of preceding batches (`MemoryBank.vectors()`); they need not be normalised.
        temperature: tau.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, the batch is empty, or the temperature is not above 0.

    Source: Gao et al. 2021 (DistilCSE), L_CKD.
    """
    name = "contrastive_distillation"
    check_rows(name, teacher_BD=teacher_BD, student_BD=student_BD)
    check_temperature(name, temperature)
    check_bank(name, bank_KD, teacher_BD=teacher_BD)
    similarity = torch.cat([cosines(student_BD, teacher_BD), cosines(student_BD, bank_KD)], dim=1)
    return F.cross_entropy(similarity / temperature, torch.arange(len(student_BD), device=student_BD.device))
