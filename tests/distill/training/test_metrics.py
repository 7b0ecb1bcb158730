"""metrics.jsonl stays readable and says everything once, whatever was killed while it was written."""

import json

import pytest
from refusals import one_line

from msdc.bench.report.inputs import read_training
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.distill.run_folder import CLOCKS, Metrics


def rows(*steps, stage="one"):
    return [{"stage": stage, "step": step, "loss": 1.0} for step in steps]


@pytest.fixture
def metrics(tmp_path):
    made = Metrics(tmp_path / "metrics.jsonl")
    for row in rows(1, 2, 3):
        made.append(row)
    return made


@pytest.mark.parametrize("torn", [b'{"stage": "one", "st', b"{", b'{"stage": "\xc3'])
def test_torn_last_line(metrics, torn):
    with open(metrics.path, "ab") as handle:
        handle.write(torn)
    assert metrics.rows() == rows(1, 2, 3)
    metrics.mend()
    metrics.append(rows(4)[0])
    assert metrics.rows() == rows(1, 2, 3, 4)


def test_rewind_forgets_what_a_stage_says_again(metrics):
    metrics.append({"stage": "one", "done": {"step": 3.0}})
    metrics.append(rows(1, stage="two")[0])
    metrics.rewind("one", 2)
    assert metrics.rows() == [*rows(1, 2), *rows(1, stage="two")]
    metrics.rewind("one", -1)
    assert metrics.rows() == rows(1, stage="two")


@pytest.mark.parametrize("line", ["no json", "[1]", "{" * 100_000, '"\\udcff'])
def test_damaged_line_is_named(metrics, line):
    with open(metrics.path, "a") as handle:
        handle.write(line + "\n")
    metrics.append(rows(5)[0])
    assert "metrics.jsonl, line 4" in one_line(metrics.rows)


def test_resumed_after_a_torn_line(tiny_tree, tmp_path, monkeypatch):
    """A row half-written (a full disk, a power cut), then resumed: the rows are those of an uninterrupted run."""
    monkeypatch.setattr("msdc.distill.training.trainer.CHECKPOINT_SECONDS", 0.0)
    tiny_tree["stages"] = tiny_tree["stages"][:2]
    recipe = parse_recipe({**tiny_tree, "student": {**tiny_tree["student"], "dropout": 0.0}}, "tiny")
    distill(recipe, tmp_path / "whole")

    class Cut(Exception):
        pass

    def stop(self, row):
        append(self, row)
        if row.get("stage") == "two" and row.get("step") == 3:
            with open(self.path, "ab") as handle:
                handle.write(b'{"stage": "two", "step"')
            raise Cut

    append = Metrics.append
    with monkeypatch.context() as patch:
        patch.setattr(Metrics, "append", stop)
        with pytest.raises(Cut):
            distill(recipe, tmp_path / "cut")
    distill(recipe, tmp_path / "cut", resume=True)

    def timeless(folder):
        found = Metrics(folder / "metrics.jsonl").rows()
        for row in found:
            for part in (row, row.get("done", {})):
                for name in CLOCKS:
                    part.pop(name, None)
        return found

    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")
    assert [stage.name for stage in read_training(tmp_path / "cut")] == ["one", "two"]
    assert json.loads((tmp_path / "cut" / "result.json").read_text())["stages"].keys() == {"one", "two"}
