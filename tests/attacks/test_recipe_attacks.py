"""Malicious recipes and model cards: a YAML bomb, a tag that would run code. Each is refused early, in one line."""

import resource
import subprocess
import sys
import time

import pytest
from refusals import one_line

from msdc.distill.recipe_file import read_tree
from msdc.export.model_card import CardFacts, read_card

# Ten times ten times ten ...: a kilobyte that expands to 10^9 strings.
LAUGHS = "a0: &a0 [lol]\n" + "".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
CODE = "name: !!python/object/apply:os.system ['touch owned']\n"


def bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


@pytest.mark.parametrize(("text", "said"), [(LAUGHS, "aliases"), (CODE, "not valid YAML")])
def test_recipe_through_the_command_line(tmp_path, text, said):
    (tmp_path / "r.yaml").write_text(text)
    command = [sys.executable, "-m", "msdc.cli", "distill", "r.yaml", "-o", "out"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, preexec_fn=bounded)
    lines = [line for line in done.stderr.splitlines() if line.startswith("error")]
    assert done.returncode == 2 and len(lines) == 1 and said in lines[0], done.stderr[-500:]
    assert not (tmp_path / "out").exists() and not (tmp_path / "owned").exists()


def test_bomb_at_once(tmp_path):
    (tmp_path / "r.yaml").write_text(LAUGHS)
    began = time.process_time()
    assert "aliases" in one_line(lambda: read_tree(tmp_path / "r.yaml"))
    assert time.process_time() - began < 2


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
    from msdc.distill.pipeline import run
    from msdc.distill.recipe_file import parse_recipe

    text = one_line(lambda: run(parse_recipe(tiny_recipe_tree, "tiny", (change,)), tmp_path / "run"))
    assert said in text and not (tmp_path / "run").exists()
