"""Every way a device can fail, against a real adbd: a clear line, exit code 1, nothing left on the device."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from msdc.bench.devices import adb as adb_device
from msdc.bench.devices import open_devices
from msdc.bench.devices.adb import AdbDevice, DeviceGone, RemoteFolder, connect
from msdc.bench.devices.base import run_devices
from msdc.bench.devices.emulator import EmulatorMachine
from msdc.bench.options import BenchSettings
from msdc.bench.toolchain.build import build_runner
from msdc.errors import InputError, MsdcError

LOOK = "ls -d /data/local/tmp/msdc-run-* 2>/dev/null; ps | grep -E 'msdc-runner|msdc-test' | grep -v grep; true"


def settings(**changes) -> BenchSettings:
    usual = {"lengths": (8,), "runs": 2, "warmup": 0, "runtime": "executorch", "timeout_s": 60, "tasks": ()}
    return BenchSettings(**usual | changes)


def script(folder: Path, text: str) -> Path:
    """A runner that is a shell script."""
    path = folder / "msdc-test-runner"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def once_running(machine, act, timeout_s: float = 30) -> threading.Thread:
    """A thread that calls `act` when the runner runs."""

    def watch() -> None:
        end = time.monotonic() + timeout_s
        while "msdc-test" not in machine.adb.shell("ps").output:
            assert time.monotonic() < end, "the runner never started"
            time.sleep(0.2)
        act()

    thread = threading.Thread(target=watch)
    thread.start()
    return thread


@pytest.fixture
def clean(phone):
    """The phone, with the promise that a test leaves it as it was."""
    connect(phone.serial, phone.adb.program)
    yield phone
    connect(phone.serial, phone.adb.program)
    # busybox's `timeout` notices within a second that what it watches is gone.
    end = time.monotonic() + 5
    while (leftovers := phone.adb.shell(LOOK).output.strip()) and time.monotonic() < end:
        time.sleep(0.3)
    assert leftovers == ""


def fails(machine, bundle: Path, runner: Path | None, **changes) -> MsdcError:
    with pytest.raises(MsdcError) as caught:
        AdbDevice(machine.serial).run(bundle, settings(runner=runner, **changes))
    assert caught.value.exit_code == 1
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_phone_is_measured_and_left_as_it_was(clean, tiny_bundle):
    (run,) = AdbDevice(clean.serial).run(tiny_bundle, settings(tasks=("graded-pairs",)))
    assert run.clock == "wall"
    assert run.device.kind == "adb"
    assert run.harness == "native"
    assert run.device.isa == ("asimd", "asimdhp", "fphp", "asimddp")
    assert run.parity is not None
    assert run.parity.min_cosine > 0.999
    assert run.parity.ids_equal
    assert run.parity.texts >= 60
    assert run.accuracy[0].pairs
    assert run.accuracy[0].pairs > 50
    assert run.state_before is not None
    assert run.state_before.load_1min is not None


def test_device_dies_and_the_results_of_others_are_kept(emulator_image, tiny_bundle, tmp_path):
    # The power goes once the runner runs; the host's own run is not touched by that.
    with EmulatorMachine(emulator_image, "a76", count=False) as machine:
        runner = script(tmp_path, "sleep 600")
        thread = once_running(machine, machine.power_off)
        adb_device.COME_BACK_S, patience = 1.0, adb_device.COME_BACK_S
        try:
            error = fails(machine, tiny_bundle, runner)
        finally:
            adb_device.COME_BACK_S = patience
            thread.join()
        assert "went away" in str(error)
        assert "could not be removed" in str(error)
        runs, failures = run_devices(open_devices(f"host,adb:{machine.serial}"), tiny_bundle, settings())
    assert [run.device.kind for run in runs] == ["host"]
    assert len(failures) == 1
    assert machine.serial in failures[0]


def test_adb_server_restarts_mid_run(clean, tiny_bundle, tmp_path):
    kill = [clean.adb.program, "kill-server"]
    thread = once_running(clean, lambda: subprocess.run(kill, check=True, capture_output=True, timeout=30))
    error = fails(clean, tiny_bundle, script(tmp_path, "sleep 600"))
    thread.join()
    # Connected again by itself, ended what ran, removed its folder (the fixture looks).
    assert "went away while a command ran" in str(error)
    assert "could not be removed" not in str(error)


def test_disk_that_fills_up_while_files_are_copied(clean, tmp_path):
    big = tmp_path / "big"
    big.write_bytes(b"x" * (24 << 20))
    free = int(clean.adb.shell("df -m /data | tail -n 1").output.split()[3])
    clean.adb.shell(f"dd if=/dev/zero of=/data/fill bs=1M count={free - 8} 2>/dev/null", timeout_s=120)
    try:
        with RemoteFolder(clean.adb, "full") as folder, pytest.raises(MsdcError, match="disk is full"):
            folder.push([big])
    finally:
        clean.adb.shell("rm -f /data/fill")


def test_answer_that_does_not_fit_on_the_disk(clean, tiny_bundle, monkeypatch):
    # Room for the files, none for the vectors that the runner writes.
    real = RemoteFolder.check

    def fill(self, files, folder=""):
        real(self, files, folder)
        if folder:
            self.adb.shell("dd if=/dev/zero of=/data/fill bs=4k count=1000000 2>/dev/null", timeout_s=120)

    monkeypatch.setattr(RemoteFolder, "check", fill)
    try:
        assert "disk is full" in str(fails(clean, tiny_bundle, None))
    finally:
        clean.adb.shell("rm -f /data/fill")


def test_runner_killed_for_want_of_memory(clean, tiny_bundle, tmp_path):
    source = tmp_path / "eat.c"
    source.write_text(
        "#include <stdlib.h>\n#include <string.h>\n"
        "int main(void) { for (;;) { char *p = malloc(1 << 20); if (p) memset(p, 1, 1 << 20); } }\n"
    )
    runner = tmp_path / "msdc-test-eater"
    subprocess.run(["aarch64-linux-gnu-gcc", "-O0", "-static", str(source), "-o", str(runner)], check=True, timeout=60)
    error = fails(clean, tiny_bundle, runner)
    assert "out of memory" in str(error)


def test_runner_for_another_processor_is_named_before_it_is_copied(clean, tiny_bundle):
    error = fails(clean, tiny_bundle, build_runner("executorch").program)
    assert "a runner for x86_64, but the device is aarch64" in str(error)


def test_runner_that_the_device_cannot_start(clean, tiny_bundle, tmp_path):
    # An Arm header with nothing behind it: only the device's kernel can tell.
    runner = tmp_path / "msdc-test-header"
    runner.write_bytes(b"\x7fELF\x02\x01\x01" + b"\0" * 9 + (2).to_bytes(2, "little") + (0xB7).to_bytes(2, "little"))
    assert "not a program for this device" in str(fails(clean, tiny_bundle, runner))


def test_hung_runner_is_ended_at_its_time_limit(clean, tiny_bundle, tmp_path, monkeypatch):
    monkeypatch.setattr(adb_device, "GRACE_S", 3.0)
    start = time.monotonic()
    error = fails(clean, tiny_bundle, script(tmp_path, "while :; do :; done"), timeout_s=2)
    assert "no result after 2 s; stopped" in str(error)
    assert time.monotonic() - start < 40


def test_hung_runner_on_a_device_without_timeout(clean, tiny_bundle, tmp_path, monkeypatch):
    # The host's own limit ends it there, whatever the device offers.
    monkeypatch.setattr(adb_device, "GRACE_S", 1.0)
    monkeypatch.setattr(
        adb_device, "_start_line", lambda runner, limit, clock: f"\necho $$ > pid; ./{runner.program.name}"
    )
    assert "stopped" in str(fails(clean, tiny_bundle, script(tmp_path, "sleep 600"), timeout_s=2))


@pytest.mark.parametrize("victim", ["bundle/model.pte", "lib/libexecutorch.so", "bundle/bundle.json"])
def test_file_damaged_on_its_way(clean, tiny_bundle, monkeypatch, victim):
    real = RemoteFolder.check
    # The manifest is damaged inside a hash, so that it stays valid JSON.
    offset = (tiny_bundle / "bundle.json").read_bytes().index(b'"sha256": "') + 20 if victim.endswith(".json") else 700

    def damage(self, files, folder=""):
        if folder == "":
            self.adb.shell(f"printf X | dd of={self.path}/{victim} bs=1 seek={offset} conv=notrunc 2>/dev/null")
        real(self, files, folder)

    monkeypatch.setattr(RemoteFolder, "check", damage)
    error = fails(clean, tiny_bundle, None)
    assert "damaged on its way" in str(error)
    assert Path(victim).name in str(error)


def test_silent_runner_is_not_believed(clean, tiny_bundle, tmp_path):
    # Exit code 0 and an answer file, but not the line that says the answer is whole.
    error = fails(clean, tiny_bundle, script(tmp_path, "echo '{}' > answer.json; echo msdc-runner done; exit 0"))
    assert "no result" in str(error)


def test_device_that_is_not_there(adb_server, tiny_bundle):
    if adb_server is None:
        pytest.skip("adb is not installed: apt-get install adb")
    with pytest.raises(InputError, match="no device with serial nowhere"):
        AdbDevice("nowhere").run(tiny_bundle, settings())


def test_shell_needs_to_see_the_end(clean):
    assert clean.adb.shell("echo a; exit 3").code == 3
    assert clean.adb.shell("printf 'no line end'").output.strip() == "no line end"
    with pytest.raises(DeviceGone, match="no answer"):
        clean.adb.shell("sleep 30", timeout_s=1)
    clean.adb.shell("kill -9 $(ps | grep 'sleep 30' | grep -v grep | awk '{print $1}') 2>/dev/null; true")
