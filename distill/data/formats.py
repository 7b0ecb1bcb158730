"""The file formats of corpora. To add one: a function that reads a file, and one record in FORMATS.

A reader returns sources; rows are read when a source is iterated. Bad lines are counted by `Source.complain`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from msdc.distill.data.columns import (
    Pair,
    find_pairs,
    find_texts,
    find_triple,
    is_header,
    unknown_form,
    unnamed_language,
)
from msdc.distill.data.labelled_pairs import read_nli, read_nli_pairs
from msdc.distill.data.markup import read_tmx, read_xliff
from msdc.distill.data.sources import Row, Source, language_of, refuse_test_set
from msdc.distill.recipe import KINDS, Corpus
from msdc.errors import InputError
from msdc.files import regular_size
from msdc.text.parquet import open_parquet
from msdc.text.scored_pairs import GOLD_RANGE, read_pairs
from msdc.text.tabular import MAX_LINE_BYTES, Table, open_delimited, open_json_lines, text_bytes
from msdc.text.text_files import iterate_lines


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    # Bounded: a file without line ends must not become one gigantic string.
    return iterate_lines(path, max_line_bytes=MAX_LINE_BYTES)


def _rows_of(table: Table, columns: Sequence[int], make: Callable[[list[str]], Row], source: Source) -> Iterator[Row]:
    """Rows from the cells of some columns; what is empty or no text is counted as bad."""
    for number, cells in table.read(columns):
        if isinstance(cells, str):
            source.complain(number, cells)
            continue
        texts = [cell for cell in cells if isinstance(cell, str)]
        if any(cell is not None and not isinstance(cell, str) for cell in cells):
            source.complain(number, "not text")
        elif len(texts) < len(cells) or not all(text.strip() for text in texts):
            source.complain(number, "empty" if len(columns) == 1 else "an empty side")
        else:
            yield make(texts)


def read_columns(table: Table, corpus: Corpus, language: str | None) -> list[Source]:
    """The sources of a table: pairs, triples or plain text, by the corpus' kind.

    Raises:
        InputError: it cannot be told which columns are meant, or which language.
    """

    def make(name: str, columns: Sequence[int], code: str, share: int, row: Callable[[list[str]], Row]) -> Source:
        named = " + ".join(table.names[c] if table.names else str(c + 1) for c in columns)
        form = f"{table.form}, columns {named}"
        source = Source(
            name, code, table.size // share, corpus, lambda: _rows_of(table, columns, row, source), form=form
        )
        return source

    name = str(table.path)
    if corpus.kind == "triples":
        triple = find_triple(table, corpus)
        return [make(name, triple, corpus.source, 1, lambda t: Row(t[0], t[1], corpus.source, t[2]))]
    if corpus.kind == "text":
        columns = find_texts(table, corpus)
        labels = [f"{name}:{one + 1}" if len(columns) > 1 else name for one in columns]
        return [
            make(label, [one], corpus.source, len(columns), lambda t: _plain(t[0], corpus))
            for label, one in zip(labels, columns, strict=True)
        ]
    pairs = find_pairs(table, corpus, language)

    def pair(one: Pair) -> Source:
        label = f"{name}:{one.language}" if len(pairs) > 1 else name
        columns = (one.source, one.target)
        return make(label, columns, one.language, len(pairs), lambda t: Row(t[0], t[1], one.language))

    return [pair(one) for one in pairs]


# First bytes of files that are no text, as people call them
_BINARY = {
    b"PK": "a zip archive or an Office document",
    b"%PDF": "PDF",
    b"\xd0\xcf\x11\xe0": "an old Office document",
    b"SQLite": "an SQLite database",
    b"ARROW1": "an Arrow file",
    b"7z": "a 7z archive",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "zstd",
}


def _refuse_binary(path: Path) -> None:
    """Say what a file is that is no text.

    Raises:
        InputError: its first bytes are those of another known format.
    """
    regular_size(path)
    with open(path, "rb") as handle:
        first = handle.read(8)
    seen = next((name for mark, name in _BINARY.items() if first.startswith(mark) and b"\t" not in first), None)
    if seen is not None:
        raise unknown_form(path, seen)


def _table(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
    """Tab-separated text or csv."""
    _refuse_binary(path)
    any_names = ".csv" in path.suffixes[-2:]
    table = open_delimited(path, lambda cells, rows: is_header(corpus, cells, rows, any_names))
    return read_columns(table, corpus, language)


def _json_lines(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
    if next((line.strip() for _, line in _lines(path) if line.strip()), "") == "[":
        raise unknown_form(path, "one JSON list; write one object per line (jq -c '.[]')")
    return read_columns(open_json_lines(path), corpus, language)


def _parquet(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
    return read_columns(open_parquet(path), corpus, language)


def _plain(text: str, corpus: Corpus) -> Row:
    return Row(join_punctuation(text) if corpus.tokenized else text, "", corpus.source)


def join_punctuation(text: str) -> str:
    """Undo the tokenization of old corpora: no blank before closing marks and clitics, none inside brackets."""
    text = re.sub(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", text, flags=re.IGNORECASE)
    return re.sub(r"(?<=[(\[]) | (?=[.,!?;:%)\]])", "", text)


def _text(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
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
                yield _plain(text, corpus)
            else:
                source.complain(number, "empty")

    source = Source(str(path), corpus.source, text_bytes(path), corpus, rows)
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


def _gettext(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
    """Translated entries of a gettext catalogue; fuzzy ones count as bad.

    The language is the corpus', that of the file's name, or the one in the catalogue's header.
    """
    code = language or language_of(path, corpus, at_end=True)
    if code is None:
        head = (re.search(r'^"Language: *([a-z]{2,3})', line) for _, line in islice(_lines(path), 100))
        code = next((match[1] for match in head if match), None)
    if code is None:
        raise unnamed_language(path)
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
                    yield Row(source_text, target_text, code)
                elif source_text.strip():
                    source.complain(number, "untranslated or fuzzy")
                entry, key, fuzzy, size = {}, "", False, 0

    source = Source(str(path), code, path.stat().st_size, corpus, rows, form="gettext")
    return [source]


def _dictionary(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
    """Word pairs separated by a tab or blank, as MUSE has them, as parallel data (Reimers and Gurevych 2020)."""
    if language is None:
        raise unnamed_language(path)

    def rows() -> Iterator[Row]:
        for number, line in _lines(path):
            cells = line.split("\t") if "\t" in line else line.split(maxsplit=1)
            if len(cells) >= 2 and cells[0].strip() and cells[1].strip():
                yield Row(cells[0], cells[1], language)
            else:
                source.complain(number, "not a word pair")

    source = Source(str(path), language, path.stat().st_size, corpus, rows)
    return [source]


def _scored(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
    """Pairs with gold similarities 0 .. 5 in any layout of msdc.text.scored_pairs, scaled to 0 .. 1, for regression."""
    refuse_test_set(path, "be trained on; name the training part")

    def rows() -> Iterator[Row]:
        pairs = read_pairs(path)
        for first, second, gold in zip(pairs.first, pairs.second, pairs.gold_N.tolist(), strict=True):
            yield Row(first, second, corpus.source, label=gold / GOLD_RANGE[1])

    source = Source(str(path), corpus.source, text_bytes(path), corpus, rows)
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
    read: Callable[[Path, Corpus, str | None], list[Source]]
    suffixes: tuple[str, ...] = ()
    auto: tuple[str, ...] = ()
    parallel: bool = True


# The first that fits is taken; the last one reads everything else.
FORMATS = (
    Format("nli", read_nli, parallel=False),
    Format("nli-pairs", read_nli_pairs, parallel=False),
    Format("scored", _scored, parallel=False),
    Format("dictionary", _dictionary),
    Format("gettext", _gettext, suffixes=(".po",)),
    Format("", _parquet, suffixes=(".parquet",)),
    Format("", _json_lines, suffixes=(".jsonl", ".jsonl.gz", ".ndjson", ".json", ".json.gz")),
    Format("", read_tmx, suffixes=(".tmx", ".tmx.gz")),
    Format("", read_xliff, suffixes=(".xlf", ".xliff", ".xlf.gz", ".xliff.gz")),
    Format("", _table, suffixes=(".csv", ".csv.gz")),
    Format("text", _text, auto=(".txt", ".txt.gz"), parallel=False),
    Format("triples", _table, parallel=False),
    Format("pairs", _table),
)
assert set(KINDS) == {"auto", *(one.kind for one in FORMATS if one.kind)}


def find_format(path: Path, kind: str) -> Format:
    """The format of a file in a corpus of `kind`."""
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    for one in FORMATS:
        if one.kind == kind or suffix in one.suffixes or (kind == "auto" and suffix in one.auto):
            return one
    return FORMATS[-1]


def is_corpus_file(path: Path) -> bool:
    """Whether a file of a folder is read as a corpus, by its suffix."""
    suffixes = {suffix for one in FORMATS for suffix in (*one.suffixes, *one.auto)} | {".tsv", ".tsv.gz"}
    return path.is_file() and any(path.name.endswith(suffix) for suffix in suffixes)


def has_target(kind: str) -> bool:
    """Whether corpora of `kind` have a target language."""
    return all(one.parallel for one in FORMATS if one.kind == kind)
