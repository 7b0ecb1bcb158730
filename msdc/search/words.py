"""The words by which an index finds text: the same for documents and queries, on every platform.

A text is decomposed and loses case, accents, vowel points and invisible characters, by a table that the C++ core and
search.js read too (benchmarks/word_table.py writes it). A word is a run of letters, digits and their signs; a symbol or
an emoji is a word of its own. Scripts without blanks, and Korean, are indexed by overlapping pairs of letters. FTS5
splits the words of `index_words` at the blanks between them, and its `ascii` tokenizer changes nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise, zip_longest
from typing import NamedTuple
from unicodedata import normalize

from msdc.files import PACKAGE

TABLE = PACKAGE / "export" / "native" / "src" / "word_table.h"
TOKENIZE = "ascii"  # FTS5's tokenizer: what it splits at and changes is not in a word
BREAK, WORD, UNSPACED, MARK, SYMBOL, REGION = range(6)  # classes of characters
HANGUL = re.compile("[\u1100-\u11ff\uac00-\ud7a3]+")  # letters and syllables
LETTERS = re.compile("[\u1100-\u11ff]")
PUNCTUATION = re.compile("[\0-/:-`{-\x7f]+")  # what breaks words, of ASCII; its capitals are folded


class _Table(NamedTuple):
    folds: dict[int, str]
    orders: dict[str, int]
    marks: re.Pattern[str]  # several that have an order
    words: re.Pattern[str]  # group 1: without blanks
    letters: re.Pattern[str]  # of those, with their marks


@cache
def _table() -> _Table:
    lines = TABLE.read_text(encoding="ascii").splitlines()[1:]

    def entries(line: str) -> Iterator[tuple[int, list[int]]]:
        start = 0
        for entry in line.split():
            gap, *rest = (int(number, 36) for number in entry.split(","))
            start += gap
            yield start, rest

    folds = {}
    for start, (count, step, *target) in entries(lines[0]):
        for at in range(0, count * step, step):
            folds[start + at] = chr(target[0] + at) if target else ""
    folds |= {start: "".join(map(chr, targets)) for start, targets in entries(lines[1])}
    orders = {chr(start): order for start, (order,) in entries(lines[2])}
    ranges, starts = [""] * 6, [*entries(lines[3]), (0x110000, [BREAK])]
    for (start, (kind,)), (end, _) in pairwise(starts):
        ranges[kind] += f"\\U{start:08x}-\\U{end - 1:08x}"
    _, word, unspaced, mark, symbol, region = ranges
    words = f"([{unspaced}][{unspaced}{mark}]*)|[{word}][{word}{mark}]*|[{region}]{{1,2}}|[{symbol}]"
    marks, letters = f"[{''.join(orders)}]{{2,}}", f"[{unspaced}][{mark}]*"
    return _Table(folds, orders, *map(re.compile, (marks, words, letters)))


def _words(text: str) -> Iterator[tuple[str, list[str]]]:
    """The words of a text; for those without blanks between also their letters."""
    table = _table()
    text = text.translate(table.folds)
    if LETTERS.search(text):  # this part of NFC is the same in every version
        text = HANGUL.sub(lambda found: normalize("NFC", found[0]), text)
    if not text.isascii():
        text = table.marks.sub(lambda found: "".join(sorted(found[0], key=table.orders.__getitem__)), text)
    for part in PUNCTUATION.split(text):
        if part.isascii():
            if part:
                yield part, []
            continue
        for found in table.words.finditer(part):
            yield found[0], table.letters.findall(found[0]) if found[1] else []


def index_words(text: str) -> str:
    """What an index stores of a text: its words, with blanks between; without blanks in the text, its pairs of letters.

    The last letter of a run follows alone, so that every letter starts a stored word.
    """
    found: list[str] = []
    for word, letters in _words(text):
        found += map("".join, zip_longest(letters, letters[1:], fillvalue="")) if letters else [word]
    return " ".join(found)


def match_expression(query: str) -> str:
    """FTS5's expression for the words of a query, any of which may match; empty if it has none."""
    found: dict[str, None] = {}
    for word, letters in _words(query):
        pairs = map("".join, pairwise(letters)) if len(letters) > 1 else [word]
        found |= dict.fromkeys(f'"{pair}"*' if len(letters) == 1 else f'"{pair}"' for pair in pairs)
    return " OR ".join(found)
