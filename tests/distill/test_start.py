"""`start` of a stage: what of the learner is set anew before it is trained."""

from __future__ import annotations

import pytest
import torch

from msdc.compress.student.io import load_student
from msdc.distill.catalog import parse_recipe
from msdc.distill.run import Run


def started(tree: dict, folder, start: str, number: int) -> tuple[dict, dict, dict]:
    """Weights of the learner that stage `number` begins with, of the student before it, and of the first cut."""
    first = dict(tree["stages"][2], name="first", guide="teacher", steps=4, evaluate_every=4)
    stages = [first, dict(tree["stages"][3], name="second", start=start)][1 - number :]
    run = Run(parse_recipe(tree | {"stages": stages}, "tiny"), folder)
    run.prepare()
    for earlier in range(number):
        run.run_stage(earlier, run.recipe.stages[earlier])
    learner = run.load_learner(number, run.recipe.stages[number]).module.state_dict()
    folders = run.folder.trained(run.recipe, "student"), run.folder.untrained("student")
    return learner, *(load_student(path).state_dict() for path in folders)


def equal(one: dict, other: dict, part: str) -> bool:
    names = [name for name in one if name.startswith(part)]
    assert names
    return all(torch.equal(one[name], other[name]) for name in names)


@pytest.mark.parametrize(("start", "number"), [("keep", 1), ("svd", 1), ("random", 1), ("svd", 0)])
def test_what_a_stage_starts_from(tiny_tree, tmp_path, start, number):
    """A later stage goes on from the stage before, a first one from the cut; svd cuts the embedding again."""
    learner, before, cut = started(tiny_tree, tmp_path, start, number)
    assert equal(before, cut, "layers.") == equal(before, cut, "embedding.") == (number == 0)
    assert equal(learner, before, "layers.")
    assert equal(learner, before, "embedding.") == (start == "keep" or number == 0)
    assert equal(learner, cut, "embedding.") == (start == "svd")


def test_a_start_without_an_assistant_is_told(tiny_tree, tmp_path, capsys):
    stage = dict(tiny_tree["stages"][0], train="student", start="svd")
    tree = tiny_tree | {"assistant": None, "student": tiny_tree["teacher"], "stages": [stage]}
    run = Run(parse_recipe(tree, "tiny"), tmp_path / "run")
    run.prepare()
    run.load_learner(0, run.recipe.stages[0])
    assert "start: svd has no effect" in capsys.readouterr().err
