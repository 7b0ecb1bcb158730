"""A task has the student, the modules that only training needs (projection, memory bank), and a stage's objectives.

`forward(batch)` returns a dict with `loss` and its named parts; only the student is saved as a model.

Shapes: B pairs, N negatives per pair, J = N + 1 candidates, T tokens, H hidden, D sentence width, C classes, F = 3 D
features, P domains.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from msdc.distill import objectives
from msdc.distill.data import Batch
from msdc.distill.data.corpora import NLI_CLASSES
from msdc.distill.data.text import StageText
from msdc.distill.parallel import gather, weighted
from msdc.distill.recipe import ObjectiveUse, Stage, StagePlan, is_table, model_name
from msdc.distill.teacher import CachedTeacher, Teacher
from msdc.errors import InputError

# Keys of a stage that only losses on sentence vectors can use.
VECTOR_KEYS = ("dimensions", "mini_batch", "mined_negatives")
BANK_SIZE = 65_536  # Gao et al. 2021
GROUP_TOKENS = 768  # groups of fewer tokens are slower
# Options of an objective that the task uses itself.
TASK_OPTIONS = ("bank", "layers")
# The kind of corpus that has the labels of an objective.
LABELS = {"label_B": "nli-pairs", "score_B": "scored"}
DOMAINS = "domains_PD"
# Inputs that need the teacher's outputs for targets and negatives too.
SCORES = "teacher_scores_BJ"
TARGETS = frozenset(["teacher_target_BD", SCORES])


def stage_inputs(stage: Stage) -> set[str]:
    """Names of all tensors that the objectives of a stage need."""
    return {name for use in stage.objective for name in objectives.find_objective(use.name).inputs}


def teacher_inputs(plan: StagePlan) -> set[str]:
    """The teacher's tensors that a stage needs, without scores that its corpora contain."""
    corpus_inputs = {SCORES} if all(corpus.scores for corpus in plan.corpora) else set()
    return {name for name in stage_inputs(plan.stage) if name.startswith("teacher_")} - corpus_inputs


def compares_targets(plan: StagePlan) -> bool:
    """Whether the objectives of a stage need the teacher's outputs for targets or negatives."""
    return bool(TARGETS & teacher_inputs(plan))


def reads_targets(plan: StagePlan) -> bool:
    """Whether the teacher has vectors of the target side too: an assistant, which is multilingual, and a table."""
    own_sides = [name == "assistant" or is_table(model_name(plan.teachers[name])) for name in plan.stage.teachers]
    return (bool(own_sides) and all(own_sides)) or compares_targets(plan)


def encode_sides(student: Any, sides: Sequence[tuple[Tensor, Tensor]], mini_batch: int | None = None) -> list[Tensor]:
    """Sentence vectors of each side, [B, D] each, computed in groups of near-equal length over all sides.

    Groups save about a tenth of the padding: the other side of a long pair is often shorter. On a GPU, where few large
    products are faster, each side is one group.

    With `mini_batch` a group has at most this many sentences, and the backward pass recomputes its activations with the
    same dropout. The gradients are those of the whole batch (GradCache, Gao et al. 2021).
    """
    device = sides[0][0].device
    # A process may have no rows of a small last batch.
    if not len(sides[0][0]) or (device.type != "cpu" and mini_batch is None):
        return [student(*side) for side in sides]
    encode = student if mini_batch is None else partial(checkpoint, student, use_reentrant=False)
    lengths = torch.cat([mask_BT.sum(1) for _, mask_BT in sides])
    order = lengths.argsort(stable=True)
    ids = [row for ids_BT, _ in sides for row in ids_BT.unbind()]
    counts = lengths.tolist()
    vectors, start = [], 0
    picked = order.tolist()
    for end in range(1, len(picked) + 1):
        longest = counts[picked[end - 1]]
        small = (end - start) * longest < GROUP_TOKENS
        full = end - start == mini_batch
        if end < len(picked) and not full and (small or counts[picked[end]] <= 1.1 * counts[picked[start]]):
            continue
        ids_GT = torch.stack([F.pad(ids[i][:longest], (0, max(0, longest - len(ids[i])))) for i in picked[start:end]])
        mask_GT = torch.arange(longest, device=device) < lengths[order[start:end]].unsqueeze(1)
        vectors.append(encode(ids_GT, mask_GT))
        start = end
    together = torch.cat(vectors)[order.argsort()]
    return list(together.split([len(ids_BT) for ids_BT, _ in sides]))


class TrainingTask(nn.Module):
    """Student, objectives, and the named tensors they are computed from.

    A subclass names in `provides` the tensors that only it computes.
    """

    provides: frozenset[str] = frozenset()
    on_vectors = False  # whether all losses use sentence vectors only, as the keys in VECTOR_KEYS need
    compares_tables = False  # whether its losses compare token tables (`train: student.embedding`)
    partial = False  # whether some steps leave trained parameters without a gradient

    def __init__(self, student: Any, stage: Stage, teacher: Teacher | None = None, mask_id: int | None = None) -> None:
        super().__init__()
        if stage.dimensions and max(stage.dimensions) >= student.width:
            raise InputError(f"stage {stage.name}: dimensions {list(stage.dimensions)}: vectors have {student.width}")
        self.student = student
        self.stage = stage
        # A Teacher is not a module: it is neither trained nor saved.
        self.teacher = teacher
        self.mask_id = mask_id  # id of the token that masks others; None: the vocabulary has none
        self.project: nn.Linear | None = None
        self.uses: list[tuple[ObjectiveUse, objectives.Objective, dict[str, Any]]] = []
        for use in stage.objective:
            objective = objectives.find_objective(use.name)
            options = {name: value for name, value in use.options.items() if name not in TASK_OPTIONS}
            self.uses.append((use, objective, options))
        self.build()

    @classmethod
    def check(cls, plan: StagePlan) -> None:
        """Refuse keys of a stage, and corpora, that its objectives cannot use.

        Raises:
            InputError: names the stage, and the objective or the key.
        """
        stage = plan.stage
        for use in stage.objective:
            for problem in cls.problems(plan, objectives.find_objective(use.name)):
                raise InputError(f"stage {stage.name}: {use.label} {problem}")
        mixed = "a mix of teachers" if len(stage.teachers) > 1 else None
        for key in (mixed, *(key for key in VECTOR_KEYS if getattr(stage, key))):
            if key is not None and not cls.on_vectors:
                raise InputError(f"stage {stage.name}: {key} is for objectives on sentence vectors only")
        if stage.mined_negatives is not None and stage.teacher is None:
            raise InputError(
                f"stage {stage.name}: mined_negatives needs a teacher to find the negatives, and the stage has none"
            )

    @classmethod
    def problems(cls, plan: StagePlan, objective: objectives.Objective) -> Iterator[str]:
        """What one of its objectives lacks, as the end of a sentence."""
        if ("teacher_BTH" in objective.inputs) != cls.compares_tables:
            use = "cannot be used with" if cls.compares_tables else "needs"
            yield f"{use} train: student.embedding"
        if plan.stage.teacher is None and teacher_inputs(plan) & set(objective.inputs):
            yield "needs a teacher, and the stage has none"
        for role in plan.absent:
            if role in (plan.stage.role, *plan.stage.teachers):
                yield f"the stage needs the {role}, but the recipe has none"

    def build(self) -> None:
        """Create the modules that only training needs; they are not saved with the student."""

    @property
    def weights(self) -> dict[str, float]:
        """Weight of each named part of the loss."""
        return {use.label: use.weight for use, _, _ in self.uses}

    def _sum(self, loss: Callable[[objectives.Objective, dict[str, Any]], Tensor]) -> dict[str, Tensor]:
        """The weighted sum of the objectives, and each of them; `loss` computes one with its options."""
        parts: dict[str, Tensor] = {}
        terms: list[Tensor] = []
        for use, objective, options in self.uses:
            value = loss(objective, options)
            parts[use.label] = value.detach()
            terms.append(use.weight * value)
        return {"loss": sum(terms[1:], terms[0]), **parts}

    def texts(self, batch: Batch) -> dict[str, Tensor | None]:
        """The texts of all processes' batches as integers, equal for equal texts; empty if no loss reads them."""
        if not any("texts_BS" in objective.optional for _, objective, _ in self.uses):
            return {}
        assert batch.texts_BS is not None
        texts_BS = gather(batch.texts_BS, batch.size)
        return {"texts_BS": texts_BS[:, :2], "negative_texts_BN": texts_BS[:, 2:] if batch.negatives else None}

    def prepare(self, text: StageText) -> None:
        """Prepare the task with the stage's text before training; most tasks do nothing."""

    def after_backward(self) -> None:
        """Called after each backward pass."""


class SentenceTask(TrainingTask):
    """Sentence vectors of both sides against the teacher's (MSD stages 1, 3, 4; MKD; DistilCSE)."""

    on_vectors = True

    @classmethod
    def problems(cls, plan: StagePlan, objective: objectives.Objective) -> Iterator[str]:
        """Also negatives that no corpus has, and classes of prefixes of a vector."""
        yield from super().problems(plan, objective)
        have_negatives = plan.stage.mined_negatives is not None or plan.kinds <= {"triples", "nli"}
        if {"negative_BD", "student_negatives_BND"} & set(objective.inputs) and not have_negatives:
            yield "needs negatives: set `kind: triples` or `kind: nli` for each of its corpora, or `mined_negatives: 4`"
        if "classifier_CF" in objective.inputs and plan.stage.dimensions:
            yield "cannot be used with dimensions"

    def build(self) -> None:
        """The learned map to the teacher's width and the memory bank."""
        student, stage, teacher = self.student, self.stage, self.teacher
        equal = stage.source_share < 1 or any(objective.equal_widths for _, objective, _ in self.uses)
        if teacher is not None and teacher.width != student.width and equal:
            # DistilCSE's learned map M to the teacher's width, not saved. Objectives on similarities (eq. 5, 8, 9) use
            # the student's own vectors.
            self.project = nn.Linear(student.width, teacher.width, bias=False)
            # Steps that train both sides need no map then.
            self.partial = not any(objective.equal_widths for _, objective, _ in self.uses)
        self.bank: objectives.MemoryBank | None = None
        self._newest: tuple[Tensor, Tensor | None] | None = None
        if "bank_KD" in stage_inputs(stage):
            size = next((int(use.options["bank"]) for use in stage.objective if "bank" in use.options), BANK_SIZE)
            self.bank = objectives.MemoryBank(student.width if teacher is None else teacher.width, size)

    def _vectors(self, batch: Batch) -> list[Tensor | None]:
        """Vectors of sources and targets [B, D], and of negatives [B, N, D], of the batch of all processes."""
        sides = [batch.source, *([] if batch.target is None else [batch.target])]
        if batch.negatives is not None:
            sides.append((batch.negatives[0].flatten(0, 1), batch.negatives[1].flatten(0, 1)))
        encoded_sides = iter(encode_sides(self.student, sides, self.stage.mini_batch))
        source = gather(next(encoded_sides), batch.size)
        target = None if batch.target is None else gather(next(encoded_sides), batch.size)
        if batch.negatives is None:
            return [source, target, None]
        negatives_per_row = batch.negatives[0].shape[1]
        negatives_BND = next(encoded_sides).view(len(batch), negatives_per_row, self.student.width)
        return [source, target, gather(negatives_BND, batch.size)]

    def forward(self, batch: Batch, train_source: bool = True) -> dict[str, Tensor]:
        """The loss and its parts; without `train_source` only the target side is trained."""
        teacher_source, teacher_target, teacher_negatives = (
            None if vectors is None else gather(vectors, batch.size)
            for vectors in (batch.teacher_source_BD, batch.teacher_target_BD, batch.teacher_negatives_BND)
        )
        texts = self.texts(batch)
        if not train_source and batch.target is not None and teacher_source is not None:
            # The source side is learned fast; such a step skips it.
            (target_BD,) = encode_sides(self.student, [batch.target], self.stage.mini_batch)
            teacher_BD = teacher_source if teacher_target is None else teacher_target
            result = objectives.matryoshka(
                partial(self._target_alone, teacher_BD), [gather(target_BD, batch.size)], self.stage.dimensions
            )
        else:
            teacher_tensors: dict[str, Tensor | None] = {
                "teacher_source_BD": teacher_source, "teacher_target_BD": teacher_target, "teacher_BD": teacher_source,
                "bank_KD": None if self.bank is None else self.bank.vectors(),
                "bank_texts_K": None if self.bank is None else self.bank.texts(), **texts,
            }  # fmt: skip
            if batch.label_B is not None and batch.label_B.dim() == 2:  # scores of the corpus
                teacher_tensors[SCORES] = gather(batch.label_B, batch.size)
            elif teacher_source is not None and teacher_target is not None and teacher_negatives is not None:
                teacher_tensors[SCORES] = objectives.candidate_scores(teacher_source, teacher_target, teacher_negatives)
            loss = partial(self._compared, teacher_tensors)
            result = objectives.matryoshka(loss, self._vectors(batch), self.stage.dimensions)
        if self.bank is not None and teacher_source is not None and self.training:
            newest_BD = teacher_source if train_source or teacher_target is None else teacher_target
            texts_BS = texts.get("texts_BS")
            self._newest = (
                newest_BD.detach(),
                None if texts_BS is None else texts_BS[:, int(newest_BD is teacher_target)],
            )
        return result

    def _in_teacher_width(self, vectors_BD: Tensor) -> Tensor:
        """Vectors, or prefixes of them, through the learned map, if there is one."""
        if self.project is None:
            return vectors_BD
        return F.linear(vectors_BD, self.project.weight[:, : vectors_BD.shape[1]])

    def _compared(
        self,
        teacher_tensors: Mapping[str, Tensor | None],
        source_BD: Tensor,
        target_BD: Tensor | None,
        negatives_BND: Tensor | None,
    ) -> dict[str, Tensor]:
        """The objectives of the stage on the student's vectors, or on prefixes of them."""
        other_BD = source_BD if target_BD is None else target_BD
        tensors: dict[str, Tensor | None] = {
            **teacher_tensors,
            "student_source_BD": source_BD, "student_target_BD": other_BD, "student_BD": source_BD,
            "source_BD": source_BD, "target_BD": other_BD,
            "anchor_BD": source_BD, "positive_BD": target_BD, "student_negatives_BND": negatives_BND,
            "negative_BD": None if negatives_BND is None else negatives_BND.flatten(0, 1),
        }  # fmt: skip
        if (domains_PD := teacher_tensors.get(DOMAINS)) is not None:
            tensors[DOMAINS] = domains_PD[:, : source_BD.shape[1]]
        # For objectives that compare dimension by dimension: vectors of the teacher's width, or the teacher's first
        # dimensions.
        equal: Mapping[str, Tensor | None] = {}
        if self.project is not None:
            projected_source = self._in_teacher_width(source_BD)
            projected_target = projected_source if target_BD is None else self._in_teacher_width(target_BD)
            equal = {
                "student_source_BD": projected_source,
                "student_target_BD": projected_target,
                "student_BD": projected_source,
            }
        elif self.stage.dimensions:
            equal = {
                k: v if v is None else v[:, : source_BD.shape[1]] for k, v in teacher_tensors.items() if k.endswith("D")
            }
        return self._sum(
            lambda objective, options: objective({**tensors, **equal} if objective.equal_widths else tensors, **options)
        )

    def _target_alone(self, teacher_BD: Tensor, target_BD: Tensor) -> dict[str, Tensor]:
        """The loss of the target side: squared error, and the stage's objectives that need only this side."""
        target_BD = self._in_teacher_width(target_BD)
        width = target_BD.shape[1]
        teacher_BD = teacher_BD[:, :width]
        # The squared error is reduced as the stage's own MSE is.
        reductions = [o["reduction"] for _, objective, o in self.uses if objective.equal_widths and "reduction" in o]
        loss = objectives.kd(teacher_BD, target_BD, reduction=reductions[0] if reductions else "mean")
        parts = {"target_only": loss.detach()}
        bank_KD = None if self.bank is None else self.bank.vectors()[:, :width]
        tensors = {"teacher_source_BD": teacher_BD, "student_target_BD": target_BD, "bank_KD": bank_KD}
        for use, objective, options in self.uses:
            if objective.one_side:
                value = objective(tensors, **options)
                parts[use.label] = value.detach()
                loss = loss + use.weight * value
        return {"loss": loss, **parts}

    def after_backward(self) -> None:
        """Push the teacher's vectors of this batch into the memory bank."""
        # The loss refers to a view of the bank, which must not change before the backward pass.
        if self.bank is not None and self._newest is not None:
            self.bank.push(*self._newest)
            self._newest = None


class EmbeddingTask(TrainingTask):
    """Eq. 3: the student's embedding layer against the assistant's, token by token, on both sides."""

    compares_tables = True

    @classmethod
    def problems(cls, plan: StagePlan, objective: objectives.Objective) -> Iterator[str]:
        """Also a student without layers."""
        yield from super().problems(plan, objective)
        if plan.cut_shape is not None and plan.cut_shape.layers == ():
            yield "compares the rows of two tables, and those of a student without layers have another meaning"

    def forward(self, batch: Batch, train_source: bool = True) -> dict[str, Tensor]:
        """The loss and its parts, summed over the sides."""
        if not isinstance(self.teacher, CachedTeacher):
            raise InputError(f"stage {self.stage.name}: train: student.embedding needs one teacher")
        module: Any = self.teacher.encoder.module
        sides = [self._compare_embeddings(module, *side) for side in (batch.source, batch.target) if side is not None]
        return {key: sum((side[key] for side in sides[1:]), sides[0][key]) for key in sides[0]}

    def _compare_embeddings(self, teacher: Any, ids_BT: Tensor, mask_BT: Tensor) -> dict[str, Tensor]:
        with torch.no_grad():
            teacher_BTH = teacher.embed(ids_BT)
        student_BTH = self.student.embed(ids_BT)
        tensors = {"teacher_BTH": teacher_BTH, "student_BTH": student_BTH, "mask_BT": mask_BT}

        def loss(objective: objectives.Objective, options: dict[str, Any]) -> Tensor:
            # A mean over this process's tokens, or over its sentences where their tokens are pooled.
            count = mask_BT.any(1).sum() if options.get("pooled") else mask_BT.sum()
            # A process without rows has a loss of 0 with a gradient.
            return weighted(objective(tensors, **options) if len(ids_BT) else student_BTH.sum(), count)

        return self._sum(loss)


class LabelledTask(SentenceTask):
    """Vectors against labels: classes (SBERT on NLI), gold scores (SBERT on STS-B), domains (MetaKD's teacher).

    The classifiers are not saved with the student.
    """

    provides = frozenset([*LABELS, DOMAINS])

    @classmethod
    def problems(cls, plan: StagePlan, objective: objectives.Objective) -> Iterator[str]:
        """Also corpora without labels, or too few of them for their domains."""
        yield from super().problems(plan, objective)
        labels = next((LABELS[name] for name in objective.inputs if name in LABELS), None)
        if labels and plan.kinds != {labels}:
            yield f"needs labels: set `kind: {labels}` for each of its corpora"
        if DOMAINS in objective.inputs:
            count_domains(plan.stage)

    def build(self) -> None:
        """The classifiers of classes and of domains."""
        super().build()
        needed, width = stage_inputs(self.stage), self.student.width
        self.classifier = nn.Linear(3 * width, len(NLI_CLASSES)) if "label_B" in needed else None
        self.domains = nn.Linear(width, count_domains(self.stage)) if DOMAINS in needed else None

    def forward(self, batch: Batch, train_source: bool = True) -> dict[str, Tensor]:
        """The loss and its parts."""
        labels_of: dict[str, Tensor | None] = {}
        if stage_inputs(self.stage) & set(LABELS):
            if batch.label_B is None:
                raise InputError(f"stage {self.stage.name}: rows without a label; see `kind` of its corpora")
            score_B = gather(batch.label_B.float(), batch.size)
            labels_of |= {"score_B": score_B, "label_B": score_B.long()}
        if self.classifier is not None:
            labels_of |= {"classifier_CF": self.classifier.weight, "bias_C": self.classifier.bias}
        if self.domains is not None:
            labels_of |= {DOMAINS: self.domains.weight, "bias_P": self.domains.bias, "domain_B": domain_numbers(batch)}
        loss = partial(self._compared, labels_of | self.texts(batch))
        return objectives.matryoshka(loss, self._vectors(batch), self.stage.dimensions)

    def prepare(self, text: StageText) -> None:
        """Check that the stage's text has as many domains as the classifier."""
        domain_count = len({table.source.domain for table in text.tables})
        if self.domains is not None and domain_count != self.domains.out_features:
            raise InputError(
                f"stage {self.stage.name}: domain_adversarial has {self.domains.out_features} domains, "
                f"the text {domain_count}"
            )


def domain_numbers(batch: Batch) -> Tensor:
    """The domain (corpus) of each row of the batches of all processes, int64 [B]."""
    assert batch.domain_B is not None
    return gather(batch.domain_B, batch.size)


def count_domains(stage: Stage) -> int:
    """Number of corpora (domains) of a stage, which must list two or more."""
    if stage.corpora is None or len(stage.corpora) < 2:
        raise InputError(f"stage {stage.name}: domain_adversarial needs two corpora or more, listed in the stage")
    return len(stage.corpora)
