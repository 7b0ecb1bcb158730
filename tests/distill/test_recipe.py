"""Recipes: unknown keys refused, bombs defused, overrides reach where they should."""

import pytest

from msdc.distill.recipe_file import parse_recipe, read_tree
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"corpora": None, "corpus": []}, "corpus: unknown key; did you mean 'corpora'?"),
        (
            {"stages": [{"name": "a", "objective": "kd", "learnin_rate": 1}]},
            "stages.0.learnin_rate: unknown key; did you mean 'learning_rate'?",
        ),
        (
            {"assistant": {"vocabulary": {"tran": 500}}},
            "assistant.vocabulary.tran: unknown key; did you mean 'train'?",
        ),
        ({"heldout": {"zzz": 1}}, "heldout.zzz: unknown key (known: pairs, share, graded, graded_pairs)"),
    ],
)
def test_a_mistyped_key_gets_the_known_one(changes, said):
    wanted = {key: value for key, value in tree(**changes).items() if value is not None}
    with pytest.raises(InputError) as caught:
        parse_recipe(wanted, "r.yaml")
    assert str(caught.value) == f"r.yaml: {said}"


def test_paths_are_relative_to_the_recipes_file(tmp_path, monkeypatch):
    from msdc.distill.catalog import load_recipe

    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "corpora: [{path: data/x.tsv}, {files: [a.en, ~/a.de]}, {path: '{embedded}/y.tsv'}]\n"
        "teacher: ./models/big\nheldout: {graded: [dev.tsv]}\nreport: [/abs/test.tsv]\ncache: cache\n"
        "stages: [{name: one, objective: kd, guide: ../other, corpora: [{path: z.tsv}]}]\n"
    )
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("project/mine.yaml", ("corpora.0.limit=3", "corpora.1.files=[c.en, c.de]"))
    assert recipe.corpora[0].path == str(folder / "data" / "x.tsv")
    assert recipe.corpora[1].files == ("c.en", "c.de")  # --set: of the working directory
    assert recipe.corpora[2].path.startswith("/") and recipe.teacher == str(folder / "models" / "big")
    assert recipe.heldout.graded == (str(folder / "dev.tsv"),) and recipe.report == ("/abs/test.tsv",)
    assert recipe.cache == str(folder / "cache")
    assert recipe.stages[0].guide == str(tmp_path / "other")
    assert recipe.stages[0].corpora[0].path == str(folder / "z.tsv")
    assert load_recipe("project/mine.yaml").corpora[1].files[1] == "~/a.de"
    with pytest.raises(InputError, match="no such recipe file; did you mean 'quickstart'"):
        load_recipe("quickstrat")
