"""What `precision: auto` means on each kind of machine, and that bfloat16 teaches what float32 teaches."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch

from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.run import Run, resolve_precision
from msdc.machine import read_machine

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
    monkeypatch.setattr("msdc.distill.run.read_machine", lambda: machine)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert resolve_precision("auto", CPU) == expected
    assert Run(parse_recipe(tiny_tree | {"precision": "auto"}, "tiny"), tmp_path).precision == expected
    for named in ("float32", "bfloat16"):
        assert resolve_precision(named, CPU) == named


@pytest.mark.parametrize(("supported", "expected"), [(True, "bfloat16"), (False, "float32")])
def test_auto_follows_the_gpu(monkeypatch, supported, expected):
    monkeypatch.setattr("torch.cuda.is_bf16_supported", lambda: supported)
    assert resolve_precision("auto", GPU) == expected


def test_bfloat16_training_follows_float32_and_repeats_itself(tiny_tree, tmp_path):
    """Losses within bfloat16's rounding of the float32 run; the same run twice gives the same losses."""
    stage = tiny_tree["stages"][3] | {"steps": 6}
    losses = {}
    for name, precision in (("float", "float32"), ("half", "bfloat16"), ("again", "bfloat16")):
        tree = tiny_tree | {"precision": precision, "stages": [stage], "cache": str(tmp_path / f"{name}-guides")}
        distill(tree, tmp_path / name)
        rows = [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        losses[name] = [row["loss"] for row in rows if "loss" in row]
    assert len(losses["float"]) == 6 and losses["half"] != losses["float"]
    assert losses["half"] == pytest.approx(losses["float"], rel=5e-2)
    assert losses["again"] == losses["half"]
