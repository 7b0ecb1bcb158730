"""The vectors of an index in memory: the blocks of its file, compared with a query.

Shapes: N passages with a vector, M their documents, R passages of a block, D width.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from msdc.search.blocks import MOST, Block, read_blocks
from msdc.search.ranking import sql


class PassageVectors:
    """Vectors of `width` dimensions of an index's passages, and their cosines with the query of `compare`."""

    def __init__(self, width: int) -> None:
        self._version, self._width, self._blocks = -1, width, dict[int, Block]()
        self._passages_N = self.documents_M = self._starts_M = np.zeros(0, np.int64)
        self._scales_N = self._cosine_N = self.best_M = np.zeros(0, np.float32)

    def refresh(self, db: sqlite3.Connection, changed: bool) -> None:
        """Read new blocks, and drop removed ones, if this or another connection `changed` the file.

        Raises:
            ValueError: a wrong checksum.
        """
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version and not changed:
            return
        blocks = dict[int, Block]()
        for row, crc in db.execute(sql("block_checksums")).fetchall():
            block = self._blocks.get(row)
            if block is None or block.crc != crc:
                (block,) = read_blocks(db, "block", row)
            if block.codes_ND.shape[1] != self._width:
                raise ValueError(f"the vectors of block {row}")
            blocks[row] = block
        found = blocks.values()
        empty = np.zeros(0, np.int64)
        self._passages_N = np.concatenate([empty, *(block.passages_N for block in found)])
        self._scales_N = np.concatenate([np.zeros(0, np.float32), *(block.scales_N for block in found)])
        documents_N = np.concatenate([empty, *(block.documents_N for block in found)])
        steps_N = np.diff(documents_N, prepend=0)
        if (steps_N < 0).any() or (np.diff(self._passages_N) <= 0).any():
            raise ValueError("passages in another order")
        self._starts_M = np.flatnonzero(steps_N)
        self.documents_M = documents_N[self._starts_M]
        self._version, self._blocks = version, blocks

    def compare(self, query_D: NDArray[np.float32]) -> None:
        """Cosines of a unit vector with every passage, and of each document the highest."""
        self._cosine_N = np.empty(len(self._passages_N), np.float32)
        floats_RD = np.empty((MOST, len(query_D)), np.float32)  # in the processor's cache
        start = 0
        for block in self._blocks.values():
            part_RD = floats_RD[: len(block.codes_ND)]
            part_RD[...] = block.codes_ND
            np.dot(part_RD, query_D, out=self._cosine_N[start : (start := start + len(part_RD))])
        self._cosine_N *= self._scales_N
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
        rows_N = self._passages_N[first:last]
        return dict(zip(rows_N.tolist(), self._cosine_N[first:last].tolist(), strict=True))
