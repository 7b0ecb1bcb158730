"""Two processes and one with the same global batch: equal losses, for MSE, MCL and contrastive distillation."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

OBJECTIVES = {
    "mse": ["multilingual_mse"],
    "mcl": ["multilingual_contrastive", "multilingual_mse"],
    "ckd": [{"name": "contrastive_distillation", "options": {"bank": 64}}],
}


def losses(folder: Path, stage: str) -> list[float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if row.get("stage") == stage and "loss" in row]


@pytest.mark.parametrize(
    ("precision", "steps", "rel", "abs_"),
    # The guide's bfloat16 vectors and the student's products are rounded in other groups of rows: 8 bits, not 24.
    [("float32", 50, 1e-5, 1e-7), ("bfloat16", 10, 5e-2, 1e-3)],
)
def test_two_processes_equal_one(tiny_tree, tmp_path, precision, steps, rel, abs_):
    common = tiny_tree["stages"][0] | {"train": "student", "steps": steps, "evaluate_every": steps, "batch": 15}
    tree = tiny_tree | {
        "precision": precision,
        "student": tiny_tree["student"] | {"dropout": 0.0},
        "stages": [common | {"name": name, "objective": objective} for name, objective in OBJECTIVES.items()],
    }
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tree))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    for name, processes in (("one", 1), ("two", 2)):
        command = [
            sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}", "--master-addr=127.0.0.1",
            f"--master-port={port}", "-m", "msdc.cli", "--debug", "distill", str(recipe), "-o", str(tmp_path / name),
        ]  # fmt: skip
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr[-3000:]
    for stage in OBJECTIVES:
        one, two = losses(tmp_path / "one", stage), losses(tmp_path / "two", stage)
        # The bank fills up, so the contrastive loss may rise; a loss that stands still would prove nothing.
        assert len(one) == steps and len(set(one)) == steps
        assert two == pytest.approx(one, rel=rel, abs=abs_), stage
