"""Translation memories (TMX) and gettext catalogs as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from msdc.errors import InputError, first_line
from msdc.extras import require
from msdc.files import regular_size
from msdc.text.text_files import DAMAGED, SAMPLE_ROWS, Numbered, TabularFile, iterate_lines, unpacked

XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements of a segment with code of the original document, not text
XML_CODE = frozenset(["bpt", "ept", "ph", "it", "ut", "sub", "x", "bx", "ex", "sc", "ec", "cp"])
FIRST_UNITS = 1000  # whose languages are the columns


def segment_text(element: Any) -> str:
    """Text of an XML segment without the code of inline elements, with the text after them."""
    parts = [element.text or ""]
    for inner in element:
        if str(inner.tag).rsplit("}", 1)[-1] not in XML_CODE:
            parts.append(segment_text(inner))
        parts.append(inner.tail or "")
    return "".join(parts)


def _tmx_units(path: Path) -> Iterator[tuple[int, dict[str, list[str]]]]:
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
                    texts: dict[str, list[str]] = {}
                    for variant in element.iterfind("tuv"):
                        code, segment = variant.get(XML_LANG) or variant.get("lang"), variant.find("seg")
                        if code and segment is not None:
                            texts.setdefault(code.strip(), []).append(segment_text(segment))
                    yield number, texts
                    if body is not None:
                        body.clear()
    except InputError:
        raise
    except (SyntaxError, ValueError, OSError, *DAMAGED) as error:  # ElementTree's ParseError is a SyntaxError
        raise InputError(f"{path}: damaged TMX after unit {number} ({first_line(error)})") from error


def open_tmx(path: Path) -> TabularFile:
    """A translation memory: a column for each language of the first units, named by its tag.

    A unit with several texts in a language has as many rows.
    """
    names = tuple(dict.fromkeys(code for _, texts in islice(_tmx_units(path), FIRST_UNITS) for code in texts))

    def read(columns: Sequence[int]) -> Iterator[Numbered]:
        for number, texts in _tmx_units(path):
            texts_by_column = [texts.get(names[column]) or [""] for column in columns]
            for row in range(max(map(len, texts_by_column), default=1)):
                yield number, [variants[min(row, len(variants) - 1)] for variants in texts_by_column]

    sample = [cells for _, cells in islice(read(range(len(names))), FIRST_UNITS) if not isinstance(cells, str)]
    return TabularFile(path, "TMX", names, len(names), sample, read)


class _Lines(str):
    """Text that is split into lines at line feeds only, as files are."""

    def splitlines(self, keepends: bool = False) -> list[str]:
        return self.split("\n")


def open_gettext(path: Path) -> TabularFile:
    """A gettext catalog: columns `msgid` and `msgstr` of each entry; the latter is empty if it is fuzzy or obsolete."""
    require("polib", "a gettext catalog")
    import polib

    def entries() -> Any:
        try:
            return polib.pofile(_Lines("\n".join(line for _, line in iterate_lines(path)) + "\n"))
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: not a gettext catalog ({first_line(error)})") from error

    def read(columns: Sequence[int]) -> Iterator[Numbered]:
        for entry in entries():
            translated = entry.msgstr or next(iter(entry.msgstr_plural.values()), "")
            cells = [entry.msgid, "" if entry.obsolete or entry.fuzzy else translated]
            yield entry.linenum, [cells[column] for column in columns]

    catalog = entries()
    sample = [cells for _, cells in islice(read((0, 1)), SAMPLE_ROWS) if not isinstance(cells, str)]
    language = catalog.metadata.get("Language", "")
    return TabularFile(
        path,
        "gettext, fuzzy entries are untranslated",
        ("msgid", "msgstr"),
        2,
        sample,
        read,
        language=language,
    )
