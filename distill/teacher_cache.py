"""Outputs of a frozen teacher, computed once: a store on disk keyed by text, memory-mapped, checked block by block.

The teacher of a stage is what its recipe calls `guide`: the teacher itself or the assistant. A folder holds the outputs
of one model at one maximum length, one choice of layers and one precision, so that outputs of different models or
settings never mix. Numbers are float16 (relative error 5e-4, far below any training signal): ten million sentence
vectors of 384 numbers take 7.7 GB of disk and no memory.

    vectors.f16    rows of float16, in the order they were computed
    keys.u64       one key per row
    blocks.bin     one record per block of rows: where it is and the hashes of its keys and of its vectors

A record is written last, so that a block is there whole or not at all. Keys are checked when a store is opened, vectors
when a block of them is first used. A damaged block is marked, and its rows are computed again like missing ones.

Shapes: N sentences or rows, D sentence width, L layers, H hidden, W width of a row (D + L x H).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np
import torch

from msdc.compress.student.stock import to_student
from msdc.distill.training import parallel
from msdc.encoders.encoder import BATCH_TOKENS, Encoder
from msdc.encoders.folder import with_prompt
from msdc.errors import InputError
from msdc.files import disk_errors, locked, user_cache
from msdc.progress import track, warn
from msdc.text.tokenizer import pack_by_length, pad, text_key


def default_cache() -> Path:
    """The user's cache folder for guide outputs."""
    return user_cache() / "guides"


@dataclass(frozen=True)
class TeacherOutput:
    """What a guide says of N sentences: vectors float32 [N, D], and states of chosen layers float32 [N, L, H].

    A state is the first token's ([CLS], <s>): guide and student may tokenize a sentence differently. `states_NLH` is
    None where no layer is chosen.
    """

    sentence_ND: np.ndarray
    states_NLH: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.sentence_ND)

    def rows(self, start: int, end: int) -> TeacherOutput:
        """The output for sentences `start` to `end`."""
        states = None if self.states_NLH is None else self.states_NLH[start:end]
        return TeacherOutput(self.sentence_ND[start:end], states)


class CachedTeacher:
    """A frozen encoder whose outputs come from the store where they are known, and are computed and stored otherwise.

    Args:
        encoder: the guide; frozen here. With `layers` its module becomes the equal `Student`.
        cache: folder of all stores.
        max_length: longer texts are truncated to so many tokens.
        precision: `float32` or `bfloat16`, of the forward pass.
        layers: applied layers, from 1, whose states are part of the output.
    """

    def __init__(
        self,
        encoder: Encoder,
        cache: Path,
        max_length: int,
        precision: str = "float32",
        layers: tuple[int, ...] = (),
    ) -> None:
        encoder.max_length = min(encoder.max_length, max_length)
        student = to_student(encoder) if layers else None
        if student is not None:
            encoder.module = student
        self._student = student
        encoder.module.eval()
        # The published DistilCSE code left its teacher in train mode: here it is checked at every use.
        encoder.module.requires_grad_(False)
        self.encoder = encoder
        self.precision = precision
        self.layers = layers
        self.width = encoder.width
        self.hidden = 0 if student is None else student.config.hidden
        name = f"{encoder.fingerprint()[:32]}-{encoder.max_length}"
        if layers:
            name += f"-layers-{'-'.join(map(str, layers))}"
        if precision != "float32":
            name += f"-{precision}"
        self.store = OutputStore(cache / name, self.width + len(layers) * self.hidden)

    def _check_frozen(self) -> None:
        if self.encoder.module.training or any(p.requires_grad for p in self.encoder.module.parameters()):
            raise InputError(f"guide {self.encoder.name} is not frozen: it must be in eval mode without gradients")

    def vectors(self, texts: Sequence[str], progress: bool = False) -> np.ndarray:
        """Sentence vectors alone, float32 [N, D]; see `outputs`."""
        return self.outputs(texts, progress=progress).sentence_ND

    def outputs(self, texts: Sequence[str], shared: bool = False, progress: bool = False) -> TeacherOutput:
        """The outputs for `texts`; missing ones are computed once and stored.

        Args:
            shared: every process asks for the same texts, and each computes its part of the missing ones.
            progress: show a bar while computing.
        """
        self._check_frozen()
        keys = np.fromiter((text_key(text) for text in texts), dtype=np.uint64, count=len(texts))
        rows = self.store.find(keys)
        missing = np.flatnonzero(rows < 0)
        rank, world = parallel.rank_and_world() if shared else (0, 1)
        if len(missing):
            _, first = np.unique(keys[missing], return_index=True)
            mine = missing[np.sort(first)][rank::world]
            if len(mine):
                self.store.append(keys[mine], self._compute([texts[i] for i in mine], progress))
        if shared:
            parallel.barrier()
        if len(missing):
            self.store.reload()
            rows = self.store.find(keys)
        stored = self.store.read(rows)
        states_NLH = None
        if self.layers:
            states_NLH = stored[:, self.width :].reshape(len(stored), len(self.layers), self.hidden)
        return TeacherOutput(stored[:, : self.width], states_NLH)

    def _compute(self, texts: Sequence[str], progress: bool) -> np.ndarray:
        """Rows of the store: the sentence vector, then the states, float32 [N, D + L x H]."""
        student = self._student
        if student is None:
            return self.encoder.encode(texts, progress=progress, precision=self.precision)
        device = next(student.parameters()).device
        ids = self.encoder.tokenize(with_prompt(self.encoder.defaults.prompt(), texts))
        rows = np.zeros((len(texts), self.store.width), dtype=np.float32)
        batches = pack_by_length([len(row) for row in ids], BATCH_TOKENS)
        for batch in track(batches, f"encode with {self.encoder.name}", enabled=progress):
            ids_BT, mask_BT = pad([ids[i] for i in batch], self.encoder.tokenizer.pad_id)
            with (
                torch.inference_mode(),
                torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16"),
            ):
                sentence_BD, states_BLH = student.layer_states(ids_BT.to(device), mask_BT.to(device), self.layers)
            rows[batch, : self.width] = sentence_BD.float().cpu().numpy()
            rows[batch, self.width :] = states_BLH.flatten(1).float().cpu().numpy()
        return rows


RECENT = 65_536  # keys that may wait, unsorted, before the index is sorted again
# The largest block: what the first use of one of its rows has to read.
BLOCK_ROWS = 4096
# First row, rows, 1 if found damaged; hashes of keys, of vectors, and of this record with the store's width.
_RECORD = struct.Struct("<QII16s16s16s")


def _hash(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _read_at(handle: FileIO, size: int, offset: int) -> bytes:
    """Bytes of an unbuffered file as they are now; fewer at its end. (Windows has no `os.pread`.)"""
    handle.seek(offset)
    return handle.read(size)


@dataclass
class _Block:
    """One record: rows `start` to `end`; `checked` once its vectors were compared with their hash."""

    start: int
    end: int
    dead: bool
    keys: bytes
    vectors: bytes
    number: int
    checked: bool = False

    def record(self, width: int) -> bytes:
        """As stored."""
        plain = _RECORD.pack(self.start, self.end - self.start, self.dead, self.keys, self.vectors, b"")[:-16]
        return plain + _hash(plain, str(width).encode())


class OutputStore:
    """The rows in a folder; several processes may read and append at the same time.

    Args:
        folder: made where it is missing.
        width: numbers per row.
    """

    def __init__(self, folder: Path, width: int) -> None:
        self.folder = folder
        self.width = width
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._keys_path, self._vectors_path = folder / "keys.u64", folder / "vectors.f16"
        self._blocks_path = folder / "blocks.bin"
        self._said = self._locked = False
        self._forget()
        if not self._blocks_path.is_file() and self._keys_path.is_file() and self._keys_path.stat().st_size:
            # The record is written last: without any, the rows cannot be checked.
            self._say("numbers that cannot be checked (of an earlier version, or their hashes are missing)")
        self.reload()

    def _forget(self) -> None:
        self._blocks: list[_Block] = []
        self._starts = np.zeros(0, np.int64)
        self._records = 0
        # End of the rows in use: what follows was left by a process that was killed.
        self._end = 0
        self._recent: dict[int, int] = {}
        self._sorted, self._order = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._vectors: np.memmap | None = None

    @property
    def count(self) -> int:
        """Rows that can be found."""
        return len(self._sorted) + len(self._recent)

    def _say(self, what: str) -> None:
        """Once: the same damage may concern many rows."""
        if not self._said:
            self._said = True
            warn(f"{self.folder}: {what}; they are computed again")

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        if self._locked:
            yield
            return
        with locked(self.folder / "lock"), disk_errors(self.folder):
            self._locked = True
            try:
                yield
            finally:
                self._locked = False

    # --- reading ------------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Index what other processes have added; what a killed process left without a record is ignored.

        Only what is new since the last call is read. It is looked up in a small dict and sorted into the large index
        once there is enough of it: sorting ten million keys after every append would take a day.
        """
        records = self._blocks_path.stat().st_size // _RECORD.size if self._blocks_path.is_file() else 0
        if records < self._records:
            self._forget()
        if records > self._records:
            fresh = self._read_blocks(self._records, records)
            self._records = records
            keys, numbers = [], []
            for block in fresh:
                raw = self._rows_of(self._keys_path, 8, block)
                if _hash(raw) != block.keys:
                    self._bury(block)
                    continue
                self._blocks.append(block)
                keys.append(np.frombuffer(raw, dtype="<u8").astype(np.uint64))
                numbers.append(np.arange(block.start, block.end))
            if keys:
                self._index(np.concatenate(keys), np.concatenate(numbers))
            self._blocks.sort(key=lambda block: block.start)
            self._starts = np.array([block.start for block in self._blocks], np.int64)
        rows = self._vectors_path.stat().st_size // (2 * self.width) if self._vectors_path.is_file() else 0
        if rows and (self._vectors is None or len(self._vectors) != rows):
            self._vectors = np.memmap(self._vectors_path, dtype="<f2", mode="r", shape=(rows, self.width))

    def _read_blocks(self, first: int, last: int) -> list[_Block]:
        """Blocks of the records `first` to `last` that are not marked as damaged; updates the end of the rows."""
        with open(self._blocks_path, "rb", buffering=0) as handle:
            raw = _read_at(handle, (last - first) * _RECORD.size, first * _RECORD.size)
            found = []
            for number in range(first, last):
                place = (number - first) * _RECORD.size
                part = raw[place : place + _RECORD.size]
                block = self._parse(part, number)
                if block is None:
                    # Perhaps another process was just writing it.
                    with self._lock():
                        part = _read_at(handle, _RECORD.size, number * _RECORD.size)
                    block = self._parse(part, number)
                if block is None:
                    # Where its rows end is not known: nothing is written over what is there.
                    sizes = [(self._vectors_path, 2 * self.width), (self._keys_path, 8)]
                    self._end = max([self._end, *(-(-p.stat().st_size // size) for p, size in sizes if p.is_file())])
                    self._bury(_Block(self._end, self._end, True, b"", b"", number))
                    continue
                self._end = max(self._end, block.end)
                if not block.dead:
                    found.append(block)
        return found

    def _parse(self, part: bytes, number: int) -> _Block | None:
        if len(part) != _RECORD.size:
            return None
        start, rows, dead, keys, vectors, _ = _RECORD.unpack(part)
        block = _Block(start, start + rows, bool(dead), keys, vectors, number)
        return block if block.record(self.width) == part else None

    @staticmethod
    def _rows_of(path: Path, row_bytes: int, block: _Block) -> bytes:
        """The bytes of a block's rows; fewer where they cannot be read."""
        try:
            # Read, not mapped: a bad sector is then an error and not a signal.
            with open(path, "rb", buffering=0) as handle:
                return _read_at(handle, row_bytes * (block.end - block.start), row_bytes * block.start)
        except OSError:
            return b""

    def _index(self, keys_N: np.ndarray, rows_N: np.ndarray) -> None:
        if len(keys_N) + len(self._recent) < max(RECENT, len(self._sorted) // 8):
            self._recent.update(zip(keys_N.tolist(), rows_N.tolist(), strict=True))
            return
        keys_N = np.concatenate([self._sorted, np.array(list(self._recent), np.uint64), keys_N])
        rows_N = np.concatenate([self._order, np.array(list(self._recent.values()), np.int64), rows_N])
        order = np.argsort(keys_N, kind="stable")
        self._sorted, self._order, self._recent = keys_N[order], rows_N[order], {}

    def _bury(self, block: _Block) -> None:
        """Mark a damaged block, so that it is neither used nor reported again."""
        self._say("a block of numbers is damaged")
        inside = (self._order >= block.start) & (self._order < block.end)
        self._sorted, self._order = self._sorted[~inside], self._order[~inside]
        self._recent = {key: row for key, row in self._recent.items() if not block.start <= row < block.end}
        block.dead, block.checked = True, True
        # Where this cannot be written, the next process finds the damage again.
        with contextlib.suppress(OSError), self._lock(), open(self._blocks_path, "r+b") as handle:
            handle.seek(block.number * _RECORD.size)
            handle.write(block.record(self.width))

    def _look_up(self, keys: np.ndarray) -> np.ndarray:
        rows = np.full(len(keys), -1, dtype=np.int64)
        if len(self._sorted):
            at = np.searchsorted(self._sorted, keys).clip(max=len(self._sorted) - 1)
            rows = np.where(self._sorted[at] == keys, self._order[at], -1)
        if self._recent:
            recent = [self._recent.get(key, -1) for key in keys.tolist()]
            rows = np.maximum(rows, np.array(recent, dtype=np.int64))
        return rows

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Row number of each key, -1 where it is not stored or its block is damaged."""
        while True:
            rows = self._look_up(keys)
            if self._check(rows[rows >= 0]):
                return rows

    def _check(self, rows: np.ndarray) -> bool:
        """Compare the blocks of rows with their hashes, each once; false if one was damaged."""
        good = True
        for number in np.unique(np.searchsorted(self._starts, rows, side="right") - 1).tolist():
            block = self._blocks[number]
            if block.checked:
                continue
            block.checked = True
            if _hash(self._rows_of(self._vectors_path, 2 * self.width, block)) != block.vectors:
                self._bury(block)
                good = False
        return good

    def read(self, rows: np.ndarray) -> np.ndarray:
        """float32 [N, width] of row numbers that `find` gave."""
        if self._vectors is None:
            return np.zeros((0, self.width), np.float32)
        return np.asarray(self._vectors[rows], dtype=np.float32)

    # --- writing ------------------------------------------------------------------------------------------------

    def append(self, keys: np.ndarray, vectors_NW: np.ndarray) -> None:
        """Add rows; other processes may append at the same time, and a process may be killed at any point."""
        with self._lock():
            self.reload()
            fresh = self.find(keys) < 0
            keys, numbers = keys[fresh].astype("<u8"), np.ascontiguousarray(vectors_NW[fresh], dtype="<f2")
            start = self._end
            if self._vectors is not None and len(self._vectors) > start:
                self._vectors = None  # what a killed process left is cut off, and Windows cuts no mapped file
            self._write(self._vectors_path, start * 2 * self.width, numbers.tobytes())
            self._write(self._keys_path, start * 8, keys.tobytes())
            records = b"".join(
                _Block(
                    start + at,
                    start + min(at + BLOCK_ROWS, len(keys)),
                    False,
                    _hash(keys[at : at + BLOCK_ROWS].tobytes()),
                    _hash(numbers[at : at + BLOCK_ROWS].tobytes()),
                    0,
                ).record(self.width)
                for at in range(0, len(keys), BLOCK_ROWS)
            )
            self._write(self._blocks_path, self._records * _RECORD.size, records)
            self.reload()

    @staticmethod
    def _write(path: Path, offset: int, content: bytes) -> None:
        """Write at `offset` and cut off what follows; on the disk when this returns."""
        with open(path, "r+b" if path.exists() else "w+b") as handle:
            handle.seek(offset)
            handle.truncate()
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
