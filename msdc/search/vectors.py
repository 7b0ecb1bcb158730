"""The vectors of an index in memory: the blocks of its file, compared with a query.

Shapes: N passages with a vector, M their documents, R passages that are converted together, D width.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from msdc.scores import unit_rows
from msdc.search.blocks import read_blocks
from msdc.search.ranking import sql

# Passages that are converted to float32 together. Copies would take four times the memory and save a tenth of the time.
ROWS = 2048


class _Span(NamedTuple):
    """Where the passages of a block are."""

    crc: int
    start: int
    stop: int


class PassageVectors:
    """Vectors of an index's passages, of the width of its blocks, and their cosines with the query of `compare`."""

    def __init__(self) -> None:
        kind = [("passage", np.int64), ("document", np.int64), ("scale", np.float32)]
        self._version, self._spans, self._passages_N = -1, dict[int, _Span](), np.zeros(0, kind)
        self._codes_ND = np.zeros((0, 0), np.int8)
        self.documents_M = self._starts_M = np.zeros(0, np.int64)
        self._cosine_N = self.best_M = np.zeros(0, np.float32)

    def refresh(self, db: sqlite3.Connection, changed: bool) -> None:
        """Read new blocks, and drop removed ones, if this or another connection `changed` the file.

        Raises:
            ValueError: a wrong checksum.
        """
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version and not changed:
            return
        rows = db.execute(sql("block_checksums")).fetchall()
        spans, stop, width = dict[int, _Span](), 0, rows[0][3] if rows else 0
        for row, crc, count, _ in rows:
            spans[row] = _Span(crc, stop, stop := stop + count)
        if width != self._codes_ND.shape[1]:  # another model's
            self._spans = {}
        passages_N = np.empty(stop, self._passages_N.dtype)
        codes_ND = np.empty((stop, width), np.int8)
        for row, span in spans.items():
            part, former = slice(span.start, span.stop), self._spans.get(row)
            if former is not None and former.crc == span.crc:
                passages_N[part] = self._passages_N[former.start : former.stop]
                codes_ND[part] = self._codes_ND[former.start : former.stop]
                continue
            (block,) = read_blocks(db, "block", row)
            if block.codes_ND.shape != codes_ND[part].shape:
                raise ValueError(f"the vectors of block {row}")
            own_N = passages_N[part]
            own_N["passage"], own_N["document"], own_N["scale"] = block.passages_N, block.documents_N, block.scales_N
            codes_ND[part] = block.codes_ND
        steps_N = np.diff(passages_N["document"], prepend=0)
        if (steps_N < 0).any() or (np.diff(passages_N["passage"]) <= 0).any():
            raise ValueError("passages in another order")
        self._starts_M = np.flatnonzero(steps_N)
        self.documents_M = passages_N["document"][self._starts_M]
        self._version, self._spans, self._passages_N, self._codes_ND = version, spans, passages_N, codes_ND

    def compare(self, query_D: NDArray[np.float32]) -> None:
        """Cosines of a unit vector with every passage, and of each document the highest.

        Raises:
            ValueError: vectors of another width.
        """
        if len(self._codes_ND) and self._codes_ND.shape[1] != len(query_D):
            raise ValueError("the width of its vectors")
        self._cosine_N = np.empty(len(self._passages_N), np.float32)
        floats_RD = np.empty((ROWS, len(query_D)), np.float32)
        for start in range(0, len(self._cosine_N), ROWS):
            codes_RD = self._codes_ND[start : start + ROWS]
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
        asked = np.fromiter(documents, np.int64)
        positions = np.searchsorted(self.documents_M, asked)
        positions[positions == len(self.documents_M)] = 0
        present = self.documents_M[positions] == asked if len(self.documents_M) else np.zeros(len(asked), np.bool_)
        return dict(zip(asked[present].tolist(), self.best_M[positions[present]].tolist(), strict=True))

    def cosines_of(self, document: int) -> dict[int, float]:
        """The cosines of a document's passages that have a vector, by row."""
        part = self._part(document)
        rows_N = self._passages_N["passage"][part]
        return dict(zip(rows_N.tolist(), self._cosine_N[part].tolist(), strict=True))

    def mean_of(self, document: int) -> NDArray[np.float32] | None:
        """The mean of a document's vectors, of length 1; None if it has none."""
        part = self._part(document)
        if part.start == part.stop:
            return None
        mean_D = (self._codes_ND[part] * self._passages_N["scale"][part, None].astype(np.float64)).mean(0)
        return np.asarray(unit_rows(mean_D[None])[0], np.float32)

    def _part(self, document: int) -> slice:
        """Which passages are those of a document."""
        position = int(np.searchsorted(self.documents_M, document))
        if position == len(self.documents_M) or self.documents_M[position] != document:
            return slice(0, 0)
        return slice(*[*self._starts_M[position : position + 2].tolist(), len(self._codes_ND)][:2])
