"""`start` of a stage: what of the learner is set anew before it is trained."""

from __future__ import annotations

import pytest
import torch

from msdc.compress.student.io import load_student
from msdc.distill.catalog import parse_recipe
from msdc.distill.run import Run


def started(tree: dict, folder, start: str, number: int = 1) -> tuple[dict, dict, dict]:
    """Weights of the learner that stage `number` begins with, of the student before it, and of the first cut."""
    stages = [dict(tree["stages"][2], name="first", guide="teacher", steps=4, evaluate_every=4)]
    stages.append(dict(tree["stages"][3], name="second", start=start))
    if number == 0:
        stages = stages[1:]
    run = Run(parse_recipe(tree | {"stages": stages}, "tiny"), folder)
    run.prepare()
    for earlier, stage in enumerate(run.recipe.stages[:number]):
        run.run_stage(earlier, stage)
    learner = run.load_learner(number, run.recipe.stages[number]).module.state_dict()
    before = load_student(run.folder.trained(run.recipe, "student")).state_dict()
    return learner, before, load_student(run.folder.untrained("student")).state_dict()


def equal(one: dict, other: dict, part: str) -> bool:
    names = [name for name in one if name.startswith(part)]
    assert names
    return all(torch.equal(one[name], other[name]) for name in names)


@pytest.mark.parametrize(("start", "fresh"), [("keep", None), ("svd", "embedding.")])
def test_a_later_stage_cuts_a_part_of_the_student_again(tiny_tree, tmp_path, start, fresh):
    learner, before, cut = started(tiny_tree, tmp_path, start)
    for part in ("embedding.", "layers."):
        assert not equal(before, cut, part)
        assert equal(learner, cut if part == fresh else before, part)


def test_the_first_stage_of_a_student_starts_from_the_svd(tiny_tree, tmp_path):
    learner, before, cut = started(tiny_tree, tmp_path, "svd", number=0)
    assert equal(learner, cut, "embedding.") and equal(before, cut, "layers.") and equal(learner, cut, "layers.")


def test_random_draws_the_embedding_alone(tiny_tree, tmp_path):
    learner, before, _ = started(tiny_tree, tmp_path, "random")
    assert equal(learner, before, "layers.")
    assert not torch.equal(learner["embedding.table.weight"], before["embedding.table.weight"])


def test_a_start_without_an_assistant_is_told(tiny_tree, tmp_path, capsys):
    stage = dict(tiny_tree["stages"][0], train="student", start="svd")
    tree = tiny_tree | {"assistant": None, "student": tiny_tree["teacher"], "stages": [stage]}
    run = Run(parse_recipe(tree, "tiny"), tmp_path / "run")
    run.prepare()
    run.load_learner(0, run.recipe.stages[0])
    assert "start: svd has no effect" in capsys.readouterr().err
