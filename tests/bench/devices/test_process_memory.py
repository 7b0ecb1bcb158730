"""Memory as the kernel counts it: parsed right, and moving as allocations do."""

import subprocess
import sys

import numpy as np
import pytest

from msdc.bench.devices.process_memory import memory_of, read_memory
from msdc.errors import MsdcError

STATUS = "Name:\tmsdc\nVmHWM:\t  204800 kB\nVmRSS:\t  102400 kB\nThreads:\t4\n"
ROLLUP = "55d0-7ffe ---p 00000000 00:00 0  [rollup]\nRss:  102400 kB\nPss:  81920 kB\nAnonymous:  61440 kB\n"


def test_fields_and_units():
    phase = memory_of(STATUS, ROLLUP)
    assert phase.model_dump() == {"vmhwm_mib": 200.0, "pss_mib": 80.0, "anon_mib": 60.0, "file_mib": 40.0}


def test_a_kernel_without_a_field_is_said():
    with pytest.raises(MsdcError, match="memory cannot be measured"):
        memory_of(STATUS, "Rss: 5 kB\n")


def test_a_touched_array_is_anonymous_memory():
    before = read_memory()
    block = np.ones(64 * 2**20 // 8)
    after = read_memory()
    assert after.anon_mib - before.anon_mib == pytest.approx(64, abs=4)
    assert abs(after.file_mib - before.file_mib) < 4
    assert block[0] == 1


def test_without_proc_psutil_answers(tmp_path):
    before = read_memory(tmp_path)
    block = np.ones(64 * 2**20 // 8)
    after = read_memory(tmp_path)
    assert before.pss_mib is None and after.vmhwm_mib >= after.anon_mib
    assert after.anon_mib - before.anon_mib == pytest.approx(64, abs=4)
    assert block[0] == 1


def test_the_peak_starts_again():
    code = (
        "import numpy as np; from msdc.bench.devices.process_memory import *\n"
        "np.ones(64 * 2**20 // 8).sum(); before = read_memory(); done = reset_peak(); after = read_memory()\n"
        "print(int(done), before.vmhwm_mib - after.vmhwm_mib)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    if out[0] == "0":
        pytest.skip("this kernel lets no process reset its peak")
    assert float(out[1]) > 50
