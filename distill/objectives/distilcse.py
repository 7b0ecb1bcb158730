"""DistilCSE (Gao et al. 2021): contrastive distillation with a memory bank, fine-tuning on triples, and its baselines.

`similarity_distillation` (SEED, Fang et al. 2021) uses the same memory bank. Usage:

    bank = MemoryBank(teacher.width)
    loss = contrastive_distillation(project(student_BD), teacher_BD, bank.vectors())
    loss.backward(); bank.push(teacher_BD)

The baseline MetaKD, weighted by how transferable a sentence is between domains, is simplified against Pan et al. 2020
(Meta-KD), which distils classifiers of labelled text in several domains:
* The teacher is that of the stage: the recipe's, or a meta-teacher that an earlier stage trained over domains with
  `domain_adversarial` (recipe distilcse:metakd). Domain features are not distilled.
* Sentences have no class, so a domain has one prototype (its mean direction) instead of one per class.
* The domain-expertise weight (1 + t) / (exp(error^2) + 1) has a prediction error only where there are labels; here
  the error is 0 and the weight is (1 + t) / 2.
* Sentence vectors and, where given, hidden states are distilled; attention maps and class logits are not.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msdc.arguments import checked
from msdc.distill.objectives.shared import (
    check_labels,
    cosines,
    false_negative_mask,
    objective,
    shape,
    squared_error,
    unit_vectors,
)  # fmt: skip
from msdc.errors import InputError


@objective(equal_widths=True)
def contrastive_distillation(
    student_BD: Tensor,
    teacher_BD: Tensor,
    bank_KD: Tensor,
    temperature: float = 0.05,
    margin: float = 0.0,
    texts_BS: Tensor | None = None,
    bank_texts_K: Tensor | None = None,
) -> Tensor:
    """Pick the teacher's vector of the same sentence out of the batch's and the bank's.

    -log exp(f(h_S_i M, h_T_i)/tau) / ( sum_j exp(f(h_S_i M, h_T_j)/tau) + sum_q exp(f(h_S_i M, h_T_q)/tau) ), mean
    over i; f the cosine. The bank may be empty ([0, D]), as in the first step. A batch of 1 with an empty bank gives 0.
    In the paper equal sentences are negatives of each other; here `texts_BS` or `margin` exclude them.

    Args:
        student_BD: the student's vectors after the learned map M to the teacher's width.
        teacher_BD: the teacher's vectors of the same sentences.
        bank_KD: teacher vectors of preceding batches (`MemoryBank.vectors()`); of any length.
        temperature: tau.
        margin: j and q with f(h_T_i, h_T) > 1 - margin are not negatives (the filter of GISTEmbed, Solatorio 2024, with
            the sentence itself as the positive); 0: all are.
        texts_BS: the texts of each row as integers, equal for equal texts: a row that shares one is not a negative.
        bank_texts_K: the same of the bank (`MemoryBank.texts()`).

    Source: Gao et al. 2021 (DistilCSE), L_CKD.
    """
    similarity = torch.cat([cosines(student_BD, teacher_BD), cosines(student_BD, bank_KD)], dim=1)
    if margin > 0:
        alike = torch.cat([cosines(teacher_BD, teacher_BD).fill_diagonal_(0), cosines(teacher_BD, bank_KD)], dim=1)
        similarity = similarity.masked_fill(alike > 1 - margin, -torch.inf)
    elif margin != 0:
        raise InputError(f"margin must not be negative, got {margin}")
    return info_nce(similarity / temperature, texts_BS, bank_texts_K)


def info_nce(logits_BM: Tensor, texts_BS: Tensor | None, others: Tensor | None) -> Tensor:
    """Cross entropy of picking column i in row i, without equal texts of the rows and of the `others` after them."""
    if texts_BS is not None:
        rest = texts_BS.new_zeros(logits_BM.shape[1] - len(logits_BM)) if others is None else others.flatten()
        logits_BM = logits_BM.masked_fill(false_negative_mask(texts_BS, rest), -torch.inf)
    return F.cross_entropy(logits_BM, torch.arange(len(logits_BM), device=logits_BM.device))


class MemoryBank(nn.Module):
    """First in, first out queue of at most `size` vectors, kept in float32.

    Everything lives in buffers, so `state_dict` carries the vectors and the pointer, and a resumed run continues with
    the same negatives. With many processes every one pushes the same gathered batch, in rank order; then all banks
    are equal and one of them is saved.

    Args:
        width: D, the teacher's sentence width.
        size: Q, how many vectors are kept.

    Source: Gao et al. 2021 (DistilCSE): Q = 65,536.
    """

    bank_KD: Tensor
    texts_K: Tensor  # the text of each vector as an integer; 0: unknown
    pointer: Tensor
    filled: Tensor

    def __init__(self, width: int, size: int = 65_536) -> None:
        super().__init__()
        if width < 1 or size < 1:
            raise InputError(f"a memory bank needs a width and a size of at least 1, got {width} and {size}")
        self.register_buffer("bank_KD", torch.zeros(size, width, dtype=torch.float32))
        self.register_buffer("texts_K", torch.zeros(size, dtype=torch.long))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))
        self.register_buffer("filled", torch.zeros((), dtype=torch.long))
        self._held = 0  # as `filled`, which may be on a GPU: reading it would wait for the GPU

    def __len__(self) -> int:
        """How many vectors are in the bank now."""
        return self._held

    def vectors(self) -> Tensor:
        """The stored vectors, [filled, D], in slot order; a view: use it before the next `push`, or clone it."""
        return self.bank_KD[: len(self)]

    def texts(self) -> Tensor:
        """The texts of the stored vectors as integers, int64 [filled], 0 where they are unknown; a view."""
        return self.texts_K[: len(self)]

    @torch.no_grad()
    def push(self, vectors_BD: Tensor, texts_B: Tensor | None = None) -> None:
        """Add a batch of vectors [B, D]; the oldest ones are removed. Of more than `size`, the last `size` stay.

        `texts_B` are their texts as integers, equal for equal texts.

        Raises:
            InputError: not [B, D] with the bank's width, or empty.
        """
        size, width = self.bank_KD.shape
        if not (vectors_BD.is_floating_point() and vectors_BD.shape[1:] == (width,) and len(vectors_BD)):
            raise InputError(
                f"MemoryBank.push: vectors_BD is {vectors_BD.dtype} {shape(vectors_BD)}, expected [B, {width}]"
            )
        count = len(vectors_BD)
        stored = min(count, size)
        slots = (self.pointer + torch.arange(count - stored, count, device=self.bank_KD.device)) % size
        self.bank_KD[slots] = vectors_BD[count - stored :].to(self.bank_KD)
        self.texts_K[slots] = 0 if texts_B is None else texts_B[count - stored :]
        self.pointer.copy_((self.pointer + count) % size)
        self._held = min(size, self._held + count)
        self.filled.fill_(self._held)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        saved = state_dict.get(prefix + "bank_KD")
        if saved is not None and saved.shape != self.bank_KD.shape:
            raise InputError(f"the checkpoint's memory bank is {shape(saved)}, this run's is {shape(self.bank_KD)}")
        pointer, filled = state_dict.get(prefix + "pointer"), state_dict.get(prefix + "filled")
        if pointer is not None and filled is not None:
            next_slot, held, size = int(pointer), int(filled), len(self.bank_KD)
            # Until the bank is full the next free slot is the first one that was never filled.
            if not (next_slot == held if 0 <= held < size else held == size and 0 <= next_slot < size):
                raise InputError(
                    f"the checkpoint's memory bank is damaged: pointer {next_slot}, filled {held} of {size}"
                )
            self._held = held
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


@objective(equal_widths=True)
def similarity_distillation(
    teacher_source_BD: Tensor,
    student_target_BD: Tensor,
    bank_KD: Tensor,
    student_source_BD: Tensor | None = None,
    temperature: float = 0.05,
) -> Tensor:
    """Train the order and similarity of a sentence's neighbours in the batch and in the bank.

    mean_i KL( softmax_k(f(h_T(s_i), z_k) / tau) || softmax_k(f(h_S(x_i), z_k) / tau) ), summed over x = t and, where it
    is given, x = s; z are the teacher's vectors of the batch and of the bank, f the cosine. Equal
    vectors give 0.

    Args:
        teacher_source_BD: the teacher's vectors of the source sentences.
        student_target_BD: the student's vectors of their translations, in the teacher's width.
        bank_KD: the teacher's vectors of preceding batches (`MemoryBank.vectors()`); may be empty, [0, D].
        student_source_BD: the student's vectors of the source sentences; None if a step trains one side.
        temperature: tau, the same for both.

    Source: Fang et al. 2021 (SEED), eq. 3 to 5, for images and with cross entropy, which has the same gradient as KL.
    """
    students = [student_target_BD, *([] if student_source_BD is None else [student_source_BD])]
    known_MD = torch.cat([teacher_source_BD, bank_KD])
    label_BM = (cosines(teacher_source_BD, known_MD) / temperature).log_softmax(1)
    loss = teacher_source_BD.new_zeros(())
    for student_BD in students:
        found_BM = (cosines(student_BD, known_MD) / temperature).log_softmax(1)
        loss = loss + (label_BM.exp() * (label_BM - found_BM)).sum(1).mean()
    return loss


@objective()
def supervised_contrastive(
    anchor_BD: Tensor,
    positive_BD: Tensor,
    negative_BD: Tensor,
    temperature: float = 0.05,
    texts_BS: Tensor | None = None,
    negative_texts_BN: Tensor | None = None,
) -> Tensor:
    """Pick the entailed sentence of each premise out of all entailed and all contradicting ones.

    -log exp(f(h_i, h_i+)/tau) / sum_j ( exp(f(h_i, h_j+)/tau) + exp(f(h_i, h_j-)/tau) ), mean over i; f the cosine.

    Args:
        anchor_BD, positive_BD: vectors of the premises and of the entailed sentences, row by row.
        negative_BD: vectors of the contradicting sentences, not necessarily B.
        temperature: tau.
        texts_BS: premise and entailed sentence of each row as integers, equal for equal texts: neither rows that share
            one nor equal contradictions are negatives.
        negative_texts_BN: the same of the contradicting sentences, in the order of their vectors.

    Source: Gao et al. 2021 (DistilCSE), L_CL; the supervised objective of SimCSE.
    """
    similarity = torch.cat([cosines(anchor_BD, positive_BD), cosines(anchor_BD, negative_BD)], dim=1)
    return info_nce(similarity / temperature, texts_BS, negative_texts_BN)


@objective(equal_widths=True)
def kd(teacher_BD: Tensor, student_BD: Tensor, reduction: Literal["mean", "sum"] = "mean") -> Tensor:
    """1/N sum_i ||h_T(s_i) - h_S(s_i)||^2, squares averaged over the D dimensions (`reduction: sum` sums them).

    Args:
        teacher_BD: the teacher's vectors.
        student_BD: the student's vectors of the same sentences, projected to the teacher's width if it differs.
        reduction: over D, "mean" or "sum"; over B always the mean.

    Source: the baseline "KD" of Gao et al. 2021 (DistilCSE): the source side of Ding et al. 2022, eq. 2.
    """
    return squared_error(student_BD, teacher_BD, reduction)


@checked
def layer_subset(
    teacher_layers: int, student_layers: int, how: Literal["skip", "last"] = "skip"
) -> tuple[tuple[int, int], ...]:
    """Pairs (teacher layer, student layer), counted from 1, whose states `pkd` compares.

    The student's layers 1 .. M-1; its last one is trained by the sentence vector. "skip" spreads them over the
    teacher (12 to 6 layers: 2, 4, 6, 8, 10), "last" takes the teacher's layers right before its last (7 .. 11). A
    recurring student counts each application of a layer.

    Raises:
        InputError: a student of one layer has no intermediate state; a student deeper than its teacher.

    Source: Sun et al. 2019, PKD-Skip and PKD-Last.
    """
    if student_layers < 2:
        raise InputError(f"pkd needs a student of at least 2 layers, this one has {student_layers}")
    if student_layers > teacher_layers:
        raise InputError(f"pkd: the student has {student_layers} layers, more than its teacher's {teacher_layers}")
    if how == "skip":
        return tuple((layer * teacher_layers // student_layers, layer) for layer in range(1, student_layers))
    return tuple((teacher_layers - student_layers + layer, layer) for layer in range(1, student_layers))


@objective()
def pkd(teacher_states_BLH: Tensor, student_states_BLH: Tensor) -> Tensor:
    """Squared error between the normalised [CLS] states of matched layers, averaged over sentences, layers and H.

    1/N sum_i mean_l || h_T_l(s_i) / |h_T_l(s_i)| - h_S_l(s_i) / |h_S_l(s_i)| ||^2. This is only the patient term; a
    recipe adds `kd` for the sentence vector and gives this term its weight (the paper's beta, 10 to 1,000).

    Args:
        teacher_states_BLH: states of the teacher's layers that `layer_subset` names.
        student_states_BLH: states of the student's, mapped to the teacher's width if it differs.

    A zero state counts as the zero vector.

    Source: Sun et al. 2019; the baseline "PKD" of Gao et al. 2021 (DistilCSE).
    """
    return F.mse_loss(unit_vectors(student_states_BLH), unit_vectors(teacher_states_BLH))


@objective()
def domain_prototypes(vectors_ND: Tensor, domain_N: Tensor, domains: int) -> Tensor:
    """Mean direction of the teacher's vectors in each domain, [P, D]; a domain without sentences has the zero vector.

    Args:
        vectors_ND: the teacher's vectors of the corpus, or of a sample of it.
        domain_N: integers 0 .. P-1, the corpus each sentence is from.
        domains: P.
    """
    check_labels(domain_N, domains, "domains")
    units_ND = unit_vectors(vectors_ND.float())
    sums_PD = units_ND.new_zeros(domains, vectors_ND.shape[1]).index_add_(0, domain_N.long(), units_ND)
    return sums_PD / domain_N.bincount(minlength=domains).clamp(min=1).unsqueeze(1)


@objective(equal_widths=True)
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
        student_BD: the student's vectors of the same sentences, projected if the width differs.
        domain_B: integers 0 .. P-1, the domain (corpus) of each sentence.
        prototypes_PD: `domain_prototypes` of the teacher.
        teacher_states_BLH, student_states_BLH: states of matching layers; both or neither.
        own_share: a, the share of the own domain's prototype in the score.

    Source: the baseline "MetaKD" of Gao et al. 2021 (DistilCSE), after Pan et al. 2020; simplified as described at the
    top of this file.
    """
    domains = len(prototypes_PD)
    check_labels(domain_B, domains, "domains")
    if not 0 <= own_share <= 1:
        raise InputError(f"own_share must be between 0 and 1, got {own_share}")
    if (teacher_states_BLH is None) != (student_states_BLH is None):
        raise InputError("give the states of both models or of neither")

    similarity_BP = cosines(teacher_BD, prototypes_PD).detach()
    own_B = similarity_BP.gather(1, domain_B.long().unsqueeze(1)).squeeze(1)
    score_B = own_B
    if domains > 1:
        score_B = own_share * own_B + (1 - own_share) / (domains - 1) * (similarity_BP.sum(1) - own_B)
    error_B = (teacher_BD - student_BD).square().mean(1)
    if teacher_states_BLH is not None and student_states_BLH is not None:
        error_B = error_B + (teacher_states_BLH - student_states_BLH).square().mean((1, 2))
    return ((1 + score_B) / 2 * error_B).mean()


@objective()
def domain_adversarial(source_BD: Tensor, domains_PD: Tensor, bias_P: Tensor, domain_B: Tensor) -> Tensor:
    """- 1/N sum_i log softmax( W h(s_i) + b )[domain_i], whose gradient reaches h with its sign reversed.

    The domain classifier (W, b) learns to separate the domains and the encoder to prevent it.

    Args:
        source_BD: sentence vectors h.
        domains_PD, bias_P: W, one row for each of P domains; and b.
        domain_B: integers 0 .. P-1, the corpus each sentence is from.

    Source: Ganin and Lempitsky 2015 (gradient reversal), for the domain-adversarial loss of the meta-teacher of Pan et
    al. 2020 (Meta-KD).
    """
    check_labels(domain_B, len(domains_PD))
    # The same numbers with a gradient of the opposite sign.
    reversed_BD = 2 * source_BD.detach() - source_BD
    return F.cross_entropy(F.linear(reversed_BD, domains_PD, bias_P), domain_B.long())
