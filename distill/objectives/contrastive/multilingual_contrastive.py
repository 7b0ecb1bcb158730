"""Multilingual contrastive learning: eq. 5, and with hard labels eq. 8."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from msdc.distill.objectives.numerics import check_rows, cosines, full_precision, shape
from msdc.errors import InputError


@full_precision
def multilingual_contrastive(
    teacher_source_BD: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    labels: Literal["soft", "hard"] = "soft",
    sentence_B: Tensor | None = None,
) -> Tensor:
    """Teach the student's source x target similarities from the teacher's similarities among the sources.

    1/N^2 sum_i sum_j ( label(i, j) - phi(h_S(s_i), h_S(t_j)) )^2, phi the cosine. Soft labels (eq. 5) are
    phi(h_T(s_i), h_T(s_j)); hard ones (eq. 8) are 1 where s_i and s_j are the same sentence, else 0.

    The student's width may differ from the teacher's. A zero vector has cosine 0 with everything.

    Args:
        teacher_source_BD: the teacher's vectors of the source sentences.
        student_source_BD: the student's vectors of the same sentences.
        student_target_BD: the student's vectors of their translations.
        labels: "soft" or "hard".
        sentence_B: integers, equal for equal source sentences (hard labels only). Without it two rows are the same
            sentence when the teacher's vectors are equal bit for bit, as cached ones are.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, the batch is empty, or `labels` is another word.

    Source: Ding et al. 2022, eq. 5 and 8 (the setting "Bool" of the ablation).
    """
    name = "multilingual_contrastive"
    check_rows(name, student_source_BD=student_source_BD, student_target_BD=student_target_BD)
    check_rows(name, teacher_source_BD=teacher_source_BD)
    batch = len(teacher_source_BD)
    if batch != len(student_source_BD):
        raise InputError(
            f"{name}: teacher_source_BD is {shape(teacher_source_BD)} but student_source_BD is "
            f"{shape(student_source_BD)}: expected one row per sentence pair"
        )
    if labels == "soft":
        label_BB = cosines(teacher_source_BD, teacher_source_BD)
    elif labels == "hard":
        if sentence_B is None:
            sentence_B = torch.unique(teacher_source_BD.detach(), dim=0, return_inverse=True)[1]
        if sentence_B.shape != (batch,):
            raise InputError(f"{name}: sentence_B is {shape(sentence_B)}, expected [{batch}]")
        label_BB = (sentence_B.unsqueeze(1) == sentence_B.unsqueeze(0)).to(student_source_BD.dtype)
    else:
        raise InputError(f"{name}: labels must be soft or hard, not {labels!r}")
    return (label_BB - cosines(student_source_BD, student_target_BD)).square().mean()
