"""The vectors of an index in memory: the blocks of its file, compared with a query.

In a large index a first pass compares the signs of all vectors, and only the nearest by these are compared exactly.

Shapes: N passages with a vector, M their documents, R passages compared together, D width, S words of 64 signs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from msdc.scores import unit_rows
from msdc.search.blocks import MOST, read_blocks
from msdc.search.ranking import sql

# Passages that are converted to float32 together. Copies would take four times the memory and save a tenth of the time.
ROWS = 2048
SIGN_COLUMNS = 2**14  # passages whose signs are compared together
# The first pass leaves so many passages per document that is asked for, and at least this share of all; there is none
# if that is over a quarter. Of 25,000 to a million sentences in many languages it misses none of the 10 nearest of a
# query, and at most 5 % of the 1,000 nearest, which decide nothing but the last pages.
NEAR, NEAR_SHARE = 5, 1 / 32
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
        self._all_signs: NDArray[np.uint64] | None = None  # S x size, of the first pass; None until it is needed
        self._documents_M = self._starts_M = np.zeros(0, np.int64)
        self._query_D = np.zeros(0, np.float32)
        self._cosine_N: NDArray[np.float32] | None = None  # of the query with all, once they were compared

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
        self._all_passages, self._all_codes, self._all_signs = passages, codes, None
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
        if self._all_signs is not None:
            self._all_signs[:, start : span.stop] = _signs(self._all_codes[start : span.stop]).T

    def _find_documents(self, start: int, stop: int) -> None:
        """Find where documents start, of which rows of `start:stop` have changed."""
        before = max(start - 1, 0)
        near_N = self._passages_N[before : stop + 1]
        steps_N = np.diff(near_N["document"])
        if (steps_N < 0).any() or (np.diff(near_N["passage"]) < 0).any():
            raise ValueError("passages in another order")
        starts = before + 1 + np.flatnonzero(steps_N)
        if not start and len(near_N):
            starts = np.concatenate([[0], starts])
        low, high, end = np.searchsorted(self._starts_M, [start, stop + 1, len(self._passages_N)])
        documents = self._passages_N["document"][starts]
        after = slice(high, max(high, end))  # unchanged
        self._starts_M = np.concatenate([self._starts_M[:low], starts, self._starts_M[after]])
        self._documents_M = np.concatenate([self._documents_M[:low], documents, self._documents_M[after]])

    def compare(self, query_D: NDArray[np.float32]) -> None:
        """Take a unit vector as the query of the cosines.

        Raises:
            ValueError: vectors of another width.
        """
        if len(self._codes_ND) and self._codes_ND.shape[1] != len(query_D):
            raise ValueError("the width of its vectors")
        self._query_D, self._cosine_N = query_D, None

    def nearest(self, most: int, allowed: Iterable[int] | None) -> dict[int, float]:
        """The cosines of at most `most` of the nearest documents, of those `allowed`."""
        positions = self._near(most) if allowed is None else None
        if positions is None:
            self._cosine_N = self._cosines(slice(0, len(self._codes_ND)))
            best_M = self._cosine_N
            if len(self._starts_M) < len(best_M):
                best_M = np.maximum.reduceat(best_M, self._starts_M)
            positions = np.arange(len(best_M))
            if allowed is not None:
                positions = np.flatnonzero(np.isin(self._documents_M, np.fromiter(allowed, np.int64)))
            if most < len(positions):
                positions = positions[np.argpartition(best_M[positions], -most)[-most:]]
        return self._best(positions)

    def of(self, documents: Iterable[int]) -> dict[int, float]:
        """The cosines of those of `documents` that have a vector."""
        asked = np.fromiter(documents, np.int64)
        positions = np.searchsorted(self._documents_M, asked)
        positions[positions == len(self._documents_M)] = 0
        present = self._documents_M[positions] == asked if len(self._documents_M) else np.zeros(len(asked), np.bool_)
        return self._best(positions[present])

    def _cosines(self, rows: slice | NDArray[np.int64]) -> NDArray[np.float32]:
        """Cosines of the query with passages."""
        if self._cosine_N is not None:
            return self._cosine_N[rows]
        scales = self._passages_N["scale"][rows]
        cosines = np.empty(len(scales), np.float32)
        floats_RD = np.empty((min(ROWS, len(scales)), len(self._query_D)), np.float32)
        for start in range(0, len(cosines), ROWS):
            part = slice(start, start + ROWS)
            codes_RD = self._codes_ND[rows][part] if isinstance(rows, slice) else self._codes_ND[rows[part]]
            part_RD = floats_RD[: len(codes_RD)]
            part_RD[...] = codes_RD
            np.dot(part_RD, self._query_D, out=cosines[part])
        cosines *= scales
        return cosines

    def _best(self, positions: NDArray[np.int64]) -> dict[int, float]:
        """The highest cosine of documents, by their positions among all."""
        if not len(positions):
            return {}
        starts = self._starts_M[positions]
        counts = np.append(self._starts_M, len(self._codes_ND))[positions + 1] - starts
        ends = np.cumsum(counts)
        rows = np.arange(ends[-1]) + np.repeat(starts - ends + counts, counts)
        best = np.maximum.reduceat(self._cosines(rows), ends - counts)
        return dict(zip(self._documents_M[positions].tolist(), best.tolist(), strict=True))

    def _near(self, most: int) -> NDArray[np.int64] | None:
        """The positions of at most `most` documents with the nearest passages, found by the signs of the vectors; None
        if it is better to compare all."""
        count = len(self._codes_ND)
        near = max(NEAR * most, int(NEAR_SHARE * count))
        if 4 * near > count or not hasattr(np, "bitwise_count"):  # NumPy 1
            return None
        if self._all_signs is None:
            self._all_signs = np.empty((-(-len(self._query_D) // 64), len(self._all_codes)), np.uint64)
            for start in range(0, count, SIGN_COLUMNS):
                codes_RD = self._codes_ND[start : start + SIGN_COLUMNS]
                self._all_signs[:, start : start + len(codes_RD)] = _signs(codes_RD).T
        distance_N = np.zeros(count, np.uint16)
        for start in range(0, count, SIGN_COLUMNS):
            distance_R = distance_N[start : start + SIGN_COLUMNS]
            for signs_R, word in zip(
                self._all_signs[:, start : start + len(distance_R)], _signs(self._query_D), strict=True
            ):
                distance_R += np.bitwise_count(signs_R ^ word)
        limit = np.searchsorted(np.cumsum(np.bincount(distance_N)), near)
        rows = np.flatnonzero(distance_N <= limit)
        cosines = self._cosines(rows)
        of_rows = np.searchsorted(self._starts_M, rows, "right") - 1
        changes = np.flatnonzero(np.diff(of_rows, prepend=-1))
        positions, best = of_rows[changes], np.maximum.reduceat(cosines, changes)
        if len(positions) < most:
            return None
        return positions[np.argpartition(best, -most)[-most:]] if most < len(best) else positions

    def cosines_of(self, document: int) -> dict[int, float]:
        """The cosines of a document's passages that have a vector, by row."""
        part = self._part(document)
        rows_N = self._passages_N["passage"][part]
        return dict(zip(rows_N.tolist(), self._cosines(part).tolist(), strict=True))

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
        position = int(np.searchsorted(self._documents_M, document))
        if position == len(self._documents_M) or self._documents_M[position] != document:
            return slice(0, 0)
        return slice(*[*self._starts_M[position : position + 2].tolist(), len(self._codes_ND)][:2])


def _signs(vectors: NDArray[Any]) -> NDArray[np.uint64]:
    """Whether each number of vectors is below 0, in bits: ... x D to ... x S."""
    bytes_of = np.packbits(vectors < 0, axis=-1)
    padding = [(0, 0)] * (vectors.ndim - 1) + [(0, -bytes_of.shape[-1] % 8)]
    return np.ascontiguousarray(np.pad(bytes_of, padding)).view(np.uint64)


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
