"""Numbers as they are written: 045-1234567, (045) 123 4567 and 0451234567 are one number, and so is an IBAN in groups.

Works on folded text (words.py), in which blanks and digits of every kind are ASCII. The same in C++ (numbers.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

Span = tuple[int, int]  # first character, one past the last
GROUP = re.compile("[a-z]*[0-9][a-z0-9]*")
LETTERS = re.compile("[a-z]{1,8}")  # of a code: AB-1234, covid-19
CLOSE = re.compile("[./,'\u2019\u2010\u2012\u2013-]")  # between groups of a number, and between these and letters
WIDE = re.compile("[ ()/\u2010\u2012\u2013-]{1,3}")  # between groups
MAY_JOIN = re.compile("[0-9a-z][ ()./,'\u2019\u2010\u2012\u2013-]{1,3}[0-9a-z]")
LEAST, MOST = 4, 34  # characters of a number; an IBAN has up to 34


class WrittenNumber(NamedTuple):
    """Groups that are one number without what is between them; `first` and `last` count the words of the text."""

    joined: str
    first: int
    last: int


class _Row(NamedTuple):
    """Words that may be one number; `has_blank`: what is before each of them."""

    words: list[int]
    has_blank: list[bool]


def written_numbers(folded: str, matches: Iterable[re.Match[str]]) -> Iterator[WrittenNumber]:
    """The numbers in several groups in a folded text that has these words, in order.

    A row of groups is a single number, unless it is too long, and so is each of its parts between blanks.
    """
    if not MAY_JOIN.search(folded):
        return
    words = [match.span() for match in matches]
    row, before = _Row([], []), 0
    for number, (start, end) in enumerate(words):
        kind = _kind(folded, start, end)
        between = folded[words[number - 1][1] : start] if kind and before else ""
        is_close = kind + before > 2 and len(between) == 1 and CLOSE.match(between) is not None
        if is_close or (kind + before == 4 and WIDE.fullmatch(between)):
            row.words.append(number)
            row.has_blank.append(not is_close)
        else:
            yield from _numbers_of(folded, words, row)
            row = _Row([number], [True]) if kind else _Row([], [])
        before = kind
    yield from _numbers_of(folded, words, row)


def _kind(folded: str, start: int, end: int) -> int:
    """2 for a group with a digit, 1 for a few letters, 0 for another word."""
    if end - start > MOST:
        return 0
    return 2 if GROUP.fullmatch(folded, start, end) else 1 if LETTERS.fullmatch(folded, start, end) else 0


def _numbers_of(folded: str, words: Sequence[Span], row: _Row) -> Iterator[WrittenNumber]:
    if len(row.words) < 2:
        return
    starts = [position for position, has_blank in enumerate(row.has_blank) if has_blank]
    parts = [row.words[start:end] for start, end in zip(starts, [*starts[1:], len(row.words)], strict=True)]
    for part in ([row.words] if len(parts) > 1 else []) + parts:
        joined = "".join(folded[slice(*words[number])] for number in part)
        if len(part) > 1 and LEAST <= len(joined) <= MOST:
            yield WrittenNumber(joined, part[0], part[-1])
