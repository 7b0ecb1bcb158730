"""Malicious recipes and model cards: a YAML bomb, a tag that would run code. Each is refused early, in one line."""

import resource
import subprocess
import sys
import time

import pytest
from refusals import one_line

from msdc.distill.recipe import read_tree
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
