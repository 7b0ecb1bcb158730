"""Guide outputs, computed once: an append-only, memory-mapped store of sentence vectors keyed by text.

The folder is named by the guide's fingerprint, so another model never meets another's vectors. Vectors are float16
(relative error 5e-4, far below any teaching signal) so that ten million sentences of 384 numbers take 7.7 GB of disk
and none of memory.

Shapes: N sentences, D width.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.files import disk_errors, user_cache
from msdc.text.tokenizer import text_key

RECENT = 65_536  # keys that may wait, unsorted, before the index is sorted anew


def default_cache() -> Path:
    """The user's cache folder for guide outputs."""
    return user_cache() / "guides"


class GuideStore:
    """Vectors of one guide on disk: `keys.u64` and `vectors.f16`, rows in the order they were computed."""

    def __init__(self, folder: Path, width: int) -> None:
        self.folder = folder
        self.width = width
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._keys_path, self._vectors_path = folder / "keys.u64", folder / "vectors.f16"
        self.count = 0
        self._recent: dict[int, int] = {}
        self._sorted, self._order = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        self._vectors: np.memmap | None = None
        self._load()

    def _load(self) -> None:
        """Index what is whole; a tail that a killed process left half-written is ignored.

        Only what came since the last call is read. It is looked up in a small dict and sorted into the big index when
        there is enough of it: with ten million keys, sorting all of them after every append would take the day.
        """
        row_bytes = 2 * self.width
        keys = self._keys_path.stat().st_size // 8 if self._keys_path.is_file() else 0
        whole = self._vectors_path.stat().st_size // row_bytes if self._vectors_path.is_file() else 0
        count = min(keys, whole)
        if count < self.count:
            self.count, self._recent = 0, {}
            self._sorted, self._order = np.zeros(0, np.uint64), np.zeros(0, np.int64)
        if count > self.count:
            fresh = np.fromfile(self._keys_path, dtype=np.uint64, count=count - self.count, offset=8 * self.count)
            numbers = np.arange(self.count, count)
            if len(fresh) + len(self._recent) < max(RECENT, len(self._sorted) // 8):
                self._recent.update(zip(fresh.tolist(), numbers.tolist(), strict=True))
            else:
                keys_N = np.concatenate([self._sorted, np.array(list(self._recent), np.uint64), fresh])
                rows_N = np.concatenate([self._order, np.array(list(self._recent.values()), np.int64), numbers])
                order = np.argsort(keys_N, kind="stable")
                self._sorted, self._order, self._recent = keys_N[order], rows_N[order], {}
        if count != self.count or self._vectors is None:
            shape = (count, self.width)
            self._vectors = np.memmap(self._vectors_path, dtype=np.float16, mode="r", shape=shape) if count else None
        self.count = count

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Row number of each key, -1 where it is not stored."""
        rows = np.full(len(keys), -1, dtype=np.int64)
        if len(self._sorted):
            at = np.searchsorted(self._sorted, keys).clip(max=len(self._sorted) - 1)
            rows = np.where(self._sorted[at] == keys, self._order[at], -1)
        if self._recent:
            recent = [self._recent.get(key, -1) for key in keys.tolist()]
            rows = np.maximum(rows, np.array(recent, dtype=np.int64))
        return rows

    def append(self, keys: np.ndarray, vectors_ND: np.ndarray) -> None:
        """Add rows; safe beside other processes and against being killed half-way."""
        with disk_errors(self.folder), open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._load()
            fresh = self.find(keys) < 0
            with open(self._vectors_path, "r+b" if self._vectors_path.exists() else "w+b") as handle:
                handle.seek(self.count * 2 * self.width)
                handle.truncate()
                handle.write(np.ascontiguousarray(vectors_ND[fresh], dtype=np.float16).tobytes())
                handle.flush()
                os.fsync(handle.fileno())
            with open(self._keys_path, "r+b" if self._keys_path.exists() else "w+b") as handle:
                handle.seek(self.count * 8)
                handle.truncate()
                handle.write(np.ascontiguousarray(keys[fresh], dtype=np.uint64).tobytes())
                handle.flush()
                os.fsync(handle.fileno())
            self._load()

    def read(self, rows: np.ndarray) -> np.ndarray:
        """float32 [N, D] of row numbers."""
        if self._vectors is None:
            return np.zeros((0, self.width), np.float32)
        return np.asarray(self._vectors[rows], dtype=np.float32)


class Guide:
    """A frozen encoder whose sentence vectors come from the store when they are known, else are computed and kept."""

    def __init__(self, encoder: Encoder, cache: Path, max_length: int, precision: str = "float32") -> None:
        encoder.max_length = min(encoder.max_length, max_length)
        module = encoder.module
        module.eval()
        # The published DistilCSE code left its teacher in train mode: here it is checked at every use.
        module.requires_grad_(False)
        self.encoder = encoder
        self.precision = precision
        folder = cache / f"{encoder.fingerprint()[:32]}-{encoder.max_length}"
        self.store = GuideStore(folder, encoder.width)
        # Of a guide that also gives layer states (msdc.distill.tasks.hidden_states), the sentence vector comes first.
        self.sentence_width: int = getattr(module, "sentence_width", encoder.width)

    def _check_frozen(self) -> None:
        if self.encoder.module.training or any(p.requires_grad for p in self.encoder.module.parameters()):
            raise InputError(f"guide {self.encoder.name} is not frozen: it must be in eval mode without gradients")

    def vectors(self, texts: Sequence[str], rank: int = 0, world: int = 1, barrier: object = None) -> np.ndarray:
        """float32 [N, D]; missing ones are encoded once, split over `world` processes."""
        self._check_frozen()
        keys = np.fromiter((text_key(text) for text in texts), dtype=np.uint64, count=len(texts))
        rows = self.store.find(keys)
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            _, first = np.unique(keys[missing], return_index=True)
            mine = missing[np.sort(first)][rank::world]
            if len(mine):
                self.store.append(
                    keys[mine], self.encoder.encode([texts[i] for i in mine], progress=True, precision=self.precision)
                )
        if callable(barrier):
            barrier()
        if len(missing):
            self.store._load()
            rows = self.store.find(keys)
        return self.store.read(rows)
