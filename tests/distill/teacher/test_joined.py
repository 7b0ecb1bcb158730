"""Several teachers of a stage: cosines are weighted means, stores are those of each teacher alone, a run learns."""

import numpy as np
import pytest
from folder_kinds import write_folder
from sklearn.metrics.pairwise import cosine_similarity

from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.preflight import check_recipe
from msdc.distill.teacher import CachedTeacher, JoinedTeacher
from msdc.errors import InputError
from msdc.loading import load_encoder
from msdc.text.tokenizer import text_key

TEXTS = ["a cat sat", "the dog ran to the house", "house", "the cat ran"]


def teachers(first_folder, second_folder, cache):
    return [CachedTeacher(load_encoder(folder), cache, 20) for folder in (first_folder, second_folder)]


@pytest.fixture
def other(tmp_path):
    """A second teacher of another width."""
    return write_folder(tmp_path / "other", "dense with residual")


def test_cosines_are_the_weighted_means(tiny_teacher, other, tmp_path):
    first, second = teachers(tiny_teacher, other, tmp_path / "cache")
    joined = JoinedTeacher({first: 3.0, second: 1.0})
    found_ND = joined.vectors(TEXTS)
    assert found_ND.shape == (len(TEXTS), joined.width)
    assert joined.width == first.width + second.width
    assert found_ND.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found_ND, axis=1), 1.0, atol=1e-5)
    single = [cosine_similarity(load_encoder(folder).encode(TEXTS)) for folder in (tiny_teacher, other)]
    np.testing.assert_allclose(cosine_similarity(found_ND), 0.75 * single[0] + 0.25 * single[1], atol=2e-3)


def test_a_text_is_stored_once_both_teachers_have_it(tiny_teacher, other, tmp_path):
    first, second = teachers(tiny_teacher, other, tmp_path / "cache")
    joined = JoinedTeacher({first: 1.0, second: 2.0})
    keys = np.array([text_key(text) for text in TEXTS], np.uint64)
    first.vectors(TEXTS)
    second.vectors(TEXTS[:1])
    stored_ND = joined.stored(keys)
    np.testing.assert_array_equal(stored_ND[0], joined.rows(TEXTS[:1])[0])
    assert np.isnan(stored_ND[1:]).all()
    joined.rows(TEXTS)
    # The stores are those that each teacher has alone.
    again = JoinedTeacher(dict(zip(teachers(tiny_teacher, other, tmp_path / "cache"), (1.0, 2.0), strict=True)))
    np.testing.assert_array_equal(again.stored(keys), joined.rows(TEXTS))


def with_two(tree, stage, other, **changed):
    stages = [{**entry, "teacher": {"teacher": 2, str(other): 1}, **changed} if entry["name"] == stage else entry
              for entry in tree["stages"]]  # fmt: skip
    return parse_recipe({**tree, "stages": stages}, "tiny")


def test_a_run_learns_from_both(tiny_tree, other, tmp_path):
    stages = [{"name": "two", "objective": "relational_distance", "steps": 4, "batch": 8, "max_length": 20},
              {"name": "mse", "objective": "multilingual_mse", "steps": 4, "batch": 8, "max_length": 20}]  # fmt: skip
    tree = {**tiny_tree, "stages": [{**entry, "teacher": {"teacher": 2, str(other): 1}} for entry in stages]}
    result = distill(parse_recipe(tree, "tiny"), tmp_path / "run")
    assert set(result.stages) == {"two", "mse"}
    assert np.isfinite([numbers["choice"] for numbers in result.stages.values()]).all()
    assert f"2 teacher + 1 {other}" in (result.student / "README.md").read_text(encoding="utf-8")
    alone = distill(parse_recipe({**tree, "stages": [{**entry, "teacher": "teacher"} for entry in stages]}, "tiny"),
                    tmp_path / "alone")  # fmt: skip
    vectors = [load_encoder(run.student).encode(TEXTS) for run in (result, alone)]
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-4


def test_objectives_on_tokens_or_states_take_one_teacher(tiny_tree, other):
    for stage in tiny_tree["stages"]:
        if stage.get("train") == "student.embedding":
            with pytest.raises(InputError, match="a mix of teachers is for objectives on sentence vectors only"):
                check_recipe(with_two(tiny_tree, stage["name"], other))
            return
    pytest.fail("the recipe has no stage on the embedding")


@pytest.mark.parametrize("weights", [{}, {"teacher": 0}, {"teacher": -1.0}, {"teacher": "much"}])
def test_weights_are_positive(tiny_tree, weights):
    with pytest.raises(InputError, match="teacher"):
        parse_recipe({**tiny_tree, "stages": [{**tiny_tree["stages"][-1], "teacher": weights}]}, "tiny")
