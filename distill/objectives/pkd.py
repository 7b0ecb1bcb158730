"""Patient knowledge distillation: normalised intermediate states of a layer subset, the PKD baseline."""

from __future__ import annotations

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.numerics import check_floating, full_precision, shape, unit_rows
from msdc.errors import InputError


def layer_subset(
    teacher_layers: int, student_layers: int, how: Literal["skip", "last"] = "skip"
) -> tuple[tuple[int, int], ...]:
    """Pairs (teacher layer, student layer), counted from 1, whose states `pkd` compares.

    The student's layers 1 .. M-1; its last one already learns from the sentence vector. "skip" spreads them over the
    teacher (12 to 6 layers: 2, 4, 6, 8, 10), "last" takes the teacher's layers right before its last (7 .. 11). A
    recurring student counts each application of a layer.

    Raises:
        InputError: a student of one layer has no intermediate state; a student deeper than its teacher.

    Source: Sun et al. 2019, PKD-Skip and PKD-Last.
    """
    if student_layers < 2:
        raise InputError(f"pkd needs a student of at least 2 layers, this one has {student_layers}")
    if student_layers > teacher_layers:
        raise InputError(f"pkd: the student has {student_layers} layers, more than its teacher's {teacher_layers}")
    if how == "skip":
        return tuple((layer * teacher_layers // student_layers, layer) for layer in range(1, student_layers))
    if how == "last":
        return tuple((teacher_layers - student_layers + layer, layer) for layer in range(1, student_layers))
    raise InputError(f"pkd: layers must be chosen by skip or last, not {how!r}")


@full_precision
def pkd(teacher_states_BLH: Tensor, student_states_BLH: Tensor) -> Tensor:
    """Squared error between the normalised [CLS] states of matched layers, averaged over sentences, layers and H.

    1/N sum_i mean_l || h_T_l(s_i) / |h_T_l(s_i)| - h_S_l(s_i) / |h_S_l(s_i)| ||^2. This is the patient term alone; a
    recipe adds `kd` for the sentence vector and gives this term its weight (the paper's beta, 10 to 1,000).

    Args:
        teacher_states_BLH: states of the teacher's layers that `layer_subset` names.
        student_states_BLH: states of the student's, mapped to the teacher's width where it differs.

    Returns:
        A scalar, at least float32. A zero state counts as the zero vector.

    Raises:
        InputError: shapes differ or are empty.

    Source: Sun et al. 2019; the baseline "PKD" of Gao et al. 2021 (DistilCSE).
    """
    check_floating("pkd", "teacher_states_BLH", teacher_states_BLH, dimensions=3)
    if student_states_BLH.shape != teacher_states_BLH.shape:
        raise InputError(
            f"pkd: student_states_BLH is {shape(student_states_BLH)} but teacher_states_BLH is "
            f"{shape(teacher_states_BLH)}: pick as many layers and map the student to its teacher's width"
        )
    return F.mse_loss(unit_rows(student_states_BLH), unit_rows(teacher_states_BLH))
