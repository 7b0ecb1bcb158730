"""The emulated phone: parity on every processor, a gate on counts that repeat, memory; what devices say of heat."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import programs
import psutil
import pytest

from msdc.bench.devices import open_devices
from msdc.bench.devices.adb import AdbDevice
from msdc.bench.devices.base import run_devices
from msdc.bench.devices.emulator import CPUS, NOTE, EmulatorDevice, EmulatorMachine, counting_settings, free_port
from msdc.bench.devices.emulator_image import INITRD_INIT, write_cpio
from msdc.bench.devices.state import SCRIPT, parse_state
from msdc.bench.measure import parity_failures
from msdc.bench.options import BenchSettings
from msdc.bench.system_programs import last_words
from msdc.bench.toolchain.build import build_runner
from msdc.errors import InputError, MsdcError

BASELINE = Path(__file__).with_name("tiny_instructions.json")
LENGTHS = (8, 32)


@pytest.fixture(scope="session")
def counted_runs(emulator_image, tiny_bundle):
    """The tiny bundle on the three processors, a76 twice, side by side."""
    settings = BenchSettings(tasks=(), lengths=LENGTHS, runs=3, warmup=1, runtime="executorch")
    devices = open_devices("emulator,emulator:a53,emulator:a76,emulator:i8mm")
    runs, failures = run_devices(devices, tiny_bundle, settings)
    assert failures == []
    return dict(zip(("again", "a53", "a76", "i8mm"), runs, strict=True))


def test_every_processor_reproduces_the_golden_vectors_and_counts(counted_runs):
    assert parity_failures(list(counted_runs.values())) == []
    for run in counted_runs.values():
        assert run.parity.texts >= 60
        assert run.parity.min_cosine >= 0.999
        assert run.parity.ids_equal
        assert run.device.emulated
        assert run.clock == "instructions"
        assert NOTE in run.notes
        text = json.dumps(run.model_dump(mode="json", exclude_none=True))
        assert '"instructions"' in text
        assert '"ms"' not in text
        assert "_ms" not in text
    first, second = counted_runs["a76"], counted_runs["again"]
    for mine, theirs in zip((*first.latency, first.pipeline), (*second.latency, second.pipeline), strict=True):
        # Two boots lay memory out differently: 0.24 % of the short pipeline was seen; the gate below allows 2 %.
        assert abs(mine.p50 / theirs.p50 - 1) <= 0.01


@pytest.mark.slow
def test_xnnpack_s_own_kernels_take_fewer_instructions_for_equal_vectors(counted_runs, tiny_bundle):
    """A core built with MSDC_XNNPACK_KERNELS; with i8mm it changes nothing."""
    runner = build_runner("executorch", "aarch64", defines=("MSDC_XNNPACK_KERNELS",)).program.parent
    settings = BenchSettings(tasks=(), lengths=LENGTHS, runs=3, warmup=1, runtime="executorch", runner=runner)
    runs, failures = run_devices(open_devices("emulator:a76,emulator:i8mm"), tiny_bundle, settings)
    assert failures == []
    assert parity_failures(runs) == []
    ratios = {
        cpu: [mine.p50 / stock.p50 for mine, stock in zip(run.latency, counted_runs[cpu].latency, strict=True)]
        for cpu, run in zip(("a76", "i8mm"), runs, strict=True)
    }
    assert max(ratios["a76"]) < 0.97
    assert all(abs(ratio - 1) < 0.01 for ratio in ratios["i8mm"])


def test_processors_are_what_their_names_say(counted_runs):
    isa = {cpu: set(run.device.isa) for cpu, run in counted_runs.items()}
    assert "asimddp" not in isa["a53"]
    assert "asimddp" in isa["a76"]
    assert "i8mm" not in isa["a76"]
    assert {"asimddp", "i8mm"} <= isa["i8mm"]
    # Newer instructions do more: fewer of them for the same work.
    counts = [counted_runs[cpu].latency[-1].p50 for cpu in ("a53", "a76", "i8mm")]
    assert counts[0] > counts[1] > counts[2]


def test_gate_on_instruction_counts(counted_runs):
    """The counts of the tiny bundle's shape; more than 2 % upwards fails. MSDC_NEW_BASELINE=1 writes them anew."""
    if os.environ.get("MSDC_NEW_BASELINE"):
        counts = {cpu: {str(t.length): t.p50 for t in counted_runs[cpu].latency} for cpu in CPUS}
        what = "median executed instructions of one inference of the tests' tiny int8 bundle, ExecuTorch 1.5.1"
        value = {"what": what, "tolerance": 0.02, "p50_instructions": counts}
        BASELINE.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    baseline = json.loads(BASELINE.read_text(encoding="utf-8"))
    for cpu in CPUS:
        expected = baseline["p50_instructions"][cpu]
        assert set(expected) == {str(length) for length in LENGTHS}
        for timing in counted_runs[cpu].latency:
            assert timing.p50 <= expected[str(timing.length)] * (1 + baseline["tolerance"]), (cpu, timing.length)


def test_memory_is_measured_on_the_phone(counted_runs):
    memory = counted_runs["a76"].memory
    assert counted_runs["a76"].device.memory_mib < 256
    assert memory.start.vmhwm_mib <= memory.loaded.vmhwm_mib <= memory.warm.vmhwm_mib < 40
    assert memory.warm.anon_mib < 4


def test_onnx_on_the_phone(phone, tiny_bundle):
    quick = BenchSettings(tasks=(), lengths=(8,), runs=1, warmup=0, runtime="onnx")
    (run,) = AdbDevice(phone.serial).run(tiny_bundle, quick)
    assert run.artifact.runtime == "onnx"
    assert run.versions["onnxruntime"]
    assert parity_failures([run]) == []


def test_network_of_the_machine_reaches_nothing(phone):
    # A web server on the host that a guest with a network could reach.
    port = free_port()
    command = [sys.executable, "-m", "http.server", str(port), "--bind", "0.0.0.0"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        done = phone.adb.shell(f"ip route; wget -q -T 3 -O - http://10.0.2.2:{port}/ ; echo code $?", timeout_s=60)
        server.kill()
    assert "code 0" not in done.output
    # The forwarded port listens on the loopback interface alone.
    listening = Path("/proc/net/tcp").read_text(encoding="ascii")
    local = [line.split()[1] for line in listening.splitlines()[1:] if line.split()[3] == "0A"]
    assert {address.split(":")[0] for address in local if address.endswith(f":{phone.port:04X}")} == {"0100007F"}


def test_machine_is_gone_when_its_owner_is_killed(emulator_image, tmp_path):
    program = (
        "import sys, time\n"
        "from msdc.bench.devices.emulator_image import create_image\n"
        "from msdc.bench.devices.emulator import EmulatorMachine\n"
        "with EmulatorMachine(create_image(), 'a76', count=False) as machine:\n"
        "    print(machine.process.pid, flush=True)\n"
        "    time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    machine = psutil.Process(int(owner.stdout.readline()))
    owner.kill()
    owner.wait()
    _, alive = psutil.wait_procs([machine], timeout=10)
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


def test_machine_that_cannot_start_says_why(emulator_image, tmp_path):
    before = set(Path(tempfile.gettempdir()).glob("msdc-emulator-*"))
    with (
        pytest.raises(MsdcError, match=r"emulator ended while it started: .*nothing"),
        EmulatorMachine(tmp_path / "nothing", "a76"),
    ):
        pass
    assert set(Path(tempfile.gettempdir()).glob("msdc-emulator-*")) <= before


def test_settings_that_an_emulator_cannot_follow():
    assert counting_settings(BenchSettings(runs=100, warmup=10, cooldown_s=3)).runs <= 5
    assert counting_settings(BenchSettings()).tasks == ()
    assert counting_settings(BenchSettings(tasks="graded-pairs")).tasks == ["graded-pairs"]
    with pytest.raises(InputError, match="one processor"):
        counting_settings(BenchSettings(threads=2))
    with pytest.raises(InputError, match="unknown emulated processor 'm1'"):
        EmulatorDevice("m1").run(Path("nowhere"), BenchSettings())


def test_cpio_is_what_the_cpio_program_reads(tmp_path):
    if shutil.which("cpio") is None:
        pytest.skip("cpio is not installed: apt-get install cpio")
    init = ("folder/init", 0o100755, INITRD_INIT.encode())
    archive = write_cpio([("folder", 0o040755, b""), init, ("odd", 0o100644, b"x")])
    done = subprocess.run(["cpio", "-i", "--quiet", "--no-absolute-filenames"], input=archive, cwd=tmp_path, check=True)
    assert done.returncode == 0
    assert (tmp_path / "folder/init").read_text() == INITRD_INIT
    assert (tmp_path / "folder/init").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "odd").read_bytes() == b"x"


PHONE = """
/sys/class/thermal/thermal_zone0/type=cpu-0-0
/sys/class/thermal/thermal_zone0/temp=38400
/sys/class/thermal/thermal_zone1/type=battery
/sys/class/thermal/thermal_zone1/temp=31
/sys/class/thermal/thermal_zone2/type=cpu-0-0
/sys/class/thermal/thermal_zone2/temp=39000
/sys/class/thermal/thermal_zone3/type=broken
/sys/class/thermal/thermal_zone3/temp=
/sys/devices/system/cpu/cpu10/cpufreq/scaling_cur_freq=2400000
/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq=1800000
dumpsys.status=4
dumpsys.level=83
dumpsys.temperature=312
dumpsys.AC powered=true
/proc/loadavg=1.50 1.20 1.00 2/345 6789
"""


def test_a_phone_that_tells_all():
    state = parse_state(PHONE)
    assert state.thermal_c == {"cpu-0-0": 38.4, "battery": 31.0, "cpu-0-0 thermal_zone2": 39.0}
    assert state.cpu_mhz == (1800.0, 2400.0)
    assert (state.battery_percent, state.battery_c, state.charging, state.load_1min) == (83.0, 31.2, False, 1.5)
    # Devices that tell less.
    odd = "/proc/loadavg=nan\ndumpsys.level=1e999\n/sys/class/thermal/thermal_zone0/temp=-inf\n"
    wrong = (f"/sys/devices/system/cpu/cpu{'9' * 5000}/cpufreq/scaling_cur_freq=1\n", odd)
    for text in ("", "no facts here\n", "/proc/loadavg=\n", "dumpsys.level=full\n", "dumpsys.status=9\n", *wrong):
        assert parse_state(text).model_dump(exclude_defaults=True) == {}


def test_script_runs_in_a_plain_shell():
    shown = programs.run("sh", "-c", SCRIPT)
    assert parse_state(shown).load_1min is not None
    assert "/proc/loadavg=" in shown


def test_last_words_prefer_the_error():
    assert last_words(b"a\nerror: it broke\nmake: *** stop\n") == "error: it broke"
    assert last_words("one\ntwo\n\n") == "two"
    assert last_words("") == ""
