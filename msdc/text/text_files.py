"""Lines of text files: plain or gzip, strict UTF-8, with line numbers; rows of csv.

`read_lines` loads a whole file and describes it (hash, size, normalization); `iterate_lines` streams a file of any
size. Only a line feed ends a line: other Unicode separators belong to the sentence. A byte order mark and Windows
line ends are removed.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from msdc.errors import InputError, TornFile
from msdc.files import regular_size

MAX_TEXT_BYTES = 1 << 30
BUFFER_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"
# Raised by a damaged gzip file.
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)


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


@dataclass
class Lines:
    """The lines of one file without line ends; `notes` lists normalizations with their first line number."""

    path: Path
    lines: list[str]
    source: SourceFile
    notes: list[str] = field(default_factory=list)

    def error(self, line: int, problem: str) -> InputError:
        """An error that points at a line, counted from 1."""
        return InputError(f"{self.path} line {line}: {problem}")


class _Unpacked(io.RawIOBase):
    """The content of a gzip file, block by block: what is before a damaged place can be read."""

    def __init__(self, packed: gzip.GzipFile) -> None:
        self._packed = packed

    def readable(self) -> bool:
        return True

    def readinto(self, place: Any) -> int:
        found = self._packed.read1(len(place))
        place[: len(found)] = found
        return len(found)


def unpacked(raw: BinaryIO) -> BinaryIO:
    """The content of an open file, decompressed if it starts as gzip does (whatever its name)."""
    packed = raw.read(2) == GZIP_MAGIC
    raw.seek(0)
    # GzipFile splits lines in Python, a buffer in front of it in C.
    return io.BufferedReader(_Unpacked(gzip.GzipFile(fileobj=raw)), BUFFER_BYTES) if packed else raw


def decode_lines(raw_lines: Iterable[bytes], name: object, encoding: str = "utf-8") -> Iterator[str]:
    """Lines with their byte order mark and carriage returns, without line feeds; `name` is for messages."""
    offset = 0
    for number, raw in enumerate(raw_lines, start=1):
        try:
            yield raw.decode(encoding).removesuffix("\n")
        except UnicodeDecodeError as error:
            utf16 = number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff")
            hint = "; it looks like UTF-16, save it as UTF-8" if utf16 else ""
            place = f"{error.reason} at byte {offset + error.start}"
            raise InputError(f"{name} line {number}: not valid UTF-8 ({place}){hint}") from error
        offset += len(raw)


def _raw_lines(path: Path) -> Iterator[bytes]:
    """Lines with their line feeds; a file of a byte order mark alone has none."""
    number = 0
    regular_size(path)
    try:
        with open(path, "rb", buffering=BUFFER_BYTES) as raw:
            for number, line in enumerate(unpacked(raw), start=1):
                if number > 1 or line != b"\xef\xbb\xbf":
                    yield line
    except DAMAGED as error:
        raise TornFile(path, number, "damaged gzip file", error) from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def iterate_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Stream (line number from 1, line without its end) of a file, plain or gzip."""
    path = Path(path)
    for number, line in enumerate(decode_lines(_raw_lines(path), path), start=1):
        line = line.removesuffix("\r")
        yield number, line.removeprefix("\ufeff") if number == 1 else line


def read_lines(path: str | Path, encoding: str = "utf-8") -> Lines:
    """Every line of a file, with its provenance and notes on what was normalized."""
    path = Path(path)
    notes: list[str] = []
    lines = list(decode_lines(_raw_lines(path), path, encoding))
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
    with open(path, "rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
        source = SourceFile(path.name, handle.tell(), digest, path)
    return Lines(path, lines, source, notes)


def csv_rows(lines: Iterable[str], delimiter: str = ",") -> Iterator[tuple[int, list[str] | str]]:
    """Rows of an RFC 4180 file, each with the number of its first line; an invalid row is the reason as text."""
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
    while True:
        start = reader.line_num + 1
        try:
            yield start, next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield start, f"not valid CSV ({error})"  # the reader continues at the next line


def read_csv_rows(path: str | Path) -> tuple[Lines, list[tuple[int, list[str]]]]:
    """Rows of an RFC 4180 file with the number of the line where each one starts."""
    source = read_lines(path)
    rows: list[tuple[int, list[str]]] = []
    for start, row in csv_rows(source.lines):
        if isinstance(row, str):
            raise source.error(start, row)
        rows.append((start, row))
    return source, rows
