"""Relational knowledge distillation (Park et al. 2019): distances and angles between the vectors of a batch.

The student's vectors may have any width: only their relations are compared. Usage, with the paper's weights:

    vectors = teacher_source_BD, student_source_BD, student_target_BD
    loss = relational(*vectors) + 2 * relational(*vectors, relation="angle")
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from msdc.distill.objectives.shared import SHORTEST, objective, unit_vectors


def _distances(vectors_BD: Tensor) -> Tensor:
    """psi_D of all pairs: their distance divided by the mean distance (eq. 5 and 6)."""
    distances = F.pdist(vectors_BD)
    return distances / distances.mean().clamp(min=SHORTEST)


def _angles(vectors_BD: Tensor) -> Tensor:
    """psi_A of all triples [B, B, B]: the cosine of the angle at one between two others (eq. 9), 0 if two are the same.

    Selecting the triples would make a GPU wait for their number.
    """
    directions_BBD = unit_vectors(vectors_BD - vectors_BD.unsqueeze(1))
    one_BB = torch.eye(len(vectors_BD), dtype=torch.bool, device=vectors_BD.device)
    different_BBB = ~(one_BB[:, :, None] | one_BB[:, None, :] | one_BB)
    return directions_BBD @ directions_BBD.transpose(1, 2) * different_BBB


RELATIONS: dict[str, Callable[[Tensor], Tensor]] = {"distance": _distances, "angle": _angles}


@objective()
def relational(
    teacher_source_BD: Tensor,
    student_source_BD: Tensor,
    student_target_BD: Tensor,
    teacher_target_BD: Tensor | None = None,
    relation: Literal["distance", "angle"] = "distance",
) -> Tensor:
    """Train the relations of sentences to be the teacher's: their distances, or the angles of their triangles.

    mean_ij l( |t_i - t_j| / mu_T, |s_i - s_j| / mu_S ), mu the mean distance, or mean_ijk l( cos(t_i - t_j, t_k - t_j),
    cos(s_i - s_j, s_k - s_j) ), which takes B^3 numbers; l: Huber (eq. 8); for sources and for targets.

    Args:
        teacher_source_BD: the teacher's vectors t of the source sentences.
        student_source_BD, student_target_BD: the student's vectors s of the same sentences and of their translations.
        teacher_target_BD: a multilingual teacher's vectors of the translations; None: those of the sources.
        relation: distance or angle.

    Source: Park et al. 2019, eq. 5 to 10; means over tuples, as in the authors' code, where eq. 7 and 10 have sums.
    """
    wanted_target_BD = teacher_source_BD if teacher_target_BD is None else teacher_target_BD
    size = len(student_source_BD)
    tuples = size * (size - 1) // 2 if relation == "distance" else size * (size - 1) * (size - 2)
    loss = (student_source_BD.sum() + student_target_BD.sum()) * 0  # of a batch without pairs or triples
    for teacher_BD, student_BD in ((teacher_source_BD, student_source_BD), (wanted_target_BD, student_target_BD)):
        teacher_relations, student_relations = map(RELATIONS[relation], (teacher_BD, student_BD))
        loss = loss + (
            F.smooth_l1_loss(student_relations, teacher_relations, reduction="sum") / tuples if tuples else 0
        )
    return loss
