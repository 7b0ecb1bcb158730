"""A store of vectors by the hash of their text, on disk: any process may read and write it at any time.

A store is a folder of levels, each twice as large as the one before. Level n is a hash table of FIRST x 2^n slots in
two sparse files, `n.keys` and `n.vectors`: at the place of a slot the key (8 bytes; 0 is a free slot) and its record
(checksum of key and record, exponent, float16 values). A key belongs to a bucket of 64 slots or, while those are
taken, to one of the next buckets; when all of them are taken, to a new level.

There is no lock, no index and no open descriptor between calls, and nothing is ever deleted. A process that is killed,
a full disk, two writers of one slot or a damaged byte leave a record that does not match its checksum: its vector is
missing, and is written again. Files are read and written, not mapped: a full disk and a bad sector are then errors, not
signals.

A vector of W values takes 16 + 2 W bytes, on disk up to twice as many while the newest level fills. Values are scaled
by a power of two, so that float16 (relative error 5e-4) holds numbers of any size.

Shapes: N keys, W values of a vector.
"""

from __future__ import annotations

import errno
import os
import zlib
from io import FileIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch

from msdc.errors import MsdcError
from msdc.files import disk_errors
from msdc.progress import warn

BUCKET = 64  # slots whose keys are read together
FIRST = 1024  # slots of level 0
TRIED = 4  # buckets that may have a key
HEAD = 8  # bytes of a record before its values: checksum, exponent
IN_MEMORY = 2**30  # bytes of a file that the system keeps in memory after the first epoch
EXPONENTS = 113  # of a scale, at most: the largest float32 is below 2^(15 + 113)


class VectorStore:
    """The vectors of one teacher with one choice of settings, in `folder`, each of `width` values."""

    def __init__(self, folder: Path, width: int) -> None:
        self.folder, self.width = folder, width
        self.record = HEAD + 2 * width
        self._warned = False
        self._create(max(self._levels(), default=0))

    def _levels(self) -> list[int]:
        """The levels in use, the newest (and largest) first."""
        return sorted((int(path.stem) for path in self.folder.glob("*.keys") if path.stem.isdecimal()), reverse=True)

    def _path(self, level: int, kind: str) -> Path:
        return self.folder / f"{level}.{kind}"

    def reserve(self, count: int) -> None:
        """Make room for `count` vectors in one level, for fewer reads than if the store grows."""
        level = max(0, int(np.ceil(np.log2(max(1.0, count / 0.8 / FIRST)))))
        if level > max(self._levels(), default=-1):
            self._create(level)

    def _create(self, level: int) -> None:
        with disk_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
            for kind in ("vectors", "keys"):
                self._path(level, kind).touch()

    # --- read ---------------------------------------------------------------------------------------------------------

    def read(self, keys: np.ndarray) -> np.ndarray:
        """Vectors float32 [N, W] of keys uint64 [N]; NaN where one is missing."""
        keys = _nonzero(keys)
        out, missing, damaged = np.empty((len(keys), self.width), np.float32), np.arange(len(keys)), 0
        for level in self._levels():
            if not len(missing):
                break
            slots = self._find(level, keys[missing])
            here = np.flatnonzero(slots >= 0)
            here = here[np.argsort(slots[here], kind="stable")]
            records = _read(self._path(level, "vectors"), slots[here], self.record)
            good = _checks(keys[missing[here]], records) == records[:, :4].view("<u4")[:, 0]
            if not good.all():
                damaged += int(np.count_nonzero(records[~good].any(1)))
                here, records = here[good], records[good]
            out[missing[here]] = _values(records)
            missing = np.delete(missing, here)
        out[missing] = np.nan
        if damaged and not self._warned:
            self._warned = True
            warn(f"{self.folder}: {damaged} damaged vectors are computed again")
        return out

    def _find(self, level: int, keys: np.ndarray) -> np.ndarray:
        """The slot of each key in a level, int64 [N]; -1 if it is not there."""
        slots, pending = np.full(len(keys), -1, np.int64), np.arange(len(keys))
        for step in range(TRIED):
            buckets, bucket_of_key, held = self._buckets(level, keys[pending], step)
            same = held[bucket_of_key] == keys[pending][:, None]
            matched = same.any(1)
            slots[pending[matched]] = (buckets[bucket_of_key] * BUCKET + same.argmax(1))[matched]
            # A key is in a later bucket only if all before it are taken.
            pending = pending[~matched & np.all(held, axis=1)[bucket_of_key]]
            if not len(pending):
                break
        return slots

    def _buckets(self, level: int, keys: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The distinct buckets [U] number `step` of keys, the one of each key [N], and what they have [U, BUCKET]."""
        count = (FIRST << level) // BUCKET
        buckets, inverse = np.unique((keys // BUCKET + np.uint64(step)) % np.uint64(count), return_inverse=True)
        buckets = buckets.astype(np.int64)
        return buckets, inverse, _read(self._path(level, "keys"), buckets, 8 * BUCKET).view("<u8")

    # --- write --------------------------------------------------------------------------------------------------------

    def write(self, keys: np.ndarray, vectors_NW: np.ndarray) -> None:
        """Add vectors, or replace damaged ones.

        Raises:
            ValueError: a vector is not finite.
            MsdcError: the disk is full; vectors that are not written are missing.
        """
        keys, first = np.unique(_nonzero(keys), return_index=True)
        records = _records(keys, vectors_NW[first])
        with disk_errors(self.folder):
            for level in self._levels():
                slots = self._find(level, keys)
                self._put(level, slots, records)
                keys, records = keys[slots < 0], records[slots < 0]
            while len(keys):
                level = max(self._levels(), default=0)
                self._create(level)
                slots = self._claim(level, keys)
                self._put(level, slots, records)
                keys, records = keys[slots < 0], records[slots < 0]
                if len(keys):
                    self._create(level + 1)

    def _claim(self, level: int, keys: np.ndarray) -> np.ndarray:
        """Write each key to a free slot and return the slots; -1 where all its buckets are taken."""
        slots, step, file = np.full(len(keys), -1, np.int64), 0, self._path(level, "keys")
        for _ in range(2 * TRIED):
            pending = np.flatnonzero(slots < 0)
            if step == TRIED or not len(pending):
                break
            buckets, bucket_of_key, held = self._buckets(level, keys[pending], step)
            for position, key, bucket in zip(
                pending.tolist(), keys[pending].tolist(), bucket_of_key.tolist(), strict=True
            ):
                free = np.flatnonzero(held[bucket] == 0)
                if len(free):
                    # Two writers begin at places that follow from their keys: they rarely choose the same.
                    slot = int(free[(key >> 48) % len(free)])
                    held[bucket, slot] = key
                    slots[position] = buckets[bucket] * BUCKET + slot
            here = pending[slots[pending] >= 0]
            order = here[np.argsort(slots[here])]
            _write(file, slots[order], keys[order].astype("<u8").view(np.uint8).reshape(-1, 8))
            # Another writer may have taken a slot meanwhile: choose again.
            lost = order[_read(file, slots[order], 8).view("<u8")[:, 0] != keys[order]]
            slots[lost] = -1
            step += not len(lost)
        return slots

    def _put(self, level: int, slots: np.ndarray, records: np.ndarray) -> None:
        """Write the records whose slot is not -1."""
        here = np.flatnonzero(slots >= 0)
        order = here[np.argsort(slots[here])]
        _write(self._path(level, "vectors"), slots[order], records[order])


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
    """Keys with 1 for 0, which marks a free slot."""
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
