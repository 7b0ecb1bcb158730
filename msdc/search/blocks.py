"""The vectors of passages in the file of an index: blocks of up to 256, with one checksum each.

A block keeps the order of the passages' numbers, and so do the blocks: new passages fill the last one, and a removed
document leaves a gap in none, since its blocks are written again without it.

Shapes: N passages of a block, D width.
"""

from __future__ import annotations

import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from msdc.search.ranking import run_all, sql

MOST = 256  # passages of a block
FIELDS = struct.Struct("<qqqd")


class Passage(NamedTuple):
    """A part of a text, `[start:end]`, with its vector: int8 and a scale; None where the model cannot read it."""

    start: int
    end: int
    scale: float | None
    vector: bytes | None


def passage_crc(document: int, start: int, end: int, scale: float | None = None, vector: bytes | None = None) -> int:
    """The checksum of a passage."""
    return zlib.crc32(FIELDS.pack(document, start, end, scale or 0.0) + (vector or b""))


class Block(NamedTuple):
    """A row of the table `blocks`: the number and the document of each passage, its scale and its vector."""

    row: int
    crc: int
    passages_N: NDArray[np.int64]
    documents_N: NDArray[np.int64]
    scales_N: NDArray[np.float32]
    codes_ND: NDArray[np.int8]

    @classmethod
    def of(cls, row: int, columns: Sequence[bytes], crc: int | None = None) -> Self:
        """The block of its columns, whose checksum is compared with `crc`. The arrays share the memory of `columns`.

        Raises:
            ValueError: another checksum, or columns that do not fit.
        """
        checksum = 0
        for column in columns:
            checksum = zlib.crc32(column, checksum)
        if crc not in (None, checksum):
            raise ValueError(f"the vectors of block {row}")
        passages_N, documents_N = (np.frombuffer(column, "<i8") for column in columns[:2])
        scales_N = np.frombuffer(columns[2], "<f4")
        codes_ND = np.frombuffer(columns[3], np.int8).reshape(len(passages_N), -1)
        if not len(passages_N) == len(documents_N) == len(scales_N):
            raise ValueError(f"the vectors of block {row}")
        return cls(row, checksum, passages_N, documents_N, scales_N, codes_ND)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The columns."""
        return self.passages_N, self.documents_N, self.scales_N, self.codes_ND

    def passage(self, number: int, start: int, end: int) -> Passage:
        """The passage of a number.

        Raises:
            ValueError: it is not in the block.
        """
        position = int(np.searchsorted(self.passages_N, number))
        if position == len(self.passages_N) or self.passages_N[position] != number:
            raise ValueError(f"the vector of passage {number}")
        return Passage(start, end, float(self.scales_N[position]), self.codes_ND[position].tobytes())


def read_blocks(db: sqlite3.Connection, statement: str, *arguments: object) -> list[Block]:
    """The blocks of a statement of search.sql."""
    return [Block.of(row, columns, crc) for row, crc, *columns in db.execute(sql(statement), arguments)]


def _write(db: sqlite3.Connection, row: int, columns: Sequence[bytes | bytearray]) -> None:
    stored = [bytes(column) for column in columns]
    db.execute(sql("write_block"), (row, Block.of(row, stored).crc, *stored))


def add_passages(db: sqlite3.Connection, passages: Iterable[tuple[int, Passage]]) -> None:
    """Write passages of (document, passage), whose vectors fill the last block and further ones."""
    row, columns = 1, [bytearray() for _ in range(4)]
    for last in read_blocks(db, "last_block"):
        row = last.row
        columns = [bytearray(array.tobytes()) for array in last.arrays]
    changed = False
    for document, part in passages:
        if len(columns[0]) == 8 * MOST and part.vector is not None:
            if changed:
                _write(db, row, columns)
            row, columns = row + 1, [bytearray() for _ in range(4)]
        block = None if part.vector is None else row
        crc = passage_crc(document, part.start, part.end)
        number = db.execute(sql("add_passage"), (document, part.start, part.end, block, crc)).lastrowid
        if part.vector is not None:
            values = struct.pack("<q", number), struct.pack("<q", document), struct.pack("<f", part.scale), part.vector
            for column, value in zip(columns, values, strict=True):
                column += value
            changed = True
    if changed:
        _write(db, row, columns)


def remove_documents(db: sqlite3.Connection, keys: str) -> int:
    """Remove the documents of keys (JSON), with their words, passages and vectors; returns their number."""
    removed: dict[int, list[int]] = {}
    for document, row in db.execute(sql("blocks_of"), (keys,)):
        removed.setdefault(row, []).append(document)
    for row, documents in removed.items():
        (block,) = read_blocks(db, "block", row)
        left_N = ~np.isin(block.documents_N, documents)
        if left_N.any():
            _write(db, row, [array[left_N].tobytes() for array in block.arrays])
        else:
            db.execute(sql("remove_block"), (row,))
    return db.execute(sql("remove"), (keys,)).rowcount


def check_passages(db: sqlite3.Connection) -> None:
    """Compare all passages and blocks with their checksums.

    Raises:
        ValueError: a wrong one.
    """
    for number, *fields, crc in db.execute(sql("check_passages")):
        if passage_crc(*fields) != crc:
            raise ValueError(f"passage {number}")
    for row, crc, *columns in db.execute(sql("blocks")):
        Block.of(row, columns, crc)


def replace_passages(db: sqlite3.Connection) -> None:
    """Put the passages of the table `rebuilt` in the place of all others.

    Raises:
        ValueError: a wrong checksum.
    """

    def rebuilt() -> Iterator[tuple[int, Passage]]:
        for document, *fields, crc in db.execute(sql("rebuilt")):
            if passage_crc(document, *fields) != crc:
                raise ValueError(f"a new passage of document {document}")
            yield document, Passage(*fields)

    run_all(db, "begin_finish")
    add_passages(db, rebuilt())
    run_all(db, "finish_rebuild")
