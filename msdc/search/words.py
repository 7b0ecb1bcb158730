"""The words by which an index finds text, and the query that finds them: the same on every platform.

A text is decomposed and loses case, accents, vowel points and invisible characters, by a table that the C++ core
reads too (benchmarks/word_table.py writes it). A word is a run of letters, digits and their signs; a symbol or
an emoji is a word of its own. Scripts without blanks, and Korean, are indexed by overlapping pairs of letters. FTS5
splits the words of `index_words` at the blanks between them, and its `ascii` tokenizer changes nothing else.

Other spellings of a word follow behind the words of a text: Mueller for Müller, OBrien for O'Brien, wifi for Wi-Fi, the
parts of getUserAddress, words that a hyphen divides at the end of a line, and numbers without signs between groups.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import pairwise, zip_longest
from pathlib import Path
from typing import Literal, NamedTuple
from unicodedata import normalize

from msdc.search.numbers import written_numbers

TABLE = Path(__file__).with_name("word_table.h")  # the native core has a link to it, which an export copies
BREAK, WORD, UNSPACED, MARK, SYMBOL, REGION = range(6)  # classes of characters
HANGUL = re.compile("[\u1100-\u11ff\uac00-\ud7a3]+")  # letters and syllables
LETTERS = re.compile("[\u1100-\u11ff]")
CHUNK = re.compile(r"\S+")
PUNCTUATION = re.compile("[\0-/:-`{-\x7f]+")  # what breaks words, of ASCII; its capitals are folded
# Letters of scripts with blanks between words (and the marks on them), as far as other spellings are concerned.
LETTER = "A-Za-z\u00c0-\u1fff"
JOINT = re.compile(f"(?<=[{LETTER}])['\u2018\u2019\u02bb\u02bc`\u00b4\u2032\uff07\u2010\u2011-](?=[{LETTER}])")
# A hyphen with blanks, of which one must be a line end, or what PDFium writes for both.
DIVIDED = re.compile(
    f"(?:[\u00ad\u2010\u2011-](?<=[{LETTER}].)\\s+|[\x02\ufffe](?<=[{LETTER}].)\\s*)(?!\\s)(?=[{LETTER}])"
)
LINE_ENDS = frozenset("\n\v\f\r\x85\u2028\u2029\x02\ufffe")
UMLAUTS = {letter: spelled for spelled, letters in (
    ("ae", "ä Ä ǟ Ǟ a\u0308 A\u0308"), ("oe", "ö Ö ȫ Ȫ o\u0308 O\u0308 ø Ø ǿ Ǿ"), ("aa",
    "å Å ǻ Ǻ a\u030a A\u030a \u212b"),
    ("ue", "ü Ü ǖ Ǖ ǘ Ǘ ǚ Ǚ ǜ Ǜ u\u0308 U\u0308"),
) for letter in letters.split()}  # fmt: skip
UMLAUT = re.compile("|".join(UMLAUTS))
HUMP = re.compile("(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z][a-z])")
SPELLED = re.compile("|".join(pattern.pattern for pattern in (UMLAUT, JOINT, HUMP)))
NAME = re.compile(f"(?<![{LETTER}0-9])[A-Za-z0-9]+(?![{LETTER}0-9])")
CODE = re.compile(f"[0-9]|[{LETTER}][._/:@+#&\u2010\u2011-](?=[{LETTER}])")
QUOTES = {'"': '"', **dict.fromkeys("“„«”‟", "”“»")}  # an opening quote, and what closes it
TITLE_WORDS = 128  # a query with more is not compared with titles
SENTENCE_WORDS = 5  # single letters that are words (a, I, y) are left out of a query from so many words on
PREFIX_SHARE = 0.5  # what an entry earns for the first letters of the query's last word, against the word itself
Syntax = Literal["operators", "plain"]


class _Table(NamedTuple):
    folds: dict[int, str]
    orders: dict[str, int]
    marks: re.Pattern[str]  # several that have an order
    words: re.Pattern[str]  # group 1: without blanks
    letters: re.Pattern[str]  # of those, with their marks
    common: frozenset[str]  # words that are left out of a query


@cache
def fold_table() -> _Table:
    """The table that folds and splits text, read once."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()[1:]

    def entries(line: str) -> Iterator[tuple[int, list[int]]]:
        start = 0
        for entry in line.split():
            gap, *rest = (int(number, 36) for number in entry.split(","))
            start += gap
            yield start, rest

    folds = {}
    for start, (count, step, *target) in entries(lines[0]):
        for offset in range(0, count * step, step):
            folds[start + offset] = chr(target[0] + offset) if target else ""
    folds |= {start: "".join(map(chr, targets)) for start, targets in entries(lines[1])}
    orders = {chr(start): order for start, (order,) in entries(lines[2])}
    ranges, starts = [""] * 6, [*entries(lines[3]), (0x110000, [BREAK])]
    for (start, (kind,)), (end, _) in pairwise(starts):
        ranges[kind] += f"\\U{start:08x}-\\U{end - 1:08x}"
    _, word, unspaced, mark, symbol, region = ranges
    words = f"([{unspaced}][{unspaced}{mark}]*)|[{word}][{word}{mark}]*|[{region}]{{1,2}}|[{symbol}]"
    marks, letters = f"[{''.join(orders)}]{{2,}}", f"[{unspaced}][{mark}]*"
    common = frozenset(lines[4].split())
    return _Table(folds, orders, re.compile(marks), re.compile(words), re.compile(letters), common)


def _words(text: str) -> Iterator[tuple[str, list[str]]]:
    """The words of a text; for those without blanks between also their letters."""
    return _folded_words(text.translate(fold_table().folds))


def _folded_words(text: str) -> Iterator[tuple[str, list[str]]]:
    table = fold_table()
    if LETTERS.search(text):  # this part of NFC is the same in every version
        text = HANGUL.sub(lambda match: normalize("NFC", match[0]), text)
    if not text.isascii():
        text = table.marks.sub(lambda match: "".join(sorted(match[0], key=table.orders.__getitem__)), text)
    for part in PUNCTUATION.split(text):
        if part.isascii():
            if part:
                yield part, []
            continue
        for match in table.words.finditer(part):
            yield match[0], table.letters.findall(match[0]) if match[1] else []


def terms_of(text: str) -> list[str]:
    """The stored words of a text: of scripts without blanks its pairs of letters, and the last letter of a run
    alone."""
    return _terms(_words(text))


def _terms(words: Iterable[tuple[str, list[str]]]) -> list[str]:
    terms: list[str] = []
    for word, letters in words:
        terms += map("".join, zip_longest(letters, letters[1:], fillvalue="")) if letters else [word]
    return terms


class _Spellings(NamedTuple):
    """Other spellings of the words of a chunk, a part of a text without blanks."""

    umlauts: list[str]  # all its words with ae, oe, ue for umlauts; empty if it has none
    joined: list[str]  # those that end in joined ones: obrien, wifi
    parts: dict[str, str]  # of a name in camel case: its words by the whole, in lower case


def spellings(chunk: str, terms: list[str]) -> _Spellings:
    """Other spellings of a chunk with these terms."""
    stored = set(terms)
    umlauts = UMLAUT.sub(lambda match: UMLAUTS[match[0]], chunk)
    joined = JOINT.sub("", chunk)
    names = [name[0] for name in NAME.finditer(chunk)]
    return _Spellings(
        terms_of(umlauts) if umlauts != chunk else [],
        [term for term in terms_of(joined) if term not in stored] if joined != chunk else [],
        {name.lower(): HUMP.sub(" ", name).lower() for name in names if HUMP.search(name)},
    )


def undivided(text: str) -> Iterator[tuple[str, list[int]]]:
    """The chunks with words that a hyphen divides at the end of a line, as in text from PDF files, without the hyphen
    and the line end; and the position in the text of each of their characters."""
    cuts = [match.span() for match in DIVIDED.finditer(text) if not LINE_ENDS.isdisjoint(match[0])]
    if not cuts:
        return
    starts, ends = [0, *(end for _, end in cuts)], [*(start for start, _ in cuts), len(text)]
    origins = [position for start, end in zip(starts, ends, strict=True) for position in range(start, end)]
    joined = "".join(text[start:end] for start, end in zip(starts, ends, strict=True))
    seams = itertools.accumulate(end - start for start, end in zip(starts, ends[:-1], strict=False))
    seam = next(seams)
    for chunk in CHUNK.finditer(joined):
        start, end = chunk.span()
        if seam < end:
            yield chunk[0], origins[start:end]
            while seam < end:
                seam = next(seams, len(joined))


def index_words(text: str) -> str:
    """What an index stores of a text: its words, with blanks between; without blanks in the text, its pairs of letters.

    The last letter of a run follows alone, so that every letter starts a stored word. Other spellings are at the end.
    """
    folded = text.translate(fold_table().folds)
    terms = _terms(_folded_words(folded))
    stored, others = set(terms), dict[str, None]()
    if SPELLED.search(text):
        for chunk in filter(SPELLED.search, text.split()):
            umlauts, joined, parts = spellings(chunk, terms_of(chunk))
            others |= dict.fromkeys(word for word in (*umlauts, *joined) if word not in stored)
            others |= dict.fromkeys(parts.values())
    for chunk, _ in undivided(text):
        chunk_terms = terms_of(chunk)
        umlauts, joined, _ = spellings(chunk, chunk_terms)
        others |= dict.fromkeys(word for word in (*chunk_terms, *umlauts, *joined) if word not in stored)
    numbers = written_numbers(folded, fold_table().words.finditer(folded))
    others |= dict.fromkeys(number.joined for number in numbers if number.joined not in stored)
    return " ".join((*terms, *others))


# --- queries ----------------------------------------------------------------------------------------------------------


class _Segment(NamedTuple):
    text: str
    kind: Literal["words", "quoted", "without"]


def _is_letter(char: str) -> bool:
    if char.isascii():
        return char.isalpha()
    return "\u00c0" <= char < "\u2000" or (char >= "\u2c00" and char != "\u3000")


def _segments(query: str) -> list[_Segment]:
    """A query taken apart at its operators: quotes, and a minus before a word or a quote.

    Each closing quote is looked for once and each text without a word is read once, so that the time is linear.
    """
    segments, start, position = list[_Segment](), 0, 0
    closed_at = dict[str, int]()  # by closing quotes: the next of them, the end of the query if there is none
    blank_end = 0  # from an earlier position to here is no word
    while position < len(query):
        minus = query[position] == "-"
        first = position + minus
        if (position and not query[position - 1].isspace()) or first == len(query):
            position += 1
            continue
        begin = end = content_end = 0
        if closing := QUOTES.get(query[first]):
            begin = first + 1
            if closed_at.get(closing, -1) < begin:
                rest = range(begin, len(query))
                closed_at[closing] = next((index for index in rest if query[index] in closing), len(query))
            content_end = closed_at[closing]
            end = content_end + 1 if content_end < len(query) else 0
            if end < len(query) and (_is_letter(query[end]) or query[end].isdecimal()):
                end = 0  # 27" or 32"
        elif minus and _is_letter(query[first]):
            begin = first
            end = content_end = next((i for i in range(first, len(query)) if query[i].isspace()), len(query))
            if content_end - begin < 2 and query[begin].isascii():
                end = 0  # an option: -v
        if end and content_end > blank_end and terms_of(content := query[begin:content_end]):
            segments += [_Segment(query[start:position], "words"), _Segment(content, "without" if minus else "quoted")]
            start = position = end
        else:
            blank_end = max(blank_end, content_end) if end else blank_end
            position += 1
    segments.append(_Segment(query[start:], "words"))
    return segments


def _phrase(terms: list[str], letters: list[str]) -> str:
    """FTS5's expression for words that follow each other; `letters` are those of the last run without blanks."""
    return f'"{" ".join(terms)}"' + ("*" if letters else "")


class _Forms:
    """The words and phrases of a query, each with its forms (expression, share), without the common words."""

    def __init__(self) -> None:
        self.forms: dict[str, list[tuple[str, float]]] = {}
        self.common: dict[str, list[tuple[str, float]]] = {}

    def add(self, expression: str, prefix: str | None = None, common: bool = False) -> None:
        forms = [(expression, 1 - PREFIX_SHARE), (prefix, PREFIX_SHARE)] if prefix else [(expression, 1.0)]
        into = self.common if common else self.forms
        if expression not in into or prefix:
            into[expression] = forms

    def rows(self) -> list[list[str | float]]:
        remaining = (self.forms or self.common).values()
        return [[number, *form] for number, forms in enumerate(remaining) for form in forms]


def _either(*expressions: str) -> str:
    return " OR ".join(dict.fromkeys(expressions))


def _may_go_on(chunk: str) -> bool:
    """Whether the last word of a chunk is still being typed."""
    *_, (last_word, last_letters) = _words(chunk)
    return not last_letters and terms_of(f"{chunk}a")[-1] == f"{last_word}a"


class _Numbers(NamedTuple):
    """Expressions of the written numbers of which a word is a group, and of those that are still being typed."""

    complete: list[str]
    typed: list[str]

    @classmethod
    def of_all(cls, numbers: Iterable[_Numbers]) -> _Numbers:
        """Those of several words."""
        complete, typed = map(itertools.chain.from_iterable, zip(*numbers, strict=True))
        return cls([*complete], [*typed])

    def prefix(self, forms: Sequence[str], goes_on: bool) -> str | None:
        """The expression of a word with these forms whose last letters, or those of its number, may be missing."""
        if goes_on:
            return _either(*(f"{form}*" for form in (*forms, *self.complete)))
        return _either(*forms, *self.complete, *self.typed) if self.typed else None


def _add_chunk(chunk: str, typing: bool, shortest: int, remaining: Iterator[_Numbers], into: _Forms) -> None:
    """The words of a chunk, and if it is a code the phrase of them.

    `typing`: its last word may go on; `shortest`: letters of a word that may be a common one; `remaining`: the numbers
    of each word, here and in the chunks behind.
    """
    words = list(_words(chunk))
    terms, numbers = _terms(words), [*itertools.islice(remaining, len(words))]
    umlauts, joined, parts = spellings(chunk, terms)
    _, last_letters = words[-1]
    is_code = bool(CODE.search(chunk)) and len(terms) > 1 and all(len(letters) < 2 for _, letters in words)
    for number, (word, letters) in enumerate(words):
        is_last = number == len(words) - 1
        pairs = dict.fromkeys(map("".join, pairwise(letters))) if len(letters) > 1 else [word]
        for position, pair in enumerate(pairs):
            forms = [f'"{pair}"']
            if len(umlauts) == len(words) == len(terms):
                forms.append(f'"{umlauts[number]}"')
            if word in parts:
                forms.append(f'"{parts[word]}"')
            # With each pair of a run they would be a product of both.
            if is_last and not position and not is_code:
                forms += [f'"{term}"' for term in joined]
            expression = f'"{pair}"*' if len(letters) == 1 else _either(*forms, *numbers[number].complete)
            prefix = numbers[number].prefix(forms, typing and is_last and len(word) > 1)
            into.add(expression, prefix, common=len(word) >= shortest and pair in fold_table().common)
    if is_code:
        forms = [_phrase(terms, last_letters), *(f'"{term}"' for term in joined)]
        written = _Numbers.of_all(numbers)
        into.add(_either(*forms, *written.complete), written.prefix(forms, typing))


def _numbers(content: str, word_count: int, typing: bool) -> list[_Numbers]:
    """The written numbers of each word of a text."""
    numbers, folded = [_Numbers([], []) for _ in range(word_count)], content.translate(fold_table().folds)
    for number in written_numbers(folded, fold_table().words.finditer(folded)):
        goes_on = typing and number.last == word_count - 1
        for word in numbers[number.first : number.last + 1]:
            word.complete.append(f'"{number.joined}"')
            word.typed.extend([f'"{number.joined}"*'] if goes_on else [])
    return numbers


def parse_query(query: str, syntax: Syntax = "operators") -> str:
    """What search.sql looks for, as JSON.

    `text` is what the model encodes, `same` the words of an equal title (empty: too long for one), `words` the rows
    [number of a word or phrase, FTS5's expression for a form of it, share of its score], `quoted` the expressions in
    quotes, `without` that of excluded entries. Common words are left out, unless nothing would remain. A chunk between
    blanks that holds a digit, or a sign between letters, is also looked for as a phrase. search.sql ranks by 128 words
    and phrases, of a longer query the rarest of those that occur. Operators: "words in quotes", -excluded, -"both".
    """
    segments = _segments(query) if syntax == "operators" else [_Segment(query, "words")]
    positive = [segment for segment in segments if segment.kind != "without"]
    if not any(terms_of(segment.text) for segment in positive):
        segments = positive = [_Segment(query, "words")]
    forms, quoted, without = _Forms(), list[str](), list[str]()
    shortest = 1 if sum(len(segment.text.split()) for segment in positive) >= SENTENCE_WORDS else 2
    for number, (content, kind) in enumerate(segments):
        runs = list(_words(content))
        terms = _terms(runs)
        letters = runs[-1][1] if runs else []
        if kind == "without":
            without.append(_phrase(terms, letters))
            continue
        chunks = [chunk for chunk in content.split() if terms_of(chunk)]
        is_end = kind == "words" and number == len(segments) - 1 and bool(chunks) and content.endswith(chunks[-1])
        typing = is_end and _may_go_on(chunks[-1])
        numbers = iter(_numbers(content, len(runs), typing))
        for position, chunk in enumerate(chunks, 1):
            _add_chunk(chunk, typing and position == len(chunks), shortest, numbers, forms)
        if kind == "quoted":
            quoted.append(_phrase(terms, letters))
            forms.add(quoted[-1])
    text = query if len(segments) == 1 else " ".join(" ".join(segment.text for segment in positive).split())
    same = index_words(text)
    plan = {
        "text": text.replace("\0", " "),  # SQLite reads a text up to a NUL character
        "same": same if same.count(" ") < TITLE_WORDS else "",
        "words": forms.rows(),
        "quoted": quoted,
        "without": _either(*without) or None,
    }
    return json.dumps(plan, ensure_ascii=False)
