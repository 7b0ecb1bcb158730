"""README's commands work: every bash block is executed in order, in one folder, as a reader would.

A block with `<!-- not run: REASON -->` before it is left out; the reason names the test that covers it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown import blocks
from places import ROOT

README = ROOT / "README.md"
LIMIT_S = 600


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """An empty folder; `msdc` on the path is this checkout's, whether or not it is installed."""
    folder = tmp_path_factory.mktemp("readme")
    programs = folder / "bin"
    programs.mkdir()
    script = programs / "msdc"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m msdc.cli "$@"\n')
    script.chmod(0o755)
    return folder


def environment(place: Path) -> dict[str, str]:
    threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    paths = {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    return os.environ | threads | paths


def test_blocks_of_the_readme(place):
    """One test, because later blocks use what earlier ones wrote."""
    executed = []
    for block in blocks(README):
        if block.language not in ("bash", "python") or block.not_run:
            continue
        command = ["bash", "-eu", "-c", block.text] if block.language == "bash" else [sys.executable, "-c", block.text]
        done = subprocess.run(
            command, cwd=place, env=environment(place), capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        assert done.returncode == 0, f"{block}: {done.stderr[-1500:]}"
        executed.append(done.stdout)
    assert len(executed) >= 4
    compared, measured = executed[0], place / "report.html"
    # The translation is nearer than the other sentence, and the search finds the note about the car first.
    scores = [float(line.split()[0]) for line in compared.splitlines()[:2]]
    assert scores[0] > scores[1]
    assert compared.index("The car is on level 2.") < compared.index("La reunión")
    assert measured.is_file() and "msdc-mini" in measured.read_text(encoding="utf-8")


def test_what_is_not_run_is_covered_elsewhere():
    reasons = [block.not_run for block in blocks(README, "bash") if block.not_run]
    assert len(reasons) <= 2
    for reason in reasons:
        named = [word.strip("`;,.") for word in reason.split() if word.startswith("tests/")]
        assert named and all((ROOT / name).exists() for name in named), reason


EXAMPLES = ROOT / "examples"


def run(name: str, *arguments: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-1500:]
    return done.stdout


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
