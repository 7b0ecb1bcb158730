"""The ranking of a search: the statements of search.sql, which every platform runs alike.

relevance = bm25 x coverage + 4 x matched + 1.84 x (cosine - mean) / deviation + 100 x quoted phrases + bonus
(search.sql, `words` and `ranked`), with the mean and standard deviation of the model's cosines of unrelated sentences.
"""

from __future__ import annotations

import heapq
import json
import math
import re
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from msdc.search.words import index_words

SEARCH_SQL = Path(__file__).with_name("search.sql")
NEAREST = 100  # documents without a word of the query that are ranked first: most pages need no more
Mode = Literal["words", "vectors", "both"]


class Ranked(NamedTuple):
    """A document and its parts of the score; `match` is for the order (search.sql, `ranked`)."""

    document: int
    score: float
    cosine: float | None
    words: float | None
    match: int


class Connection(sqlite3.Connection):
    """A connection that binds a sequence of arguments to the numbered parameters of search.sql.

    The module `sqlite3` of Python 3.14 takes numbered parameters from a mapping alone, with the name `:1` for `?1`.
    """

    def execute(self, statement: str, arguments: Sequence[Any] = (), /) -> sqlite3.Cursor:  # type: ignore[override]
        """As of `sqlite3`, with the arguments by number."""
        return super().execute(statement, numbered(arguments) if ":1" in statement else arguments)

    def executemany(self, statement: str, rows: Iterable[Sequence[Any]], /) -> sqlite3.Cursor:  # type: ignore[override]
        """As of `sqlite3`, with the arguments by number."""
        return super().executemany(statement, map(numbered, rows) if ":1" in statement else rows)


def numbered(arguments: Sequence[Any]) -> dict[str, Any]:
    """Arguments by their number from 1."""
    return {str(number): value for number, value in enumerate(arguments, 1)}


@cache
def _statements() -> dict[str, str]:
    text = re.sub(r"\?(\d)", r":\1", SEARCH_SQL.read_text(encoding="utf-8"))
    return dict(part.split("\n", 1) for part in text.split("-- name: ")[1:])


def sql(name: str) -> str:
    """A statement of search.sql."""
    return _statements()[name]


# Documents per transaction, documents that are ranked together.
BLOCK, CANDIDATES = map(int, re.findall(r"\d+", sql("constants")))


def value_of(db: sqlite3.Connection, name: str, *arguments: object) -> Any:
    """The value that a statement gives first, or None."""
    return (db.execute(sql(name), arguments).fetchone() or (None,))[0]


def run_all(db: sqlite3.Connection, name: str) -> None:
    """Run the statements of search.sql that have one name."""
    for statement in sql(name).split(";\n"):
        db.execute(statement)


def form_of(title: str, text: str) -> int:
    """A number that entries with the same stored words have in common."""
    stored = f"{title}\0{text}".encode()
    return zlib.crc32(stored) * 2**20 + len(stored) % 2**20


def add_document(db: sqlite3.Connection, key: str, text: str, title: str, metadata: str, crc: int) -> int:
    """Write a document and its words; returns its row."""
    stored = index_words(title), index_words(text)
    row = db.execute(sql("add_document"), (key, text, title, metadata, crc, form_of(*stored))).lastrowid or 0
    db.execute(sql("add_words"), (row, *stored))
    return row


class Plan(NamedTuple):
    """What a query asks for (`parse_query`), with `text` for the model and the `terms` to highlight, one per line."""

    plan: str
    text: str
    excludes: bool
    has_words: bool
    terms: str


def read_plan(db: sqlite3.Connection, plan: str) -> Plan:
    """The parts of a plan."""
    text, excludes, has_words, terms = db.execute(sql("plan"), (plan,)).fetchone()
    return Plan(plan, text, bool(excludes), bool(has_words), terms or "")


class WordMatch(NamedTuple):
    """How a document matches the words of a query."""

    words: float  # bm25 x coverage
    matched: float
    same: int
    quoted: int


NO_WORDS = {mode: (None if mode == "vectors" else 0.0, 0, 0, 0) for mode in ("words", "vectors", "both")}


def match_words(
    db: sqlite3.Connection,
    plan: Plan,
    allowed: Collection[int] | None,
    most: int,
    documents: int,
    near: Iterable[int] = (),
    has_vector: bool = False,
) -> tuple[dict[int, WordMatch], Plan]:
    """At most `most` of all `documents` (their number) by words, and those of `near` that match; and the plan that
    found them.

    Where no document matches, the words of the index that are similar to those of the query are looked for, if the
    query is short or has no vector.
    """
    arguments = None if allowed is None else json.dumps([*allowed]), most, json.dumps([*near]), documents
    if not plan.has_words:
        return {}, plan
    rows = db.execute(sql("words"), (plan.plan, *arguments)).fetchall()
    if not rows:
        db.execute(sql("vocabulary"))
        similar = value_of(db, "similar", plan.plan, has_vector, arguments[0])
        if similar is not None:
            plan = read_plan(db, similar)
            rows = db.execute(sql("words"), (similar, *arguments)).fetchall()
    return {document: WordMatch(*match) for document, *match in rows}, plan


def rank(
    db: sqlite3.Connection, cosines: Mapping[int, float], words: Mapping[int, WordMatch], mode: Mode,
    threshold: float | None = None, bonuses: Mapping[int, float] | None = None, order: str | None = None,
) -> Iterator[Ranked]:  # fmt: skip
    """Documents best first, with `bonuses` on their scores, or in an `order` (search.sql, `ordered`).

    One without a vector has no cosine.

    Those without a word are ranked by their cosine: the nearest of them decide alone, down to the score of the last.
    """
    bonuses = bonuses or {}
    matches = {**words, **{document: NO_WORDS[mode] for document in bonuses if document not in words}}
    rows = json.dumps([(document, cosines.get(document), *match, bonuses.get(document, 0))
                       for document, match in matches.items()])  # fmt: skip
    others = {document: cosine for document, cosine in cosines.items() if document not in matches}

    def ranked(others: Mapping[int, float]) -> Iterator[Ranked]:
        return map(Ranked._make, db.execute(sql("ranked"), (rows, json.dumps(others), mode, threshold)))

    if order is not None:
        page = list(ranked(others))
        db.execute(sql("cells"))
        for (position,) in db.execute(sql("ordered"), (json.dumps([(entry[0], entry[-1]) for entry in page]), order)):
            yield page[position]
        return
    count = 0
    if len(others) > 2 * NEAREST:
        nearest = dict(heapq.nlargest(NEAREST, others.items(), key=lambda pair: pair[1]))
        page = list(ranked(nearest))
        scores_of_nearest = [entry.score for entry in page if entry.document in nearest]
        certain = -math.inf  # a threshold that drops some of the nearest drops all others
        if len(scores_of_nearest) == NEAREST:
            certain = min(scores_of_nearest)
        for entry in page:
            if entry.score <= certain:
                break
            count += 1
            yield entry
    yield from islice(ranked(others), count, None)
