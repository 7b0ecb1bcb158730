"""The vectors of an index in memory: the blocks of its file, compared with a query.

Shapes: N passages with a vector, M their documents, R passages that are converted together, D width.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from msdc.scores import unit_rows
from msdc.search.blocks import MOST, read_blocks
from msdc.search.ranking import sql

# Passages that are converted to float32 together. Copies would take four times the memory and save a tenth of the time.
ROWS = 2048
SPARE = 8  # of so many passages there is room for one more, and at most one may be a gap


class _Span(NamedTuple):
    """Where the passages of a block are: `passages` rows from `start`; up to `stop` the last of them again."""

    crc: int
    start: int
    passages: int
    stop: int


class PassageVectors:
    """Vectors of an index's passages, of the width of its blocks, and their cosines with the query of `compare`.

    The arrays have room for further blocks, and a block that loses passages stays where it is: copies of its last one
    fill the gap, which changes no highest cosine. So a write costs what it changes, not a copy of all vectors.
    """

    def __init__(self) -> None:
        kind = [("passage", np.int64), ("document", np.int64), ("scale", np.float32)]
        self._state, self._spans = (-1, -1), dict[int, _Span]()
        # With the room behind the N passages.
        self._all_passages, self._all_codes = np.zeros(0, kind), np.zeros((0, 0), np.int8)
        self._passages_N, self._codes_ND = self._all_passages, self._all_codes
        self.documents_M = self._starts_M = np.zeros(0, np.int64)
        self._cosine_N = self.best_M = np.zeros(0, np.float32)

    def refresh(self, db: sqlite3.Connection) -> None:
        """Read new blocks, and drop removed ones, if this or another connection changed the file.

        Raises:
            ValueError: a wrong checksum.
        """
        state = db.execute("PRAGMA data_version").fetchone()[0], db.total_changes
        if state == self._state:
            return
        rows = db.execute(sql("block_checksums")).fetchall()
        former, self._spans = self._spans, {}  # an error leaves none: all are read again
        if (width := rows[0][3] if rows else 0) != self._all_codes.shape[1]:  # another model's
            former, self._all_codes = {}, np.zeros((0, width), np.int8)
        spans = _in_place(rows, former, len(self._all_codes))
        moved = spans is None
        if spans is None:
            former = self._move(rows, former)
            spans = _in_place(rows, former, len(self._all_codes)) or {}
        changed = [row for row, span in spans.items() if span != former.get(row)]
        for row in changed:
            self._fill(db, row, spans[row], former.get(row))
        stop = max((span.stop for span in spans.values()), default=0)
        self._passages_N, self._codes_ND = self._all_passages[:stop], self._all_codes[:stop]
        if moved or not changed:
            self._find_documents(0 if moved else stop, stop)
        else:
            self._find_documents(spans[changed[0]].start, spans[changed[-1]].stop)
        self._state, self._spans = state, spans

    def _move(self, rows: Sequence[tuple[int, int, int, int]], former: Mapping[int, _Span]) -> dict[int, _Span]:
        """Put the blocks that have not changed into arrays with more room, one after another; returns their spans."""
        count = sum(count for _, _, count, _ in rows)
        size = count + count // SPARE + MOST
        passages = np.empty(size, self._all_passages.dtype)
        codes = np.empty((size, self._all_codes.shape[1]), np.int8)
        spans, stop = dict[int, _Span](), 0
        for row, crc, count, _ in rows:
            start, stop = stop, stop + count
            span = former.get(row)
            if span is not None and (span.crc, span.passages) == (crc, count):
                passages[start:stop] = self._all_passages[span.start : span.start + count]
                codes[start:stop] = self._all_codes[span.start : span.start + count]
                spans[row] = _Span(crc, start, count, stop)
        self._all_passages, self._all_codes = passages, codes
        return spans

    def _fill(self, db: sqlite3.Connection, row: int, span: _Span, former: _Span | None) -> None:
        """Put a block that has changed, or the gap behind it, into the arrays."""
        start, end = span.start, span.start + span.passages
        if former is None or (former.crc, former.passages) != (span.crc, span.passages):
            (block,) = read_blocks(db, "block", row)
            if block.codes_ND.shape != self._all_codes[start:end].shape:
                raise ValueError(f"the vectors of block {row}")
            if (np.diff(block.passages_N) <= 0).any():
                raise ValueError("passages in another order")
            part_N = self._all_passages[start:end]
            part_N["passage"], part_N["document"], part_N["scale"] = block.passages_N, block.documents_N, block.scales_N
            self._all_codes[start:end] = block.codes_ND
        self._all_passages[end : span.stop] = self._all_passages[end - 1]
        self._all_codes[end : span.stop] = self._all_codes[end - 1]

    def _find_documents(self, start: int, stop: int) -> None:
        """Find where documents start, of which rows of `start:stop` have changed."""
        first = max(start - 1, 0)
        near_N = self._passages_N[first : stop + 1]
        steps_N = np.diff(near_N["document"])
        if (steps_N < 0).any() or (np.diff(near_N["passage"]) < 0).any():
            raise ValueError("passages in another order")
        starts = first + 1 + np.flatnonzero(steps_N)
        if not start and len(near_N):
            starts = np.concatenate([[0], starts])
        low, high, end = np.searchsorted(self._starts_M, [start, stop + 1, len(self._passages_N)])
        documents = self._passages_N["document"][starts]
        after = slice(high, max(high, end))  # unchanged
        self._starts_M = np.concatenate([self._starts_M[:low], starts, self._starts_M[after]])
        self.documents_M = np.concatenate([self.documents_M[:low], documents, self.documents_M[after]])

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
        _, first_rows = np.unique(self._passages_N["passage"][part], return_index=True)
        mean_D = (
            self._codes_ND[part][first_rows] * self._passages_N["scale"][part][first_rows, None].astype(np.float64)
        ).mean(0)
        return np.asarray(unit_rows(mean_D[None])[0], np.float32)

    def _part(self, document: int) -> slice:
        """Which passages are those of a document."""
        position = int(np.searchsorted(self.documents_M, document))
        if position == len(self.documents_M) or self.documents_M[position] != document:
            return slice(0, 0)
        return slice(*[*self._starts_M[position : position + 2].tolist(), len(self._codes_ND)][:2])


def _in_place(
    rows: Sequence[tuple[int, int, int, int]], former: Mapping[int, _Span], size: int
) -> dict[int, _Span] | None:
    """The spans of blocks (`block_checksums`) that stay where they were, new ones behind them; None if they do not fit
    in arrays of a size, or leave large gaps."""
    starts, stop, count = list[int](), 0, sum(count for _, _, count, _ in rows)
    for row, _, passages, _ in rows:
        start = former[row].start if row in former else stop
        if start < stop or (start and not starts):
            return None
        starts.append(start)
        stop = start + passages
    if stop > size or stop - count > count // SPARE:
        return None
    ends = [*starts, stop][1:]
    return {
        row: _Span(crc, start, passages, end)
        for (row, crc, passages, _), start, end in zip(rows, starts, ends, strict=True)
    }
