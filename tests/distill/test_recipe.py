"""Recipes: unknown keys refused, bombs defused, overrides reach where they should."""

import pytest
import yaml

from msdc.distill.catalog import load_recipe, parse_recipe, read_tree
from msdc.errors import InputError

BASE = {"name": "r", "corpora": [{"path": "x.tsv"}], "stages": [{"name": "train", "objective": "multilingual_mse"}]}


def tree(**changes):
    import copy

    return {**copy.deepcopy(BASE), **changes}


def test_defaults_are_the_papers():
    stage = parse_recipe(tree(), "r").stages[0]
    assert (stage.batch, stage.learning_rate, stage.warmup_ratio, stage.max_length) == (64, 2e-5, 0.1, 128)
    assert stage.objective[0].name == "multilingual_mse"
    assert stage.objective[0].weight == 1.0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, "unknown key 'colour' (known: name, about"),
        ({"stages": []}, "stages: "),
        ({"corpora": [{"path": "a", "hub": "b"}]}, "corpora.0: a corpus needs exactly one of path"),
        ({"corpora": [{"path": "a", "name": "x"}, {"path": "b", "name": "x"}]}, "corpora: names of corpora repeat"),
        ({"assistant": {"nonzero": 3}}, "assistant: unknown key 'nonzero'; did you mean 'nonzeros'?"),
        ({"stages": [BASE["stages"][0] | {"epoch": 2}]}, "stages.train: unknown key 'epoch'; did you mean 'epochs'?"),
        ({"stages": [BASE["stages"][0], BASE["stages"][0]]}, "stages: names of stages repeat"),
        ({"teacher": {"model": "x", "pooling": "min"}}, "teacher.pooling: Input should be 'mean', 'cls' or 'max'"),
        ({"assistant": {"nonzeros": 3, "rows": "random"}}, "assistant: nonzeros code rows that are sums"),
        (
            {"assistant": {"vocabulary": {"tran": 500}}},
            "assistant.vocabulary: unknown key 'tran'; did you mean",
        ),
        (
            {"student": {"init": "x"}},
            "student: unknown key 'init'; did you mean 'unit'? - student takes the name or folder",
        ),
        (
            {"heldout": {"zzz": 1}},
            "heldout: unknown key 'zzz' (known: pairs, share, min_pairs_per_language, graded, graded_pairs)",
        ),
    ],
)
def test_what_is_wrong_is_named(changes, message):
    with pytest.raises(InputError) as caught:
        parse_recipe(tree(**changes), "r.yaml")
    assert str(caught.value).startswith(f"r.yaml: {message}")


def test_overrides_by_name():
    settings = tree(corpora=[{"opus": "TED2020/v1"}, {"path": "d/nli.*.tsv"}, {"path": "d/*.tsv", "name": "own"}])
    overrides = (
        "stages.train.learning_rate=2e-4", "student.bottleneck=null", "seed=5", "student.layers=[0, 4]",
        "student.layers.1=5", "corpora.TED2020.limit=3", "corpora.nli.limit=4", "corpora.own.limit=5",
    )  # fmt: skip
    recipe = parse_recipe(settings, "r", overrides)
    assert (recipe.stages[0].learning_rate, recipe.seed, recipe.student.bottleneck) == (2e-4, 5, None)
    assert [corpus.limit for corpus in recipe.corpora] == [3, 4, 5]
    assert recipe.student.layers == (0, 5)


@pytest.mark.parametrize(
    "overrides",
    [
        ("corpora.x.path=other/y.csv", "corpora.x.limit=3"),
        ("corpora.*.path=other/y.csv", "corpora.x.limit=3"),
        ("corpora.x={hub: a/b}", "corpora.x.limit=3"),
        ("corpora.x.path=y.csv", "corpora.y.path=z.csv", "corpora.x.limit=3"),
        ("corpora.x.name=mine", "corpora.mine.limit=3"),
        ("corpora=[{path: new.tsv}]", "corpora.new.limit=3"),
        ("stages.train.corpora=[{path: x.tsv}]", "stages.train.corpora.x.path=y.tsv",
         "stages.train.corpora.x.languages=[de]", "corpora.x.limit=3"),
    ],
)  # fmt: skip
def test_a_name_that_follows_from_a_value_stays_while_it_is_changed(overrides):
    recipe = parse_recipe(tree(), "r", overrides)
    assert recipe.corpora[0].limit == 3
    # Nothing of it is stored: a run that was started before is the same recipe.
    assert recipe.corpora[0].name == ("mine" if "corpora.x.name=mine" in overrides else None)


def test_two_corpora_keep_their_names_when_their_paths_are_swapped():
    settings = tree(corpora=[{"path": "a.tsv"}, {"path": "b.tsv"}])
    overrides = ("corpora.a.path=b.tsv", "corpora.b.path=a.tsv", "corpora.a.limit=1", "corpora.b.limit=2")
    recipe = parse_recipe(settings, "r", overrides)
    assert [(corpus.path, corpus.limit) for corpus in recipe.corpora] == [("b.tsv", 1), ("a.tsv", 2)]


def test_a_name_stays_after_a_variant_changed_the_path(tmp_path):
    file = tmp_path / "r.yaml"
    variants = {
        "other": {"set": {"corpora.x.path": "other/y.csv"}}, "few": {"set": {"corpora.x.limit": 4}},
        "one": {"corpora": ["x"]}, "none": {"without": ["x"]},
    }  # fmt: skip
    file.write_text(yaml.safe_dump(tree(corpora=[{"path": "x.tsv"}, {"path": "z.tsv"}], variants=variants)))
    for chosen in ("other+few", "few+other"):
        recipe = load_recipe(
            f"{file}:{chosen}", ("corpora.x.on_bad=stop", "corpora.x.path=w.tsv", "corpora.x.kind=nli")
        )
        corpus = recipe.corpora[0]
        assert (corpus.path, corpus.limit, corpus.on_bad, corpus.kind) == ("w.tsv", 4, "stop", "nli")
    assert [corpus.path for corpus in load_recipe(f"{file}:other+one").corpora] == [str(tmp_path / "other" / "y.csv")]
    assert [corpus.path for corpus in load_recipe(f"{file}:other+none").corpora] == [str(tmp_path / "z.tsv")]


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("nonsense", "expected key=value"),
        ("=3", "expected key=value"),
        ("stages.none.batch=2", r"no entry 'none' \(have train\)"),
        ("stages.0.batch=2", "use the name of an entry: 0 is stages.train"),
        ("corpora.1.limit=2", "use the name of an entry: 1 is corpora.b"),
        ("corpora.x.limit=2", "'x' means several, give them a `name`: x.tsv; x.csv"),
        ("stages.train.batch=[", "not valid YAML"),
        ("seed.deep=1.x.y", "seed"),
    ],
)
def test_bad_overrides(override, message):
    settings = tree(corpora=[{"path": "x.tsv"}, {"hub": "a/b@main"}, {"path": "x.csv"}])
    with pytest.raises(InputError, match=message):
        parse_recipe(settings, "r", (override,))


def test_yaml_tags_and_garbage(tmp_path):
    path = tmp_path / "r.yaml"
    for text, message in [
        ("a: !!python/object/apply:os.system ['true']\n", "not valid YAML"),
        ("a: [", "not valid YAML"),
        ("- 1\n", "a recipe is a mapping"),
        ("[" * 20000, "not valid YAML"),
    ]:
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            read_tree(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="not valid YAML"):
        read_tree(path)


def test_paths_are_relative_to_the_recipes_file(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "mine.yaml").write_text(
        "corpora: [{path: data/x.tsv}, {files: [a.en, ~/a.de]}, {path: '{embedded}/y.tsv'}]\n"
        "teacher: ./models/big\nheldout: {graded: [dev.tsv]}\nreport: [/abs/test.tsv]\ncache: cache\n"
        "stages: [{name: one, objective: kd, teacher: ../other, corpora: [{path: z.tsv}]}]\n"
    )
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe("project/mine.yaml", ("corpora.x.limit=3", "corpora.a.files=[c.en, c.de]"))
    assert recipe.corpora[0].path == str(folder / "data" / "x.tsv")
    assert recipe.corpora[1].files == ("c.en", "c.de")  # --set: of the working directory
    assert recipe.corpora[2].path.startswith("/")
    assert recipe.teacher == str(folder / "models" / "big")
    assert recipe.heldout.graded == (str(folder / "dev.tsv"),)
    assert recipe.report == ("/abs/test.tsv",)
    assert recipe.cache == str(folder / "cache")
    assert recipe.stages[0].teacher == str(tmp_path / "other")
    assert recipe.stages[0].corpora[0].path == str(folder / "z.tsv")
    assert load_recipe("project/mine.yaml").corpora[1].files[1] == "~/a.de"
    with pytest.raises(InputError, match="no such recipe file; did you mean 'quickstart'"):
        load_recipe("quickstrat")


def test_languages_limit_a_recipe():
    paths = {"pairs.en-xx.tsv": [], "a.en-de.tsv": ["de"], "b": ["ja", "de"]}
    corpora = [{"path": path, "languages": codes} for path, codes in paths.items()]
    remaining = parse_recipe(tree(corpora=corpora, languages=["ja"]), "r").corpora
    assert [corpus.path for corpus in remaining] == ["pairs.en-xx.tsv", "b"]
    assert len(parse_recipe(tree(corpora=corpora), "r").corpora) == 3
    english = [
        {"path": path, "kind": "text", "word_by_word": codes}
        for path, codes in {"c": ["de", "ja"], "d": ["de"]}.items()
    ]
    translated = parse_recipe(tree(corpora=[*english, {"path": "e", "kind": "text"}], languages=["ja"]), "r").corpora
    assert [(corpus.path, corpus.word_by_word) for corpus in translated] == [("c", ("ja",)), ("e", ())]
    with pytest.raises(InputError, match="no corpus has text in any of languages"):
        parse_recipe(tree(corpora=corpora[1:2], languages=["ja"]), "r")
