"""Sentence similarity: both languages must see the same neighbours (lightweight model, eq. 6)."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from msdc.distill.objectives.numerics import check_rows, full_precision, reduce
from msdc.errors import InputError


@full_precision
def sentence_similarity(
    source_BD: Tensor, target_BD: Tensor, reduction: Literal["sum", "rows", "mean"] = "sum"
) -> Tensor:
    """Make the in-batch similarities of the one language those of the other.

    - sum_{j1,j2} log cos( pi/2 * ( softmax_k(u_j1 . u_k)[j2] - softmax_k(v_j1 . v_k)[j2] ) ). A batch of 1, or two
    equal sides, give 0. The logarithm has a pole where the two shares are 0 and 1: closer to it than the dtype's
    epsilon the value is held (float32: 15.9 a pair) and the gradient is 0.

    Args:
        source_BD: u, sentence vectors of one language.
        target_BD: v, those of their translations.
        reduction: "sum" over all pairs as the paper writes it; "rows": the sum over j2 and the mean over j1, the scale
            of a batch-mean alignment loss; or the "mean" over all pairs, which is B^2 times weaker than the sum.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, the batch is empty, or `reduction` is another word.

    Source: Mao et al. 2021, eq. 6.
    """
    check_rows("sentence_similarity", source_BD=source_BD, target_BD=target_BD)
    source_BB = (source_BD @ source_BD.T).softmax(1)
    target_BB = (target_BD @ target_BD.T).softmax(1)
    cosine_BB = ((source_BB - target_BB) * (math.pi / 2)).cos()
    # In floating point the cosine of a saturated pair is 0 or just below: no logarithm there.
    log_BB = cosine_BB.clamp(min=torch.finfo(cosine_BB.dtype).eps).log()
    if reduction == "rows":
        return -log_BB.sum(1).mean()
    if reduction not in ("sum", "mean"):
        raise InputError(f"sentence_similarity: reduction must be sum, rows or mean, not {reduction!r}")
    return reduce("sentence_similarity", -log_BB, reduction)
