"""Tables of text as one type, whatever their file: csv, tab-separated text (quoted or not), JSON lines.

Rows are read one by one. What cannot be read as a row is handed on as its reason, so that the source can count it.
Parquet files are made into the same type by msdc.text.parquet, saved data sets by msdc.distill.data.saved.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from msdc.text.text_files import iterate_lines

MAX_LINE_BYTES = 1_000_000

SAMPLE_ROWS, SAMPLE_CHARACTERS = 100, 4_000_000
DELIMITERS = ",;\t|"
# (number of the line or row from 1, the cells of the wanted columns, or why it is no row)
Numbered = tuple[int, "list[object] | str"]


@dataclass(frozen=True)
class Table:
    """Rows of named or numbered columns.

    Attributes:
        path: for messages.
        form: what it was read as, for messages.
        names: of the columns; empty without a header.
        width: number of columns.
        sample: the first rows, by which columns are chosen.
        read: (indices of columns) -> their cells, row by row.
        size: approximate bytes of text, for the weights of corpora.
    """

    path: Path
    form: str
    names: tuple[str, ...]
    width: int
    sample: list[list[object]]
    read: Callable[[Sequence[int]], Iterator[Numbered]]
    size: int

    def seen(self) -> str:
        """What was found, for an error message."""
        first = [str(cell)[:30] for cell in (self.sample[0] if self.sample else [])]
        named = f" ({', '.join(self.names)[:120]})" if self.names else ""
        return f"{self.form} of {self.width} columns{named}, first row {first[:6]}"


def text_bytes(path: Path) -> int:
    """Approximate size of the text in a file, for the weights of corpora."""
    return path.stat().st_size * (3 if path.suffix == ".gz" else 1)


def take_sample(rows: Iterator[list[object]]) -> list[list[object]]:
    """The first rows, bounded in number and in text."""
    found: list[list[object]] = []
    characters = 0
    for row in islice(rows, SAMPLE_ROWS):
        found.append(row)
        characters += sum(len(cell) for cell in row if isinstance(cell, str))
        if characters > SAMPLE_CHARACTERS:
            break
    return found


def _split(path: Path, delimiter: str, quoted: bool) -> Iterator[Numbered]:
    lines = iterate_lines(path, max_line_bytes=MAX_LINE_BYTES)
    if not quoted:
        for number, line in lines:
            yield number, list(line.split(delimiter))
        return
    reader = csv.reader((line + "\n" for _, line in lines), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            # The reader begins anew at the next line.
            yield start, f"not valid csv ({error})"
            continue
        yield start, [cell.strip("\n") for cell in cells]


def _follows_quoting(lines: list[str]) -> bool:
    """Whether a tab-separated text quotes cells: written as csv again, in one of its usual ways, it is the same text.

    A sentence between quotes is common in text without quoting, so it is no proof: a writer that quotes only where it
    must would not have quoted that.
    """
    reader = csv.reader((line + "\n" for line in lines), delimiter="\t", strict=True)
    records: list[list[str]] = []
    read = 0
    try:
        for record in reader:
            records.append(record)
            read = reader.line_num
    except csv.Error as error:
        # The last record may go on after the sample.
        if "end of data" not in str(error) or len(lines) < SAMPLE_ROWS or not records:
            return False
    raw = "\n".join(lines[:read])
    if '"' not in raw:
        return False

    def written(record: list[str], numbers: int, texts: int) -> str:
        cells = []
        for cell in record:
            out = io.StringIO()
            quoting = numbers if is_number(cell) else texts
            csv.writer(out, delimiter="\t", quoting=quoting, lineterminator="").writerow([cell])  # type: ignore[arg-type]
            cells.append(out.getvalue() if cell or texts != csv.QUOTE_MINIMAL else "")
        return "\t".join(cells)

    ways = (
        (csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL),
        (csv.QUOTE_ALL, csv.QUOTE_ALL),
        (csv.QUOTE_MINIMAL, csv.QUOTE_ALL),
    )
    # A header may be written plainly above quoted rows.
    plain = written(records[0], csv.QUOTE_MINIMAL, csv.QUOTE_MINIMAL)
    return any(
        raw == "\n".join([head, *(written(record, *way) for record in records[1:])])
        for way in ways
        for head in (plain, written(records[0], *way))
    )


def is_number(value: object) -> bool:
    """Whether a cell is a number, or text that reads as one."""
    if isinstance(value, str):
        try:
            float(value.strip().rstrip("%"))
        except ValueError:
            return False
        return True
    return isinstance(value, (int, float))


def _choose_delimiter(lines: list[str]) -> str:
    """The delimiter under which most of the first lines have the same number of cells, at least two."""

    def fit(delimiter: str) -> tuple[int, int]:
        reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter)
        try:
            widths = Counter(len(cells) for cells in reader if len(cells) > 1)
        except csv.Error:
            return 0, 0
        width, rows = widths.most_common(1)[0] if widths else (0, 0)
        return rows, width

    return max(DELIMITERS, key=fit)


def open_delimited(
    path: Path, is_header: Callable[[list[str], list[list[str]]], bool], as_csv: bool | None = None
) -> Table:
    """A csv or tab-separated file; `is_header` is asked about the first row, given the rows after it.

    `as_csv` None: by the suffix.

    Raises:
        InputError: as `iterate_lines`.
    """
    lines = [line for _, line in islice(iterate_lines(path, max_line_bytes=MAX_LINE_BYTES), SAMPLE_ROWS)]
    as_csv = ".csv" in path.suffixes[-2:] if as_csv is None else as_csv
    delimiter = _choose_delimiter(lines) if as_csv else "\t"
    quoted = as_csv or _follows_quoting(lines)
    sample = [
        cells for cells in take_sample(c for _, c in _split(path, delimiter, quoted) if not isinstance(c, str)) if cells
    ]
    texts = [[str(cell) for cell in cells] for cells in sample]
    header = bool(texts) and is_header([cell.strip() for cell in texts[0]], texts[1:])
    names = tuple(cell.strip() for cell in texts[0]) if header else ()
    body = sample[1:] if header else sample
    width = len(names) or (Counter(map(len, body)).most_common(1)[0][0] if body else 0)
    if not header:
        width = max(width, 2)  # one column is one too few, and each line says so

    def read(columns: Sequence[int]) -> Iterator[Numbered]:
        first = True
        for number, cells in _split(path, delimiter, quoted):
            if first and header:
                first = False
            elif isinstance(cells, str):
                yield number, cells
            elif len(cells) != width:
                yield number, f"{len(cells)} columns, expected {width}"
            else:
                yield number, [cells[column] for column in columns]

    form = "csv" if as_csv else "quoted tab-separated text" if quoted else "tab-separated text"
    return Table(path, form, names, width, body, read, text_bytes(path))


def flatten(value: dict[str, object]) -> dict[str, object]:
    """An object with the keys of inner objects as `outer.inner`, one level deep."""
    flat: dict[str, object] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            flat |= {f"{key}.{name}": cell for name, cell in inner.items()}
        else:
            flat[key] = inner
    return flat


def _json_rows(path: Path) -> Iterator[tuple[int, dict[str, object] | list[object] | str]]:
    for number, line in iterate_lines(path, max_line_bytes=MAX_LINE_BYTES):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            long = len(line.encode()) >= MAX_LINE_BYTES
            yield number, f"longer than {MAX_LINE_BYTES} bytes" if long else "not JSON"
            continue
        if isinstance(value, dict):
            yield number, flatten(value)
        elif isinstance(value, list):
            yield number, value
        else:
            yield number, "neither a JSON object nor a list"


def open_json_lines(path: Path) -> Table:
    """One JSON object (or list of cells) per line.

    Raises:
        InputError: as `iterate_lines`.
    """
    first = [row for _, row in islice(_json_rows(path), SAMPLE_ROWS)]
    objects = [row for row in first if isinstance(row, dict)]
    names = tuple(dict.fromkeys(name for row in objects for name in row))
    lists = [row for row in first if isinstance(row, list)]
    width = len(names) or max((len(row) for row in lists), default=2)

    def cells(row: dict[str, object] | list[object] | str, columns: Sequence[int]) -> list[object] | str:
        if isinstance(row, str):
            return row
        if isinstance(row, dict) != bool(names):
            return "an object among lists" if isinstance(row, dict) else "a list among objects"
        if isinstance(row, dict):
            return [row.get(names[column]) for column in columns]
        return [row[column] for column in columns] if len(row) == width else f"{len(row)} cells, expected {width}"

    def read(columns: Sequence[int]) -> Iterator[Numbered]:
        for number, row in _json_rows(path):
            yield number, cells(row, columns)

    sample = [row for row in (cells(row, range(width)) for row in first) if not isinstance(row, str)]
    return Table(path, "JSON lines", names, width, sample, read, text_bytes(path))


def looks_like_names(cells: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether a first row reads like identifiers, and most rows after it do not."""
    identifier = re.compile(r"[A-Za-z_][\w.-]*")
    if len(set(cells)) < len(cells) or not all(identifier.fullmatch(cell) for cell in cells):
        return False
    alike = sum(all(identifier.fullmatch(cell.strip()) for cell in row) for row in rows)
    return bool(rows) and 2 * alike < len(rows)
