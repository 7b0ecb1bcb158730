"""Outputs of a frozen teacher, computed once: a memory-mapped store on disk, keyed by text and checked part by part.

A folder has the outputs of one model at one maximum length, one choice of layers and one precision, so that outputs of
different models or settings never mix. Values are float16 (relative error 5e-4, far below any training signal): ten
million sentence vectors of 384 dimensions take 7.7 GB of disk and no memory.

A store is a folder of parts, `NUMBER-HASH.part`: number of rows, hash of the keys, hash of the vectors, keys (64 bits),
vectors. A part is written atomically and never changed. Keys are checked when a store is opened, vectors when
one of a part is first used; a damaged part is deleted, and its rows are computed again like missing ones.

Shapes: N sentences or rows, D sentence width, L layers, H hidden, W width of a row (D + L x H).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from msdc.compress.student.stock import to_student
from msdc.distill.training import parallel
from msdc.encoders.encoder import BATCH_TOKENS, Encoder
from msdc.encoders.folder import with_prompt
from msdc.errors import InputError, MsdcError
from msdc.files import atomic_path, disk_errors, locked, user_cache
from msdc.progress import track, warn
from msdc.text.tokenizer import pack_by_length, pad, text_key


def default_cache() -> Path:
    """The user's cache folder for teacher outputs."""
    return user_cache() / "teacher-outputs"


@dataclass(frozen=True)
class TeacherOutput:
    """The outputs for N sentences: vectors float32 [N, D], and states of chosen layers float32 [N, L, H].

    A state is the first token's ([CLS], <s>): teacher and student may tokenize a sentence differently. `states_NLH` is
    None if no layer is chosen.
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
    """A frozen encoder whose outputs come from the store, or are computed and stored.

    Args:
        encoder: the teacher; frozen here. With `layers` its module becomes the equal `Student`.
        cache: folder of all stores.
        max_length: longer texts are truncated to this many tokens.
        precision: `float32` or `bfloat16`, of the forward pass.
        layers: applied layers, from 1, whose states are part of the output.
    """

    def __init__(
        self, encoder: Encoder, cache: Path, max_length: int, precision: str = "float32", layers: tuple[int, ...] = ()
    ) -> None:
        encoder.max_length = min(encoder.max_length, max_length)
        self._student = to_student(encoder) if layers else None
        encoder.module = self._student or encoder.module
        encoder.module.eval().requires_grad_(False)
        self.encoder, self.precision, self.layers = encoder, precision, layers
        self.width = encoder.width
        self.hidden = 0 if self._student is None else self._student.config.hidden
        name = f"{encoder.fingerprint()[:32]}-{encoder.max_length}"
        if layers:
            name += f"-layers-{'-'.join(map(str, layers))}"
        if precision != "float32":
            name += f"-{precision}"
        self.store = OutputStore(cache / name, self.width + len(layers) * self.hidden)

    def vectors(self, texts: Sequence[str], progress: bool = False) -> np.ndarray:
        """Sentence vectors only, float32 [N, D]; see `outputs`."""
        return self.outputs(texts, progress=progress).sentence_ND

    def outputs(self, texts: Sequence[str], shared: bool = False, progress: bool = False) -> TeacherOutput:
        """The outputs for `texts`; missing ones are computed once and stored.

        Args:
            shared: all processes need the same texts, and each computes a part of the missing ones.
            progress: show a bar while computing.
        """
        # The published DistilCSE code left its teacher in train mode.
        if self.encoder.module.training or any(p.requires_grad for p in self.encoder.module.parameters()):
            raise InputError(f"teacher {self.encoder.name} is not frozen: it must be in eval mode without gradients")
        keys = np.fromiter((text_key(text) for text in texts), dtype=np.uint64, count=len(texts))
        rows = self.store.find(keys)
        missing = np.flatnonzero(rows < 0)
        rank, world = parallel.rank_and_world() if shared else (0, 1)
        mine = missing[np.sort(np.unique(keys[missing], return_index=True)[1])][rank::world]
        if len(mine):
            self.store.append(keys[mine], self._compute([texts[i] for i in mine], progress))
        if shared:
            parallel.barrier()
        if len(missing):
            self.store.reload()
            rows = self.store.find(keys)
        if absent := int((rows < 0).sum()):
            # Never row -1: it is another sentence's.
            where = "; the processes of all machines must see one folder: set `cache`" if shared else ""
            raise MsdcError(
                f"{self.store.folder}: {absent} teacher outputs are missing after they were computed{where}"
            )
        stored = self.store.read(rows)
        states_NLH = None
        if self.layers:
            states_NLH = stored[:, self.width :].reshape(len(stored), len(self.layers), self.hidden)
        return TeacherOutput(stored[:, : self.width], states_NLH)

    def _compute(self, texts: Sequence[str], progress: bool) -> np.ndarray:
        """Rows of the store: the sentence vector, then the states, float32 [N, D + L x H]."""
        student = self._student
        if student is None:
            return self.encoder.encode(texts, show_progress_bar=progress, precision=self.precision)
        device = next(student.parameters()).device
        ids = self.encoder.tokenize(with_prompt(self.encoder.defaults.prompt(), texts))
        rows = np.zeros((len(texts), self.store.width), dtype=np.float32)
        batches = pack_by_length([len(row) for row in ids], BATCH_TOKENS)
        for batch in track(batches, f"encode with {self.encoder.name}", enabled=progress):
            ids_BT, mask_BT = pad([ids[i] for i in batch], self.encoder.tokenizer.pad_id)
            half = self.precision == "bfloat16"
            with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=half):
                sentence_BD, states_BLH = student.layer_states(ids_BT.to(device), mask_BT.to(device), self.layers)
            rows[batch, : self.width] = sentence_BD.float().cpu().numpy()
            rows[batch, self.width :] = states_BLH.flatten(1).float().cpu().numpy()
        return rows


RECENT = 65_536  # unsorted keys before the index is sorted again
PART_ROWS = 4096  # rows of a part at most; the first use of one reads all
HEADER = 40  # bytes: rows, hash of the keys, hash of the vectors


def _hash(raw: bytes, width: int) -> bytes:
    return hashlib.blake2b(raw, digest_size=16, person=str(width).encode()).digest()


@dataclass
class _Part:
    """A file of the store: rows `start` to `start + len(vectors)`; `checked` once its vectors matched their hash."""

    path: Path
    start: int
    digest: bytes
    vectors: np.memmap
    checked: bool = False


class OutputStore:
    """The rows in a folder; several processes may read and append at the same time.

    Args:
        folder: created if it does not exist.
        width: values per row.
    """

    def __init__(self, folder: Path, width: int) -> None:
        self.folder, self.width = folder, width
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._parts: list[_Part] = []
        self._starts = np.zeros(0, np.int64)  # first row of each part
        self._names: set[str] = set()
        self._rows = 0
        self._recent: dict[int, int] = {}
        self._sorted, self._order = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self.reload()

    @property
    def count(self) -> int:
        """The number of stored rows."""
        return len(self._sorted) + len(self._recent)

    def reload(self) -> None:
        """Index the parts that other processes have added since.

        New keys are in a small dict until there are enough to sort the large index: sorting ten million keys after each
        append would take a day.
        """
        for path in sorted(self.folder.glob("*.part")):
            if path.name not in self._names:
                self._names.add(path.name)
                self._open(path)
        self._starts = np.array([part.start for part in self._parts], np.int64)

    def _open(self, path: Path) -> None:
        try:
            with open(path, "rb") as handle:
                header = handle.read(HEADER)
                rows = int.from_bytes(header[:8], "little")
                size = HEADER + rows * (8 + 2 * self.width)
                raw = handle.read(8 * rows) if path.stat().st_size == size else b""
        except OSError:
            raw, header = b"", b""
        if not raw or _hash(raw, self.width) != header[8:24]:
            self._discard(path)
            return
        vectors = np.memmap(path, dtype="<f2", mode="r", offset=HEADER + 8 * rows, shape=(rows, self.width))
        self._parts.append(_Part(path, self._rows, header[24:], vectors))
        self._index(np.frombuffer(raw, dtype="<u8").astype(np.uint64), np.arange(self._rows, self._rows + rows))
        self._rows += rows

    def _discard(self, path: Path) -> None:
        warn(f"{path}: damaged; its rows are computed again")
        with contextlib.suppress(OSError):
            path.unlink()

    def _index(self, keys_N: np.ndarray, rows_N: np.ndarray) -> None:
        if len(keys_N) + len(self._recent) < max(RECENT, len(self._sorted) // 8):
            self._recent.update(zip(keys_N.tolist(), rows_N.tolist(), strict=True))
            return
        keys_N = np.concatenate([self._sorted, np.array(list(self._recent), np.uint64), keys_N])
        rows_N = np.concatenate([self._order, np.array(list(self._recent.values()), np.int64), rows_N])
        order = np.argsort(keys_N, kind="stable")
        self._sorted, self._order, self._recent = keys_N[order], rows_N[order], {}

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Row number of each key, -1 if it is not stored or its part is damaged."""
        while True:
            rows = np.full(len(keys), -1, dtype=np.int64)
            if len(self._sorted):
                at = np.searchsorted(self._sorted, keys).clip(max=len(self._sorted) - 1)
                rows = np.where(self._sorted[at] == keys, self._order[at], -1)
            if self._recent:
                recent = [self._recent.get(key, -1) for key in keys.tolist()]
                rows = np.maximum(rows, np.array(recent, dtype=np.int64))
            if all(self._check(self._parts[number]) for number in np.unique(self._part_of(rows[rows >= 0]))):
                return rows

    def _part_of(self, rows: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._starts, rows, side="right") - 1

    def _check(self, part: _Part) -> bool:
        """Compare a part's vectors with their hash, once; a damaged part is deleted and its rows are forgotten."""
        if part.checked:
            return True
        part.checked = True
        try:
            # Read, not mapped: a bad sector is then an error, not a signal.
            raw = part.path.read_bytes()[-part.vectors.nbytes :]
        except OSError:
            raw = b""
        if _hash(raw, self.width) == part.digest:
            return True
        self._discard(part.path)
        end = part.start + len(part.vectors)
        kept = (self._order < part.start) | (self._order >= end)
        self._sorted, self._order = self._sorted[kept], self._order[kept]
        self._recent = {key: row for key, row in self._recent.items() if not part.start <= row < end}
        return False

    def read(self, rows: np.ndarray) -> np.ndarray:
        """float32 [N, width] of row numbers from `find`."""
        out = np.zeros((len(rows), self.width), np.float32)
        part_of = self._part_of(rows)
        for number in np.unique(part_of):
            here = part_of == number
            out[here] = self._parts[number].vectors[rows[here] - self._parts[number].start]
        return out

    def append(self, keys: np.ndarray, vectors_NW: np.ndarray) -> None:
        """Add rows in whole parts; keys that another process has added meanwhile are skipped."""
        with locked(self.folder / "lock"), disk_errors(self.folder):
            self.reload()
            fresh = np.flatnonzero(self.find(keys) < 0)
            first = max((int(name[:6]) for name in self._names), default=-1) + 1
            for number, start in enumerate(range(0, len(fresh), PART_ROWS)):
                rows = fresh[start : start + PART_ROWS]
                raw, vectors = keys[rows].astype("<u8").tobytes(), vectors_NW[rows].astype("<f2").tobytes()
                header = len(rows).to_bytes(8, "little") + _hash(raw, self.width) + _hash(vectors, self.width)
                with atomic_path(self.folder / f"{first + number:06d}-{header[8:12].hex()}.part") as path:
                    path.write_bytes(header + raw + vectors)
            self.reload()
