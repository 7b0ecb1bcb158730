"""Where the words of a query are in a text: for highlighting, and for the passage that is shown.

The same in C++ (phones, browsers). Offsets are in characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from unicodedata import normalize

from msdc.search.numbers import written_numbers
from msdc.search.words import CHUNK, LETTERS, SPELLED, fold_table, spellings, terms_of, undivided

Span = tuple[int, int]  # first character, one past the last
SYLLABLE = re.compile("([\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|[\uac00-\ud7a3][\u11a8-\u11c2])")


class _Token(NamedTuple):
    """Words that follow each other, stored or as another spelling, and where they are."""

    words: tuple[str, ...]
    start: int
    end: int


def _tokens(text: str) -> tuple[list[_Token], list[_Token]]:
    """The words of a text as `index_words` has them before other spellings, of pairs of letters both; and its
    numbers."""
    table = fold_table()
    parts = [table.folds.get(ord(char), char) for char in text]
    origins = [number for number, part in enumerate(parts) for _ in part]
    folded = "".join(parts)
    if LETTERS.search(folded):
        pieces, positions, end = list[str](), list[int](), 0
        for syllable in SYLLABLE.finditer(folded):
            composed = normalize("NFC", syllable[0])
            pieces += [folded[end : syllable.start()], composed]
            positions += origins[end : syllable.start()] + [origins[syllable.start()]] * len(composed)
            end = syllable.end()
        folded, origins = "".join([*pieces, folded[end:]]), positions + origins[end:]

    def end_of(position: int) -> int:
        """One past the character of a folded one, with the marks on it."""
        end = origins[position] + 1
        following = origins[position + 1] if position + 1 < len(origins) else len(text)
        while end < following and (not parts[end] or LETTERS.match(parts[end])):
            end += 1
        return end

    tokens, words = [], list(table.words.finditer(folded))
    for match in words:
        if not match[1]:
            word = table.marks.sub(lambda run: "".join(sorted(run[0], key=table.orders.__getitem__)), match[0])
            tokens.append(_Token((word,), origins[match.start()], end_of(match.end() - 1)))
            continue
        letters = [(letter_match[0], match.start() + letter_match.start(), match.start() + letter_match.end() - 1)
                   for letter_match in table.letters.finditer(match[0])]  # fmt: skip
        for (letter, first, last), following in zip(letters, [*letters[1:], None], strict=True):
            pair = letter if following is None else letter + following[0]
            tokens.append(_Token((pair,), origins[first], end_of(last if following is None else following[2])))
    numbers = [
        _Token((number.joined,), origins[words[number.first].start()], end_of(words[number.last].end() - 1))
        for number in written_numbers(folded, words)
    ]
    return tokens, numbers


def _other_spellings(text: str, tokens: Sequence[_Token]) -> Iterator[_Token]:
    """Other spellings of the words of a text, each with the span of what it spells."""
    position = 0
    for chunk in CHUNK.finditer(text):
        first = position
        while position < len(tokens) and tokens[position].start < chunk.end():
            position += 1
        inside = tokens[first:position]
        if not inside or not SPELLED.search(chunk[0]):
            continue
        umlauts, joined, parts = spellings(chunk[0], terms_of(chunk[0]))
        if len(umlauts) == len(inside):
            yield from (token._replace(words=(word,)) for token, word in zip(inside, umlauts, strict=True))
        for word in joined:
            yield _Token((word,), inside[0].start, inside[-1].end)
        for token in inside:
            if span := parts.get(token.words[0]):
                words = tuple(span.split())
                yield token._replace(words=words)
                yield from (token._replace(words=(word,)) for word in words)
    for joined_text, origins in undivided(text):
        inside, _ = _tokens(joined_text)
        umlauts, joined, _ = spellings(joined_text, terms_of(joined_text))
        others = [*inside, *(_Token((word,), inside[0].start, inside[-1].end) for word in joined)]
        if len(umlauts) == len(inside):
            others += (token._replace(words=(word,)) for token, word in zip(inside, umlauts, strict=True))
        yield from (_Token(words, origins[start], origins[end - 1] + 1) for words, start, end in others)


def find_terms(text: str, terms: str) -> list[list[Span]]:
    """Where each term is: a line of `terms` has a word, or words that follow each other, and a star if the last may
    go on."""
    tokens, numbers_of_text = _tokens(text)
    runs: dict[str, list[int]] = {}
    for number, token in enumerate(tokens):
        runs.setdefault(token.words[0], []).append(number)
    others = [*_other_spellings(text, tokens), *numbers_of_text]
    places = []
    for term in terms.split("\n"):
        *first, last = term.removesuffix("*").split(" ")
        goes_on = term.endswith("*")
        spans = set[Span]()
        if not goes_on or first:
            starts = runs.get(first[0] if first else last, [])
        else:
            starts = [number for word, numbers in runs.items() if word.startswith(last) for number in numbers]
        for start in starts:
            run = tokens[start : start + len(first) + 1]
            words = [token.words[0] for token in run]
            ends = words[-1] == last or (goes_on and words[-1].startswith(last))
            if words[:-1] == first and ends:
                spans.add((run[0].start, run[-1].end))
        for token in others:
            *before, final = token.words
            if before == first and (final == last or (goes_on and final.startswith(last))):
                spans.add((token.start, token.end))
        places.append(sorted(spans))
    return places


def merged(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Spans in order, those that overlap or touch as one."""
    spans_without_overlap: list[Span] = []
    for start, end in sorted(spans):
        if spans_without_overlap and start <= spans_without_overlap[-1][1]:
            spans_without_overlap[-1] = spans_without_overlap[-1][0], max(end, spans_without_overlap[-1][1])
        else:
            spans_without_overlap.append((start, end))
    return tuple(spans_without_overlap)


def passage_to_show(
    passages: Sequence[Span], cosines: Sequence[float], terms: str, places: Sequence[Sequence[Span]]
) -> int:
    """The passage with the highest cosine + share of the terms inside it, a phrase counted by its words; the first of
    equals."""
    weights = [term.count(" ") + 1 for term in terms.split("\n")]
    scores = []
    for (start, end), cosine in zip(passages, cosines, strict=True):
        matched = sum(weight for weight, spans in zip(weights, places, strict=True)
                      if any(start <= first and last <= end for first, last in spans))  # fmt: skip
        scores.append(round(cosine + matched / sum(weights), 6))
    return scores.index(max(scores))
