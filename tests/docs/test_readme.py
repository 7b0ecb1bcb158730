"""README's commands work: every bash block is executed in order, in one folder, as a reader would.

A block with `<!-- not run: REASON -->` before it is left out; the reason names the test that covers it.
"""

import os
import sys
from pathlib import Path

import pytest
from markdown import blocks
from places import ROOT
from programs import run

README = ROOT / "README.md"


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
        print(block)
        executed.append(run(*command, cwd=place, env=environment(place)))
    assert len(executed) >= 4
    compared, measured = executed[0], place / "report.html"
    # The translation is nearer than the other sentence, and the search finds the note about the car first.
    scores = [float(line.split()[0]) for line in compared.splitlines()[:2]]
    assert scores[0] > scores[1]
    assert compared.index("My car is parked on level 2.") < compared.index("La reunión")
    assert measured.is_file()
    assert "msdc-mini" in measured.read_text(encoding="utf-8")


def test_blocks_of_the_cookbook(place):
    """They hold their own assertions."""
    for block in blocks(ROOT / "docs/guides/cookbook.md"):
        command = ["bash", "-eu", "-c", block.text] if block.language == "bash" else [sys.executable, "-c", block.text]
        run(*command, cwd=place, env=environment(place))


def test_what_is_not_run_is_covered_elsewhere():
    reasons = [block.not_run for block in blocks(README, "bash") if block.not_run]
    assert len(reasons) <= 2
    for reason in reasons:
        named = [word.strip("`;,.") for word in reason.split() if word.startswith("tests/")]
        assert named and all((ROOT / name).exists() for name in named), reason
