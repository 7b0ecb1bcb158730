"""The quick part of the rehearsal at full size: shards of three formats, a torn one, two machines, a kill."""

import json
import os
import sys

import pytest
import tiny_models
from programs import run

from msdc.compress.student.io import save_student
from msdc.files import PACKAGE


@pytest.mark.slow  # tests of tests/distill compare processes, kills and shards one by one
@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files in /proc")
def test_two_machines_and_a_killed_run_have_the_losses_of_one_process(tmp_path):
    script = PACKAGE.parent / "benchmarks" / "scale.py"
    if not script.is_file():
        pytest.skip("an installed package has no benchmarks")
    # Without dropout: processes draw other random numbers.
    save_student(tiny_models.student(dropout=0.0), tiny_models.tokenizer().path, tmp_path / "model")
    words = ("--pairs", 3000, "--shards", 6, "--steps", 6, "--batch", 12, "--processes", 1, "--quick")
    words += ("--model", tmp_path / "model", "--work", tmp_path / "work")
    printed = run(sys.executable, script, *words, cwd=tmp_path)
    (report,) = json.loads(next(line for line in printed.splitlines() if line.startswith("[{")))
    rows = {row["run"]: row for row in report["rows"]}
    assert set(rows) == {"first run, 1", "two machines", "killed"}
    # The processes of a machine differ in the rounding of their sums alone.
    assert all(row["difference"] < 1e-4 and row["files"] < 100 for row in rows.values()), rows
    assert report["feed"]["files"] < 100
    assert report["feed"]["pairs_per_second"] > 0
