"""The one reader of text: csv, tab-separated text, JSON, parquet, TMX, gettext, saved data sets as one type of table.

Training, `exclude`, contamination, vocabularies, evaluation, encoding and search read text with it, row by row. A row
that cannot be read is yielded as the reason, so that the reader can count it; every line of a file is in a row or has a
reason. csv, tab-separated text and JSON need the standard library alone, the others an extra.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msdc.errors import InputError, first_line
from msdc.extras import require
from msdc.files import regular_size
from msdc.progress import warn
from msdc.text.text_files import (
    SAMPLE_ROWS,
    Numbered,
    TabularFile,
    bare_name,
    csv_rows,
    iterate_lines,
    stream_lines,
    unusable,
)
from msdc.text.translations import open_gettext, open_tmx

BATCH_ROWS = 1024
DELIMITERS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
EMPTY_LINE = "an empty line"
NO_VALUE = ("na", "none", "null", "nan")  # of a missing number
JSON_LINES = (".jsonl", ".ndjson", ".json")
# Their lines are not texts: a column must be named.
NEEDS_COLUMN = (".csv", ".jsonl", ".ndjson", ".parquet", ".tmx", ".po")
TABLES = (*NEEDS_COLUMN, ".json")
CORPUS_SUFFIXES = (*TABLES, ".tsv", ".txt")  # files of a folder of text
# The first row and the rows after it -> whether the first one must be names of columns.
IsHeader = Callable[[list[str], list[list[str]]], bool]


def suffix_of(path: Path) -> str:
    """The suffix of a file name in lower case, without that of a compression."""
    return Path(bare_name(path.name)).suffix.lower()


def is_number(value: object) -> bool:
    """Whether a cell is a number or text that can be parsed as one."""
    try:
        float(value.strip().rstrip("%") if isinstance(value, str) else value)  # type: ignore[arg-type]
    except (ValueError, TypeError):
        return False
    return True


def looks_like_names(cells: Sequence[str]) -> bool:
    """Whether the cells of a first row could be names of columns: different words."""
    words = all(re.fullmatch(r"[^\W\d][\w .-]{0,59}", cell) and cell.lower() not in NO_VALUE for cell in cells)
    return words and len(set(cells)) == len(cells)


def above_numbers(cells: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a first row must be names: it has none of the numbers that a column of the other rows consists of."""
    columns = [[row[index] for row in rows if index < len(row) and row[index].strip()] for index in range(len(cells))]
    numbers = [all(map(is_number, column)) and len(column) > 0 for column in columns]
    return any(numbers) and not any(map(is_number, cells)) and all(map(str.strip, cells))


def _choose_delimiter(lines: list[str]) -> str:
    """The delimiter under which most of the first lines are in rows of the same number of cells, at least two."""

    def fit(delimiter: str) -> tuple[int, int]:
        rows = list(csv_rows(lines, delimiter))
        ends = [number for number, _ in rows[1:]] + [len(lines) + 1]
        lines_by_width = Counter[int]()
        for (number, cells), end in zip(rows, ends, strict=True):
            if not isinstance(cells, str) and len(cells) > 1:
                lines_by_width[len(cells)] += end - number  # a row may have several lines
        ((width, count),) = lines_by_width.most_common(1) or [(0, 0)]
        return count, width

    return max(DELIMITERS, key=fit)


def delimited_rows(
    path: Path, lenient: bool = False
) -> tuple[str, Callable[[], Iterator[tuple[int, list[str] | str]]]]:
    """The form of csv, or of tab-separated text in which quotes have no meaning (chosen by suffix), and its rows.

    A row is (number of its first line, cells or the reason why the line is none); a line without text has no cells.
    """
    if suffix_of(path) != ".csv":
        return "tab-separated text", lambda: (
            (number, line.split("\t") if line.strip() else []) for number, line in iterate_lines(path, lenient)
        )
    first = [line for _, line in islice(iterate_lines(path, lenient), SAMPLE_ROWS)]
    delimiter = _choose_delimiter(first)
    ((width, _),) = Counter(len(cells) for _, cells in csv_rows(first, delimiter)).most_common(1) or [(0, 0)]
    form = f"csv with {DELIMITERS[delimiter]}"
    return form, lambda: csv_rows((line for _, line in iterate_lines(path, lenient)), delimiter, width)


def open_delimited(path: Path, is_header: IsHeader, header: bool | None = None, lenient: bool = False) -> TabularFile:
    """A csv file or tab-separated text; for the arguments see `open_table`."""
    form, rows = delimited_rows(path, lenient)
    sample = list(islice((cells for _, cells in rows() if cells and not isinstance(cells, str)), SAMPLE_ROWS))
    first, others = ([cell.strip() for cell in sample[0]], sample[1:]) if sample else ([], [])
    has_header = header
    if has_header is None and first:
        has_header = is_header(first, others) or (looks_like_names(first) and above_numbers(first, others)) or None
    names = tuple(first) if has_header else ()
    guess = has_header is None and bool(first) and all(re.fullmatch(r"[^\W\d][\w-]*", cell) for cell in first)
    form += ", header" if has_header else f", no header{' (a guess)' if guess else ''}"
    body = others if has_header else sample
    # A single column of tab-separated text is one too few, which every line reports.
    least = 1 if suffix_of(path) == ".csv" else 2
    width = len(names) or max(least, Counter(map(len, body)).most_common(1)[0][0] if body else 2)

    def read(columns: Sequence[int]) -> Iterator[Numbered]:
        after_header = not has_header
        for number, cells in rows():
            if cells and not isinstance(cells, str) and not after_header:
                after_header = True
                continue
            if not cells:
                cells = EMPTY_LINE
            if not isinstance(cells, str):
                wrong = len(cells) != width
                cells = f"{len(cells)} columns, expected {width}" if wrong else [cells[column] for column in columns]
            yield number, cells

    return TabularFile(path, form, names, width, body, read, guess)


def _json_array(path: Path, lenient: bool = False) -> list[Any] | None:
    """The values of a file that is one array, on one line or indented; None if it has a value per line."""
    first = list(islice((line for _, line in iterate_lines(path, lenient) if line.strip()), 2))
    try:
        value = json.loads(first[0]) if first else None
        alone = len(first) == 1 and isinstance(value, list) and all(isinstance(item, list) for item in value)
        return value if isinstance(value, list) and (alone or any(isinstance(item, dict) for item in value)) else None
    except (ValueError, RecursionError):
        pass
    if len(first) > 1 and first[0].lstrip()[0] in "[{":
        try:
            value = json.loads("\n".join(line for _, line in iterate_lines(path, lenient)))
        except (ValueError, RecursionError):
            return None
        if isinstance(value, list):
            return value
        raise InputError(f"{path}: one JSON object; expected one object per line, or an array of objects")
    return None


def _json_rows(
    path: Path, array: list[Any] | None, lenient: bool = False
) -> Iterator[tuple[int, dict[str, Any] | list[Any] | str]]:
    """Values by line, or by their place in the array; keys of inner objects as `outer.inner`, one level deep."""
    for number, line in iterate_lines(path, lenient) if array is None else enumerate(array, start=1):
        value = line
        if isinstance(line, str) and array is None:
            if not line.strip():
                yield number, EMPTY_LINE
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                yield number, "not JSON"
                continue
        if isinstance(value, dict):
            pairs = [
                (f"{key}.", inner) if isinstance(inner, dict) else ("", {key: inner}) for key, inner in value.items()
            ]
            value = {f"{outer}{name}": cell for outer, inner in pairs for name, cell in inner.items()}
        yield number, value if isinstance(value, (dict, list)) else "neither a JSON object nor a list"


def open_json_lines(path: Path, lenient: bool = False) -> TabularFile:
    """One JSON object (or list of cells) per line, or one array of them."""
    array = _json_array(path, lenient)
    first = [row for _, row in islice(_json_rows(path, array, lenient), SAMPLE_ROWS)]
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
        return ((number, cells(row, columns)) for number, row in _json_rows(path, array, lenient))

    sample = [row for row in (cells(row, range(width)) for row in first) if not isinstance(row, str)]
    form = "JSON lines" if array is None else "JSON array"
    return TabularFile(path, form, names, width, sample, read)


def arrow_table(path: Path, form: str, schema: Any, batches: Callable[[list[str]], Iterator[Any]]) -> TabularFile:
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
        except InputError:
            raise
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise InputError(f"{path}: damaged {form} after row {number} ({first_line(error)})") from error

    sample = [cells for _, cells in islice(read(range(len(names))), SAMPLE_ROWS) if not isinstance(cells, str)]
    return TabularFile(path, form, names, len(names), sample, read)


def _parquet_file(path: Path) -> Any:
    require("pyarrow", "a parquet file")
    import pyarrow as pa
    import pyarrow.parquet as pq

    regular_size(path)
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not a parquet file ({first_line(error)})") from error


def open_parquet(path: Path) -> TabularFile:
    """A parquet file."""

    def batches(names: list[str]) -> Iterator[Any]:
        batches_of_rows: Iterator[Any] = _parquet_file(path).iter_batches(BATCH_ROWS, columns=names)
        return batches_of_rows

    return arrow_table(path, "parquet", _parquet_file(path).schema_arrow, batches)


def open_table(
    path: Path,
    is_header: IsHeader = lambda cells, rows: False,
    header: bool | None = None,
    lenient: bool = False,
) -> TabularFile:
    """A table by its suffix: parquet, JSON, csv, TMX, gettext; any other file as tab-separated text.

    Args:
        path: the file.
        is_header: whether the first row of csv or tab-separated text must be names of columns, given the rows after it;
            a first row of words above a column of numbers is, too.
        header: decides instead, if it is not None.
        lenient: lines of text that are not UTF-8 are read as unusable text instead of an error.
    """
    suffix = suffix_of(path)
    if suffix in (".tmx", ".po"):
        return open_tmx(path) if suffix == ".tmx" else open_gettext(path)
    if suffix == ".parquet":
        return open_parquet(path)
    return open_json_lines(path, lenient) if suffix in JSON_LINES else open_delimited(path, is_header, header, lenient)


def _texts_in(value: object) -> Iterator[str]:
    """All texts with a letter in a cell, also those in lists and objects inside it."""
    if isinstance(value, str):
        yield from (value,) if any(map(str.isalpha, value)) else ()
    elif isinstance(value, (list, tuple, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts_in(inner)


def _all_cells(path: Path) -> Iterator[tuple[int, Any]]:
    """(number, all cells of the row or the reason why it is none) of a file, whatever the types of its columns."""
    suffix = suffix_of(path)
    if suffix in JSON_LINES:
        yield from _json_rows(path, _json_array(path))
    elif suffix == ".parquet":
        try:
            batches = _parquet_file(path).iter_batches(BATCH_ROWS)
            yield from enumerate((row for batch in batches for row in batch.to_pylist()), start=1)
        except OSError as error:  # pyarrow's errors of damaged files
            raise InputError(f"{path}: damaged parquet ({first_line(error)})") from error
    elif suffix in (".tmx", ".po"):
        table = open_table(path)
        yield from table.read(range(table.width))
    else:
        yield from delimited_rows(path)[1]()


def iterate_cells(path: Path, strict: bool = True) -> Iterator[tuple[int, str]]:
    """(number, text) of every text with a letter in a file of any format that training reads, also inside lists.

    A line that is no row is an InputError if `strict`; else such lines are counted in a warning.
    """
    bad: list[str] = []
    for number, cells in _all_cells(path):
        if not isinstance(cells, str):
            yield from ((number, text) for text in _texts_in(cells))
        elif cells != EMPTY_LINE:
            bad.append(f"{path} line {number}: {cells}")
            if strict:
                raise InputError(bad[0])
    if bad:
        warn(f"{path}: {len(bad)} lines are no rows and were not read, the first: {bad[0]}")


def iterate_texts(file: Path, column: str | None = None, header: bool | None = None) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of each line of a file, plain or compressed, or of each row of a table's column.

    Args:
        file: the file; a table is recognized by its suffix.
        column: name of the column, or its number from 1. Empty cells are empty texts, so that rows stay aligned.
        header: whether the first row names the columns; None: if it must (see `open_table`).
    """
    return ((number, text) for number, text, _ in iterate_rows(file, column, header, others=False))


def _cell_text(file: Path, number: int, column: str, cell: object) -> str:
    """The text of a cell; empty for a missing one."""
    if not isinstance(cell, (str, int, float, type(None))):
        raise InputError(f"{file} line {number}: column {column!r} is not text")
    if why := unusable(str(cell)):
        raise InputError(f"{file} line {number}: column {column!r} has {why}")
    return "" if cell is None else str(cell)


def iterate_rows(
    file: Path, column: str | None, header: bool | None = None, others: bool = True
) -> Iterator[tuple[int, str, dict[str, object]]]:
    """`iterate_texts`, and with `others` each row's other cells by name; lines of text have none."""
    if column is None:
        if suffix_of(file) in NEEDS_COLUMN:
            have = open_table(file, header=header).columns()
            raise InputError(f"{file}: a table; name the column of the texts as `column` (it has {have})")
        for number, line in iterate_lines(file):
            if why := unusable(line):
                raise InputError(f"{file} line {number}: {why}")
            yield number, line, {}
        return
    table = open_table(file, lambda cells, rows: not column.isdigit() and column in cells, header)
    if column in table.names:
        position = table.names.index(column)
    elif column.isdigit() and 1 <= int(column) <= table.width:
        position = int(column) - 1
    else:
        raise InputError(f"{file}: no column {column!r} (it has {table.columns()})")
    if table.header_guess and header is None:
        warn(f"{file}: line 1 is read as a row, not as names of columns; `header` decides")
    other_names = [name for name in table.names if others and name != column]
    empty = [0, 0]  # empty lines before other rows, and since the last row
    for number, cells in table.read([position, *map(table.names.index, other_names)]):
        if cells == EMPTY_LINE:
            empty[1] += 1
            continue
        if isinstance(cells, str):
            raise InputError(f"{file} line {number}: {cells}")
        text, *rest = cells
        empty = [sum(empty), 0]
        yield number, _cell_text(file, number, column, text), dict(zip(other_names, rest, strict=True))
    if empty[0]:
        warn(f"{file}: {empty[0]} empty lines are no rows of the table")


def parquet_blocks(
    path: Path, column: str, columns: Sequence[str], rows: int
) -> tuple[Iterator[tuple[list[str], dict[str, Any]]], Any]:
    """Texts of a column of a parquet file with the Arrow arrays of other `columns`, of any type, and their schema.

    Row groups are read block by block, each of at least `rows` rows but the last; columns are named or numbered as for
    `iterate_texts`, one inside a struct `outer.inner`.

    Raises:
        InputError: no such column, or as `iterate_rows`.
    """
    import pyarrow as pa

    table = open_parquet(path)
    if column not in table.names and column.isdigit() and 1 <= int(column) <= table.width:
        column = table.names[int(column) - 1]
    schema = _parquet_file(path).schema_arrow
    inner = schema.empty_table().flatten().schema
    for name in (column, *columns):
        if name not in (table.names if name == column else (*schema.names, *inner.names)):
            raise InputError(f"{path}: no column {name!r} (it has {', '.join(inner.names)[:300]})")
    fields = [schema.field(name) if name in schema.names else inner.field(name) for name in columns]

    def blocks() -> Iterator[tuple[list[str], dict[str, Any]]]:
        number, batches = 0, []
        source = _parquet_file(path).iter_batches(BATCH_ROWS, columns=list(dict.fromkeys((column, *columns))))
        while True:
            try:
                batch = next(source, None)
                batches += [] if batch is None else [batch]
                if not batches or (batch is not None and sum(map(len, batches)) < rows):
                    if batch is None:
                        return
                    continue
                block, batches = pa.Table.from_batches(batches), []
                flat = block.flatten()
                cells = flat[column].to_pylist()
                arrays = {name: block[name] if name in block.column_names else flat[name] for name in columns}
            except (pa.ArrowException, OSError, ValueError, KeyError) as error:
                raise InputError(f"{path}: damaged parquet after row {number} ({first_line(error)})") from error
            yield [_cell_text(path, number + n, column, cell) for n, cell in enumerate(cells, 1)], arrays
            number += len(cells)

    return blocks(), pa.schema(fields)


def stdin_texts(column: str | None = None, header: bool | None = None) -> Iterator[tuple[int, str]]:
    """(number from 1, text) of standard input: its lines, or with `column` a column of csv or JSON."""
    if sys.stdin is None:
        raise InputError("standard input is closed: pass texts or a file")
    if column is None:
        yield from stream_lines(sys.stdin.buffer, "standard input")
        return
    with tempfile.TemporaryDirectory(prefix="msdc-") as folder:
        first = sys.stdin.buffer.read(1)
        copy = Path(folder) / f"stdin{'.json' if first in (b'{', b'[') else '.csv'}"
        with open(copy, "wb") as out:
            out.write(first)
            shutil.copyfileobj(sys.stdin.buffer, out)
        try:
            yield from iterate_texts(copy, column, header)
        except InputError as error:
            raise InputError(str(error).replace(str(copy), "standard input")) from error
