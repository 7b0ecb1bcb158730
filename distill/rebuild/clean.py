"""What becomes of rows before they are written: white space, marks, the filter of interface texts, duplicates."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator

from msdc.distill.rebuild.json_text import split_sentences
from msdc.distill.rebuild.reader import TextRow

# Marks of direction, characters of no width, soft hyphens
_MARKS = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")
_PLACEHOLDER = re.compile(
    r"[{}<>\\|]|%[\w(%$@]|\$\w|\[%|https?:|www\.|\w@\w|(?:^|\s)--?\w|\w/\w+/|\w_\w|\(\)|&\w+;|=|::|\w\.\w{2,4}\b"
)
_WORD = re.compile(r"[^\W\d_]+")
MIN_WORDS, MAX_CHARACTERS, LETTERS = 4, 300, 0.6


def _ratio_fits(one: str, two: str) -> bool:
    arabic = sum("\u0600" <= c <= "\u06ff" for c in two)
    letters = sum(map(str.isalpha, two))
    low, high = (0.35, 2.2) if arabic else (0.45, 2.6)
    return low <= len(two) / len(one) <= high and (not arabic or 2 * arabic >= letters)


def interface_rows(row: TextRow, names: bool) -> Iterator[TextRow]:
    """What of a pair from a catalogue is text: no placeholder, markup, path or code, sides of fitting length.

    Paragraphs are cut into sentences where both sides have the same number. `names`: short phrases are kept.
    """
    sides = [re.sub(r"\s+", " ", _MARKS.sub("", text).replace("&amp;", "&")).strip() for text in row]
    parts = [split_sentences(side) for side in sides]
    pairs = list(zip(*parts, strict=True)) if len(parts[0]) == len(parts[1]) else [tuple(sides)]
    for pair in pairs:
        one, two = pair
        if not one or not two or one == two or max(len(one), len(two)) > MAX_CHARACTERS:
            continue
        if any(_PLACEHOLDER.search(side) for side in pair):
            continue
        if not names and len(_WORD.findall(one)) < MIN_WORDS:
            continue
        if any(sum(map(str.isalpha, side)) < LETTERS * len(side.replace(" ", "")) for side in pair):
            continue
        if names or _ratio_fits(one, two):
            yield pair


def cleaned(rows: Iterable[TextRow], how: str) -> Iterator[TextRow]:
    """Rows without white space at their ends and runs of it, empty sides, and exact duplicates.

    Args:
        rows: texts, or pairs.
        how: `spaces`; `marks`, which also removes marks of direction; `interface` or `names`, also the filter of
            catalogues; `none`: as they are.
    """
    if how == "none":
        yield from rows
        return
    seen: set[TextRow] = set()
    for row in rows:
        for kept in interface_rows(row, how == "names") if how in ("interface", "names") else (row,):
            texts = tuple(" ".join((_MARKS.sub("", text) if how != "spaces" else text).split()) for text in kept)
            if all(texts) and texts not in seen and not any(_broken(text) for text in texts):
                seen.add(texts)
                yield texts


def _broken(text: str) -> bool:
    """Holds a replacement or control character."""
    return "\ufffd" in text or any(unicodedata.category(c) == "Cc" for c in text)
