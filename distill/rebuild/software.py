"""Catalogues of programs and games, each with the texts of two languages by a key."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from msdc.distill.data.corpora import segment_text
from msdc.distill.rebuild.reader import Find, OnePath, TextRow, TwinFiles, TwoPaths, read_text
from msdc.errors import InputError


class AndroidStrings(TwinFiles):
    """Android's string resources, by their names: `values/strings.xml` beside `values-XX/strings.xml`."""

    form: Literal["android"]

    @staticmethod
    def texts(path: Path) -> dict[str, str]:
        """See `TwinFiles`."""
        import defusedxml.ElementTree as safe
        from defusedxml import DefusedXmlException

        try:
            root = safe.fromstring(read_text(path).encode())
        except (DefusedXmlException, SyntaxError) as error:
            raise InputError(f"{path.name}: not well-formed XML ({error})") from error
        found: dict[str, str] = {}
        for element in root.iter("string"):
            if element.get("translatable") != "false" and element.get("name"):
                text = "".join(element.itertext()).strip()
                if text[:1] == text[-1:] == '"' and len(text) > 1:
                    text = text[1:-1]
                text = re.sub(r"\\u([0-9a-fA-F]{4})", lambda m: chr(int(m[1], 16)), text)
                found[element.get("name")] = text.replace("\\n", "\n").replace("\\'", "'").replace('\\"', '"')
        return found


class Xliff(OnePath):
    """Translated segments of XLIFF 1.2."""

    form: Literal["xliff"]

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs of the segments that are translated.

        Raises:
            InputError: not well-formed.
        """
        import defusedxml.ElementTree as safe
        from defusedxml import DefusedXmlException

        for path in find(self.path):
            try:
                root = safe.fromstring(read_text(path).encode())
            except (DefusedXmlException, SyntaxError) as error:
                raise InputError(f"{path.name}: not well-formed XML ({error})") from error
            for unit in root.iterfind(".//{*}trans-unit"):
                one, two = unit.find("{*}source"), unit.find("{*}target")
                if one is not None and two is not None:
                    state = f"{unit.get('state', '')} {two.get('state', '')}".split()
                    if not {"new", "initial", "needs-translation", "needs-adaptation", "needs-l10n"} & set(state):
                        yield segment_text(one), segment_text(two)


class Fluent(TwinFiles):
    """Mozilla's Fluent: messages and their attributes, by name; those with selectors are left out."""

    form: Literal["fluent"]

    @staticmethod
    def texts(path: Path) -> dict[str, str]:
        """See `TwinFiles`."""
        found: dict[str, str] = {}
        message = name = ""
        for line in read_text(path).split("\n"):
            head = re.match(r"(-?[A-Za-z][\w-]*) *= ?(.*)", line)
            attribute = re.match(r" +\.([A-Za-z][\w-]*) *= ?(.*)", line)
            if head:
                message = name = head[1]
                found[name] = head[2]
            elif attribute and message:
                name = f"{message}.{attribute[1]}"
                found[name] = attribute[2]
            elif name and line[:1] == " ":
                found[name] = f"{found[name]} {line.strip()}".strip()
            elif not line.startswith("#") and line.strip():
                name = ""
        return {name: text for name, text in found.items() if text and "->" not in text}


class MozillaLang(OnePath):
    """Mozilla's .lang: a line `;English`, and the translation in the next one."""

    form: Literal["lang"]

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs; what is marked `{ok}` is translated as it is in English."""
        for path in find(self.path):
            lines = read_text(path).split("\n")
            for line, after in zip(lines, chain(lines[1:], [""]), strict=True):
                if line.startswith(";") and after and not after.startswith((";", "#")):
                    yield line[1:].strip(), re.sub(r" *\{ok\} *$", "", after).strip()


class KeyedText(TwoPaths):
    """Two YAML files of the same keys: every text of one beside that of the other."""

    form: Literal["yaml-keys"]
    below: tuple[str, str] = ("", "")
    tags: bool = False

    @staticmethod
    def _texts(path: Path, below: str) -> dict[tuple[str, ...], str]:
        import yaml

        def walk(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
            if isinstance(value, str):
                yield place, value
            elif isinstance(value, (dict, list)):
                pairs = value.items() if isinstance(value, dict) else enumerate(value)
                for key, each in pairs:
                    yield from walk(each, (*place, str(key)))

        try:
            tree = yaml.safe_load(read_text(path))
        except yaml.YAMLError as error:
            raise InputError(f"{path.name}: not YAML ({' '.join(str(error).split())[:120]})") from error
        return dict(walk(tree.get(below, {}) if below and isinstance(tree, dict) else tree, ()))

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs in the order of the English file; `tags`: markup is removed from the texts."""
        for one, two in zip(find(self.source), find(self.target), strict=True):
            other = self._texts(two, self.below[1])
            for place, text in self._texts(one, self.below[0]).items():
                if place in other:
                    pair = (text, other[place])
                    yield tuple(re.sub(r"<[^<>]+>", "", side) for side in pair) if self.tags else pair


class Compiled(OnePath):
    """Compiled gettext catalogues (.mo), whose entries hold both languages."""

    form: Literal["mo"]

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs without plural forms and contexts.

        Raises:
            InputError: not a catalogue.
        """
        for path in find(self.path):
            raw = path.read_bytes()
            order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(raw[:4])
            if order is None or len(raw) < 20:
                raise InputError(f"{path.name}: not a gettext catalogue")
            count, first, second = struct.unpack_from(f"{order}3I", raw, 8)
            for number in range(count):
                sides = []
                for table in (first, second):
                    try:
                        length, at = struct.unpack_from(f"{order}2I", raw, table + 8 * number)
                    except struct.error as error:
                        raise InputError(f"{path.name}: a damaged gettext catalogue") from error
                    sides.append(raw[at : at + length].decode("utf-8", "replace").split("\0")[0])
                if sides[0]:
                    yield sides[0].rpartition("\4")[2], sides[1]


class StringTable(TwoPaths):
    """FreeOrion's string tables: a key in one line and its text in the next, or between three quotation marks."""

    form: Literal["stringtable"]

    @staticmethod
    def _texts(path: Path) -> dict[str, str]:
        entries = re.finditer(
            r"^([A-Z][A-Z0-9_]+)\n(?:'''(.*?)'''|([^\n]*))", read_text(path), re.MULTILINE | re.DOTALL
        )
        return {match[1]: match[2] or match[3] or "" for match in entries}

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs of lines, where both texts have as many."""
        for one, two in zip(find(self.source), find(self.target), strict=True):
            other = self._texts(two)
            for key, text in self._texts(one).items():
                lines = [[line for line in side.split("\n") if line.strip()] for side in (text, other.get(key, ""))]
                if len(lines[0]) == len(lines[1]):
                    yield from zip(*lines, strict=True)


class RenPy(OnePath):
    """Ren'Py's translations: the English line is a comment above the translated one, or `old` above `new`."""

    form: Literal["renpy"]

    def rows(self, find: Find) -> Iterator[TextRow]:
        """Pairs of lines of dialogue."""
        said = re.compile(r'^\s*(?:(#|old|new)\s+)?(?:[A-Za-z_]\w*\s+)*"((?:[^"\\\\]|\\\\.)*)"')
        for path in find(self.path):
            english = ""
            for line in read_text(path).split("\n"):
                match = said.match(line)
                if match is None:
                    continue
                text = re.sub(r"\{[^{}]*\}", "", match[2]).replace('\\"', '"')
                if match[1] in ("#", "old"):
                    english = text
                elif english:
                    yield english, text
                    english = ""


class Commands(TwinFiles):
    """tldr pages: a line of description above a command; those of two languages belong together by the command."""

    form: Literal["tldr"]

    @staticmethod
    def texts(path: Path) -> dict[str, str]:
        """See `TwinFiles`."""
        found = re.findall(r"^- (.*?):?\n\n?`(.*)`", read_text(path), re.MULTILINE)
        return {re.sub(r"\{\{.*?\}\}", "{}", command): text.replace("`", "") for text, command in found}
