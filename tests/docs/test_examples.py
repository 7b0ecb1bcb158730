"""The three examples run as their first lines say, and print what they promise."""

import os
import re
import sys

import programs
import pytest
from places import ROOT

EXAMPLES = ROOT / "examples"


def run(name: str, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return programs.run(sys.executable, EXAMPLES / name, *arguments, env=environment)


def test_search():
    lines = run("search.py").splitlines()
    assert len(lines) == 6
    assert lines[1].endswith("The car is in the second row of the parking garage.")


def test_export_bundle(tmp_path):
    # ONNX alone takes a fraction of the time; README's commands, which test_readme runs, export for ExecuTorch.
    out = run("export_bundle.py", str(tmp_path / "bundle"), "--runtime", "onnx")
    cosines = dict(re.findall(r"^(\w+): lowest cosine with the float model (\S+)$", out, re.MULTILINE))
    assert set(cosines) == {"onnx"}
    assert all(float(value) > 0.99 for value in cosines.values())
    assert (tmp_path / "bundle" / "bundle.json").is_file()


def test_distill_own_text(tmp_path):
    out = run("distill_own_text.py", str(tmp_path / "run"), "--steps", "4")
    assert re.search(r"width 384, cosine of a translation -?\d\.\d+", out)
    assert (tmp_path / "run" / "student" / "model.safetensors").is_file()


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_every_example_says_how_it_is_run(name):
    assert f"python examples/{name}" in (EXAMPLES / name).read_text(encoding="utf-8")
