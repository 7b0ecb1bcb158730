"""A device with adbd, Android or any Linux: push, run under a time limit, pull, and remove everything.

Its battery, temperatures and frequencies are read through its shell; absent sources give None.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from msdc.bench.devices.adb_client import Adb, DeviceGone, attached, choose_serial
from msdc.bench.devices.base import Device, Job, open_jobs
from msdc.bench.devices.runner_protocol import (
    ANSWER,
    MAX_ANSWER_BYTES,
    REQUEST,
    USAGE_CODE,
    VECTORS,
    Answer,
    bundle_files,
    device_info,
    device_run,
    read_answer,
    runner_error,
    sentinel,
    write_request,
)
from msdc.bench.measure import BenchSettings
from msdc.bench.result import Clock, DeviceRun, DeviceState
from msdc.bench.system_programs import find, last_words, require
from msdc.bench.toolchain.build import RunnerBuild, can_build, native_runner
from msdc.errors import InputError, MsdcError
from msdc.files import sha256_file
from msdc.processes import Finished
from msdc.progress import say, track

PLACES = ("/data/local/tmp", "/tmp")
PREFIX = "msdc-run-"
SPARE_BYTES = 4 * 1024 * 1024
# Added to the device's own limit: for start-up, for the answer, and for devices without `timeout`.
GRACE_S = 20.0
COME_BACK_S = 20.0
# What a runner says of a bundle that differs from its manifest, and a shell of a program of another machine.
DAMAGED = ("sha256 differs", "bytes where the manifest says", "seal does not match")
FOREIGN = ("exec format error", "syntax error", "not executable", "wrong elf class", "cannot execute",
           "invalid elf header")  # fmt: skip
# One line per fact: path, equals sign, first line of the file. dumpsys reports the battery where /sys does not.
SCRIPT = """
for f in /sys/class/thermal/thermal_zone*/type /sys/class/thermal/thermal_zone*/temp \\
    /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq /sys/class/power_supply/*/type \\
    /sys/class/power_supply/*/capacity /sys/class/power_supply/*/status /sys/class/power_supply/*/temp \\
    /proc/loadavg; do
    if [ -r "$f" ]; then echo "$f=$(head -n 1 "$f" 2>/dev/null)"; fi
done
if command -v dumpsys >/dev/null 2>&1; then
    dumpsys battery 2>/dev/null | sed -n 's/^ *\\([a-zA-Z ]*\\): /dumpsys.\\1=/p'
fi
true
"""
CHARGING = {"charging": True, "full": True, "discharging": False, "not charging": False}
# BatteryManager.BATTERY_STATUS_*
DUMPSYS_STATUS = {"2": True, "3": False, "4": False, "5": True}


@dataclass(frozen=True)
class Remote:
    """A device behind adb: its kind, its name, and what its clock counts."""

    adb: Adb
    kind: str = "adb"
    name: str | None = None
    clock: Clock = "wall"
    notes: tuple[str, ...] = ()


class RemoteFolder:
    """A folder on the device. On exit, processes started in it are killed and it is removed."""

    def __init__(self, adb: Adb, nonce: str) -> None:
        self.adb = adb
        self.nonce = nonce
        self.path = ""

    def __enter__(self) -> RemoteFolder:
        places = " ".join(PLACES)
        name = f"{PREFIX}{self.nonce}"
        # First remove folders older than a day, left by runs whose host or device died. On a full disk the folder may
        # be created, but not its subfolders.
        script = f"""
            for d in {places}; do
                if [ -d $d ] && [ -w $d ]; then
                    find $d -maxdepth 1 -name '{PREFIX}*' -mmin +1440 -exec rm -rf {{}} + 2>/dev/null
                    mkdir $d/{name} && mkdir $d/{name}/lib $d/{name}/bundle && echo $d/{name} && exit 0
                    rm -rf $d/{name}
                    exit 1
                fi
            done
            exit 1"""
        done = self.adb.shell(script)
        if done.code != 0:
            word = last_words(f"{done.output}\n{done.errors}")
            full = "No space left" in word
            what = "its disk is full" if full else f"no writable folder among {places}"
            raise MsdcError(f"device {self.adb.serial}: {what}" + ("" if full or not word else f" ({word})"))
        # What the device prints is not trusted: it only chooses among the paths that were asked for.
        answer = (done.output.strip().splitlines() or [""])[-1].strip()
        known = [f"{place}/{name}" for place in PLACES]
        if answer not in known:
            raise MsdcError(f"device {self.adb.serial}: made {answer[:60]!r} instead of {' or '.join(known)}")
        self.path = answer
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # The shell that started the runner leads its process group and wrote its id to `pid`. (dash accepts no "--"
        # after a signal number; mksh and toybox need none.)
        script = f"""
            cd {self.path} 2>/dev/null || exit 0
            if [ -s pid ]; then kill -9 -$(cat pid) 2>/dev/null; fi
            cd / && rm -rf {self.path}
            [ ! -e {self.path} ]"""
        try:
            cleaned = self._cleanup(script)
        except MsdcError:
            cleaned = False
        if not cleaned:
            line = f"{self.path} could not be removed from device {self.adb.serial}: it does not answer"
            if error is None:
                raise MsdcError(line)
            error.args = (f"{error}; {line}",)

    def _cleanup(self, script: str) -> bool:
        try:
            return self.adb.shell(script).code == 0
        except DeviceGone:
            return self.adb.come_back(COME_BACK_S) and self.adb.shell(script).code == 0

    def free_bytes(self) -> int | None:
        """Free space on the folder's disk, None where the device does not report it."""
        done = self.adb.shell(f"df -k {self.path} | tail -n 1")
        columns = done.output.split()
        # Filesystem, blocks, used, available, ...; a long first column may be on a line of its own.
        numbers = [int(word) for word in columns if word.isdigit()]
        return numbers[2] * 1024 if done.code == 0 and len(numbers) >= 3 else None

    def push(self, files: Sequence[Path], folder: str = "") -> None:
        """Copy files into the folder or one of its subfolders.

        Raises:
            MsdcError: the disk is full, or the device went away.
        """
        self.adb.push(files, f"{self.path}/{folder}".rstrip("/"))

    def check(self, files: Sequence[Path], folder: str = "") -> None:
        """Compare the pushed files with their sha256, where the device has sha256sum.

        Raises:
            MsdcError: a file differs.
        """
        place = f"{self.path}/{folder}".rstrip("/")
        # With "./" in front, no name is taken for an option.
        names = " ".join(shlex.quote(f"./{path.name}") for path in files)
        done = self.adb.shell(f"cd {place} && sha256sum {names}", timeout_s=300)
        if done.code == 127:
            return
        rows = (line.split(maxsplit=1) for line in done.output.splitlines())
        there = {row[1].lstrip("*").removeprefix("./"): row[0] for row in rows if len(row) == 2}
        for path in files:
            if there.get(path.name) != sha256_file(path):
                raise MsdcError(f"device {self.adb.serial}: {path.name} was damaged on its way there; run again")


def _start_line(runner: RunnerBuild, timeout_s: float) -> str:
    program = shlex.quote(f"./{runner.program.name}")
    if runner.loader is not None:
        program = f"./lib/{shlex.quote(runner.loader)} --library-path ./lib {program}"
    # KILL, because a runner may hang anywhere. Without `timeout`, the host's limit and the runner's alarm remain.
    return f"""
        echo $$ > pid
        limit=""
        if command -v timeout >/dev/null 2>&1; then limit="timeout -s KILL {int(timeout_s) + 1}"; fi
        LD_LIBRARY_PATH="$PWD/lib" $limit {program} {REQUEST}"""


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def parse_facts(text: str) -> dict[str, str]:
    """path -> value of the lines that `SCRIPT` prints."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {path.strip(): value.strip() for path, separator, value in pairs if separator and value.strip()}


def _thermal(facts: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for path, value in facts.items():
        match = re.fullmatch(r"(/sys/class/thermal/(thermal_zone\d+))/temp", path)
        number = _number(value) if match else None
        if match is None or number is None:
            continue
        name = facts.get(f"{match[1]}/type", match[2])
        # Zones report thousandths of a degree, with some vendors whole degrees. Two zones may share a type.
        celsius = number / 1000 if abs(number) >= 1000 else number
        found[name if name not in found else f"{name} {match[2]}"] = round(celsius, 2)
    return found


def _battery(facts: Mapping[str, str]) -> tuple[float | None, float | None, bool | None]:
    """Percent, degrees Celsius, charging."""
    folder = next(
        (path.removesuffix("/type") for path, value in facts.items()
         if path.startswith("/sys/class/power_supply/") and path.endswith("/type") and value == "Battery"),
        None,
    )  # fmt: skip
    percent = tenths = charging = None
    if folder is not None:
        percent = _number(facts.get(f"{folder}/capacity", ""))
        tenths = _number(facts.get(f"{folder}/temp", ""))
        charging = CHARGING.get(facts.get(f"{folder}/status", "").lower())
    if percent is None:
        percent = _number(facts.get("dumpsys.level", ""))
    if tenths is None:
        tenths = _number(facts.get("dumpsys.temperature", ""))
    if charging is None:
        charging = DUMPSYS_STATUS.get(facts.get("dumpsys.status", ""))
    return percent, None if tenths is None else tenths / 10, charging


def parse_state(text: str) -> DeviceState:
    """The device state in the output of `SCRIPT`."""
    facts = parse_facts(text)
    percent, celsius, charging = _battery(facts)
    speeds = sorted(
        (int(match[1]), number / 1000)
        for path, value in facts.items()
        if (match := re.search(r"/cpu(\d+)/cpufreq/", path)) and (number := _number(value)) is not None
    )
    return DeviceState(
        battery_percent=percent,
        battery_c=celsius,
        charging=charging,
        thermal_c=_thermal(facts),
        cpu_mhz=tuple(mhz for _, mhz in speeds),
        load_1min=_number(facts.get("/proc/loadavg", "").split(" ")[0]),
    )


def read_state(adb: Adb) -> DeviceState | None:
    """The device's state now; None where it cannot be read."""
    with contextlib.suppress(MsdcError):
        return parse_state(adb.shell(SCRIPT, timeout_s=30).output)
    return None


def out_of_memory(adb: Adb, elapsed_s: float) -> str | None:
    """The kernel's message about a process killed for lack of memory in the last `elapsed_s` seconds, None without."""
    with contextlib.suppress(MsdcError):
        done = adb.shell("cat /proc/uptime; dmesg 2>/dev/null | grep 'Killed process' | tail -n 5")
        uptime, *lines = done.output.splitlines()
        for line in reversed(lines):
            match = re.search(r"\[ *(\d+)\.\d+\](?:\[.*?\])? *(.*Killed process.*)", line)
            if match and float(match[1]) >= float(uptime.split()[0]) - elapsed_s - 2:
                return match[2][:160]
    return None


def _failure(remote: Remote, job: Job, done: Finished, elapsed_s: float) -> MsdcError:
    """Why the runner gave no answer."""
    where, timeout_s = f"{job.runtime} on {remote.adb.serial}", job.settings.timeout_s
    # Without adb's newer protocol both streams are mixed.
    output = f"{done.errors}\n{done.output}"
    word, tail = runner_error(output), last_words(output)
    if word is not None:
        if "disk full" in word or "No space left" in word:
            return MsdcError(f"{where}: the device's disk is full ({word})")
        # The host checked the bundle before the push, so a bundle damaged on the device was damaged on its way.
        if any(sign in word for sign in DAMAGED):
            return MsdcError(f"{where}: the bundle was damaged on its way to the device ({word}); run again")
        return (InputError if done.code == USAGE_CODE else MsdcError)(f"{where}: {word}")
    # The file is present and intact (its hash was compared), so "not found" is its interpreter or its format.
    if done.code in (126, 127) or any(sign in output.lower() for sign in FOREIGN):
        return MsdcError(f"{where}: the runner is not a program for this device ({tail or 'not started'})")
    if done.code in (137, 124, 9):
        if elapsed_s >= timeout_s:
            return MsdcError(f"{where}: no result after {timeout_s:g} s; stopped")
        word = out_of_memory(remote.adb, elapsed_s)
        if word is not None:
            return MsdcError(f"{where}: out of memory on the device ({word})")
        return MsdcError(f"{where}: the runner was killed (out of memory? the device's log does not say)")
    if done.code > 128:
        return MsdcError(f"{where}: the runner was ended by signal {done.code - 128}")
    return MsdcError(f"{where}: the runner ended with code {done.code} and no result" + (f" ({tail})" if tail else ""))


def _run_in(folder: RemoteFolder, remote: Remote, job: Job, runner: RunnerBuild, local: Path) -> Answer:
    """Push, run, pull."""
    adb, timeout_s = remote.adb, job.settings.timeout_s
    where = f"{job.runtime} on {adb.serial}"
    nonce, asked = write_request(job, local, f"{folder.path}/bundle", folder.path, remote.clock)
    program, bundle = ([runner.program, *asked], [job.bundle / name for name in bundle_files(job)])
    needed = sum(path.stat().st_size for path in (*program, *runner.libraries, *bundle)) + SPARE_BYTES
    free = folder.free_bytes()
    if free is not None and free < needed:
        raise MsdcError(
            f"device {adb.serial}: its disk is full: {free / 2**20:.0f} MiB free, the run needs {needed / 2**20:.0f}"
        )
    folder.push(program)
    if runner.libraries:
        folder.push(runner.libraries, "lib")
    folder.push(bundle, "bundle")
    # The runner itself checks the bundle's files against the manifest; the runner is checked here.
    folder.check(program)
    if runner.libraries:
        folder.check(runner.libraries, "lib")
    adb.shell(f"cd {folder.path} && chmod 755 {shlex.quote(f'./{runner.program.name}')} lib/* 2>/dev/null; true")
    start = time.monotonic()
    try:
        done = adb.run_long(f"cd {folder.path}{_start_line(runner, timeout_s)}", timeout_s=timeout_s + GRACE_S)
    except DeviceGone as error:
        # When memory runs out, the kernel may kill adbd with the runner, or before it.
        elapsed_s = time.monotonic() - start
        word = out_of_memory(adb, elapsed_s) if adb.come_back(COME_BACK_S) else None
        if word is not None:
            raise MsdcError(f"{where}: out of memory on the device ({word})") from error
        raise
    elapsed_s = time.monotonic() - start
    if done is None:
        raise MsdcError(f"{where}: no result after {timeout_s:g} s; stopped")
    hashes = sentinel(done.output, nonce)
    if hashes is None:
        raise _failure(remote, job, done, elapsed_s)
    for name in (ANSWER, VECTORS):
        adb.pull(f"{folder.path}/{name}", local / name, MAX_ANSWER_BYTES)
    return read_answer(job, where, local, hashes, remote.clock)


def run_remote(remote: Remote, jobs: Sequence[Job]) -> Iterator[DeviceRun]:
    """Run each job on a device that responds.

    Raises:
        InputError: the runner or the bundle is not for this device.
        MsdcError: the device failed; files of the run are removed where it still responds.
    """
    adb = remote.adb
    machine = adb.shell("uname -m").output.strip()
    model, release = (
        adb.shell(f"command -v getprop >/dev/null 2>&1 && getprop {name}; true").output.strip()
        for name in ("ro.product.model", "ro.build.version.release")
    )
    for index, job in enumerate(jobs):
        job.native_tokenizer()
        runner = native_runner(job.runtime, machine, job.settings.runner)
        if index and job.settings.cooldown_s:
            time.sleep(job.settings.cooldown_s)
        before = read_state(adb)
        with (
            tempfile.TemporaryDirectory(prefix="msdc-bench-") as local,
            RemoteFolder(adb, secrets.token_hex(8)) as folder,
        ):
            answer = _run_in(folder, remote, job, runner, Path(local))
            after = read_state(adb)
        info = device_info(
            answer[0],
            name=remote.name or model or adb.serial,
            kind=remote.kind,
            os=f"Android {release}" if release else "",
            emulated=remote.kind == "emulator",
        )
        yield device_run(job, answer, info, runner, before=before, after=after, notes=remote.notes)


class AdbDevice(Device):
    """`adb:SERIAL`, or `adb` for the only device attached."""

    kind = "adb"

    @classmethod
    def available(cls) -> Sequence[str]:
        """Attached devices that are ready, where a runner can be built for them."""
        program = find("adb")
        if program is None or not can_build("aarch64"):
            return ()
        with contextlib.suppress(MsdcError):
            return [f"adb:{serial}" for serial, state in attached(program).items() if state == "device"]
        return ()

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`."""
        jobs = open_jobs(bundle, settings)
        (program,) = require("adb")
        adb = Adb(choose_serial(program, self.argument), program)
        title = f"bench {jobs[0].manifest.name} on {adb.serial}"
        if settings.progress:
            say(title)
        return list(track(run_remote(Remote(adb), jobs), title, enabled=settings.progress))
