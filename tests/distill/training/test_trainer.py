"""Training is the same in bfloat16, compiled, in one process and in two; and what a checkpoint is chosen by."""

import dataclasses
import itertools
import json
import math
from pathlib import Path

import pytest
import tiny_models
import torch
import yaml
from safetensors.torch import load_file
from torch_processes import together

from msdc.compress.student.io import save_student
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.data.graded import read_graded
from msdc.distill.parallel import resolve_precision
from msdc.distill.run import Run
from msdc.distill.run_folder import Metrics
from msdc.distill.training.validation import chosen_by
from msdc.errors import InputError
from msdc.machine import read_machine


def losses(folder: Path, stage: str) -> list[float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row.get("stage") == stage and "loss" in row]


CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("isa", "expected"),
    [
        (("avx", "avx2"), "float32"),
        (("asimd", "asimddp", "i8mm"), "float32"),
        (("avx2", "avx512f", "avx512_bf16"), "bfloat16"),
        (("avx512f", "amx_tile", "amx_bf16"), "bfloat16"),
        (("asimd", "bf16"), "bfloat16"),
    ],
)
def test_auto_follows_the_processor(monkeypatch, tiny_tree, tmp_path, isa, expected):
    machine = dataclasses.replace(read_machine(), isa=isa)
    monkeypatch.setattr("msdc.distill.parallel.read_machine", lambda: machine)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert resolve_precision("auto", CPU) == expected
    assert Run(parse_recipe(tiny_tree | {"precision": "auto"}, "tiny"), tmp_path).precision == expected
    for named in ("float32", "bfloat16"):
        assert resolve_precision(named, CPU) == named


@pytest.mark.parametrize(("supported", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_follows_the_gpu(monkeypatch, supported, expected):
    # A T4 or V100 emulates it, slower than float32.
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda including_emulation: including_emulation or supported)
    assert resolve_precision("auto", GPU) == expected


def test_bfloat16_training_follows_float32_and_repeats_itself(tiny_tree, tmp_path):
    """Losses within bfloat16's rounding of the float32 run; the same run twice gives the same losses."""
    stage = tiny_tree["stages"][3] | {"steps": 6}
    run_losses = {}
    for name, precision in (("float", "float32"), ("half", "bfloat16"), ("again", "bfloat16")):
        tree = tiny_tree | {"precision": precision, "stages": [stage], "cache": str(tmp_path / f"{name}-teachers")}
        distill(tree, tmp_path / name)
        run_losses[name] = losses(tmp_path / name, "four")
    assert len(run_losses["float"]) == 6
    assert run_losses["half"] != run_losses["float"]
    assert run_losses["half"] == pytest.approx(run_losses["float"], rel=5e-2)
    assert run_losses["again"] == run_losses["half"]


@pytest.fixture
def tree(tiny_tree) -> dict:
    # One layer and one objective: what is compiled costs most of the time.
    student = tiny_tree["student"] | {"dropout": 0.0, "repeats": 1}
    stage = tiny_tree["stages"][3] | {"steps": 4, "objective": "multilingual_mse", "source_share": 1.0}
    return tiny_tree | {"student": student, "stages": [stage]}


OBJECTIVES = {
    "mse": ["multilingual_mse"],
    "mcl": ["multilingual_contrastive", "multilingual_mse"],
    "ckd": [{"name": "contrastive_distillation", "options": {"bank": 64}}],
}


SCRIPT = """
import sys, torch
from msdc.distill import distill
torch.set_num_threads(1)
distill(sys.argv[1], sys.argv[2])
"""


def train(tree: dict, tmp_path: Path) -> None:
    """Train a recipe in this process (`one`) and in two (`two`)."""
    distill(tree, tmp_path / "one")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tree))
    outcomes = together(SCRIPT, str(recipe), str(tmp_path / "two"))
    assert [code for code, _ in outcomes] == [0, 0], outcomes


def test_two_processes_equal_one(tiny_tree, tmp_path):
    steps = 16
    common = tiny_tree["stages"][0] | {"train": "student", "steps": steps, "evaluate_every": steps, "batch": 15}
    tree = tiny_tree | {
        "student": tiny_tree["student"] | {"dropout": 0.0},
        "stages": [common | {"name": name, "objective": objective} for name, objective in OBJECTIVES.items()],
    }
    train(tree, tmp_path)
    for stage in OBJECTIVES:
        one_process, two_processes = losses(tmp_path / "one", stage), losses(tmp_path / "two", stage)
        # The bank fills up, so the contrastive loss may rise; a loss that stands still would prove nothing.
        assert len(one_process) == steps
        assert len(set(one_process)) == steps
        assert two_processes == pytest.approx(one_process, rel=1e-5, abs=1e-7), stage


def test_a_large_table_has_the_same_optimizer_in_one_and_in_two_processes(tiny_teacher, tiny_tree, tmp_path):
    # Clipped at every step (the norm of the gradient is far above 0.02), with a rate at which an unclipped or a lazy
    # optimizer would part from it within a few steps.
    folder = tmp_path / "large"
    large = tiny_models.student(vocabulary=120_000, dropout=0.0)
    save_student(large, tiny_models.tokenizer().path, folder)
    common = tiny_tree["stages"][0] | {"train": "student", "steps": 12, "evaluate_every": 12, "batch": 15, "clip": 0.02}
    stage = common | {"name": "mse", "objective": "multilingual_mse", "learning_rate": 0.01}
    train(tiny_tree | {"assistant": None, "student": str(folder), "stages": [stage]}, tmp_path)
    one_process, two_processes = losses(tmp_path / "one", "mse"), losses(tmp_path / "two", "mse")
    assert len(set(one_process)) == 12
    assert two_processes == pytest.approx(one_process, rel=1e-5)
    models = [load_file(tmp_path / name / "student" / "model.safetensors") for name in ("one", "two")]
    table = "embedding.table.weight"
    assert len(models[0][table]) == 120_000
    assert not torch.equal(models[0][table], large.embedding.table.weight)
    for name, value in models[0].items():
        torch.testing.assert_close(models[1][name], value, atol=2e-4, rtol=1e-3)


def write(tmp_path, name, rows=9):
    path = tmp_path / name
    path.write_text("".join(f"{i % 6}\tone {i}\ttwo {i}\n" for i in range(rows)))
    return str(path)


@pytest.mark.parametrize("name", ["sts-test.tsv", "STS2017.en-en.tsv", "STS12.MSRpar.tsv", "STSb.en-de.test.tsv"])
def test_test_sets_may_be_reported_but_never_chosen_by(tmp_path, name):
    path = write(tmp_path, name)
    with pytest.raises(InputError, match="a test set must not choose"):
        read_graded(path)
    assert read_graded(path, choosing=False).name == name.removesuffix(".tsv")


def test_a_limit_takes_pairs_evenly(tmp_path):
    graded = read_graded(write(tmp_path, "sts-dev.tsv", 30), limit=10)
    assert graded.first == [f"one {i}" for i in range(0, 30, 3)]


@pytest.mark.parametrize(("choose", "expected"), [("graded", 60.0), ("heldout", -20.0), ("auto", 55.0)])
def test_what_is_chosen_by(choose, expected):
    assert chosen_by(choose, 4, 0.01, 3.0, 60.0) == pytest.approx(expected)
    assert chosen_by(choose, 4, None, 3.0, None) == 3.0


def test_a_limit_of_time_ends_every_stage_in_good_order(tiny_tree, tmp_path, monkeypatch, capsys):
    """A clock that moves by a second at each look: stages share the time by their pairs, the rate falls within it."""
    seconds = itertools.count()
    monkeypatch.setattr("msdc.distill.training.trainer.time.monotonic", lambda: float(next(seconds)))
    stages = [tiny_tree["stages"][n] | {"steps": steps, "evaluate_every": 10**6} for n, steps in ((0, 3000), (3, 9000))]
    folder = tmp_path / "run"
    result = distill(tiny_tree | {"stages": stages}, folder, hours=0.2)
    taken = [result.stages[name]["steps_taken"] for name in ("one", "four")]
    assert 0 < taken[0] < taken[1] < 720
    messages = capsys.readouterr().err
    assert all(
        f"{name}: ends after {steps:.0f} of " in messages for name, steps in zip(("one", "four"), taken, strict=True)
    )
    rows = [row for row in Metrics(folder / "metrics.jsonl").rows() if row.get("stage") == "four"]
    assert sum("evaluation" in row for row in rows) == 1
    assert result.student.is_dir()
    rates = [row["learning_rate"] for row in rows if "learning_rate" in row]
    assert rates[-1] < 0.05 * stages[1]["learning_rate"]
    # It is finished: the same command trains nothing more.
    assert distill(tiny_tree | {"stages": stages}, folder, True).stages == result.stages


@pytest.mark.parametrize("hours", [0, -1, math.nan])
def test_a_limit_of_time_is_above_0(tiny_tree, tmp_path, hours):
    with pytest.raises(InputError, match="`hours`"):
        distill(tiny_tree, tmp_path / "run", hours=hours)
