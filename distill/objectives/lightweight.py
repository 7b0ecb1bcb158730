"""The lightweight cross-lingual model (Mao et al. 2021): generative tasks, equations 2 to 4, sentence losses, 5 and 6.

Usage, for a batch whose one side is masked:

    loss = unified_generative(logits_BV, masked_token_B, masked_here_B, partner_ids_BT, partner_mask_BT)
    loss = loss + 2 * sentence_alignment(source_BD, target_BD) + 2 * sentence_similarity(source_BD, target_BD)
"""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.shared import false_negative_mask, objective, reduce
from msdc.errors import InputError


@objective()
def unified_generative(
    logits_BV: Tensor,
    masked_token_B: Tensor,
    masked_here_B: Tensor,
    partner_ids_BT: Tensor,
    partner_mask_BT: Tensor,
    task: Literal["ugt", "xtr", "smlm"] = "ugt",
) -> Tensor:
    """KL(q || p) between a sparse target q over the vocabulary and the model's p = softmax(logits), mean over B.

    A row is one side of a sentence pair that has one masked token in one of its sides. Call it for both sides and add.

    * ugt: where the mask is in this side, q(masked token) = 1/2 and the translation's tokens share the other half
      (a translation that has the masked token adds its share to the half); elsewhere the translation's tokens share
      all of q (XTR).
    * xtr: the translation's tokens share all of q in every row.
    * smlm: q is the masked token, predicted from its own side and from the translation.

    A token that occurs twice in the translation counts once, as in the paper (N_w = 1), and the shares are
    renormalised over the distinct tokens, so that q sums to 1 (in the authors' code it does not). A row without
    translation tokens has the masked token as its whole target where the mask is in it, and counts as 0 elsewhere.

    At most T + 1 logits per row are gathered; no dense target is built.

    Args:
        logits_BV: predictions from the pooled vector of this side.
        masked_token_B: id of the token that was masked in the pair.
        masked_here_B: True where the mask is in this side.
        partner_ids_BT: token ids of the other side before masking; padding is ignored.
        partner_mask_BT: nonzero (or True) on the other side's real tokens.
        task: which target, see above.

    Source: Mao et al. 2021, eq. 2 (SMLM), 3 (XTR), 4 (UGT); written there as KL(p || q), which is infinite wherever
    q is 0. This direction is the one that the authors' code computes.
    """
    batch, vocabulary = logits_BV.shape
    here_B = (masked_here_B != 0).to(logits_BV.dtype)
    ids_BS, share_BS = _target(masked_token_B, here_B, partner_ids_BT, partner_mask_BT != 0, task)
    used_BS = share_BS > 0
    # Checked only on the CPU, where it does not wait for the device; elsewhere the gather below raises.
    if ids_BS.device.type == "cpu" and bool((used_BS & ((ids_BS < 0) | (ids_BS >= vocabulary))).any()):
        raise InputError(f"a token id is outside the vocabulary of {vocabulary}")
    picked_BS = logits_BV.gather(1, ids_BS.masked_fill(~used_BS, 0)) - logits_BV.logsumexp(1, keepdim=True)
    # An unused entry may point at a logit of minus infinity, and 0 times that is not 0.
    picked_BS = picked_BS.masked_fill(~used_BS, 0.0)
    return (torch.xlogy(share_BS, share_BS) - share_BS * picked_BS).sum() / batch


def _target(masked_B: Tensor, here_B: Tensor, partner_BT: Tensor, real_BT: Tensor, task: str) -> tuple[Tensor, Tensor]:
    """The entries of q: ids and shares, [B, 1 + T]; each id with a share above zero is there once.

    `here_B` is 1.0 where the mask is in this side, else 0.0.
    """
    # Sorted, equal ids are neighbours: each but the first is a repetition. Padding sorts to the front as -1.
    partner_BT = partner_BT.long().masked_fill(~real_BT, -1).sort(1).values
    first_BT = torch.ones_like(real_BT)
    first_BT[:, 1:] = partner_BT[:, 1:] != partner_BT[:, :-1]
    distinct_BT = first_BT & (real_BT.sort(1).values)
    count_B = distinct_BT.sum(1)

    own_B = {"ugt": here_B / 2, "xtr": here_B * 0, "smlm": torch.ones_like(here_B)}[task]
    others_B = 1 - own_B if task in ("ugt", "xtr") else torch.zeros_like(own_B)
    if task == "ugt":
        own_B = torch.where(count_B == 0, here_B, own_B)
    share_BT = distinct_BT * (others_B / count_B.clamp(min=1)).unsqueeze(1)

    masked_B = masked_B.long()
    same_BT = (partner_BT == masked_B.unsqueeze(1)) & distinct_BT
    own_B = own_B + (share_BT * same_BT).sum(1)
    ids_BS = torch.cat([masked_B.unsqueeze(1), partner_BT], dim=1)
    return ids_BS, torch.cat([own_B.unsqueeze(1), share_BT.masked_fill(same_BT, 0.0)], dim=1)


@objective()
def masked_language_model(token_logits_MV: Tensor, masked_ids_M: Tensor) -> Tensor:
    """-log softmax(logits_m)[id_m], mean over the M masked tokens of a batch; 0 without any.

    Args:
        token_logits_MV: predictions from the last hidden state at each masked place.
        masked_ids_M: the tokens that were there.

    Source: Devlin et al. 2019 (BERT), the baseline MLM of Mao et al. 2021, table 6.
    """
    if not len(masked_ids_M):
        return token_logits_MV.sum()
    return F.cross_entropy(token_logits_MV, masked_ids_M)


@objective()
def sentence_alignment(
    source_BD: Tensor,
    target_BD: Tensor,
    reduction: Literal["sum", "mean"] = "sum",
    texts_BS: Tensor | None = None,
) -> Tensor:
    """Find each sentence's translation in the batch, and back.

    - sum_j [ log softmax_k(u_j . v_k)[j] + log softmax_k(u_k . v_j)[j] ]. A batch of 1 gives 0.

    Args:
        source_BD, target_BD: u and v, vectors of sentences and of their translations.
        reduction: "sum" over j as the paper writes it, or "mean" over j, as the authors' code computes it.
        texts_BS: both texts of each row as integers, equal for equal texts: rows that share one are not compared.

    Source: Mao et al. 2021, eq. 5.
    """
    product_BB = source_BD @ target_BD.T
    if texts_BS is not None:
        product_BB = product_BB.masked_fill(false_negative_mask(texts_BS), -torch.inf)
    own_B = product_BB.log_softmax(1).diagonal() + product_BB.log_softmax(0).diagonal()
    return reduce(-own_B, reduction)


@objective()
def sentence_similarity(
    source_BD: Tensor, target_BD: Tensor, reduction: Literal["sum", "rows", "mean"] = "sum"
) -> Tensor:
    """Match the in-batch similarities of the two languages.

    - sum_{j1,j2} log cos( pi/2 * ( softmax_k(u_j1 . u_k)[j2] - softmax_k(v_j1 . v_k)[j2] ) ). A batch of 1, or two
    equal sides, give 0. The logarithm has a pole where the two shares are 0 and 1: closer to it than the dtype's
    epsilon the value is constant (float32: 15.9 a pair) and the gradient is 0.

    Args:
        source_BD, target_BD: u and v, vectors of sentences and of their translations.
        reduction: "sum" over all pairs as the paper writes it; "rows": the sum over j2 and the mean over j1, the scale
            of a batch-mean alignment loss; or the "mean" over all pairs, which is B^2 times weaker than the sum.

    Source: Mao et al. 2021, eq. 6.
    """
    source_BB = (source_BD @ source_BD.T).softmax(1)
    target_BB = (target_BD @ target_BD.T).softmax(1)
    cosine_BB = ((source_BB - target_BB) * (math.pi / 2)).cos()
    # In floating point the cosine of a saturated pair is 0 or just below: no logarithm there.
    log_BB = cosine_BB.clamp(min=torch.finfo(cosine_BB.dtype).eps).log()
    if reduction == "rows":
        return -log_BB.sum(1).mean()
    return reduce(-log_BB, reduction)
