"""A device with adbd, Android or any Linux: push, run under a time limit, pull, and remove everything.

Additions to adb: `adb shell` exits with code 0 when the device dies, so every script ends with a sentinel line that
must arrive; `adb push` renames the file when the target folder is missing, so folders are created first; several
devices may be attached, so the serial is always given.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import shlex
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from msdc.bench.devices import runner_protocol as protocol
from msdc.bench.devices.base import Device, Job, collect_runs, open_jobs
from msdc.bench.devices.state import (
    DURING,
    DURING_SCRIPT,
    MARK,
    SCRIPT,
    States,
    parse_during,
    parse_facts,
    parse_state,
    with_affinity,
    with_unreadable,
)
from msdc.bench.options import BenchSettings
from msdc.bench.result import Clock, DeviceRun, DeviceState, FixedPerformance, hash_serial
from msdc.bench.strain import surface_c
from msdc.bench.system_programs import find, last_words, require_programs, run_tool
from msdc.bench.toolchain.build import RunnerBuild, can_build, native_runner
from msdc.errors import InputError, MsdcError
from msdc.files import sha256_file
from msdc.processes import Finished, run_program
from msdc.progress import say, track

# A serial of this form comes from `adb connect` and is forgotten when the server restarts.
NETWORK_SERIAL = re.compile(r"^[\w.\-]+:\d+$")
PLACES = ("/data/local/tmp", "/tmp")
PREFIX = "msdc-run-"
# Added to the device's own limit: for start-up, for the answer, and for devices without `timeout`.
GRACE_S = 20.0
COME_BACK_S = 20.0
# A runner's words for a bundle that differs from its manifest, and a shell's for a program of another machine.
DAMAGED = ("sha256 differs", "bytes where the manifest", "seal does not match")
FOREIGN = ("exec format error", "syntax error", "not executable", "wrong elf class", "cannot execute",
           "invalid elf header")  # fmt: skip
MOST_DURING_BYTES = 2_000_000
# `cool_below`: how often a phone is asked, and how long it may take.
COOL_EVERY_S, COOL_MOST_S = 10.0, 1800.0
IDENTITY = """
echo "machine=$(uname -m)"
if command -v getprop >/dev/null 2>&1; then
    echo "model=$(getprop ro.product.model)"
    echo "release=$(getprop ro.build.version.release)"
    echo "serial=$(getprop ro.serialno)"
    echo "boot_serial=$(getprop ro.boot.serialno)"
    echo "hardware=$(getprop ro.hardware)"
    echo "kernel_qemu=$(getprop ro.kernel.qemu)"
    echo "boot_qemu=$(getprop ro.boot.qemu)"
    echo "characteristics=$(getprop ro.build.characteristics)"
fi
"""
# `ro.hardware` of Android's virtual devices: Android Studio's, and Cuttlefish.
VIRTUAL_HARDWARE = ("ranchu", "goldfish", "cutf_cvm", "vsoc")
# Serial numbers that many phones of cheap makers state.
NO_SERIALS = ("", "unknown", "null", "0", "0123456789abcdef", "1234567890abcdef", "default_serial")
VIRTUAL_NOTE = "an Android virtual device: its times are those of the computer that runs it"


class DeviceGone(MsdcError):
    """The device or the adb server stopped answering."""


def attached(program: str) -> dict[str, str]:
    """Serial -> state of every attached device."""
    listing = run_tool([program, "devices"], "adb devices", timeout_s=30)
    states: dict[str, str] = {}
    for serial, state in re.findall(r"^(\S[^\t\r\n]*)\t *(.*\S)", listing, re.M):
        # Cheap phones of one kind share a serial, and adb reaches none of them by it.
        states[serial] = "one of several with this serial" if serial in states else state
    return states


def choose_serial(program: str, requested: str | None) -> str:
    """The serial to use: exactly the requested one, or the only one attached; `InputError` lists the attached ones."""
    states = attached(program)
    if requested is None:
        ready = [serial for serial, state in states.items() if state == "device"] or list(states)
        if len(ready) != 1:
            which = "plug one in with USB debugging on" if not ready else "name one of adb:" + ", adb:".join(ready)
            raise InputError(f"{len(ready)} devices attached: {which}")
        (requested,) = ready
    # A prefix is refused, even a unique one: another phone of a rack would be measured by mistake.
    if requested not in states:
        raise InputError(f"no device with serial {requested}; attached: {', '.join(states) or 'none'}")
    if states[requested] != "device":
        raise MsdcError(
            f"device {requested} is {states[requested]}: unlock it, allow USB debugging, check the connection"
        )
    return requested


class Adb:
    """The device with one serial. `program` is the path of adb; the server is that of the environment."""

    def __init__(self, serial: str, program: str | None = None) -> None:
        self.serial = serial
        self.program = program or require_programs("adb")[0]

    def _run(self, *arguments: str, timeout_s: float = 600.0, grows: tuple[Path, int] | None = None) -> Finished | None:
        return run_program([self.program, "-s", self.serial, *arguments], timeout_s=timeout_s, grows=grows)

    def shell(self, script: str, *, timeout_s: float = 180.0) -> Finished:
        """Run a POSIX shell script on the device.

        Raises:
            DeviceGone: the end of the script did not arrive, whatever the exit code of adb.
        """
        done = self.run_long(script, timeout_s=timeout_s)
        if done is None:
            raise DeviceGone(f"device {self.serial}: no answer to adb shell in {timeout_s:g} s")
        return done

    def run_long(self, script: str, *, timeout_s: float) -> Finished | None:
        """Like `shell` for a long script; None after `timeout_s`, when it may still run on the device."""
        mark = f"msdc-end-{secrets.token_hex(6)}"
        # The mark is on a line of its own, whatever the script's output ends with; printf is one write. Errors of the
        # device's shell may follow, where both streams are one.
        script = f"( export LC_ALL=C\n{script}\n); printf '\\n%s %s\\n' {mark} $?"
        done = self._run("shell", script, timeout_s=timeout_s)
        if done is None:
            return None
        match = re.search(rf"[\r\n]{mark} ([0-9]{{1,3}})[\r\n]", done.output)
        if match is None:
            word = last_words(done.errors) or last_words(done.output)
            raise DeviceGone(f"device {self.serial} went away while a command ran" + (f" ({word})" if word else ""))
        return Finished(int(match[1]), done.output[: match.start()], done.errors)

    def push(self, files: Sequence[Path], folder: str) -> None:
        """Copy files into an existing folder of the device."""
        # The trailing slash makes a missing folder an error instead of a new name.
        done = self._run("push", *(str(path.absolute()) for path in files), f"{folder}/")
        if done is None or done.code != 0:
            output = "no answer from adb push" if done is None else f"{done.output}\n{done.errors}"
            full = "its disk is full: " if "No space left" in output else ""
            raise MsdcError(f"device {self.serial}: {full}cannot copy to {folder} ({last_words(output)})")

    def pull(self, remote: str, local: Path, max_bytes: int) -> None:
        """Copy one file of at most `max_bytes` from the device."""
        done = self._run("pull", remote, str(local.absolute()), grows=(local, max_bytes))
        if done is None or done.code != 0 or not local.is_file():
            word = "no answer" if done is None else last_words(f"{done.output}\n{done.errors}")
            raise DeviceGone(f"device {self.serial}: {remote} did not come back ({word})")

    def answers(self) -> bool:
        """Whether the device runs a command now; a network device is connected again."""
        with contextlib.suppress(MsdcError):
            if NETWORK_SERIAL.match(self.serial):
                connect(self.serial, self.program)
            return self.shell("true", timeout_s=30).code == 0
        return False

    def come_back(self, timeout_s: float) -> bool:
        """Wait for a device that went away; returns whether it is back."""
        end = time.monotonic() + timeout_s
        while not (back := self.answers()) and time.monotonic() < end:
            time.sleep(0.5)
        return back


def connect(address: str, program: str) -> None:
    """`adb connect`: attach a device on the network, also where adb keeps a dead connection to it."""
    state = attached(program).get(address)
    if state == "device":
        return
    if state is not None:
        disconnect(address, program)
    output = run_tool([program, "connect", address], "adb connect", timeout_s=30)
    if "connected to" not in output:
        raise DeviceGone(f"cannot connect to {address}: {last_words(output)}")


def disconnect(address: str, program: str) -> None:
    """`adb disconnect`; errors are ignored."""
    with contextlib.suppress(MsdcError, OSError):
        run_tool([program, "disconnect", address], "adb disconnect", timeout_s=30)


# Android's mode for benchmarks, from 11 on. There is no way to ask whether it is on.
FIXED_PERFORMANCE = "cmd power set-fixed-performance-mode-enabled"


class RemoteFolder:
    """A folder on the device. On exit, processes started in it are killed, it is removed, and the clocks are freed."""

    def __init__(self, adb: Adb, nonce: str) -> None:
        self.adb = adb
        self.name = f"{PREFIX}{nonce}"
        self.path = ""
        self._is_fixed = False

    def __enter__(self) -> RemoteFolder:
        try:
            self._make()
        except MsdcError as error:
            # The answer may be lost though the folder was made.
            self.__exit__(type(error), error, None)
            raise
        return self

    def _make(self) -> None:
        places = " ".join(PLACES)
        # First remove folders older than a day, left by runs whose host or device died: unless its process lives, since
        # a device's clock jumps by years when it finds the network. On a full disk the folder may be created, but not
        # its subfolders.
        script = f"""
            for d in {places}; do
                if [ -d $d ] && [ -w $d ]; then
                    find $d -maxdepth 1 -name '{PREFIX}*' -mmin +1440 -exec \\
                        sh -c 'kill -0 "$(cat "$1/pid")" || rm -rf "$1"' sh {{}} \\; 2>/dev/null
                    mkdir $d/{self.name} && mkdir $d/{self.name}/lib $d/{self.name}/bundle &&
                        echo $d/{self.name} && exit 0
                    rm -rf $d/{self.name}
                    exit 1
                fi
            done
            exit 1"""
        done = self.adb.shell(script)
        if done.code != 0:
            word = last_words(f"{done.output}\n{done.errors}")
            what = "its disk is full" if "No space left" in word else f"no writable folder among {places}"
            raise MsdcError(f"device {self.adb.serial}: {what} ({word})")
        # What the device prints is not trusted: it only chooses among the paths that were offered.
        lines = ["", *map(str.strip, done.output.strip().splitlines())]
        candidates = [f"{parent}/{self.name}" for parent in PLACES]
        self.path = next((line for line in lines if line in candidates), "")
        if not self.path:
            raise MsdcError(f"device {self.adb.serial}: made {lines[-1][:60]!r} instead of {' or '.join(candidates)}")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        cleaned = False
        with contextlib.suppress(MsdcError):
            cleaned = self._cleanup() or (self.adb.come_back(COME_BACK_S) and self._cleanup())
        if not cleaned:
            line = f"{self.path or self.name} could not be removed from device {self.adb.serial}: it does not answer"
            line += f"; end its fixed performance mode by `{FIXED_PERFORMANCE} false`" if self._is_fixed else ""
            if error is None:
                raise MsdcError(line)
            error.args = (f"{error}; {line}",)

    def _cleanup(self) -> bool:
        # The shell that started the runner leads its process group and wrote its id to `pid`. (dash accepts no "--"
        # after a signal number; mksh and toybox need none.)
        script = f"""
            {f"{FIXED_PERFORMANCE} false >/dev/null 2>&1" if self._is_fixed else ":"}
            for d in {" ".join(PLACES)}; do
                f=$d/{self.name}
                if [ -s $f/pid ]; then kill -9 -$(cat $f/pid) 2>/dev/null; fi
                rm -rf $f
                [ ! -e $f ] || exit 1
            done"""
        with contextlib.suppress(DeviceGone):
            return self.adb.shell(script).code == 0
        return False

    def fix_performance(self) -> tuple[FixedPerformance | None, str]:
        """Ask Android for clocks that it holds, until the end of this folder: what it gave, and its words if it
        refused; None where the system has no such mode."""
        self._is_fixed = True  # the answer may be lost though the mode is on
        done = self.adb.shell(f"command -v cmd >/dev/null 2>&1 || exit 127; {FIXED_PERFORMANCE} true")
        if done.code == 0:
            state = read_state(self.adb)
            return FixedPerformance(enabled=True, limit_mhz=() if state is None else state.cpu_limit_mhz), ""
        self._is_fixed = False
        words = last_words(f"{done.output}\n{done.errors}")
        return (None, "") if done.code == 127 else (FixedPerformance(enabled=False), words)

    def push(self, files: Sequence[Path], folder: str = "") -> None:
        """Copy files into the folder or one of its subfolders."""
        self.adb.push(files, f"{self.path}/{folder}".rstrip("/"))

    def check(self, files: Sequence[Path], folder: str = "") -> None:
        """Compare the pushed files with their sha256, where the device has sha256sum; `MsdcError` where one differs."""
        # With "./" in front, no name is taken for an option.
        names = " ".join(shlex.quote(f"./{path.name}") for path in files)
        done = self.adb.shell(f"cd {self.path}/{folder} && sha256sum {names}", timeout_s=300)
        if done.code == 127:
            return
        rows = (line.split(maxsplit=1) for line in done.output.splitlines())
        there = {row[1].lstrip("*").removeprefix("./"): row[0] for row in rows if len(row) == 2}
        for path in files:
            if (digest := there.get(path.name)) != sha256_file(path):
                word = last_words(f"{done.output}\n{done.errors}") or f"code {done.code}"
                what = "was damaged on its way there; run again" if digest else f"cannot be read there ({word})"
                raise MsdcError(f"device {self.adb.serial}: {path.name} {what}")


def _start_line(runner: RunnerBuild, timeout_s: float, clock: Clock) -> str:
    program = shlex.quote(f"./{runner.program.name}")
    if runner.loader is not None:
        program = f"./lib/{shlex.quote(runner.loader)} --library-path ./lib {program}"
    # KILL, because a runner may hang anywhere. Without `timeout`, the host's limit and the runner's alarm remain.
    return f"""
        echo $$ > pid
        limit=""
        if command -v timeout >/dev/null 2>&1; then limit="timeout -s KILL {int(timeout_s) + 1}"; fi
        {DURING_SCRIPT if clock == "wall" else "sampler="}
        LD_LIBRARY_PATH="$PWD/lib" $limit {program} {protocol.REQUEST}
        code=$?
        if [ -n "$sampler" ]; then kill $sampler 2>/dev/null; fi
        exit $code"""


def wait_until_cool(adb: Adb, below_c: float) -> None:
    """Wait until battery and skin of the phone are below `below_c` degrees Celsius.

    Raises:
        InputError: the phone reports no such temperature.
        MsdcError: it is not cool after `COOL_MOST_S` seconds.
    """
    end, reported = time.monotonic() + COOL_MOST_S, False
    while True:
        celsius = None if (state := read_state(adb)) is None else surface_c(state)
        if celsius is None:
            raise InputError(f"`cool_below`: device {adb.serial} reports no temperature of its battery or skin")
        if celsius < below_c:
            return
        if time.monotonic() > end:
            raise MsdcError(f"device {adb.serial} is at {celsius:.1f} °C after {COOL_MOST_S / 60:.0f} min, not below "
                            f"{below_c:g} °C: unplug it, take it out of its case")  # fmt: skip
        if not reported:
            say(f"wait until device {adb.serial} is below {below_c:g} °C, now {celsius:.1f} °C")
            reported = True
        time.sleep(COOL_EVERY_S)


def read_state(adb: Adb) -> DeviceState | None:
    """The device's state now; None where it cannot be read."""
    with contextlib.suppress(MsdcError):
        return with_unreadable(parse_state(adb.shell(SCRIPT, timeout_s=30).output))
    return None


def out_of_memory(adb: Adb, elapsed_s: float) -> str | None:
    """The kernel's message about a process killed for lack of memory in the last `elapsed_s` seconds, None without."""
    with contextlib.suppress(MsdcError):
        done = adb.shell("cat /proc/uptime; dmesg 2>/dev/null | grep 'Killed process' | tail -n 5")
        uptime, *lines = done.output.splitlines()
        for line in reversed(lines):
            match = re.search(r"\[ *(\d+)\.\d+\](?:\[.*?\])? *(.*Killed process.*)", line)
            if match and float(match[1]) >= float(uptime.split()[0]) - elapsed_s - 2:
                return f"out of memory on the device ({match[2][:160]})"
    return None


def _failure(adb: Adb, job: Job, done: Finished | None, elapsed_s: float) -> MsdcError:
    """Why the runner gave no answer; `done` is None where the host stopped it."""
    where, timeout_s, kind = f"{job.runtime} on {adb.serial}", job.settings.timeout_s, MsdcError
    if done is None or (done.code in (137, 124, 9) and elapsed_s >= timeout_s):
        return MsdcError(f"{where}: no result after {timeout_s:g} s; stopped")
    # Without adb's newer protocol both streams are mixed.
    output = f"{done.errors}\n{done.output}"
    word, tail = protocol.runner_error(output), last_words(output)
    if word is not None:
        line = word
        if "disk full" in word or "No space left" in word:
            line = f"the device's disk is full ({word})"
        elif any(sign in word for sign in DAMAGED):
            # The host checked the bundle before the push, so a bundle damaged on the device was damaged on its way.
            line = f"the bundle was damaged on its way to the device ({word}); run again"
        elif done.code == protocol.USAGE_CODE:
            kind = InputError
    elif done.code in (126, 127) or any(sign in output.lower() for sign in FOREIGN):
        # The file is present and intact (its hash was compared), so "not found" is its interpreter or its format.
        line = f"the runner is not a program for this device ({tail})"
    elif done.code in (137, 124, 9):
        line = out_of_memory(adb, elapsed_s) or "the runner was killed (out of memory? the device's log has no line)"
    else:
        line = f"the runner ended with code {done.code} and no result ({tail})"
    return kind(f"{where}: {line}")


def _run_in(folder: RemoteFolder, clock: Clock, job: Job, runner: RunnerBuild, local: Path) -> protocol.Answer:
    """Push, run, pull."""
    adb = folder.adb
    nonce, request = protocol.write_request(job, local, f"{folder.path}/bundle", folder.path, clock)
    program = [runner.program, *request]
    pushed = {"": program, "lib": runner.libraries}
    for name, files in (pushed | {"bundle": [job.bundle / name for name in protocol.bundle_files(job)]}).items():
        if files:
            folder.push(files, name)
    # The runner itself checks the bundle's files against the manifest; the runner is checked here.
    for name, files in pushed.items():
        if files:
            folder.check(files, name)
    adb.shell(f"cd {folder.path} && chmod 755 {shlex.quote(f'./{runner.program.name}')} lib/* 2>/dev/null; true")
    start, timeout_s = time.monotonic(), job.settings.timeout_s
    try:
        done = adb.run_long(f"cd {folder.path}{_start_line(runner, timeout_s, clock)}", timeout_s=timeout_s + GRACE_S)
    except DeviceGone as error:
        # When memory runs out, the kernel may kill adbd with the runner, or before it.
        elapsed_s = time.monotonic() - start
        word = out_of_memory(adb, elapsed_s) if adb.come_back(COME_BACK_S) else None
        if word is not None:
            raise MsdcError(f"{job.runtime} on {adb.serial}: {word}") from error
        raise
    hashes = protocol.sentinel(done.output, nonce) if done is not None else None
    if hashes is None:
        raise _failure(adb, job, done, time.monotonic() - start)
    for name in (protocol.ANSWER, protocol.VECTORS):
        adb.pull(f"{folder.path}/{name}", local / name, protocol.MAX_ANSWER_BYTES)
    return protocol.read_answer(job, f"{job.runtime} on {adb.serial}", local, hashes, clock)


def _states_after(adb: Adb, folder: RemoteFolder) -> tuple[DeviceState | None, DeviceState | None]:
    """The device's states now and during the run that ended in `folder`; None where they cannot be read."""
    script = f"{SCRIPT}\necho {MARK}\nhead -c {MOST_DURING_BYTES} {folder.path}/{DURING} 2>/dev/null\ntrue"
    with contextlib.suppress(MsdcError):
        now, _, written = adb.shell(script, timeout_s=60).output.partition(MARK)
        return with_unreadable(parse_state(now)), parse_during(written)
    return None, None


def serial_number(adb: Adb, facts: Mapping[str, str]) -> str:
    """The phone's own serial number, the same over a cable and a network; adb's where it states none."""
    stated = (facts.get("serial", ""), facts.get("boot_serial", ""))
    return next((serial for serial in stated if serial.lower() not in NO_SERIALS), adb.serial)


def is_virtual(facts: Mapping[str, str]) -> bool:
    """Whether the facts of `IDENTITY` are those of an Android virtual device."""
    on_qemu = "1" in (facts.get("kernel_qemu"), facts.get("boot_qemu"))
    is_named = "emulator" in facts.get("characteristics", "").split(",")
    return on_qemu or is_named or facts.get("hardware", "").lower() in VIRTUAL_HARDWARE


def run_remote(
    adb: Adb, jobs: Sequence[Job], *, clock: Clock = "wall", emulated: str | None = None, notes: Sequence[str] = ()
) -> Iterator[DeviceRun]:
    """Run each job on a device that responds; where it fails, files of the run are removed if it still responds.

    `emulated` is the name of an emulated device.
    """
    facts = parse_facts(adb.shell(IDENTITY).output)
    machine, model, release = (facts.get(name, "") for name in ("machine", "model", "release"))
    if not machine:
        raise MsdcError(f"device {adb.serial}: `uname -m` does not answer with its processor")
    virtual = emulated is None and is_virtual(facts)
    for index, job in enumerate(jobs):
        job.native_tokenizer()
        runner = native_runner(job.runtime, machine, job.settings.runner)
        if index and job.settings.cooldown_s:
            time.sleep(job.settings.cooldown_s)
        if job.settings.cool_below is not None and emulated is None:
            wait_until_cool(adb, job.settings.cool_below)
        before = read_state(adb)
        job = replace(job, settings=with_affinity(job.settings, before, f"device {adb.serial}"))
        noted = [*notes, *([VIRTUAL_NOTE] if virtual else [])]
        fixed: FixedPerformance | None = None
        with (
            tempfile.TemporaryDirectory(prefix="msdc-bench-") as local,
            RemoteFolder(adb, secrets.token_hex(8)) as folder,
        ):
            if emulated is None:
                fixed, words = folder.fix_performance()
                noted += [f"the phone refused Android's fixed performance mode ({words})"] if words else []
            answer = _run_in(folder, clock, job, runner, Path(local))
            after, during = _states_after(adb, folder)
        info = protocol.device_info(
            answer[0],
            # Never the serial: results are published.
            name=emulated or model or "unnamed device",
            kind="emulator" if emulated else "adb",
            os=f"Android {release}" if release else "",
            emulated=emulated is not None or virtual,
        )
        # The emulator starts a new phone in every run.
        info = info.model_copy(update={"identity": "" if emulated else hash_serial(serial_number(adb, facts))})
        yield protocol.device_run(
            job, answer, info, runner, states=States(before, during, after), fixed_performance=fixed, notes=noted
        )


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
        (program,) = require_programs("adb")
        adb = Adb(choose_serial(program, self.argument), program)
        title = f"bench {jobs[0].manifest.name} on {adb.serial}"
        if settings.progress:
            say(title)
        return collect_runs(track(run_remote(adb, jobs), title, enabled=settings.progress))
