"""`msdc compress centre`: the vectors are those of the model less their mean, in the bias of its head."""

import json

import numpy as np
import pytest
import tiny_models
import torch
from click.testing import CliRunner

import msdc
from msdc.cli import msdc as cli
from msdc.compress import centre, cut_student
from msdc.compress.mean_vector import centred
from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.model import with_state
from msdc.errors import InputError
from msdc.scores import unit_rows

TEXTS = [f"{first} {second}" for first in ("a cat", "two dogs", "the sun", "eine katze", "no one")
         for second in ("sleeps", "runs", "sees the garden", "is late", "wins")]  # fmt: skip


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


def folder_with(tmp_path, tiny_teacher, **config):
    """A model folder whose head has these settings, with a common offset where it has a bias."""
    torch.manual_seed(3)
    student = tiny_models.student(**config)
    with torch.no_grad():
        if student.dense is not None and student.dense.bias is not None:
            student.dense.bias += 2.0
    save_student(student, msdc.load_encoder(tiny_teacher, precision="float").tokenizer, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize(
    "config", [{}, {"dense": 24, "dense_bias": True}, {"dense": 32, "dense_bias": False}, {"normalize": False}]
)
def test_against_numpy(config, tiny_teacher, corpus, tmp_path):
    """unit(v - mean(v)), v before the normalisation, whether or not the model has a head."""
    model = folder_with(tmp_path, tiny_teacher, **config)
    report = centre(model, output=tmp_path / "centred", corpus=corpus)
    student = load_student(model)
    state, settings = dict(student.state_dict()), student.config.model_copy(update={"normalize": False})
    plain = msdc.load_encoder(model, precision="float")
    plain.module = with_state(settings, state)
    raw_ND = plain.encode(TEXTS)
    after = msdc.load_encoder(tmp_path / "centred", precision="float")
    np.testing.assert_allclose(after.encode(TEXTS), unit_rows(raw_ND - raw_ND.mean(0)), atol=1e-4)
    assert report.texts == len(TEXTS)
    for value, vectors_ND in ((report.before, raw_ND), (report.after, raw_ND - raw_ND.mean(0))):
        cosines_NN = unit_rows(vectors_ND) @ unit_rows(vectors_ND).T
        assert value == pytest.approx(cosines_NN[~np.eye(len(TEXTS), dtype=bool)].mean(), abs=1e-3)
    assert abs(report.after) < abs(report.before)
    assert abs(report.after) < 0.05


def test_of_a_long_corpus_an_even_spread_is_taken(tiny_teacher, corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("msdc.compress.mean_vector.MOST_TEXTS", 10)
    model = folder_with(tmp_path, tiny_teacher, normalize=False)
    assert centre(model, output=tmp_path / "centred", corpus=corpus).texts == 9
    raw_ND = msdc.load_encoder(model, precision="float").encode(TEXTS)
    after_ND = msdc.load_encoder(tmp_path / "centred", precision="float").encode(TEXTS)
    np.testing.assert_allclose(after_ND, unit_rows(raw_ND - raw_ND[::3].mean(0)), atol=1e-4)


def test_a_stock_model_and_the_command(tiny_teacher, corpus, tmp_path):
    words = ["compress", "centre", str(tiny_teacher), "-o", str(tmp_path / "one"), "--corpus", str(corpus), "--json"]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    report = json.loads(done.output[done.output.index("{") :])
    assert report["texts"] == len(TEXTS)
    assert report["after"] < report["before"]
    text = CliRunner().invoke(cli, [*words[:-1], "--force"]).output
    assert "mean cosine of two of 25 texts" in text
    assert "mean cosine of two texts" in (tmp_path / "one" / "README.md").read_text(encoding="utf-8")
    # The embedded corpus, and a model without layers.
    cut_student(tiny_teacher, output=tmp_path / "static", layers=[])
    report = centre(tmp_path / "static", output=tmp_path / "two")
    assert abs(report.after) < report.before / 4


def test_what_cannot_be_centred_is_one_line(tiny_teacher, tmp_path):
    (tmp_path / "one.txt").write_text("a cat\n", encoding="utf-8")
    with pytest.raises(InputError, match="a mean needs two texts or more"):
        centre(tiny_teacher, output=tmp_path / "new", corpus=tmp_path / "one.txt")
    with pytest.raises(InputError, match="a head with tanh cannot subtract"):
        centred(tiny_models.student(dense=16, dense_activation="tanh"), np.zeros((2, 16), np.float32))
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine.txt").write_text("x", encoding="utf-8")
    with pytest.raises(InputError):
        centre(tiny_teacher, output=tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["mine.txt"]
