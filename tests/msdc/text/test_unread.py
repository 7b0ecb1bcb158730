"""Texts that a tokenizer has no pieces for, by kind of tokenizer."""

import pytest
from stock_models import write_wordpiece
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import msdc
from msdc.text.tokenizer import FastTokenizer, Reader

HEBREW = "אני גר בירושלים"


def test_sentencepiece_without_bytes():
    mini = msdc.load_encoder("msdc-mini")
    reader = Reader(mini.tokenizer, mini.max_length)
    texts = ["A car.", "Das Auto", "سيارة", "Żółta łódka", "?!", "a", HEBREW, "Ёжик нашёл яблоко.", "08:15 " + HEBREW]
    assert reader.unread(texts).tolist() == [False] * 6 + [True] * 3


def test_wordpiece(tmp_path):
    write_wordpiece(tmp_path)
    reader = Reader(FastTokenizer(tmp_path / "tokenizer.json"), 32)
    assert reader.unread(["a cat", f"a cat {HEBREW[:3]}", HEBREW, ""]).tolist() == [False, False, True, False]


@pytest.mark.parametrize("bytes_", ["level", "fallback"])
def test_pieces_for_bytes_read_everything(tmp_path, bytes_):
    if bytes_ == "level":
        backend = Tokenizer(models.BPE())
        backend.pre_tokenizer, backend.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        backend.train_from_iterator(["a car"], trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet))
    else:
        pieces = [("<unk>", 0.0), ("▁", -1.0), ("a", -2.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
        backend = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
        backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.save(str(tmp_path / "tokenizer.json"))
    reader = Reader(FastTokenizer(tmp_path / "tokenizer.json"), 64)
    assert not reader.unread([HEBREW, "a", "👍", "\U00012000\U00012001", "ⵣ"]).any()
