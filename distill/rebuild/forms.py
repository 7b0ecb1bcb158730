"""The forms in which sources have their text. To add one: a class with `paths` and `rows`, and its name in Reader.

`rows` yields one text, or a pair (English, other language). What the corpus reader of training reads already
(gettext, TMX, csv) is read by it, through the form `corpus`.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from msdc.distill.data.corpora import find_reader, join_punctuation
from msdc.distill.rebuild.json_text import JsonKeys, JsonText, JsonVariants, split_sentences
from msdc.distill.rebuild.reader import Find, FormBase, OnePath, TextRow, TwoPaths, read_text
from msdc.distill.rebuild.software import (
    AndroidStrings,
    Commands,
    Compiled,
    Fluent,
    KeyedText,
    MozillaLang,
    RenPy,
    StringTable,
    Xliff,
)
from msdc.distill.recipe import Corpus, Kind
from msdc.errors import InputError

WORDS_OF_A_GLOSS = 4


def _lines(path: Path) -> list[str]:
    return [line.rstrip("\r") for line in read_text(path).removesuffix("\n").split("\n")]


def _plain(text: str) -> str:
    """A text without the roles, links, literals and emphasis of reStructuredText."""
    text = re.sub(r":[\w:+-]+:`[~!]?([^`<]*?)(?:\s*<[^`>]*>)?`", r"\1", text)
    text = re.sub(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}", r"\1", text)
    return re.sub(r"`{1,2}([^`]*)`{1,2}_{0,2}|\*{1,2}([^*]+)\*{1,2}", lambda m: m[1] or m[2] or "", text)


class Aligned(TwoPaths):
    """Two files whose lines correspond."""

    form: Literal["aligned"]

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs of lines.

        Raises:
            InputError: one file is longer.
        """
        one, two = find(self.source), find(self.target)
        left, right = [line for path in one for line in _lines(path)], [line for path in two for line in _lines(path)]
        if len(left) != len(right):
            raise InputError(f"{self.source} has {len(left)} lines, {self.target} has {len(right)}")
        yield from zip(left, right, strict=True)


class Joined(FormBase):
    """Files whose lines correspond, as the columns of one table (scores and sentences of test sets).

    Rows with an empty cell are left out. A file is `path#N`: its column N.
    """

    form: Literal["joined"]
    files: tuple[str, ...]
    header: tuple[str, ...] = ()
    quoted: bool = False

    def paths(self) -> list[str]:
        """The files, each once."""
        return list(dict.fromkeys(path.partition("#")[0] for path in self.files))

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Rows of all columns.

        Raises:
            InputError: one file is longer.
        """
        if self.header:
            yield self.header
        columns: list[list[str]] = []
        for name in self.files:
            path, _, column = name.partition("#")
            text = read_text(find(path)[0])
            if self.quoted:
                cells = list(csv.reader(io.StringIO(text, newline="")))
            else:
                cells = [line.split("\t") for line in text.removesuffix("\n").split("\n")]
            columns.append([row[int(column or 1) - 1].strip() if len(row) >= int(column or 1) else "" for row in cells])
        if len({len(one) for one in columns}) > 1:
            raise InputError(f"{', '.join(self.paths())}: not the same number of rows")
        yield from (row for row in zip(*columns, strict=True) if all(row))


class TableText(OnePath):
    """Columns of a tab- or comma-separated table, or of lines (`separator: ""`: the line is the text)."""

    form: Literal["table"]
    columns: tuple[int, ...] = (1, 2)
    separator: str = "\t"
    quoted: bool = False
    skip: int = 0
    tokenized: bool = False

    def rows(self, find: Find) -> Iterator[TextRow]:
        """The cells of the columns; lines that have fewer are left out."""
        for path in find(self.path):
            if self.quoted:
                table = csv.reader(io.StringIO(read_text(path), newline=""), delimiter=self.separator)
                cells = list(table)
            else:
                cells = [line.split(self.separator) if self.separator else [line] for line in _lines(path)]
            for row in cells[self.skip :]:
                if len(row) >= max(self.columns):
                    texts = tuple(row[column - 1] for column in self.columns)
                    yield tuple(map(join_punctuation, texts)) if self.tokenized else texts


class SameOrder(TwoPaths):
    """Two tables whose rows correspond: one column of each; texts are cut into sentences where the counts agree."""

    form: Literal["tables"]
    column: int = 1
    sentences: bool = True

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs of cells, or of their sentences.

        Raises:
            InputError: one file is longer.
        """
        for one, two in zip(find(self.source), find(self.target), strict=True):
            for left, right in zip_longest(_lines(one), _lines(two)):
                if left is None or right is None:
                    raise InputError(f"{self.source} and {self.target}: not the same number of rows")
                cells = [line.split("\t")[self.column - 1] for line in (left, right)]
                parts = [split_sentences(cell) for cell in cells]
                if self.sentences and len(parts[0]) == len(parts[1]):
                    yield from zip(*parts, strict=True)
                elif not self.sentences:
                    yield cells[0], cells[1]


class Conllu(FormBase):
    """The `# text` lines of CoNLL-U files: two treebanks by `# sent_id`, or two comments of one file (`comments`)."""

    form: Literal["conllu"]
    source: str
    target: str = ""
    comments: tuple[str, str] = ("text-en", "text")

    def paths(self) -> list[str]:
        """The files."""
        return [path for path in (self.source, self.target) if path]

    @staticmethod
    def _comments(path: Path) -> Iterator[dict[str, str]]:
        found: dict[str, str] = {}
        for line in [*_lines(path), ""]:
            match = re.match(r"# ?([\w-]+) ?[=:] ?(.*)", line)
            if match:
                found.setdefault(match[1], match[2])
            elif not line.strip() and found:
                yield found
                found = {}

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs of sentences, in the order of the English one."""
        if not self.target:
            for path in find(self.source):
                for entry in self._comments(path):
                    if all(key in entry for key in self.comments):
                        yield entry[self.comments[0]], entry[self.comments[1]]
            return
        other = {
            entry["sent_id"]: entry["text"]
            for path in find(self.target)
            for entry in self._comments(path)
            if "sent_id" in entry and "text" in entry
        }
        for path in find(self.source):
            for entry in self._comments(path):
                if "text" in entry and entry.get("sent_id") in other:
                    yield entry["text"], other[entry["sent_id"]]


class CorpusFile(OnePath):
    """A file that training reads itself: gettext (.po), TMX, csv, JSON lines.

    `rst`: the markup of reStructuredText is removed from the texts, what it marks stays.
    """

    form: Literal["corpus"]
    language: str
    kind: Kind = "auto"
    rst: bool = False

    def rows(self, find: Find) -> Iterator[TextRow]:
        """The pairs, as training would read them, but of any length."""
        for path in find(self.path):
            corpus = Corpus(path=str(path), languages=(self.language,), kind=self.kind, max_characters=1 << 20)
            for source in find_reader(path, self.kind)(path, corpus, self.language):
                for row in source.rows():
                    yield (_plain(row.source), _plain(row.target)) if self.rst else (row.source, row.target)


class WordNet(OnePath):
    """The glosses of WordNet's data files: definitions and examples."""

    form: Literal["wordnet"]

    def rows(self, find: Find) -> Iterator[TextRow]:
        """The definition and each example that are no mere words."""
        for path in find(self.path):
            for line in _lines(path):
                if line.startswith("  ") or "|" not in line:
                    continue  # the license, and lines without a gloss
                gloss = line.split("|", 1)[1]
                for text in (gloss.partition('"')[0].strip(" ;"), *re.findall(r'"([^"]+)"', gloss)):
                    if len(text.split()) >= WORDS_OF_A_GLOSS and "`" not in text:
                        yield (text,)


class Copied(OnePath):
    """A file as it is."""

    form: Literal["copy"]

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Its lines."""
        for path in find(self.path):
            yield from ((line,) for line in _lines(path))


Reader = Annotated[
    Aligned
    | Joined
    | TableText
    | SameOrder
    | Conllu
    | CorpusFile
    | WordNet
    | Copied
    | JsonText
    | JsonVariants
    | JsonKeys
    | AndroidStrings
    | Fluent
    | MozillaLang
    | KeyedText
    | Compiled
    | StringTable
    | RenPy
    | Xliff
    | Commands,
    Field(discriminator="form"),
]
