"""Two processes and one with the same global batch: equal losses, for MSE, MCL and contrastive distillation.

With a table as large as XLM-R's too, which must be optimized and clipped by the same rule.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_models
import torch
import yaml
from safetensors.torch import load_file

from msdc.compress.student.io import save_student
from msdc.distill import distill

OBJECTIVES = {
    "mse": ["multilingual_mse"],
    "mcl": ["multilingual_contrastive", "multilingual_mse"],
    "ckd": [{"name": "contrastive_distillation", "options": {"bank": 64}}],
}


def losses(folder: Path, stage: str) -> list[float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row.get("stage") == stage and "loss" in row]


def train(tree: dict, tmp_path: Path) -> None:
    """Train a recipe in this process (`one`) and in two (`two`)."""
    distill(tree, tmp_path / "one")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tree))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "--master-addr=127.0.0.1",
        f"--master-port={port}", "-m", "msdc.cli", "--debug", "distill", str(recipe), "-o", str(tmp_path / "two"),
    ]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]


def test_two_processes_equal_one(tiny_tree, tmp_path):
    steps = 16
    common = tiny_tree["stages"][0] | {"train": "student", "steps": steps, "evaluate_every": steps, "batch": 15}
    tree = tiny_tree | {
        "student": tiny_tree["student"] | {"dropout": 0.0},
        "stages": [common | {"name": name, "objective": objective} for name, objective in OBJECTIVES.items()],
    }
    train(tree, tmp_path)
    for stage in OBJECTIVES:
        one, two = losses(tmp_path / "one", stage), losses(tmp_path / "two", stage)
        # The bank fills up, so the contrastive loss may rise; a loss that stands still would prove nothing.
        assert len(one) == steps and len(set(one)) == steps
        assert two == pytest.approx(one, rel=1e-5, abs=1e-7), stage


def test_a_large_table_has_the_same_optimizer_in_one_and_in_two_processes(tiny_teacher, tiny_tree, tmp_path):
    # Clipped at every step (the norm of the gradient is far above 0.02), with a rate at which an unclipped or a lazy
    # optimizer would part from it within a few steps.
    folder = tmp_path / "large"
    large = tiny_models.student(vocabulary=120_000, dropout=0.0)
    save_student(large, tiny_models.tokenizer().path, folder)
    common = tiny_tree["stages"][0] | {"train": "student", "steps": 12, "evaluate_every": 12, "batch": 15, "clip": 0.02}
    stage = common | {"name": "mse", "objective": "multilingual_mse", "learning_rate": 0.01}
    train(tiny_tree | {"assistant": None, "student": str(folder), "stages": [stage]}, tmp_path)
    one, two = losses(tmp_path / "one", "mse"), losses(tmp_path / "two", "mse")
    assert len(set(one)) == 12 and two == pytest.approx(one, rel=1e-5)
    models = [load_file(tmp_path / name / "student" / "model.safetensors") for name in ("one", "two")]
    table = "embedding.table.weight"
    assert len(models[0][table]) == 120_000 and not torch.equal(models[0][table], large.embedding.table.weight)
    for name, value in models[0].items():
        torch.testing.assert_close(models[1][name], value, atol=2e-4, rtol=1e-3)
