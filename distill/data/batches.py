"""Chunks of rows to batches of near-equal length, with the guide's outputs.

Shapes: B pairs, T tokens, D sentence width of the guide, L layers, H hidden of the guide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from msdc.distill.data import Row
from msdc.distill.data.stream import TextStream
from msdc.distill.recipe import Stage
from msdc.distill.teacher_cache import CachedTeacher, TeacherOutput
from msdc.encoders.folder import with_prompt
from msdc.errors import MsdcError
from msdc.text.tokenizer import Tokenizer, pad

CHUNK_PAIRS = 16_384
# Batches whose guide outputs are computed together: enough to pack by length, few enough to start quickly.
WINDOW = 16


@dataclass
class Batch:
    """The input of one step. A side is (ids [B, T], mask [B, T]); what the stage does not have is None."""

    rows: list[Row]
    source: tuple[Tensor, Tensor]
    target: tuple[Tensor, Tensor] | None
    third: tuple[Tensor, Tensor] | None = None
    guide_source_BD: Tensor | None = None
    guide_target_BD: Tensor | None = None
    guide_states_BLH: Tensor | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def languages(self) -> list[str]:
        """The language of each pair."""
        return [row.language for row in self.rows]


@dataclass
class Chunk:
    """A tokenized chunk and its cut into batches."""

    rows: list[Row]
    source_ids: list[list[int]]
    target_ids: list[list[int]] | None
    third_ids: list[list[int]] | None
    cuts: list[np.ndarray]
    pad_id: int

    def batch(
        self, number: int, guide_source: TeacherOutput | None = None, guide_target: TeacherOutput | None = None
    ) -> Batch:
        """Batch `number` as tensors, with what the guide says of its sources and targets."""
        pick = self.cuts[number]

        def side(ids: list[list[int]] | None) -> tuple[Tensor, Tensor] | None:
            return None if ids is None else pad([ids[i] for i in pick], self.pad_id)

        def vectors(guide: TeacherOutput | None) -> Tensor | None:
            return None if guide is None else torch.from_numpy(guide.sentence_ND)

        source = side(self.source_ids)
        assert source is not None
        states = None if guide_source is None else guide_source.states_NLH
        return Batch(
            [self.rows[i] for i in pick],
            source,
            side(self.target_ids),
            side(self.third_ids),
            vectors(guide_source),
            vectors(guide_target),
            None if states is None else torch.from_numpy(states),
        )


def cut(lengths: np.ndarray, batch: int, batch_tokens: int | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Indices cut into batches of near-equal length, in random order.

    With `batch_tokens` a batch holds as many pairs as keep (pairs x longest side) within it, at least one; without,
    exactly `batch` pairs (the last one fewer). Equal lengths are shuffled among themselves, so batches differ from
    epoch to epoch.
    """
    order = np.lexsort((rng.random(len(lengths)), lengths))
    cuts = []
    start = 0
    while start < len(order):
        size = batch
        if batch_tokens is not None:
            # Shortest first: grow the batch while its longest row still fits the budget.
            window = lengths[order[start : start + batch_tokens]]
            fits = (np.arange(1, len(window) + 1) * window) <= batch_tokens
            size = max(1, int(fits.argmin()) if not fits.all() else len(window))
        cuts.append(order[start : start + size])
        start += size
    return [cuts[i] for i in rng.permutation(len(cuts))]


def make_chunk(
    rows: list[Row],
    tokenizer: Tokenizer,
    max_length: int,
    batch: int,
    batch_tokens: int | None,
    rng: np.random.Generator,
    prompt: str = "",
) -> Chunk:
    """Tokenize and cut one chunk; `prompt` is put before every text."""

    def ids(texts: Sequence[str]) -> list[list[int]] | None:
        return tokenizer.encode(with_prompt(prompt, texts), max_length) if any(texts) else None

    source_ids = tokenizer.encode(with_prompt(prompt, [row.source for row in rows]), max_length)
    target_ids = ids([row.target for row in rows])
    if target_ids is not None:
        # English-only text among pairs counts as its own translation.
        target_ids = [
            own if row.target else source for own, source, row in zip(target_ids, source_ids, rows, strict=True)
        ]
    third_ids = ids([row.third for row in rows])
    lengths = np.array([len(row) for row in source_ids])
    for side in (target_ids, third_ids):
        if side is not None:
            lengths = np.maximum(lengths, [len(row) for row in side])
    cuts = cut(lengths, batch, batch_tokens, rng)
    return Chunk(rows, source_ids, target_ids, third_ids, cuts, tokenizer.pad_id)


@dataclass
class Position:
    """Where in the text a stage is: optimizer step, epoch, chunk of the epoch, batch of the chunk."""

    step: int = 0
    epoch: int = 0
    chunk: int = 0
    batch: int = 0

    def as_list(self) -> list[int]:
        """The four numbers, for a checkpoint."""
        return [self.step, self.epoch, self.chunk, self.batch]


@dataclass
class BatchFeed:
    """The batches of a stage from `position` on, with guide outputs.

    `guide` is None where the task needs no guide vectors; `guide_targets` says that it reads the target side too.
    `prompt` is the student's default prompt: it is trained on what its `encode` will see.
    """

    stage: Stage
    stream: TextStream
    tokenizer: Tokenizer
    seed: int
    guide: CachedTeacher | None = None
    guide_targets: bool = False
    prompt: str = ""
    position: Position = field(default_factory=Position)

    def chunk(self, rows: list[Row], epoch: int, number: int) -> Chunk:
        """The tokenized chunk `number` of an epoch; how it is cut follows from the seed."""
        rng = np.random.default_rng([self.seed, epoch, number, 2])
        stage = self.stage
        return make_chunk(rows, self.tokenizer, stage.max_length, stage.batch, stage.batch_tokens, rng, self.prompt)

    def _guided(self, chunk: Chunk, start: int) -> Iterator[Batch]:
        """Batches of a chunk from `start` on; guide outputs are computed for a window of batches at a time.

        Windows begin at fixed places: a resumed run asks the guide for the same texts together.
        """
        for first in range(start - start % WINDOW, len(chunk.cuts), WINDOW):
            cuts = chunk.cuts[first : first + WINDOW]
            source: list[TeacherOutput | None] = [None] * len(cuts)
            target = source
            if self.guide is not None:
                picked = [chunk.rows[i] for i in np.concatenate(cuts)]
                texts = [row.source for row in picked]
                texts += [row.target or row.source for row in picked if self.guide_targets]
                output = self.guide.outputs(texts, shared=True)
                ends = np.cumsum([0, *(len(cut) for cut in cuts)]).tolist()
                source = [output.rows(a, b) for a, b in pairwise(ends)]
                if self.guide_targets:
                    target = [output.rows(a + len(picked), b + len(picked)) for a, b in pairwise(ends)]
            for at in range(max(first, start), first + len(cuts)):
                yield chunk.batch(at, source[at - first], target[at - first])

    def batches(self) -> Iterator[Batch]:
        """Batches without end; the position moves past each batch before it is yielded."""
        while True:
            start = self.position.chunk
            found = False
            for number, rows in enumerate(self.stream.chunks(self.position.epoch, CHUNK_PAIRS, skip=start), start):
                found = True
                chunk = self.chunk(rows, self.position.epoch, number)
                self.position.chunk = number
                for at, batch in enumerate(self._guided(chunk, self.position.batch), self.position.batch):
                    self.position.batch = at + 1
                    yield batch
                self.position.batch = 0
                self.position.chunk = number + 1
            if not found and start == 0:
                raise MsdcError(f"stage {self.stage.name}: the corpora gave no batch")
            self.position = Position(self.position.step, self.position.epoch + 1, 0, 0)
