"""A head in closed form: scikit-learn's ridge is the oracle, and a run starts from it."""

import json
from itertools import product

import numpy as np
import pytest
import tiny_models
import torch
from sklearn.linear_model import Ridge

import msdc
from msdc.compress.cut import shrink
from msdc.distill import distill
from msdc.distill.training.ridge_head import PENALTIES, fit_head, pooled_states, ridge
from msdc.encoders.encoder import Encoder
from msdc.scores import explained_variance, unit_rows

WORDS = (["a cat", "two dogs", "the sun", "eine katze"], ["sleeps", "runs", "sees"], ["here", "in the garden", "today"])
TEXTS = [" ".join(words) for words in product(*WORDS)]


@pytest.mark.parametrize("penalty", [1e-4, 0.1, 2.0])
def test_the_closed_form_is_that_of_scikit_learn(penalty):
    rng = np.random.default_rng(1)
    pooled = rng.normal(size=(80, 12)) + 5.0
    teacher = pooled @ rng.normal(size=(12, 7)) + rng.normal(size=(80, 7)) - 3.0
    map_DH, bias_D = ridge(pooled, teacher, penalty)
    centred = pooled - pooled.mean(0)
    oracle = Ridge(alpha=penalty * (centred**2).sum() / 12).fit(pooled, teacher)
    np.testing.assert_allclose(map_DH, oracle.coef_, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(bias_D, oracle.intercept_, rtol=1e-4, atol=1e-4)


def test_explained_variance_ignores_what_all_vectors_share():
    """The teacher's mean explains nothing, however high its cosines are; a common offset does not hide an error."""
    rng = np.random.default_rng(2)
    teacher = rng.normal(size=(50, 4)) + 100.0
    assert explained_variance(teacher, teacher) == 1.0
    assert explained_variance(teacher, np.tile(teacher.mean(0), (50, 1))) == pytest.approx(0.0)
    noise = rng.normal(size=(50, 4))
    expected = 1 - (noise**2).sum() / ((teacher - teacher.mean(0)) ** 2).sum()
    assert explained_variance(teacher, teacher + noise) == pytest.approx(expected)
    assert explained_variance(np.ones((3, 4)), np.ones((3, 4))) == 1.0
    assert explained_variance(np.ones((3, 4)), np.zeros((3, 4))) == 0.0


def test_a_fitted_head_gives_the_teachers_vectors(tiny_teacher):
    """Where the teacher is a linear map of the pooled states, the head is that map and its bias."""
    model = msdc.load_encoder(tiny_teacher, precision="float")
    torch.manual_seed(3)
    student = shrink(tiny_models.student(), width=tiny_models.student().width, head_bias=True)
    assert student.dense.bias is not None
    learner = Encoder(student, model.tokenizer, 32, "tiny")
    pooled_NH = pooled_states(learner, TEXTS, "float32")
    assert not np.allclose(np.linalg.norm(pooled_NH, axis=1), 1.0)  # before the head and the normalisation
    rng = np.random.default_rng(4)
    aim_ND = pooled_NH @ rng.normal(size=(pooled_NH.shape[1], student.width)) + 2.0
    assert fit_head(learner, pooled_NH, aim_ND) > 0.98
    np.testing.assert_allclose(learner.encode(TEXTS), unit_rows(aim_ND), atol=0.05)
    # Of vectors that no map gives: the head of all texts, those that chose the penalty among them.
    aim_ND += rng.normal(size=aim_ND.shape)
    fit_head(learner, pooled_NH, aim_ND)
    maps = [ridge(pooled_NH, aim_ND, penalty)[0] for penalty in PENALTIES]
    assert any(np.allclose(student.dense.weight.detach().numpy(), map_DH, atol=1e-6) for map_DH in maps)


def _run(teacher, tmp_path, head):
    stage = {"name": "only", "objective": "multilingual_mse", "steps": 2, "batch": 8, "max_length": 20,
             "learning_rate": 1e-6, "evaluate_every": 1}  # fmt: skip
    tree = tiny_models.recipe(teacher, tmp_path / "outputs", [stage])
    student = {"max_length": 20, "bottleneck": 16, "layers": [0], "head": head}
    distill(tree | {"student": student}, tmp_path / "run", resume=(tmp_path / "run").exists())
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    return [row["evaluation"]["explained_variance"] for row in rows if "evaluation" in row]


def test_a_run_starts_from_the_fitted_head(tiny_teacher, tmp_path):
    """After one step with a tiny rate it explains much more than a student without; the head is part of the student."""
    fitted = _run(tiny_teacher, tmp_path / "ridge", "ridge")
    plain = _run(tiny_teacher, tmp_path / "none", None)
    assert fitted[0] > plain[0] + 0.1
    module = msdc.load_encoder(tmp_path / "ridge" / "run" / "student", precision="float").module
    assert module.config.dense_bias
    assert module.config.dense == module.config.hidden
    assert float(module.dense.bias.detach().abs().sum()) > 0


def test_only_the_first_stage_of_the_student_fits(tiny_teacher, tmp_path, capsys):
    stage = {"objective": "multilingual_mse", "steps": 2, "batch": 8, "max_length": 20, "learning_rate": 1e-5}
    table = {"train": "student.embedding", "teacher": "assistant.embedding", "objective": "embedding_alignment"}
    stages = [{"name": "table", **stage, **table}, {"name": "one", **stage}, {"name": "two", **stage}]
    tree = tiny_models.recipe(tiny_teacher, tmp_path / "outputs", stages)
    distill(tree | {"student": {"max_length": 20, "bottleneck": 16, "layers": [0], "head": "ridge"}}, tmp_path / "run")
    assert capsys.readouterr().err.count("of the teacher's variance before the first step") == 1
