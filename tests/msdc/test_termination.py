"""SIGTERM ends the command line as an exception does: with its clean-up, and with nothing that goes on without it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import tiny_models as tiny

from msdc.bench.devices.web.browser import ENGINES
from msdc.errors import MsdcError
from msdc.machine import core_count

DEADLINE_S = 180
ENDLESS = ["--runs", "100000", "--warmup", "10000", "--lengths", "8", "--timeout", "600", "--tasks", "none"]
# Two devices at a time, as emulators are measured, each waiting for a program that starts a program.
PARALLEL = """
import sys
from msdc import cli
from msdc.bench.devices.base import run_devices
from msdc.bench.options import BenchSettings
from msdc.processes import run_program

class Sleeper:
    spec = kind = "sleeper"
    runs_in_parallel = True
    def run(self, bundle, settings):
        code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
        run_program([sys.executable, "-c", code], timeout_s=600)
        return []

cli._end_by_signals()
run_devices([Sleeper(), Sleeper()], None, BenchSettings())
"""


def start(words: list[str], folder: Path, **variables: str) -> subprocess.Popen:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    # Under nohup this process ignores SIGHUP, its children would inherit that, and msdc rightly keeps it.
    return subprocess.Popen(
        [sys.executable, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )  # fmt: skip


def own_temporary(folder: Path) -> dict[str, str]:
    """Temporary files go where a test can see what is left. (Chromium's socket needs a shorter path.)"""
    (folder / "tmp").mkdir()
    return {"TMPDIR": str(folder / "tmp")}


def below(process: subprocess.Popen, enough) -> list[psutil.Process]:
    """The processes below, once there are `enough`."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        if process.poll() is not None:
            raise AssertionError(process.stdout.read().decode())
        children = []
        for child in psutil.Process(process.pid).children(recursive=True):
            try:
                children.append((child, " ".join(child.cmdline())))
            except psutil.Error:
                continue
        if enough([line for _, line in children]):
            return [child for child, _ in children]
        time.sleep(0.1)
    raise AssertionError("what was to be interrupted did not start")


def terminate(process: subprocess.Popen, children: list[psutil.Process], number: int = signal.SIGTERM) -> str:
    """Send the signal; asserts that the exit code says so and that no child is left. Returns what was printed."""
    process.send_signal(number)
    out = process.communicate(timeout=DEADLINE_S)[0].decode()
    assert process.returncode == 128 + number, out
    _, alive = psutil.wait_procs(children, timeout=30)
    survivors = [child for child in alive if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    for child in survivors:
        child.kill()
    assert not survivors
    assert "Traceback" not in out
    return out


def test_a_measuring_process_ends_with_its_parent(tmp_path):
    bundle = tiny.bundle("fp32", "onnx")
    words = ["-m", "msdc.cli", "bench", str(bundle), "--device", "python", *ENDLESS]
    process = start(words, tmp_path, **own_temporary(tmp_path))
    children = below(process, lambda lines: any("python_worker" in line for line in lines))
    terminate(process, children, signal.SIGHUP)
    assert not list((tmp_path / "tmp").glob("msdc-*"))


def test_parallel_devices_end_with_their_parent(tmp_path):
    process = start(["-c", PARALLEL], tmp_path, **own_temporary(tmp_path))
    count = 2 * min(2, core_count())
    children = below(process, lambda lines: sum("time.sleep(600)" in line for line in lines) == count)
    terminate(process, children)
    assert not list((tmp_path / "tmp").glob("msdc-*"))


def test_a_browser_ends_with_its_parent(tmp_path):
    try:
        ENGINES["chromium"].program()
    except MsdcError as error:
        pytest.skip(str(error))
    bundle = tiny.bundle("fp32", "onnx")
    process = start(["-m", "msdc.cli", "bench", str(bundle), "--device", "browser", *ENDLESS], tmp_path)
    children = below(process, lambda lines: any("--type=renderer" in line for line in lines))
    assert len(children) > 3
    terminate(process, children)


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    code = (
        "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from msdc import cli\n"
        "cli._end_by_signals(); signal.raise_signal(signal.SIGHUP); print('here')\n"
        "signal.raise_signal(signal.SIGTERM); print('not here')\n"
    )
    process = start(["-c", code], tmp_path)
    assert process.communicate(timeout=DEADLINE_S)[0].decode().split() == ["here"]
    assert process.returncode == 143
