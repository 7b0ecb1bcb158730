"""Every answer of adb, garbled in every way: what is lost is one line, what is only surrounded is read all the same.

In the place of adb is a program whose device is a shell of this machine, with a real runner; one answer is changed.
"""

import math
import os
from pathlib import Path

import pytest
from refusals import one_line

from msdc.bench.devices import adb as adb_device
from msdc.bench.devices import emulator
from msdc.bench.devices.adb import AdbDevice, attached, choose_serial
from msdc.bench.devices.emulator import EmulatorMachine
from msdc.bench.devices.state import SCRIPT, parse_state
from msdc.bench.options import BenchSettings
from msdc.bench.result import hash_serial
from msdc.errors import InputError, MsdcError

NOISE = "printf 'WARNING: linker: a=b unused DT entry\\n\\033[0m\\303\\250 \\377\\376 \\0 error: none\\n'"
# $out and $err: what adb would print; $code: how it would end. First those that lose nothing.
HARMLESS = {
    "noise around": f"{NOISE}; cat out; {NOISE}; exit $code",
    "noise between": f"while read -r line; do {NOISE}; printf '%s\\n' \"$line\"; done < out; {NOISE}; exit $code",
    "one stream": f"cat err out; {NOISE}; exit $code",
    "line ends of a terminal": "sed 's/$/\\r/' out; exit $code",
    "line ends of an old adb": "sed 's/$/\\r\\r/' out; exit $code",
    "noise in errors": f"cat out; {NOISE} >&2; exit $code",
}
HARMFUL = {
    "nothing": "exit 0",
    "cut in half": "head -c $(($(wc -c < out) / 2)) out; exit $code",
    "last byte lost": "head -c -1 out | head -c -1; exit 0",
    "offline": "echo 'error: device offline' >&2; exit 1",
    "another language": "echo 'Fehler: Gerät »phone« nicht gefunden' >&2; exit 1",
    "only noise": f"{NOISE}; exit 0",
    "killed": "kill -9 $$",
    "endless": "exec yes",
    "all ones": "tr '0-9a-f' 1 < out; exit $code",
    "other digits": "sed 'y/0123456789/٠١٢٣٤٥٦٧٨٩/' out; exit $code",
    "twice": "cat out out; exit $code",
    "backwards": "tac out; exit $code",
    "upper case": "tr a-z A-Z < out; exit $code",
}
CALLS = ("devices", "identity", "state", "folder", "mode", "push 1", "push 2", "sums", "chmod", "run", "pull 1",
         "pull 2", "state after", "removal")  # fmt: skip


@pytest.fixture
def garbled(tmp_path, monkeypatch):
    """A function that puts a program in place of adb, whose answer number `call_number` is changed by shell code."""
    (desk := tmp_path / "desk").mkdir()
    (bin_ := tmp_path / "bin").mkdir()
    count = tmp_path / "count"
    monkeypatch.setattr(adb_device, "PLACES", (str(desk),))
    monkeypatch.setattr(adb_device, "COME_BACK_S", 0.5)
    monkeypatch.setenv("PATH", f"{bin_}:{os.environ['PATH']}")

    def put(call_number: int, change: str) -> None:
        count.write_text("0")
        program = bin_ / "adb"
        program.write_text(
            "#!/bin/sh\n"
            'answer() { case "$1" in\n'
            "  devices) printf 'List of devices attached\\nphone\\tdevice\\n' ;;\n"
            '  shell) sh -c "$2" ;;\n'
            '  push|pull) shift; cp "$@" ;;\n'
            "esac; }\n"
            '[ "$1" = -s ] && shift 2\n'
            f"n=$(cat {count}); echo $((n + 1)) > {count}\n"
            f'[ $n = {call_number} ] || {{ answer "$@"; exit; }}\n'
            'answer "$@" > out 2> err; code=$?\n'
            f"{change}\n"
        )
        program.chmod(0o755)

    put.desk, put.count = desk, count
    return put


def measured(bundle: Path, runner: Path):
    quick = {"tasks": (), "lengths": (4,), "runs": 1, "warmup": 0, "from_text": False, "timeout_s": 60}
    (run,) = AdbDevice().run(bundle, BenchSettings(runtime="onnx", runner=runner, **quick))
    assert run.parity.min_cosine > 0.999
    assert run.parity.ids_equal
    assert run.device.kind == "adb"
    assert len(run.device.name) <= 100
    assert len(run.device.os) <= 120
    return run


def test_the_device_works(garbled, tiny_bundle, runner):
    garbled(-1, "")
    run = measured(tiny_bundle, runner)
    assert int(garbled.count.read_text()) == len(CALLS)
    # The serial is not in the result.
    assert run.device.name == "unnamed device"
    assert run.device.identity == hash_serial("phone")
    assert run.state_before.load_1min is not None
    assert not list(garbled.desk.iterdir())


# Quick ones of each kind; the rest with the slow tests.
QUICK = {("noise between", "identity"), ("one stream", "run"), ("noise around", "folder"), ("cut in half", "pull 1"),
         ("offline", "push 2"), ("other digits", "run"), ("all ones", "sums"), ("endless", "state")}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "call"),
    [pytest.param(change, call, marks=() if (change, call) in QUICK else pytest.mark.slow)
     for change in HARMLESS | HARMFUL for call in CALLS],
)  # fmt: skip
def test_one_answer_is_garbled(garbled, tiny_bundle, runner, change, call):
    garbled(CALLS.index(call), (HARMLESS | HARMFUL)[change])
    if change in HARMLESS:
        assert measured(tiny_bundle, runner).state_before.load_1min is not None
    else:
        try:
            measured(tiny_bundle, runner)
        except MsdcError as error:
            text = one_line(lambda error=error: (_ for _ in ()).throw(error))
            assert "Traceback" not in text
            assert "\ufffd" * 20 not in text
    # What was made there is removed, unless the answer to the removal itself was lost twice.
    assert not list(garbled.desk.iterdir())


LISTINGS = [
    ("List of devices attached\na\tdevice\na\tdevice\n", "device a is one of several with this serial"),
    ("a\tno permissions (missing udev rules?); see [http://developer.android.com]\n", "no permissions"),
    ("* daemon not running; starting now at tcp:5037\n* daemon started successfully\nList of devices\n", "0 devices"),
    ("List of devices attached\n\tdevice\n\t\n\t\tdevice\n", "0 devices"),
    ("a device usb:1-1 product:x\n", "0 devices"),
    ("\x00\x01\xff\n" * 100, "0 devices"),
    ("a\tdevic", "device a is devic"),
    ("a\toffline\nb\tunauthorized\nc\tbootloader\n", "3 devices attached: name one of adb:a, adb:b, adb:c"),
    ("Gerät\tnicht bereit\n", "device Gerät is nicht bereit"),
    ("a\tdevice\n" + "".join(f"b{i}\toffline\n" for i in range(9)), "a"),
    ("WARNING: linker\r\nList of devices attached\r\na\tdevice\r\n\r\n", "a"),
]  # fmt: skip


@pytest.mark.parametrize(("listing", "expected"), LISTINGS)
def test_lists_of_devices(tmp_path, listing, expected):
    program, answer = tmp_path / "adb", tmp_path / "answer"
    answer.write_text(listing, encoding="utf-8", newline="")
    program.write_text(f"#!/bin/sh\ncat {answer}\n")
    program.chmod(0o755)
    if expected == "a":
        assert choose_serial(str(program), None) == "a" == choose_serial(str(program), "a")
        return
    with pytest.raises(MsdcError) as caught:
        choose_serial(str(program), None)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
    # Of several with one serial none is measured, and another device still is.
    program.write_text(f"#!/bin/sh\ncat {answer}; printf '\\nother\\tdevice\\n'\n")
    assert choose_serial(str(program), None) == choose_serial(str(program), "other") == "other"
    assert attached(str(program))["other"] == "device"


POOR = {
    "no uname": ("uname", "does not answer with its processor"),
    "no sha256sum": ("sha256sum", None),
    "no find": ("find", None),
    "no head or sed": ("head sed", None),
    "no timeout": ("timeout", None),
    "no mkdir": ("mkdir", "no writable folder"),
    "no rm": ("rm", "could not be removed"),
    "no cat": ("cat", None),
}


@pytest.mark.parametrize("case", POOR)
def test_a_device_whose_shell_lacks_a_program(garbled, tiny_bundle, runner, case, tmp_path):
    names, words = POOR[case]
    garbled(-1, "")
    (poor := tmp_path / "poor").mkdir()
    for folder in ("/bin", "/usr/bin"):
        for path in Path(folder).iterdir():
            if path.name not in names.split() and not (poor / path.name).is_symlink():
                (poor / path.name).symlink_to(path)
    program = tmp_path / "bin/adb"
    program.write_text(program.read_text().replace('sh -c "$2"', f'PATH="{poor}" sh -c "$2"'))
    if words is None:
        measured(tiny_bundle, runner)
        assert not list(garbled.desk.iterdir())
    else:
        assert words in one_line(lambda: measured(tiny_bundle, runner))


def test_a_checksum_that_fails_is_no_damage(garbled, tiny_bundle, runner, tmp_path):
    garbled(CALLS.index("sums"), "echo 'sha256sum: ./msdc-runner: Input/output error'; sed -n '$p' out; exit 0")
    assert "Input/output error" in one_line(lambda: measured(tiny_bundle, runner))


@pytest.mark.parametrize("model", ["x" * 5000, "Two\nlines", "\x1b[31mred\x1b[0m", "", "=", "日本語の電話"])
def test_names_of_phones(garbled, tiny_bundle, runner, model, tmp_path):
    garbled(-1, "")
    (fake_tools := tmp_path / "own").mkdir()
    (fake_tools / "model").write_text(model)
    (fake_tools / "getprop").write_text(
        f"#!/bin/sh\ncase $1 in ro.product.model) cat {fake_tools / 'model'} ;; *) echo 15 ;; esac\n"
    )
    (fake_tools / "getprop").chmod(0o755)
    program = tmp_path / "bin/adb"
    program.write_text(program.read_text().replace('sh -c "$2"', f'PATH="{fake_tools}:$PATH" sh -c "$2"'))
    run = measured(tiny_bundle, runner)
    assert run.device.os == "Android 15"
    assert run.device.name == (model.splitlines() or ["unnamed device"])[0][:100]


def test_sensors_that_flood():
    zone = "/sys/class/thermal/thermal_zone{0}/type={1}\n/sys/class/thermal/thermal_zone{0}/temp=38400\n"
    state = parse_state("".join(zone.format(i, "x" * 500) for i in range(5000)))
    assert len(state.thermal_c) <= 1000
    assert max(map(len, state.thermal_c)) < 130
    assert all(math.isfinite(value) for value in state.thermal_c.values())
    assert "thermal" in SCRIPT


QEMU = {
    "ends with noise": ("head -c 3000000 /dev/zero >&2; printf '\\377\\376 error: no \\033[1mKVM\\n' >&2; exit 1",
                        "ended while it started: .*error: no"),
    "says nothing": ("exit 3", "ended while it started"),
    "a console of noise": ("head -c 5000000 /dev/urandom > console; exec sleep 60", "did not start in"),
    "no console": ("exec sleep 60", r"did not start in 2 s \(nothing on its console\)"),
    "ready, but no adbd": ("head -c 5000000 /dev/zero > console; echo msdc-ready >> console; exec sleep 60",
                           r"did not start in 2 s \(\ufffdmsdc-ready\)"),
}  # fmt: skip


@pytest.mark.parametrize("case", QEMU)
def test_an_emulator_that_answers_with_noise(adb_server, tmp_path, monkeypatch, case):
    if adb_server is None:
        pytest.skip("adb is not installed: apt-get install adb")
    script, words = QEMU[case]
    (tmp_path / "qemu-system-aarch64").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "qemu-system-aarch64").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(emulator, "BOOT_TIMEOUT_S", 2.0)
    monkeypatch.setattr(emulator.emulator_image, "make_disk", lambda target, mib: target.touch())

    def attempt():
        with EmulatorMachine(tmp_path, "a76"):
            pass

    with pytest.raises(MsdcError, match=words) as caught:
        attempt()
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_processors_that_have_no_runner(garbled, tiny_bundle, tmp_path):
    """An answer that names no processor builds no runner for this machine instead."""
    for answer in ("mips64", "aarch64 aarch64", "$(reboot)", "x" * 500):
        garbled(CALLS.index("identity"), f"sed 's/^machine=.*/machine={answer}/' out; exit $code")
        settings = BenchSettings(tasks=(), lengths=(4,), runs=1, warmup=0, runtime="onnx")
        with pytest.raises((MsdcError, InputError)) as caught:
            AdbDevice().run(tiny_bundle, settings)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 600
