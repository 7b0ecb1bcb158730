"""Plain distillation of sentence vectors, the KD baseline."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.numerics import check_rows, full_precision


@full_precision
def kd(teacher_BD: Tensor, student_BD: Tensor) -> Tensor:
    """1/N sum_i ||h_T(s_i) - h_S(s_i)||^2, squares averaged over the D dimensions.

    Args:
        teacher_BD: the teacher's vectors.
        student_BD: the student's vectors of the same sentences, projected to the teacher's width where it differs.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ or the batch is empty.

    Source: the baseline "KD" of Gao et al. 2021 (DistilCSE): the source side of Ding et al. 2022, eq. 2.
    """
    check_rows("kd", teacher_BD=teacher_BD, student_BD=student_BD)
    return F.mse_loss(student_BD, teacher_BD)
