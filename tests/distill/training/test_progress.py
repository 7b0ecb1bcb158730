"""Progress of a stage on standard error: lines without a terminal, a bar in one, rows while the buffer fills."""

from __future__ import annotations

import io
import json
import re
import sys

from msdc.distill import distill
from msdc.distill.training.progress import StageProgress, _duration


class Clock:
    """Seconds that a test sets."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_line_every_thirty_seconds(capsys):
    clock = Clock()
    with StageProgress("teach", 100, clock=clock) as progress:
        clock.now = 10
        progress.reading(4096)
        clock.now = 31
        progress.reading(8192)
        assert capsys.readouterr().err == "teach: reading the corpora, 8,192 rows\n"
        for step in range(1, 41):
            clock.now = 60 + step
            progress.step(step, 1.0 if step <= 20 else 0.5, 2e-5, 64)
    lines = capsys.readouterr().err.splitlines()
    # 30 seconds after the first step: 30 more steps of one second, 69 remain.
    assert lines == ["teach: step 31/100, loss 0.8226, lr 2e-05, 64 sentences/s, 1 min left"]


def test_other_processes_are_silent(capsys):
    clock = Clock()
    with StageProgress("teach", 10, enabled=False, clock=clock) as progress:
        for step in range(1, 10):
            clock.now += 100
            progress.reading(step)
            progress.step(step, 1.0, 1e-3, 8)
    assert capsys.readouterr().err == ""


def test_a_terminal_has_a_bar(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    clock = Clock()
    with StageProgress("teach", 10, clock=clock) as progress:
        progress.reading(4096)
        for step in range(1, 8):
            clock.now += 1
            progress.step(step, 0.25, 1e-3, 8)
        progress._bar.refresh()
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", terminal.getvalue())
    assert "7/10" in shown and "loss 0.25, lr 0.001, 8 sentences/s, 3 s left" in shown


def test_durations():
    assert [_duration(seconds) for seconds in (3.4, 200, 11_100)] == ["3 s", "3 min", "3 h 05 min"]


def test_a_run_tells_loss_and_speed(monkeypatch, capsys, tiny_tree, tmp_path):
    monkeypatch.setitem(StageProgress.__init__.__kwdefaults__, "seconds", 0.0)
    monkeypatch.setattr("msdc.distill.data.stream.BLOCK", 16)
    distill(tiny_tree | {"stages": tiny_tree["stages"][3:]}, tmp_path / "run")
    told = capsys.readouterr().err
    assert re.search(
        r"four: step \d/9, loss \S+ \(multilingual_contrastive \S+, multilingual_mse \S+\), lr \S+, "
        r"[\d,]+ sentences/s, \d+ s left",
        told,
    )
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert sum("loss" in row for row in rows) == 9
    assert all(0 < row["learning_rate"] <= 1e-3 for row in rows if "loss" in row)
