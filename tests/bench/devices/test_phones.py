"""Phones over adb: which one it is, in what state it is measured, and that an interruption loses no finished phone.

In the place of adb is a program whose phones are shells of this machine, with a real runner.
"""

import os
from pathlib import Path

import pytest
from refusals import one_line

from msdc.bench import bench
from msdc.bench.devices import adb as adb_device
from msdc.bench.devices.adb import (
    MARK,
    NO_SERIALS,
    Adb,
    AdbDevice,
    is_virtual,
    parse_during,
    parse_state,
    wait_until_cool,
)
from msdc.bench.options import BenchSettings
from msdc.bench.result import BenchFile, hash_serial
from msdc.errors import InputError, MsdcError

QUICK = {"tasks": (), "lengths": (4,), "runs": 1, "warmup": 0, "from_text": False, "timeout_s": 60, "runtime": "onnx"}


@pytest.fixture
def phones(tmp_path, monkeypatch):
    """A function that attaches phones with these serials; `properties` are those of `getprop`, `programs` shell scripts
    by name; a serial's own is in $PHONE."""
    (tools := tmp_path / "bin").mkdir()
    (inside := tmp_path / "inside").mkdir()
    (desk := tmp_path / "desk").mkdir()
    monkeypatch.setattr(adb_device, "PLACES", (str(desk),))
    monkeypatch.setattr(adb_device, "COME_BACK_S", 0.5)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")

    def attach(*serials, properties=(), **programs):
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
            f'  shell) PATH={inside}:$PATH sh -c "$2" ;;\n'
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


def test_frequencies_are_read_with_their_limits():
    folder = "/sys/devices/system/cpu/cpu{}/cpufreq/{}={}"
    names = {"scaling_max_freq": 1_500_000, "cpuinfo_max_freq": 2_850_000}
    rows = [(cpu, name, kilohertz) for cpu in (1, 0, 10)
            for name, kilohertz in (names | {"scaling_cur_freq": 900_000 + cpu}).items()]  # fmt: skip
    state = parse_state("\n".join(folder.format(*row) for row in rows))
    assert state.cpu_mhz == (900.0, 900.001, 900.01)
    assert (state.cpu_limit_mhz, state.cpu_top_mhz) == ((1500.0,) * 3, (2850.0,) * 3)


def test_the_state_during_a_run_is_that_of_its_worst_moment():
    zone, cpu = "/sys/class/thermal/thermal_zone0", "/sys/devices/system/cpu/cpu0/cpufreq"
    moments = [(41_000, 2_800_000, 2_850_000), (46_000, 1_500_000, 1_500_000)]
    text = "".join(f"{zone}/type=skin\n{zone}/temp={heat}\n{cpu}/scaling_cur_freq={now}\n"
                   f"{cpu}/scaling_max_freq={limit}\n{MARK}\n" for heat, now, limit in moments)  # fmt: skip
    state = parse_during(text + f"{zone}/temp=99000\n")
    assert state.thermal_c == {"skin": 46.0}
    assert (state.cpu_mhz, state.cpu_limit_mhz) == ((2800.0,), (1500.0,))
    assert parse_during("") is None


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
