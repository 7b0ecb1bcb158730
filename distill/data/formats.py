"""The file formats of corpora. To add one: a function that reads a file, and one record in FORMATS.

A reader returns sources; rows are read when a source is iterated. Bad lines are counted by `Source.complain`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from msdc.distill.data.parquet import read_parquet
from msdc.distill.data.sources import MAX_LINE_BYTES, Row, Source, refuse_test_set
from msdc.distill.recipe import Corpus
from msdc.errors import InputError
from msdc.text.scored_pairs import GOLD_RANGE, read_pairs
from msdc.text.text_files import iterate_lines

NLI_CLASSES = ("contradiction", "entailment", "neutral")  # in the order of their numbers


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    # Bounded: a file without line ends must not become one gigantic string.
    return iterate_lines(path, max_line_bytes=MAX_LINE_BYTES)


def _text_bytes(path: Path) -> int:
    """Approximate size of the text in a file, for the weights of corpora."""
    return path.stat().st_size * (3 if path.suffix == ".gz" else 1)


def _header(first: list[str]) -> list[str] | None:
    """Column languages when the first line is a header of language codes."""
    codes = [cell.strip().lower() for cell in first]
    return codes if len(codes) >= 2 and all(re.fullmatch(r"[a-z]{2,3}(_[A-Za-z]+)?", code) for code in codes) else None


def _tsv(path: Path, corpus: Corpus, language: str) -> list[Source]:
    """Tab-separated pairs, several languages under a header of language codes, or triples."""
    first = next((line for _, line in _lines(path)), "").split("\t")
    columns = _header(first)
    if corpus.kind in ("text", "triples"):
        columns = None
    name = str(path)
    size = _text_bytes(path)

    def make(source_column: int, target_column: int, code: str, width: int, skip: int, share: int) -> Source:
        def rows() -> Iterator[Row]:
            for number, line in _lines(path):
                if number <= skip:
                    continue
                cells = line.split("\t")
                if len(cells) != width:
                    source.complain(number, f"{len(cells)} columns, expected {width}")
                elif not cells[source_column].strip() or not cells[target_column].strip():
                    source.complain(number, "an empty side")
                else:
                    third = cells[2] if corpus.kind == "triples" else ""
                    yield Row(cells[source_column], cells[target_column], code, third)

        source = Source(f"{name}:{code}" if share > 1 else name, code, size // share, corpus, rows)
        return source

    if corpus.kind == "triples":
        return [make(0, 1, corpus.source, 3, 0, 1)]
    if columns is not None:
        if corpus.source not in columns:
            raise InputError(f"{path}: no column {corpus.source!r} (have {', '.join(columns)})")
        wanted = [
            code for code in columns if code != corpus.source and (not corpus.languages or code in corpus.languages)
        ]
        at = columns.index(corpus.source)
        return [make(at, columns.index(code), code, len(columns), 1, len(wanted)) for code in wanted]
    return [make(0, 1, language, 2, 0, 1)]


def join_punctuation(text: str) -> str:
    """Undo the tokenization of old corpora: no blank before closing marks and clitics, none inside brackets."""
    text = re.sub(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", text, flags=re.IGNORECASE)
    return re.sub(r"(?<=[(\[]) | (?=[.,!?;:%)\]])", "", text)


def _text(path: Path, corpus: Corpus, language: str) -> list[Source]:
    """One sentence per line, or the text columns that the corpus names."""
    names = next(_lines(path), (0, ""))[1].split("\t") if corpus.columns else []
    if missing := [c for c in corpus.columns if (c not in names if isinstance(c, str) else not 1 <= c <= len(names))]:
        raise InputError(f"{path}: no column {missing[0]!r} (have {', '.join(names)[:80]})")
    places = [names.index(c) if isinstance(c, str) else c - 1 for c in corpus.columns]
    header = any(isinstance(c, str) for c in corpus.columns)

    def sentences() -> Iterator[tuple[int, str]]:
        last: list[str] = []
        for number, line in _lines(path):
            if not places:
                yield number, line
            elif number > header:
                cells = line.split("\t")
                found = [cells[place] if place < len(cells) else "" for place in places]
                # Several lines in a row have the same premise.
                yield from ((number, text) for text in found if text not in last)
                last = found

    def rows() -> Iterator[Row]:
        for number, text in sentences():
            if text.strip():
                yield Row(join_punctuation(text) if corpus.tokenized else text, "", corpus.source)
            else:
                source.complain(number, "empty")

    source = Source(str(path), corpus.source, _text_bytes(path), corpus, rows)
    return [source]


def aligned_files(first: Path, second: Path, corpus: Corpus, language: str) -> list[Source]:
    """Two files whose lines correspond; reading raises InputError where one is longer than the other."""

    def rows() -> Iterator[Row]:
        left, right = _lines(first), _lines(second)
        while True:
            one, two = next(left, None), next(right, None)
            if one is None and two is None:
                return
            if one is None or two is None:
                raise InputError(
                    f"{first} and {second}: not line-aligned, one ends at line {(one or two or (0, ''))[0] - 1}"
                )
            if one[1].strip() and two[1].strip():
                yield Row(one[1], two[1], language)
            else:
                source.complain(one[0], "an empty side")

    size = first.stat().st_size + second.stat().st_size
    source = Source(f"{first} + {second.name}", language, size, corpus, rows)
    return [source]


def _gettext(path: Path, corpus: Corpus, language: str) -> list[Source]:
    """Translated entries of a gettext catalogue; fuzzy ones count as bad."""
    quoted = re.compile(r'^(?:(msgid|msgstr|msgctxt|msgid_plural|msgstr\[\d+\])\s+)?"(.*)"\s*$')

    def unescape(text: str) -> str:
        return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text)

    def rows() -> Iterator[Row]:
        entry: dict[str, list[str]] = {}
        key, fuzzy, size = "", False, 0

        def text(name: str) -> str:
            return unescape("".join(entry.get(name, ())))

        for number, line in chain(_lines(path), [(0, "")]):
            if line.startswith("#,") and "fuzzy" in line:
                fuzzy = True
            match = quoted.match(line)
            if match:
                key = match[1] or key
                size += len(match[2])
                # What is longer than a line may be is counted as bad and not held.
                if size <= MAX_LINE_BYTES:
                    entry.setdefault(key, []).append(match[2])
            elif not line.strip() and size > MAX_LINE_BYTES:
                source.complain(number, f"a message of {size} characters")
                entry, key, fuzzy, size = {}, "", False, 0
            elif not line.strip() and entry:
                source_text, target_text = text("msgid"), text("msgstr")
                if source_text.strip() and target_text.strip() and not fuzzy:
                    yield Row(source_text, target_text, language)
                elif source_text.strip():
                    source.complain(number, "untranslated or fuzzy")
                entry, key, fuzzy, size = {}, "", False, 0

    source = Source(str(path), language, path.stat().st_size, corpus, rows)
    return [source]


def _dictionary(path: Path, corpus: Corpus, language: str) -> list[Source]:
    """Word pairs separated by a tab or blank, as MUSE has them, as parallel data (Reimers and Gurevych 2020)."""

    def rows() -> Iterator[Row]:
        for number, line in _lines(path):
            cells = line.split("\t") if "\t" in line else line.split(maxsplit=1)
            if len(cells) >= 2 and cells[0].strip() and cells[1].strip():
                yield Row(cells[0], cells[1], language)
            else:
                source.complain(number, "not a word pair")

    source = Source(str(path), language, path.stat().st_size, corpus, rows)
    return [source]


def _nli(path: Path, corpus: Corpus, language: str) -> list[Source]:
    """Labelled pairs (label, premise, hypothesis; further columns are ignored) as triples.

    Pairs of one premise follow each other, as in SNLI and MultiNLI; every entailed hypothesis is combined with every
    contradicting one. A premise that lacks either gives no triple and counts as a bad line.
    """

    def rows() -> Iterator[Row]:
        premise = ""
        found: dict[str, list[str]] = {}
        for number, line in chain(_lines(path), [(0, "")]):
            cells = line.split("\t")
            if len(cells) < 3 or cells[1].strip() != premise:
                if found:
                    entailed, contradicting = found.get("entailment", []), found.get("contradiction", [])
                    if not entailed or not contradicting:
                        source.complain(number, "the premise before has no entailment or no contradiction")
                    for one in entailed:
                        for other in contradicting:
                            yield Row(premise, one, corpus.source, other)
                premise, found = "", {}
            if len(cells) >= 3 and cells[0] in ("entailment", "neutral", "contradiction"):
                premise = cells[1].strip()
                found.setdefault(cells[0], []).append(cells[2])

    source = Source(str(path), corpus.source, _text_bytes(path), corpus, rows)
    return [source]


def _nli_pairs(path: Path, corpus: Corpus, language: str) -> list[Source]:
    """Labelled pairs as they are (label, premise, hypothesis; further columns are ignored), for classification."""

    def rows() -> Iterator[Row]:
        for number, line in _lines(path):
            cells = line.split("\t")
            if len(cells) >= 3 and cells[0] in NLI_CLASSES and cells[1].strip() and cells[2].strip():
                yield Row(cells[1], cells[2], corpus.source, label=float(NLI_CLASSES.index(cells[0])))
            else:
                source.complain(number, "expected a label of NLI, a premise and a hypothesis")

    source = Source(str(path), corpus.source, _text_bytes(path), corpus, rows)
    return [source]


def _scored(path: Path, corpus: Corpus, language: str) -> list[Source]:
    """Pairs with gold similarities 0 .. 5 in any layout of msdc.text.scored_pairs, scaled to 0 .. 1, for regression."""
    refuse_test_set(path, "be trained on; name the training part")

    def rows() -> Iterator[Row]:
        pairs = read_pairs(path)
        for first, second, gold in zip(pairs.first, pairs.second, pairs.gold_N.tolist(), strict=True):
            yield Row(first, second, corpus.source, label=gold / GOLD_RANGE[1])

    source = Source(str(path), corpus.source, _text_bytes(path), corpus, rows)
    return [source]


@dataclass(frozen=True)
class Format:
    """How a kind of corpus file is read.

    Attributes:
        kind: `kind` of a corpus in a recipe; empty for a format that only its suffix chooses.
        read: (file, corpus, target language) -> its sources.
        suffixes: files of these names are read so whatever the kind, unless a format before this one fits.
        auto: files of these names are read so where the kind is `auto`.
        parallel: the text has a target language, by which files are chosen.
    """

    kind: str
    read: Callable[[Path, Corpus, str], list[Source]]
    suffixes: tuple[str, ...] = ()
    auto: tuple[str, ...] = ()
    parallel: bool = True


# The first that fits is taken; the last one reads everything else.
FORMATS = (
    Format("nli", _nli, parallel=False),
    Format("nli-pairs", _nli_pairs, parallel=False),
    Format("scored", _scored, parallel=False),
    Format("dictionary", _dictionary),
    Format("gettext", _gettext, suffixes=(".po",)),
    Format("", read_parquet, suffixes=(".parquet",)),
    Format("text", _text, auto=(".txt", ".txt.gz"), parallel=False),
    Format("triples", _tsv, parallel=False),
    Format("pairs", _tsv),
)
KINDS = ("auto", *(one.kind for one in FORMATS if one.kind))


def find_format(path: Path, kind: str) -> Format:
    """The format of a file in a corpus of `kind`."""
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    for one in FORMATS:
        if one.kind == kind or suffix in one.suffixes or (kind == "auto" and suffix in one.auto):
            return one
    return FORMATS[-1]


def has_target(kind: str) -> bool:
    """Whether corpora of `kind` have a target language."""
    return all(one.parallel for one in FORMATS if one.kind == kind)
