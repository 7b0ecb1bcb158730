"""Text columns of parquet files, in bounded memory.

The footer of a file states the unpacked size of its columns, but the library allocates what the header of each page
says. So the page headers are read first: they are what is bounded.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.extras import require
from msdc.files import regular_size
from msdc.text.tabular import MAX_LINE_BYTES, Numbered, Table, take_sample

# Of the two text columns of one row group, unpacked.
MAX_GROUP_BYTES = 1 << 30
# Of one page, unpacked; writers make pages of 1 MiB, a few of 100 MB.
MAX_PAGE_BYTES = 128 << 20
# What a batch of rows may hold: a value is inside one page.
BATCH_BYTES, BATCH_ROWS = 64 << 20, 1024
# Files of old versions of parquet-mr state a column's length too short by up to so many bytes; the library reads on.
OLD_WRITER, OLD_WRITER_BYTES = "parquet-mr", 100
DICTIONARY_PAGE = 2
_MAX_DEPTH = 8


class _Thrift:
    """Reads structures in Thrift's compact protocol, as page headers are."""

    def __init__(self, raw: Any, at: int) -> None:
        self.raw = raw
        self.at = at

    def _byte(self) -> int:
        value: int = self.raw[self.at]
        self.at += 1
        return value

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value
            if shift > 63:
                raise ValueError("a number of more than 64 bits")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _skip(self, kind: int, depth: int, element: bool = False) -> None:
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        if kind in (1, 2):
            self.at += element  # a field's truth value is in its type
        elif kind == 3:
            self.at += 1
        elif kind in (4, 5, 6):
            self._varint()
        elif kind == 7:
            self.at += 8
        elif kind == 8:
            length = self._varint()
            self.at += length
        elif kind in (9, 10):
            head = self._byte()
            count = head >> 4 if head >> 4 != 15 else self._varint()
            if count > len(self.raw) - self.at:
                raise ValueError("a list longer than the file")
            for _ in range(count):
                self._skip(head & 15, depth + 1, element=True)
        elif kind == 12:
            self.integers(depth + 1)
        else:
            raise ValueError(f"type {kind}")

    def integers(self, depth: int = 0) -> dict[int, int]:
        """The integers of a structure by field number; everything else is skipped."""
        found = {}
        field = 0
        while head := self._byte():
            kind = head & 15
            field = field + (head >> 4) if head >> 4 else self._integer()
            if kind in (4, 5, 6):
                found[field] = self._integer()
            else:
                self._skip(kind, depth)
        return found


def page_sizes(raw: Any, start: int, end: int) -> Iterator[tuple[int, bool]]:
    """Unpacked size of each page of a column chunk at bytes `start` to `end` of a file, and whether it is a dictionary.

    Raises:
        ValueError: not a sequence of pages.
    """
    if not 0 <= start <= end <= len(raw):
        raise ValueError("a column outside the file")
    while start < end:
        header = _Thrift(raw, start)
        try:
            fields = header.integers()
            unpacked, packed = fields[2], fields[3]
        except (IndexError, KeyError, ValueError) as error:
            raise ValueError("a damaged page header") from error
        if unpacked < 0 or packed < 0:
            raise ValueError("a page of a negative size")
        yield unpacked, fields.get(1) == DICTIONARY_PAGE
        start = header.at + packed


def _check_group(path: Path, raw: Any, metadata: Any, group: int, chosen: list[str]) -> tuple[int, int]:
    """Sizes of the largest page of values and of the largest dictionary of the chosen columns.

    Raises:
        InputError: more than is allowed, or not a parquet file.
    """
    total = 0
    largest = [0, 0]
    row_group = metadata.row_group(group)
    for column in (row_group.column(at) for at in range(metadata.num_columns)):
        if column.path_in_schema.split(".")[0] not in chosen:
            continue
        start = column.data_page_offset
        if column.has_dictionary_page and 0 < column.dictionary_page_offset < start:
            start = column.dictionary_page_offset
        end = start + column.total_compressed_size
        if OLD_WRITER in str(metadata.created_by):
            end = min(len(raw), end + OLD_WRITER_BYTES)
        pages = page_sizes(raw, start, end)
        while True:
            try:
                page = next(pages, None)
            except ValueError as error:
                if total and OLD_WRITER in str(metadata.created_by):
                    break  # what follows the column need not be a page
                raise InputError(f"{path}: damaged parquet file in row group {group} ({error})") from error
            if page is None:
                break
            size, is_dictionary = page
            total += size
            largest[is_dictionary] = max(largest[is_dictionary], size)
            if size > MAX_PAGE_BYTES:
                limit = f"more than the {MAX_PAGE_BYTES >> 20} MiB allowed"
                raise InputError(f"{path}: row group {group} has a page of {size} bytes, {limit}")
            if total > MAX_GROUP_BYTES:
                limit = f"more than the {MAX_GROUP_BYTES >> 20} MiB allowed"
                raise InputError(f"{path}: row group {group} holds {total} bytes of text, {limit}")
    return largest[False], largest[True]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


class _Texts:
    """Values of the batches of one column; equal ones of a dictionary are one Python string."""

    def __init__(self) -> None:
        self._dictionary: Any = None
        self._values: list[object] = []

    def of(self, column: Any) -> list[object]:
        """The values of a batch."""
        if not hasattr(column, "dictionary"):
            return list(column.to_pylist())
        # A large dictionary belongs to many batches: its texts are made once.
        if self._dictionary is None or not self._dictionary.equals(column.dictionary):
            self._dictionary, self._values = column.dictionary, []
            self._values = column.dictionary.to_pylist()
        return [None if at is None else self._values[at] for at in column.indices.to_pylist()]


def text_names(schema: Any) -> list[str]:
    """Columns of text, those inside a struct as `outer.inner`."""
    import pyarrow.types as types

    def is_text(kind: Any) -> bool:
        kind = kind.value_type if types.is_dictionary(kind) else kind
        return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))

    names = []
    for field in schema:
        if types.is_struct(field.type):
            names += [f"{field.name}.{inner.name}" for inner in field.type if is_text(inner.type)]
        elif is_text(field.type):
            names.append(field.name)
    return names


def column_of(batch: Any, name: str) -> Any:
    """A column of a batch, or one inside a struct column (`outer.inner`)."""
    import pyarrow.compute as pc

    if name in batch.schema.names:
        return batch.column(name)
    outer, inner = name.split(".", 1)
    column = batch.column(outer)
    return pc.struct_field(column, inner)


def open_parquet(path: Path, integers: bool = False) -> Table:
    """The text columns of a parquet file; with `integers` also those of whole numbers, as labels are.

    Raises:
        InputError: not a parquet file, or without a text column.
    """
    require("pyarrow", "a parquet file")
    import pyarrow as pa
    import pyarrow.parquet as pq

    regular_size(path)
    try:
        schema = pq.ParquetFile(path).schema_arrow
        names = text_names(schema)
        numbers = [field.name for field in schema if pa.types.is_integer(field.type)] if integers else []
    except Exception as error:
        raise InputError(f"{path}: not a parquet file ({_first_line(error)})") from error
    if not names:
        raise InputError(f"{path}: no text column (has {', '.join(schema.names)[:200]})")
    names += numbers

    def batches(chosen: list[str]) -> Iterator[list[list[object]]]:
        # Dictionaries are kept as such: one text of a megabyte, named by 8,192 rows, would be written out 8,192 times.
        plain = [name for name in chosen if name in schema.names and name not in numbers]
        file = pq.ParquetFile(path, read_dictionary=plain)
        kept = len(plain) == len([name for name in chosen if name not in numbers]) and all(
            hasattr(file.schema_arrow.field(name).type, "value_type") for name in plain
        )
        texts = [_Texts() for _ in chosen]
        for group in range(file.metadata.num_row_groups):
            with open(path, "rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as raw:
                tops = [name if name in schema.names else name.split(".", 1)[0] for name in chosen]
                value, dictionary = _check_group(path, raw, file.metadata, group, tops)
            largest = max(1, value, 0 if kept else dictionary)
            rows = min(BATCH_ROWS, max(1, BATCH_BYTES // largest))
            for batch in file.iter_batches(batch_size=rows, columns=chosen, row_groups=[group]):
                yield [one.of(column_of(batch, name)) for one, name in zip(texts, chosen, strict=True)]

    def read(columns: Sequence[int]) -> Iterator[Numbered]:
        number = 0
        found = batches([names[column] for column in columns])
        while True:
            try:
                cells = next(found, None)
            except InputError:
                raise
            except Exception as error:
                raise InputError(f"{path}: damaged parquet file after row {number} ({_first_line(error)})") from error
            if cells is None:
                return
            for row in zip(*cells, strict=True):
                number += 1
                yield number, [cell[:MAX_LINE_BYTES] if isinstance(cell, str) else cell for cell in row]

    sample = take_sample(row for _, row in read(range(len(names))) if not isinstance(row, str))
    return Table(path, "parquet", tuple(names), len(names), sample, read, path.stat().st_size * 2)
