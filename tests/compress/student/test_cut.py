"""`compress student`: what is kept is the source's own, a full-width bottleneck loses nothing, stock readers agree."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from stock_models import TEXTS, write_stock

import msdc
from msdc.compress.cli import command
from msdc.compress.student.cut import cut_student, shrink
from msdc.compress.student.io import load_student
from msdc.compress.texts import corpus_frequency, own_frequency, quickstart_texts
from msdc.compress.vocabulary.train import train_vocabulary
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer, write_fast_copy


def run(model, out, **options):
    report = cut_student(str(model), output=out, **options)
    return report, msdc.load_encoder(out)


def test_layers_become_the_unit(bert_folder, tmp_path):
    report, encoder = run(bert_folder, tmp_path / "s", layers=(2, 0), repeats=2)
    large, small = load_student(bert_folder), encoder.module
    assert report.layers == [2, 0] and (small.config.unit, small.config.repeats) == (2, 2)
    for index, source in enumerate([2, 0]):
        theirs = large.layers[source].state_dict()
        for name, value in small.layers[index].state_dict().items():
            assert torch.equal(value, theirs[name])
    ids = torch.tensor([[2, 7, 8, 9, 3]])
    with torch.no_grad():
        hidden = large.embed(ids)
        for source in (2, 0, 2, 0):
            hidden = large.layers[source](hidden, None)
        oracle = large.head(hidden, torch.ones_like(ids))
        assert torch.allclose(small(ids, torch.ones_like(ids)), oracle, atol=1e-6)


@pytest.mark.parametrize("place", ["word", "embedding"])
@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "distilbert"])
def test_a_bottleneck_of_full_width_changes_nothing(tmp_path, place, family):
    folder = write_stock(tmp_path / "stock", family)
    report, encoder = run(folder, tmp_path / "s", bottleneck=32, place=place)
    assert report.kept_variance == pytest.approx(1.0) and report.cosine > 0.99999
    assert np.abs(encoder.encode(TEXTS) - msdc.load_encoder(folder).encode(TEXTS)).max() < 1e-4


@pytest.mark.parametrize("place", ["word", "embedding"])
def test_a_narrow_bottleneck_is_better_than_a_random_one(bert_folder, place):
    encoder = msdc.load_encoder(bert_folder)
    large = load_student(bert_folder)
    texts = quickstart_texts(["en"], limit=60)
    frequency = corpus_frequency(encoder.tokenizer, texts, 120, 24)
    oracle = encoder.encode(texts)

    def cosine(small):
        found = Encoder(small, encoder.tokenizer, 24, "x").encode(texts)
        return float((found * oracle).sum(1).mean())

    good = shrink(large, bottleneck=16, place=place, frequency_V=frequency)
    random = shrink(large, bottleneck=16, place=place, frequency_V=frequency)
    torch.manual_seed(0)
    random.embedding.apply(random._initialise)
    assert cosine(good) > 0.8 and cosine(good) > cosine(random) + 0.02


def test_an_albert_keeps_its_bottleneck_and_cannot_get_another(tmp_path):
    folder = write_stock(tmp_path / "albert", "albert")
    _, encoder = run(folder, tmp_path / "s", repeats=1)
    config = load_student(tmp_path / "s").config
    assert (config.bottleneck, config.place, config.unit, config.repeats) == (16, "embedding", 2, 1)
    assert encoder.encode(TEXTS).shape == (len(TEXTS), 32)
    with pytest.raises(InputError, match="has its bottleneck before positions and norm"):
        run(folder, tmp_path / "t", bottleneck=8)


def test_a_student_is_cut_again(bert_folder, tmp_path):
    run(bert_folder, tmp_path / "a", bottleneck=16)
    report, _ = run(tmp_path / "a", tmp_path / "b", bottleneck=8, unit=1, max_length=12)
    config = report.sizes.config
    assert (config.bottleneck, config.unit, config.repeats, config.positions) == (8, 1, 3, 12)
    report, _ = run(tmp_path / "a", tmp_path / "c", unit=1)
    assert report.sizes.config.bottleneck == 16


def test_frequencies_of_a_unigram_vocabulary_are_its_own(tmp_path):
    train_vocabulary(quickstart_texts(), tmp_path / "tokenizer.model", 2000, threads=1)
    write_fast_copy(tmp_path / "tokenizer.model", tmp_path / "tokenizer.json")
    pieces, fast = PieceTokenizer(tmp_path / "tokenizer.model"), FastTokenizer(tmp_path / "tokenizer.json")
    own = own_frequency(pieces, pieces.size)
    assert own is not None and torch.allclose(own, own_frequency(fast, pieces.size), atol=1e-6)
    counted = corpus_frequency(pieces, quickstart_texts(), pieces.size, 128)
    order = torch.stack([own[4:], counted[4:]]).argsort(1).argsort(1).float()
    assert float(torch.corrcoef(order)[0, 1]) > 0.5
    assert float(own[pieces.eos_id]) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layers": (3,)}, "stores layers 0 to 2"),
        ({"layers": (0, 1), "unit": 1}, "names 2 layers"),
        ({"unit": 2}, "does not divide 3 layers"),
        ({"unit": 4}, "4 layers out of a model that stores 3"),
        ({"bottleneck": 64}, "wider than the hidden size"),
        ({"repeats": 0}, "at least 1"),
        ({"max_length": 99}, "exceeds the 24 positions"),
    ],
)
def test_what_does_not_fit_is_refused(bert_folder, tmp_path, options, said):
    with pytest.raises(InputError, match=said):
        cut_student(str(bert_folder), output=tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_command(bert_folder, tmp_path):
    arguments = ["student", str(bert_folder), "-o", str(tmp_path / "s"), "--layers", "0,2", "--repeats", "1"]
    result = CliRunner().invoke(command, [*arguments, "--bottleneck", "8", "--json"], catch_exceptions=False)
    assert json.loads(result.stdout)["sizes"]["config"]["bottleneck"] == 8
    assert isinstance(CliRunner().invoke(command, arguments).exception, InputError)
    assert CliRunner().invoke(command, [*arguments[:4], "--layers", "a,b"]).exit_code == 2
