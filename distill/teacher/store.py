"""A store of vectors by the hash of their text, on disk, for any number of processes.

A store is a folder of two files that grow: `keys` (8 bytes each) and `vectors`, whose record n (checksum of key and
record, exponent, float16 values) is that of key n. A writer holds the folder's lock, writes records, then their keys: a
key that is in the file has its record. Readers take no lock: they keep an index of the keys in memory (16 bytes each)
and read what was added since.

A process that is killed or a full disk leaves records without keys, which the next writer overwrites; a damaged byte
leaves a record that does not match its checksum: its vector is missing, and is written again. Files are read and
written, not mapped: a full disk and a bad sector are then errors, not signals. No descriptor stays open between calls.
Damaged keys are noticed by the process that opens the store next; another reads no wrong vector.

A vector of W values takes 16 + 2 W bytes. Values are scaled by a power of two, so that float16 (relative error 5e-4)
holds numbers of any size.

Shapes: N keys, W values of a vector.
"""

from __future__ import annotations

import errno
import os
import threading
import zlib
from io import FileIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from msdc.errors import MsdcError
from msdc.files import LOCK_FILE, disk_errors, locked
from msdc.progress import warn

KEY = 8  # bytes
HEAD = 8  # bytes of a record before its values: checksum, exponent
IN_MEMORY = 2**30  # bytes of a file that the system keeps in memory after the first epoch
EXPONENTS = 113  # of a scale, at most: the largest float32 is below 2^(15 + 113)


class _Index:
    """The position of each key of a file, in sorted parts: a new part joins those that are not twice as large."""

    def __init__(self) -> None:
        self.count = 0
        self.parts: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, keys: np.ndarray) -> None:
        positions = np.arange(self.count, self.count + len(keys))
        self.count += len(keys)
        while self.parts and len(self.parts[-1][0]) < 2 * len(keys):
            former_keys, former_positions = self.parts.pop()
            keys, positions = np.concatenate([former_keys, keys]), np.concatenate([former_positions, positions])
        order = np.argsort(keys, kind="stable")
        self.parts.append((keys[order], positions[order]))

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The position of each key, int64 [N]; -1 if it is not there."""
        positions = np.full(len(keys), -1, np.int64)
        for part_keys, part_positions in self.parts:
            nearest = np.searchsorted(part_keys, keys).clip(max=len(part_keys) - 1)
            same = part_keys[nearest] == keys
            positions[same] = part_positions[nearest[same]]
        return positions


class VectorStore:
    """The vectors of one teacher with one choice of settings, in `folder`, each of `width` values."""

    def __init__(self, folder: Path, width: int) -> None:
        self.folder, self.width = folder, width
        self.record = HEAD + 2 * width
        self._keys, self._vectors = folder / "keys", folder / "vectors"
        self._index, self._file = _Index(), 0
        self._thread = threading.RLock()  # one index for the threads of this process
        self._warned = False
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)

    def _refresh(self, again: bool = False) -> None:
        """Add what was written since the last call to the index; all of it `again`, or where the file is another."""
        try:
            status = os.stat(self._keys)
        except FileNotFoundError:
            self._index, self._file = _Index(), 0
            return
        count = status.st_size // KEY
        if again or status.st_ino != self._file or count < self._index.count:
            self._index, self._file = _Index(), status.st_ino
        if count > self._index.count:
            keys = _read(self._keys, np.arange(self._index.count, count), KEY).view("<u8")[:, 0]
            self._index.add(keys.astype(np.uint64))

    def read(self, keys: np.ndarray) -> np.ndarray:
        """Vectors float32 [N, W] of keys uint64 [N]; NaN where one is missing."""
        keys = _nonzero(keys)
        out = np.full((len(keys), self.width), np.nan, np.float32)
        with self._thread:
            self._refresh()
            here, records, is_good = self._records_of(keys)
        out[here[is_good]] = _values(records[is_good])
        damaged = int(np.count_nonzero(records[~is_good].any(1)))
        if damaged and not self._warned:
            self._warned = True
            warn(f"{self.folder}: {damaged} damaged vectors are computed again")
        return out

    def _records_of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Which of `keys` are in the index, their records, and whether each matches its checksum."""
        positions = self._index.find(keys)
        here = np.flatnonzero(positions >= 0)
        here = here[np.argsort(positions[here], kind="stable")]
        distinct, inverse = np.unique(positions[here], return_inverse=True)
        records = _read(self._vectors, distinct, self.record)[inverse]
        return here, records, _checks(keys[here], records) == records[:, :4].view("<u4")[:, 0]

    def write(self, keys: np.ndarray, vectors_NW: np.ndarray) -> None:
        """Add the vectors that are missing or damaged; waits while another process writes.

        Raises:
            ValueError: a vector is not finite.
            MsdcError: the disk is full; vectors that are not written are missing.
        """
        keys, first = np.unique(_nonzero(keys), return_index=True)
        records = _records(keys, vectors_NW[first])
        with self._thread, disk_errors(self.folder), locked(self.folder / LOCK_FILE):
            self._refresh()
            here, _, is_good = self._records_of(keys)
            if not is_good.all():
                self._refresh(again=True)  # the keys themselves may have changed
                here, _, is_good = self._records_of(keys)
                damaged = here[~is_good]
                _write(self._vectors, self._index.find(keys[damaged]), records[damaged])
            absent = np.delete(np.arange(len(keys)), here)
            positions = np.arange(self._index.count, self._index.count + len(absent))
            _write(self._vectors, positions, records[absent])
            _write(self._keys, positions, keys[absent].astype("<u8").view(np.uint8).reshape(-1, KEY))
            self._refresh()


def as_stored(vectors_NW: np.ndarray) -> np.ndarray:
    """Vectors as they are read from a store, float32 [N, W]: a resumed run reads what the first one computed."""
    return _values(_records(np.ones(len(vectors_NW), np.uint64), vectors_NW))


def _values(records: np.ndarray) -> np.ndarray:
    """The vectors of records, float32 [N, W]."""
    exponents = records[:, 4:HEAD].view("<i4")[:, 0].clip(-EXPONENTS, EXPONENTS)
    # torch converts float16 ten times as fast as numpy.
    values = torch.from_numpy(records[:, HEAD:].view("<f2")).float().numpy()
    values *= np.exp2(exponents.astype(np.float32))[:, None]
    return values


def _nonzero(keys: np.ndarray) -> np.ndarray:
    """Keys with 1 for 0, which is what a file has where nothing was written."""
    return np.maximum(np.ascontiguousarray(keys, np.uint64), np.uint64(1))


def _records(keys: np.ndarray, vectors_NW: np.ndarray) -> np.ndarray:
    """The records of vectors, uint8 [N, HEAD + 2 W]."""
    vectors_NW = np.asarray(vectors_NW, np.float32)
    most = np.abs(vectors_NW).max(1, initial=0.0)
    if not np.isfinite(most).all():
        raise ValueError("a vector that is not finite")
    exponents = (np.frexp(most)[1] - 15).clip(-EXPONENTS, EXPONENTS).astype("<i4")
    scaled = vectors_NW * np.exp2(-exponents.astype(np.float32))[:, None]
    records = np.empty((len(keys), HEAD + 2 * vectors_NW.shape[1]), np.uint8)
    records[:, 4:HEAD] = exponents[:, None].view(np.uint8)
    records[:, HEAD:] = np.ascontiguousarray(scaled, "<f2").view(np.uint8)
    records[:, :4] = _checks(keys, records)[:, None].view(np.uint8)
    return records


def _checks(keys: np.ndarray, records: np.ndarray) -> np.ndarray:
    """The checksum of each record with its key, uint32 [N], never 0: missing records are zeros."""
    starts = (keys ^ keys >> np.uint64(32)) & np.uint64(0xFFFFFFFF)
    sums = (zlib.crc32(record[4:], start) or 1 for record, start in zip(records, starts.tolist(), strict=True))
    return np.fromiter(sums, "<u4", len(records))


def _runs(places: np.ndarray) -> list[tuple[int, int, int]]:
    """(first, last + 1, place of the first) of neighbours in increasing places: one call each."""
    edges = np.flatnonzero(np.diff(places, prepend=-2, append=-2) != 1).tolist()
    return [(a, b, int(places[a])) for a, b in pairwise(edges)]


def _read_at(file: FileIO, view: memoryview, position: int) -> None:
    if hasattr(os, "preadv"):  # one call instead of two
        os.preadv(file.fileno(), [view], position)
    else:
        file.seek(position)
        file.readinto(view)


def _read(path: Path, places: np.ndarray, size: int) -> np.ndarray:
    """Items of `size` bytes at increasing places of a file, uint8 [N, size]; zeros after its end."""
    out = np.zeros((len(places), size), np.uint8)
    runs, view = _runs(places), out.reshape(-1).data
    try:
        with open(path, "rb", buffering=0) as file:
            number = file.fileno()
            if hasattr(os, "posix_fadvise") and os.fstat(number).st_size > IN_MEMORY:
                # Read at random: ask the disk for all of them at once.
                for start, stop, position in runs:
                    os.posix_fadvise(number, position * size, (stop - start) * size, os.POSIX_FADV_WILLNEED)
            for start, stop, position in runs:
                try:
                    _read_at(file, view[start * size : stop * size], position * size)
                except OSError as error:
                    if error.errno != errno.EIO:  # a bad sector: its items are missing
                        raise
    except FileNotFoundError:
        pass
    except OSError as error:
        raise MsdcError(f"{path}: cannot be read ({error.strerror})") from error
    return out


def _write(path: Path, places: np.ndarray, items: np.ndarray) -> None:
    """Write items [N, size] at increasing places of a file."""
    size, view = items.shape[1], np.ascontiguousarray(items).reshape(-1).data
    mode = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    with open(os.open(path, mode, 0o666), "r+b", buffering=0) as file:
        for start, stop, position in _runs(places):
            file.seek(position * size)
            remaining = view[start * size : stop * size]
            while remaining:  # a full disk first gives a short write
                remaining = remaining[file.write(remaining) or 0 :]
