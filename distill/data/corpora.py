"""Corpora of any format as streams of rows: files, folders, data sets of the hub, OPUS.

A row is (source, target, language). Every line is in a row or counted by the reason why not, with the numbers of the
first ones; a file of only such lines is an error. To add a format: a table in `msdc.text.tabular`, or a function (file,
corpus, target language, its origin) -> its sources, and an entry in BY_KIND, if the recipe must name the format.
"""

from __future__ import annotations

import glob
import math
import re
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, islice, product, zip_longest
from pathlib import Path
from typing import Any
from zlib import crc32

from msdc.compress.vocabulary.train import UNSPACED
from msdc.distill.data import Row
from msdc.distill.data.columns import (
    LABELLED_NAMES,
    TEXT_NAMES,
    TRIPLE_NAMES,
    find_columns,
    find_pairs,
    fits,
    is_header,
    is_language,
    named_columns,
    unnamed_language,
)
from msdc.distill.data.download import fetch_hub, fetch_opus, hub_tables, is_saved, saved_table
from msdc.distill.data.exclusion import EXCLUDED, Exclusion
from msdc.distill.recipe import Corpus
from msdc.errors import InputError, TornFile
from msdc.files import matching_files, regular_size, without_system_files
from msdc.text.scored_pairs import GOLD_RANGE, read_pairs
from msdc.text.tabular import CORPUS_SUFFIXES, EMPTY_LINE, TABLES, open_table, suffix_of
from msdc.text.text_files import TabularFile, bare_name, iterate_lines, unusable
from msdc.text.tokenizer import clean
from msdc.text.translations import open_gettext

# `test` as a word of its own: not in `latest` or `contest`
TEST_SET_IN_NAME = re.compile(r"(?<![a-z])(?:dev|my)?tests?(?:set|data)?(?![a-z])|sts-?20\d\d|sts1[2-6]")
LANGUAGE_IN_NAME = re.compile(r"(?:^|[._-])([a-z]{2,3}(?:_[A-Za-z]+)?)-([a-z]{2,3}(?:_[A-Za-z]+)?)(?=[._]|$)")
UNSPACED_LETTERS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3001-\u9fff\uff00-\uffef"  # of `join_unspaced`
LANGUAGE_AT_END = re.compile(r"(?:^|[._-])(?!po$)([a-z]{2})(?:\.(?:txt|po))*$")
ONE_LANGUAGE = ("nli", "nli-pairs", "scored", "text", "triples")  # kinds without a target language
NLI_CLASSES = ("contradiction", "entailment", "neutral")  # numbered as in training
HUB_CLASSES = ("entailment", "neutral", "contradiction")  # numbered as in snli, multi_nli, all-nli and anli on the hub
MANY_BAD = 100  # below so many bad lines the share is not checked
SHOWN_LINES = 3  # line numbers of each reason
# (number of the line, row, entry or unit; its row, or the reason why it has none)
Entry = tuple[int, "Row | str"]


@dataclass
class TextSource:
    """One readable part of a corpus; rows with a sentence of `excluded` are skipped."""

    name: str
    language: str
    corpus: Corpus
    entries: Callable[[], Iterator[Entry]]  # reads it from the start
    form: str = ""  # the format, for messages
    why: str = ""  # how the language was found
    domain: int = 0
    synthetic: bool = False  # targets translated word by word: neither held out nor sampled
    excluded: Exclusion | None = None
    files: tuple[Path, ...] = ()  # what it reads; empty for a data set that a library opens
    variant: str = ""  # what else its rows depend on
    # Of the last reading: rows so far, and of each reason the number of lines without a row and the first ones' numbers
    taken: int = field(default=0, init=False, repr=False)
    dropped: dict[str, tuple[int, list[int]]] = field(default_factory=dict, init=False, repr=False)

    def drops(self) -> list[dict[str, Any]]:
        """What the last reading left out: for each reason `why`, the number of `rows`, and the first `lines`."""
        return [{"why": why, "rows": count, "lines": lines} for why, (count, lines) in self.dropped.items()]

    def _drop(self, line: int, why: str) -> None:
        count, lines = self.dropped.get(why, (0, []))
        self.dropped[why] = (count + 1, [*lines, line] if count < SHOWN_LINES else lines)

    def rows(self) -> Iterator[Row]:
        """All rows of the file."""
        return (row for _, row in self._usable() if isinstance(row, Row))

    def _usable(self) -> Iterator[Entry]:
        """All entries; with `on_bad: skip` a torn file ends where it is torn."""
        last = 0
        try:
            for last, row in self.entries():
                if isinstance(row, Row):
                    why = unusable("".join((row.source, row.target, *row.negatives)))
                    if not why and self.corpus.tokenized:
                        row = row._replace(source=join_punctuation(row.source), target=join_punctuation(row.target))
                    row = why or row
                if isinstance(row, str) and row != EMPTY_LINE and self.corpus.on_bad == "stop":
                    raise InputError(f"{self.name} line {last}: {row} (on_bad: stop)")
                yield last, row
        except TornFile as error:
            if self.corpus.on_bad == "stop" or not last:
                raise
            yield error.line, f"the rest of the file is not read: {error.why}"

    def judged(self) -> Iterator[Entry]:
        """All entries; a row with an excluded sentence is the reason."""
        if self.excluded is None:
            return self._usable()
        corpus = self.corpus
        key = (self.name, self.language, corpus.kind, corpus.columns, corpus.scores, corpus.tokenized, corpus.header)
        return self.excluded.judge(key, self._usable())

    def read(self) -> Generator[Row, None, None]:
        """Rows cleaned and filtered by the corpus' limits, joined to passages if it asks for them."""
        return joined(self._lines(), self.corpus) if self.corpus.join > 1 else self._lines()

    def _lines(self) -> Generator[Row, None, None]:
        """Rows cleaned and filtered by the corpus' limits; every other line is counted in `dropped`."""
        self.taken, self.dropped = 0, {}
        longest, limit = self.corpus.max_characters, self.corpus.limit
        too_long = f"longer than {longest} characters (max_characters)"
        for line, row in self.judged():
            if isinstance(row, str):
                self._drop(line, row)
                continue
            source, target = clean(row.source), clean(row.target)
            if len(source) > longest or len(target) > longest:
                self._drop(line, too_long)
                continue
            self.taken += 1
            yield Row(source, target, row.language, tuple(map(clean, row.negatives)), self.domain, row.label)
            if self.taken == limit:
                break
        lines = self.taken + sum(count for count, _ in self.dropped.values())
        reasons = {why: f"line {places[0]}: {why}" for why, (_, places) in self.dropped.items()}
        bad = [why for why in self.dropped if why not in (EMPTY_LINE, too_long, *EXCLUDED)]
        count = sum(self.dropped[why][0] for why in bad)
        if self.taken and count >= MANY_BAD and count > self.corpus.most_bad * lines:
            raise InputError(
                f"{self.name}: {count} of {lines} lines cannot be read ({reasons[bad[0]]}): more than "
                f"`most_bad: {self.corpus.most_bad:g}` of this corpus allows"
            )
        if not self.taken:
            none = f"{self.name}: no usable sentence" + ("" if reasons else " (empty)")
            raise InputError("; ".join(filter(None, (none, *reasons.values(), self.form and f"read as {self.form}"))))


def joined(rows: Iterable[Row], corpus: Corpus) -> Generator[Row, None, None]:
    """Consecutive rows as passages of 2 to `join` rows each, or fewer where they would exceed `max_characters`.

    The first row's hash draws the number, so that it depends on the text alone. A passage of one row is left out, as it
    is a row of the corpus without `join`.
    """

    def passage(parts: Sequence[Row]) -> Row:
        source = _separator(corpus.source).join(row.source for row in parts)
        target = _separator(parts[0].language).join(row.target for row in parts) if parts[0].target else ""
        return parts[0]._replace(source=source, target=target)

    taken: list[Row] = []
    aim = 0
    for row in rows:
        longer = passage([*taken, row])
        if taken and (len(taken) == aim or max(len(longer.source), len(longer.target)) > corpus.max_characters):
            if len(taken) > 1:
                yield passage(taken)
            taken = []
        if not taken:
            aim = 2 + crc32(row.source.encode()) % (corpus.join - 1)
        taken.append(row)
    if len(taken) > 1:
        yield passage(taken)


def _separator(language: str) -> str:
    """The separator of two sentences: none in languages that are written without spaces."""
    return "" if re.split(r"[_-]", language)[0] in UNSPACED else " "


def refuse_test_set(path: Path, what: str) -> None:
    """Refuse graded pairs of a test set, by the file's name; `what` is the refused use."""
    if TEST_SET_IN_NAME.search(path.name.lower()):
        raise InputError(f"{path}: a test set must not {what} (a guess by its name: rename it if it is none)")


def _named_language(path: Path, corpus: Corpus) -> str | None:
    """The target language in a name like `x.en-de.tsv.gz`: only if the other one is the source language."""
    for first, second in (match.groups() for match in LANGUAGE_IN_NAME.finditer(bare_name(path.name))):
        if fits(first, corpus.source) or fits(second, corpus.source):
            return second if fits(first, corpus.source) else first
    return None


def language_of(path: Path, corpus: Corpus, at_end: bool = False) -> tuple[str | None, str]:
    """(target language, how it was found): the one that the corpus names, else that of the file's name; or None.

    `at_end`: a name like "x.de" also gives the language (one of two aligned files, a catalogue).
    """
    named = _named_language(path, corpus)
    asked = [code for code in corpus.languages if named is not None and fits(named, code)]
    if len(corpus.languages) == 1:
        return corpus.languages[0], "as given" if asked or named is None else f"as given, not {named} as in its name"
    if asked or (named is not None and not corpus.languages):
        return asked[0] if asked else named, "by its name"
    match = LANGUAGE_AT_END.search(bare_name(path.name)) if at_end else None
    return (match[1], "by its name") if match is not None and is_language(match[1]) else (None, "")


# --- tables -----------------------------------------------------------------------------------------------------------


def read_table(path: Path, corpus: Corpus, language: str | None, why: str) -> list[TextSource]:
    """csv, tab-separated text, JSON, parquet, TMX, gettext."""
    return table_sources(_open_table(path, corpus), corpus, language, why)


def read_gettext(path: Path, corpus: Corpus, language: str | None, why: str) -> list[TextSource]:
    """A gettext catalogue of any name."""
    return table_sources(open_gettext(path), corpus, language, why)


def _open_table(path: Path, corpus: Corpus) -> TabularFile:
    return open_table(path, partial(is_header, corpus), corpus.header, corpus.lenient)


def _read_scores(cells: Sequence[object], scale: tuple[float, float] | None) -> tuple[float, ...] | str:
    """Scores, those of `scale` as 0 .. 1; the reason why they are none."""
    low, high = scale or (-sys.float_info.max, sys.float_info.max)
    try:
        scores = [float(str(cell)) for cell in cells]
    except ValueError:
        scores = [math.nan]
    if not all(low <= score <= high for score in scores):
        return "a score is not a number" + (f" of {low:g} to {high:g}" if scale else "")
    return tuple((score - low) / (high - low) if scale else score for score in scores)


def table_sources(table: TabularFile, corpus: Corpus, language: str | None, why: str = "") -> list[TextSource]:
    """The sources of a table: pairs, triples or plain text, by the kind of the corpus."""
    source = corpus.source
    if table.language and language is None:
        language, why = str(language_of(table.path, corpus, at_end=True)[0] or table.language), "by the catalog"

    scores = named_columns(corpus.scores, table.path, table.names, table.width, table.columns())

    def make(sides: Sequence[Sequence[int]], code: str, why: str, part: str, row: Callable[..., Row]) -> TextSource:
        columns = [column for side in sides for column in side]
        ends = list(accumulate(map(len, sides)))
        alone = len(columns) == len(sides)

        def entries() -> Iterator[Entry]:
            for number, cells in table.read([*columns, *scores]):
                if isinstance(cells, str):
                    yield number, cells
                    continue
                cells, score_cells = cells[: len(columns)], cells[len(columns) :]
                if not all(isinstance(cell, (str, type(None))) for cell in cells):
                    yield number, "not text"
                    continue
                if not alone:
                    parts = (cells[end - len(side) : end] for side, end in zip(sides, ends, strict=True))
                    cells = [next((cell for cell in side_cells if cell and cell.strip()), "") for side_cells in parts]
                if not all(cell and cell.strip() for cell in cells):
                    yield number, "empty" if len(sides) == 1 else "an empty side"
                    continue
                label = _read_scores(score_cells, corpus.scale) if scores else None
                yield number, label if isinstance(label, str) else row(*cells)._replace(label=label)

        name = f"{table.path}:{part}" if part else str(table.path)
        return TextSource(name, code, corpus, entries, table.described(sides), why)

    if corpus.kind == "triples":
        triple = [[column] for column in find_columns(table, corpus, "triples", TRIPLE_NAMES)]
        if scores and len(scores) != len(triple) - 1:
            raise InputError(
                f"{table.path}: rows of {len(triple)} texts need {len(triple) - 1} columns in `scores` (positive, "
                f"then each negative), not {len(scores)}"
            )
        return [make(triple, source, "", "", lambda anchor, positive, *others: Row(anchor, positive, source, others))]
    if corpus.kind == "text":
        texts = find_columns(table, corpus, "texts", [(name,) for name in (*TEXT_NAMES, source)])
        parts = [str(column + 1) if len(texts) > 1 else "" for column in texts]
        return [
            make([[column]], source, "", part, lambda text: Row(text, "", source))
            for column, part in zip(texts, parts, strict=True)
        ]
    pairs = find_pairs(table, corpus, language, why)
    return [
        make([first_columns, second_columns], code, why, code if len(pairs) > 1 else "", partial(Row, language=code))
        for first_columns, second_columns, code, why in pairs
    ]


# --- text -------------------------------------------------------------------------------------------------------------


def join_punctuation(text: str) -> str:
    """Undo tokenization: no space before closing marks and clitics, none inside brackets."""
    text = re.sub(r" (n't|'(?:s|re|ve|ll|d|m))\b", r"\1", text, flags=re.IGNORECASE)
    return join_unspaced(re.sub(r"(?<=[(\[]) | (?=[.,!?;:%)\]])", "", text))


def join_unspaced(text: str) -> str:
    """No space between two characters of Chinese, Japanese, Thai, Lao, Khmer or Burmese."""
    return re.sub(rf"(?<=[{UNSPACED_LETTERS}]) +(?=[{UNSPACED_LETTERS}])", "", text)


def read_text(path: Path, corpus: Corpus, language: str | None, why: str) -> list[TextSource]:
    """One sentence per line, or the cells of the named columns of tab-separated text."""
    names = next(iterate_lines(path, corpus.lenient), (0, ""))[1].split("\t") if corpus.columns else []
    places = named_columns(corpus.columns, path, names, len(names), ", ".join(names)[:80])
    header = any(isinstance(c, str) for c in corpus.columns)

    def entries() -> Iterator[Entry]:
        last: list[str] = []
        for number, line in islice(iterate_lines(path, corpus.lenient), int(header), None):
            texts = [line]
            if places:
                cells = line.split("\t")
                # Consecutive lines may have the same premise.
                before, last = last, [cells[column] if column < len(cells) else "" for column in places]
                texts = [text for text in last if text not in before]
            for text in texts:
                yield number, Row(text, "", corpus.source) if text.strip() else EMPTY_LINE if text == line else "empty"

    return [TextSource(str(path), corpus.source, corpus, entries, "text")]


def aligned_files(first: Path, second: Path, corpus: Corpus, language: str) -> list[TextSource]:
    """Two files whose lines correspond; reading raises InputError if one is longer than the other.

    Empty lines at the end of one are no lines.
    """

    def entries() -> Iterator[Entry]:
        lines = zip_longest(iterate_lines(first, corpus.lenient), iterate_lines(second, corpus.lenient))
        for first_line, second_line in lines:
            if first_line is None or second_line is None:
                number, rest = first_line or second_line
                if rest.strip() or any(text.strip() for pair in lines for _, text in filter(None, pair)):
                    raise InputError(f"{first} and {second}: not line-aligned, one ends at line {number - 1}")
                return
            filled = first_line[1].strip() and second_line[1].strip()
            yield first_line[0], Row(first_line[1], second_line[1], language) if filled else "an empty side"

    return [TextSource(f"{first} + {second.name}", language, corpus, entries, "aligned files")]


def scored_translations(first: Path, second: Path, corpus: Corpus, language: str) -> list[TextSource]:
    """Two files of the same scored pairs in two languages, as STS-B and KorSTS: each sentence with its translation.

    Equal scores show that the rows correspond; reading raises InputError at the first difference.
    """
    for path in (first, second):
        refuse_test_set(path, "be trained on; name the training part")

    def entries() -> Iterator[Entry]:
        first_pairs, second_pairs = read_pairs(first), read_pairs(second)
        both = zip_longest(first_pairs.gold_N.tolist(), second_pairs.gold_N.tolist())
        if (row := next((n for n, (a, b) in enumerate(both, 1) if a != b), None)) is not None:
            raise InputError(f"{first} and {second}: not the same pairs, row {row} has another score or is missing")
        for texts in ((first_pairs.first, second_pairs.first), (first_pairs.second, second_pairs.second)):
            yield from ((n, Row(a, b, language)) for n, a, b in zip(first_pairs.lines, *texts, strict=True))

    return [TextSource(f"{first} + {second.name}", language, corpus, entries, "scored pairs in two languages")]


def read_dictionary(path: Path, corpus: Corpus, language: str | None, why: str) -> list[TextSource]:
    """Word pairs separated by a tab or space (as in MUSE), as parallel data (Reimers and Gurevych 2020)."""
    if language is None:
        raise unnamed_language(path)

    def entries() -> Iterator[Entry]:
        for number, line in iterate_lines(path, corpus.lenient):
            cells = line.split("\t") if "\t" in line else line.split(maxsplit=1)
            good = len(cells) >= 2 and cells[0].strip() and cells[1].strip()
            bad = "not a word pair" if line.strip() else EMPTY_LINE
            yield number, Row(cells[0], cells[1], language) if good else bad

    return [TextSource(str(path), language, corpus, entries, "dictionary", why)]


# --- labels -----------------------------------------------------------------------------------------------------------


def read_scored(path: Path, corpus: Corpus, language: str | None, why: str) -> list[TextSource]:
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

    def entries() -> Iterator[Entry]:
        for line, first, second, label in zip(pairs.lines, pairs.first, pairs.second, labels, strict=True):
            yield line, Row(first, second, corpus.source, label=label)

    labels = ((pairs.gold_N - low) / (high - low)).tolist()
    form = f"pairs with scores {least:g} to {most:g}, of {low:g} to {high:g}"
    return [TextSource(str(path), corpus.source, corpus, entries, form)]


NOT_LABELLED = "no label of NLI, premise and hypothesis"


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

    return table.described([[column] for column in columns]), read


def read_nli(path: Path, corpus: Corpus, language: str | None, why: str) -> list[TextSource]:
    """Natural language inference as triples.

    The pairs of a premise are consecutive, as in SNLI and MultiNLI; every entailed hypothesis is combined with every
    contradicting one. A premise that lacks either counts as a bad line.
    """
    form, lines = _labelled(path, corpus)

    def entries() -> Iterator[Entry]:
        premise, before = "", 0
        by_label: dict[str, list[str]] = {}
        for number, cells in chain(lines(), [(0, [])]):
            if not cells or cells[1].strip() != premise:
                pairs = list(product(by_label.get("entailment", []), by_label.get("contradiction", [])))
                if by_label and not pairs:
                    yield before, "the premise has no entailment or no contradiction"
                yield from ((before, Row(premise, entailed, corpus.source, (other,))) for entailed, other in pairs)
                premise, by_label = "", {}
            before = number
            if number and not (cells and cells[0]):
                yield number, NOT_LABELLED
            if cells and cells[0]:
                premise = cells[1].strip()
                by_label.setdefault(cells[0], []).append(cells[2])

    return [TextSource(str(path), corpus.source, corpus, entries, form)]


def read_nli_pairs(path: Path, corpus: Corpus, language: str | None, why: str) -> list[TextSource]:
    """Natural language inference as labelled pairs, for classification."""
    form, lines = _labelled(path, corpus)

    def entries() -> Iterator[Entry]:
        for number, cells in lines():
            if cells and all(cell.strip() for cell in cells):
                yield number, Row(cells[1], cells[2], corpus.source, label=float(NLI_CLASSES.index(cells[0])))
            else:
                yield number, NOT_LABELLED

    return [TextSource(str(path), corpus.source, corpus, entries, form)]


# --- corpora ----------------------------------------------------------------------------------------------------------

CorpusReader = Callable[[Path, Corpus, "str | None", str], list[TextSource]]
# Kinds that name a format; `text`, `pairs` and `triples` are read by suffix.
BY_KIND: dict[str, CorpusReader] = {
    "nli": read_nli,
    "nli-pairs": read_nli_pairs,
    "scored": read_scored,
    "dictionary": read_dictionary,
    "gettext": read_gettext,
}


def _read_file(path: Path, corpus: Corpus, code: str | None = None) -> list[TextSource]:
    """The sources of a file; `code` is its language if its folder gives it."""
    language, why = (code, "by its folder") if code else language_of(path, corpus)
    suffix, kind = suffix_of(path), corpus.kind
    lines = suffix not in TABLES and (kind == "text" or (kind == "auto" and suffix == ".txt"))
    read = BY_KIND.get(kind) or (read_text if lines else read_table)
    return _with_files(read(path, corpus, language, why), path)


def _with_files(sources: list[TextSource], *files: Path) -> list[TextSource]:
    """Sources that read `files`."""
    return [replace(source, files=files) for source in sources]


def _in_other_language(path: Path, corpus: Corpus) -> bool:
    """Whether the name of one of several files gives another language than those of the corpus."""
    named = None if corpus.kind in ONE_LANGUAGE or not corpus.languages else _named_language(path, corpus)
    return named is not None and not any(fits(named, code) for code in corpus.languages)


def corpus_files(corpus: Corpus) -> tuple[list[Path], list[str]]:
    """The files of a corpus' path, glob or folder, and the others with the reason why they are not read."""
    pattern = Path(str(corpus.path)).expanduser()
    if pattern.is_file():
        return [pattern], []
    inside = [p for p in pattern.iterdir() if p.is_file()] if pattern.is_dir() else matching_files(str(pattern))
    every = without_system_files(inside)
    wrong = [p for p in every if pattern.is_dir() and suffix_of(p) not in CORPUS_SUFFIXES]
    other = [p for p in every if p not in wrong and _in_other_language(p, corpus)]
    reasons = [f"{p}: no file of text, by its name" for p in wrong] + [f"{p}: in another language" for p in other]
    return [p for p in every if p not in wrong and p not in other], reasons


def is_here(corpus: Corpus) -> bool:
    """Whether a corpus can be read now: nothing to download, and no text that the user must still provide."""
    paths = corpus.files or (corpus.path,)
    return not corpus.is_remote and (
        not corpus.manual_download or all(glob.glob(str(Path(str(p)).expanduser())) for p in paths)
    )


def open_corpus(corpus: Corpus) -> list[TextSource]:
    """The sources of one corpus entry."""
    if corpus.manual_download and not is_here(corpus):
        raise InputError(f"{corpus.origin}: no such corpus file; you must provide it: {corpus.manual_download}")
    if corpus.files is not None:
        first, second = (Path(name).expanduser() for name in corpus.files)
        language = corpus.languages[0] if corpus.languages else language_of(second, corpus, at_end=True)[0]
        if language is None:
            raise unnamed_language(second)
        for path in (first, second):
            regular_size(path)  # each must be a file
        join = scored_translations if corpus.kind == "scored" else aligned_files
        return _with_files(join(first, second, corpus, language), first, second)
    if corpus.opus is not None:
        opus_sources = [
            _with_files(aligned_files(source_file, target_file, corpus, code), source_file, target_file)
            for source_file, target_file, code in fetch_opus(corpus)
        ]
        return list(chain.from_iterable(opus_sources))
    if corpus.hub is not None:
        # Its files if they are named by language pair, else the tables that the library finds.
        if fetched := fetch_hub(corpus):
            return [source for path, code in fetched for source in _read_file(path, corpus, code)]
        return [source for table, code in hub_tables(corpus) for source in table_sources(table, corpus, code)]
    pattern = Path(str(corpus.path)).expanduser()
    if is_saved(pattern):
        files = without_system_files(path for path in pattern.rglob("*") if path.is_file())
        return _with_files(table_sources(saved_table(pattern), corpus, *language_of(pattern, corpus)), *files)
    paths, others = corpus_files(corpus)
    if not paths and not others:
        raise InputError(f"{corpus.path}: no such corpus file")
    sources = [source for path in paths for source in _read_file(path, corpus)]
    if not sources:
        raise InputError(f"{corpus.path}: nothing in the wanted languages ({', '.join(corpus.languages)})")
    return sources


def unread(corpus: Corpus, sources: Sequence[TextSource]) -> list[str]:
    """Files of a folder or glob that are not read, and languages that the corpus names and no source has."""
    files = corpus_files(corpus)[1] if corpus.path is not None and not is_saved(Path(corpus.path).expanduser()) else []
    asked = () if corpus.kind in ONE_LANGUAGE else corpus.languages
    have = {source.language for source in sources}
    return files + [f"{corpus.origin}: no text in {code}" for code in asked if code not in have]


def open_corpora(
    corpora: Sequence[Corpus], excluded: Exclusion | None = None, languages: Sequence[str] = ()
) -> list[TextSource]:
    """All sources of a recipe, without the rows that contain an excluded sentence.

    With `languages` those of other target languages are left out; text of one language is not.
    """
    sources = []
    for domain, corpus in enumerate(corpora):
        for source in open_corpus(corpus):
            source.domain, source.excluded = domain, excluded
            if not languages or source.language in (corpus.source, *languages):
                sources.append(source)
    return sources
