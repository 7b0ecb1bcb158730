"""Relational knowledge distillation (Park et al. 2019): distances and angles between the vectors of a batch.

The student's vectors may have any width: only their relations are compared. Usage, with the paper's weights:

    loss = relational_distance(teacher_source_BD, student_source_BD, student_target_BD)
    loss = loss + 2 * relational_angle(teacher_source_BD, student_source_BD, student_target_BD)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.shared import SHORTEST, objective, unit_vectors


def _distances(vectors_BD: Tensor) -> Tensor:
    """psi_D of all pairs: their distance divided by the mean distance (eq. 5 and 6)."""
    distances = F.pdist(vectors_BD)
    return distances / distances.mean().clamp(min=SHORTEST)


def _angles(vectors_BD: Tensor) -> Tensor:
    """psi_A of all triples of different examples: the cosine of the angle at one between two others (eq. 9)."""
    directions_BBD = unit_vectors(vectors_BD - vectors_BD.unsqueeze(1))
    one_BB = torch.eye(len(vectors_BD), dtype=torch.bool, device=vectors_BD.device)
    different_BBB = ~(one_BB[:, :, None] | one_BB[:, None, :] | one_BB)
    return (directions_BBD @ directions_BBD.transpose(1, 2))[different_BBB]


def _compared(relations: Callable[[Tensor], Tensor], *pairs: tuple[Tensor, Tensor]) -> Tensor:
    """The Huber loss of eq. 8 between the relations of student and teacher, its mean over tuples, summed over pairs."""
    losses = []
    for teacher_BD, student_BD in pairs:
        wanted, found = relations(teacher_BD), relations(student_BD)
        losses.append(F.smooth_l1_loss(found, wanted) if len(found) else student_BD.sum() * 0)
    return sum(losses[1:], losses[0])


@objective()
def relational_distance(
    teacher_source_BD: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    teacher_target_BD: Tensor | None = None,
) -> Tensor:
    """Train the distances between sentences to be the teacher's, up to one factor.

    mean_ij l( |t_i - t_j| / mu_T, |s_i - s_j| / mu_S ), l: Huber, mu: the mean distance; for sources and for targets.

    Args:
        teacher_source_BD: the teacher's vectors t of the source sentences.
        student_source_BD, student_target_BD: the student's vectors s of the same sentences and of their translations.
        teacher_target_BD: a multilingual teacher's vectors of the translations; None: those of the sources.

    Source: Park et al. 2019, eq. 5 to 8; the mean over pairs, as in the authors' code, where eq. 7 has the sum.
    """
    target_BD = teacher_source_BD if teacher_target_BD is None else teacher_target_BD
    return _compared(_distances, (teacher_source_BD, student_source_BD), (target_BD, student_target_BD))


@objective()
def relational_angle(
    teacher_source_BD: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    teacher_target_BD: Tensor | None = None,
) -> Tensor:
    """Train the angles of all triangles of sentences to be the teacher's; takes B^3 numbers.

    mean_ijk l( cos(t_i - t_j, t_k - t_j), cos(s_i - s_j, s_k - s_j) ), l: Huber, over different i, j, k; for sources
    and for targets.

    Args:
        teacher_source_BD: the teacher's vectors t of the source sentences.
        student_source_BD, student_target_BD: the student's vectors s of the same sentences and of their translations.
        teacher_target_BD: a multilingual teacher's vectors of the translations; None: those of the sources.

    Source: Park et al. 2019, eq. 8 to 10; the mean over triples, as in the authors' code, where eq. 10 has the sum.
    """
    target_BD = teacher_source_BD if teacher_target_BD is None else teacher_target_BD
    return _compared(_angles, (teacher_source_BD, student_source_BD), (target_BD, student_target_BD))
