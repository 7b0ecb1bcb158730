"""Alignment of the student's embedding layer with its guide's: eq. 3."""

from __future__ import annotations

import torch
from torch import Tensor

from msdc.distill.objectives.numerics import check_floating, full_precision, shape
from msdc.errors import InputError


@full_precision
def embedding_alignment(guide_BTH: Tensor, student_BTH: Tensor, mask_BT: Tensor, pooled: bool = False) -> Tensor:
    """Squared error between the outputs of two embedding layers, over the real tokens of one side.

    Eq. 3 has one such term for the sources and one for the translations: call it twice, or with both stacked along B.
    Each token counts once, its squares averaged over H. With `pooled`, the mean-pooled outputs are compared, one
    vector a sentence: that is what the authors' code does.

    Padding is never read, whatever it holds. A row that is all padding counts for nothing; a batch that is all
    padding gives 0, with a zero gradient.

    Args:
        guide_BTH: e_A, output of the guide's embedding layer.
        student_BTH: e_S, output of the student's.
        mask_BT: nonzero (or True) on real tokens.
        pooled: compare means over the tokens instead of the tokens.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ or are empty.

    Source: Ding et al. 2022, eq. 3.
    """
    check_floating("embedding_alignment", "guide_BTH", guide_BTH, dimensions=3)
    if student_BTH.shape != guide_BTH.shape or mask_BT.shape != guide_BTH.shape[:2]:
        raise InputError(
            f"embedding_alignment: guide_BTH {shape(guide_BTH)}, student_BTH {shape(student_BTH)} and mask_BT "
            f"{shape(mask_BT)} must agree in B, T and H"
        )
    real_BT = mask_BT != 0
    # Filled before squaring, so that a NaN or an infinity in the padding reaches neither value nor gradient.
    difference_BTH = (student_BTH - guide_BTH).masked_fill(~real_BT.unsqueeze(-1), 0.0)
    if not pooled:
        return difference_BTH.square().sum() / (real_BT.sum().clamp(min=1) * guide_BTH.shape[2])
    tokens_B1 = real_BT.sum(1, keepdim=True)
    difference_BH = difference_BTH.sum(1) / tokens_B1.clamp(min=1)
    sentences = torch.count_nonzero(tokens_B1).clamp(min=1)
    return difference_BH.square().sum() / (sentences * guide_BTH.shape[2])
