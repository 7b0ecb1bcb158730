"""Documents and hits, the filter, the rows of a text file.

A document is a text with an id, a title that may be empty, and values to filter by.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msdc.errors import InputError
from msdc.text.tabular import iterate_rows
from msdc.text.text_files import MAX_TEXT_BYTES


class Document(NamedTuple):
    """One entry: its id, text, title (may be empty), and values to filter by."""

    id: str
    text: str
    title: str = ""
    metadata: str = "{}"

    @property
    def crc(self) -> int:
        """Checksum of the fields that a hit shows."""
        return zlib.crc32("\0".join(self).encode())


@dataclass(frozen=True)
class Hit:
    """One entry. `score` ranks: bm25 of the words + 20 x cosine of the best passage, `text[start:end]`."""

    id: str
    score: float
    cosine: float
    words: float
    text: str
    start: int
    end: int
    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def line(self) -> int:
        """The number of the line, row or text in a file or list, from 1."""
        return int(self.id)

    @property
    def passage(self) -> str:
        """The best passage."""
        return self.text[self.start : self.end]


@dataclass(frozen=True)
class Found:
    """Hits of one query, best first, and the time they took."""

    query: str
    hits: list[Hit]
    encode_ms: float
    search_ms: float


def as_document(row: str | Mapping[str, object], number: int) -> Document:
    """A row of `add`: a text, or `text` with `id`, `title` and other values for filters."""
    if isinstance(row, str):
        row = {"text": row}
    values = dict(row)
    text, title = values.pop("text", None), values.pop("title", "") or ""
    key = str(values.pop("id", values.pop("_id", number)))
    if not isinstance(text, str) or not isinstance(title, str):
        raise InputError(f"document {key!r}: text and title must be strings")
    if not text.strip():
        raise InputError(f"document {key!r} has no text")
    return Document(key, text, title, json.dumps(values, ensure_ascii=False, sort_keys=True, default=str))


def conditions(where: Mapping[str, object]) -> tuple[str, list[Any]]:
    """SQL of a filter: each column has a value, a list of alternatives, or (least, most) with None for no bound."""
    parts, values = ["1"], list[Any]()
    for name, wanted in where.items():
        column = "json_extract(metadata, ?)"
        path = '$."' + name.replace('"', "") + '"'
        if isinstance(wanted, tuple):
            for sign, bound in zip((">=", "<="), wanted, strict=True):
                if bound is not None:
                    parts.append(f"CAST({column} AS REAL) {sign} ?")
                    values += [path, bound]
        else:
            some = wanted if isinstance(wanted, list) else [wanted]
            parts.append(f"CAST({column} AS TEXT) IN ({', '.join('?' * len(some))})")
            values += [path, *(str(int(one) if isinstance(one, bool) else one) for one in some)]
    return " AND ".join(parts), values


def numbered_rows(file: Path, column: str | None) -> Iterator[Document]:
    """Lines of a file, or cells of a table's column with the row's other cells, by number, without empty ones."""
    size = 0
    for number, text, cells in iterate_rows(file, column):
        if stripped := text.strip():
            size += len(stripped)
            if size > MAX_TEXT_BYTES:
                raise InputError(f"{file} line {number}: more than {MAX_TEXT_BYTES >> 20} MiB of text")
            yield as_document({**cells, "id": number, "text": stripped, "title": ""}, number)
