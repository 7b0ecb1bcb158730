"""Regression of cosines on graded similarity, as SBERT learns from STS-B."""

from __future__ import annotations

from torch import Tensor

from msdc.distill.objectives.numerics import check_rows, full_precision, shape, unit_rows
from msdc.errors import InputError


@full_precision
def cosine_regression(source_BD: Tensor, target_BD: Tensor, score_B: Tensor) -> Tensor:
    """1/N sum_i ( cos(u_i, v_i) - y_i )^2.

    Args:
        source_BD: vectors u of the first sentences.
        target_BD: vectors v of the second sentences.
        score_B: y, the gold similarity of each pair, scaled to 0 .. 1 (STS-B's 0 .. 5 divided by 5).

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, or the batch is empty.

    Source: Reimers and Gurevych 2019 (Sentence-BERT), section 3, regression objective.
    """
    check_rows("cosine_regression", source_BD=source_BD, target_BD=target_BD)
    if score_B.shape != source_BD.shape[:1]:
        raise InputError(f"cosine_regression: expected {len(source_BD)} scores, got {shape(score_B)}")
    cosine_B = (unit_rows(source_BD) * unit_rows(target_BD)).sum(1)
    return (cosine_B - score_B.to(cosine_B.dtype)).square().mean()
