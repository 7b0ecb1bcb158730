"""The hits of a search: its filter, candidates, order and groups, the passage that is shown of each."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Self

from msdc.errors import InputError
from msdc.search.blocks import passage_crc
from msdc.search.documents import Boosts, Hit, boost_conditions, conditions, group_column, order_columns
from msdc.search.file import read_document
from msdc.search.matches import find_terms, merged, passage_to_show
from msdc.search.ranking import CANDIDATES, Mode, Plan, Ranked, WordMatch, match_words, rank, sql, value_of
from msdc.search.vectors import PassageVectors
from msdc.text.passages import passages as split_passages

SNIPPET_WORDS = 32  # of the passage that is shown of a text that was not encoded


@dataclass(frozen=True)
class SearchRequest:
    """The options of `Index.search` as the statements of search.sql take them."""

    mode: Mode
    top: int
    offset: int
    threshold: float | None
    filtered: str | None
    order: str | None
    boosts: list[tuple[str, float]]
    group: str | None
    group_size: int
    distinct: bool

    @classmethod
    def of(
        cls, mode: Mode, top: int, offset: int, threshold: float | None, where: Mapping[str, object] | None,
        order: str | Sequence[str], boost: Boosts, group: str | None, group_size: int, distinct: bool,
    ) -> Self:  # fmt: skip
        """From the arguments of `Index.search`.

        Raises:
            InputError: an argument out of range.
        """
        if top < 1:
            raise InputError(f"`top` {top}: must be at least 1")
        if offset < 0:
            raise InputError(f"`offset` {offset}: must be at least 0")
        filtered, column = conditions(where) if where else None, group_column(group, group_size)
        boosts = boost_conditions(boost)
        return cls(mode, top, offset, threshold, filtered, order_columns(order), boosts, column, group_size, distinct)


class Ranking:
    """One search in a file that does not change meanwhile.

    `vectors` have the query's cosines; None where it is not compared with them. `documents` is their number, `source`
    the one whose vectors are the query.
    """

    def __init__(
        self, db: sqlite3.Connection, vectors: PassageVectors | None, request: SearchRequest, plan: Plan,
        documents: int, source: int | None = None,
    ) -> None:  # fmt: skip
        self._db, self._vectors, self._request, self._plan = db, vectors, request, plan
        self._documents, self._source = documents, source
        self._allowed: list[int] | None = None

    def hits(self) -> list[Hit]:
        """The hits of the page, best first or in order.

        Raises:
            InputError: a column that no document has.
            ValueError: a wrong checksum.
        """
        request = self._request
        for name, purpose in ((request.order, "order"), (request.group, "group")):
            if name is not None:
                self._require_columns(name if purpose == "order" else json.dumps([[name]]), purpose)
        if request.filtered or self._plan.excludes:
            self._allowed = self._filtered(request.filtered or "[]")
        inside = None if self._allowed is None else json.dumps(self._allowed)
        hits = []
        for scores in self._page():
            count = value_of(self._db, "equal", scores.document, inside) if request.distinct else 1
            hits.append(self._hit(scores, count))
        return hits

    # --- filters ------------------------------------------------------------------------------------------------------

    def _filtered(self, filtered: str, inside: str | None = None) -> list[int]:
        """The documents that a filter and the excluded words leave, of all or of those `inside` (ids as JSON)."""
        allowed = [row for (row,) in self._db.execute(sql("filter"), (filtered, self._plan.plan, inside))]
        if not allowed:
            self._require_columns(filtered, "filter")
        branches = self._db.execute(sql("branches"), (filtered,)).fetchall()
        for (_, name), parts in groupby(branches, key=lambda branch: branch[:2]):
            rows = {row for *_, part in parts for row in self._filtered(part, inside)}
            allowed = [row for row in allowed if (row in rows) == (name == "or")]
        return allowed

    def _require_columns(self, columns: str, purpose: str) -> None:
        if unknown := self._db.execute(sql("unknown"), (columns,)).fetchone():
            raise InputError(f"no column {unknown[0]!r} to {purpose} by (columns: {unknown[1]})")

    def _bonuses(self, documents: Collection[int]) -> dict[int, float]:
        """What the boosts add to the scores of these documents."""
        bonuses = dict[int, float]()
        for filtered, bonus in self._request.boosts:
            for row in self._filtered(filtered, json.dumps([*documents])):
                bonuses[row] = bonuses.get(row, 0.0) + bonus
        return bonuses

    # --- ranking ------------------------------------------------------------------------------------------------------

    def _page(self) -> list[Ranked]:
        """The documents of the page. As many are ranked for every page of the first 1,000 hits, so that pages agree;
        more where these are of too few groups."""
        request, most = self._request, CANDIDATES
        while most < request.offset + request.top:
            most *= 4
        while True:
            cosines, words = self._candidates(most)
            bonuses = self._bonuses({*cosines, *words})
            ranked = rank(self._db, cosines, words, request.mode, request.threshold, bonuses, request.order)
            if request.distinct:
                ranked = self._distinct(ranked)
            if request.group is None:
                return list(islice(ranked, request.offset, request.offset + request.top))
            page, is_full = self._grouped(ranked, request.group)
            if is_full or most >= self._documents:
                return page
            most *= 4

    def _candidates(self, most: int) -> tuple[dict[int, float], dict[int, WordMatch]]:
        """The documents nearest by vectors and by words, for `rank`: at most `most` of each, with an order all by
        words."""
        request, vectors = self._request, self._vectors
        cosines = {} if vectors is None else vectors.nearest(most, self._allowed)
        if self._source is not None:
            cosines.pop(self._source, None)
        if request.mode == "vectors":
            return cosines, {}
        most_words = most if request.order is None else max(most, self._documents)
        words, self._plan = match_words(
            self._db, self._plan, self._allowed, most_words, self._documents, cosines, bool(cosines)
        )
        if vectors is not None:
            cosines |= vectors.of(words)
        return cosines, words

    def _distinct(self, ranked: Iterable[Ranked]) -> Iterator[Ranked]:
        """Of documents with the same words the first, none of those with the words of the source."""
        forms = set[int]() if self._source is None else {value_of(self._db, "form", self._source)}
        for scores in ranked:
            form = value_of(self._db, "form", scores.document)
            if form not in forms:
                forms.add(form)
                yield scores

    def _grouped(self, ranked: Iterable[Ranked], column: str) -> tuple[list[Ranked], bool]:
        """The documents of the page's groups, and whether there are as many groups. One without a value is a group."""
        start, stop, most = self._request.offset, self._request.offset + self._request.top, self._request.group_size
        numbers, sizes = dict[str | int, int](), [0] * self._request.top
        page = []
        self._db.execute(sql("cells"))
        for scores in ranked:
            key = value_of(self._db, "group", scores.document, column)
            number = numbers.setdefault(scores.document if key is None else key, len(numbers))
            if start <= number < stop and sizes[number - start] < most:
                sizes[number - start] += 1
                page.append(scores)
            if number >= stop and (most == 1 or min(sizes) == most):
                break
        return page, len(numbers) >= stop

    # --- a hit --------------------------------------------------------------------------------------------------------

    def _hit(self, scores: Ranked, count: int) -> Hit:
        row, terms = scores.document, self._plan.terms
        fields = self._db.execute(sql("hit"), (row,)).fetchone()
        if fields is None:
            raise ValueError(f"document {row}")
        entry = read_document(fields)
        places = find_terms(entry.text, terms)
        vectors = None if scores.cosine is None else self._vectors
        cosines = {} if vectors is None else vectors.cosines_of(row)
        stored = self._db.execute(sql("passages_of"), (row,)).fetchall()
        if any(passage_crc(row, start, end) != crc for _, start, end, crc in stored):
            raise ValueError(f"a passage of document {entry.id}")
        spans = [span for *span, _ in stored]
        if not spans:  # not encoded
            (parts,) = split_passages([entry.text], lambda texts: [len(text.split()) for text in texts], SNIPPET_WORDS)
            spans = [[0, *part] for part in parts]
        if self._request.mode == "vectors":
            best = max(range(len(spans)), key=lambda number: cosines.get(spans[number][0], -2.0))
        else:
            near = [cosines.get(passage, 0.0) for passage, _, _ in spans]
            best = passage_to_show([(start, end) for _, start, end in spans], near, terms, places)
        _, start, end = spans[best]
        shown = merged([span for spans in places for span in spans])
        return Hit(
            entry.id,
            scores.score,
            scores.cosine,
            scores.words,
            entry.text,
            start,
            end,
            entry.title,
            json.loads(entry.metadata),
            shown,
            count,
        )
