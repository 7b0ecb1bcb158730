"""The core's own SentencePiece reader against SentencePiece: same ids on everything."""

from __future__ import annotations

import random

import places
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from native_core import CoreError, CoreTokenizer, write_piece_bundle
from small_tokenizers import PIECES, every_character, fuzz_texts
from tiny_models import train_pieces

from msdc.export.golden import golden_texts

BITS = [" ", "a", "ba", "▁", "th", "😀😀", "<mask>", "foo", " foo", "\u3000", "\t", "ﬁ", "é", "e\u0301", "\0", "\u200d"]


class Pair:
    """One model read by both."""

    def __init__(self, library, folder, name: str) -> None:
        model = train_pieces(folder / name, **PIECES[name]).read_bytes()
        self.oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
        self.core = CoreTokenizer(library, write_piece_bundle(folder / f"{name}-bundle", model))
        self.model = model

    def agree(self, text: str | bytes) -> None:
        assert self.core.encode(text) == [2, *self.oracle.encode(text), 3], repr(text)


@pytest.fixture(scope="module")
def pairs(core_library, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pieces")
    return {name: Pair(core_library, folder, name) for name in PIECES}


@pytest.mark.parametrize("name", PIECES)
def test_golden_texts_and_texts_thrown_together(pairs, name):
    for text in golden_texts():
        pairs[name].agree(text)
    chosen = random.Random(7)
    letters = [c for text in golden_texts() for c in text]
    for _ in range(400):
        pairs[name].agree("".join(chosen.choice(letters) for _ in range(chosen.randrange(40))))
        pairs[name].agree("".join(chosen.choice(BITS) for _ in range(chosen.randrange(30))))


@pytest.mark.parametrize("name", PIECES)
def test_any_unicode(pairs, name):
    pair = pairs[name]

    @settings(max_examples=300, deadline=None)
    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
    def check(text):
        pair.agree(text)

    check()


@pytest.mark.parametrize("name", ["unigram", "unigram-bytes-symbols", "bpe"])
def test_bytes_that_are_not_utf8(pairs, name):
    pair = pairs[name]
    for raw in (b"\xff", b"a\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xed\xa0\x80 x", b"\xc0\xaf", b"ok \x80\x81 ok",
                b"\xf5\x80\x80\x80"):  # fmt: skip
        pair.agree(raw)

    @settings(max_examples=200, deadline=None)
    @given(st.binary(max_size=40))
    def check(raw):
        pair.agree(raw)

    check()


def test_pieces_that_may_not_be_used(pairs, core_library, tmp_path):
    """Unused pieces vanish from a unigram path and fall apart again in BPE."""
    from sentencepiece import sentencepiece_model_pb2 as pb

    for name in ("unigram", "bpe"):
        proto = pb.ModelProto()
        proto.ParseFromString(pairs[name].model)
        for piece in proto.pieces[40:600:3]:
            if piece.type == pb.ModelProto.SentencePiece.NORMAL and len(piece.piece) > 2:
                piece.type = pb.ModelProto.SentencePiece.UNUSED
        model = proto.SerializeToString()
        oracle = sentencepiece.SentencePieceProcessor(model_proto=model)
        core = CoreTokenizer(core_library, write_piece_bundle(tmp_path / name, model))
        for text in golden_texts():
            assert core.encode(text) == [2, *oracle.encode(text), 3], text


def test_longer_texts_keep_their_last_special_id(pairs, core_library, tmp_path):
    pair = pairs["unigram"]
    core = CoreTokenizer(core_library, write_piece_bundle(tmp_path / "short", pair.model, max_length=6))
    whole = pair.oracle.encode("one two three four five six seven")
    assert core.encode("one two three four five six seven") == [2, *whole[:4], 3]
    assert core.encode("") == [2, 3]


def test_real_sentences_in_36_languages(pairs):
    for text in places.flores(15):
        pairs["unigram"].agree(text)
        pairs["bpe"].agree(text)


def test_rounding_decides_between_equal_paths(pairs):
    """Long texts of short pieces have many segmentations of one score, which differ in the last bit of a float."""
    pair, chosen = pairs["unigram"], random.Random(1)
    names = (pair.oracle.id_to_piece(i) for i in range(pair.oracle.get_piece_size()))
    letters = [name for name in names if name.isalpha() and name.isascii()][:120]
    for number in range(400):
        words = ("".join(chosen.choices(letters, k=chosen.randrange(2, 9))) for _ in range(3 if number % 2 else 60))
        pair.agree(" ".join(words))


@pytest.mark.slow
@pytest.mark.parametrize("name", PIECES)
def test_many_texts(pairs, name):
    for text in [*fuzz_texts(5000, seed=5), *every_character(), *places.flores()]:
        pairs[name].agree(text)


def test_word_models_are_refused(core_library, tmp_path):
    model = train_pieces(tmp_path / "word", model_type="word").read_bytes()
    with pytest.raises(CoreError, match="unigram and BPE") as caught:
        CoreTokenizer(core_library, write_piece_bundle(tmp_path / "b", model))
    assert caught.value.status == 3


def test_tokenizer_json_without_its_compiled_form_is_refused(core_library, tmp_path, pairs):
    part = {"kind": "tokenizer-json", "file": "tokenizer.model", "bos_id": 2, "eos_id": 3, "pad_id": 0, "unk_id": 1}
    folder = write_piece_bundle(tmp_path / "b", pairs["unigram"].model, tokenizer=part)
    with pytest.raises(CoreError, match=r"its tokenizer\.json has no compiled form that this core reads"):
        CoreTokenizer(core_library, folder)
