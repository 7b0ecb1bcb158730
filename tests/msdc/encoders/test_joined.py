"""Joined models: the cosine is the mean of the models' cosines, and an index holds them as it holds one model."""

import copy

import numpy as np
import pytest
from page_code import call_msdc

import msdc
from msdc.encoders.joined import JoinedEncoder
from msdc.errors import InputError, MsdcError
from msdc.loading import open_model

TEXTS = ["The car is on level 2.", "La reunión empieza a las nueve.", "Wo steht das Auto?", ""]


@pytest.fixture(scope="module")
def models() -> list:
    return [msdc.load_encoder(name) for name in ("msdc-nano", "msdc-mini")]


def test_the_cosine_is_the_mean_of_the_models(models):
    joined = open_model("msdc-nano+msdc-mini")
    assert joined.name == "msdc-nano+msdc-mini"
    vectors_ND = joined.encode(TEXTS)
    assert vectors_ND.shape == (len(TEXTS), joined.width) == (len(TEXTS), sum(model.width for model in models))
    cosines_KNN = [model.similarity(vectors, vectors) for model in models for vectors in [model.encode(TEXTS)]]
    assert vectors_ND @ vectors_ND.T == pytest.approx(np.mean(cosines_KNN, axis=0), abs=1e-5)
    assert (joined.encode(TEXTS[0]) == joined.encode(TEXTS[:1])[0]).all()


def test_it_is_known_by_its_models_and_their_settings(models):
    nano, mini = models
    changed = copy.copy(mini)
    changed.truncate_dim = 64
    joined = [JoinedEncoder(pair) for pair in ([nano, mini], [mini, nano], [nano, changed])]
    assert len({encoder.fingerprint() for encoder in joined}) == 3
    assert joined[0].fingerprint() == open_model("msdc-nano+msdc-mini").fingerprint() != nano.fingerprint()
    floats = [msdc.load_encoder(name, precision="float") for name in ("msdc-nano", "msdc-mini")]
    assert JoinedEncoder(floats).source == joined[0].source
    assert joined[2].encode(TEXTS).shape[1] == nano.width + 64


def test_every_model_reads_a_passage_to_its_end(models):
    long = "Straßenbahnhaltestellenüberdachung und Kraftfahrzeughaftpflichtversicherung. " * 60
    joined = JoinedEncoder(models)
    count, most = joined.token_counter()
    passages_P = joined.encode_long(long, pool=False)
    assert len(passages_P) > 1
    for model in models:
        own_count, own_most = model.token_counter()
        assert most <= own_most
        assert count([long])[0] >= own_count([long])[0]
    assert joined.count_truncated([long, "short"]) == 1
    assert joined.count_truncated("short") == 0


def test_each_model_has_its_own_prompts(models):
    nano, mini = map(copy.copy, models)
    mini.prompts, mini.default_prompt_name = {"query": "query: ", "document": "passage: "}, "query"
    joined = JoinedEncoder([nano, mini])
    for vectors_ND, prompt in (
        (joined.encode(TEXTS), "query: "),
        (joined.encode_query(TEXTS), "query: "),
        (joined.encode_document(TEXTS), "passage: "),
        (joined.encode(TEXTS, prompt=""), ""),
    ):
        parts = [models[0].encode(TEXTS), models[1].encode(TEXTS, prompt=prompt)]
        expected = np.mean([nano.similarity(part, part) for part in parts], axis=0)
        assert vectors_ND @ vectors_ND.T == pytest.approx(expected, abs=1e-5)
    with pytest.raises(InputError, match="has its own prompt"):
        joined.encode_query(TEXTS, prompt="another: ")


def test_an_index_of_joined_models(tmp_path):
    notes, index, name = tmp_path / "notes.txt", tmp_path / "notes.sqlite", "msdc-nano+msdc-mini"
    notes.write_text("\n".join(TEXTS[:2]), encoding="utf-8")
    shown = call_msdc(["search", str(notes), "--index", str(index), "--model", name, TEXTS[2]], tmp_path)
    assert TEXTS[0] in shown
    with msdc.open_index(index, name) as opened:
        opened.add([{"id": "9", "text": "Der Zug hat Verspätung."}])
        assert opened.search("the train is late", mode="vectors").hits[0].id == "9"
    with pytest.raises(MsdcError, match="msdc-nano\\+msdc-mini"):
        msdc.open_index(index, "msdc-mini").search(TEXTS[2])


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda joined: joined.encode(TEXTS, prompt="query: "), "each of the joined models has its own prompt"),
        (lambda joined: joined.encode(TEXTS, prompt_name="query"), "no prompt 'query'"),
        (lambda joined: joined.count_truncated(TEXTS, prompt="query: "), "has its own prompt"),
        (lambda joined: setattr(joined, "max_length", 20) or joined.encode(TEXTS), "has its own longest input"),
        (lambda joined: JoinedEncoder([joined]), "at least two models"),
        (lambda joined: open_model("msdc-nano+"), "model"),
        (lambda joined: open_model("msdc-nano+no-such-model"), "no-such-model"),
    ],
)
def test_wrong_uses(models, use, message):
    with pytest.raises(InputError, match=message):
        use(JoinedEncoder(models))
