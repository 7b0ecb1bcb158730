"""Chunks of rows to batches of near-equal length, with the teacher's outputs.

Shapes: B pairs, N negatives per pair, T tokens, D sentence width of the teacher, L layers, H hidden of the teacher.
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
from msdc.distill.objectives.shared import unit_rows
from msdc.distill.recipe import Stage
from msdc.distill.teacher import CachedTeacher, TeacherOutput
from msdc.encoders.folder import with_prompt
from msdc.errors import InputError, MsdcError
from msdc.text.tokenizer import Tokenizer, pad

CHUNK_PAIRS = 16_384
# Batches whose teacher outputs are computed together: enough to pack by length, few enough to start quickly.
WINDOW = 16
MINED_TOGETHER = 1024  # rows whose similarities with all targets of a chunk are computed at once


@dataclass
class Batch:
    """The input of one pass. A side is (ids [B, T], mask [B, T]), negatives [B, N, T]; missing parts are None.

    `whole` is the number of pairs in the batch of all processes, if the rows are a process's share of them; `seed` that
    of what a task draws for the pairs of all processes.
    """

    rows: list[Row]
    source: tuple[Tensor, Tensor]
    target: tuple[Tensor, Tensor] | None
    negatives: tuple[Tensor, Tensor] | None = None
    teacher_source_BD: Tensor | None = None
    teacher_target_BD: Tensor | None = None
    teacher_states_BLH: Tensor | None = None
    teacher_negatives_BND: Tensor | None = None
    whole: int | None = None
    seed: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def size(self) -> int:
        """Pairs of the batch of all processes."""
        return len(self.rows) if self.whole is None else self.whole

    @property
    def languages(self) -> list[str]:
        """The language of each pair."""
        return [row.language for row in self.rows]


def cut(lengths: np.ndarray, batch: int, batch_tokens: int | None, rng: np.random.Generator) -> list[np.ndarray]:
    """Indices cut into batches of near-equal length, in random order.

    With `batch_tokens` a batch has as many pairs as keep (pairs x longest side) within it, at least one; without,
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


class Chunk:
    """A tokenized chunk, cut into batches (see `cut`); `prompt` is put before every text."""

    def __init__(
        self,
        rows: list[Row],
        tokenizer: Tokenizer,
        max_length: int,
        batch: int,
        batch_tokens: int | None,
        rng: np.random.Generator,
        prompt: str = "",
    ) -> None:
        self.rows, self._pad_id = rows, tokenizer.pad_id

        def ids(texts: Sequence[str]) -> list[list[int]] | None:
            return tokenizer.encode(with_prompt(prompt, texts), max_length) if any(texts) else None

        self.source_ids = tokenizer.encode(with_prompt(prompt, [row.source for row in rows]), max_length)
        # English-only text among pairs counts as its own translation.
        self.target_ids = ids([row.target or row.source for row in rows]) if any(row.target for row in rows) else None
        counts = {len(row.negatives) for row in rows}
        if 0 in counts:
            counts = {0}  # triples among pairs, in a stage whose objectives read no negatives
        if len(counts) > 1:
            raise InputError(f"rows of one stage have {min(counts)} and {max(counts)} negatives: all must have as many")
        self.each = counts.pop()  # negatives per row
        self.negative_ids = ids([text for row in rows for text in row.negatives if self.each])
        sides = (
            self.source_ids,
            self.target_ids,
            *((self.negative_ids or ())[n :: self.each] for n in range(self.each)),
        )
        lengths = np.max([[len(row) for row in side] for side in sides if side is not None], axis=0)
        self.cuts = cut(lengths, batch, batch_tokens, rng)

    def batch(
        self,
        number: int,
        teacher_source: TeacherOutput | None = None,
        teacher_target: TeacherOutput | None = None,
        teacher_negatives: TeacherOutput | None = None,
    ) -> Batch:
        """Batch `number` as tensors, with the teacher's outputs for its sources, targets and negatives."""
        pick = self.cuts[number]
        shape = (len(pick), self.each, -1)

        def side(ids: list[list[int]] | None) -> tuple[Tensor, Tensor] | None:
            return None if ids is None else pad([ids[i] for i in pick], self._pad_id)

        states = None if teacher_source is None else teacher_source.states_NLH
        negatives = None
        if self.negative_ids is not None:
            places = (np.asarray(pick)[:, None] * self.each + np.arange(self.each)).flatten()
            ids_MT, mask_MT = pad([self.negative_ids[i] for i in places], self._pad_id)
            negatives = ids_MT.view(shape), mask_MT.view(shape)
        return Batch(
            [self.rows[i] for i in pick],
            pad([self.source_ids[i] for i in pick], self._pad_id),
            side(self.target_ids),
            negatives,
            None if teacher_source is None else torch.from_numpy(teacher_source.sentence_ND),
            None if teacher_target is None else torch.from_numpy(teacher_target.sentence_ND),
            None if states is None else torch.from_numpy(states),
            None if teacher_negatives is None else torch.from_numpy(teacher_negatives.sentence_ND).view(shape),
        )


def mined(rows: list[Row], teacher: CachedTeacher, count: int, margin: float = 0.0) -> list[Row]:
    """The rows with `count` negatives each: of all their targets the nearest to the source, by the teacher.

    Targets nearer than the row's own less `margin` are not negatives: by the teacher they are as good. Nor is the
    source itself, or a target of another row with the same source. Rows with fewer than `count` negatives are dropped.

    Raises:
        InputError: all rows are dropped.

    Source: Moreira et al. 2024 (NV-Retriever), mining with a margin below the positive's score.
    """
    targets = list(dict.fromkeys(row.target or row.source for row in rows))
    number = {text: at for at, text in enumerate(targets)}
    known: dict[str, list[int]] = {row.source: [number[row.source]] if row.source in number else [] for row in rows}
    for row in rows:
        known[row.source].append(number[row.target or row.source])
    outputs = teacher.outputs([*(row.source for row in rows), *targets], shared=True)
    vectors = unit_rows(torch.from_numpy(outputs.sentence_ND))
    sources_BD, targets_MD = vectors[: len(rows)], vectors[len(rows) :]
    found = []
    for start in range(0, len(rows), MINED_TOGETHER):
        block = rows[start : start + MINED_TOGETHER]
        scores_BM = sources_BD[start : start + len(block)] @ targets_MD.T
        own_B1 = torch.tensor([[number[row.target or row.source]] for row in block])
        limit_B1 = scores_BM.gather(1, own_B1) - margin
        scores_BM = scores_BM.masked_fill(scores_BM >= limit_B1, -torch.inf)
        for scores_M, row in zip(scores_BM, block, strict=True):
            scores_M[known[row.source]] = -torch.inf
        best, places = scores_BM.topk(min(count, len(targets)), dim=1)
        for row, values, at in zip(block, best.tolist(), places.tolist(), strict=True):
            near = [targets[i] for value, i in zip(values, at, strict=True) if value > -1e30]
            if len(near) == count:
                found.append(row._replace(negatives=tuple(near)))
    if not found:
        raise InputError(
            f"mine: {count}: none of {len(rows)} rows has this many targets that the teacher finds further away"
        )
    return found


@dataclass
class Position:
    """Where in the text a stage is: optimizer step, epoch, chunk of the epoch, batch of the chunk."""

    step: int = 0
    epoch: int = 0
    chunk: int = 0
    batch: int = 0


@dataclass
class BatchFeed:
    """The batches of a stage from `position` on, with teacher outputs.

    `teacher` is None if the task needs no teacher vectors; `teacher_targets`: it reads targets and negatives too.
    `prompt` is the student's default prompt, which `encode` adds to texts.
    """

    stage: Stage
    stream: TextStream
    tokenizer: Tokenizer
    seed: int
    teacher: CachedTeacher | None = None
    teacher_targets: bool = False
    prompt: str = ""
    position: Position = field(default_factory=Position)

    def chunk(self, rows: list[Row], epoch: int, number: int) -> Chunk:
        """The tokenized chunk `number` of an epoch, cut by the seed."""
        rng = np.random.default_rng([self.seed, epoch, number, 2])
        stage = self.stage
        return Chunk(rows, self.tokenizer, stage.max_length, stage.batch, stage.batch_tokens, rng, self.prompt)

    def _with_outputs(self, chunk: Chunk, start: int) -> Iterator[Batch]:
        """Batches of a chunk from `start` on; teacher outputs are computed for a window of batches at a time.

        Windows begin at fixed positions: a resumed run encodes the same texts together.
        """
        for first in range(start - start % WINDOW, len(chunk.cuts), WINDOW):
            cuts = chunk.cuts[first : first + WINDOW]
            source: list[TeacherOutput | None] = [None] * len(cuts)
            target = negatives = source
            if self.teacher is not None:
                picked = [chunk.rows[i] for i in np.concatenate(cuts)]
                texts = [row.source for row in picked]
                texts += [row.target or row.source for row in picked if self.teacher_targets]
                texts += [text for row in picked for text in row.negatives if self.teacher_targets]
                output = self.teacher.outputs(texts, shared=True)
                count, each = len(picked), chunk.each
                ends = np.cumsum([0, *(len(cut) for cut in cuts)]).tolist()
                source = [output.rows(a, b) for a, b in pairwise(ends)]
                if self.teacher_targets:
                    target = [output.rows(a + count, b + count) for a, b in pairwise(ends)]
                    if each:
                        negatives = [output.rows(2 * count + a * each, 2 * count + b * each) for a, b in pairwise(ends)]
            for at in range(max(first, start), first + len(cuts)):
                yield chunk.batch(at, source[at - first], target[at - first], negatives[at - first])

    def batches(self) -> Iterator[Batch]:
        """Batches without end; the position moves past each batch before it is yielded."""
        while True:
            start = self.position.chunk
            found = False
            for number, rows in enumerate(self.stream.chunks(self.position.epoch, CHUNK_PAIRS, skip=start), start):
                found = True
                if self.stage.mine is not None and self.teacher is not None:
                    rows = mined(rows, self.teacher, self.stage.mine, self.stage.mine_margin)
                chunk = self.chunk(rows, self.position.epoch, number)
                self.position.chunk = number
                for at, batch in enumerate(self._with_outputs(chunk, self.position.batch), self.position.batch):
                    self.position.batch = at + 1
                    yield batch
                self.position.batch = 0
                self.position.chunk = number + 1
            if not found and start == 0:
                raise MsdcError(f"stage {self.stage.name}: the corpora have no batch")
            self.position = Position(self.position.step, self.position.epoch + 1, 0, 0)
