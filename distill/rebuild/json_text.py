"""Text in JSON, by small path expressions.

`a.b[].c` takes the key c of every entry of the list b in a; `{}` takes every value of a mapping. A file is one JSON
value or one value per line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from msdc.distill.data.corpora import join_punctuation
from msdc.distill.rebuild.reader import Find, FormBase, OnePath, TextRow, TwoPaths, by_folder, read_text
from msdc.errors import InputError

# A sentence ends before a capital, a digit, a quotation mark or an Arabic letter.
_SENTENCE_END = re.compile(r"(?<=[.!?؟…。])(?:[\"'”»)])?\s+(?=[\"'“«(¿¡]?[A-ZÀ-ÞĀ-ŽА-Я0-9ء-ي$€])")
# What ends in a digit may be an ordinal.
_SHORT = re.compile(r"(?:\d|\b(?:Mr|Mrs|Ms|Dr|St|No|vs|Jr|Sr|Prof|etc|e\.g|i\.e|z\.B|bzw|M|Mme|Sra?|Nr)|\b[A-ZÀ-Þ])\.$")


def split_sentences(text: str) -> list[str]:
    """The sentences of a paragraph, by punctuation; abbreviations do not end one."""
    parts: list[str] = []
    at = 0
    for match in _SENTENCE_END.finditer(text):
        if not _SHORT.search(text[at : match.start()]):
            parts.append(text[at : match.start()] + match[0].rstrip())
            at = match.end()
    return [part.strip() for part in [*parts, text[at:]] if part.strip()]


def load_values(path: Path) -> list[Any]:
    """The JSON values of a file: one, or one per line.

    Raises:
        InputError: not JSON.
    """
    text = read_text(path)
    try:
        return [json.loads(text)]
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.split("\n") if line.strip()]
    except ValueError as error:
        raise InputError(f"{path.name}: not JSON ({error})") from error


def select(value: Any, expression: str) -> Iterator[Any]:
    """What an expression names in a value; what is missing is skipped."""
    steps = re.findall(r"\[\]|\{\}|[^.\[\]{}]+", expression)

    def walk(one: Any, at: int) -> Iterator[Any]:
        if at == len(steps):
            yield one
        elif steps[at] == "[]" and isinstance(one, list):
            for each in one:
                yield from walk(each, at + 1)
        elif steps[at] == "{}" and isinstance(one, dict):
            for each in one.values():
                yield from walk(each, at + 1)
        elif isinstance(one, dict) and steps[at] in one:
            yield from walk(one[steps[at]], at + 1)

    return walk(value, 0)


class JsonText(FormBase):
    """Texts of JSON files, or pairs of two files, by position or by `key`.

    Attributes:
        items: the entries; each must have all `texts`, else it is left out (of a pair: the entry of either side).
        texts: expressions below an entry; each gives one row, lists of texts several.
        key: expression of what identifies an entry; `@` is its key in the mapping that `items` ends in (`{}`); without
            one, entries correspond by their position.
        sentences: texts are cut into sentences.
        spans: expression of pairs of numbers, below an entry: where the sentences of its text begin and end.
        tokenized: blanks before punctuation are removed.
        inner: the texts are JSON themselves, and this names the texts in them.
    """

    form: Literal["json"]
    source: str
    target: str = ""
    items: str = ""
    texts: tuple[str, ...]
    target_texts: tuple[str, ...] = ()
    key: str = ""
    sentences: bool = False
    spans: str = ""
    tokenized: bool = False
    inner: str = ""

    def paths(self) -> list[str]:
        """The files."""
        return [path for path in (self.source, self.target) if path]

    def _items(self, value: Any) -> Iterator[tuple[Any, Any]]:
        """(key, entry) of the entries of one JSON value."""
        if self.key == "@":
            for part in select(value, self.items.removesuffix("{}")):
                yield from part.items()
            return
        for entry in select(value, self.items):
            yield next(select(entry, self.key), None) if self.key else None, entry

    def _texts(self, entry: Any, expression: str) -> list[str]:
        texts = [text for text in select(entry, expression) if isinstance(text, str)]
        if self.inner:
            texts = [one for text in texts for one in select(json.loads(text), self.inner) if isinstance(one, str)]
        if self.spans:
            spans = [span for part in select(entry, self.spans) for span in part]
            texts = [text[start:end] for text in texts for start, end in spans]
        if self.sentences:
            texts = [part for text in texts for line in text.split("\n") for part in split_sentences(line)]
        return [join_punctuation(text) for text in texts] if self.tokenized else texts

    def _entries(self, find: Find, path: str, texts: tuple[str, ...]) -> Iterator[tuple[Any, list[list[str]]]]:
        number = 0
        for file in find(path):
            for value in load_values(file):
                for key, entry in self._items(value):
                    number += 1
                    if key is not None or not self.key:
                        yield key if self.key else number, [self._texts(entry, text) for text in texts]

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Texts, or pairs in the order of the English file."""
        if not self.target:
            for _, groups in self._entries(find, self.source, self.texts):
                yield from ((text,) for group in groups for text in group)
            return
        other = dict(self._entries(find, self.target, self.target_texts or self.texts))
        for key, groups in self._entries(find, self.source, self.texts):
            for left, right in zip(groups, other.get(key, []), strict=False):
                if len(left) == len(right):
                    yield from zip(left, right, strict=True)


class JsonVariants(OnePath):
    """Entries that hold their own translations: a list of mappings with a language and a text (QALD)."""

    form: Literal["json-variants"]
    items: str
    language: str
    source_language: str = "en"
    language_key: str = "language"
    text_key: str = "string"

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs of entries that have both languages."""
        for file in find(self.path):
            for value in load_values(file):
                for group in select(value, self.items):
                    texts: dict[str, str] = {}
                    for one in group if isinstance(group, list) else []:
                        text = one.get(self.text_key) if isinstance(one, dict) else None
                        if isinstance(text, str):
                            texts.setdefault(str(one.get(self.language_key)), text)
                    if self.source_language in texts and self.language in texts:
                        yield texts[self.source_language], texts[self.language]


def _leaves(value: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from _leaves(each, (*place, str(key)))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _leaves(each, (*place, str(number)))


class JsonKeys(TwoPaths):
    """Two JSON files of the same keys: every text of one beside that of the other (catalogues of programs).

    Attributes:
        below: expression of the part that is read; `target_below` where the other file's differs.
        leaf: only texts under one of these keys.
        parts: of several files, the part of their paths that differs (`/en.json`, `/de.json`); else they belong
            together by their order.
    """

    form: Literal["json-keys"]
    below: str = ""
    target_below: str = ""
    leaf: tuple[str, ...] = ()
    parts: tuple[str, str] = ("", "")

    def _texts(self, path: Path, below: str) -> dict[tuple[str, ...], str]:
        return {
            place: text
            for value in load_values(path)
            for part in select(value, below)
            for place, text in _leaves(part)
            if not self.leaf or set(self.leaf) & set(place)
        }

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs in the order of the English file."""
        files = (
            by_folder(find, self.source, self.target, self.parts)
            if self.parts[0]
            else zip(find(self.source), find(self.target), strict=True)
        )
        for one, two in files:
            other = self._texts(two, self.target_below or self.below)
            yield from ((text, other[place]) for place, text in self._texts(one, self.below).items() if place in other)
