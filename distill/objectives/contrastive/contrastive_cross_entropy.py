"""Contrastive learning by cross-entropy against the teacher's cosines: eq. 9."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from msdc.distill.objectives.numerics import check_rows, check_temperature, cosines, full_precision, reduce, shape
from msdc.errors import InputError


@full_precision
def contrastive_cross_entropy(
    teacher_source_BD: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    temperature: float = 0.05,
    reduction: Literal["sum", "mean"] = "sum",
) -> Tensor:
    """- sum_i sum_j phi_T(i, j) log( exp(phi_S(i, j) / tau) / sum_k exp(phi_S(i, k) / tau) ).

    phi_T(i, j) is the cosine of the teacher's vectors of s_i and s_j, phi_S(i, j) the cosine of the student's vectors
    of s_i and t_j. The weights are cosines as the paper writes them, neither normalised nor clipped at zero, so the
    loss has no lower bound where the teacher finds negative cosines. The student's width may differ from the
    teacher's. A batch of 1 gives 0.

    Args:
        teacher_source_BD: the teacher's vectors of the source sentences.
        student_source_BD: the student's vectors of the same sentences.
        student_target_BD: the student's vectors of their translations.
        temperature: tau.
        reduction: "sum" over i as in eq. 9, or "mean" over i, which does not grow with the batch.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, the batch is empty, or an option is out of range.

    Source: Ding et al. 2022, eq. 9 (the setting "CE" of the ablation).
    """
    name = "contrastive_cross_entropy"
    check_rows(name, student_source_BD=student_source_BD, student_target_BD=student_target_BD)
    check_rows(name, teacher_source_BD=teacher_source_BD)
    check_temperature(name, temperature)
    if len(teacher_source_BD) != len(student_source_BD):
        raise InputError(
            f"{name}: teacher_source_BD is {shape(teacher_source_BD)} but student_source_BD is "
            f"{shape(student_source_BD)}: expected one row per sentence pair"
        )
    weight_BB = cosines(teacher_source_BD, teacher_source_BD)
    log_share_BB = (cosines(student_source_BD, student_target_BD) / temperature).log_softmax(1)
    return reduce(name, -(weight_BB * log_share_BB).sum(1), reduction)
