"""metrics.jsonl of a run: resumed rows, torn lines, the chosen checkpoint."""

import json

import pytest

from msdc.bench.report.inputs import read_training
from msdc.errors import InputError


def write(folder, rows, tail=""):
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + tail, encoding="utf-8")
    return folder


def test_stages_in_order_with_losses_and_choice(tmp_path):
    rows = [
        {"stage": "b-first", "step": 1, "epoch": 0, "loss": 3.0, "seconds": 1.5},
        {"stage": "b-first", "step": 2, "epoch": 0, "loss": 2.0, "seconds": 2.5},
        {"stage": "b-first", "step": 1, "epoch": 0, "evaluation": {"choice": 5.0, "heldout_mse": 0.1}},
        {"stage": "b-first", "step": 2, "epoch": 0, "evaluation": {"choice": 4.0, "heldout_mse": 0.2}},
        {"stage": "b-first", "done": {"step": 1.0}, "step": 2},
        {"stage": "a-second", "step": 1, "epoch": 0, "loss": 9.0, "seconds": 1.0},
    ]
    log = read_training(write(tmp_path, rows))
    assert [stage.name for stage in log] == ["b-first", "a-second"]
    first = log[0]
    assert first.losses == {1: 3.0, 2: 2.0} and first.steps == 2 and first.seconds == 2.5
    assert first.chosen() == (1, {"choice": 5.0, "heldout_mse": 0.1})
    assert log[1].chosen() is None


def test_a_resumed_run_counts_its_later_rows(tmp_path):
    rows = [{"stage": "s", "step": step, "loss": loss} for step, loss in [(1, 3.0), (2, 2.5), (1, 3.1), (2, 2.4)]]
    assert read_training(write(tmp_path, rows))[0].losses == {1: 3.1, 2: 2.4}


def test_a_torn_last_line_is_passed_over_a_torn_middle_one_is_not(tmp_path):
    rows = [{"stage": "s", "step": 1, "loss": 1.0}]
    assert len(read_training(write(tmp_path, rows, tail='{"stage": "s", "st'))) == 1
    with pytest.raises(InputError, match="line 2"):
        read_training(write(tmp_path, rows, tail='{"stage"\n{"stage": "s", "step": 2, "loss": 1.0}\n'))


def test_rows_about_a_stage_without_a_step_are_no_error(tmp_path):
    rows = [{"stage": "s", "step": 1, "loss": 1.0}, {"stage": "s", "done": {"seconds": 3.0}},
            {"stage": "s", "step": 2, "loss": 0.5}]  # fmt: skip
    assert read_training(write(tmp_path, rows))[0].steps == 2


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(InputError, match=r"metrics\.jsonl"):
        read_training(tmp_path)
