"""A recipe that carries the name of a paper's row resolves to that row, or says how it differs."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from places import ROOT

from msdc.distill.catalog import load_recipe, recipe_facts, shipped, variants_of
from msdc.distill.recipe import TEACHER, Recipe, StudentShape, model_name

HERE = Path(__file__).parent
FACTS = yaml.safe_load((HERE / "paper_facts.yaml").read_text(encoding="utf-8"))
NAMES = yaml.safe_load((HERE / "names.yaml").read_text(encoding="utf-8"))
ROWS = [(recipe, row) for recipe, facts in FACTS.items() for row in facts["rows"]]


def resolved(recipe: Recipe) -> dict:
    """The facts of a recipe, with widths of its models and the number of its languages."""
    facts = recipe_facts(recipe)
    student = recipe.student
    if isinstance(student, StudentShape):
        student = None if student.scratch is not None else recipe.assistant
    if student is not None:
        facts["widths"] = [NAMES["models"][model_name(model)] for model in (recipe.teacher, student)]
    facts["languages"] = len({code for corpus in recipe.corpora for code in corpus.languages})
    return facts


def expected(recipe: str, row: str) -> dict:
    """The paper's facts of a row; `*.KEY` stands for that key in every stage, before what a stage says itself."""
    common, own = FACTS[recipe]["common"], FACTS[recipe]["rows"][row]
    stages = own.get("stages", common.get("stages", ()))
    wide = {k: v for k, v in common.items() if k.startswith("*.")}
    facts = {f"stages.{stage}.{key[2:]}": value for key, value in wide.items() for stage in stages}
    facts |= {key: value for key, value in common.items() if not key.startswith("*.")} | own
    return {k: v for k, v in facts.items() if not k.startswith("stages.") or k.split(".")[1] in stages}


def departures(recipe: Recipe) -> set[str]:
    """What the entries of `differs` are about."""
    return {text.partition(":")[0] for text in recipe.differs}


@pytest.mark.parametrize(("name", "row"), ROWS, ids=[":".join(row) for row in ROWS])
def test_a_row_is_the_papers(name, row):
    recipe = load_recipe(f"{name}:{row}")
    facts = resolved(recipe)
    said = departures(recipe)
    for key, value in expected(name, row).items():
        if facts.get(key) != value:
            assert said & {key, *key.split(".")[-1:]}, f"{key}: {facts.get(key)!r}, the paper has {value!r}"


def test_every_row_has_facts_and_every_fact_a_row():
    for name in shipped():
        rows = {key for key, variant in variants_of(name).items() if variant.row and not key.startswith("small")}
        assert rows == set(FACTS.get(name, {"rows": {}})["rows"]), name


def test_a_test_set_is_no_training_text():
    """Where Tatoeba or Europarl is the test, no stage of the row reads it."""
    for label, kept_out in (
        ("mkd:tatoeba", "Tatoeba"),
        *((f"lightweight:{v}", "Europarl") for v in ("en-fr", "en-it")),
    ):
        facts = recipe_facts(load_recipe(label))
        read = [name for key, names in facts.items() if key.endswith(".corpora") for name in names]
        assert read and not any(name.startswith(kept_out) for name in read), label
    assert any(name.startswith("Tatoeba") for name in recipe_facts(load_recipe("mkd"))["stages.teach.corpora"])


def test_names_of_corpora_and_models_are_known(tmp_path):
    """A misspelled OPUS or hub name is found here, not after hours of downloads."""
    for name in shipped():
        variants = variants_of(name)
        small = [f"small+{one}" for one in variants if "small" in variants and one not in ("small", "dictionary")]
        for label in (name, *(f"{name}:{variant}" for variant in (*variants, *small))):
            recipe = load_recipe(label, data=tmp_path)
            corpora = [*recipe.corpora, *(c for stage in recipe.stages for c in stage.corpora or ())]
            for corpus in corpora:
                if corpus.opus is not None:
                    assert set(corpus.languages) <= set(NAMES["opus"].get(corpus.opus, ())), (label, corpus.opus)
                assert corpus.hub is None or corpus.hub in NAMES["hub"], (label, corpus.hub)
            for model in (recipe.teacher, recipe.assistant, recipe.student):
                if (isinstance(model, str) and model != TEACHER) or hasattr(model, "model"):
                    assert model_name(model) in NAMES["models"], (label, model)


def test_the_page_of_rows_is_what_the_recipes_say():
    """docs/guides/paper_rows.md claims nothing that is not in a recipe: it is generated, and not out of date."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "paper_rows.py")], capture_output=True, text=True, check=True
    )
    assert done.stdout == (ROOT / "docs" / "guides" / "paper_rows.md").read_text(encoding="utf-8"), (
        "run: python benchmarks/paper_rows.py --write docs/guides/paper_rows.md"
    )
    for name, row in ROWS:
        assert f"| `{name}:{row}` |" in done.stdout
