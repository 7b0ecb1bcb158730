"""Texts that a user names: lines of a file or of standard input, or one column of a table; streamed, strict UTF-8."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from msdc.errors import InputError
from msdc.text.tabular import Table, looks_like_names, open_delimited, open_json_lines
from msdc.text.text_files import iterate_lines

TABLE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".parquet")
# Their lines are no texts: a column must be named.
NEEDS_COLUMN = (".csv", ".jsonl", ".ndjson", ".parquet")


def _suffix(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).suffix.lower()


def open_table(file: Path, column: str | None) -> Table:
    """A table by its suffix (csv, tsv, JSON lines, parquet); of another file as csv.

    Raises:
        InputError: it cannot be read.
    """
    suffix = _suffix(file)
    if suffix == ".parquet":
        from msdc.text.parquet import open_parquet

        return open_parquet(file)
    if suffix in (".jsonl", ".ndjson"):
        return open_json_lines(file)
    named = column is not None and not column.isdigit()
    return open_delimited(file, lambda cells, rows: named or looks_like_names(cells, rows), as_csv=suffix != ".tsv")


def iterate_texts(file: Path, column: str | None = None) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line of a file, plain or gzip, or of each row of a table's column.

    Args:
        file: the file; a table is told by its suffix.
        column: name of the column, or its number from 1. Empty cells are empty texts, so that rows stay aligned.

    Raises:
        InputError: missing, not UTF-8 (with line and byte offset), no such column, a table without `column`, or a row
            that is none.
    """
    if column is None:
        if _suffix(file) in NEEDS_COLUMN:
            table = open_table(file, None)
            have = ", ".join(table.names)[:300] if table.names else f"columns 1 to {table.width}"
            raise InputError(f"{file}: a table; name the column of the texts with --column (it has {have})")
        yield from iterate_lines(file)
        return
    table = open_table(file, column)
    if column in table.names:
        place = table.names.index(column)
    elif column.isdigit() and 1 <= int(column) <= table.width:
        place = int(column) - 1
    else:
        have = ", ".join(table.names)[:300] if table.names else f"1 to {table.width}"
        raise InputError(f"{file}: no column {column!r} (have {have})")
    for number, cells in table.read([place]):
        if isinstance(cells, str):
            raise InputError(f"{file} line {number}: {cells}")
        text = cells[0]
        if text is not None and not isinstance(text, (str, int, float)):
            raise InputError(f"{file} line {number}: column {column!r} is no text")
        yield number, "" if text is None else str(text)


def stdin_texts(column: str | None = None) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of standard input: its lines, or a column of the table (csv or JSON lines) that it is.

    Raises:
        InputError: not UTF-8 (with line and byte offset), or see `iterate_texts`.
    """
    if column is not None:
        with tempfile.TemporaryDirectory(prefix="msdc-") as folder:
            first = sys.stdin.buffer.read(1)
            copy = Path(folder) / f"stdin{'.jsonl' if first in (b'{', b'[') else '.csv'}"
            with open(copy, "wb") as out:
                out.write(first)
                shutil.copyfileobj(sys.stdin.buffer, out)
            try:
                yield from iterate_texts(copy, column)
            except InputError as error:
                raise InputError(str(error).replace(str(copy), "standard input")) from error
        return
    offset = 0
    for number, raw in enumerate(sys.stdin.buffer, 1):
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            place = f"{error.reason} at byte {offset + error.start}"
            raise InputError(f"standard input line {number}: not valid UTF-8 ({place})") from error
        if number == 1:
            text = text.removeprefix("\ufeff")
        offset += len(raw)
        yield number, text.removesuffix("\n").removesuffix("\r")
