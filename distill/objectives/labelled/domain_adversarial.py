"""Domain-adversarial loss of MetaKD's meta-teacher: vectors from which a sentence's domain cannot be told."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.labelled.softmax_classification import check_labels
from msdc.distill.objectives.numerics import check_floating, full_precision, shape
from msdc.errors import InputError


class _Reversed(torch.autograd.Function):
    """The identity, whose gradient is negated."""

    @staticmethod
    def forward(context: object, vectors: Tensor) -> Tensor:
        return vectors.view_as(vectors)

    @staticmethod
    def backward(context: object, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return -gradient


@full_precision
def domain_adversarial(source_BD: Tensor, domains_PD: Tensor, bias_P: Tensor, domain_B: Tensor) -> Tensor:
    """- 1/N sum_i log softmax( W h(s_i) + b )[domain_i], whose gradient reaches h with its sign reversed.

    The domain classifier (W, b) learns to tell the domains apart and the encoder to keep it from that.

    Args:
        source_BD: sentence vectors h.
        domains_PD: W, one row for each of P domains.
        bias_P: b.
        domain_B: integers 0 .. P-1, the corpus each sentence is from.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes do not fit, the batch is empty, or a domain is out of range.

    Source: Ganin and Lempitsky 2015 (gradient reversal), for the domain-adversarial loss of the meta-teacher of Pan et
    al. 2020 (Meta-KD).
    """
    name = "domain_adversarial"
    check_floating(name, "source_BD", source_BD, dimensions=2)
    check_floating(name, "domains_PD", domains_PD, dimensions=2)
    if domains_PD.shape[1] != source_BD.shape[1] or bias_P.shape != domains_PD.shape[:1]:
        raise InputError(
            f"{name}: domains_PD is {shape(domains_PD)} and bias_P {shape(bias_P)}, for vectors {shape(source_BD)}"
        )
    check_labels(name, domain_B, len(source_BD), len(domains_PD))
    reversed_BD: Tensor = _Reversed.apply(source_BD)  # type: ignore[no-untyped-call, assignment]
    return F.cross_entropy(F.linear(reversed_BD, domains_PD, bias_P), domain_B.long())
