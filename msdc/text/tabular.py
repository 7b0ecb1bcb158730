"""Tables of text as one type: csv, tab-separated text, JSON lines, parquet, saved data sets.

Rows are read one by one. A row that cannot be read is yielded as the reason, so that the reader can count it.
csv, tab-separated text and JSON lines need the standard library alone, parquet needs pyarrow.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from msdc.errors import InputError, first_line
from msdc.extras import require
from msdc.files import regular_size
from msdc.text.text_files import csv_rows, decode_lines, iterate_lines

SAMPLE_ROWS = 100
BATCH_ROWS = 1024
DELIMITERS = ",;\t|"
JSON_LINES = (".jsonl", ".ndjson", ".json")
# Their lines are not texts: a column must be named.
NEEDS_COLUMN = (".csv", ".jsonl", ".ndjson", ".parquet")
# (number of the line or row from 1, the cells of the wanted columns or the reason why it is no row)
Numbered = tuple[int, "list[Any] | str"]


@dataclass(frozen=True)
class TabularFile:
    """Rows of named or numbered columns; `form` is the format of the file, for messages."""

    path: Path
    form: str
    names: tuple[str, ...]  # empty without a header
    width: int
    sample: list[list[Any]]  # the first rows, for the choice of columns
    read: Callable[[Sequence[int]], Iterator[Numbered]]  # indices of columns -> their cells, row by row
    size: int  # approximate bytes of text, for the weights of corpora

    def seen(self) -> str:
        """Format, columns and first row, for an error message."""
        first = [str(cell)[:30] for cell in (self.sample[0] if self.sample else [])]
        named = f" ({', '.join(self.names)[:120]})" if self.names else ""
        return f"{self.form} of {self.width} columns{named}, first row {first[:6]}"

    def described(self, columns: Sequence[int]) -> str:
        """Format and chosen columns, for messages: `csv, columns en + de`."""
        return f"{self.form}, columns {' + '.join(self.names[c] if self.names else str(c + 1) for c in columns)}"

    def columns(self) -> str:
        """The names or the number of its columns, for an error message."""
        return ", ".join(self.names)[:300] if self.names else f"columns 1 to {self.width}"


def suffix_of(path: Path) -> str:
    """The suffix of a file name in lower case, without that of gzip."""
    return Path(path.name.removesuffix(".gz")).suffix.lower()


def text_bytes(path: Path) -> int:
    """Approximate size of the text in a file, for the weights of corpora."""
    return path.stat().st_size * (3 if path.suffix == ".gz" else 1)


def is_number(value: object) -> bool:
    """Whether a cell is a number or text that can be parsed as one."""
    try:
        float(value.strip().rstrip("%") if isinstance(value, str) else value)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
    return True


def looks_like_names(cells: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the cells of a first row are identifiers, and most rows after it are not."""
    identifier = re.compile(r"[A-Za-z_][\w.-]*")
    if len(set(cells)) < len(cells) or not all(identifier.fullmatch(cell) for cell in cells):
        return False
    alike = sum(all(identifier.fullmatch(cell.strip()) for cell in row) for row in rows)
    return bool(rows) and 2 * alike < len(rows)


def _choose_delimiter(lines: list[str]) -> str:
    """The delimiter under which most of the first lines have the same number of cells, at least two."""

    def fit(delimiter: str) -> tuple[int, int]:
        try:
            found = list(csv.reader((line + "\n" for line in lines), delimiter=delimiter))
        except csv.Error:
            return 0, 0
        ((width, count),) = Counter(len(cells) for cells in found if len(cells) > 1).most_common(1) or [(0, 0)]
        return count, width

    return max(DELIMITERS, key=fit)


def open_delimited(path: Path, is_header: Callable[[list[str], list[list[str]]], bool]) -> TabularFile:
    """A csv file, or tab-separated text, in which quotes have no meaning; chosen by suffix.

    `is_header` gets the first row and the rows after it.
    """
    as_csv = suffix_of(path) == ".csv"
    delimiter = _choose_delimiter([line for _, line in islice(iterate_lines(path), SAMPLE_ROWS)]) if as_csv else "\t"

    def rows() -> Iterator[Numbered]:
        if not as_csv:
            return ((number, line.split("\t")) for number, line in iterate_lines(path))
        found = csv_rows((line for _, line in iterate_lines(path)), delimiter)
        return ((n, cells if isinstance(cells, str) else [cell.strip("\n") for cell in cells]) for n, cells in found)

    good = (cells for _, cells in rows() if cells and not isinstance(cells, str))
    sample = list(islice(good, SAMPLE_ROWS))
    header = bool(sample) and is_header([cell.strip() for cell in sample[0]], sample[1:])
    names = tuple(cell.strip() for cell in sample[0]) if header else ()
    body = sample[1:] if header else sample
    # One column is one too few, which every line reports.
    width = len(names) or max(2, Counter(map(len, body)).most_common(1)[0][0] if body else 0)

    def read(columns: Sequence[int]) -> Iterator[Numbered]:
        for number, cells in islice(rows(), int(header), None):
            if not isinstance(cells, str):
                wrong = len(cells) != width
                cells = f"{len(cells)} columns, expected {width}" if wrong else [cells[column] for column in columns]
            yield number, cells

    return TabularFile(path, "csv" if as_csv else "tab-separated text", names, width, body, read, text_bytes(path))


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any] | list[Any] | str]]:
    """Values by line; objects with the keys of inner objects as `outer.inner`, one level deep."""
    for number, line in iterate_lines(path):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            yield number, "not JSON"
            continue
        if isinstance(value, dict):
            pairs = [
                (f"{key}.", inner) if isinstance(inner, dict) else ("", {key: inner}) for key, inner in value.items()
            ]
            value = {f"{outer}{name}": cell for outer, inner in pairs for name, cell in inner.items()}
        yield number, value if isinstance(value, (dict, list)) else "neither a JSON object nor a list"


def open_json_lines(path: Path) -> TabularFile:
    """One JSON object (or list of cells) per line."""
    first = [row for _, row in islice(_json_rows(path), SAMPLE_ROWS)]
    names = tuple(dict.fromkeys(name for row in first if isinstance(row, dict) for name in row))
    width = len(names) or max((len(row) for row in first if isinstance(row, list)), default=2)

    def cells(row: dict[str, Any] | list[Any] | str, columns: Sequence[int]) -> list[Any] | str:
        if isinstance(row, str):
            return row
        if isinstance(row, dict):
            return [row.get(names[column]) for column in columns] if names else "an object among lists"
        if names:
            return "a list among objects"
        return [row[column] for column in columns] if len(row) == width else f"{len(row)} cells, expected {width}"

    def read(columns: Sequence[int]) -> Iterator[Numbered]:
        return ((number, cells(row, columns)) for number, row in _json_rows(path))

    sample = [row for row in (cells(row, range(width)) for row in first) if not isinstance(row, str)]
    return TabularFile(path, "JSON lines", names, width, sample, read, text_bytes(path))


def arrow_table(
    path: Path, form: str, schema: Any, batches: Callable[[list[str]], Iterator[Any]], size: int
) -> TabularFile:
    """The columns of text and of numbers of an Arrow schema, those inside a struct as `outer.inner`.

    `batches` yields the tables or record batches of the named columns; see `TabularFile` for the rest.
    """
    import pyarrow as pa

    fields = list(schema.empty_table().flatten().schema)
    kinds = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in fields]
    text = [str(kind) in ("string", "large_string", "string_view") for kind in kinds]
    if not any(text):
        raise InputError(f"{path}: {form} without a column of text (it has {', '.join(schema.names)[:200]})")
    number = [pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds]
    names = tuple(field.name for field, *fits in zip(fields, text, number, strict=True) if any(fits))

    def read(columns: Sequence[int]) -> Iterator[Numbered]:
        number = 0
        chosen = [names[column] for column in columns]
        try:
            for batch in batches(chosen):
                batch = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
                flat = batch.flatten()
                for row in zip(*(flat[name].to_pylist() for name in chosen), strict=True):
                    number += 1
                    yield number, list(row)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise InputError(f"{path}: damaged {form} after row {number} ({first_line(error)})") from error

    sample = [cells for _, cells in islice(read(range(len(names))), SAMPLE_ROWS) if not isinstance(cells, str)]
    return TabularFile(path, form, names, len(names), sample, read, size)


def open_parquet(path: Path) -> TabularFile:
    """A parquet file."""
    require("pyarrow", "a parquet file")
    import pyarrow as pa
    import pyarrow.parquet as pq

    regular_size(path)
    try:
        file = pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a parquet file ({first_line(error)})") from error

    def batches(names: list[str]) -> Iterator[Any]:
        found: Iterator[Any] = pq.ParquetFile(path).iter_batches(BATCH_ROWS, columns=names)
        return found

    return arrow_table(path, "parquet", file.schema_arrow, batches, 2 * path.stat().st_size)


def open_table(path: Path, is_header: Callable[[list[str], list[list[str]]], bool] = looks_like_names) -> TabularFile:
    """A table by its suffix: parquet, JSON lines, csv; any other file as tab-separated text.

    `is_header` decides whether the first row of csv or tab-separated text names the columns, given the rows after it.
    """
    suffix = suffix_of(path)
    if suffix == ".parquet":
        return open_parquet(path)
    return open_json_lines(path) if suffix in JSON_LINES else open_delimited(path, is_header)


def iterate_texts(file: Path, column: str | None = None) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line of a file, plain or gzip, or of each row of a table's column.

    Args:
        file: the file; a table is recognized by its suffix.
        column: name of the column, or its number from 1. Empty cells are empty texts, so that rows stay aligned.
    """
    return ((number, text) for number, text, _ in iterate_rows(file, column, others=False))


def iterate_rows(file: Path, column: str | None, others: bool = True) -> Iterator[tuple[int, str, dict[str, object]]]:
    """`iterate_texts`, and with `others` each row's other cells by name; lines of text have none."""
    if column is None:
        if suffix_of(file) in NEEDS_COLUMN:
            have = open_table(file).columns()
            raise InputError(f"{file}: a table; name the column of the texts as `column` (it has {have})")
        yield from ((number, line, {}) for number, line in iterate_lines(file))
        return
    table = open_table(file, lambda cells, rows: not column.isdigit() or looks_like_names(cells, rows))
    if column in table.names:
        place = table.names.index(column)
    elif column.isdigit() and 1 <= int(column) <= table.width:
        place = int(column) - 1
    else:
        raise InputError(f"{file}: no column {column!r} (it has {table.columns()})")
    other_names = [name for name in table.names if others and name != column]
    for number, cells in table.read([place, *map(table.names.index, other_names)]):
        if isinstance(cells, str):
            raise InputError(f"{file} line {number}: {cells}")
        text, *rest = cells
        if not isinstance(text, (str, int, float, type(None))):
            raise InputError(f"{file} line {number}: column {column!r} is not text")
        yield number, "" if text is None else str(text), dict(zip(other_names, rest, strict=True))


def stdin_texts(column: str | None = None) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of standard input: its lines, or with `column` a column of csv or JSON lines."""
    if column is None:
        for number, line in enumerate(decode_lines(sys.stdin.buffer, "standard input"), start=1):
            yield number, (line.removeprefix("\ufeff") if number == 1 else line).removesuffix("\r")
        return
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
