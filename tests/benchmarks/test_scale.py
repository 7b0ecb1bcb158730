"""The quick part of the rehearsal at full size: shards of three formats, a torn one, two machines, a kill."""

import json
import os
import sys

import pytest
import tiny_models
from programs import run

from msdc.files import PACKAGE


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files in /proc")
def test_two_machines_and_a_killed_run_have_the_losses_of_one_process(tmp_path):
    script = PACKAGE.parent / "benchmarks" / "scale.py"
    if not script.is_file():
        pytest.skip("an installed package has no benchmarks")
    words = ("--pairs", 3000, "--shards", 6, "--steps", 6, "--batch", 12, "--processes", 1, "--quick")
    words += ("--model", tiny_models.student_folder(), "--work", tmp_path)
    (found,) = json.loads(run(sys.executable, script, *words, cwd=tmp_path).splitlines()[-1])
    rows = {row["run"]: row for row in found["rows"]}
    assert set(rows) == {"first run, 1", "two machines", "killed"}
    # The processes of a machine differ in the rounding of their sums alone.
    assert all(row["difference"] < 1e-4 and row["files"] < 100 for row in rows.values()), rows
