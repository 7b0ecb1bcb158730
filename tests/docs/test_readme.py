"""README's commands work: every block is executed in order, in one folder, as a reader would.

A block with `<!-- not run: REASON -->` before it is left out; the reason names the test that covers it.
"""

import dataclasses

import pytest
import tiny_models
from markdown import blocks
from page_code import call_block, run_block
from places import ROOT

README = ROOT / "README.md"
EXPORT = "msdc export msdc-mini --target android"


@pytest.mark.parametrize("model", ["small", pytest.param("msdc-mini", marks=pytest.mark.slow)])
def test_blocks_of_the_readme(model, tmp_path):
    """One test, because later blocks use what earlier ones wrote.

    `small`: the export is of a small student, and of `msdc` only the first block's commands are processes of their own.
    """
    outputs = []
    for block in blocks(README):
        if block.language not in ("bash", "python") or block.not_run:
            continue
        print(block)
        if model == "small" and EXPORT in block.text:
            text = block.text.replace(EXPORT, EXPORT.replace("msdc-mini", str(tiny_models.student_folder())))
            block = dataclasses.replace(block, text=text)
        execute = run_block if model != "small" or not outputs else call_block
        outputs.append(execute(block, tmp_path))
    assert len(outputs) >= 4
    compared, measured = outputs[0], tmp_path / "report.html"
    # The translation is nearer than the other sentence, and the search finds the note about the car first.
    scores = [float(line.split()[0]) for line in compared.splitlines()[:2]]
    assert scores[0] > scores[1]
    assert "My car is parked on level 2." in compared
    assert "La reunión" not in compared  # not relevant
    assert measured.is_file()
    assert model == "small" or "msdc-mini" in measured.read_text(encoding="utf-8")


def test_the_readme_exports_the_shipped_student():
    """What the first test replaces."""
    assert any(EXPORT in block.text for block in blocks(README, "bash"))


def test_blocks_of_the_cookbook(tmp_path):
    """They hold their own assertions."""
    for block in blocks(ROOT / "docs/guides/cookbook.md"):
        call_block(block, tmp_path)


def test_what_is_not_run_is_covered_elsewhere():
    reasons = [block.not_run for block in blocks(README, "bash") if block.not_run]
    assert len(reasons) <= 2
    for reason in reasons:
        named = [word.strip("`;,.") for word in reason.split() if word.startswith("tests/")]
        assert named and all((ROOT / name).exists() for name in named), reason
