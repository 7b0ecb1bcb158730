"""Layer states for the baselines PKD and MetaKD: the teacher's from its cache, the student's from its forward pass.

A state is the first token's ([CLS], <s>): teacher and student may tokenize a sentence differently.

Shapes: B sentences, L compared layers, D sentence width, H hidden, P domains.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import torch
from torch import Tensor, nn

from msdc.compress.student.model import Student
from msdc.compress.student.stock import to_student
from msdc.distill.data import Batch
from msdc.distill.data.tables import NO_PROMPTS
from msdc.distill.data.text import StageText
from msdc.distill.objectives import domain_prototypes, find_objective, layer_subset
from msdc.distill.parallel import gather, on_rank_zero
from msdc.distill.recipe import Stage
from msdc.distill.tasks.sentence import TrainingTask, domain_numbers
from msdc.distill.teacher import CachedTeacher, Teacher
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import with_prompt
from msdc.errors import InputError

STATES, PROTOTYPES = "teacher_states_BLH", "prototypes_PD"
PER_DOMAIN = 2_000  # sentences whose mean direction is a domain's prototype


def layer_pairs(stage: Stage, teacher: Encoder, student: Student) -> tuple[tuple[int, int], ...]:
    """Pairs (teacher layer, student layer), from 1, whose states the stage compares; empty for most stages.

    The option `layers` of an objective chooses them; the default is `skip` if the objective needs states, else none.
    """
    for use in stage.objective:
        objective = find_objective(use.name)
        if STATES in (*objective.inputs, *objective.optional):
            how = use.options.get("layers", "skip" if STATES in objective.inputs else "none")
            if how == "none":
                return ()
            return layer_subset(to_student(teacher).depth, student.depth, how)
    return ()


def prototypes(text: StageText, teacher: Teacher, prompt: str = "") -> Tensor:
    """The mean direction of the teacher's vectors in each domain, [P, D], from some rows of every source."""
    sources = Counter(table.source.domain for table in text.tables)
    texts: list[str] = []
    domains: list[int] = []
    for table, training_rows in zip(text.tables, text.training_rows, strict=True):
        share = -(-PER_DOMAIN // sources[table.source.domain])
        table_texts = table.texts(training_rows[:share].astype(np.int64))
        texts, domains = texts + table_texts, domains + [table.source.domain] * len(table_texts)
    if len(set(domains)) < len(sources):
        raise InputError("metakd: a corpus of this stage has no training sentence for its prototype")
    vectors_ND = torch.from_numpy(teacher.vectors(with_prompt(prompt, texts), progress=True))
    return domain_prototypes(vectors_ND, torch.tensor(domains), len(sources))


class HiddenStatesTask(TrainingTask):
    """Source sentences against the teacher's vector, its states (PKD) and its domains (MetaKD)."""

    provides = frozenset([STATES, PROTOTYPES])
    prototypes_PD: Tensor | None

    def build(self) -> None:
        """The learned maps to the teacher's widths."""
        student, stage, teacher = self.student, self.stage, self.teacher
        if not isinstance(teacher, CachedTeacher):
            raise InputError(f"stage {stage.name}: {stage.objective[0].name} needs one teacher")
        pairs = layer_pairs(stage, teacher.encoder, student)
        self.student_layers = tuple(student_layer for _, student_layer in pairs)
        self.project_states: nn.Linear | None = None
        if student.width != teacher.width:
            self.project = nn.Linear(student.width, teacher.width, bias=False)
        if self.student_layers and student.config.hidden != teacher.hidden:
            self.project_states = nn.Linear(student.config.hidden, teacher.hidden, bias=False)
        # Without an objective on the sentence vector the last layer has no gradient.
        self.partial = not any("student_BD" in objective.inputs for _, objective, _ in self.uses)
        # Not part of a checkpoint: a resumed run computes it again from the corpora and the teacher.
        self.register_buffer("prototypes_PD", None, persistent=False)

    def prepare(self, text: StageText) -> None:
        """Compute the prototypes of the stage's corpora."""
        assert self.teacher is not None
        teacher = self.teacher
        prompt = (self.stage.teacher_prompts or NO_PROMPTS)[0]
        self.prototypes_PD = on_rank_zero(lambda: prototypes(text, teacher, prompt))

    def forward(self, batch: Batch, train_source: bool = True) -> dict[str, Tensor]:
        """The loss and its parts."""
        assert batch.teacher_source_BD is not None  # `build` demands a teacher
        sentence_BD, states_BLH = self.student.layer_states(*batch.source, self.student_layers)
        if self.project is not None:
            sentence_BD = self.project(sentence_BD)
        if self.project_states is not None:
            states_BLH = self.project_states(states_BLH)
        tensors: dict[str, Tensor | None] = {
            "teacher_BD": gather(batch.teacher_source_BD, batch.size),
            "student_BD": gather(sentence_BD, batch.size),
            "domain_B": domain_numbers(batch),
            PROTOTYPES: self.prototypes_PD,
        }
        if batch.teacher_states_BLH is not None:
            tensors[STATES] = gather(batch.teacher_states_BLH, batch.size)
            tensors["student_states_BLH"] = gather(states_BLH, batch.size)
        return self._sum(lambda objective, options: objective(tensors, **options))
