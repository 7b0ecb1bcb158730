"""Malicious model cards and recipes: a YAML bomb, a tag that would run code. Each is refused early, in one line."""

import pytest
from refusals import one_line

from msdc.distill.catalog import read_tree
from msdc.export.readme import CardFacts, read_card

# Ten times ten times ten ...: a kilobyte that expands to 10^9 strings.
LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
CODE = "name: !!python/object/apply:os.system ['touch owned']\n"


def test_a_tag_in_a_recipe_runs_no_code(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(CODE)
    assert "not valid YAML" in one_line(lambda: read_tree(tmp_path / "r.yaml"))
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize("text", [LAUGHS, CODE, "a: [" * 5000, "\udcff"])
def test_model_card(tmp_path, text, monkeypatch):
    """An export reads the card of any model folder: a bad block gives no facts and runs no code."""
    monkeypatch.chdir(tmp_path)
    card = f"---\n{text}---\n# x\n".encode("utf-8", "surrogateescape")
    (tmp_path / "README.md").write_bytes(card)
    assert read_card(tmp_path) == CardFacts()
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("threads=100000", "threads: Input should be less than or equal to 1024"),
        ("threads=0", "threads: Input should be greater than 0"),
        ("seed=-1", "seed: Input should be greater than or equal to 0"),
        ("seed=4294967296", "seed: Input should be less than 4294967296"),
        ("stages.one.max_length=500", "stage one: max_length 500 is more than the assistant's 20 positions"),
        ("stages.three.max_length=21", "stage three: max_length 21 is more than the student's 20 positions"),
        ("stages.one.learning_rate=.inf", "learning_rate: Input should be a finite number"),
    ],
)
def test_numbers_of_a_recipe_fail_before_the_folder_is_made(tiny_recipe_tree, tmp_path, change, said):
    from msdc.distill import distill
    from msdc.distill.catalog import parse_recipe

    text = one_line(lambda: distill(parse_recipe(tiny_recipe_tree, "tiny", (change,)), tmp_path / "run"))
    assert said in text and not (tmp_path / "run").exists()
