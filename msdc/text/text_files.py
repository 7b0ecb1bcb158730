"""Lines of text files: plain, gzip, bzip2, xz or zstd, strict UTF-8, with line numbers; rows of csv, and of any table.

`read_lines` loads a whole file and describes it (hash, size, normalization); `iterate_lines` streams a file of any
size. Only a line feed ends a line (in a file without any, a carriage return): other Unicode separators belong to the
sentence. A byte order mark and Windows line ends are removed; UTF-16 and UTF-32 with a mark are converted.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import io
import lzma
import re
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from msdc.errors import InputError, TornFile, first_line
from msdc.extras import require
from msdc.files import regular_size

MAX_TEXT_BYTES = 1 << 30
BUFFER_BYTES = 1 << 20
HEAD_BYTES = 1 << 16  # that show encoding and line ends
# First bytes of compressed files and of files that are no text
MAGIC = {
    b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd",
    b"PK\x03\x04": "a zip archive or a spreadsheet", b"%PDF-": "a PDF", b"\xd0\xcf\x11\xe0": "an Office file",
    b"PAR1": "parquet", b"7z\xbc\xaf": "a 7z archive", b"SQLite format": "an SQLite file",
}  # fmt: skip
OPENERS: dict[str, Any] = {
    "gzip": lambda raw: gzip.GzipFile(fileobj=raw), "bzip2": bz2.BZ2File, "xz": lzma.LZMAFile
}  # fmt: skip
# UTF-32 first: its mark begins with that of UTF-16.
MARKS = {b"\xff\xfe\0\0": "UTF-32", b"\0\0\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
# Raised by a damaged compressed file.
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)
# A record of csv with more lines than this has a quote that was not closed.
MOST_LINES = 1000
MOST_CELL = 1 << 28  # characters; the standard library's limit is 131,072
# Of a cell with at least so many lines inside, most of which look like rows, the quote was not meant to open.
SUSPECT_LINES, SUSPECT_SHARE = 5, 0.8
# (number of the line or row from 1, the cells of the wanted columns or the reason why it is no row)
Numbered = tuple[int, "list[Any] | str"]
SAMPLE_ROWS = 100


@dataclass(frozen=True)
class SourceFile:
    """Provenance of rows: file name, bytes on disk and their sha256. `path` is not written to results."""

    file: str
    bytes: int
    sha256: str
    path: Path | None = None

    def as_dict(self) -> dict[str, str | int]:
        """The entry of a result file."""
        return {"file": self.file, "bytes": self.bytes, "sha256": self.sha256}


def source_file(path: Path) -> SourceFile:
    """Provenance of a file."""
    with open(path, "rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
        return SourceFile(path.name, handle.tell(), digest, path)


@dataclass
class Lines:
    """The lines of one file without line ends; `notes` lists normalizations with their first line number."""

    path: Path
    lines: list[str]
    source: SourceFile
    notes: list[str] = field(default_factory=list)
    blank: int = 0  # empty lines at its end, which are not in `lines`

    def error(self, line: int, problem: str) -> InputError:
        """An error that points at a line, counted from 1."""
        return InputError(f"{self.path} line {line}: {problem}")


@dataclass(frozen=True)
class TabularFile:
    """Rows of named or numbered columns; `form` is the format of the file, for messages."""

    path: Path
    form: str
    names: tuple[str, ...]  # empty without a header
    width: int
    sample: list[list[Any]]  # the first rows, for the choice of columns
    read: Callable[[Sequence[int]], Iterator[Numbered]]  # indices of columns -> their cells, row by row
    header_guess: bool = False  # without a header, although the first row could be names
    language: str = ""  # of the last column, if the file contains it

    def summary(self) -> str:
        """Format, columns and first row, for an error message."""
        first = [str(cell)[:30] for cell in (self.sample[0] if self.sample else [])]
        named = f" ({', '.join(self.names)[:120]})" if self.names else ""
        return f"{self.form} of {self.width} columns{named}, first row {first[:6]}"

    def described(self, sides: Sequence[Sequence[int]]) -> str:
        """Format and chosen columns, for messages: `csv, columns en + de`; a side may have alternatives."""
        named = [[self.names[c] if self.names else str(c + 1) for c in side] for side in sides]
        return f"{self.form}, columns {' + '.join(map('/'.join, named))}"

    def columns(self) -> str:
        """The names or the number of its columns, for an error message."""
        return ", ".join(self.names)[:300] if self.names else f"columns 1 to {self.width}"


def bare_name(name: str) -> str:
    """A file's name without the suffix of a compression."""
    return re.sub(r"\.(gz|bz2|xz|zst)$", "", name)


class _Unpacked(io.RawIOBase):
    """The content of a compressed file, block by block: what is before a damaged place can be read."""

    def __init__(self, packed: Any) -> None:
        self._read = getattr(packed, "read1", packed.read)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._read(len(buffer))
        buffer[: len(content)] = content
        return len(content)


def unpacked(raw: BinaryIO) -> BinaryIO:
    """The content of an open file, decompressed if it starts as gzip, bzip2, xz or zstd does (whatever its name)."""
    stream = raw if isinstance(raw, io.BufferedReader) else io.BufferedReader(raw)  # type: ignore[type-var]
    form = _form(stream.peek(8))
    opened: Any = stream
    if form in OPENERS:
        opened = OPENERS[form](stream)
    elif form == "zstd":
        require("pyarrow", "a zstd file")
        import pyarrow as pa

        opened = pa.CompressedInputStream(pa.PythonFile(stream), "zstd")
    # GzipFile splits lines in Python, a buffer in front of it in C.
    return opened if opened is stream else io.BufferedReader(_Unpacked(opened), BUFFER_BYTES)


def _form(head: bytes) -> str:
    """What the first bytes of a file show; empty for plain text."""
    return next((form for magic, form in MAGIC.items() if head.startswith(magic)), "")


def _encoding(head: bytes, name: object) -> tuple[str, str]:
    """(encoding, line end) by the first bytes of text.

    Raises:
        InputError: what begins so is not text.
    """
    encoding = next((marked_encoding for mark, marked_encoding in MARKS.items() if head.startswith(mark)), "UTF-8")
    text = head if encoding == "UTF-8" else head.decode(encoding, "ignore").encode()
    if form := _form(head):
        raise InputError(f"{name}: {form}, not text; save it as UTF-8 text (csv, tab-separated) or unpack it")
    if b"\0" in text:
        wide = text.count(b"\0") > len(text) // 4
        hint = "it looks like UTF-16 without a byte order mark, save it as UTF-8" if wide else "this is not a text file"
        raise InputError(f"{name} line {1 + text[: text.index(0)].count(10)}: a NUL character; {hint}")
    # Old spreadsheets end lines with carriage returns alone.
    return encoding, "\r" if b"\r" in text and b"\n" not in text else "\n"


def describe_text(path: str | Path) -> str:
    """Compression, encoding and line ends of a text file, where they are not plain UTF-8 with line feeds."""
    with open(path, "rb") as raw:
        packed = _form(raw.peek(8))
        head = unpacked(raw).peek(HEAD_BYTES)  # type: ignore[attr-defined]
        encoding, end = _encoding(head, path)
    if head.startswith(b"\xef\xbb\xbf"):
        encoding = "UTF-8 with a byte order mark"
    ends = "carriage returns as line ends" if end == "\r" else "Windows line ends" if b"\r\n" in head else ""
    return ", ".join(filter(None, (packed, "" if encoding == "UTF-8" else encoding, ends)))


def _stream_lines(raw: BinaryIO, name: object) -> Iterator[bytes]:
    """Lines of an open file as UTF-8 with line feeds; one of a byte order mark alone has none.

    UTF-16 and UTF-32 with a byte order mark are converted; other bytes are left as they are.
    """
    stream = unpacked(raw)
    head = stream.peek(HEAD_BYTES)  # type: ignore[attr-defined]
    encoding, end = _encoding(head, name)
    if (encoding, end) == ("UTF-8", "\n"):
        yield from () if head == b"\xef\xbb\xbf" else stream
        return
    codec = "latin-1" if encoding == "UTF-8" else encoding
    for line in io.TextIOWrapper(stream, codec, newline=end):
        yield (line.removesuffix(end) + "\n" * line.endswith(end)).encode("latin-1" if codec == "latin-1" else "utf-8")


def _raw_lines(raw: BinaryIO, name: object) -> Iterator[bytes]:
    """`_stream_lines` with the errors of a damaged file."""
    number = 0
    try:
        for line in _stream_lines(raw, name):
            number += 1
            yield line
    except UnicodeError as error:
        raise InputError(f"{name}: damaged text after line {number} ({error})") from error
    except DAMAGED as error:
        raise TornFile(name, number, "damaged compressed file", error) from error
    except OSError as error:
        if error.errno is None:  # bzip2 and zstd
            raise TornFile(name, number, "damaged compressed file", first_line(error)) from error
        raise InputError(f"{name}: cannot be read ({error.strerror or error})") from error


def _file_lines(path: Path) -> Iterator[bytes]:
    regular_size(path)
    try:
        with open(path, "rb", buffering=BUFFER_BYTES) as raw:
            yield from _raw_lines(raw, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _decoded(raw_lines: Iterable[bytes], name: object, encoding: str = "utf-8", lenient: bool = False) -> Iterator[str]:
    """Lines with their byte order mark and carriage returns, without line feeds; `name` is for messages."""
    offset = 0
    for number, raw in enumerate(raw_lines, start=1):
        try:
            yield raw.decode(encoding, "surrogateescape" if lenient else "strict").removesuffix("\n")
        except UnicodeDecodeError as error:
            position = f"{error.reason} at byte {offset + error.start}"
            raise InputError(f"{name} line {number}: not valid UTF-8 ({position})") from error
        offset += len(raw)


def _numbered(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, start=1):
        line = line.removesuffix("\r")
        yield number, line.removeprefix("\ufeff") if number == 1 else line


def stream_lines(raw: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """`iterate_lines` of an open file; `name` is for messages."""
    return _numbered(_decoded(_raw_lines(raw, name), name))


def unusable(text: str) -> str:
    """Why a text cannot be encoded: a NUL character, half of a surrogate pair, an invalid byte; empty if it can be."""
    if "\0" in text:
        return "a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            # As a lenient reader decodes bytes that are not UTF-8.
            return "not valid UTF-8" if "\udc80" <= text[error.start] <= "\udcff" else "half of a surrogate pair"
    return ""


def iterate_lines(path: str | Path, lenient: bool = False) -> Iterator[tuple[int, str]]:
    """Stream (line number from 1, line without its end) of a file, plain or compressed.

    A line that is not UTF-8 is an error, or if `lenient` a text that is `unusable`.
    """
    return _numbered(_decoded(_file_lines(Path(path)), path, lenient=lenient))


def read_lines(path: str | Path, encoding: str = "utf-8") -> Lines:
    """Every line of a file but empty ones at its end, with its provenance and notes on what was normalized."""
    path = Path(path)
    notes: list[str] = []
    lines = list(_decoded(_file_lines(path), path, encoding))
    count = len(lines)
    while lines and not lines[-1].strip("\ufeff\r"):
        lines.pop()
    if not lines:
        raise InputError(f"{path}: empty file")
    if lines[0].startswith("\ufeff"):
        lines[0] = lines[0][1:]
        notes.append("line 1: byte order mark removed")
    if (binary := next((number for number, line in enumerate(lines, start=1) if "\0" in line), None)) is not None:
        raise InputError(f"{path} line {binary}: a NUL character; this is not a text file")
    if windows := [number for number, line in enumerate(lines, start=1) if line.endswith("\r")]:
        lines = [line.removesuffix("\r") for line in lines]
        notes.append(f"line {windows[0]}: Windows line end removed ({len(windows)} lines)")
    if blank := count - len(lines):
        notes.append(f"line {count}: empty lines at the end removed ({blank})")
    return Lines(path, lines, source_file(path), notes, blank)


def _is_suspect(record: Sequence[str], cells: Sequence[str], delimiter: str, width: int) -> bool:
    """Whether a record of several lines is rather a row with a quote that was not meant to open a cell."""
    inner = [line.split(delimiter) for line in record[1:-1]]
    rows = sum(len(row_cells) == len(cells) and all(map(str.strip, row_cells)) for row_cells in inner)
    like_rows = len(cells) > 1 and len(inner) >= SUSPECT_LINES and rows >= SUSPECT_SHARE * len(inner)
    return like_rows or (width > 0 and len(cells) != width)


def csv_rows(lines: Iterable[str], delimiter: str = ",", width: int = 0) -> Iterator[tuple[int, list[str] | str]]:
    """Rows of an RFC 4180 file, each with the number of its first line; a line that is in no row is the reason as text.

    A quote that never closes, or that closes far below, would hide the rows in between: only its line is no row, and
    reading continues with the next line. Every line is in a row or has a reason.

    Args:
        lines: without line ends.
        width: number of cells, if known.
    """
    csv.field_size_limit(MOST_CELL)
    source, again, record = iter(lines), deque[str](), list[str]()

    def feed() -> Iterator[str]:
        while len(record) < MOST_LINES and (line := again.popleft() if again else next(source, None)) is not None:
            record.append(line)
            yield line + "\n"

    number, reader = 1, csv.reader(feed(), delimiter=delimiter, strict=True)
    while True:
        record.clear()
        why = ""
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            why = f"not valid CSV ({error})" + (", its quote does not close in a row" if len(record) > 1 else "")
        if not why and len(record) > 1 and _is_suspect(record, cells, delimiter, width):
            why = f"a quote opens a cell of {len(record)} lines that look like rows"
        if not why:
            yield number, [cell.strip("\n") for cell in cells]
            number += len(record)
            continue
        again.extendleft(reversed(record[1:]))
        reader = csv.reader(feed(), delimiter=delimiter, strict=True)
        yield number, why
        number += 1
