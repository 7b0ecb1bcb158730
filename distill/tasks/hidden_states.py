"""Layer states for the baselines PKD and MetaKD: the guide's from the store, the student's as it runs.

The guide's sentence vector and its chosen states are one wide vector of an encoder of its own, so that caching,
resuming and many processes are those of any guide. A state is the first token's ([CLS], <s>): guide and student may
cut a sentence into different tokens.

Shapes: B sentences, T tokens, L compared layers, D sentence width, H hidden, P domains.
"""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from torch import Tensor, nn

from msdc.compress.student.from_transformers import to_student
from msdc.compress.student.model import Student
from msdc.distill.data.batches import Batch
from msdc.distill.data.stream import Stream
from msdc.distill.guide import Guide
from msdc.distill.objectives.metakd import domain_prototypes
from msdc.distill.objectives.pkd import layer_subset
from msdc.distill.parallel import gather
from msdc.distill.recipe import ObjectiveUse, Stage
from msdc.distill.tasks.sentence import Task
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError

STATE_OBJECTIVES = ("pkd", "metakd")
PER_DOMAIN = 2_000  # sentences a domain's prototype is the mean of


def state_use(stage: Stage) -> ObjectiveUse | None:
    """The objective of a stage that compares layer states or domains, if any."""
    return next((use for use in stage.objective if use.name in STATE_OBJECTIVES), None)


def depth(student: Student) -> int:
    """Applied layers; a recurring one counts each time."""
    return len(student.layers) * student.config.repeats


def matched_layers(stage: Stage, guide: Student, student: Student) -> tuple[tuple[int, int], ...]:
    """Pairs (guide layer, student layer), from 1; none where MetaKD is asked for sentence vectors alone.

    Raises:
        InputError: the student is too shallow, or deeper than its guide.
    """
    use = state_use(stage)
    assert use is not None
    how = use.options.get("layers", "skip" if use.name == "pkd" else "none")
    return () if how == "none" else layer_subset(depth(guide), depth(student), how)


def layer_states(student: Student, ids_BT: Tensor, mask_BT: Tensor, wanted: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Sentence vectors [B, D] and the first token's states after the `wanted` applied layers (from 1), [B, L, H]."""
    attend = None if bool(mask_BT.all()) else mask_BT.bool()[:, None, None, :]
    hidden_BTH = student.embed(ids_BT)
    states = {}
    for number in range(1, depth(student) + 1):
        hidden_BTH = student.layers[(number - 1) % len(student.layers)](hidden_BTH, attend)
        if number in wanted:
            states[number] = hidden_BTH[:, 0]
    empty_BLH = hidden_BTH.new_zeros(len(ids_BT), 0, hidden_BTH.shape[2])
    stacked_BLH = torch.stack([states[number] for number in wanted], 1) if wanted else empty_BLH
    return student.head(hidden_BTH, mask_BT), stacked_BLH


class StatesModule(nn.Module):
    """A guide whose output is its sentence vector, then its chosen states, end to end: [B, D + L x H]."""

    def __init__(self, student: Student, wanted: tuple[int, ...]) -> None:
        super().__init__()
        self.student = student
        self.wanted = wanted
        self.sentence_width = student.width
        self.width = student.width + len(wanted) * student.config.hidden

    def forward(self, ids_BT: Tensor, mask_BT: Tensor) -> Tensor:
        sentence_BD, states_BLH = layer_states(self.student, ids_BT, mask_BT, self.wanted)
        return torch.cat([sentence_BD, states_BLH.flatten(1)], dim=1)


def states_encoder(encoder: Encoder, wanted: tuple[int, ...]) -> Encoder:
    """`encoder` with its states beside its sentence vector; a fingerprint of its own keeps the stores apart."""
    wide = Encoder(
        StatesModule(to_student(encoder), wanted), encoder.tokenizer, encoder.max_length, encoder.name, encoder.folder
    )
    said = f"{encoder.fingerprint()} states {','.join(map(str, wanted))}"
    wide._fingerprint = hashlib.sha256(said.encode()).hexdigest()
    return wide


def prototypes(stream: Stream, guide: Guide) -> Tensor:
    """The mean direction of the guide's vectors in each domain, [P, D], from the first rows of every source."""
    texts: list[str] = []
    domains: list[int] = []
    counts: dict[int, int] = {}
    for source in stream.sources:
        share = -(-PER_DOMAIN // sum(other.domain == source.domain for other in stream.sources))
        taken = 0
        for row in source.read():
            if taken == share:
                break
            if stream.is_sampled(row.source):
                texts.append(row.source)
                domains.append(row.domain)
                taken += 1
        counts[source.domain] = counts.get(source.domain, 0) + taken
    if not all(counts.values()):
        raise InputError("metakd: a corpus of this stage gave no training sentence for its prototype")
    vectors_ND = torch.from_numpy(guide.vectors(texts)[:, : guide.sentence_width])
    return domain_prototypes(vectors_ND, torch.tensor(domains), len(counts))


class StatesTask(Task):
    """Source sentences against the guide's vector, its states (PKD) and its domains (MetaKD)."""

    prototypes_PD: Tensor | None

    def __init__(self, student: Any, stage: Stage, guide: StatesModule) -> None:
        super().__init__(student, stage, guide)
        pairs = matched_layers(stage, guide.student, student)
        self.wanted = tuple(own for _, own in pairs)
        self.guide_width, self.guide_hidden = guide.sentence_width, guide.student.config.hidden
        self.project: nn.Linear | None = None
        self.project_states: nn.Linear | None = None
        if student.width != self.guide_width:
            self.project = nn.Linear(student.width, self.guide_width, bias=False)
        if self.wanted and student.config.hidden != self.guide_hidden:
            self.project_states = nn.Linear(student.config.hidden, self.guide_hidden, bias=False)
        # Follows from the corpora and the guide: set anew when a run is resumed, not part of a checkpoint.
        self.register_buffer("prototypes_PD", None, persistent=False)

    def forward(self, batch: Batch, teach_source: bool = True) -> dict[str, Tensor]:
        if batch.guide_source_BD is None:
            raise InputError(f"stage {self.stage.name}: {self.uses[0][0].name} needs a guide")
        sentence_BD, states_BLH = layer_states(self.student, *batch.source, self.wanted)
        if self.project is not None:
            sentence_BD = self.project(sentence_BD)
        if self.project_states is not None:
            states_BLH = self.project_states(states_BLH)
        guide = gather(batch.guide_source_BD)
        rows, count = len(guide), len(self.wanted)
        domain_B1 = torch.tensor([[row.domain] for row in batch.rows], device=guide.device, dtype=torch.float32)
        tensors: dict[str, Tensor | None] = {
            "teacher_BD": guide[:, : self.guide_width],
            "student_BD": gather(sentence_BD),
            "domain_B": gather(domain_B1).squeeze(1).long(),
            "prototypes_PD": self.prototypes_PD,
        }
        if count:
            tensors["teacher_states_BLH"] = guide[:, self.guide_width :].view(rows, count, self.guide_hidden)
            tensors["student_states_BLH"] = gather(states_BLH.flatten(1)).view(rows, count, self.guide_hidden)
        return self._sum(tensors)


def prepare_states(stage: Stage, guide: Encoder, student: Encoder) -> Encoder:
    """The guide with the states that this stage compares.

    Raises:
        InputError: the student has no such layers.
    """
    wanted = matched_layers(stage, to_student(guide), to_student(student))
    return states_encoder(guide, tuple(theirs for theirs, _ in wanted))
