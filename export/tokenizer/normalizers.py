"""Normalizers of a `tokenizer.json` as rules of the native core (export/native/src/text_rules.h)."""

from __future__ import annotations

import base64
import json
from typing import Any

from msdc.errors import InputError
from msdc.export.tokenizer import probe
from msdc.export.tokenizer.binary import NONE, Shared, character_map, number_map, pair_table
from msdc.export.tokenizer.pattern import parse, program

_MAP, _FORM, _LITERAL, _PATTERN, _PREPEND, _STRIP, _CLUSTERS = range(1, 8)
_LEFT, _RIGHT = 1, 2
_FORMS = {"NFD": ("NFD", False), "NFC": ("NFD", True), "NFKD": ("NFKD", False), "NFKC": ("NFKD", True)}
_CONTEXT_FREE = ("Lowercase", "StripAccents", "Nmt")


class Rules:
    """The rules, in order, as words of the description."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.words: list[int] = []
        self.count = 0

    def _add(self, *words: int) -> None:
        self.words += words
        self.count += 1

    def _map(self, changes: dict[int, str], surround: str = "") -> None:
        if changes:
            self._add(_MAP, self.shared.map(character_map(changes, surround=surround)))

    def _table(self, raw: bytes) -> int:
        return self.shared.tables.add(raw)

    def add(self, spec: dict[str, Any]) -> None:
        """Append a normalizer.

        Raises:
            InputError: the native core does not have it.
        """
        kind = spec["type"]
        if kind == "Sequence":
            for one in spec["normalizers"]:
                self.add(one)
        elif kind in _CONTEXT_FREE:
            self._map(probe.changed_by(json.dumps({"type": kind})))
        elif kind in _FORMS:
            self._form(*_FORMS[kind])
        elif kind == "BertNormalizer":
            self._bert(spec)
        elif kind == "Replace":
            self._replace(spec)
        elif kind == "Prepend":
            self._add(_PREPEND, self.shared.tables.add_short(spec["prepend"]))
        elif kind == "Strip":
            sides = _LEFT * spec["strip_left"] | _RIGHT * spec["strip_right"]
            self._add(_STRIP, self.shared.set(probe.white_space()), sides)
        elif kind == "Precompiled":
            self._precompiled(spec)
        else:
            raise InputError(f"tokenizer.json: the native core does not support the normalizer {kind}")

    def _form(self, decomposition: str, compose: bool) -> None:
        changes = probe.changed_by(json.dumps({"type": decomposition}))
        letters = {code: new for code, new in changes.items() if not 0xAC00 <= code < 0xD7A4}
        pairs = {pair: (0, code) for pair, code in probe.compositions().items()} if compose else {}
        self._add(
            _FORM,
            self.shared.map(character_map(letters)),
            self.shared.map(number_map(probe.combining_classes())),
            self._table(pair_table(pairs)) if compose else NONE,
        )

    def _bert(self, spec: dict[str, Any]) -> None:
        off = {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": False, "strip_accents": False,
               "lowercase": False}  # fmt: skip
        for part, surround in (("clean_text", ""), ("handle_chinese_chars", " ")):
            if spec[part]:
                self._map(probe.changed_by(json.dumps(off | {part: True})), surround)
        if spec["lowercase"] if spec["strip_accents"] is None else spec["strip_accents"]:
            self._form("NFD", False)
            gone = probe.changed_by(json.dumps(off | {"strip_accents": True}))
            self._map({code: new for code, new in gone.items() if not new})
        if spec["lowercase"]:
            self._map(probe.changed_by(json.dumps(off | {"lowercase": True})))

    def _replace(self, spec: dict[str, Any]) -> None:
        content = self.shared.tables.add_short(spec["content"])
        if "String" in spec["pattern"]:
            text = spec["pattern"]["String"]
            if not text:
                raise InputError("tokenizer.json: the native core does not support a Replace of the empty text")
            self._add(_LITERAL, self.shared.tables.add_short(text), content)
        else:
            found = self.shared.pattern(program(parse(spec["pattern"]["Regex"]), self.shared))
            self._add(_PATTERN, found, content)

    def _precompiled(self, spec: dict[str, Any]) -> None:
        raw = base64.b64decode(spec["precompiled_charsmap"])
        if len(raw) <= 4:
            return
        joins_before, joins_after, breaks, pictures = probe.cluster_sets()
        sets = (self.shared.set(one) for one in (joins_before, joins_after, breaks, pictures))
        self._add(_CLUSTERS, self._table(raw), *sets)
