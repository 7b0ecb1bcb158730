"""Memory as the kernel counts it: parsed right, and moving as allocations do."""

import json
import subprocess
import sys

import pytest

from msdc.bench.devices.python_worker import read_memory
from msdc.errors import MsdcError

STATUS = "Name:\tmsdc\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\nThreads:\t4\n"
ROLLUP = "55d0-7ffe ---p 00000000 00:00 0  [rollup]\nRss:  102400 kB\nPss:  81920 kB\nAnonymous:  61440 kB\n"


def test_fields_and_units(tmp_path):
    (tmp_path / "status").write_text(STATUS)
    (tmp_path / "smaps_rollup").write_text(ROLLUP)
    found = {"vmhwm_mib": 200.0, "pss_mib": 80.0, "anon_mib": 60.0, "file_mib": 40.0}
    assert read_memory(tmp_path).model_dump() == found
    (tmp_path / "smaps_rollup").write_text("Rss: 5 kB\n")
    with pytest.raises(MsdcError, match="memory cannot be measured"):
        read_memory(tmp_path)


@pytest.mark.parametrize("by_psutil", [False, True])
def test_a_touched_array_is_anonymous_memory(tmp_path, by_psutil):
    """In a process of its own: what earlier tests have freed must not move the figures."""
    code = (
        "import sys, json, numpy as np; from pathlib import Path; from msdc.bench.devices.python_worker import *\n"
        "place = [Path(word) for word in sys.argv[1:]]; before = read_memory(*place)\n"
        "block = np.ones(64 * 2**20 // 8); after = read_memory(*place)\n"
        "print(json.dumps([before.model_dump(), after.model_dump()]))"
    )
    command = [sys.executable, "-c", code, *[str(tmp_path)] * by_psutil]
    before, after = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert after["anon_mib"] - before["anon_mib"] == pytest.approx(64, abs=4)
    assert by_psutil or abs(after["file_mib"] - before["file_mib"]) < 4
    assert (after["pss_mib"] is None) == by_psutil and after["vmhwm_mib"] >= after["anon_mib"]


def test_the_peak_starts_again():
    code = (
        "import numpy as np; from msdc.bench.devices.python_worker import *\n"
        "np.ones(64 * 2**20 // 8).sum(); before = read_memory(); done = reset_peak(); after = read_memory()\n"
        "print(int(done), before.vmhwm_mib - after.vmhwm_mib)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    if out[0] == "0":
        pytest.skip("this kernel lets no process reset its peak")
    assert float(out[1]) > 50
