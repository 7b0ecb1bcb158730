"""Sentence-BERT (Reimers and Gurevych 2019, section 3): objectives on labelled sentence pairs.

Usage:

    loss = cosine_regression(source_BD, target_BD, score_B)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.shared import check_labels, objective, shape, unit_vectors
from msdc.errors import InputError


@objective()
def softmax_classification(
    source_BD: Tensor, target_BD: Tensor, classifier_CF: Tensor, bias_C: Tensor, label_B: Tensor
) -> Tensor:
    """- 1/N sum_i log softmax( W [u_i; v_i; |u_i - v_i|] + b )[label_i].

    Args:
        source_BD, target_BD: vectors u and v of the first and the second sentences, as pooled.
        classifier_CF, bias_C: W, one row for each class, F = 3 D; and b.
        label_B: class of each pair, integers 0 .. C-1.

    Source: Reimers and Gurevych 2019 (Sentence-BERT), section 3, classification objective. The paper writes it without
    b; the authors' library has it.
    """
    if classifier_CF.shape[1] != 3 * source_BD.shape[1]:
        raise InputError(f"classifier_CF is {shape(classifier_CF)}, expected [C, {3 * source_BD.shape[1]}]")
    check_labels(label_B, len(classifier_CF))
    features_BF = torch.cat([source_BD, target_BD, (source_BD - target_BD).abs()], dim=1)
    return F.cross_entropy(F.linear(features_BF, classifier_CF, bias_C), label_B.long())


@objective()
def cosine_regression(source_BD: Tensor, target_BD: Tensor, score_B: Tensor) -> Tensor:
    """1/N sum_i ( cos(u_i, v_i) - y_i )^2.

    Args:
        source_BD, target_BD: vectors u and v of the first and the second sentences.
        score_B: y, the gold similarity of each pair, scaled to 0 .. 1 (STS-B's 0 .. 5 divided by 5).

    Source: Reimers and Gurevych 2019 (Sentence-BERT), section 3, regression objective.
    """
    cosine_B = (unit_vectors(source_BD) * unit_vectors(target_BD)).sum(1)
    return (cosine_B - score_B.to(cosine_B.dtype)).square().mean()
