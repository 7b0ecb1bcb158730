"""Sentence alignment by in-batch softmax on inner products (lightweight model, eq. 5)."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from msdc.distill.objectives.numerics import check_rows, full_precision, reduce


@full_precision
def sentence_alignment(source_BD: Tensor, target_BD: Tensor, reduction: Literal["sum", "mean"] = "sum") -> Tensor:
    """Find each sentence's translation in the batch, and back.

    - sum_j [ log softmax_k(u_j . v_k)[j] + log softmax_k(u_k . v_j)[j] ]. A batch of 1 gives 0.

    Args:
        source_BD: u, sentence vectors of one language.
        target_BD: v, those of their translations.
        reduction: "sum" over j as the paper writes it, or "mean" over j, as the authors' code computes it.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, the batch is empty, or `reduction` is another word.

    Source: Mao et al. 2021, eq. 5.
    """
    check_rows("sentence_alignment", source_BD=source_BD, target_BD=target_BD)
    product_BB = source_BD @ target_BD.T
    own_B = product_BB.log_softmax(1).diagonal() + product_BB.log_softmax(0).diagonal()
    return reduce("sentence_alignment", -own_B, reduction)
