"""Distillation weighted by how transferable a sentence is between domains, the MetaKD baseline.

What is simplified against Pan et al. 2020 (Meta-KD), which distils classifiers of labelled text in several domains:
* The guide is what the stage names: the teacher, or a meta-teacher that an earlier stage has trained over domains with
  `domain_adversarial` (recipe distilcse:metakd). Domain features are not distilled.
* Sentences have no class, so a domain has one prototype (its mean direction) instead of one per class.
* The domain-expertise weight (1 + t) / (exp(error^2) + 1) has a prediction error only where there are labels; here
  the error is 0 and the weight is (1 + t) / 2.
* Sentence vectors and, where given, hidden states are distilled; attention maps and class logits are not.
"""

from __future__ import annotations

from torch import Tensor

from msdc.distill.objectives.numerics import check_floating, check_rows, cosines, full_precision, shape, unit_rows
from msdc.errors import InputError


def domain_prototypes(vectors_ND: Tensor, domain_N: Tensor, domains: int) -> Tensor:
    """Mean direction of the teacher's vectors in each domain, [P, D]; a domain without sentences has the zero vector.

    Args:
        vectors_ND: the teacher's vectors of the corpus, or of a sample of it.
        domain_N: integers 0 .. P-1, the corpus each sentence is from.
        domains: P.

    Raises:
        InputError: not one domain for each vector, or a domain out of range.
    """
    check_floating("domain_prototypes", "vectors_ND", vectors_ND, dimensions=2)
    _check_domains("domain_prototypes", domain_N, len(vectors_ND), domains)
    units_ND = unit_rows(vectors_ND.float())
    sums_PD = units_ND.new_zeros(domains, vectors_ND.shape[1]).index_add_(0, domain_N.long(), units_ND)
    return sums_PD / domain_N.bincount(minlength=domains).clamp(min=1).unsqueeze(1)


@full_precision
def metakd(
    teacher_BD: Tensor,
    student_BD: Tensor,
    domain_B: Tensor,
    prototypes_PD: Tensor,
    teacher_states_BLH: Tensor | None = None,
    student_states_BLH: Tensor | None = None,
    own_share: float = 0.5,
) -> Tensor:
    """Squared error of sentence vectors (and states), each sentence weighted by its prototype score.

    1/N sum_i w_i ( ||h_T(s_i) - h_S(s_i)||^2 + mean_l ||h_T_l(s_i) - h_S_l(s_i)||^2 ), squares averaged over their
    dimensions; w_i = (1 + t_i) / 2, t_i = a cos(h_T(s_i), C_own) + (1 - a) / (P - 1) sum_other cos(h_T(s_i), C_other).
    With one domain t_i is the cosine with its prototype. No gradient goes through the weights.

    Args:
        teacher_BD: the teacher's vectors.
        student_BD: the student's vectors of the same sentences, projected where the width differs.
        domain_B: integers 0 .. P-1, the domain (corpus) of each sentence.
        prototypes_PD: `domain_prototypes` of the teacher.
        teacher_states_BLH: states of chosen layers of the teacher, optional.
        student_states_BLH: states of the matching layers of the student; both or neither.
        own_share: a, the share of the own domain's prototype in the score.

    Returns:
        A scalar, at least float32.

    Raises:
        InputError: shapes differ, the batch is empty, a domain or the share is out of range.

    Source: the baseline "MetaKD" of Gao et al. 2021 (DistilCSE), after Pan et al. 2020; simplified see the head
    of this file.
    """
    check_rows("metakd", teacher_BD=teacher_BD, student_BD=student_BD)
    check_floating("metakd", "prototypes_PD", prototypes_PD, dimensions=2)
    domains = len(prototypes_PD)
    if prototypes_PD.shape[1] != teacher_BD.shape[1]:
        raise InputError(f"metakd: prototypes_PD is {shape(prototypes_PD)} but teacher_BD is {shape(teacher_BD)}")
    _check_domains("metakd", domain_B, len(teacher_BD), domains)
    if not 0 <= own_share <= 1:
        raise InputError(f"metakd: own_share must be between 0 and 1, got {own_share}")
    if (teacher_states_BLH is None) != (student_states_BLH is None):
        raise InputError("metakd: give the states of both models or of neither")

    similarity_BP = cosines(teacher_BD, prototypes_PD).detach()
    own_B = similarity_BP.gather(1, domain_B.long().unsqueeze(1)).squeeze(1)
    score_B = own_B
    if domains > 1:
        score_B = own_share * own_B + (1 - own_share) / (domains - 1) * (similarity_BP.sum(1) - own_B)
    error_B = (teacher_BD - student_BD).square().mean(1)
    if teacher_states_BLH is not None and student_states_BLH is not None:
        if student_states_BLH.shape != teacher_states_BLH.shape or len(teacher_states_BLH) != len(teacher_BD):
            raise InputError(
                f"metakd: student_states_BLH is {shape(student_states_BLH)} but teacher_states_BLH is "
                f"{shape(teacher_states_BLH)}, for {len(teacher_BD)} sentences"
            )
        error_B = error_B + (teacher_states_BLH - student_states_BLH).square().mean((1, 2))
    return ((1 + score_B) / 2 * error_B).mean()


def _check_domains(objective: str, domain_N: Tensor, count: int, domains: int) -> None:
    if domain_N.shape != (count,) or domain_N.is_floating_point():
        raise InputError(f"{objective}: expected {count} integer domains, got {domain_N.dtype} {shape(domain_N)}")
    # Looked at only where looking does not wait for the device.
    if domain_N.device.type == "cpu" and not 0 <= int(domain_N.min()) <= int(domain_N.max()) < domains:
        raise InputError(f"{objective}: domains must be 0 .. {domains - 1}, got up to {int(domain_N.max())}")
