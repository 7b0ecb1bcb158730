"""The batches of a process from a position on: token ids from the tables, the teacher's vectors from its store.

A thread prepares batches in advance. Every process derives the same plan of a chunk from the lengths of its rows, and
reads only its own rows. Vectors that the store does not have are computed when they are needed, a window of batches at
a time, by the process that trains on them.

Shapes: B pairs, N negatives per pair, S sides (source, target, negatives), T tokens, D sentence width of the teacher,
L layers, H hidden of the teacher, W values of a stored row (D + L x H).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby

import numpy as np
import torch
from torch import Tensor

from msdc.distill.data import Batch, Row
from msdc.distill.data.tables import NO_PROMPTS
from msdc.distill.data.text import StageText, cut
from msdc.distill.recipe import Stage
from msdc.distill.teacher import Teacher, mined
from msdc.errors import InputError, MsdcError
from msdc.text.tokenizer import Tokenizer, text_key

# Batches whose missing vectors are computed together: enough to pack by length, few enough to start quickly.
WINDOW = 16
READ = 4 * WINDOW  # batches whose rows and vectors are read together
AHEAD = 4  # batches that wait for the trainer
PLANNED = 64  # chunks whose batches are counted; an epoch of more is estimated from these


@dataclass
class Position:
    """Where in the text a stage is: optimizer step, epoch, chunk of the epoch, batch of the chunk."""

    step: int = 0
    epoch: int = 0
    chunk: int = 0
    batch: int = 0


# The position after a batch, the batch, and the stored rows [B, S, W] of the teacher
_PreparedBatch = tuple[Position, Batch, "np.ndarray | None"]


@dataclass
class _Chunk:
    """The rows R of a chunk, table by table; `read` reads some of them.

    The text of row r and side s has `ids[table_R[r]][start_RS[r, s] :][: length_RS[r, s]]`, `keys_RS` without and
    `stored_RS`, in the teacher's store, with its prompt.
    """

    ids: list[np.ndarray]
    table_R: np.ndarray
    start_RS: np.ndarray
    length_RS: np.ndarray
    keys_RS: np.ndarray
    stored_RS: np.ndarray
    language_R: np.ndarray
    domain_R: np.ndarray
    labels_R: np.ndarray | None
    read: Callable[[np.ndarray], list[Row]]


def _padded(ids: np.ndarray, start: np.ndarray, length: np.ndarray, pad_id: int) -> tuple[Tensor, Tensor]:
    """ids_BT (int64) and mask_BT (bool) of texts in `ids`."""
    mask_BT = np.arange(length.max(initial=0)) < length[:, None]
    ids_BT = np.full(mask_BT.shape, pad_id, np.int64)
    ids_BT[mask_BT] = _flat(ids, start, length)
    return torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)


def _flat(ids: np.ndarray, start: np.ndarray, length: np.ndarray) -> np.ndarray:
    """The ids of some texts, one after the other."""
    return ids[np.repeat(start - np.cumsum(length) + length, length) + np.arange(length.sum())]


@dataclass
class BatchFeed:
    """The batches of a stage from `position` on, with teacher outputs.

    `teacher` is None if the task needs no teacher vectors; `teacher_targets`: it reads targets and negatives too.
    `prompts` are before the student's sources, and before its targets and negatives; the teacher's are in the stage.
    Process `rank` of `world` has rows rank, rank + world, ... of each batch.
    """

    stage: Stage
    text: StageText
    tokenizer: Tokenizer
    seed: int
    teacher: Teacher | None = None
    teacher_targets: bool = False
    prompts: tuple[str, str] = NO_PROMPTS
    rank: int = 0
    world: int = 1
    position: Position = field(default_factory=Position)

    def __post_init__(self) -> None:
        tables, stage = self.text.tables, self.stage
        counts = {max(0, table.sides - 2) for table in tables}
        if 0 in counts:
            counts = {0}  # triples among pairs, in a stage whose objectives read no negatives
        if len(counts) > 1:
            raise InputError(f"rows of one stage have {min(counts)} and {max(counts)} negatives: all must have as many")
        self.negatives_per_row = counts.pop() if stage.mined_negatives is None else stage.mined_negatives
        # Text without translations counts as its own translation if other rows have one.
        self.paired = any(table.sides > 1 for table in tables) or bool(self.negatives_per_row)
        self.sides = 1 + self.paired + self.negatives_per_row
        self._tokens = [table.tokens(self.tokenizer, stage.max_length, self.prompts) for table in tables]
        if sum(map(len, self.text.training_rows)) == 0:
            raise MsdcError(f"stage {stage.name}: the corpora have no batch")

    def truncated(self) -> tuple[int, int]:
        """How many texts of the stage's corpora are longer than the stage's `max_length`, and of how many."""
        tables, length = self.text.tables, self.stage.max_length
        cut = sum(table.truncated(self.tokenizer, length, self.prompts) for table in tables)
        return cut, sum(table.rows * table.sides for table in tables)

    # --- a chunk --------------------------------------------------------------------------------------------------

    def _chunk(self, epoch: int, number: int) -> _Chunk:
        """The rows of a chunk with their ids, table by table."""
        drawn = self.text.order.chunk(epoch, number)
        tables, tokens = [self.text.tables[table] for table in drawn], [self._tokens[table] for table in drawn]
        rows = [self.text.training_rows[table][places].astype(np.int64) for table, places in drawn.items()]
        side_numbers = np.arange(1 + self.paired + (0 if self.stage.mined_negatives else self.negatives_per_row))
        starts, lengths, keys, stored = [], [], [], []
        prompts = self.stage.teacher_prompts if self.teacher is not None else None
        for table, (_, ends), rows_of_table in zip(tables, tokens, rows, strict=True):
            sides = np.minimum(side_numbers, table.sides - 1)
            texts_RS = rows_of_table[:, None] * table.sides + sides
            starts.append(ends[texts_RS])
            lengths.append(ends[texts_RS + 1] - ends[texts_RS])
            keys.append(table.keys[rows_of_table][:, sides])
            stored.append(keys[-1] if prompts is None else table.prompted_keys(prompts)[rows_of_table][:, sides])
        counts, row_R = list(map(len, rows)), np.concatenate(rows)
        table_R = np.repeat(np.arange(len(tables)), counts)
        labels_R = None
        if all(len(table.labels) for table in tables):
            labels_R = np.concatenate([table.labels[picked] for table, picked in zip(tables, rows, strict=True)])

        def read(pick: np.ndarray) -> list[Row]:
            read_rows: dict[int, Row] = {}
            for table_number in np.unique(table_R[pick]):
                here = pick[table_R[pick] == table_number]
                read_rows |= zip(here.tolist(), tables[table_number].read(row_R[here]), strict=True)
            return [read_rows[number] for number in pick.tolist()]

        return _Chunk(
            ids=[ids for ids, _ in tokens],
            table_R=table_R,
            start_RS=np.concatenate(starts),
            length_RS=np.concatenate(lengths),
            keys_RS=np.concatenate(keys),
            stored_RS=np.concatenate(stored),
            language_R=np.repeat(np.array([table.source.language for table in tables], object), counts),
            domain_R=np.repeat([table.source.domain for table in tables], counts),
            labels_R=labels_R,
            read=read,
        )

    def _mined(self, chunk: _Chunk) -> _Chunk:
        """The rows of a chunk with negatives that the teacher finds in it, tokenized here."""
        stage = self.stage
        assert stage.mined_negatives is not None and self.teacher is not None
        every = chunk.read(np.arange(len(chunk.table_R)))
        rows = mined(every, self.teacher, stage.mined_negatives, stage.mine_margin, stage.teacher_prompts or NO_PROMPTS)
        texts = [text for row in rows for text in (row.source, row.target or row.source, *row.negatives)]
        prompted, asked = (self._prompted(texts, pair) for pair in (self.prompts, stage.teacher_prompts or NO_PROMPTS))
        ids = self.tokenizer.encode(prompted, stage.max_length)
        length = np.fromiter(map(len, ids), np.int64, len(ids))
        shape = (len(rows), self.sides)
        return _Chunk(
            ids=[np.fromiter(chain.from_iterable(ids), np.int64, int(length.sum()))],
            table_R=np.zeros(len(rows), np.int64),
            start_RS=(np.cumsum(length) - length).reshape(shape),
            length_RS=length.reshape(shape),
            keys_RS=np.fromiter(map(text_key, texts), np.uint64, len(texts)).reshape(shape),
            stored_RS=np.fromiter(map(text_key, asked), np.uint64, len(texts)).reshape(shape),
            language_R=np.array([row.language for row in rows], object),
            domain_R=np.array([row.domain for row in rows]),
            labels_R=None if rows[0].label is None else np.array([row.label for row in rows], np.float32),
            read=lambda pick: [rows[index] for index in pick],
        )

    def _prompted(self, texts: Sequence[str], prompts: tuple[str, str]) -> list[str]:
        """Texts, row after row and side after side, with their prompts."""
        return [prompts[min(number % self.sides, 1)] + text for number, text in enumerate(texts)]

    def cuts(self, chunk: _Chunk, epoch: int, number: int) -> list[np.ndarray]:
        """The batches of a chunk, as its rows: from the lengths alone, equal in all processes."""
        rng = np.random.default_rng([self.seed, epoch, number, 2])
        return cut(chunk.length_RS.max(1), self.stage.batch, self.stage.batch_tokens, rng)

    def epoch_batches(self) -> float:
        """Batches of an epoch; of a long one estimated from chunks that are spread over it."""
        chunks = self.text.order.chunks
        if self.stage.batch_tokens is None:
            return self.text.order.epoch_rows / self.stage.batch
        counted = range(0, chunks, -(-chunks // PLANNED))
        rows = batches = 0
        for number in counted:
            chunk = self._chunk(0, number)
            batches += len(self.cuts(chunk, 0, number))
            rows += len(chunk.table_R)
        return batches * self.text.order.epoch_rows / max(1, rows) if len(counted) < chunks else batches

    # --- batches ------------------------------------------------------------------------------------------------------

    def _prepared_batches(self, epoch: int, chunk: int, batch: int) -> Generator[_PreparedBatch, None, None]:
        """Batches without end, each with the position after it and the stored rows [B, S, W] of the teacher."""
        while True:
            for number in range(chunk, self.text.order.chunks):
                rows = self._chunk(epoch, number)
                if self.stage.mined_negatives is not None and self.teacher is not None:
                    rows = self._mined(rows)
                cuts = self.cuts(rows, epoch, number)
                for first in range(batch - batch % READ, len(cuts), READ):
                    start = max(first, batch)
                    batches = self._batches(rows, cuts[start : first + READ])
                    for position, (prepared, rows_BSW) in enumerate(batches, start + 1):
                        yield Position(0, epoch, number, position), prepared, rows_BSW
                batch = 0
            epoch, chunk = epoch + 1, 0

    def _batches(self, chunk: _Chunk, cuts: list[np.ndarray]) -> Iterator[tuple[Batch, np.ndarray | None]]:
        """Some batches of a chunk: their rows of this process are read together."""
        picks = [batch[self.rank :: self.world] for batch in cuts]
        local = np.sort(np.concatenate([np.zeros(0, np.int64), *picks]))
        length_RS, keys_RS, table_R = chunk.length_RS[local], chunk.keys_RS[local], chunk.table_R[local]
        stored_RS = chunk.stored_RS[local]
        ids = np.concatenate([
            _flat(ids, chunk.start_RS[local[table_R == number]].ravel(), length_RS[table_R == number].ravel())
            for number, ids in enumerate(chunk.ids)
        ])  # fmt: skip
        flat = length_RS.ravel()
        start_RS = (np.cumsum(flat) - flat).reshape(length_RS.shape)
        stored_rows = None
        if self.teacher is not None:
            asked = stored_RS if self.teacher_targets else stored_RS[:, :1]
            stored_rows = self.teacher.stored(asked.ravel()).reshape(*asked.shape, -1)
        for cut_rows, pick in zip(cuts, picks, strict=True):
            positions = np.searchsorted(local, pick)
            pads = [
                _padded(ids, start_RS[positions, s], length_RS[positions, s], self.tokenizer.pad_id)
                for s in range(1 + self.paired)
            ]
            negatives = None
            if self.negatives_per_row:
                negative_spans = start_RS[positions, 2:].ravel(), length_RS[positions, 2:].ravel()
                negative_ids, negative_mask = _padded(ids, *negative_spans, self.tokenizer.pad_id)
                shape = len(positions), self.negatives_per_row, negative_ids.shape[1]
                negatives = negative_ids.view(shape), negative_mask.view(shape)
            batch = Batch(
                partial(chunk.read, pick), pads[0], pads[1] if self.paired else None, negatives,
                languages=chunk.language_R[pick].tolist(), domain_B=torch.from_numpy(chunk.domain_R[pick]),
                label_B=None if chunk.labels_R is None else torch.from_numpy(chunk.labels_R[pick]),
                texts_BS=torch.from_numpy(keys_RS[positions].view(np.int64)), global_size=len(cut_rows),
            )  # fmt: skip
            yield batch, None if stored_rows is None else stored_rows[positions]

    def batches(self) -> Generator[Batch, None, None]:
        """Batches without end; the position moves past each batch before it is yielded."""
        prepared = self._prepared_batches(self.position.epoch, self.position.chunk, self.position.batch)
        # Mining needs the model and the other processes: it runs here, not in the thread.
        with closing(prepared if self.stage.mined_negatives is not None else ahead(prepared, AHEAD)) as source:
            # Windows begin at fixed positions: a resumed run computes the same texts together.
            windows = groupby(source, lambda item: (item[0].epoch, item[0].chunk, (item[0].batch - 1) // WINDOW))
            for _, window in windows:
                for position, batch in self._window(window):
                    position.step = self.position.step
                    self.position = position
                    yield batch

    def _window(self, window: Iterator[_PreparedBatch]) -> Iterator[tuple[Position, Batch]]:
        """The batches of a window with all vectors of the teacher."""
        waiting: list[_PreparedBatch] = []
        for prepared in window:
            missing = prepared[2] is not None and np.isnan(prepared[2][:, :, 0]).any()
            if not missing and not waiting:
                yield prepared[0], self._with_vectors(prepared[1], prepared[2])
            else:
                waiting.append(prepared)
        if waiting:
            self._compute([(batch, rows_BSW) for _, batch, rows_BSW in waiting if rows_BSW is not None])
            for position, batch, rows_BSW in waiting:
                yield position, self._with_vectors(batch, rows_BSW)

    def _compute(self, window: list[tuple[Batch, np.ndarray]]) -> None:
        """Fill in the rows that the store does not have."""
        assert self.teacher is not None
        places, texts, prompts = [], [], self.stage.teacher_prompts or NO_PROMPTS
        for batch, rows_BSW in window:
            absent = np.argwhere(np.isnan(rows_BSW[:, :, 0]))
            if len(absent):
                rows = batch.read()
                for row, side in absent.tolist():
                    row_texts = rows[row]
                    text = (row_texts.source, row_texts.target or row_texts.source, *row_texts.negatives)[side]
                    texts.append(prompts[min(side, 1)] + text)
                    places.append((rows_BSW, row, side))
        for (rows_BSW, row, side), value in zip(places, self.teacher.rows(texts), strict=True):
            rows_BSW[row, side] = value

    def _with_vectors(self, batch: Batch, rows_BSW: np.ndarray | None) -> Batch:
        """A batch with the teacher's outputs."""
        if rows_BSW is not None and self.teacher is not None:
            width, layers = self.teacher.width, len(self.teacher.layers)
            sentence_BSD = torch.from_numpy(rows_BSW[:, :, :width])
            batch.teacher_source_BD = sentence_BSD[:, 0]
            if layers:
                batch.teacher_states_BLH = torch.from_numpy(rows_BSW[:, 0, width:]).unflatten(1, (layers, -1))
            if self.teacher_targets:
                batch.teacher_target_BD = sentence_BSD[:, min(1, self.sides - 1)]
                if self.negatives_per_row:
                    batch.teacher_negatives_BND = sentence_BSD[:, 2:]
        return batch


def ahead(prepared: Generator[_PreparedBatch, None, None], depth: int) -> Generator[_PreparedBatch, None, None]:
    """The same items, `depth` of them made in advance by a thread, which ends with this generator."""
    pool = ThreadPoolExecutor(1, "feed")
    try:
        waiting = deque(pool.submit(next, prepared, None) for _ in range(depth))
        while (item := waiting.popleft().result()) is not None:
            waiting.append(pool.submit(next, prepared, None))
            yield item
    finally:
        # The thread is joined: at exit none may be in library code.
        pool.shutdown(cancel_futures=True)
