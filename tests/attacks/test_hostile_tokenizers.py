"""Tokenizer files that would end or stall the process inside the library that reads them: each is one line of error."""

import base64
import json
from pathlib import Path

import pytest
import tiny_models as tiny
from refusals import one_line
from small_tokenizers import KINDS, LLAMA3, QWEN
from stock_models import write_stock

from msdc.loading import load_encoder
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer, pb
from msdc.text.tokenizer_bounds import check_tokenizer

WORDS = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
         "vocab": {"[UNK]": 0, "a": 1, "##b": 2}}  # fmt: skip
PAIRS = {"type": "BPE", "vocab": {"é": 0, "a": 1, "aé": 2}, "merges": ["a é"]}
NFKC, MORE = {"type": "NFKC"}, {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}
EVERYWHERE = {"type": "Replace", "pattern": {"Regex": ""}, "content": "a" * 1000}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
TEXT = {"Sequence": {"id": "A", "type_id": 0}}
ADDED = {"SpecialToken": {"id": "x", "type_id": 0}}
TABLE = (4).to_bytes(4, "little") + bytes(4)


def written(path: Path, model: dict | None = None, **parts) -> Path:
    value = {"version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": None, **parts}
    path.write_text(json.dumps({**value, "model": model or WORDS}))
    return path


def sequence(*steps: dict) -> dict:
    return {"type": "Sequence", "normalizers": list(steps)}


def splits(*patterns: str) -> dict:
    steps = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in patterns
    ]
    return {"type": "Sequence", "pretokenizers": steps}


def charsmap(table: bytes) -> dict:
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}


def token(content: str, number: int, normalized: bool = False) -> dict:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "special"), False)
    return {"id": number, "content": content, "normalized": normalized, **flags}


def template(*items: dict, ids: int = 1) -> dict:
    special = {"x": {"id": "x", "ids": [1] * ids, "tokens": ["x"] * ids}}
    return {"type": "TemplateProcessing", "single": list(items), "pair": [], "special_tokens": special}


@pytest.mark.parametrize(
    "word, parts",
    [
        ("growth", {"normalizer": sequence(*[MORE] * 3)}),
        ("growth", {"normalizer": sequence(EVERYWHERE, sequence(sequence(EVERYWHERE), EVERYWHERE))}),
        ("growth", {"normalizer": sequence({"type": "Prepend", "prepend": "a" * 999}, MORE)}),
        ("growth", {"normalizer": sequence(charsmap(TABLE + b"x" * 900 + b"\0"), MORE)}),
        ("growth", {"normalizer": {**MORE, "pattern": {"String": "ab"}, "content": "a" * 9000}}),
        ("growth", {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES] * 30}}),
        ("bytes of normalized tokens", {"normalizer": MORE, "added_tokens": [token("a" * 20_000, 3, True)]}),
        ("bytes of added tokens", {"added_tokens": [token(f"{i}" * 9000, 3 + i) for i in range(100, 150)]}),
        ("map is cut off", {"normalizer": charsmap(b"\xff" * 100)}),
        ("steps", {"normalizer": sequence(*[NFKC] * 1001)}),
        ("characters of regular", {"pre_tokenizer": splits("|".join(f"a{i}" for i in range(5000)))}),
        ("repeats in a row", {"pre_tokenizer": splits("a", "[^9]*(?:b|a{2,}(?=a+)9)")}),
        ("special ids", {"post_processor": template(TEXT, ADDED, ids=1001)}),
        ("the text once", {"post_processor": template(TEXT, TEXT)}),
        ("without a type", {"normalizer": {"pattern": {"String": "a"}, "content": "b"}}),
        ("continuing_subword_prefix", {"model": {**WORDS, "continuing_subword_prefix": "#" * 101}}),
        ("end_of_word_suffix", {"model": {**PAIRS, "end_of_word_suffix": "#" * 101}}),
        ("max_input_chars_per_word", {"model": {**WORDS, "max_input_chars_per_word": 2**40}}),
        ("lacks the prefix", {"model": {**PAIRS, "continuing_subword_prefix": "x"}}),
        ("pieces have more", {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["x", 0.0], ["é" * 2**23, -1]]}}),
    ],
)  # fmt: skip
def test_what_a_tokenizer_may_ask_for(tmp_path, word, parts):
    assert word in one_line(lambda: FastTokenizer(written(tmp_path / "tokenizer.json", **parts)))


@pytest.mark.parametrize("how", ["escaped", "after the model", "twice", "in a string"])
def test_nothing_hides_from_the_check(tmp_path, how):
    """The model is not read with the rest, unless something may be in or behind it."""
    file = written(tmp_path / "tokenizer.json", normalizer=sequence(*[MORE] * 3))
    text = file.read_text()
    if how == "escaped":
        text = text.replace('"normalizer"', '"norm\\u0061lizer"')
    elif how == "after the model":
        value = json.loads(text)
        text = json.dumps({**{k: v for k, v in value.items() if k != "normalizer"}, "normalizer": value["normalizer"]})
    elif how == "twice":
        text = text.replace('"version"', '"normalizer": null, "version"').replace("{", '{"normalizer": null, ', 1)
    else:
        text = text.replace('"version": "1.0"', '"version": "1.0", "\\"model\\": {\\"type\\": \\"BPE\\"": 1')
    file.write_text(text)
    assert "not a tokenizer.json" in one_line(lambda: FastTokenizer(file))


def test_rows_and_texts_stay_bounded(tmp_path):
    """What depends on the text is refused when it comes."""
    parts = {"normalizer": MORE, "post_processor": template(TEXT, ADDED, ids=9)}
    tokenizer = FastTokenizer(written(tmp_path / "tokenizer.json", **parts))
    assert len(tokenizer.encode(["a b"], 10)[0]) == 10
    assert "special ids: 9" in one_line(lambda: tokenizer.encode(["a"], 8))
    assert "times its growth" in one_line(lambda: tokenizer.encode(["b", "a" * 300_000], 16))


def test_a_piece_model_that_multiplies_text(tmp_path):
    proto = pb.ModelProto()
    proto.ParseFromString(tiny.tokenizer().path.read_bytes())
    table = proto.normalizer_spec.precompiled_charsmap
    trie = table[: 4 + int.from_bytes(table[:4], "little")]
    proto.normalizer_spec.precompiled_charsmap = trie + b"x" * 1_000_000 + b"\0"
    (tmp_path / "tokenizer.model").write_bytes(proto.SerializeToString())
    assert "growth" in one_line(lambda: PieceTokenizer(tmp_path / "tokenizer.model"))


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.4.0.json"])
def test_stock_folders_are_checked_before_their_library_loads_them(tmp_path, name):
    folder = write_stock(tmp_path / "bert", "bert")
    tokenizer_json = json.loads((folder / "tokenizer.json").read_text())
    (folder / name).write_text(json.dumps({**tokenizer_json, "normalizer": sequence(*[MORE] * 3)}))
    assert "growth" in one_line(lambda: load_encoder(folder))


ALBERT = sequence(
    *[{"type": "Replace", "pattern": {"String": mark}, "content": '"'} for mark in ("``", "''")],
    {"type": "NFKD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, charsmap(TABLE + b"x" * 33 + b"\0"),
    {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "},
)  # fmt: skip
CASED = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{M}]+(?i:'s|'t)?|\p{N}{1,3}(?=(?:\p{N}{3})*)"
PUBLISHED = {"albert": {"normalizer": ALBERT}, **{p: {"pre_tokenizer": splits(p)} for p in (QWEN, LLAMA3, CASED)}}


@pytest.mark.parametrize("kind", [*KINDS, *PUBLISHED])
def test_what_published_tokenizers_ask_for_is_taken(tmp_path, kind):
    file = tmp_path / "tokenizer.json"
    if kind in KINDS:
        KINDS[kind](tmp_path).save(str(file))
    else:
        written(file, **PUBLISHED[kind])
    check_tokenizer(file.read_bytes())
