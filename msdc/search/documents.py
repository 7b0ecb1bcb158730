"""Documents and hits, the filter, the rows of a text file.

A document is a text with an id, a title that may be empty, and values to filter by.
"""

from __future__ import annotations

import itertools
import json
import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from msdc.arguments import require_characters
from msdc.errors import InputError
from msdc.text.tabular import iterate_rows
from msdc.text.text_files import MAX_TEXT_BYTES

Missing = Literal["refuse", "null"]
MAX_FILTER_DEPTH = 8  # filters inside of filters


class Document(NamedTuple):
    """One entry: its id ("": the index gives one), text, title (may be empty), and values to filter by as JSON."""

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
    """One entry. `score` ranks: `words` + 4 x the matched share, `cosine` of the best passage, or the sum with the
    scaled cosine.

    `words` is BM25 x coverage of the query's words. `cosine` and `words` are None where they are not part of the score:
    the other mode, a text without a vector. `text[start:end]` is the passage to show, `matches` are the spans of the
    query's words in `text`, and `count` is the number of entries with the same words, of which this is the best.
    """

    id: str
    score: float
    cosine: float | None
    words: float | None
    text: str
    start: int
    end: int
    title: str = ""
    metadata: dict[str, Any] = field(default_factory=dict)
    matches: tuple[tuple[int, int], ...] = ()
    count: int = 1

    @property
    def line(self) -> int:
        """The number of the line, row or text in a file or list, from 1."""
        return int(self.id)

    @property
    def passage(self) -> str:
        """The best passage."""
        return self.text[self.start : self.end]


@dataclass(frozen=True)
class SearchResult:
    """Hits of one query, best first, and the time they took."""

    query: str
    hits: list[Hit]
    encode_ms: float
    search_ms: float


def one_or_more(values: Any, what: str) -> Iterable[Any]:
    """Several values as they are, and one value (a text, a number, a mapping) as the only one: it is never taken apart.

    Raises:
        InputError: bytes, a table by columns, or something that is neither a value nor several.
    """
    if isinstance(values, str | int | float | Mapping | np.generic):
        return [values]
    if hasattr(values, "columns") or hasattr(values, "column_names"):
        raise InputError(f"{what}: a table, whose items are columns; pass its rows, such as table.to_dict('records')")
    if isinstance(values, bytes | bytearray | memoryview) or not isinstance(values, Iterable):
        raise InputError(f"{what}: expected one or several, not {type(values).__name__}")
    return values


def require_key(key: object, what: str) -> str:
    """An id as text. Ids and filters reach SQLite as JSON, which it reads up to a NUL character."""
    text = require_characters(str(key), f"{what}: its id")
    if not text or "\0" in text:
        raise InputError(f"{what}: an empty id, or one with a NUL character")
    return text


def _plain(value: object, where: str, missing: Missing) -> Any:
    """A value as JSON has it: numbers of NumPy as numbers, dates as ISO text, a missing number as the caller
    decides."""
    if isinstance(value, str) and "\0" in value:
        raise InputError(f"{where} has a NUL character")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item, where, missing) for item in value]
    if (isinstance(value, float) and not math.isfinite(value)) or type(value).__name__ in ("NaTType", "NAType"):
        if missing == "refuse":
            raise InputError(f'{where} is {value}, which JSON cannot hold; `missing="null"` stores null')
        return None
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): _plain(item, f"{where}: {str(key)!r}", missing) for key, item in value.items()}
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def _document(key: str, text: str, title: str, values: Mapping[Any, object], origin: str, missing: Missing) -> Document:
    plain = _plain(values, origin, missing)
    document = Document(key, text, title, json.dumps(plain, ensure_ascii=False, sort_keys=True, allow_nan=False))
    for name, value in zip(document._fields, document, strict=True):
        require_characters(value, f"{origin}: {name}")
    return document


def as_document(row: str | Mapping[str, object], origin: str, missing: Missing = "refuse") -> Document:
    """A row of `add`: a text, or `text` with `id` (or `_id`), `title` and other values for filters.

    `place` names the row in errors where it has no id.
    """
    values = {"text": row} if isinstance(row, str) else dict(row)
    text, title = values.pop("text", None), values.pop("title", "") or ""
    key = values.pop("id", values.pop("_id", None))
    origin = origin if key is None else f"document {str(key)!r}"
    if not isinstance(text, str) or not isinstance(title, str):
        raise InputError(f"{origin}: text and title must be strings")
    if not text.strip():
        raise InputError(f"{origin} has no text")
    return _document("" if key is None else require_key(key, origin), text, title, values, origin, missing)


def conditions(where: Mapping[str, object]) -> str:
    """A filter for the statements "filter" and "branches".

    Each column has a value, a list of alternatives, (least, most), None for no value, or {"not": any of these}. "and"
    and "or" have a list of filters, "not" has one.
    """
    return require_characters(json.dumps(_filter(where), ensure_ascii=False), "filter")


def _filter(where: object, depth: int = 0) -> list[Any]:
    if not isinstance(where, Mapping):
        raise InputError(f"a filter is a mapping of columns to values, not {type(where).__name__}")
    if depth > MAX_FILTER_DEPTH:
        raise InputError(f"a filter has more than {MAX_FILTER_DEPTH} levels")
    parts: list[Any] = []
    for name, required in where.items():
        if name in ("and", "or") and isinstance(required, list) and any(isinstance(part, Mapping) for part in required):
            filters = [_filter(part, depth + 1) for part in required]
            parts += [{"or": filters}] if name == "or" else itertools.chain(*filters)
        elif name == "not" and isinstance(required, Mapping):
            parts.append({"not": [_filter(required, depth + 1)]})
        else:
            parts.append(_condition(name, required))
    return parts


Boosts = Sequence[tuple[Mapping[str, object], float]]
MAX_ORDER = 3  # columns
MAX_BOOSTS = 16  # each reads the metadata of all candidates


def order_columns(order: str | Sequence[str]) -> str | None:
    """An order for the statement `ranked`, from columns, each with a minus before it for the largest value first; None
    without columns."""
    names = one_or_more(order, "`order`") if order else []
    columns = [_column(name, "order") for name in names]
    if len(columns) > MAX_ORDER:
        raise InputError(f"`order` has {len(columns)} columns; at most {MAX_ORDER}")
    parts = [[name.removeprefix("-"), int(name.startswith("-"))] for name in columns]
    return json.dumps(parts, ensure_ascii=False) if parts else None


def group_column(group: str | None, size: int) -> str | None:
    """A column to group by.

    Raises:
        InputError: a wrong name, a wrong size, or a size without a column.
    """
    if size < 1 or (group is None and size > 1):
        raise InputError(f"`group_size` {size}: must be at least 1, and is for `group` only")
    return None if group is None else _column(group, "group")


def boost_conditions(boost: Boosts) -> list[tuple[str, float]]:
    """Filters for the statements "filter" and "branches", each with what it adds to the score."""
    if not isinstance(boost, Sequence) or len(boost) > MAX_BOOSTS:
        raise InputError(f"`boost` is a list of at most {MAX_BOOSTS} pairs of a filter and a number")
    parts = []
    for part in boost:
        if not isinstance(part, Sequence) or len(part) != 2 or not isinstance(part[0], Mapping) or not part[0]:
            raise InputError(f"`boost` {part!r}: expected a pair of a filter and a number")
        (bonus,) = _plain([part[1]], "`boost`", "refuse")
        if isinstance(bonus, bool) or not isinstance(bonus, int | float):
            raise InputError(f"`boost` {bonus!r}: expected a number")
        parts.append((conditions(part[0]), float(bonus)))
    return parts


def _column(name: object, what: str) -> str:
    if not isinstance(name, str) or '"' in name or "\0" in name:
        raise InputError(f"{what} {name!r}: a column is a name without a double quote or NUL")
    return require_characters(name, what)


def _condition(name: object, required: object) -> list[Any]:
    name = _column(name, "filter")
    excluded = isinstance(required, Mapping)
    if isinstance(required, Mapping):
        if list(required) != ["not"]:
            raise InputError(f"filter {name!r}: {dict(required)!r}; expected {{'not': value}}")
        required = required["not"]
    alternatives = _plain(required if isinstance(required, list) else [required], f"filter {name!r}", "refuse")
    for alternative in alternatives:
        sides = alternative if isinstance(alternative, list) else [alternative, alternative]
        plain = all(isinstance(side, str | int | float | None) for side in sides)
        if len(sides) != 2 or not plain or alternative == [None, None]:
            raise InputError(
                f"filter {name!r}: {required!r}; expected a text, a number, a date, None, a list of these, or "
                "(least, most)"
            )
    if not alternatives:
        raise InputError(f"filter {name!r}: an empty list matches nothing")
    return [name, alternatives, int(excluded)]


def numbered_rows(
    file: Path, column: str | None, *, id_column: str | None = None, title_column: str | None = None,
    missing: Missing = "refuse",
) -> Iterator[Document]:  # fmt: skip
    """Lines of a file, or cells of a table's column with the row's other cells, without empty ones.

    The id is that of `id_column`, else the number of the line or row; all other cells are values to filter by.
    """
    size = 0
    for number, text, cells in iterate_rows(file, column):
        origin, text = f"{file} line {number}", text.strip()
        for option, name in (("id_column", id_column), ("title_column", title_column)):
            if name is not None and name not in cells:
                raise InputError(
                    f"{file}: `{option}` {name!r} is not another column (it has {', '.join(cells) or 'none'})"
                )
        if text:
            size += len(text)
            if size > MAX_TEXT_BYTES:
                raise InputError(f"{origin}: more than {MAX_TEXT_BYTES >> 20} MiB of text")
            named = [None if name is None else cells[name] for name in (id_column, title_column)]
            key, title = ("" if cell is None else str(cell) for cell in named)
            if id_column is not None and not key:
                raise InputError(f"{origin}: no id in column {id_column!r}")
            yield _document(require_key(key or number, origin), text, title, cells, origin, missing)
