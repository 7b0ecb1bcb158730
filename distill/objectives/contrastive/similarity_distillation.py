"""The student's similarities to a memory bank as a distribution, taught from the teacher's (SEED)."""

from __future__ import annotations

import torch
from torch import Tensor

from msdc.distill.objectives.numerics import check_bank, check_rows, check_temperature, cosines, full_precision


@full_precision
def similarity_distillation(
    teacher_source_BD: Tensor,
    student_target_BD: Tensor,
    bank_KD: Tensor,
    student_source_BD: Tensor | None = None,
    temperature: float = 0.05,
) -> Tensor:
    """Teach which sentences of the batch and of the bank are near, and how near they are to one another.

    mean_i KL( softmax_k(f(h_T(s_i), z_k) / tau) || softmax_k(f(h_S(x_i), z_k) / tau) ), summed over x = t and, where it
    is given, x = s; z are the teacher's vectors of the batch and of the bank, f the cosine. A squared error counts all
    directions alike; this counts those that order neighbours. Equal vectors give 0.

    Args:
        teacher_source_BD: the guide's vectors of the source sentences.
        student_target_BD: the student's vectors of their translations, in the guide's width.
        bank_KD: the guide's vectors of preceding batches (`MemoryBank.vectors()`); may be empty, [0, D].
        student_source_BD: the student's vectors of the source sentences; None where a step teaches one side.
        temperature: tau, the same for both.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, the batch is empty, or the temperature is not above 0.

    Source: Fang et al. 2021 (SEED), eq. 3 to 5, there for images and with cross entropy in place of KL, which has the
    same gradient.
    """
    name = "similarity_distillation"
    students = {"student_target_BD": student_target_BD}
    if student_source_BD is not None:
        students["student_source_BD"] = student_source_BD
    check_rows(name, teacher_source_BD=teacher_source_BD, **students)
    check_temperature(name, temperature)
    check_bank(name, bank_KD, teacher_source_BD=teacher_source_BD)
    known_MD = torch.cat([teacher_source_BD, bank_KD])
    label_BM = (cosines(teacher_source_BD, known_MD) / temperature).log_softmax(1)
    loss = teacher_source_BD.new_zeros(())
    for student_BD in students.values():
        found_BM = (cosines(student_BD, known_MD) / temperature).log_softmax(1)
        loss = loss + (label_BM.exp() * (label_BM - found_BM)).sum(1).mean()
    return loss
