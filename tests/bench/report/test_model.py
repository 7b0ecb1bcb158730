"""metrics.jsonl of a run: resumed rows, the chosen checkpoint; torn lines are tested with `Metrics` itself."""

import json

import pytest

from msdc.bench.report.model import read_training
from msdc.errors import InputError


def stages(folder, rows):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_training(folder)


def test_stages_in_order_with_losses_and_choice(tmp_path):
    first, second = stages(tmp_path, [
        {"stage": "b-first", "step": 1, "epoch": 0, "loss": 3.0, "seconds": 1.5},
        {"stage": "b-first", "step": 2, "epoch": 0, "loss": 2.0, "seconds": 2.5},
        {"stage": "b-first", "step": 1, "epoch": 0, "evaluation": {"choice": 5.0, "heldout_mse": 0.1}},
        {"stage": "b-first", "step": 2, "epoch": 0, "evaluation": {"choice": 4.0, "heldout_mse": 0.2}},
        {"stage": "b-first", "done": {"step": 1.0}, "step": 2},
        {"stage": "a-second", "step": 1, "epoch": 0, "loss": 9.0, "seconds": 1.0},
        {"stage": "a-second", "done": {"seconds": 3.0}},
    ])  # fmt: skip
    assert (first.name, first.losses, first.steps, first.seconds) == ("b-first", {1: 3.0, 2: 2.0}, 2, 2.5)
    assert first.chosen() == (1, {"choice": 5.0, "heldout_mse": 0.1})
    assert second.name == "a-second"
    assert second.steps == 1
    assert second.chosen() is None


def test_a_resumed_run_counts_its_later_rows_and_other_folders_are_refused(tmp_path):
    rows = [{"stage": "s", "step": step, "loss": loss} for step, loss in [(1, 3.0), (2, 2.5), (1, 3.1), (2, 2.4)]]
    assert stages(tmp_path, rows)[0].losses == {1: 3.1, 2: 2.4}
    with pytest.raises(InputError, match=r"metrics\.jsonl"):
        read_training(tmp_path / "none")
