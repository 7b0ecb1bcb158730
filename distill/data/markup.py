"""Translation memories (TMX) and XLIFF 1.2 and 2.0, read piece by piece.

defusedxml refuses entities, with which a small file grows to gigabytes; a unit of more than MAX_UNIT_BYTES is an error.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from msdc.distill.data.columns import unnamed_language
from msdc.distill.data.sources import Row, Source
from msdc.distill.recipe import Corpus
from msdc.errors import InputError
from msdc.extras import require
from msdc.files import regular_size
from msdc.text.tabular import text_bytes
from msdc.text.text_files import unpacked

MAX_UNIT_BYTES = 8 << 20
XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# Their content is code of the original document, not text.
CODE = frozenset(["bpt", "ept", "ph", "it", "ut", "sub", "x", "bx", "ex", "sc", "ec", "cp"])
UNTRANSLATED = re.compile("new|needs-translation|needs-adaptation|needs-l10n|initial")


class _Bounded:
    """A binary file that may hand out MAX_UNIT_BYTES between two calls of `unit_done`."""

    def __init__(self, raw: BinaryIO, path: Path) -> None:
        self.raw, self.path, self.since = raw, path, 0

    def read(self, size: int = -1) -> bytes:
        block = self.raw.read(min(size, 1 << 16) if size > 0 else 1 << 16)
        self.since += len(block)
        if self.since > MAX_UNIT_BYTES:
            raise InputError(f"{self.path}: one unit is longer than {MAX_UNIT_BYTES >> 20} MiB")
        return block

    def unit_done(self) -> None:
        self.since = 0


def _elements(path: Path, wanted: frozenset[str]) -> Iterator[tuple[str, str, Any]]:
    """(start or end, local name, element) of the wanted elements; an element is emptied after its end.

    Raises:
        InputError: not well-formed, entities, or too large.
    """
    require("defusedxml", "TMX or XLIFF")
    import defusedxml.ElementTree as safe
    from defusedxml import DefusedXmlException

    regular_size(path)
    try:
        with open(path, "rb") as raw:
            file = _Bounded(unpacked(raw), path)
            open_elements: list[Any] = []
            for event, element in safe.iterparse(file, events=("start", "end")):
                name = str(element.tag).rsplit("}", 1)[-1]
                if event == "start":
                    open_elements.append(element)
                    if name in wanted:
                        yield "start", name, element
                    continue
                open_elements.pop()
                if name in wanted:
                    yield "end", name, element
                    # Nothing of a finished unit is kept, nor its place in its parent.
                    if name in ("tu", "trans-unit", "unit"):
                        element.clear()
                        if open_elements:
                            open_elements[-1].remove(element)
                        file.unit_done()
    except DefusedXmlException as error:
        raise InputError(f"{path}: XML entities are not read ({type(error).__name__})") from error
    except SyntaxError as error:  # ElementTree's ParseError
        raise InputError(f"{path}: not well-formed XML ({error})") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged gzip file ({error})") from error


def _text(element: Any) -> str:
    """Text of a segment without the code of inline elements; what follows one belongs to the segment."""
    parts = [element.text or ""]
    for inner in element:
        if str(inner.tag).rsplit("}", 1)[-1] not in CODE:
            parts.append(_text(inner))
        parts.append(inner.tail or "")
    return "".join(parts)


def _base(code: str | None) -> str:
    return re.split("[_-]", (code or "").strip().lower())[0]


def _children(element: Any, name: str) -> list[Any]:
    return [child for child in element if str(child.tag).rsplit("}", 1)[-1] == name]


def _child(element: Any, name: str) -> Any:
    return next(iter(_children(element, name)), None)


def _tmx_units(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    number = 0
    for event, name, element in _elements(path, frozenset(["tu"])):
        if event == "end" and name == "tu":
            number += 1
            texts: dict[str, str] = {}
            for variant in element:
                code = _base(variant.get(XML_LANG) or variant.get("lang"))
                segment = _child(variant, "seg")
                if code and segment is not None:
                    texts.setdefault(code, _text(segment))
            yield number, texts


def read_tmx(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
    """Pairs of a translation memory, one source per wanted language; all that its first units have where none is named.

    Raises:
        InputError: not a TMX file.
    """
    codes: list[str] = [_base(code) for code in corpus.languages]
    if not codes:
        for number, texts in _tmx_units(path):
            codes = list(dict.fromkeys([*codes, *(code for code in texts if code != corpus.source)]))
            if number == 1000:
                break

    def make(code: str) -> Source:
        def rows() -> Iterator[Row]:
            for number, texts in _tmx_units(path):
                one, two = texts.get(corpus.source, ""), texts.get(code, "")
                if one.strip() and two.strip():
                    yield Row(one, two, code)
                elif corpus.source not in texts:
                    source.complain(number, f"no {corpus.source} in the unit")
                else:
                    source.complain(number, f"no {code} in the unit")

        label = f"{path}:{code}" if len(codes) > 1 else str(path)
        source = Source(label, code, text_bytes(path) // len(codes), corpus, rows, form="TMX")
        return source

    if not codes:
        raise InputError(f"{path}: a translation memory without a language beside {corpus.source!r} in its first units")
    return [make(code) for code in codes]


def _xliff_pairs(path: Path) -> Iterator[tuple[int, str, str, str, str]]:
    """(number, source language, target language, source, target) of each segment; an untranslated target is empty."""
    languages = ["", ""]
    number = 0
    for event, name, element in _elements(path, frozenset(["xliff", "file", "trans-unit", "unit"])):
        if event == "start":
            for place, keys in enumerate((("source-language", "srcLang"), ("target-language", "trgLang"))):
                value = next((element.get(key) for key in keys if element.get(key)), None)
                languages[place] = _base(value) or languages[place]
            continue
        if name not in ("trans-unit", "unit"):
            continue
        segments = [element] if name == "trans-unit" else _children(element, "segment")
        for segment in segments:
            number += 1
            one, two = _child(segment, "source"), _child(segment, "target")
            state = f"{segment.get('state', '')} {'' if two is None else two.get('state', '')}".split()
            done = two is not None and not any(UNTRANSLATED.fullmatch(word) for word in state)
            own = "" if two is None else _base(two.get(XML_LANG))
            yield (
                number,
                languages[0],
                languages[1] or own,
                "" if one is None else _text(one),
                _text(two) if done else "",
            )


def read_xliff(path: Path, corpus: Corpus, language: str | None) -> list[Source]:
    """Translated segments of an XLIFF file.

    Raises:
        InputError: not XLIFF, from another language, or without a target language.
    """
    first = next(_xliff_pairs(path), None)
    if first is not None and first[1] and first[1] != corpus.source:
        raise InputError(f"{path}: translates from {first[1]!r}, the corpus is from {corpus.source!r} (`source:`)")
    code = (first[2] if first is not None else "") or language
    if code is None:
        raise unnamed_language(path)
    if corpus.languages and code not in {_base(one) for one in corpus.languages}:
        return []

    def rows() -> Iterator[Row]:
        for number, _, _, one, two in _xliff_pairs(path):
            if one.strip() and two.strip():
                yield Row(one, two, cast(str, code))
            else:
                source.complain(number, "untranslated")

    source = Source(str(path), code, text_bytes(path), corpus, rows, form="XLIFF")
    return [source]
