"""`compress student`: what is kept is the source's own, a full-width bottleneck loses nothing, settings stay."""

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from folder_kinds import PROMPTS, write_folder
from stock_models import TEXTS, write_stock

import msdc
from msdc.compress import cut_student, quantize, trim
from msdc.compress.cli import command
from msdc.compress.cut import shrink
from msdc.compress.student.io import load_student
from msdc.compress.texts import corpus_frequency, own_frequency, quickstart_texts
from msdc.compress.vocabulary.train import train_vocabulary
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.scores import cosine_rows
from msdc.text.tokenizer import FastTokenizer, PieceTokenizer, write_fast_copy


def run(model, out, **options):
    report = cut_student(str(model), output=out, **options)
    return report, msdc.load_encoder(out)


def test_layers_become_the_unit(tiny_teacher, tmp_path):
    report, encoder = run(tiny_teacher, tmp_path / "s", layers=(2, 0), repeats=2)
    large, small = load_student(tiny_teacher), encoder.module
    assert report.layers == [2, 0]
    assert (small.config.unit, small.config.repeats) == (2, 2)
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


@pytest.mark.parametrize("bottleneck_place", ["word", "embedding"])
@pytest.mark.parametrize("family", ["bert", "xlm-roberta", "distilbert"])
def test_a_bottleneck_of_full_width_changes_nothing(tmp_path, bottleneck_place, family):
    folder = write_stock(tmp_path / "stock", family)
    report, encoder = run(folder, tmp_path / "s", bottleneck=32, place=bottleneck_place)
    assert report.kept_variance == pytest.approx(1.0)
    assert report.cosine > 0.99999
    assert np.abs(encoder.encode(TEXTS) - msdc.load_encoder(folder).encode(TEXTS)).max() < 1e-4


@pytest.mark.parametrize("bottleneck_place", ["word", "embedding"])
def test_a_narrow_bottleneck_is_better_than_a_random_one(tiny_teacher, bottleneck_place):
    encoder = msdc.load_encoder(tiny_teacher)
    large = load_student(tiny_teacher)
    texts = quickstart_texts(["en"], limit=60)
    frequency = corpus_frequency(encoder.tokenizer, texts, 120, 24)
    oracle = encoder.encode(texts)

    def cosine(small):
        vectors = Encoder(small, encoder.tokenizer, 24, "x").encode(texts)
        return float((vectors * oracle).sum(1).mean())

    good = shrink(large, bottleneck=16, place=bottleneck_place, frequency_V=frequency)
    random = shrink(large, bottleneck=16, place=bottleneck_place, frequency_V=frequency)
    torch.manual_seed(0)
    random.embedding.apply(random._initialise)
    assert cosine(good) > 0.8
    assert cosine(good) > cosine(random) + 0.02


def test_an_albert_keeps_its_bottleneck_and_cannot_get_another(tmp_path):
    folder = write_stock(tmp_path / "albert", "albert")
    _, encoder = run(folder, tmp_path / "s", repeats=1)
    config = load_student(tmp_path / "s").config
    assert (config.bottleneck, config.place, config.unit, config.repeats) == (16, "embedding", 2, 1)
    assert encoder.encode(TEXTS).shape == (len(TEXTS), 32)
    with pytest.raises(InputError, match="has its bottleneck before positions and norm"):
        run(folder, tmp_path / "t", bottleneck=8)


def test_a_student_is_cut_again(tiny_teacher, tmp_path):
    run(tiny_teacher, tmp_path / "a", bottleneck=16)
    report, _ = run(tmp_path / "a", tmp_path / "b", bottleneck=8, unit=1, max_length=12)
    config = report.sizes.config
    assert (config.bottleneck, config.unit, config.repeats, config.positions) == (8, 1, 3, 12)
    report, _ = run(tmp_path / "a", tmp_path / "c", unit=1)
    assert report.sizes.config.bottleneck == 16


def test_frequencies_of_a_unigram_vocabulary_are_its_own(tmp_path):
    train_vocabulary(quickstart_texts(), tmp_path / "tokenizer.model", 2000, threads=1)
    write_fast_copy(tmp_path / "tokenizer.model", tmp_path / "tokenizer.json")
    pieces, fast = PieceTokenizer(tmp_path / "tokenizer.model"), FastTokenizer(tmp_path / "tokenizer.json")
    frequency = own_frequency(pieces, pieces.size)
    assert frequency is not None
    assert torch.allclose(frequency, own_frequency(fast, pieces.size), atol=1e-6)
    counted = corpus_frequency(pieces, quickstart_texts(), pieces.size, 128)
    order = torch.stack([frequency[4:], counted[4:]]).argsort(1).argsort(1).float()
    assert float(torch.corrcoef(order)[0, 1]) > 0.5
    assert float(frequency[pieces.eos_id]) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("options", "message"),
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
def test_what_does_not_fit_is_refused(tiny_teacher, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        cut_student(str(tiny_teacher), output=tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_named_layers_are_applied_as_in_the_model(tiny_teacher, tmp_path):
    """Not as a recurring unit: the student is the pruned model."""
    report, pruned = run(tiny_teacher, tmp_path / "s", layers=(0, 2))
    assert report.sizes.config.repeats == 1
    teacher = msdc.load_encoder(tiny_teacher)
    del teacher.module.body.encoder.layer[1]
    np.testing.assert_allclose(pruned.encode(TEXTS), teacher.encode(TEXTS), atol=1e-4)
    recurring = cut_student(str(tiny_teacher), output=tmp_path / "unit", unit=1)
    assert recurring.sizes.config.repeats == 3
    again = cut_student(tmp_path / "unit", output=tmp_path / "again", layers=(0,))
    assert again.sizes.config.repeats == 3


def test_command(tiny_teacher, tmp_path):
    arguments = ["student", str(tiny_teacher), "-o", str(tmp_path / "s"), "--layers", "0,2", "--repeats", "1"]
    result = CliRunner().invoke(command, [*arguments, "--bottleneck", "8", "--json"], catch_exceptions=False)
    assert json.loads(result.stdout)["sizes"]["config"]["bottleneck"] == 8
    assert isinstance(CliRunner().invoke(command, arguments).exception, InputError)
    assert CliRunner().invoke(command, [*arguments[:4], "--layers", "a,b"]).exit_code == 2


SAMPLE = [*TEXTS, "The BIG Dog"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BERT with a default prompt, vectors cut to 20 of 32 numbers."""
    prompted_folder = write_folder(tmp_path_factory.mktemp("prompted"), "default prompt")
    path = prompted_folder / "config_sentence_transformers.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "truncate_dim": 20}))
    return prompted_folder


@pytest.mark.parametrize(
    ("work", "closest"),
    [
        ([(cut_student, {"bottleneck": 32})], 0.9999),
        ([(trim, {"size": 60, "least_cosine": 0})], 0.9),
        ([(quantize, {}), (trim, {"size": 60, "least_cosine": 0})], 0.9),
    ],
)
def test_compressed_folders_encode_with_the_prompts(folder, tmp_path, work, closest):
    before, out = msdc.load_encoder(folder), folder
    for number, (verb, options) in enumerate(work):
        source, out = out, tmp_path / str(number)
        verb(str(source), output=out, **options)
    after = msdc.load_encoder(out)
    assert after.defaults == before.defaults
    assert {**PROMPTS, **before.defaults.prompts} == before.defaults.prompts
    # Words that trimming dropped are tokenized differently; what is left of the vocabulary is not.
    rows = before.tokenize(["the dog: " + text for text in SAMPLE]), after.tokenize(["the dog: " + t for t in SAMPLE])
    same = [text for text, old, new in zip(SAMPLE, *rows, strict=True) if len(old) == len(new)]
    assert len(same) > 2
    for settings in ({}, {"prompt_name": "passage"}, {"prompt": ""}, {"truncate_dim": 9}):
        old_ND, new_ND = before.encode(same, **settings), after.encode(same, **settings)
        assert old_ND.shape == new_ND.shape
        assert cosine_rows(old_ND, new_ND).mean() > closest, settings
    assert np.abs(after.encode(SAMPLE) - after.encode(SAMPLE, prompt="")).max() > 1e-3


def test_trimming_keeps_the_lower_casing_that_only_the_settings_state(tmp_path):
    folder = write_folder(tmp_path / "cased", "do_lower_case")
    trim(str(folder), output=tmp_path / "out", size=60, least_cosine=0)
    after = msdc.load_encoder(tmp_path / "out")
    assert np.abs(after.encode(["The BIG Dog"]) - after.encode(["the big dog"])).max() == 0.0
    assert after.tokenize(["The BIG Dog"]) == after.tokenize(["the big dog"])
