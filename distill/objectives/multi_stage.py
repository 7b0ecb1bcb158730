"""Multi-stage distillation (Ding et al. 2022): equations 2 to 9.

Equations 2, 4 and 6 are also the objective of Reimers and Gurevych 2020. Usage:

    loss = multilingual_mse(teacher_source_BD, student_source_BD, student_target_BD)
    loss = loss + multilingual_contrastive(teacher_source_BD, student_source_BD, student_target_BD)
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from msdc.distill.objectives.shared import cosines, objective, reduce, squared_error


@objective(equal_widths=True)
def multilingual_mse(
    teacher_source_BD: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    teacher_target_BD: Tensor | None = None,
    reduction: Literal["mean", "sum"] = "mean",
) -> Tensor:
    """Train the student's vectors of a sentence and of its translation to equal the teacher's vector.

    1/N sum_i [ ||h_T(s_i) - h_S(s_i)||^2 + ||h_T(s_i) - h_S(t_i)||^2 ], squares averaged over the D dimensions.

    Args:
        teacher_source_BD: the teacher's vectors of the source sentences.
        student_source_BD, student_target_BD: the student's vectors of the same sentences and of their translations.
        teacher_target_BD: a multilingual teacher's vectors of the translations, for the second term (eq. 4); None for
            an English teacher (eq. 2 and 6).
        reduction: over D, "mean" as `torch.nn.functional.mse_loss` and the authors' code, or "sum" as the equations are
            written. With vectors of length 1 the mean is D times smaller than eq. 5, which averages cosines.

    Source: Ding et al. 2022, eq. 2 (train the assistant), 4 (train the student), 6 (L_KD); Reimers and Gurevych 2020.
    """
    wanted_target_BD = teacher_source_BD if teacher_target_BD is None else teacher_target_BD
    source = squared_error(student_source_BD, teacher_source_BD, reduction)
    return source + squared_error(student_target_BD, wanted_target_BD, reduction)


@objective()
def embedding_alignment(teacher_BTH: Tensor, student_BTH: Tensor, mask_BT: Tensor, pooled: bool = False) -> Tensor:
    """Squared error between the outputs of two embedding layers, over the real tokens of one side.

    Eq. 3 has one such term for the sources and one for the translations: call it twice, or with both stacked along B.
    Each token counts once, its squares averaged over H. With `pooled`, the mean-pooled outputs are compared, one
    vector a sentence, as in the authors' code.

    Padding and rows of padding are ignored; a batch of padding gives 0, with a zero gradient.

    Args:
        teacher_BTH: e_A, output of the teacher's embedding layer.
        student_BTH: e_S, output of the student's.
        mask_BT: nonzero (or True) on real tokens.
        pooled: compare means over the tokens instead of the tokens.

    Source: Ding et al. 2022, eq. 3.
    """
    real_BT = mask_BT != 0
    # Filled before squaring, so that a NaN or an infinity in the padding reaches neither value nor gradient.
    difference_BTH = (student_BTH - teacher_BTH).masked_fill(~real_BT.unsqueeze(-1), 0.0)
    if not pooled:
        return difference_BTH.square().sum() / (real_BT.sum().clamp(min=1) * teacher_BTH.shape[2])
    tokens_B1 = real_BT.sum(1, keepdim=True)
    difference_BH = difference_BTH.sum(1) / tokens_B1.clamp(min=1)
    sentences = torch.count_nonzero(tokens_B1).clamp(min=1)
    return difference_BH.square().sum() / (sentences * teacher_BTH.shape[2])


@objective()
def multilingual_contrastive(
    teacher_source_BD: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    labels: Literal["soft", "hard"] = "soft",
    sentence_B: Tensor | None = None,
) -> Tensor:
    """Train the student's source x target similarities with the teacher's similarities among the sources.

    1/N^2 sum_i sum_j ( label(i, j) - phi(h_S(s_i), h_S(t_j)) )^2, phi the cosine. Soft labels (eq. 5) are
    phi(h_T(s_i), h_T(s_j)); hard ones (eq. 8) are 1 where s_i and s_j are the same sentence, else 0.

    The student's width may differ from the teacher's. A zero vector has cosine 0 with everything.

    Args:
        teacher_source_BD: the teacher's vectors of the source sentences.
        student_source_BD, student_target_BD: the student's vectors of the same sentences and of their translations.
        labels: "soft" or "hard".
        sentence_B: integers, equal for equal source sentences (hard labels only). Without it two rows are the same
            sentence when the teacher's vectors are equal bit for bit, as cached ones are.

    Source: Ding et al. 2022, eq. 5 and 8 (the setting "Bool" of the ablation).
    """
    if labels == "soft":
        label_BB = cosines(teacher_source_BD, teacher_source_BD)
    else:
        if sentence_B is None:
            sentence_B = torch.unique(teacher_source_BD.detach(), dim=0, return_inverse=True)[1]
        label_BB = (sentence_B.unsqueeze(1) == sentence_B.unsqueeze(0)).to(student_source_BD.dtype)
    return (label_BB - cosines(student_source_BD, student_target_BD)).square().mean()


@objective()
def contrastive_cross_entropy(
    teacher_source_BD: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    temperature: float = 0.05,
    reduction: Literal["sum", "mean"] = "sum",
) -> Tensor:
    """- sum_i sum_j phi_T(i, j) log( exp(phi_S(i, j) / tau) / sum_k exp(phi_S(i, k) / tau) ).

    phi_T(i, j) is the cosine of the teacher's vectors of s_i and s_j, phi_S(i, j) the cosine of the student's vectors
    of s_i and t_j. The weights are cosines as the paper writes them, neither normalised nor clipped at zero, so the
    loss has no lower bound where the teacher finds negative cosines. The student's width may differ from the
    teacher's. A batch of 1 gives 0.

    Args:
        teacher_source_BD: the teacher's vectors of the source sentences.
        student_source_BD, student_target_BD: the student's vectors of the same sentences and of their translations.
        temperature: tau.
        reduction: "sum" over i as in eq. 9, or "mean" over i, which does not grow with the batch.

    Source: Ding et al. 2022, eq. 9 (the setting "CE" of the ablation).
    """
    weight_BB = cosines(teacher_source_BD, teacher_source_BD)
    log_share_BB = (cosines(student_source_BD, student_target_BD) / temperature).log_softmax(1)
    return reduce(-(weight_BB * log_share_BB).sum(1), reduction)
