"""Compile a `tokenizer.json` for the native core: read by the `tokenizers` library, written as flat tables.

The library's own JSON (`to_str`) is read, so older layouts arrive in the current one. Unknown components are refused by
name: a core that guesses would give other ids. Normalizers become rules (export/native/src/text_rules.h),
pre-tokenizers splitting steps (export/native/src/splitter.h).
"""

from __future__ import annotations

import base64
import json
import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.export.tokenizer import binary, probe
from msdc.export.tokenizer.binary import NONE, Tables, character_map, pair_table, text_table, unsupported
from msdc.export.tokenizer.pattern import Node, literal, one_of, parse, program

COMPILED_FILE = "tokenizer.bin"
_SINGLE_WORD, _STRIP_LEFT, _STRIP_RIGHT = 1, 2, 4
_WORD_PIECE, _BPE, _UNIGRAM = 1, 2, 3
_FUSE_UNKNOWN, _WHOLE_WORDS, _BYTES = 1, 2, 4
_MAX_WORD = 10000
_MAP, _FORM, _LITERAL, _PATTERN, _PREPEND, _STRIP, _CLUSTERS = range(1, 8)
_FORMS = {"NFD": ("NFD", False), "NFC": ("NFD", True), "NFKD": ("NFKD", False), "NFKC": ("NFKD", True)}
_SPLIT, _METASPACE, _PREFIX_SPACE, _BYTE_LETTERS = range(1, 5)
_BEHAVIORS = ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")
_PREPEND_SCHEMES = ("never", "always", "first")
# GPT-2's, which the library's ByteLevel applies.
_BYTE_LEVEL = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
Spec = dict[str, Any]  # of a component, as in the file


@dataclass
class _Steps:
    """Normalizer rules or splitting steps, in order, as words of the description."""

    tables: Tables
    words: list[int] = field(default_factory=list)
    count: int = 0

    def step(self, *words: int) -> None:
        self.words += words
        self.count += 1


class _Normalizers(_Steps):
    def add(self, spec: Spec) -> None:
        """Append a normalizer; an `InputError` where the native core does not have it."""
        kind, tables = spec["type"], self.tables
        if kind == "Sequence":
            for part in spec["normalizers"]:
                self.add(part)
        elif kind in ("Lowercase", "StripAccents", "Nmt"):
            self._map(probe.changed_by(json.dumps({"type": kind})))
        elif kind in _FORMS:
            self._form(*_FORMS[kind])
        elif kind == "BertNormalizer":
            self._bert(spec)
        elif kind == "Replace" and "String" in spec["pattern"]:
            if not spec["pattern"]["String"]:
                raise unsupported("a Replace of the empty text")
            content = tables.add_short(spec["content"])
            self.step(_LITERAL, tables.add_short(spec["pattern"]["String"]), content)
        elif kind == "Replace":
            content = tables.add_short(spec["content"])
            self.step(_PATTERN, tables.pattern(program(parse(spec["pattern"]["Regex"]), tables)), content)
        elif kind == "Prepend":
            self.step(_PREPEND, tables.add_short(spec["prepend"]))
        elif kind == "Strip":
            self.step(_STRIP, tables.set(probe.white_space()), 1 * spec["strip_left"] | 2 * spec["strip_right"])
        elif kind == "Precompiled":
            raw = base64.b64decode(spec["precompiled_charsmap"])
            if len(raw) > 4:
                self.step(
                    _CLUSTERS, tables.add(raw), *(tables.set(cluster_set) for cluster_set in probe.cluster_sets())
                )
        else:
            raise unsupported(f"the normalizer {kind}")

    def _map(self, changes: dict[int, str], surround: str = "") -> None:
        if changes:
            self.step(_MAP, self.tables.map(character_map(changes, surround=surround)))

    def _form(self, decomposition: str, compose: bool) -> None:
        changes = probe.changed_by(json.dumps({"type": decomposition}))
        letters = {code: new for code, new in changes.items() if not 0xAC00 <= code < 0xD7A4}
        pairs = {pair: (0, code) for pair, code in probe.compositions().items()} if compose else {}
        maps = [
            self.tables.map(mapping)
            for mapping in (character_map(letters), binary.number_map(probe.combining_classes()))
        ]
        self.step(_FORM, *maps, self.tables.add(pair_table(pairs)) if compose else NONE)

    def _bert(self, spec: Spec) -> None:
        off: Spec = dict.fromkeys(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), False)
        off["type"] = "BertNormalizer"
        for part, surround in (("clean_text", ""), ("handle_chinese_chars", " ")):
            if spec[part]:
                self._map(probe.changed_by(json.dumps(off | {part: True})), surround)
        if spec["lowercase"] if spec["strip_accents"] is None else spec["strip_accents"]:
            self._form("NFD", False)
            gone = probe.changed_by(json.dumps(off | {"strip_accents": True}))
            self._map({code: new for code, new in gone.items() if not new})
        if spec["lowercase"]:
            self._map(probe.changed_by(json.dumps(off | {"lowercase": True})))


class _PreTokenizers(_Steps):
    def add(self, spec: Spec, first: bool) -> None:
        """Append a pre-tokenizer; an `InputError` for one the core does not have. `first`: nothing comes before it."""
        kind = spec["type"]
        if kind == "Sequence":
            for part in spec["pretokenizers"]:
                self.add(part, first and not self.count)
        elif kind in ("BertPreTokenizer", "WhitespaceSplit", "Whitespace"):
            self._at_spaces(kind)
        elif kind == "Split":
            pattern = spec["pattern"]
            node = literal(pattern["String"]) if "String" in pattern else parse(pattern["Regex"])
            if node.shortest() == 0:
                raise unsupported("a Split at the empty text")
            self._split(node, spec["behavior"], spec["invert"])
        elif kind == "CharDelimiterSplit":
            self._split(literal(spec["delimiter"]), "Removed")
        elif kind == "Digits":
            digits = probe.cut_out_by(json.dumps({"type": "Digits", "individual_digits": False}))
            self._split(one_of(digits), "Isolated" if spec["individual_digits"] else "Contiguous")
        elif kind == "Punctuation":
            marks = probe.cut_out_by(json.dumps({"type": "Punctuation", "behavior": "Contiguous"}))
            self._split(one_of(marks), spec["behavior"])
        elif kind == "Metaspace":
            # Which piece is the first depends on offsets in the text before normalization; the core keeps none.
            if spec["prepend_scheme"] == "first" and not first:
                raise unsupported("Metaspace with prepend_scheme first after a normalizer or another pre-tokenizer")
            mark, scheme = self.tables.add_short(spec["replacement"]), _PREPEND_SCHEMES.index(spec["prepend_scheme"])
            self.step(_METASPACE, mark, scheme, int(spec["split"]))
        elif kind == "ByteLevel":
            if spec["add_prefix_space"]:
                self.step(_PREFIX_SPACE)
            if spec["use_regex"]:
                self._split(parse(_BYTE_LEVEL), "Isolated")
            self.step(_BYTE_LETTERS)
        else:
            raise unsupported(f"the pre-tokenizer {kind}")

    def _split(self, node: Node, behavior: str, invert: bool = False) -> None:
        if behavior not in _BEHAVIORS:
            raise unsupported(f"the split behavior {behavior}")
        number = self.tables.pattern(program(node, self.tables))
        self.step(_SPLIT, number, _BEHAVIORS.index(behavior), int(invert))

    def _at_spaces(self, kind: str) -> None:
        specification = json.dumps({"type": kind})
        space = probe.removed_by(specification)
        if kind == "Whitespace":  # words and runs of marks are kept
            marks = probe.cut_out_by(specification)
            kept_classes = (one_of(probe.complement(sorted([*space, *marks]))), one_of(marks))
            node = Node(
                "choice", tuple(Node("repeat", (character_class,), least=1) for character_class in kept_classes)
            )
            self._split(node, "Removed", invert=True)
            return
        self._split(one_of(space), "Removed")
        if kind == "BertPreTokenizer":
            self._split(one_of(probe.cut_out_by(specification)), "Isolated")


def _added(tokens: list[dict[str, Any]], names: list[str], tables: Tables) -> list[int]:
    texts: dict[bytes, tuple[int, int]] = {}
    for token, name in zip(tokens, names, strict=True):
        flags = _SINGLE_WORD * token["single_word"] | _STRIP_LEFT * token["lstrip"] | _STRIP_RIGHT * token["rstrip"]
        if not name:
            raise unsupported(f"the added token {token['content']!r}, which its normalizer makes empty")
        texts.setdefault(name.encode(), (token["id"], flags))
    records = struct.pack(f"<{2 * len(texts)}I", *(number for pair in texts.values() for number in pair))
    starts = binary.character_set(binary.ranges_of(ord(name[0]) for name in names))
    return [tables.add(text_table(list(texts))), tables.add(records), tables.add(starts)]


def _added_tokens(document: dict[str, Any], tables: Tables) -> list[int]:
    tokens = sorted(document["added_tokens"], key=lambda token: not token["special"])
    normalizer = probe.component("normalizer", json.dumps(document["normalizer"])) if document["normalizer"] else None
    word = probe.word_characters() if any(token["single_word"] for token in tokens) else ()
    strips = any(token["lstrip"] or token["rstrip"] for token in tokens)
    space = probe.white_space()
    out = [tables.add(binary.character_set(word)), tables.add(binary.character_set(space if strips else []))]
    raw = [token for token in tokens if not token["normalized"]]
    out += _added(raw, [token["content"] for token in raw], tables)
    late = [token for token in tokens if token["normalized"]]
    names = [token["content"] for token in late]
    return out + _added(late, [normalizer.normalize_str(name) for name in names] if normalizer else names, tables)


def _by_id(vocabulary: dict[str, int]) -> list[bytes | None]:
    out: list[bytes | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
    for text, number in vocabulary.items():
        out[number] = text.encode()
    return out


def _word_piece(model: dict[str, Any], tables: Tables) -> list[int]:
    unknown = model["vocab"].get(model["unk_token"])
    if unknown is None:
        raise unsupported("a WordPiece model without its unknown token")
    if model["max_input_chars_per_word"] > _MAX_WORD:
        raise unsupported(f"WordPiece words of {model['max_input_chars_per_word']} characters")
    prefix = tables.add_short(model["continuing_subword_prefix"])
    texts = tables.add(text_table(_by_id(model["vocab"])))
    return [texts, _WORD_PIECE, unknown, model["max_input_chars_per_word"], prefix]


def _bpe(model: dict[str, Any], tables: Tables) -> list[int]:
    if model.get("dropout"):
        raise unsupported("BPE dropout")
    vocabulary, prefix = model["vocab"], model.get("continuing_subword_prefix") or ""
    merges: dict[tuple[int, int], tuple[int, int]] = {}
    for rank, merge in enumerate(model["merges"]):
        first, second = merge.split(" ") if isinstance(merge, str) else merge
        result = vocabulary.get(first + second[len(prefix) :])
        if result is None or first not in vocabulary or second not in vocabulary:
            raise unsupported(f"the merge of {first!r} and {second!r}, which are not in the vocabulary")
        merges[vocabulary[first], vocabulary[second]] = (rank, result)
    unknown = vocabulary.get(model["unk_token"]) if model.get("unk_token") is not None else None
    if model.get("unk_token") is not None and unknown is None:
        raise unsupported("a BPE model whose unknown token is not in its vocabulary")
    flag_by_setting = {"fuse_unk": _FUSE_UNKNOWN, "ignore_merges": _WHOLE_WORDS, "byte_fallback": _BYTES}
    flags = sum(flag for name, flag in flag_by_setting.items() if model.get(name))
    return [
        tables.add(text_table(_by_id(vocabulary))), _BPE, tables.add(pair_table(merges)),
        NONE if unknown is None else unknown, flags, tables.add_short(prefix),
        tables.add_short(model.get("end_of_word_suffix") or ""),
    ]  # fmt: skip


def _unigram(model: dict[str, Any], tables: Tables) -> list[int]:
    pieces = model["vocab"]
    places = {text: i for i, (text, _) in enumerate(pieces)}  # of two equal pieces the later one counts
    texts = [text.encode() if places[text] == i else None for i, (text, _) in enumerate(pieces)]
    scores = [float(score) for _, score in pieces]
    if not all(math.isfinite(score) for score in scores):
        raise unsupported("a unigram score that is not finite")
    unknown = model["unk_id"]
    low, high = struct.unpack("<II", struct.pack("<d", min(scores, default=0.0) - 10.0))
    return [
        tables.add(text_table(texts)), _UNIGRAM, tables.add(struct.pack(f"<{len(scores)}d", *scores)),
        NONE if unknown is None else unknown, int(bool(model.get("byte_fallback"))), low, high,
    ]  # fmt: skip


_MODELS = {"WordPiece": _word_piece, "BPE": _bpe, "Unigram": _unigram}


def special_ids(post: dict[str, Any] | None) -> tuple[list[int], list[int]]:
    """Ids that a post-processor (the library's JSON) adds before and after a single text."""
    if post is None or post["type"] == "ByteLevel":
        return [], []
    if post["type"] in ("BertProcessing", "RobertaProcessing"):
        return [post["cls"][1]], [post["sep"][1]]
    if post["type"] == "Sequence":
        before: list[int] = []
        after: list[int] = []
        for part in post["processors"]:
            first, last = special_ids(part)
            before, after = first + before, after + last
        return before, after
    if post["type"] == "TemplateProcessing":
        sides: list[list[int]] = [[]]
        for item in post["single"]:
            if "SpecialToken" in item:
                sides[-1] += post["special_tokens"][item["SpecialToken"]["id"]]["ids"]
            elif item["Sequence"]["id"] == "A":
                sides.append([])
            else:
                raise unsupported("a template with a second text")
        if len(sides) != 2:
            raise unsupported("a template that does not hold the text once")
        return sides[0], sides[1]
    raise unsupported(f"the post-processor {post['type']}")


def compile_tokenizer(source: str | Path) -> bytes:
    """The compiled form of a `tokenizer.json`."""
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(source))
    except Exception as error:
        raise InputError(f"{source}: not a tokenizer.json ({str(error).splitlines()[0]})") from error
    document = json.loads(backend.to_str())
    model = document["model"]
    if model["type"] not in _MODELS:
        raise unsupported(f"the model {model['type']}")
    tables = Tables()
    added = _added_tokens(document, tables)
    rules, splits = _Normalizers(tables), _PreTokenizers(tables)
    if document["normalizer"]:
        rules.add(document["normalizer"])
    if document["pre_tokenizer"]:
        splits.add(document["pre_tokenizer"], first=not rules.count)
    if max(rules.count, splits.count) > binary.MAX_STEPS:
        raise unsupported(f"more than {binary.MAX_STEPS} normalizers or pre-tokenizers")
    words = _MODELS[model["type"]](model, tables)
    ids = [*backend.get_vocab(with_added_tokens=True).values()]
    before, after = special_ids(document["post_processor"])
    ends = [max(ids, default=-1) + 1, len(before), *before, len(after), *after]
    steps = [rules.count, *rules.words, splits.count, *splits.words]
    return tables.write([*tables.numbered(), *added, *steps, *words, *ends])
