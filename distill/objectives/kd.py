"""Plain distillation of sentence vectors, the KD baseline."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from msdc.distill.objectives.numerics import check_rows, full_precision, squared_error


@full_precision
def kd(teacher_BD: Tensor, student_BD: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
    """1/N sum_i ||h_T(s_i) - h_S(s_i)||^2, squares averaged over the D dimensions (`reduction: sum` sums them).

    Args:
        teacher_BD: the teacher's vectors.
        student_BD: the student's vectors of the same sentences, projected to the teacher's width where it differs.
        reduction: over D, "mean" or "sum"; over B always the mean.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, the batch is empty, or `reduction` is another word.

    Source: the baseline "KD" of Gao et al. 2021 (DistilCSE): the source side of Ding et al. 2022, eq. 2.
    """
    check_rows("kd", teacher_BD=teacher_BD, student_BD=student_BD)
    return squared_error("kd", student_BD, teacher_BD, reduction)
