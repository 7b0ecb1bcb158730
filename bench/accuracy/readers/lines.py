"""Lines of a text file that may come from a stranger: plain or gzip, strict UTF-8, bounded, with line numbers.

A byte order mark and Windows line ends do not change a sentence, so they are taken off and noted, never scored.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from msdc.errors import InputError

MAX_TEXT_BYTES = 1 << 30
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class Source:
    """Where rows came from: file name, bytes on disk and their sha256. `path` stays out of results."""

    file: str
    bytes: int
    sha256: str
    path: Path | None = None

    def as_dict(self) -> dict[str, str | int]:
        return {"file": self.file, "bytes": self.bytes, "sha256": self.sha256}


@dataclass
class Lines:
    """The lines of one file, without line ends; `notes` says what was taken off, with the first line number."""

    path: Path
    lines: list[str]
    source: Source
    notes: list[str] = field(default_factory=list)

    def error(self, line: int, problem: str) -> InputError:
        """An error that points at a line, counted from 1."""
        return InputError(f"{self.path} line {line}: {problem}")


def _read_bounded(path: Path) -> tuple[bytes, Source]:
    """Content, unpacked when it is gzip, and the hash of the bytes on disk."""
    try:
        with open(path, "rb") as raw:
            digest = hashlib.file_digest(raw, "sha256").hexdigest()
            size = raw.tell()
            raw.seek(0)
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            stream = gzip.GzipFile(fileobj=raw) if packed else raw
            blocks, total = [], 0
            while block := stream.read(BLOCK_BYTES):
                total += len(block)
                if total > MAX_TEXT_BYTES:
                    raise InputError(f"{path}: more than {MAX_TEXT_BYTES >> 20} MiB of text")
                blocks.append(block)
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except IsADirectoryError as error:
        raise InputError(f"{path}: a folder, a file was expected") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged gzip file ({error})") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
    return b"".join(blocks), Source(path.name, size, digest, path)


def _decode(path: Path, content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        hint = "; it looks like UTF-16, save it as UTF-8" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
        raise InputError(f"{path} line {line}: not valid UTF-8 ({error.reason}){hint}") from error


def read_lines(path: str | Path, encoding: str = "utf-8") -> Lines:
    """Lines of a file. Only a line feed ends a line: other Unicode separators belong to the sentence.

    Raises:
        InputError: missing, empty, too large, damaged gzip, or not in `encoding` (with the line number).
    """
    path = Path(path)
    content, source = _read_bounded(path)
    text = _decode(path, content, encoding)
    notes = []
    if text.startswith("\ufeff"):
        text = text[1:]
        notes.append("line 1: byte order mark taken off")
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    windows = [number for number, line in enumerate(lines, start=1) if line.endswith("\r")]
    if windows:
        lines = [line.removesuffix("\r") for line in lines]
        notes.append(f"line {windows[0]}: Windows line end taken off ({len(windows)} lines)")
    if not lines:
        raise InputError(f"{path}: empty file")
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise InputError(f"{path} line {number}: a NUL character; this is not a text file")
    return Lines(path, lines, source, notes)


def read_csv_rows(path: str | Path) -> tuple[Lines, list[tuple[int, list[str]]]]:
    """Rows of an RFC-4180 file with the line each one starts on.

    Raises:
        InputError: as `read_lines`, or a quote that is never closed.
    """
    source = read_lines(path)
    rows: list[tuple[int, list[str]]] = []
    reader = csv.reader((line + "\n" for line in source.lines), strict=True)
    start = 1
    iterator: Iterator[list[str]] = iter(reader)
    while True:
        try:
            row = next(iterator)
        except StopIteration:
            return source, rows
        except csv.Error as error:
            raise source.error(start, f"not valid CSV ({error})") from error
        rows.append((start, row))
        start = reader.line_num + 1
