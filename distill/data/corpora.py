"""Corpora of any format as streams of rows: files, folders, data sets of the hub, OPUS.

A row is (source, target, language). Bad lines are counted by reason, with the number of the first one; a file of only
bad lines is an error. To add a format: a function (file, corpus, target language) -> its sources, and an entry in
BY_SUFFIX, or in BY_KIND if the recipe must name the format.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, islice, product, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

from msdc.distill.data import Row
from msdc.distill.data.columns import (
    LABELLED_NAMES,
    TEXT_NAMES,
    TRIPLE_NAMES,
    base_code,
    find_columns,
    find_pairs,
    is_header,
    named_columns,
    unnamed_language,
)
from msdc.distill.data.download import fetch_hub, fetch_opus, hub_tables, is_saved, saved_table
from msdc.distill.data.exclusion import Exclusion, matching_files
from msdc.distill.recipe import Corpus
from msdc.errors import InputError, TornFile, first_line
from msdc.extras import require
from msdc.files import regular_size
from msdc.text.scored_pairs import GOLD_RANGE, read_pairs
from msdc.text.tabular import JSON_LINES, TabularFile, open_table, suffix_of, text_bytes
from msdc.text.text_files import DAMAGED, iterate_lines, unpacked
from msdc.text.tokenizer import clean

MANY_BAD = 100  # lines: fewer never are too large a share
TEST_SET_IN_NAME = re.compile(r"test|sts-?20\d\d|sts1[2-6]")
LANGUAGE_IN_NAME = re.compile(r"(?:^|[._-])([a-z]{2,3})-([a-z]{2,3})(?=[._]|$)")
LANGUAGE_AT_END = re.compile(r"(?:^|[._-])(?!po\b|gz\b)([a-z]{2})(?:\.(?:txt|po|gz))*$")
ONE_LANGUAGE = ("nli", "nli-pairs", "scored", "text", "triples")  # kinds without a target language
NLI_CLASSES = ("contradiction", "entailment", "neutral")  # numbered as in training
HUB_CLASSES = ("entailment", "neutral", "contradiction")  # numbered as in snli, multi_nli, all-nli and anli on the hub
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements of a segment with code of the original document, not text
XML_CODE = frozenset(["bpt", "ept", "ph", "it", "ut", "sub", "x", "bx", "ex", "sc", "ec", "cp"])


class Bad(NamedTuple):
    """A line without a row, and the reason."""

    line: int
    why: str


@dataclass
class TextSource:
    """One readable part of a corpus; rows with a sentence of `excluded` are skipped."""

    name: str
    language: str
    bytes: int  # approximate size of the text, for its weight
    corpus: Corpus
    entries: Callable[[], Iterator[Row | Bad]]  # reads it from the start
    form: str = ""  # the format, for messages
    domain: int = 0
    synthetic: bool = False  # targets translated word by word: neither held out nor sampled
    excluded: Exclusion | None = None
    files: tuple[Path, ...] = ()  # what it reads; empty for a data set that a library opens
    variant: str = ""  # what else its rows depend on
    # Of the last reading: rows that are too long; bad lines by reason: their count and the number of the first.
    too_long: int = field(default=0, init=False, repr=False)
    _excluded_before: int = field(default=0, init=False, repr=False)
    reasons: dict[str, tuple[int, int]] = field(default_factory=dict, init=False, repr=False)

    @property
    def bad(self) -> int:
        """Bad lines of the last reading."""
        return sum(count for count, _ in self.reasons.values())

    @property
    def first_bad(self) -> str:
        """The first bad line with its number; empty if there is none."""
        return next((f"line {line}: {why}" for why, (_, line) in self.reasons.items()), "")

    @property
    def left_out(self) -> int:
        """Excluded rows of the last reading."""
        return 0 if self.excluded is None else self.excluded.count() - self._excluded_before

    def dropped(self) -> list[dict[str, Any]]:
        """What the last reading left out: for each reason `why`, the number of `rows`, the `line` of the first."""
        long = f"longer than {self.corpus.max_characters} characters (max_characters)"
        excluded = "contains an excluded sentence (exclude)"
        found: dict[str, tuple[int, int | None]] = {
            **self.reasons, long: (self.too_long, None), excluded: (self.left_out, None)
        }  # fmt: skip
        return [{"why": why, "rows": count, "line": line} for why, (count, line) in found.items() if count]

    def _entries(self) -> Iterator[Row | Bad]:
        """All entries; with `on_bad: skip` a torn file ends where it is torn."""
        last = 0
        try:
            for last, entry in enumerate(self.entries(), 1):  # noqa: B007
                yield entry
        except TornFile as error:
            if self.corpus.on_bad == "stop" or not last:
                raise
            yield Bad(error.line, f"the rest of the file is not read: {error.why}")

    def rows(self) -> Iterator[Row]:
        """All rows of the file; bad lines are counted."""
        for entry in self._entries():
            if isinstance(entry, Bad):
                if self.corpus.on_bad == "stop":
                    raise InputError(f"{self.name} line {entry.line}: {entry.why} (on_bad: stop)")
                count, first = self.reasons.get(entry.why, (0, entry.line))
                self.reasons[entry.why] = (count + 1, first)
            elif self.corpus.tokenized:
                yield entry._replace(source=join_punctuation(entry.source), target=join_punctuation(entry.target))
            else:
                yield entry

    def kept_rows(self) -> Iterator[Row]:
        """The rows without an excluded sentence."""
        if self.excluded is None:
            return self.rows()
        corpus = self.corpus
        key = (self.name, self.language, corpus.kind, corpus.columns, corpus.tokenized)
        return self.excluded.keep(key, self.rows())

    def read(self) -> Generator[Row, None, None]:
        """Rows cleaned and filtered by the corpus' limits."""
        taken = 0
        self.too_long, self.reasons = 0, {}
        self._excluded_before = 0 if self.excluded is None else self.excluded.count()
        longest, limit = self.corpus.max_characters, self.corpus.limit
        for source, target, language, negatives, _, label in self.kept_rows():
            source, target = clean(source), clean(target)
            if len(source) > longest or len(target) > longest:
                self.too_long += 1
                continue
            taken += 1
            yield Row(source, target, language, tuple(map(clean, negatives)), self.domain, label)
            if taken == limit:
                break
        lines = self.bad + taken + self.too_long + self.left_out
        if taken and self.bad >= MANY_BAD and self.bad > self.corpus.most_bad * lines:
            raise InputError(
                f"{self.name}: {self.bad} of {lines} lines cannot be read ({self.first_bad}): more than "
                f"`most_bad: {self.corpus.most_bad:g}` of this corpus allows"
            )
        if not taken:
            long = f"{self.too_long} of more than {longest} characters (max_characters)" if self.too_long else ""
            empty = "(empty)" if self.excluded is None else "(empty, or every sentence is excluded)"
            none = f"{self.name}: no usable sentence" + ("" if self.first_bad or long else f" {empty}")
            form = self.form and f"read as {self.form}"
            raise InputError("; ".join(filter(None, (none, self.first_bad, long, form))))


def refuse_test_set(path: Path, what: str) -> None:
    """Refuse graded pairs of a test set, by the file's name; `what` is the refused use."""
    if TEST_SET_IN_NAME.search(path.name.lower()):
        raise InputError(f"{path}: a test set must not {what}")


def language_of(path: Path, corpus: Corpus, at_end: bool = False) -> str | None:
    """Target language from a name like `x.en-de.tsv.gz` or the corpus' only language; None if neither gives it.

    `at_end`: a name like `x.de` also gives the language (one of two aligned files, a catalogue).
    """
    found = [match.groups() for match in LANGUAGE_IN_NAME.finditer(path.name)]
    if found:
        # A name may look like a pair of languages (osm-id.en-de.tsv): the pair with the source language is used.
        one, two = next((pair for pair in found if corpus.source in pair), found[0])
        return two if one == corpus.source else one
    if len(corpus.languages) == 1:
        return corpus.languages[0]
    match = LANGUAGE_AT_END.search(path.name) if at_end else None
    return None if match is None else match[1]


# --- tables -----------------------------------------------------------------------------------------------------------


def read_table(path: Path, corpus: Corpus, language: str | None) -> list[TextSource]:
    """csv, tab-separated text, JSON lines, parquet."""
    return table_sources(_open_table(path, corpus), corpus, language)


def _open_table(path: Path, corpus: Corpus) -> TabularFile:
    any_names = suffix_of(path) == ".csv"
    return open_table(path, lambda cells, rows: is_header(corpus, cells, rows, any_names))


def table_sources(table: TabularFile, corpus: Corpus, language: str | None) -> list[TextSource]:
    """The sources of a table: pairs, triples or plain text, by the kind of the corpus."""
    source = corpus.source

    def make(columns: Sequence[int], code: str, of: int, part: object, row: Callable[..., Row]) -> TextSource:
        def entries() -> Iterator[Row | Bad]:
            for number, cells in table.read(columns):
                if isinstance(cells, str):
                    yield Bad(number, cells)
                elif not all(isinstance(cell, (str, type(None))) for cell in cells):
                    yield Bad(number, "not text")
                elif not all(cell and cell.strip() for cell in cells):
                    yield Bad(number, "empty" if len(columns) == 1 else "an empty side")
                else:
                    yield row(*cells)

        name = f"{table.path}:{part}" if of > 1 else str(table.path)
        return TextSource(name, code, table.size // of, corpus, entries, table.described(columns))

    if corpus.kind == "triples":
        triple = find_columns(table, corpus, "triples", TRIPLE_NAMES)
        return [make(triple, source, 1, "", lambda one, two, *others: Row(one, two, source, others))]
    if corpus.kind == "text":
        texts = find_columns(table, corpus, "texts", [(name,) for name in (*TEXT_NAMES, source)])
        return [make([at], source, len(texts), at + 1, lambda text: Row(text, "", source)) for at in texts]
    pairs = find_pairs(table, corpus, language)
    return [make([one, two], code, len(pairs), code, partial(Row, language=code)) for one, two, code in pairs]


# --- text -------------------------------------------------------------------------------------------------------------


def join_punctuation(text: str) -> str:
    """Undo tokenization: no space before closing marks and clitics, none inside brackets."""
    text = re.sub(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", text, flags=re.IGNORECASE)
    return re.sub(r"(?<=[(\[]) | (?=[.,!?;:%)\]])", "", text)


def read_text(path: Path, corpus: Corpus, language: str | None) -> list[TextSource]:
    """One sentence per line, or the cells of the named columns of tab-separated text."""
    names = next(iterate_lines(path), (0, ""))[1].split("\t") if corpus.columns else []
    places = named_columns(corpus, path, names, len(names), ", ".join(names)[:80])
    header = any(isinstance(c, str) for c in corpus.columns)

    def entries() -> Iterator[Row | Bad]:
        last: list[str] = []
        for number, line in islice(iterate_lines(path), int(header), None):
            found = [line]
            if places:
                cells = line.split("\t")
                # Consecutive lines may have the same premise.
                before, last = last, [cells[place] if place < len(cells) else "" for place in places]
                found = [text for text in last if text not in before]
            for text in found:
                yield Row(text, "", corpus.source) if text.strip() else Bad(number, "empty")

    return [TextSource(str(path), corpus.source, text_bytes(path), corpus, entries, "text")]


def aligned_files(first: Path, second: Path, corpus: Corpus, language: str) -> list[TextSource]:
    """Two files whose lines correspond; reading raises InputError if one is longer than the other."""

    def entries() -> Iterator[Row | Bad]:
        for one, two in zip_longest(iterate_lines(first), iterate_lines(second)):
            if one is None or two is None:
                raise InputError(f"{first} and {second}: not line-aligned, one ends at line {(one or two)[0] - 1}")
            filled = one[1].strip() and two[1].strip()
            yield Row(one[1], two[1], language) if filled else Bad(one[0], "an empty side")

    size = regular_size(first) + regular_size(second)
    return [TextSource(f"{first} + {second.name}", language, size, corpus, entries)]


def scored_translations(first: Path, second: Path, corpus: Corpus, language: str) -> list[TextSource]:
    """Two files of the same scored pairs in two languages, as STS-B and KorSTS: each sentence with its translation.

    Equal scores show that the rows correspond; reading raises InputError at the first difference.
    """
    for path in (first, second):
        refuse_test_set(path, "be trained on; name the training part")

    def entries() -> Iterator[Row]:
        one, two = read_pairs(first), read_pairs(second)
        both = zip_longest(one.gold_N.tolist(), two.gold_N.tolist())
        if (row := next((n for n, (a, b) in enumerate(both, 1) if a != b), None)) is not None:
            raise InputError(f"{first} and {second}: not the same pairs, row {row} has another score or is missing")
        for texts in ((one.first, two.first), (one.second, two.second)):
            yield from (Row(a, b, language) for a, b in zip(*texts, strict=True))

    size = text_bytes(first) + text_bytes(second)
    return [TextSource(f"{first} + {second.name}", language, size, corpus, entries, "scored pairs in two languages")]


def read_dictionary(path: Path, corpus: Corpus, language: str | None) -> list[TextSource]:
    """Word pairs separated by a tab or space (as in MUSE), as parallel data (Reimers and Gurevych 2020)."""
    if language is None:
        raise unnamed_language(path)

    def entries() -> Iterator[Row | Bad]:
        for number, line in iterate_lines(path):
            cells = line.split("\t") if "\t" in line else line.split(maxsplit=1)
            good = len(cells) >= 2 and cells[0].strip() and cells[1].strip()
            yield Row(cells[0], cells[1], language) if good else Bad(number, "not a word pair")

    return [TextSource(str(path), language, path.stat().st_size, corpus, entries, "dictionary")]


# --- labels -----------------------------------------------------------------------------------------------------------


def read_scored(path: Path, corpus: Corpus, language: str | None) -> list[TextSource]:
    """Pairs with gold similarities in any layout of msdc.text.scored_pairs, for regression.

    Similarities of the corpus' `scale` (default 0 .. 5) become 0 .. 1. If none is above 1, `scale` is required.
    """
    refuse_test_set(path, "be trained on; name the training part")
    low, high = corpus.scale or GOLD_RANGE
    pairs = read_pairs(path, limits=(low, high))
    least, most = float(pairs.gold_N.min()), float(pairs.gold_N.max())
    if corpus.scale is None and most <= 1:
        raise InputError(
            f"{path}: no score is above {most:g}: set `scale: [0, 1]` if 1 means equal, or `scale: [0, 5]` if all of "
            "these pairs are as different as that"
        )

    def entries() -> Iterator[Row]:
        for first, second, label in zip(pairs.first, pairs.second, labels, strict=True):
            yield Row(first, second, corpus.source, label=label)

    labels = ((pairs.gold_N - low) / (high - low)).tolist()
    form = f"pairs with scores {least:g} to {most:g}, of {low:g} to {high:g}"
    return [TextSource(str(path), corpus.source, text_bytes(path), corpus, entries, form)]


def _nli_class(cell: object) -> str:
    """The name of a class; empty for other cells, such as `-` and -1 of pairs whose annotators disagree."""
    text = str(cell).strip().lower()
    number = text.removesuffix(".0")
    return HUB_CLASSES[int(number)] if number in ("0", "1", "2") else text if text in NLI_CLASSES else ""


def _labelled(path: Path, corpus: Corpus) -> tuple[str, Callable[[], Iterator[tuple[int, list[str]]]]]:
    """The format of a table of NLI, and its numbered rows: class, premise and hypothesis; no cells of a bad row."""
    table = _open_table(path, corpus)
    columns = find_columns(table, corpus, "labelled pairs (label, premise, hypothesis)", LABELLED_NAMES)

    def read() -> Iterator[tuple[int, list[str]]]:
        for number, cells in table.read(columns):
            good = not isinstance(cells, str) and all(isinstance(cell, str) for cell in cells[1:])
            yield number, [_nli_class(cells[0]), *cells[1:]] if good else []

    return table.described(columns), read


def read_nli(path: Path, corpus: Corpus, language: str | None) -> list[TextSource]:
    """Natural language inference as triples.

    The pairs of a premise are consecutive, as in SNLI and MultiNLI; every entailed hypothesis is combined with every
    contradicting one. A premise that lacks either counts as a bad line.
    """
    form, lines = _labelled(path, corpus)

    def entries() -> Iterator[Row | Bad]:
        premise = ""
        found: dict[str, list[str]] = {}
        for number, cells in chain(lines(), [(0, [])]):
            if not cells or cells[1].strip() != premise:
                pairs = list(product(found.get("entailment", []), found.get("contradiction", [])))
                if found and not pairs:
                    yield Bad(number, "the premise before has no entailment or no contradiction")
                yield from (Row(premise, entailed, corpus.source, (other,)) for entailed, other in pairs)
                premise, found = "", {}
            if cells and cells[0]:
                premise = cells[1].strip()
                found.setdefault(cells[0], []).append(cells[2])

    return [TextSource(str(path), corpus.source, text_bytes(path), corpus, entries, form)]


def read_nli_pairs(path: Path, corpus: Corpus, language: str | None) -> list[TextSource]:
    """Natural language inference as labelled pairs, for classification."""
    form, lines = _labelled(path, corpus)

    def entries() -> Iterator[Row | Bad]:
        for number, cells in lines():
            if cells and all(cell.strip() for cell in cells):
                yield Row(cells[1], cells[2], corpus.source, label=float(NLI_CLASSES.index(cells[0])))
            else:
                yield Bad(number, "expected a label of NLI, a premise and a hypothesis")

    return [TextSource(str(path), corpus.source, text_bytes(path), corpus, entries, form)]


# --- catalogues and translation memories ------------------------------------------------------------------------------


def read_gettext(path: Path, corpus: Corpus, language: str | None) -> list[TextSource]:
    """Translated entries of a gettext catalogue; fuzzy ones count as bad.

    The language is that of the corpus, of the file's name, or of the catalogue's header.
    """
    head = (re.search(r'^"Language: *([a-z]{2,3})', line) for _, line in islice(iterate_lines(path), 100))
    code = language or language_of(path, corpus, at_end=True) or next((match[1] for match in head if match), None)
    if code is None:
        raise unnamed_language(path)
    quoted = re.compile(r'^(?:(msgid|msgstr|msgctxt|msgid_plural|msgstr\[\d+\])\s+)?"(.*)"\s*$')

    def unescape(text: str) -> str:
        return re.sub(r"\\(.)", lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), text)

    def entries() -> Iterator[Row | Bad]:
        entry: dict[str, str] = {}
        key, fuzzy = "", False
        for number, line in chain(iterate_lines(path), [(0, "")]):
            fuzzy = fuzzy or (line.startswith("#,") and "fuzzy" in line)
            if match := quoted.match(line):
                key = match[1] or key
                entry[key] = entry.get(key, "") + match[2]
            elif not line.strip() and entry:
                one, two = unescape(entry.get("msgid", "")), unescape(entry.get("msgstr", ""))
                if one.strip():
                    good = two.strip() and not fuzzy
                    yield Row(one, two, code) if good else Bad(number, "untranslated or fuzzy")
                entry, key, fuzzy = {}, "", False

    return [TextSource(str(path), code, path.stat().st_size, corpus, entries, "gettext")]


def segment_text(element: Any) -> str:
    """Text of an XML segment without the code of inline elements, with the text after them."""
    parts = [element.text or ""]
    for inner in element:
        if str(inner.tag).rsplit("}", 1)[-1] not in XML_CODE:
            parts.append(segment_text(inner))
        parts.append(inner.tail or "")
    return "".join(parts)


def _tmx_units(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """(number, texts by language) of the units of a translation memory."""
    require("defusedxml", "TMX")
    from defusedxml.ElementTree import iterparse

    regular_size(path)
    number, body = 0, None
    try:
        with open(path, "rb") as raw:
            for event, element in iterparse(unpacked(raw), events=("start", "end")):
                if event == "start":
                    body = element if element.tag == "body" else body
                elif element.tag == "tu":
                    number += 1
                    texts: dict[str, str] = {}
                    for variant in element.iterfind("tuv"):
                        code, segment = variant.get(XML_LANG) or variant.get("lang"), variant.find("seg")
                        if code and segment is not None:
                            texts.setdefault(base_code(code), segment_text(segment))
                    yield number, texts
                    if body is not None:
                        body.clear()
    except (SyntaxError, ValueError, *DAMAGED) as error:  # ElementTree's ParseError is a SyntaxError
        raise InputError(f"{path}: damaged TMX after unit {number} ({first_line(error)})") from error


def read_tmx(path: Path, corpus: Corpus, language: str | None) -> list[TextSource]:
    """A translation memory: one source per language of the corpus or, if it names none, of the first units."""
    found = dict.fromkeys(code for _, texts in islice(_tmx_units(path), 1000) for code in texts)
    codes = [base_code(code) for code in corpus.languages] or [code for code in found if code != corpus.source]
    if not codes:
        raise InputError(f"{path}: a translation memory with only {corpus.source!r} in its first units")

    def entries(code: str) -> Iterator[Row | Bad]:
        for number, texts in _tmx_units(path):
            one, two = texts.get(corpus.source, ""), texts.get(code, "")
            missing = code if corpus.source in texts else corpus.source
            filled = one.strip() and two.strip()
            yield Row(one, two, code) if filled else Bad(number, f"no {missing} in the unit")

    names = {code: f"{path}:{code}" if len(codes) > 1 else str(path) for code in codes}
    size = text_bytes(path) // len(codes)
    return [TextSource(name, code, size, corpus, partial(entries, code), "TMX") for code, name in names.items()]


# --- corpora ----------------------------------------------------------------------------------------------------------

Reader = Callable[[Path, Corpus, "str | None"], list[TextSource]]
# Kinds that name a format; `text`, `pairs` and `triples` are read by suffix.
BY_KIND: dict[str, Reader] = {
    "nli": read_nli,
    "nli-pairs": read_nli_pairs,
    "scored": read_scored,
    "dictionary": read_dictionary,
    "gettext": read_gettext,
}
TABLES = (".csv", ".parquet", *JSON_LINES)
BY_SUFFIX: dict[str, Reader] = {".po": read_gettext, ".tmx": read_tmx, **dict.fromkeys(TABLES, read_table)}
CORPUS_SUFFIXES = (*BY_SUFFIX, ".tsv", ".txt")


def _read_file(path: Path, corpus: Corpus) -> list[TextSource]:
    """The sources of a file; none if its name gives another language than the corpus."""
    language, suffix, kind = language_of(path, corpus), suffix_of(path), corpus.kind
    if corpus.languages and kind not in ONE_LANGUAGE and language not in (None, *corpus.languages):
        return []
    lines = kind == "text" or (kind == "auto" and suffix == ".txt")
    read = BY_KIND.get(kind) or BY_SUFFIX.get(suffix) or (read_text if lines else read_table)
    return _with_files(read(path, corpus, language), path)


def _with_files(sources: list[TextSource], *files: Path) -> list[TextSource]:
    """Sources that read `files`."""
    return [replace(source, files=files) for source in sources]


def is_here(corpus: Corpus) -> bool:
    """Whether a corpus can be read now: nothing to download, and no text that the user must still provide."""
    paths = corpus.files or (corpus.path,)
    return not corpus.is_remote and (not corpus.bring or all(glob.glob(str(Path(str(p)).expanduser())) for p in paths))


def open_corpus(corpus: Corpus) -> list[TextSource]:
    """The sources of one corpus entry."""
    if corpus.bring and not is_here(corpus):
        raise InputError(f"{corpus.origin}: no such corpus file; you must provide it: {corpus.bring}")
    if corpus.files is not None:
        first, second = (Path(name).expanduser() for name in corpus.files)
        language = corpus.languages[0] if corpus.languages else language_of(second, corpus, at_end=True)
        if language is None:
            raise unnamed_language(second)
        join = scored_translations if corpus.kind == "scored" else aligned_files
        return _with_files(join(first, second, corpus, language), first, second)
    if corpus.opus is not None:
        found = [_with_files(aligned_files(one, two, corpus, code), one, two) for one, two, code in fetch_opus(corpus)]
        return list(chain.from_iterable(found))
    if corpus.hub is not None:
        # Its files if they are named by language pair, else the tables that the library finds.
        if files := fetch_hub(corpus):
            return [source for path in files for source in _read_file(path, corpus)]
        return [source for table, code in hub_tables(corpus) for source in table_sources(table, corpus, code)]
    whole = Path(str(corpus.path)).expanduser()
    if is_saved(whole):
        files = sorted(path for path in whole.rglob("*") if path.is_file())
        return _with_files(table_sources(saved_table(whole), corpus, language_of(whole, corpus)), *files)
    if whole.is_dir():
        paths = sorted(p for p in whole.iterdir() if p.is_file() and suffix_of(p) in CORPUS_SUFFIXES)
    else:
        paths = matching_files(str(whole))
    if not paths:
        raise InputError(f"{corpus.path}: no such corpus file")
    sources = [source for path in paths for source in _read_file(path, corpus)]
    if not sources:
        raise InputError(f"{corpus.path}: nothing in the wanted languages ({', '.join(corpus.languages)})")
    return sources


def open_corpora(corpora: Sequence[Corpus], excluded: Exclusion | None = None) -> list[TextSource]:
    """All sources of a recipe, without the rows that contain an excluded sentence."""
    sources = []
    for domain, corpus in enumerate(corpora):
        for source in open_corpus(corpus):
            source.domain, source.excluded = domain, excluded
            sources.append(source)
    return sources
