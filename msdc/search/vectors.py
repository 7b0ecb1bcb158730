"""The vectors of an index in memory: read from its file, compared with a query.

Shapes: N passages with a vector, M their documents, D width.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

READ = 4096  # passages per read
# Up to this size vectors are also kept as float32; larger ones are converted block by block per query.
MOST_FLOAT_BYTES = 2**30
ROWS = 1024  # of such a block, which fits the processor's cache
FIELDS = struct.Struct("<qqqd")


def passage_crc(document: int, start: int, end: int, scale: float | None, vector: bytes | None) -> int:
    """The checksum of a passage's row."""
    return zlib.crc32(FIELDS.pack(document, start, end, scale or 0.0) + (vector or b""))


class PassageVectors:
    """Vectors of `width` dimensions of an index's passages, and their cosines with the query of `compare`."""

    def __init__(self, width: int) -> None:
        self._version, self._last = -1, 0
        self._rows_N = self._owner_N = self.documents_M = self._starts_M = np.zeros(0, np.int64)
        self._codes_ND = np.zeros((0, width), np.int8)
        self._scale_N = self._cosine_N = self.best_M = np.zeros(0, np.float32)
        self._floats_ND: NDArray[np.float32] | None = None

    def refresh(self, db: sqlite3.Connection, statement: str, changed: bool) -> None:
        """Read new vectors, and drop those of removed passages, if this or another connection `changed` the file.

        Raises:
            ValueError: a wrong checksum.
        """
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version and not changed:
            return
        count = "SELECT count(*) FROM passages WHERE id > ? AND vector IS NOT NULL"
        many = db.execute(count, (self._last,)).fetchone()[0]
        columns_N3 = np.zeros((many, 3))
        codes_ND = np.zeros((many, self._codes_ND.shape[1]), np.int8)
        found, at, last = db.execute(statement, (self._last,)), 0, self._last
        while block := found.fetchmany(READ):
            for row, *fields, crc in block:
                if passage_crc(*fields) != crc:
                    raise ValueError(f"passage {row}")
            last = block[-1][0]
            block = [one for one in block if one[5] is not None]
            columns_N3[at : at + len(block)] = [(row, document, scale) for row, document, _, _, scale, _, _ in block]
            codes_N = np.frombuffer(b"".join(fields[5] for fields in block), np.int8)
            codes_ND[at : at + len(block)] = codes_N.reshape(len(block), codes_ND.shape[1])
            at += len(block)
        self._rows_N = np.append(self._rows_N, columns_N3[:, 0].astype(np.int64))
        self._owner_N = np.append(self._owner_N, columns_N3[:, 1].astype(np.int64))
        self._scale_N = np.append(self._scale_N, columns_N3[:, 2].astype(np.float32))
        self._codes_ND = np.concatenate([self._codes_ND, codes_ND]) if len(self._codes_ND) else codes_ND
        self._last = last
        if db.execute(count, (0,)).fetchone()[0] != len(self._rows_N):
            left = [row for (row,) in db.execute("SELECT id FROM passages WHERE vector IS NOT NULL")]
            kept_N = np.isin(self._rows_N, np.array(left, np.int64))
            self._rows_N, self._owner_N = self._rows_N[kept_N], self._owner_N[kept_N]
            self._scale_N, self._codes_ND = self._scale_N[kept_N], self._codes_ND[kept_N]
        small = 4 * self._codes_ND.size <= MOST_FLOAT_BYTES
        self._floats_ND = self._codes_ND * self._scale_N[:, None] if small else None
        self.documents_M, self._starts_M = np.unique(self._owner_N, return_index=True)
        self._version = version

    def compare(self, query_D: NDArray[np.float32]) -> None:
        """Cosines of a unit vector with every passage, and of each document the highest."""
        if self._floats_ND is not None:
            self._cosine_N = self._floats_ND @ query_D
        else:
            self._cosine_N = np.empty(len(self._codes_ND), np.float32)
            for start in range(0, len(self._cosine_N), ROWS):
                block_RD = self._codes_ND[start : start + ROWS].astype(np.float32)
                self._cosine_N[start : start + ROWS] = block_RD @ query_D
            self._cosine_N *= self._scale_N
        one_each = len(self._starts_M) == len(self._cosine_N)
        self.best_M = self._cosine_N if one_each else np.maximum.reduceat(self._cosine_N, self._starts_M)

    def nearest(self, most: int, allowed: Iterable[int] | None) -> dict[int, float]:
        """The cosines of at most `most` of the nearest documents, of those `allowed`."""
        documents_M, best_M = self.documents_M, self.best_M
        if allowed is not None:
            kept_M = np.isin(documents_M, np.fromiter(allowed, np.int64))
            documents_M, best_M = documents_M[kept_M], best_M[kept_M]
        if most < len(best_M):
            near = np.argpartition(best_M, -most)[-most:]
            documents_M, best_M = documents_M[near], best_M[near]
        return dict(zip(documents_M.tolist(), best_M.tolist(), strict=True))

    def of(self, documents: Iterable[int]) -> dict[int, float]:
        """The cosines of those of `documents` that have a vector."""
        wanted = np.fromiter(documents, np.int64)
        at = np.searchsorted(self.documents_M, wanted)
        at[at == len(self.documents_M)] = 0
        found = self.documents_M[at] == wanted if len(self.documents_M) else np.zeros(len(wanted), np.bool_)
        return dict(zip(wanted[found].tolist(), self.best_M[at[found]].tolist(), strict=True))

    def best_passage(self, document: int) -> int | None:
        """The row of a document's nearest passage."""
        first, last = np.searchsorted(self._owner_N, [document, document + 1])
        return int(self._rows_N[first + self._cosine_N[first:last].argmax()]) if first < last else None
