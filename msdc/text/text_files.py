"""Lines of text files from untrusted sources: plain or gzip, strict UTF-8, bounded, with line numbers.

`read_lines` holds a whole file and describes it (hash, size, what was normalized); `iterate_lines` streams a file of
any size. Only a line feed ends a line: other Unicode separators belong to the sentence. A byte order mark and Windows
line ends are removed.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from msdc.errors import InputError
from msdc.files import regular_size

MAX_TEXT_BYTES = 1 << 30
BUFFER_BYTES = 1 << 20
GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True)
class SourceFile:
    """Provenance of rows: file name, bytes on disk and their sha256. `path` is not written to results."""

    file: str
    bytes: int
    sha256: str
    path: Path | None = None

    def as_dict(self) -> dict[str, str | int]:
        """What a result file records."""
        return {"file": self.file, "bytes": self.bytes, "sha256": self.sha256}


@dataclass
class Lines:
    """The lines of one file without line ends; `notes` says what was normalized, with the first line number."""

    path: Path
    lines: list[str]
    source: SourceFile
    notes: list[str] = field(default_factory=list)

    def error(self, line: int, problem: str) -> InputError:
        """An error that points at a line, counted from 1."""
        return InputError(f"{self.path} line {line}: {problem}")


def unpacked(raw: BinaryIO) -> BinaryIO:
    """The content of an open file, decompressed if it starts as gzip does (whatever its name)."""
    packed = raw.read(2) == GZIP_MAGIC
    raw.seek(0)
    # GzipFile reads line by line in Python; a buffer in front of it does so in C.
    return io.BufferedReader(gzip.GzipFile(fileobj=raw), BUFFER_BYTES) if packed else raw


def _raw_lines(path: Path, max_line_bytes: int | None, max_bytes: int | None) -> Iterator[tuple[int, int, bytes]]:
    """(number from 1, byte offset in the unpacked text, bytes including the line feed) of each line."""
    number, offset = 0, 0
    # One byte more than allowed is asked for, so that a file at the limit is told from a larger one.
    bound = min(value + 1 for value in (max_line_bytes, max_bytes, MAX_TEXT_BYTES) if value is not None)
    regular_size(path)
    try:
        with open(path, "rb", buffering=BUFFER_BYTES) as raw:
            stream = unpacked(raw)
            while line := stream.readline(bound):
                number += 1
                start, offset = offset, offset + len(line)
                if max_line_bytes is not None and len(line) > max_line_bytes and not line.endswith(b"\n"):
                    # Skip the rest of an over-long line, so that the line numbers stay right.
                    while (rest := stream.readline(BUFFER_BYTES)) and not rest.endswith(b"\n"):
                        offset += len(rest)
                    offset += len(rest)
                    line = line[:max_line_bytes].decode("utf-8", "ignore").encode()
                if max_bytes is not None and offset > max_bytes:
                    raise InputError(f"{path} line {number}: more than {max_bytes >> 20} MiB of text")
                if max_line_bytes is None and len(line) > MAX_TEXT_BYTES:
                    raise InputError(f"{path} line {number}: longer than {MAX_TEXT_BYTES >> 20} MiB")
                yield number, start, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged gzip file after line {number} ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _decode(path: Path, number: int, offset: int, raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        utf16 = number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff")
        hint = "; it looks like UTF-16, save it as UTF-8" if utf16 else ""
        place = f"{error.reason} at byte {offset + error.start}"
        raise InputError(f"{path} line {number}: not valid UTF-8 ({place}){hint}") from error


def _decoded(
    path: Path, encoding: str, max_line_bytes: int | None, max_bytes: int | None
) -> Iterator[tuple[int, str, bool]]:
    """(number from 1, line without its line feed and byte order mark, whether it began with such a mark)."""
    for number, offset, raw in _raw_lines(path, max_line_bytes, max_bytes):
        line = _decode(path, number, offset, raw, encoding)
        marked = number == 1 and line.startswith("\ufeff")
        if marked and not (line := line[1:]):
            return
        yield number, line.removesuffix("\n"), marked


def iterate_lines(
    path: str | Path, *, encoding: str = "utf-8", max_line_bytes: int | None = None, max_bytes: int | None = None
) -> Iterator[tuple[int, str]]:
    """Stream (line number from 1, line without its end) of a file, plain or gzip.

    Args:
        path: the file.
        encoding: how it is decoded, strictly.
        max_line_bytes: longer lines are cut there; None: lines up to 1 GiB are held.
        max_bytes: most bytes of unpacked text; None: any size.

    Raises:
        InputError: missing, too large, damaged gzip, or not in `encoding` (with line number and byte offset). Raised at
            the line where it is found; earlier lines have been yielded by then.
    """
    for number, line, _ in _decoded(Path(path), encoding, max_line_bytes, max_bytes):
        yield number, line.removesuffix("\r")


def read_lines(path: str | Path, encoding: str = "utf-8", max_bytes: int = MAX_TEXT_BYTES) -> Lines:
    """Every line of a file, with its provenance and notes on what was normalized.

    Raises:
        InputError: as `iterate_lines`, or an empty file, or a NUL character.
    """
    path = Path(path)
    lines: list[str] = []
    notes: list[str] = []
    windows: list[int] = []
    for number, line, marked in _decoded(path, encoding, None, max_bytes):
        if marked:
            notes.append("line 1: byte order mark removed")
        if "\0" in line:
            raise InputError(f"{path} line {number}: a NUL character; this is not a text file")
        if line.endswith("\r"):
            windows.append(number)
        lines.append(line.removesuffix("\r"))
    if windows:
        notes.append(f"line {windows[0]}: Windows line end removed ({len(windows)} lines)")
    with open(path, "rb") as handle:
        digest = hashlib.file_digest(handle, "sha256").hexdigest()
        size = handle.tell()
    if not lines:
        raise InputError(f"{path}: empty file")
    return Lines(path, lines, SourceFile(path.name, size, digest, path), notes)


def read_csv_rows(path: str | Path) -> tuple[Lines, list[tuple[int, list[str]]]]:
    """Rows of an RFC 4180 file with the number of the line that each one starts on.

    Raises:
        InputError: as `read_lines`, or a quote that is never closed.
    """
    source = read_lines(path)
    rows: list[tuple[int, list[str]]] = []
    reader = csv.reader((line + "\n" for line in source.lines), strict=True)
    start = 1
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return source, rows
        except csv.Error as error:
            raise source.error(start, f"not valid CSV ({error})") from error
        rows.append((start, row))
        start = reader.line_num + 1
