"""Pre-tokenizers of a `tokenizer.json` as splitting steps of the native core (export/native/src/splitter.h)."""

from __future__ import annotations

import json
from typing import Any

from msdc.errors import InputError
from msdc.export.tokenizer import probe
from msdc.export.tokenizer.binary import Range, Shared
from msdc.export.tokenizer.pattern import Node, character, literal, one_of, parse, program, repeated

_SPLIT, _METASPACE, _PREFIX_SPACE, _BYTE_LETTERS = range(1, 5)
_BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
_PREPEND = ("never", "always", "first")
# GPT-2's, which the library's ByteLevel applies.
_BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


class Splits:
    """The steps, in order, as words of the description. `plain`: no normalizer comes before them."""

    def __init__(self, shared: Shared, plain: bool) -> None:
        self.shared = shared
        self.plain = plain
        self.words: list[int] = []
        self.count = 0

    def _add(self, *words: int) -> None:
        self.words += words
        self.count += 1

    def _split(self, node: Node, behavior: str, invert: bool = False) -> None:
        if behavior not in _BEHAVIORS:
            raise InputError(f"tokenizer.json: the native core does not support the split behavior {behavior}")
        number = self.shared.pattern(program(node, self.shared))
        self._add(_SPLIT, number, _BEHAVIORS.index(behavior), int(invert))

    def add(self, spec: dict[str, Any]) -> None:
        """Append a pre-tokenizer.

        Raises:
            InputError: the native core does not have it.
        """
        kind = spec["type"]
        if kind == "Sequence":
            for one in spec["pretokenizers"]:
                self.add(one)
        elif kind in ("BertPreTokenizer", "WhitespaceSplit", "Whitespace"):
            self._words(kind)
        elif kind == "Split":
            pattern = spec["pattern"]
            node = literal(pattern["String"]) if "String" in pattern else parse(pattern["Regex"])
            if node.shortest() == 0:
                raise InputError("tokenizer.json: the native core does not support a Split at the empty text")
            self._split(node, spec["behavior"], spec["invert"])
        elif kind == "CharDelimiterSplit":
            self._split(character(ord(spec["delimiter"])), "Removed")
        elif kind == "Digits":
            digits = probe.cut_out_by(json.dumps({"type": "Digits", "individual_digits": False}))
            self._split(one_of(digits), "Isolated" if spec["individual_digits"] else "Contiguous")
        elif kind == "Punctuation":
            marks = probe.cut_out_by(json.dumps({"type": "Punctuation", "behavior": "Contiguous"}))
            self._split(one_of(marks), spec["behavior"])
        elif kind == "Metaspace":
            self._metaspace(spec)
        elif kind == "ByteLevel":
            if spec["add_prefix_space"]:
                self._add(_PREFIX_SPACE)
            if spec["use_regex"]:
                self._split(parse(_BYTE_LEVEL), "Isolated")
            self._add(_BYTE_LETTERS)
        else:
            raise InputError(f"tokenizer.json: the native core does not support the pre-tokenizer {kind}")

    def _words(self, kind: str) -> None:
        specification = json.dumps({"type": kind})
        space = probe.removed_by(specification)
        if kind == "WhitespaceSplit":
            self._split(one_of(space), "Removed")
            return
        marks = probe.cut_out_by(specification)
        if kind == "BertPreTokenizer":
            self._split(one_of(space), "Removed")
            self._split(one_of(marks), "Isolated")
            return
        letters: list[Range] = probe.complement(sorted([*space, *marks]))
        self._split(Node("choice", (repeated(one_of(tuple(letters))), repeated(one_of(marks)))), "Removed", invert=True)

    def _metaspace(self, spec: dict[str, Any]) -> None:
        scheme = spec["prepend_scheme"]
        # Which piece is the first depends on offsets in the text before normalization, which the core does not keep.
        if scheme == "first" and (self.count or not self.plain):
            raise InputError(
                "tokenizer.json: the native core does not support Metaspace with prepend_scheme first after a "
                "normalizer or another pre-tokenizer"
            )
        mark = self.shared.tables.add_short(spec["replacement"])
        self._add(_METASPACE, mark, _PREPEND.index(scheme), int(spec["split"]))
