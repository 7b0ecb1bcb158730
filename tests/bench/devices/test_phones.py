"""Phones over adb: which one it is, in what state it is measured, and that an interruption loses no finished phone.

In the place of adb is a program whose phones are shells of this machine, with a real runner.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from processors import processor_files, without_namespaces
from refusals import one_line

from msdc.bench import bench
from msdc.bench.devices import adb as adb_device
from msdc.bench.devices.adb import FIXED_PERFORMANCE, NO_SERIALS, Adb, AdbDevice, is_virtual, wait_until_cool
from msdc.bench.options import BenchSettings
from msdc.bench.result import BenchFile, hash_serial
from msdc.errors import InputError, MsdcError

QUICK = {"tasks": (), "lengths": (4,), "runs": 1, "warmup": 0, "from_text": False, "timeout_s": 60, "runtime": "onnx"}


@pytest.fixture
def phones(tmp_path, monkeypatch):
    """A function that attaches phones with these serials; `properties` are those of `getprop`, `programs` shell scripts
    by name; a serial's own is in $PHONE. `processors` are top frequencies, mounted in the place of this machine's."""
    (tools := tmp_path / "bin").mkdir()
    (inside := tmp_path / "inside").mkdir()
    (desk := tmp_path / "desk").mkdir()
    monkeypatch.setattr(adb_device, "PLACES", (str(desk),))
    monkeypatch.setattr(adb_device, "COME_BACK_S", 0.5)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    def attach(*serials, properties=(), processors=None, **programs):
        if processors is None:
            shell = f'PATH={inside}:$PATH sh -c "$2"'
        else:
            files = processor_files(tmp_path / "root", processors)
            mounted = f'mount --bind {files} /sys/devices/system/cpu; PATH={inside}:$PATH sh -c "$1"'
            shell = f"unshare -m sh -c '{mounted}' sh \"$2\""
        stated = {"ro.product.model": "Pixel 7", "ro.build.version.release": "15", "ro.serialno": "$PHONE",
                  **dict(properties)}  # fmt: skip
        rows = "".join(f' "{name}") echo "{value}";;' for name, value in stated.items())
        for name, body in ({"getprop": f'case "$1" in{rows} *) echo;; esac', **programs}).items():
            (inside / name).write_text(f"#!/bin/sh\n{body}\n")
            (inside / name).chmod(0o755)
        listing = "".join(f"{serial}\\tdevice\\n" for serial in serials)
        (tools / "adb").write_text(
            f"#!/bin/sh\nPHONE={serials[0]}\n"
            '[ "$1" = -s ] && PHONE=$2 && shift 2\nexport PHONE\n'
            f"case \"$1\" in devices) printf 'List of devices attached\\n{listing}' ;;\n"
            f"  shell) {shell} ;;\n"
            '  push|pull) shift; cp "$@" ;;\nesac\n'
        )
        (tools / "adb").chmod(0o755)

    return attach


def identity_of(serial: str, bundle: Path, runner: Path) -> str:
    (run,) = AdbDevice(serial).run(bundle, BenchSettings(runner=runner, **QUICK))
    assert serial not in run.model_dump_json()
    return run.device.identity


def test_a_phone_is_its_own_serial_over_a_cable_and_a_network(phones, tiny_bundle, runner):
    phones("192.168.1.7:5555", properties={"ro.serialno": "R58M0001"}.items())
    assert identity_of("192.168.1.7:5555", tiny_bundle, runner) == hash_serial("R58M0001")
    phones("R58M0001", properties={"ro.product.model": ""}.items())
    assert identity_of("R58M0001", tiny_bundle, runner) == hash_serial("R58M0001")


@pytest.mark.parametrize("stated", ["", "unknown", "0123456789ABCDEF"])
def test_a_serial_of_many_phones_is_none(phones, tiny_bundle, runner, stated):
    assert stated.lower() in NO_SERIALS
    phones("10.0.0.9:5555", properties={"ro.serialno": stated, "ro.boot.serialno": "R58M0007"}.items())
    assert identity_of("10.0.0.9:5555", tiny_bundle, runner) == hash_serial("R58M0007")
    phones("10.0.0.9:5555", properties={"ro.serialno": stated}.items())
    assert identity_of("10.0.0.9:5555", tiny_bundle, runner) == hash_serial("10.0.0.9:5555")


def test_two_phones_with_one_serial_number_need_labels(phones, tiny_bundle, runner):
    phones("a:1", "b:2", properties={"ro.serialno": "R58M0001"}.items())
    done = bench(tiny_bundle, device="adb:a:1,adb:b:2", runner=runner, **QUICK)
    assert "have one name and serial number" in one_line(done.raise_failures)
    done = bench(tiny_bundle, device="adb:a:1=left,adb:b:2=right", runner=runner, **QUICK)
    done.raise_failures()
    assert [run.device.identity for run in done.results.runs] == ["left", "right"]


@pytest.mark.parametrize(
    "facts",
    [{"kernel_qemu": "1"}, {"boot_qemu": "1"}, {"hardware": "ranchu"}, {"hardware": "cutf_cvm"},
     {"characteristics": "nosdcard,emulator"}],
)  # fmt: skip
def test_virtual_devices(facts):
    assert is_virtual(facts)
    assert not is_virtual({"kernel_qemu": "0", "hardware": "qcom", "characteristics": "nosdcard"})


def test_a_virtual_device_is_named_in_result_and_report(phones, tiny_bundle, runner):
    phones("emulator-5554", properties={"ro.kernel.qemu": "1"}.items())
    done = bench(tiny_bundle, device="adb", runner=runner, **QUICK)
    (run,) = done.results.runs
    assert run.device.emulated
    assert "virtual device" in " ".join(run.notes)
    assert any("Pixel 7 (emulated)" in part and "not on a phone" in "".join(sentence)
               for sentence in done.report.recommendation for part in sentence)  # fmt: skip


def test_the_battery_saver_and_the_thermal_status_are_read(phones, tiny_bundle, runner):
    phones("R58M0001", settings="echo 1", dumpsys=(
        'case $1 in thermalservice) echo "IsStatusOverride: false"; echo "Thermal Status: 3";;\n'
        ' battery) printf "  level: 12\\n  status: 3\\n  temperature: 431\\n";; esac'))  # fmt: skip
    (run,) = AdbDevice("R58M0001").run(tiny_bundle, BenchSettings(runner=runner, **QUICK))
    state = run.state_before
    assert (state.power_save, state.thermal_status, state.battery_c, state.charging) == (True, 3, 43.1, False)


def test_it_waits_until_the_phone_is_cool(phones, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(adb_device, "COOL_EVERY_S", 0.0)
    count = tmp_path / "count"
    count.write_text("400")
    phones("R58M0001", dumpsys=f'n=$(cat {count}); echo $((n - 10)) > {count}; echo "  temperature: $n"')
    wait_until_cool(Adb("R58M0001"), 37.0)
    assert count.read_text().strip() <= "360"
    assert "wait until device R58M0001 is below 37 °C, now" in capsys.readouterr().err
    monkeypatch.setattr(adb_device, "COOL_MOST_S", -1.0)
    count.write_text("990")
    assert "not below 30 °C" in one_line(lambda: wait_until_cool(Adb("R58M0001"), 30.0), MsdcError)
    phones("R58M0001", dumpsys="exit 0")
    assert "reports no temperature" in one_line(lambda: wait_until_cool(Adb("R58M0001"), 30.0), InputError)


def test_cooling_is_for_phones(tiny_bundle):
    message = one_line(lambda: bench(tiny_bundle, device="host", cool_below=37), InputError)
    assert "`cool_below` is for device adb" in message


def test_the_processors_are_read_back(phones, tiny_bundle, runner, tmp_path):
    cpu = min(os.sched_getaffinity(0))
    phones("R58M0001")
    bench(
        tiny_bundle,
        device="adb",
        runner=runner,
        affinity=(cpu,),
        cooldown_s=0.1,
        json_file=tmp_path / "r.json",
        **QUICK,
    )
    (run,) = BenchFile.model_validate_json((tmp_path / "r.json").read_text()).runs
    conditions = run.conditions
    assert (conditions.cpus, conditions.pinned, conditions.cooldown_s) == ((cpu,), True, 0.1)
    assert run.pinned_to == f"CPUs {cpu}"
    assert run.memory.warm.swap_mib is not None


@pytest.mark.skipif(without_namespaces(), reason="needs `unshare -m`: a phone with other processors than this machine")
def test_big_cores_are_those_of_the_highest_top_frequency(phones, tiny_bundle, runner):
    first, second = sorted(os.sched_getaffinity(0))[:2]
    phones("R58M0001", processors={first: 1_800_000, second: 2_850_000})
    (run,) = AdbDevice().run(tiny_bundle, BenchSettings(runner=runner, affinity="big", **QUICK))
    assert (run.conditions.cpus, run.conditions.pinned, run.pinned_to) == ((second,), True, f"CPUs {second}")
    assert [(cluster.cpus, cluster.top_mhz) for cluster in run.conditions.clusters] == [
        ((second,), 2850.0), ((first,), 1800.0)
    ]  # fmt: skip
    assert run.state_during.cpu_mhz == (900.0, 900.0)
    # One fast core for two threads: the next cluster joins.
    (run,) = AdbDevice().run(tiny_bundle, BenchSettings(runner=runner, affinity="big", **{**QUICK, "threads": 2}))
    assert run.conditions.cpus == (first, second)
    three = BenchSettings(runner=runner, affinity="big", **{**QUICK, "threads": 3})
    assert "has 2 usable CPUs for 3 threads" in one_line(lambda: AdbDevice().run(tiny_bundle, three), InputError)


def test_big_cores_of_a_phone_that_hides_its_clusters(phones, tiny_bundle, runner, tmp_path):
    phones("R58M0001", processors={} if not without_namespaces() else None)
    line = one_line(lambda: bench(tiny_bundle, device="adb", runner=runner, affinity="big", **QUICK), InputError)
    assert line.endswith("device R58M0001 does not report the top frequencies of its processors; name CPU numbers")
    assert not list((tmp_path / "desk").iterdir())


def cmd_of_power(log: Path, refusal: str = "") -> str:
    """Android's `cmd`, which logs what it was asked."""
    return f'echo "cmd $*" >> {log}' + (f"; echo '{refusal}'; exit 255" if refusal else "")


def test_fixed_performance_is_asked_for_and_ended(phones, tiny_bundle, runner, tmp_path):
    log = tmp_path / "log"
    phones("R58M0001", cmd=cmd_of_power(log))
    (run,) = AdbDevice().run(tiny_bundle, BenchSettings(runner=runner, **QUICK))
    assert run.conditions.fixed_performance.enabled
    assert log.read_text().splitlines() == [f"{FIXED_PERFORMANCE} true", f"{FIXED_PERFORMANCE} false"]


def test_fixed_performance_that_is_refused_is_in_the_result(phones, tiny_bundle, runner, tmp_path):
    phones("R58M0001")
    (run,) = AdbDevice().run(tiny_bundle, BenchSettings(runner=runner, **QUICK))
    assert (run.conditions.fixed_performance, run.notes) == (None, ())
    log = tmp_path / "log"
    phones("R58M0001", cmd=cmd_of_power(log, "Failed to set FIXED_PERFORMANCE mode"))
    (run,) = AdbDevice().run(tiny_bundle, BenchSettings(runner=runner, **QUICK))
    assert not run.conditions.fixed_performance.enabled
    assert run.notes == ("the phone refused Android's fixed performance mode (Failed to set FIXED_PERFORMANCE mode)",)
    assert log.read_text().splitlines() == [f"{FIXED_PERFORMANCE} true"]


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_fixed_performance_ends_with_an_interrupted_run(phones, tiny_bundle, runner, tmp_path, sent):
    log = tmp_path / "log"
    phones("R58M0001", cmd=cmd_of_power(log))
    command = [sys.executable, "-m", "msdc.cli", "bench", tiny_bundle, "--device", "adb", "--runner", runner,
               "--tasks", "none", "--lengths", "4", "--runs", "100000", "--runtime", "onnx"]  # fmt: skip
    with subprocess.Popen([*map(str, command)], stderr=subprocess.DEVNULL, start_new_session=True) as running:
        while not log.exists() and running.poll() is None:
            time.sleep(0.05)
        time.sleep(0.5)
        running.send_signal(sent)
        assert running.wait(timeout=60) != 0
    assert log.read_text().splitlines()[-1] == f"{FIXED_PERFORMANCE} false"


def test_processors_that_a_phone_does_not_have_are_one_line(phones, tiny_bundle, runner, tmp_path):
    phones("R58M0001", cmd=cmd_of_power(tmp_path / "log"))
    settings = BenchSettings(runner=runner, affinity=(1000,), **QUICK)
    line = one_line(lambda: AdbDevice().run(tiny_bundle, settings), MsdcError)
    assert "these CPUs are not usable here (Invalid argument)" in line
    assert (tmp_path / "log").read_text().splitlines()[-1] == f"{FIXED_PERFORMANCE} false"


def test_a_mask_that_is_given_in_part_is_noted(phones, tiny_bundle, runner):
    phones("R58M0001")
    first = min(os.sched_getaffinity(0))
    settings = BenchSettings(runner=runner, affinity=(first, 1000), **{**QUICK, "threads": 2})
    (run,) = AdbDevice().run(tiny_bundle, settings)
    assert run.notes == (f"CPUs {first},1000 were requested, the system gave {first}", "2 threads shared 1 CPU")
    assert run.pinned_to == f"CPUs {first}"


def test_a_phone_that_goes_away_names_how_to_end_the_mode(phones, tiny_bundle, runner, tmp_path, monkeypatch):
    monkeypatch.setattr(adb_device, "COME_BACK_S", 0.1)
    phones("R58M0001", cmd=f"touch {tmp_path}/gone")
    adb = tmp_path / "bin/adb"
    adb.write_text(adb.read_text().replace("case ", f'[ -e {tmp_path}/gone ] && [ "$1" = shell ] && exit 1\ncase ', 1))
    line = one_line(lambda: AdbDevice().run(tiny_bundle, BenchSettings(runner=runner, **QUICK)), MsdcError)
    assert f"end its fixed performance mode by `{FIXED_PERFORMANCE} false`" in line
