"""Objectives of the user: a function in a file, or of an installed package; the example of the guide."""

import json
import re
import shutil

import pytest
import torch
import yaml
from click.testing import CliRunner
from markdown import blocks
from places import ROOT
from torch_processes import together
from weights import same_weights

from msdc.commands.distill import command
from msdc.distill import distill
from msdc.distill.catalog import load_recipe
from msdc.distill.objectives import find_objective, own
from msdc.distill.objectives import kd as shipped_kd
from msdc.distill.run_folder import Metrics
from msdc.errors import InputError, MsdcError

(EXAMPLE,) = (block.text for block in blocks(ROOT / "docs/guides/train.md", "python") if "barlow_twins" in block.text)
(STAGES,) = (block.text for block in blocks(ROOT / "docs/guides/train.md", "yaml") if "barlow_twins" in block.text)
KD = "def kd(teacher_BD, student_BD):\n    return (teacher_BD - student_BD).square().mean()\n"


@pytest.fixture
def recipe(tiny_tree, tmp_path):
    """The guide's file and its stage in a folder of their own; the path of the recipe."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "my_losses.py").write_text(EXAMPLE)
    (stage,) = yaml.safe_load(STAGES)["stages"]
    tree = tiny_tree | {"stages": [tiny_tree["stages"][3] | {"source_share": 1.0} | stage | {"steps": 6}]}
    (folder / "mine.yaml").write_text(yaml.safe_dump(tree))
    return folder / "mine.yaml"


def write(recipe, code: str, *names: str) -> None:
    """Other code, and a stage with these functions of it."""
    (recipe.parent / "my_losses.py").write_text(code)
    tree = yaml.safe_load(recipe.read_text())
    tree["stages"][0]["objective"] = [f"my_losses.py:{name}" for name in names]
    recipe.write_text(yaml.safe_dump(tree))


def test_the_guides_example_trains(recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path is relative to the recipe
    dry = CliRunner().invoke(command, ["project/mine.yaml", "--dry-run"], catch_exceptions=False)
    assert "0.1 my_losses.py:barlow_twins(redundancy=0.01)" in dry.output
    assert not (tmp_path / "run").exists()
    done = distill("project/mine.yaml", tmp_path / "run")
    assert done.stages["train"]["share_my_losses.py:barlow_twins"] == 1.0
    card = (done.student / "README.md").read_text()
    assert "my_losses.py:barlow_twins" in card
    assert str(recipe.parent) not in card
    names = list(json.loads((tmp_path / "run" / "inputs.json").read_text()))
    assert f"file {recipe.parent / 'my_losses.py'}" in names
    # What is trained is this function: its weight counts.
    other = distill(
        "project/mine.yaml", tmp_path / "other", overrides=["stages.train.objective.0.options.redundancy=1"]
    )
    assert not same_weights(done.student, other.student)


def test_the_guides_example_is_the_papers_loss():
    space: dict = {}
    exec(EXAMPLE, space)
    generator = torch.Generator().manual_seed(1)
    first_view, second_view = (torch.randn(9, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    correlation = torch.zeros(4, 4, dtype=torch.float64)
    for row in range(4):
        for column in range(4):
            first_column, second_column = (
                (x - x.mean()) / (x.std() + 1e-6) for x in (first_view[:, row], second_view[:, column])
            )
            correlation[row, column] = (first_column * second_column).sum() / 9
    expected = sum((1 - correlation[i, i]) ** 2 for i in range(4))
    expected += 0.005 * sum(correlation[i, j] ** 2 for i in range(4) for j in range(4) if i != j)
    assert space["barlow_twins"](first_view, second_view).item() == pytest.approx(expected.item(), rel=1e-9)


def test_a_run_is_resumed_with_the_same_function_only(recipe, tmp_path, monkeypatch):
    uninterrupted = distill(recipe, tmp_path / "whole")
    monkeypatch.setattr("msdc.distill.training.trainer.CHECKPOINT_SECONDS", 0)
    append, logged = Metrics.append, []

    def stop(self, row):
        logged.append(row)
        if len(logged) == 4:
            raise KeyboardInterrupt
        append(self, row)

    monkeypatch.setattr(Metrics, "append", stop)
    with pytest.raises(KeyboardInterrupt):
        distill(recipe, tmp_path / "run")
    monkeypatch.setattr(Metrics, "append", append)
    (recipe.parent / "my_losses.py").write_text(EXAMPLE + "\n# another content\n")
    with pytest.raises(InputError, match=r"started with other inputs: file .*my_losses\.py: changed"):
        distill(recipe, tmp_path / "run", resume=True)
    # The same content at another place is the same.
    (recipe.parent / "my_losses.py").write_text(EXAMPLE)
    moved = shutil.move(recipe.parent, tmp_path / "moved")
    done = distill(moved / "mine.yaml", tmp_path / "run", resume=True)
    assert same_weights(done.student, uninterrupted.student)


def test_a_file_that_is_changed_during_a_run_changes_nothing(recipe):
    write(recipe, KD, "kd")
    name = load_recipe(recipe).stages[0].objective[0].name
    batch = {"teacher_BD": torch.ones(2, 3), "student_BD": torch.zeros(2, 3)}
    assert find_objective(name, fresh=True)(batch).item() == 1
    before = find_objective(name).content
    (recipe.parent / "my_losses.py").write_text(KD.replace("mean()", "mean() * 7"))
    assert find_objective(name)(batch).item() == 1
    assert find_objective(name).content == before
    assert find_objective(name, fresh=True)(batch).item() == 7
    assert find_objective(name).content != before


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (KD.replace("):", ")"), r"my_losses\.py, line 1: SyntaxError: expected ':'"),
        ("import torch\nimport nosuch\n" + KD, r"my_losses\.py, line 2: ModuleNotFoundError: No module named 'nosuch'"),
        ("kd = 3\n", r"my_losses\.py: kd is a int, not a function"),
        (KD.replace("def kd", "def kdd"), r"my_losses\.py: no function 'kd'; did you mean 'kdd'\?"),
        ("def kd(teacher_BD, student_BD):\n    x = 1\n    return x.nothing\n",
         r"stage train: .*my_losses\.py, line 3: AttributeError: 'int' object has no attribute 'nothing'"),
        ("def kd(teacher_BD, student_BD):\n    return student_BD\n",
         r"my_losses\.py:kd returns a tensor of shape \[3, 4\], expected a scalar"),
        ("def kd(student_BD):\n    return 1.0\n", r"returns float, expected a scalar tensor"),
        ("def kd(techer_BD, student_BD):\n    pass\n",
         r"parameter techer_BD is no tensor of a stage; did you mean 'teacher_BD'\?"),
        ("def kd(student_BD, power=None):\n    pass\n", r"power is no tensor .*needs a default other than None"),
        ("def kd(student_BD, *more):\n    pass\n", r"\*more: parameters are passed by name"),
        ("def kd(student_BD, label_B):\n    return student_BD.sum()\n", r"kd needs labels: set `kind: nli-pairs`"),
        (None, r"my_losses\.py: no such file"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(recipe, tmp_path, code, message):
    write(recipe, code or KD, "kd")
    if code is None:
        (recipe.parent / "my_losses.py").unlink()
    for work in (lambda: distill(recipe, tmp_path / "run"), lambda: run_dry(recipe)):
        with pytest.raises(InputError, match=message) as caught:
            work()
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def run_dry(recipe):
    done = CliRunner().invoke(command, [str(recipe), "--dry-run"])
    raise done.exception


def test_an_error_during_training_has_its_place(recipe, tmp_path):
    # The check before a run has three rows.
    code = "def kd(teacher_BD, student_BD):\n    if len(student_BD) > 3:\n        raise RuntimeError('too many')\n"
    write(recipe, f"{code}    return student_BD.sum()\n", "kd")
    with pytest.raises(MsdcError, match=r"my_losses\.py, line 3: RuntimeError: too many"):
        distill(recipe, tmp_path / "run")


def test_a_name_of_a_package(recipe, tmp_path, monkeypatch):
    site = tmp_path / "site"
    (site / "losses-1.dist-info").mkdir(parents=True)
    (site / "losses-1.dist-info" / "METADATA").write_text("Name: losses\nVersion: 1\n")
    (site / "losses-1.dist-info" / "entry_points.txt").write_text(
        "[msdc.objectives]\nsquared = losses_of_a_package:kd\nkd = losses_of_a_package:kd\ngone = nosuch_package:kd\n"
    )
    (site / "losses_of_a_package.py").write_text(KD)
    monkeypatch.syspath_prepend(site)
    own.plugins.cache_clear()
    tree = yaml.safe_load(recipe.read_text())
    tree["stages"][0]["objective"] = "squared"
    recipe.write_text(yaml.safe_dump(tree))
    done = distill(recipe, tmp_path / "run")
    assert done.stages["train"]["share_squared"] == 1.0
    assert f"file {site / 'losses_of_a_package.py'}" in json.loads((tmp_path / "run" / "inputs.json").read_text())
    warned = []
    monkeypatch.setattr("msdc.distill.objectives.registry.warn", warned.append)
    assert find_objective("kd", fresh=True).function is shipped_kd
    assert re.match("objective kd: the shipped one is used, not losses_of_a_package:kd", warned[0])
    with pytest.raises(InputError, match="objective gone: nosuch_package:kd cannot be imported: No module"):
        find_objective("gone")
    with pytest.raises(InputError, match=r"unknown objective 'squares'; known: .*squared.*losses\.py:NAME"):
        find_objective("squares")
    own.plugins.cache_clear()


SCRIPT = """
import sys, torch
from msdc.distill import distill
torch.set_num_threads(1)
distill(sys.argv[1], sys.argv[2], overrides=["student.dropout=0"])
"""


def test_two_processes_train_with_it_as_one_does(recipe, tmp_path):
    write(recipe, KD, "kd")
    single_run = distill(
        recipe, tmp_path / "one", overrides=["student.dropout=0"]
    )  # its random numbers are of each process
    outcomes = together(SCRIPT, str(recipe), str(tmp_path / "two"))
    assert [code for code, _ in outcomes] == [0, 0], outcomes
    losses = [
        [row["loss"] for row in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()) if "loss" in row]
        for folder in (single_run.folder, tmp_path / "two")
    ]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
