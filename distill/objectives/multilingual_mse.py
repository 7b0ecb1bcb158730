"""Multilingual distillation by squared error: eq. 2, 4 and 6."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from msdc.distill.objectives.numerics import check_rows, full_precision, squared_error


@full_precision
def multilingual_mse(
    teacher_source_BD: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    teacher_target_BD: Tensor | None = None,
    reduction: Literal["mean", "sum"] = "mean",
) -> Tensor:
    """Pull the student's vectors of a sentence and of its translation to the guide's vector.

    1/N sum_i [ ||h_T(s_i) - h_S(s_i)||^2 + ||h_T(s_i) - h_S(t_i)||^2 ], squares averaged over the D dimensions.

    Args:
        teacher_source_BD: the guide's vectors of the source sentences.
        student_source_BD: the student's vectors of the same sentences.
        student_target_BD: the student's vectors of their translations.
        teacher_target_BD: the guide's vectors of the translations. An English teacher has none (eq. 2 and 6); a
            multilingual assistant does, and then the second term compares with it (eq. 4).
        reduction: over D, "mean" as `torch.nn.functional.mse_loss` and the authors' code, or "sum" as the equations are
            written. With vectors of length 1 the mean is D times smaller than eq. 5, which averages cosines.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, the batch is empty, or `reduction` is another word.

    Source: Ding et al. 2022, eq. 2 (teach the assistant), 4 (teach the student), 6 (L_KD); Reimers and Gurevych 2020.
    """
    guide_target_BD = teacher_source_BD if teacher_target_BD is None else teacher_target_BD
    name = "multilingual_mse"
    check_rows(
        name,
        teacher_source_BD=teacher_source_BD,
        student_source_BD=student_source_BD,
        student_target_BD=student_target_BD,
        teacher_target_BD=guide_target_BD,
    )
    source = squared_error(name, student_source_BD, teacher_source_BD, reduction)
    return source + squared_error(name, student_target_BD, guide_target_BD, reduction)
