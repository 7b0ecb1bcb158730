"""metrics.jsonl stays readable and says everything once, whatever was killed while it was written."""

import pytest
from refusals import one_line

from msdc.distill.run_folder import Metrics


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
