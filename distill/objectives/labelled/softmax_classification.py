"""Classification of sentence pairs by their vectors, as SBERT learns from natural language inference."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.numerics import check_floating, check_rows, full_precision, shape
from msdc.errors import InputError


@full_precision
def softmax_classification(
    source_BD: Tensor, target_BD: Tensor, classifier_CF: Tensor, bias_C: Tensor, label_B: Tensor
) -> Tensor:
    """- 1/N sum_i log softmax( W [u_i; v_i; |u_i - v_i|] + b )[label_i].

    Args:
        source_BD: vectors u of the first sentences, as pooled.
        target_BD: vectors v of the second sentences.
        classifier_CF: W, one row for each class, F = 3 D.
        bias_C: b.
        label_B: class of each pair, integers 0 .. C-1.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes do not fit, the batch is empty, or a label is no class.

    Source: Reimers and Gurevych 2019 (Sentence-BERT), section 3, classification objective. The paper writes it without
    b; the authors' library has it.
    """
    name = "softmax_classification"
    check_rows(name, source_BD=source_BD, target_BD=target_BD)
    check_floating(name, "classifier_CF", classifier_CF, dimensions=2)
    if classifier_CF.shape[1] != 3 * source_BD.shape[1] or bias_C.shape != classifier_CF.shape[:1]:
        raise InputError(
            f"{name}: classifier_CF is {shape(classifier_CF)} and bias_C {shape(bias_C)}, expected [C, "
            f"{3 * source_BD.shape[1]}] and [C] for sentence vectors {shape(source_BD)}"
        )
    check_labels(name, label_B, len(source_BD), len(classifier_CF))
    features_BF = torch.cat([source_BD, target_BD, (source_BD - target_BD).abs()], dim=1)
    return F.cross_entropy(F.linear(features_BF, classifier_CF, bias_C), label_B.long())


def check_labels(objective: str, label_B: Tensor, count: int, classes: int) -> None:
    """Demand one integer 0 .. classes-1 for each of `count` rows.

    Raises:
        InputError: another shape or type, or a label out of range.
    """
    if label_B.shape != (count,) or label_B.is_floating_point():
        raise InputError(f"{objective}: expected {count} integer labels, got {label_B.dtype} {shape(label_B)}")
    # Looked at only where looking does not wait for the device.
    if label_B.device.type == "cpu" and not 0 <= int(label_B.min()) <= int(label_B.max()) < classes:
        raise InputError(f"{objective}: labels must be 0 .. {classes - 1}, got up to {int(label_B.max())}")
