"""A run killed with SIGKILL at any moment and resumed equals the uninterrupted one, bit for bit.

The children are forked after the imports, so that ten kills cost seconds; nothing of the kill is simulated.
"""

from __future__ import annotations

import os
import random
import signal
import time
import traceback
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from weights import same_weights

from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.errors import InputError, MsdcError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a forked child; this system has no fork")


def in_child(recipe, folder: Path, kill_after: int | None, resume: bool) -> int:
    """Run the recipe in a forked child; SIGKILL it once metrics.jsonl has `kill_after` lines. Wait status."""
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            distill(recipe, folder, resume)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    metrics = folder / "metrics.jsonl"
    while True:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return status
        if kill_after is not None and metrics.is_file() and metrics.read_bytes().count(b"\n") >= kill_after:
            os.kill(child, signal.SIGKILL)
            return os.waitpid(child, 0)[1]
        time.sleep(0.003)


@pytest.fixture
def recipe(tiny_tree, monkeypatch):
    # A checkpoint after every step, so that a kill falls before, inside and after writing them.
    monkeypatch.setattr("msdc.distill.training.trainer.CHECKPOINT_SECONDS", 0.0)
    return parse_recipe(tiny_tree, "tiny")


def test_killed_at_random_points_and_resumed_equals_uninterrupted(recipe, tmp_path):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert in_child(recipe, whole, None, False) == 0
    lines = (whole / "metrics.jsonl").read_text().count("\n")
    assert lines > 30
    points = sorted(random.Random(11).sample(range(1, lines - 1), 6))
    for number, point in enumerate(points):
        status = in_child(recipe, broken, point, number > 0)
        assert os.WIFSIGNALED(status) or status == 0
    assert in_child(recipe, broken, None, True) == 0
    stages = sorted(path.name for path in (whole / "stages").iterdir())
    assert stages == ["0-one", "1-two", "2-three", "3-four"]
    for model in ["student", *(f"stages/{name}/model" for name in stages)]:
        assert same_weights(whole / model, broken / model), model
    assert not list(broken.rglob("*.partial"))


def test_a_coded_table_resumes_to_the_same_bits(tiny_tree, tmp_path, monkeypatch):
    """Assistant and student with the transplant's code; base and weights at their own rates; the end fake-quantized."""
    monkeypatch.setattr("msdc.distill.training.trainer.CHECKPOINT_SECONDS", 0.0)
    tiny_tree["assistant"] |= {"links": 3}
    one, *_, last = tiny_tree["stages"]
    rates = {"table_learning_rate": 3e-3, "code_learning_rate": 2e-3, "steps": 5}
    tiny_tree["stages"] = [one | rates, last | rates | {"quantize": "int8", "average": 0.5, "start_share": 0.25}]
    recipe = parse_recipe(tiny_tree, "tiny")
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert in_child(recipe, whole, None, False) == 0
    lines = (whole / "metrics.jsonl").read_text().count("\n")
    for number, point in enumerate((lines // 3, 2 * lines // 3)):
        in_child(recipe, broken, point, number > 0)
    assert in_child(recipe, broken, None, True) == 0
    start = load_file(whole / "student-start" / "model.safetensors")
    assert all(same_weights(whole / model, broken / model) for model in ("student", "stages/0-one/model"))
    # Base and weights were trained, the support was not.
    trained = load_file(whole / "student" / "model.safetensors")
    assert trained["embedding.code.index"].dtype == torch.int16
    assert torch.equal(trained["embedding.code.index"], start["embedding.code.index"])
    for name in ("embedding.code.weight", "embedding.table.weight"):
        assert not torch.equal(trained[name], start[name])


def test_a_damaged_checkpoint_is_named_and_the_good_one_offered(recipe, tmp_path):
    folder = tmp_path / "run"
    in_child(recipe, folder, 7, False)
    kept = sorted((folder / "stages" / "0-one" / "checkpoints").glob("step-*.pt"))
    assert len(kept) == 2
    kept[-1].write_bytes(kept[-1].read_bytes()[:-100])
    with pytest.raises(
        MsdcError, match=rf"{kept[-1].name}: this checkpoint is damaged; remove .* continue from {kept[0].name}"
    ):
        distill(recipe, folder, True)
    kept[-1].unlink()
    kept[-1].with_suffix(".json").unlink()
    distill(recipe, folder, True)
    assert (folder / "student" / "model.safetensors").is_file()


def test_a_run_folder_is_never_silently_reused(recipe, tiny_tree, tmp_path):
    folder = tmp_path / "run"
    in_child(recipe, folder, 3, False)
    with pytest.raises(InputError, match="pass --resume"):
        distill(recipe, folder)
    with pytest.raises(InputError, match=r"started with another recipe: seed: 1 then, 2 now\. Resume with"):
        distill({**tiny_tree, "seed": 2}, folder, True)
