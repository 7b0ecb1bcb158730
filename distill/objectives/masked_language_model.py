"""The baseline MLM of the lightweight model: many masked tokens, each predicted from its own state."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.numerics import check_floating, full_precision, shape
from msdc.errors import InputError


@full_precision
def masked_language_model(token_logits_MV: Tensor, masked_ids_M: Tensor) -> Tensor:
    """-log softmax(logits_m)[id_m], mean over the M masked tokens of a batch; 0 without any.

    Args:
        token_logits_MV: predictions from the last hidden state at each masked place.
        masked_ids_M: the tokens that were there.

    Returns:
        A scalar >= 0, at least float32.

    Raises:
        InputError: shapes differ.

    Source: Devlin et al. 2019 (BERT), the baseline MLM of Mao et al. 2021, table 6.
    """
    name = "masked_language_model"
    if masked_ids_M.shape != token_logits_MV.shape[:1]:
        raise InputError(f"{name}: masked_ids_M is {shape(masked_ids_M)}, expected [{len(token_logits_MV)}]")
    if not len(masked_ids_M):
        return token_logits_MV.sum()
    check_floating(name, "token_logits_MV", token_logits_MV, dimensions=2)
    return F.cross_entropy(token_logits_MV, masked_ids_M)
