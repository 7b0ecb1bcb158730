"""Compile a `tokenizer.json` for the native core: read by the `tokenizers` library, written as flat tables.

The library's own JSON (`to_str`) is read, so older layouts arrive in the current one. Unknown components are refused by
name: a core that guesses would give other ids.
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.export.tokenizer.binary import (
    MAX_STEPS,
    NONE,
    Shared,
    Tables,
    character_set,
    pair_table,
    ranges_of,
    text_table,
)
from msdc.export.tokenizer.normalizers import Rules
from msdc.export.tokenizer.probe import load_normalizer, white_space, word_characters
from msdc.export.tokenizer.splits import Splits

COMPILED_FILE = "tokenizer.bin"
_SINGLE_WORD, _STRIP_LEFT, _STRIP_RIGHT = 1, 2, 4
_WORD_PIECE, _BPE, _UNIGRAM = 1, 2, 3
_FUSE_UNKNOWN, _WHOLE_WORDS, _BYTES = 1, 2, 4
_MAX_WORD = 10000


def unsupported(what: str) -> InputError:
    """The refusal of a component."""
    return InputError(f"tokenizer.json: the native core does not support {what}")


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise unsupported(f"the token {text!r}, which is no Unicode text") from error


def _added(tokens: list[dict[str, Any]], names: list[str], tables: Tables) -> list[int]:
    texts: dict[bytes, tuple[int, int]] = {}
    for token, name in zip(tokens, names, strict=True):
        flags = _SINGLE_WORD * token["single_word"] | _STRIP_LEFT * token["lstrip"] | _STRIP_RIGHT * token["rstrip"]
        if not name:
            raise unsupported(f"the added token {token['content']!r}, which its normalizer makes empty")
        texts.setdefault(_bytes(name), (token["id"], flags))
    records = struct.pack(f"<{2 * len(texts)}I", *(number for pair in texts.values() for number in pair))
    starts = character_set(ranges_of(ord(name[0]) for name in names))
    return [tables.add(text_table(list(texts))), tables.add(records), tables.add(starts)]


def _added_tokens(whole: dict[str, Any], tables: Tables) -> list[int]:
    tokens = sorted(whole["added_tokens"], key=lambda token: not token["special"])
    normalizer = load_normalizer(json.dumps(whole["normalizer"])) if whole["normalizer"] else None
    word = word_characters() if any(token["single_word"] for token in tokens) else ()
    strips = any(token["lstrip"] or token["rstrip"] for token in tokens)
    space = white_space()
    out = [tables.add(character_set(word)), tables.add(character_set(space if strips else []))]
    raw = [token for token in tokens if not token["normalized"]]
    out += _added(raw, [token["content"] for token in raw], tables)
    late = [token for token in tokens if token["normalized"]]
    names = [token["content"] for token in late]
    return out + _added(late, [normalizer.normalize_str(name) for name in names] if normalizer else names, tables)


def _by_id(vocabulary: dict[str, int]) -> list[bytes | None]:
    out: list[bytes | None] = [None] * (max(vocabulary.values(), default=-1) + 1)
    for text, number in vocabulary.items():
        out[number] = _bytes(text)
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
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        result = vocabulary.get(left + right[len(prefix) :])
        if result is None or left not in vocabulary or right not in vocabulary:
            raise unsupported(f"the merge of {left!r} and {right!r}, which are not in the vocabulary")
        merges[vocabulary[left], vocabulary[right]] = (rank, result)
    unknown = vocabulary.get(model["unk_token"]) if model.get("unk_token") is not None else None
    if model.get("unk_token") is not None and unknown is None:
        raise unsupported("a BPE model whose unknown token is not in its vocabulary")
    flags = (
        _FUSE_UNKNOWN * bool(model.get("fuse_unk"))
        | _WHOLE_WORDS * bool(model.get("ignore_merges"))
        | _BYTES * bool(model.get("byte_fallback"))
    )
    return [
        tables.add(text_table(_by_id(vocabulary))), _BPE, tables.add(pair_table(merges)),
        NONE if unknown is None else unknown, flags, tables.add_short(prefix),
        tables.add_short(model.get("end_of_word_suffix") or ""),
    ]  # fmt: skip


def _unigram(model: dict[str, Any], tables: Tables) -> list[int]:
    pieces = model["vocab"]
    places = {text: i for i, (text, _) in enumerate(pieces)}  # of two equal pieces the later one counts
    texts = [_bytes(text) if places[text] == i else None for i, (text, _) in enumerate(pieces)]
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
    """Ids that a post-processor (the library's JSON) adds before and after a single text.

    Raises:
        InputError: a post-processor that the native core does not have.
    """
    if post is None or post["type"] == "ByteLevel":
        return [], []
    if post["type"] in ("BertProcessing", "RobertaProcessing"):
        return [post["cls"][1]], [post["sep"][1]]
    if post["type"] == "Sequence":
        before: list[int] = []
        after: list[int] = []
        for one in post["processors"]:
            first, last = special_ids(one)
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
    """The compiled form of a `tokenizer.json`.

    Raises:
        InputError: not a tokenizer.json, or one with a component that the native core does not have; names it.
    """
    from tokenizers import Tokenizer

    try:
        backend = Tokenizer.from_file(str(source))
    except Exception as error:
        raise InputError(f"{source}: not a tokenizer.json ({str(error).splitlines()[0]})") from error
    whole = json.loads(backend.to_str())
    tables = Tables()
    shared = Shared(tables)
    model = whole["model"]
    if model["type"] not in _MODELS:
        raise unsupported(f"the model {model['type']}")
    added = _added_tokens(whole, tables)
    rules = Rules(shared)
    if whole["normalizer"]:
        rules.add(whole["normalizer"])
    splits = Splits(shared, plain=not rules.count)
    if whole["pre_tokenizer"]:
        splits.add(whole["pre_tokenizer"])
    if max(rules.count, splits.count) > MAX_STEPS:
        raise unsupported(f"more than {MAX_STEPS} normalizers or pre-tokenizers")
    model_words = _MODELS[model["type"]](model, tables)
    ids = [*backend.get_vocab(with_added_tokens=True).values()]
    before, after = special_ids(whole["post_processor"])
    size = max(ids, default=-1) + 1
    steps = [rules.count, *rules.words, splits.count, *splits.words]
    ends = [size, len(before), *before, len(after), *after]
    return tables.write([*shared.description(), *added, *steps, *model_words, *ends])
