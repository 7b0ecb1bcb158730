"""Writes the table by which a search index splits text into words, from this Python's Unicode data.

    python benchmarks/word_table.py

Python, the C++ core (Android, iOS) and search.js read the same file, so that no platform's Unicode version matters. The
format: `R"(`, the Unicode version, then four lines of base-36 numbers, one of words, and `)"` (C++ includes the file
as a
literal).

1. runs `gap,count,step,target`: `count` characters, `step` apart, become those from `target` on, as far apart; without
   a target they are dropped
2. other characters: `gap,target,target...`; without a target a character is dropped
3. marks that are kept and whose order is not free: `gap,combining class`
4. classes: `gap,class` of the first character that differs from those before
5. the common words of benchmarks/common_words.py, folded, which a query is searched without

A gap is the distance from the start of the line's entry before.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cache
from itertools import chain

from common_words import COMMON_WORDS

from msdc.files import write_text
from msdc.search.words import BREAK, MARK, REGION, SYMBOL, TABLE, UNSPACED, WORD

LAST = 0x10FFFF
# Scripts without blanks between words; Korean has some, with several words between them.
SCRIPTS = re.compile("CJK UNIFIED|IDEOGRAPHIC|HIRAGANA|KATAKANA|BOPOMOFO|HANGUL|YI |TANGUT|THAI|LAO|KHMER|MYANMAR|TAI "
                     "|NEW TAI |JAVANESE|BALINESE")  # fmt: skip
# Accents, vowel points and nuktas by combining class; signs of Indic vowels, viramas, kana voicing, Thai tones stay.
FREE_MARKS = {1, 7, *range(10, 37), 84, 91, *range(200, 241)}
IGNORABLE = {0x34F, 0x640, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x3164, 0xFFA0, *range(0x180B, 0x1810),
             *range(0xFE00, 0xFE10), *range(0x1F3FB, 0x1F400), *range(0xE0000, 0xE1000)}  # fmt: skip
# One letter on two keyboards (Persian, Arabic), teh marbuta that is typed as heh, letters without a decomposition,
# apostrophes that count as letters, and Malayalam's final letters, formerly a letter, a virama and a joiner.
ALIKE = {"ı": "i", "æ": "ae", "œ": "oe", "ى": "ي", "ی": "ي", "ک": "ك", "ة": "ه", "ۃ": "ه", "ہ": "ه", "ە": "ه", "ھ": "ه",
         "ʼ": "'", "ʻ": "'", "\u2044": "/",
         "ൺ": "ണ്", "ൻ": "ന്", "ർ": "ര്", "ൽ": "ല്", "ൾ": "ള്", "ൿ": "ക്"}  # fmt: skip
STROKES = re.compile(r"LATIN SMALL LETTER ([A-Z]) WITH ")
SYMBOLS = "‼⁉〰〽™℠\u20e3"  # symbols and emoji that have another category or decomposition
PICTURES = (range(0x1F000, 0x1FB00), range(0x1FC00, 0x1FFFE))  # emoji, also those of later versions


@cache
def folded(code: int) -> str:
    """What a character becomes: decomposed, without case, accents and ignorable characters, digits in ASCII."""
    letter = chr(code)
    if letter in SYMBOLS or 0xAC00 <= code <= 0xD7A3 or 0xD800 <= code < 0xE000:
        return letter
    if code in IGNORABLE or unicodedata.category(letter) in ("Cf", "Me"):
        return ""
    if unicodedata.combining(letter) in FREE_MARKS:
        return ""
    if (digit := unicodedata.decimal(letter, None)) is not None:
        return str(digit)
    parts = ALIKE.get(letter) or unicodedata.normalize("NFKD", letter.casefold())
    if parts == letter and (stroke := STROKES.match(unicodedata.name(letter, ""))):
        parts = stroke[1].lower()
    if parts != letter:
        parts = "".join(folded(ord(character)) for character in parts)
    return re.sub("[\u1100-\u11ff]+", lambda match: unicodedata.normalize("NFC", match[0]), parts)


def class_of(code: int) -> int:
    """The class of a character that `folded` leaves as it is."""
    letter = chr(code)
    category = unicodedata.category(letter)
    if letter in SYMBOLS or (category == "Cn" and any(code in picture_range for picture_range in PICTURES)):
        return SYMBOL
    if 0x1F1E6 <= code <= 0x1F1FF:
        return REGION
    if category[0] == "M":
        return MARK
    if category == "Cn":
        return UNSPACED if code >> 16 in (2, 3) else BREAK if code & 0xFFFE == 0xFFFE else WORD
    if category[0] in "LN":
        return UNSPACED if code >> 16 in (2, 3) or SCRIPTS.match(unicodedata.name(letter, "")) else WORD
    # The last two stand for what is no text.
    return SYMBOL if category in ("So", "Sm", "Sc", "Co") and code > 0x7F and code not in (0xFFFC, 0xFFFD) else BREAK


def _line(entries: Iterable[tuple[int, ...]]) -> str:
    """Entries by their starts, which become distances, in base 36."""
    digits, shown, last = "0123456789abcdefghijklmnopqrstuvwxyz", [], 0

    def number(value: int) -> str:
        return (number(value // 36) if value >= 36 else "") + digits[value % 36]

    for start, *rest in sorted(entries):
        shown.append(",".join(map(number, (start - last, *rest))))
        last = start
    return " ".join(shown)


def common_words() -> set[str]:
    """The common words of all languages, as the table folds them."""
    return {fold_word(word) for listed in COMMON_WORDS.values() for word in listed.split()}


def fold_word(word: str) -> str:
    """A word as the table folds it; Korean letters become syllables."""
    return unicodedata.normalize("NFC", "".join(folded(ord(letter)) for letter in unicodedata.normalize("NFC", word)))


def table() -> str:
    """The contents of the file."""
    folds = {code: targets for code in range(LAST + 1) if (targets := folded(code)) != chr(code)}
    runs: list[tuple[int, ...]] = []
    remaining = dict(folds)
    for code, targets in folds.items():
        if code in remaining and len(targets) < 2:
            run = max((_run(remaining, code, step) for step in (1, 2)), key=len)
            if len(run) > 2:
                runs.append((code, len(run), run[1] - run[0], *map(ord, targets)))
                for code_in_run in run:
                    del remaining[code_in_run]
    others = [(code, *map(ord, targets)) for code, targets in remaining.items()]
    unfolded = [code for code in range(LAST + 1) if code not in folds]
    orders = [(code, order) for code in unfolded if (order := unicodedata.combining(chr(code)))]
    classes = [(code, class_of(code)) for code in unfolded]
    before = chain([BREAK], (kind for _, kind in classes))
    starts = [entry for entry, last in zip(classes, before, strict=False) if entry[1] != last]
    lines = [
        f'R"(unicode {unicodedata.unidata_version}',
        *(_line(entries) for entries in (runs, others, orders, starts)),
        " ".join(sorted(common_words())),
        ')"',
    ]
    return "\n".join(lines) + "\n"


def _run(remaining: dict[int, str], code: int, step: int) -> list[int]:
    """The characters from `code` on, `step` apart, that are dropped as it is, or have targets as far apart."""
    run = [code]
    while remaining.get(next_code := run[-1] + step) == (
        chr(ord(remaining[code]) + next_code - code) if remaining[code] else ""
    ):
        run.append(next_code)
    return run


if __name__ == "__main__":
    write_text(TABLE, table())
