"""Training for search: prefixes of vectors, negatives filtered by the teacher, candidates scored by the teacher.

Usage, with N mined or given negatives per query and J = N + 1 candidates, the positive first:

    scores_BJ = candidate_scores(teacher_source_BD, teacher_target_BD, teacher_negatives_BND)
    loss = margin_mse(scores_BJ, student_source_BD, student_target_BD, student_negatives_BND)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.shared import false_negative_mask, objective, shape, unit_vectors
from msdc.errors import InputError


def matryoshka(
    loss: Callable[..., Mapping[str, Tensor]], vectors: Sequence[Tensor | None], dimensions: Sequence[int]
) -> dict[str, Tensor]:
    """Train prefixes of a vector as vectors too (Matryoshka): sum_m L(v_1:m), over m and the full width.

    Args:
        loss: any objective, or sum of some, of the vectors [.., D] in the order of `vectors`; its values by name.
        vectors: the student's; None is passed on.
        dimensions: the widths m; empty: the loss itself.

    Source: Kusupati et al. 2022 (Matryoshka representation learning), with all c_m = 1.
    """
    values = [loss(*(v if v is None or m is None else v[..., :m] for v in vectors)) for m in (None, *dimensions)]
    return {name: sum((value[name] for value in values[1:]), first) for name, first in values[0].items()}


@objective()
def candidate_scores(source_BD: Tensor, target_BD: Tensor, negatives_BND: Tensor) -> Tensor:
    """Cosines of each source with its candidates, [B, J]: its target, then its N = J - 1 negatives."""
    candidates_BJD = torch.cat([target_BD.unsqueeze(1), negatives_BND], dim=1)
    return (unit_vectors(candidates_BJD) @ unit_vectors(source_BD).unsqueeze(2)).squeeze(2)


def _both_scores(teacher_scores_BJ: Tensor, *student: Tensor) -> Tensor:
    """The student's scores, of the teacher's shape."""
    found_BJ = candidate_scores(*student)
    if found_BJ.shape != teacher_scores_BJ.shape:
        raise InputError(f"teacher_scores_BJ is {shape(teacher_scores_BJ)}, candidates are {shape(found_BJ)}")
    return found_BJ


@objective()
def guided_contrastive(
    teacher_source_BD: Tensor,
    teacher_target_BD: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    student_negatives_BND: Tensor | None = None,
    teacher_scores_BJ: Tensor | None = None,
    temperature: float = 0.05,
    margin: float = 0.0,
    texts_BS: Tensor | None = None,
    negative_texts_BN: Tensor | None = None,
) -> Tensor:
    """Pick each source's target out of the batch; texts that the teacher finds as similar are not negatives.

    -log exp(s(q_i, p_i)/tau) / Z_i, mean over i; s the student's cosine, t the teacher's. Z_i sums exp(s/tau) over
    (q_i, p_j), (q_i, q_j) and (p_i, p_j) of all j, and (q_i, n_ij) of the row's own negatives, if any. Pairs with
    t > t(q_i, p_i) - margin, a text with itself, and rows i and j with a text in common (the teacher's scores of equal
    texts differ by rounding alone) are excluded, except (q_i, p_i). Teacher and student may differ in width.

    Args:
        teacher_source_BD, teacher_target_BD: the teacher's vectors of the queries q and the targets p.
        student_source_BD, student_target_BD: the student's vectors of the same texts.
        student_negatives_BND: the student's vectors of the negatives n.
        teacher_scores_BJ: the teacher's cosines of the query with its target, then its negatives.
        temperature: tau.
        margin: how much further than its own target a text must be to be a negative.
        texts_BS: query and target of each row as integers, equal for equal texts.
        negative_texts_BN: the same of the negatives.

    Source: Solatorio 2024 (GISTEmbed); the margin is that of later implementations.
    """
    sides = (student_source_BD, student_target_BD, teacher_source_BD, teacher_target_BD)
    queries_BD, targets_BD, teacher_queries_BD, teacher_targets_BD = map(unit_vectors, sides)
    own_B1 = (teacher_queries_BD * teacher_targets_BD).sum(1, keepdim=True)
    here_BB = torch.eye(len(queries_BD), dtype=torch.bool, device=queries_BD.device)
    equal_BB = torch.zeros_like(here_BB) if texts_BS is None else false_negative_mask(texts_BS)
    blocks = [
        (queries_BD @ targets_BD.T, equal_BB | (teacher_queries_BD @ teacher_targets_BD.T > own_B1 - margin) & ~here_BB)
    ]
    blocks += [
        (s @ s.T, equal_BB | here_BB | (t @ t.T > own_B1 - margin))
        for s, t in ((queries_BD, teacher_queries_BD), (targets_BD, teacher_targets_BD))
    ]
    if student_negatives_BND is not None and teacher_scores_BJ is not None:
        found_BJ = _both_scores(teacher_scores_BJ, student_source_BD, student_target_BD, student_negatives_BND)
        left_out_BN = teacher_scores_BJ[:, 1:] > teacher_scores_BJ[:, :1] - margin
        if texts_BS is not None and negative_texts_BN is not None:
            left_out_BN |= (negative_texts_BN[:, :, None] == texts_BS[:, None]).any(2)
        blocks.append((found_BJ[:, 1:], left_out_BN))
    logits = torch.cat([(scores / temperature).masked_fill(left_out, -torch.inf) for scores, left_out in blocks], dim=1)
    return F.cross_entropy(logits, torch.arange(len(queries_BD), device=queries_BD.device))


@objective()
def margin_mse(
    teacher_scores_BJ: Tensor, student_source_BD: Tensor, student_target_BD: Tensor, student_negatives_BND: Tensor
) -> Tensor:
    """Train the margin between a query's target and each of its negatives.

    1/BN sum_i sum_n ( (s(q_i, p_i) - s(q_i, n)) - (t(q_i, p_i) - t(q_i, n)) )^2;
    s: cosine of the student, t: of the teacher.

    Args:
        teacher_scores_BJ: t, the target first (`candidate_scores`).
        student_source_BD, student_target_BD, student_negatives_BND: the student's vectors of q, p and n.

    Source: Hofstaetter et al. 2020 (cross-architecture knowledge distillation).
    """
    student = (student_source_BD, student_target_BD, student_negatives_BND)
    found_BJ = _both_scores(teacher_scores_BJ, *student)
    return F.mse_loss(found_BJ[:, :1] - found_BJ[:, 1:], teacher_scores_BJ[:, :1] - teacher_scores_BJ[:, 1:])


@objective()
def listwise_kl(
    teacher_scores_BJ: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    student_negatives_BND: Tensor,
    temperature: float = 0.05,
) -> Tensor:
    """Train the distribution over a query's candidates: mean_i KL( softmax_j(t_ij / tau) || softmax_j(s_ij / tau) ).

    Args:
        teacher_scores_BJ: t, the teacher's cosine with the target, then with the negatives (`candidate_scores`).
        student_source_BD, student_target_BD, student_negatives_BND: the student's, of queries, targets and negatives.
        temperature: tau, the same for both.

    Source: Cao et al. 2007 (ListNet, top-one probabilities); Ren et al. 2021 (RocketQAv2), for distillation.
    """
    student = (student_source_BD, student_target_BD, student_negatives_BND)
    found_BJ = _both_scores(teacher_scores_BJ, *student)
    label_BJ = (teacher_scores_BJ / temperature).log_softmax(1)
    return F.kl_div((found_BJ / temperature).log_softmax(1), label_BJ, reduction="batchmean", log_target=True)
