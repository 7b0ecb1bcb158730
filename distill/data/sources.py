"""Corpora as streams of rows, whatever their form: tsv, parquet, two aligned files, gettext, dictionary, hub, OPUS.

A row is `(source, target, language)`; plain text has an empty target, a triple carries its third sentence as a
fourth field. Bad lines are counted and the first of each file is reported with its number; a file of nothing but bad
lines is an error.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from msdc.distill.recipe import Corpus
from msdc.errors import InputError
from msdc.text.text_files import iterate_lines
from msdc.text.tokenizer import clean

LANGUAGE_IN_NAME = re.compile(r"(?:^|[._-])([a-z]{2,3})-([a-z]{2,3})(?=[._]|$)")
MAX_LINE_BYTES = 1_000_000


class Row(NamedTuple):
    """One training example; `third` only in triples (premise, entailment, contradiction).

    `domain` is the number of the recipe's corpus that it is from.
    """

    source: str
    target: str
    language: str
    third: str = ""
    domain: int = 0


@dataclass
class Source:
    """One readable part of a corpus: a name for messages, an estimate of its size, and how to read it."""

    name: str
    language: str
    bytes: int
    corpus: Corpus
    rows: Callable[[], Iterator[Row]]
    bad: int = 0
    first_bad: str = ""
    domain: int = 0
    seen: int = field(default=0, repr=False)
    made: bool = False  # its targets are made, not written by people: never held out, never learnt a vocabulary from

    def read(self) -> Iterator[Row]:
        """Rows cleaned and filtered by the corpus' limits; counts the bad ones.

        Raises:
            InputError: no usable row in the whole source.
        """
        taken = 0
        self.bad, self.first_bad = 0, ""
        longest, limit = self.corpus.max_characters, self.corpus.limit
        for source, target, language, third, _ in self.rows():
            source, target = clean(source), clean(target)
            if len(source) > longest or len(target) > longest:
                continue
            taken += 1
            yield Row(source, target, language, clean(third) if third else "", self.domain)
            if taken == limit:
                break
        self.seen = taken
        if not taken:
            reason = f"; {self.first_bad}" if self.first_bad else " (empty, or every sentence is too long)"
            raise InputError(f"{self.name}: no usable sentence{reason}")

    def complain(self, line: int, why: str) -> None:
        """Count a bad line; remember the first."""
        self.bad += 1
        if not self.first_bad:
            self.first_bad = f"line {line}: {why}"


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    # Bounded: a file without line ends must not become one gigantic string.
    return iterate_lines(path, max_line_bytes=MAX_LINE_BYTES)


def _text_bytes(path: Path) -> int:
    """Size of the text in a file, near enough to weigh corpora by."""
    return path.stat().st_size * (3 if path.suffix == ".gz" else 1)


def _header(first: list[str]) -> list[str] | None:
    """Column languages when the first line is a header of language codes."""
    codes = [cell.strip().lower() for cell in first]
    return codes if len(codes) >= 2 and all(re.fullmatch(r"[a-z]{2,3}(_[A-Za-z]+)?", code) for code in codes) else None


def _tsv(path: Path, corpus: Corpus, language: str) -> list[Source]:
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
    """Text of old corpora as people write it: no blank before closing marks and clitics, none inside brackets."""
    text = re.sub(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", text, flags=re.IGNORECASE)
    return re.sub(r"(?<=[(\[]) | (?=[.,!?;:%)\]])", "", text)


def _text(path: Path, corpus: Corpus) -> list[Source]:
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
                # A premise stands in several lines, one after the other.
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


def _parquet(path: Path, corpus: Corpus, language: str) -> list[Source]:
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
    except Exception as error:
        raise InputError(f"{path}: not a parquet file ({str(error).splitlines()[0]})") from error
    names = file.schema_arrow.names
    pick = [n for n in ("english", "source", "en", "sentence1") if n in names] or names[:1]
    other = [n for n in ("non_english", "target", language, "sentence2") if n in names and n not in pick] or names[1:2]
    if not other:
        raise InputError(f"{path}: needs two text columns, has {', '.join(names)}")

    def rows() -> Iterator[Row]:
        number = 0
        for batch in file.iter_batches(batch_size=8192, columns=[pick[0], other[0]]):
            for first, second in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                number += 1
                if isinstance(first, str) and isinstance(second, str) and first.strip() and second.strip():
                    yield Row(first, second, language)
                else:
                    source.complain(number, "an empty side or not text")

    source = Source(str(path), language, path.stat().st_size * 2, corpus, rows)
    return [source]


def _aligned(first: Path, second: Path, corpus: Corpus, language: str) -> list[Source]:
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
    quoted = re.compile(r'^(?:(msgid|msgstr|msgctxt|msgid_plural|msgstr\[\d+\])\s+)?"(.*)"\s*$')

    def unescape(text: str) -> str:
        return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text)

    def rows() -> Iterator[Row]:
        entry: dict[str, str] = {}
        key, fuzzy = "", False
        for number, line in [*_lines(path), (0, "")]:
            if line.startswith("#,") and "fuzzy" in line:
                fuzzy = True
            match = quoted.match(line)
            if match:
                key = match[1] or key
                entry[key] = entry.get(key, "") + match[2]
            elif not line.strip() and entry:
                source_text, target_text = unescape(entry.get("msgid", "")), unescape(entry.get("msgstr", ""))
                if source_text.strip() and target_text.strip() and not fuzzy:
                    yield Row(source_text, target_text, language)
                elif source_text.strip():
                    source.complain(number, "untranslated or fuzzy")
                entry, key, fuzzy = {}, "", False

    source = Source(str(path), language, path.stat().st_size, corpus, rows)
    return [source]


def _dictionary(path: Path, corpus: Corpus, language: str) -> list[Source]:
    """Word pairs, tab or blank between them (MUSE's form), accepted as parallel data (Reimers and Gurevych 2020)."""

    def rows() -> Iterator[Row]:
        for number, line in _lines(path):
            cells = line.split("\t") if "\t" in line else line.split(maxsplit=1)
            if len(cells) >= 2 and cells[0].strip() and cells[1].strip():
                yield Row(cells[0], cells[1], language)
            else:
                source.complain(number, "not a word pair")

    source = Source(str(path), language, path.stat().st_size, corpus, rows)
    return [source]


def _nli(path: Path, corpus: Corpus) -> list[Source]:
    """Labelled pairs (label, premise, hypothesis; further columns are passed over) as triples.

    Pairs of one premise stand together, as SNLI and MultiNLI write them; every entailed hypothesis meets every
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


def language_of(path: Path, corpus: Corpus) -> str:
    """Target language from the corpus' settings or a name like `x.en-de.tsv.gz`; `xx` when nothing tells."""
    match = LANGUAGE_IN_NAME.search(path.name)
    if match:
        return match[2] if match[1] == corpus.source else match[1]
    return corpus.languages[0] if len(corpus.languages) == 1 else "xx"


def _file(path: Path, corpus: Corpus) -> list[Source]:
    language = language_of(path, corpus)
    suffix = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if corpus.kind == "nli":
        return _nli(path, corpus)
    if corpus.kind == "dictionary":
        return _dictionary(path, corpus, language)
    if corpus.kind == "gettext" or suffix == ".po":
        return _gettext(path, corpus, language)
    if suffix == ".parquet":
        return _parquet(path, corpus, language)
    if corpus.kind == "text" or (corpus.kind == "auto" and suffix in (".txt", ".txt.gz")):
        return _text(path, corpus)
    return _tsv(path, corpus, language)


def _wanted(path: Path, corpus: Corpus) -> bool:
    if not corpus.languages or corpus.kind in ("text", "triples", "nli"):
        return True
    language = language_of(path, corpus)
    return language in corpus.languages or language == "xx"


def open_corpus(corpus: Corpus) -> list[Source]:
    """The sources of one corpus entry.

    Raises:
        InputError: nothing is there, or the form is not known.
    """
    if corpus.files is not None:
        first, second = (Path(name).expanduser() for name in corpus.files)
        for path in (first, second):
            if not path.is_file():
                raise InputError(f"{path}: no such corpus file")
        return _aligned(first, second, corpus, corpus.languages[0] if corpus.languages else language_of(second, corpus))
    if corpus.hub is not None or corpus.opus is not None:
        from msdc.distill.data.download import fetch_hub, fetch_opus

        if corpus.hub is not None:
            return [s for path in fetch_hub(corpus) for s in _file(path, corpus) if _wanted(path, corpus)]
        return [s for one, two, code in fetch_opus(corpus) for s in _aligned(one, two, corpus, code)]
    pattern = str(Path(str(corpus.path)).expanduser())
    paths = [Path(name) for name in sorted(glob.glob(pattern, recursive=True)) if Path(name).is_file()]
    if Path(pattern).is_dir():
        paths = sorted(p for p in Path(pattern).iterdir() if re.search(r"\.(tsv|txt|parquet|po)(\.gz)?$", p.name))
    if not paths:
        raise InputError(f"{corpus.path}: no such corpus file")
    sources = [source for path in paths if _wanted(path, corpus) for source in _file(path, corpus)]
    if not sources:
        raise InputError(f"{corpus.path}: nothing in the wanted languages ({', '.join(corpus.languages)})")
    return sources


def open_corpora(corpora: tuple[Corpus, ...]) -> list[Source]:
    """All sources of a recipe."""
    sources = []
    for domain, corpus in enumerate(corpora):
        for source in open_corpus(corpus):
            source.domain = domain
            sources.append(source)
    return sources
