"""The vectors of an index in memory: read from its file, compared with a query.

Shapes: N passages with a vector, M their documents, D width.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

READ = 4096  # passages per read
# Up to this size vectors are also kept as float32; larger ones are converted block by block per query.
MOST_FLOAT_BYTES = 2**30
ROWS = 256  # of such a block, which fits the processor's cache
FIELDS = struct.Struct("<qqqd")


class Passage(NamedTuple):
    """A part of a text, `[start:end]`, with its vector: int8 and a scale; None where the model cannot read it."""

    start: int
    end: int
    scale: float | None
    vector: bytes | None


def passage_crc(document: int, start: int, end: int, scale: float | None, vector: bytes | None) -> int:
    """The checksum of a passage's row."""
    return zlib.crc32(FIELDS.pack(document, start, end, scale or 0.0) + (vector or b""))


class PassageVectors:
    """Vectors of `width` dimensions of an index's passages, and their cosines with the query of `compare`."""

    def __init__(self, width: int) -> None:
        kind = [("row", np.int64), ("document", np.int64), ("scale", np.float32), ("codes", np.int8, (width,))]
        self._version, self._last, self._passages_N = -1, 0, np.zeros(0, kind)
        self.documents_M = self._starts_M = np.zeros(0, np.int64)
        self._cosine_N = self.best_M = np.zeros(0, np.float32)
        self._floats_ND: NDArray[np.float32] | None = None

    def refresh(self, db: sqlite3.Connection, statement: str, changed: bool) -> None:
        """Read new vectors, and drop those of removed passages, if this or another connection `changed` the file.

        Raises:
            ValueError: a wrong checksum.
        """
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version and not changed:
            return
        old_N, last, at = self._passages_N, self._last, 0
        count = "SELECT count(vector) FROM passages WHERE id > ?"
        new_N = np.zeros(db.execute(count, (last,)).fetchone()[0], old_N.dtype)
        found = db.execute(statement, (last,))
        while block := found.fetchmany(READ):
            for row, *fields, crc in block:
                if passage_crc(*fields) != crc:
                    raise ValueError(f"passage {row}")
            last = block[-1][0]
            block = [one for one in block if one[5] is not None]
            part_N = new_N[at : (at := at + len(block))]
            if columns := list(zip(*block, strict=True)):
                part_N["row"], part_N["document"], part_N["scale"] = columns[0], columns[1], columns[4]
                part_N["codes"] = np.frombuffer(b"".join(columns[5]), np.int8).reshape(part_N["codes"].shape)
        passages_N = np.concatenate([old_N, new_N]) if len(old_N) else new_N
        if db.execute(count, (0,)).fetchone()[0] != len(passages_N):
            left = [row for (row,) in db.execute("SELECT id FROM passages WHERE vector IS NOT NULL")]
            passages_N = passages_N[np.isin(passages_N["row"], np.array(left, np.int64))]
        codes_ND = passages_N["codes"]
        self._floats_ND = codes_ND * passages_N["scale"][:, None] if 4 * codes_ND.size <= MOST_FLOAT_BYTES else None
        self.documents_M, self._starts_M = np.unique(passages_N["document"], return_index=True)
        self._version, self._passages_N, self._last = version, passages_N, last

    def compare(self, query_D: NDArray[np.float32]) -> None:
        """Cosines of a unit vector with every passage, and of each document the highest."""
        if self._floats_ND is not None:
            self._cosine_N = self._floats_ND @ query_D
        else:
            self._cosine_N = np.empty(len(self._passages_N), np.float32)
            floats_RD = np.empty((ROWS, len(query_D)), np.float32)
            for start in range(0, len(self._cosine_N), ROWS):
                codes_RD = self._passages_N["codes"][start : start + ROWS]
                part_RD = floats_RD[: len(codes_RD)]
                part_RD[...] = codes_RD
                np.dot(part_RD, query_D, out=self._cosine_N[start : start + ROWS])
            self._cosine_N *= self._passages_N["scale"]
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

    def cosines_of(self, document: int) -> dict[int, float]:
        """The cosines of a document's passages that have a vector, by row."""
        position = int(np.searchsorted(self.documents_M, document))
        if position == len(self.documents_M) or self.documents_M[position] != document:
            return {}
        first, last = [*self._starts_M[position : position + 2].tolist(), len(self._cosine_N)][:2]
        rows_N = self._passages_N["row"][first:last]
        return dict(zip(rows_N.tolist(), self._cosine_N[first:last].tolist(), strict=True))
