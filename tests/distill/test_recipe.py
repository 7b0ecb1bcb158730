"""Recipes: unknown keys refused, bombs defused, overrides reach where they should."""

import pytest

from msdc.distill.recipe import parse_recipe, read_tree
from msdc.errors import InputError

BASE = {"name": "r", "corpora": [{"path": "x.tsv"}], "stages": [{"name": "teach", "objective": "multilingual_mse"}]}


def tree(**changes):
    import copy

    return {**copy.deepcopy(BASE), **changes}


def test_defaults_are_the_papers():
    stage = parse_recipe(tree(), "r").stages[0]
    assert (stage.batch, stage.learning_rate, stage.warmup_ratio, stage.max_length) == (64, 2e-5, 0.1, 128)
    assert stage.objective[0].name == "multilingual_mse" and stage.objective[0].weight == 1.0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"colour": 1}, "colour: unknown key"),
        ({"stages": []}, "stages"),
        ({"corpora": [{"path": "a", "hub": "b"}]}, "exactly one of path"),
        ({"stages": [{"name": "a", "objective": "multilingual_mse", "epoch": 2}]}, "stages.0.epoch: unknown key"),
        ({"stages": [{"name": "A b", "objective": "multilingual_mse"}]}, "stages.0.name"),
        ({"stages": [BASE["stages"][0], BASE["stages"][0]]}, "stage names repeat"),
        ({"student": {"bottleneck": -1}}, "student"),
    ],
)
def test_what_is_wrong_is_named(changes, said):
    with pytest.raises(InputError, match=said):
        parse_recipe(tree(**changes), "r.yaml")


def test_overrides_by_stage_name_and_number():
    overrides = ("stages.teach.learning_rate=2e-4", "stages.0.batch=8", "student.bottleneck=null", "seed=5")
    recipe = parse_recipe(tree(), "r", overrides)
    assert (recipe.stages[0].learning_rate, recipe.stages[0].batch, recipe.seed) == (2e-4, 8, 5)
    assert recipe.student.bottleneck is None


@pytest.mark.parametrize(
    "override", ["nonsense", "=3", "stages.none.batch=2", "stages.teach.batch=[", "seed.deep=1.x.y"]
)
def test_bad_overrides(override):
    with pytest.raises(InputError):
        parse_recipe(tree(), "r", (override,))


def test_yaml_bombs_tags_and_garbage(tmp_path):
    path = tmp_path / "r.yaml"
    for text, said in [
        ("a: &a [x]\nb: [*a, *a]\n", "aliases"),
        ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("a: [", "not valid YAML"),
        ("- 1\n", "a recipe is a mapping"),
        ("[" * 20000, "not valid YAML"),
        ("a: " + "x" * 1_000_001, "is too large for a recipe"),
    ]:
        path.write_text(text)
        with pytest.raises(InputError, match=said):
            read_tree(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not valid YAML"):
        read_tree(path)
    with pytest.raises(InputError, match="no such recipe"):
        read_tree(tmp_path / "none.yaml")
