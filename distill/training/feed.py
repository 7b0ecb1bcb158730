"""The batches of a process from a position on: token ids from the tables, the teacher's vectors from its store.

A thread prepares batches in advance. Every process derives the same plan of a chunk from the lengths of its rows, and
reads only its own rows. Vectors that the store does not have are computed when they are needed, a window of batches at
a time, by the process that trains on them.

Shapes: B pairs, N negatives per pair, S sides (source, target, negatives), T tokens, D sentence width of the teacher,
L layers, H hidden of the teacher, W values of a stored row (D + L x H).
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, groupby
from threading import Event, Thread

import numpy as np
import torch
from torch import Tensor

from msdc.distill.data import Row
from msdc.distill.data.batch import Batch
from msdc.distill.data.order import cut
from msdc.distill.data.tables import Table
from msdc.distill.data.text import StageText
from msdc.distill.recipe import Stage
from msdc.distill.teacher import CachedTeacher, mined
from msdc.encoders.folder import with_prompt
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
_Made = tuple[Position, Batch, "np.ndarray | None"]


@dataclass
class _Part:
    """Rows of a chunk that are stored together: the text of row r and side s has ids[start[r, s]:][:length[r, s]]."""

    ids: np.ndarray
    start_RS: np.ndarray
    length_RS: np.ndarray
    keys_RS: np.ndarray
    language: np.ndarray
    domain: np.ndarray
    labels: np.ndarray | None
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


def _read_some(table: Table, rows: np.ndarray, some: np.ndarray) -> list[Row]:
    return table.read(rows[some])


@dataclass
class BatchFeed:
    """The batches of a stage from `position` on, with teacher outputs.

    `teacher` is None if the task needs no teacher vectors; `teacher_targets`: it reads targets and negatives too.
    `prompt` is the student's default prompt, which `encode` adds to texts. Process `rank` of `world` has rows rank,
    rank + world, ... of each batch.
    """

    stage: Stage
    text: StageText
    tokenizer: Tokenizer
    seed: int
    teacher: CachedTeacher | None = None
    teacher_targets: bool = False
    prompt: str = ""
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
        self.each = counts.pop() if stage.mine is None else stage.mine  # negatives per row
        # Text without translations counts as its own translation if other rows have one.
        self.paired = any(table.sides > 1 for table in tables) or bool(self.each)
        self.sides = 1 + self.paired + self.each
        self._tokens = [table.tokens(self.tokenizer, stage.max_length, self.prompt) for table in tables]
        if sum(map(len, self.text.kept)) == 0:
            raise MsdcError(f"stage {stage.name}: the corpora have no batch")

    # --- a chunk --------------------------------------------------------------------------------------------------

    def _parts(self, epoch: int, number: int) -> list[_Part]:
        """The rows of a chunk, table by table."""
        found = []
        for at, places in self.text.order.chunk(epoch, number).items():
            table, (ids, ends) = self.text.tables[at], self._tokens[at]
            rows = self.text.kept[at][places].astype(np.int64)
            sides = np.minimum(np.arange(1 + self.paired + (0 if self.stage.mine else self.each)), table.sides - 1)
            texts_RS = rows[:, None] * table.sides + sides
            start_RS = ends[texts_RS]
            found.append(
                _Part(
                    ids, start_RS, ends[texts_RS + 1] - start_RS, table.keys[rows][:, sides],
                    np.full(len(rows), table.source.language, object), np.full(len(rows), table.source.domain),
                    table.labels[rows] if len(table.labels) else None,
                    partial(_read_some, table, rows),
                )
            )  # fmt: skip
        return found

    def _mined(self, parts: Sequence[_Part]) -> list[_Part]:
        """The rows of a chunk with negatives that the teacher finds in it, tokenized here."""
        stage = self.stage
        assert stage.mine is not None and self.teacher is not None
        rows = list(chain.from_iterable(part.read(np.arange(len(part.start_RS))) for part in parts))
        rows = mined(rows, self.teacher, stage.mine, stage.mine_margin)
        texts = [text for row in rows for text in (row.source, row.target or row.source, *row.negatives)]
        ids = self.tokenizer.encode(with_prompt(self.prompt, texts), stage.max_length)
        length = np.fromiter(map(len, ids), np.int64, len(ids))
        shape = (len(rows), self.sides)
        labels = None if rows[0].label is None else np.array([row.label for row in rows], np.float32)
        return [
            _Part(
                np.fromiter(chain.from_iterable(ids), np.int64, int(length.sum())),
                (np.cumsum(length) - length).reshape(shape), length.reshape(shape),
                np.fromiter(map(text_key, texts), np.uint64, len(texts)).reshape(shape),
                np.array([row.language for row in rows], object), np.array([row.domain for row in rows]), labels,
                lambda some: [rows[at] for at in some],
            )
        ]  # fmt: skip

    def cuts(self, parts: Sequence[_Part], epoch: int, number: int) -> list[np.ndarray]:
        """The batches of a chunk, as rows of its parts in turn: from the lengths alone, equal in all processes."""
        lengths = np.concatenate([part.length_RS for part in parts]).max(1)
        rng = np.random.default_rng([self.seed, epoch, number, 2])
        return cut(lengths, self.stage.batch, self.stage.batch_tokens, rng)

    def epoch_batches(self) -> float:
        """Batches of an epoch; of a long one estimated from chunks that are spread over it."""
        chunks = self.text.order.chunks
        if self.stage.batch_tokens is None:
            return self.text.order.epoch_rows / self.stage.batch
        some = range(0, chunks, -(-chunks // PLANNED))
        rows = batches = 0
        for number in some:
            parts = self._parts(0, number)
            batches += len(self.cuts(parts, 0, number))
            rows += sum(len(part.start_RS) for part in parts)
        return batches * self.text.order.epoch_rows / max(1, rows) if len(some) < chunks else batches

    # --- batches ------------------------------------------------------------------------------------------------------

    def _made(self, epoch: int, chunk: int, batch: int) -> Generator[_Made, None, None]:
        """Batches without end, each with the position after it and the stored rows [B, S, W] of the teacher."""
        while True:
            for number in range(chunk, self.text.order.chunks):
                parts = self._parts(epoch, number)
                if self.stage.mine is not None and self.teacher is not None:
                    parts = self._mined(parts)
                cuts = self.cuts(parts, epoch, number)
                for first in range(batch - batch % READ, len(cuts), READ):
                    start = max(first, batch)
                    some = self._batches(parts, cuts[start : first + READ])
                    for at, (one, rows_BSW) in enumerate(some, start + 1):
                        yield Position(0, epoch, number, at), one, rows_BSW
                batch = 0
            epoch, chunk = epoch + 1, 0

    def _batches(self, parts: Sequence[_Part], cuts: list[np.ndarray]) -> Iterator[tuple[Batch, np.ndarray | None]]:
        """Some batches of a chunk: their rows of this process are read together."""
        picks = [one[self.rank :: self.world] for one in cuts]
        ends = np.cumsum([len(part.start_RS) for part in parts])
        mine = np.sort(np.concatenate([np.zeros(0, np.int64), *picks]))
        of = np.searchsorted(ends, mine, side="right")
        own = [mine[of == at] - (ends[at] - len(part.start_RS)) for at, part in enumerate(parts)]
        length_RS = np.concatenate([part.length_RS[some] for part, some in zip(parts, own, strict=True)])
        keys_RS = np.concatenate([part.keys_RS[some] for part, some in zip(parts, own, strict=True)])
        ids = np.concatenate([
            _flat(part.ids, part.start_RS[some].ravel(), part.length_RS[some].ravel())
            for part, some in zip(parts, own, strict=True)
        ])  # fmt: skip
        flat = length_RS.ravel()
        start_RS = (np.cumsum(flat) - flat).reshape(length_RS.shape)
        language, domain = (
            np.concatenate([getattr(part, name)[some] for part, some in zip(parts, own, strict=True)])
            for name in ("language", "domain")
        )
        labels = None
        if all(part.labels is not None for part in parts):
            labels = np.concatenate([part.labels[some] for part, some in zip(parts, own, strict=True)])  # type: ignore[index]
        known = None
        if self.teacher is not None:
            asked = keys_RS if self.teacher_targets else keys_RS[:, :1]
            known = self.teacher.stored(asked.ravel()).reshape(*asked.shape, -1)
        for whole, pick in zip(cuts, picks, strict=True):
            at = np.searchsorted(mine, pick)
            pads = [
                _padded(ids, start_RS[at, s], length_RS[at, s], self.tokenizer.pad_id) for s in range(1 + self.paired)
            ]
            negatives = None
            if self.each:
                some = start_RS[at, 2:].ravel(), length_RS[at, 2:].ravel()
                negative_ids, negative_mask = _padded(ids, *some, self.tokenizer.pad_id)
                width = negative_ids.shape[1]
                negatives = negative_ids.view(len(at), self.each, width), negative_mask.view(len(at), self.each, width)
            one = Batch(
                partial(self._read, parts, ends, pick), pads[0], pads[1] if self.paired else None, negatives,
                languages=language[at].tolist(), domain_B=torch.from_numpy(domain[at]),
                label_B=None if labels is None else torch.from_numpy(labels[at]),
                texts_BS=torch.from_numpy(keys_RS[at].view(np.int64)), whole=len(whole),
            )  # fmt: skip
            yield one, None if known is None else known[at]

    @staticmethod
    def _read(parts: Sequence[_Part], ends: np.ndarray, pick: np.ndarray) -> list[Row]:
        """Rows of a chunk."""
        of = np.searchsorted(ends, pick, side="right")
        return [
            parts[at].read(np.array([row - (ends[at] - len(parts[at].start_RS))]))[0]
            for at, row in zip(of.tolist(), pick.tolist(), strict=True)
        ]

    def batches(self) -> Generator[Batch, None, None]:
        """Batches without end; the position moves past each batch before it is yielded."""
        made = self._made(self.position.epoch, self.position.chunk, self.position.batch)
        # Mining needs the model and the other processes: it runs here, not in the thread.
        with closing(made if self.stage.mine is not None else ahead(made, AHEAD)) as source:
            # Windows begin at fixed positions: a resumed run computes the same texts together.
            windows = groupby(source, lambda one: (one[0].epoch, one[0].chunk, (one[0].batch - 1) // WINDOW))
            for _, window in windows:
                for position, batch in self._window(window):
                    position.step = self.position.step
                    self.position = position
                    yield batch

    def _window(self, window: Iterator[_Made]) -> Iterator[tuple[Position, Batch]]:
        """The batches of a window with all vectors of the teacher."""
        waiting: list[_Made] = []
        for one in window:
            missing = one[2] is not None and np.isnan(one[2][:, :, 0]).any()
            if not missing and not waiting:
                yield one[0], self._with_vectors(one[1], one[2])
            else:
                waiting.append(one)
        if waiting:
            self._compute([(batch, rows_BSW) for _, batch, rows_BSW in waiting if rows_BSW is not None])
            for position, batch, rows_BSW in waiting:
                yield position, self._with_vectors(batch, rows_BSW)

    def _compute(self, window: list[tuple[Batch, np.ndarray]]) -> None:
        """Fill in the rows that the store does not have."""
        assert self.teacher is not None
        places, texts = [], []
        for batch, rows_BSW in window:
            wanted = np.argwhere(np.isnan(rows_BSW[:, :, 0]))
            if len(wanted):
                rows = batch.read()
                for row, side in wanted.tolist():
                    one = rows[row]
                    texts.append((one.source, one.target or one.source, *one.negatives)[side])
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
                if self.each:
                    batch.teacher_negatives_BND = sentence_BSD[:, 2:]
        return batch


def ahead(made: Generator[_Made, None, None], depth: int) -> Generator[_Made, None, None]:
    """The same items, made in a thread, which ends with this generator: at exit no thread may be in library code."""
    waiting: queue.Queue = queue.Queue(depth)
    ended = Event()

    def put(one: object) -> bool:
        while not ended.is_set():
            with suppress(queue.Full):
                waiting.put(one, timeout=0.2)
                return True
        return False

    def work() -> None:
        try:
            for one in made:
                if not put((one, None)):
                    return
            put((None, StopIteration()))
        except BaseException as error:
            put((None, error))

    thread = Thread(target=work, name="feed", daemon=True)
    thread.start()
    try:
        while True:
            one, error = waiting.get()
            if isinstance(error, StopIteration):
                return
            if error is not None:
                raise error
            yield one
    finally:
        ended.set()
        thread.join()
