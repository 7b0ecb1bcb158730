"""A device with adbd, Android or any Linux: push, run under a time limit, pull, and remove everything."""

from __future__ import annotations

import contextlib
import re
import shlex
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from msdc.bench.devices.adb_client import Adb, DeviceGone, Shell, attached, choose_serial
from msdc.bench.devices.base import Device, chosen_runtimes, open_bundle
from msdc.bench.devices.device_state import SCRIPT, parse_state
from msdc.bench.devices.runner_protocol import (
    ANSWER,
    MAX_ANSWER_BYTES,
    REQUEST,
    USAGE_CODE,
    VECTORS,
    Answer,
    RunnerJob,
    device_info,
    device_run,
    read_answer,
    runner_error,
    sentinel,
)
from msdc.bench.result import Clock, DeviceRun, DeviceState
from msdc.bench.settings import BenchSettings
from msdc.bench.system_programs import find, last_words, require
from msdc.bench.toolchain.build import can_build
from msdc.bench.toolchain.runner import RunnerBuild
from msdc.bench.workload import Tasks
from msdc.errors import InputError, MsdcError
from msdc.export.manifest import Manifest
from msdc.files import sha256_file
from msdc.progress import say, track

PLACES = ("/data/local/tmp", "/tmp")
PREFIX = "msdc-run-"
SPARE_BYTES = 4 * 1024 * 1024
# Added to the device's own limit: for start-up, for the answer, and for devices without `timeout`.
GRACE_S = 20.0
COME_BACK_S = 20.0


@dataclass(frozen=True)
class Remote:
    """A device behind adb: its kind, its name, and what its clock counts."""

    adb: Adb
    kind: str = "adb"
    name: str | None = None
    clock: Clock = "wall"
    emulated: bool = False
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


def _pushed_bytes(job: RunnerJob, runner: RunnerBuild) -> int:
    listed = job.manifest.files
    bundle = sum(listed[name].bytes for name in job.bundle_files if name in listed)
    return bundle + sum(path.stat().st_size for path in runner.files)


def _free_or_full(folder: RemoteFolder, needed: int) -> None:
    free = folder.free_bytes()
    if free is not None and free < needed + SPARE_BYTES:
        raise MsdcError(
            f"device {folder.adb.serial}: its disk is full: {free / 2**20:.0f} MiB free, "
            f"the run needs {(needed + SPARE_BYTES) / 2**20:.0f}"
        )


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


def _killed(remote: Remote, job: RunnerJob, elapsed_s: float) -> MsdcError:
    """Why a runner was ended by SIGKILL: its time limit, or lack of memory."""
    where = f"{job.runtime} on {remote.adb.serial}"
    if elapsed_s >= job.settings.timeout_s:
        return MsdcError(f"{where}: no result after {job.settings.timeout_s:g} s; stopped")
    word = out_of_memory(remote.adb, elapsed_s)
    if word is not None:
        return MsdcError(f"{where}: out of memory on the device ({word})")
    return MsdcError(f"{where}: the runner was killed (out of memory? the device's log does not say)")


def _failure(remote: Remote, job: RunnerJob, done: Shell, elapsed_s: float) -> MsdcError:
    where = f"{job.runtime} on {remote.adb.serial}"
    # Without adb's newer protocol both streams are mixed.
    output = f"{done.errors}\n{done.output}"
    word = runner_error(output)
    if word is not None:
        if "disk full" in word or "No space left" in word:
            return MsdcError(f"{where}: the device's disk is full ({word})")
        # The host checked the bundle before the push, so a bundle damaged on the device was damaged on its way.
        damaged = "sha256 differs" in word or "bytes where the manifest says" in word or "seal does not match" in word
        if damaged:
            return MsdcError(f"{where}: the bundle was damaged on its way to the device ({word}); run again")
        return (InputError if done.code == USAGE_CODE else MsdcError)(f"{where}: {word}")
    lowered = output.lower()
    if any(sign in lowered for sign in ("exec format error", "syntax error", "not executable", "wrong elf class",
                                        "cannot execute", "invalid elf header")):  # fmt: skip
        return MsdcError(f"{where}: the runner is not a program for this device ({last_words(output)})")
    # The file is present and intact (its hash was compared), so "not found" is its interpreter or its format.
    if done.code in (126, 127):
        return MsdcError(
            f"{where}: the runner is not a program for this device ({last_words(output) or 'not started'})"
        )
    if done.code in (137, 124, 9):
        return _killed(remote, job, elapsed_s)
    if done.code > 128:
        return MsdcError(f"{where}: the runner was ended by signal {done.code - 128}")
    tail = last_words(output)
    return MsdcError(f"{where}: the runner ended with code {done.code} and no result" + (f" ({tail})" if tail else ""))


def _run_in(folder: RemoteFolder, remote: Remote, job: RunnerJob, runner: RunnerBuild, local: Path) -> Answer:
    """Push, run, pull."""
    where = f"{job.runtime} on {remote.adb.serial}"
    asked = job.write_request(local, f"{folder.path}/bundle", folder.path)
    _free_or_full(folder, _pushed_bytes(job, runner) + sum(path.stat().st_size for path in asked))
    folder.push([runner.program, *asked])
    if runner.libraries:
        folder.push(runner.libraries, "lib")
    folder.push([job.bundle / name for name in job.bundle_files], "bundle")
    # The runner itself checks the bundle's files against the manifest; the runner is checked here.
    folder.check([runner.program, *asked])
    if runner.libraries:
        folder.check(runner.libraries, "lib")
    program = shlex.quote(f"./{runner.program.name}")
    remote.adb.shell(f"cd {folder.path} && chmod 755 {program} lib/* 2>/dev/null; true")
    start = time.monotonic()
    timeout_s = job.settings.timeout_s
    try:
        done = remote.adb.run_long(f"cd {folder.path}{_start_line(runner, timeout_s)}", timeout_s=timeout_s + GRACE_S)
    except DeviceGone as error:
        # When memory runs out, the kernel may kill adbd with the runner, or before it.
        elapsed_s = time.monotonic() - start
        word = out_of_memory(remote.adb, elapsed_s) if remote.adb.come_back(COME_BACK_S) else None
        if word is not None:
            raise MsdcError(f"{where}: out of memory on the device ({word})") from error
        raise
    elapsed_s = time.monotonic() - start
    if done is None:
        raise MsdcError(f"{where}: no result after {timeout_s:g} s; stopped")
    hashes = sentinel(done.output, job.nonce)
    if hashes is None:
        raise _failure(remote, job, done, elapsed_s)
    for name in (ANSWER, VECTORS):
        remote.adb.pull(f"{folder.path}/{name}", local / name, MAX_ANSWER_BYTES)
    return read_answer(job, where, local / ANSWER, local / VECTORS, hashes)


def read_state(adb: Adb) -> DeviceState | None:
    """The device's state now; None where it cannot be read."""
    with contextlib.suppress(MsdcError):
        return parse_state(adb.shell(SCRIPT, timeout_s=30).output)
    return None


def _property(adb: Adb, name: str) -> str:
    done = adb.shell(f"command -v getprop >/dev/null 2>&1 && getprop {name}; true")
    return done.output.strip()


def _names(remote: Remote) -> tuple[str, str]:
    """Name and system of the device, from Android's properties where it has them."""
    model = _property(remote.adb, "ro.product.model")
    release = _property(remote.adb, "ro.build.version.release")
    system = f"Android {release}" if release else ""
    return remote.name or model or remote.adb.serial, system


def run_remote(
    remote: Remote, bundle: Path, manifest: Manifest, settings: BenchSettings, tasks: Tasks
) -> Iterator[DeviceRun]:
    """Run each requested artifact on a device that responds.

    Raises:
        InputError: the runner or the bundle is not for this device.
        MsdcError: the device failed; files of the run are removed where it still responds.
    """
    machine = remote.adb.shell("uname -m").output.strip()
    name, system = _names(remote)
    for index, runtime in enumerate(chosen_runtimes(manifest.runtimes, settings, bundle)):
        job = RunnerJob(bundle.resolve(), manifest, runtime, settings, tasks, remote.clock)
        job.check_tokenizer()
        runner = job.runner(machine)
        if index and settings.cooldown_s:
            time.sleep(settings.cooldown_s)
        before = read_state(remote.adb)
        with tempfile.TemporaryDirectory(prefix="msdc-bench-") as local, RemoteFolder(remote.adb, job.nonce) as folder:
            answer = _run_in(folder, remote, job, runner, Path(local))
            after = read_state(remote.adb)
        info = device_info(answer.value, name=name, kind=remote.kind, os=system, emulated=remote.emulated)
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
        manifest, tasks = open_bundle(bundle, settings)
        (program,) = require("adb")
        adb = Adb(choose_serial(program, self.argument), program)
        if settings.progress:
            say(f"bench {manifest.name} on {adb.serial}")
        runs = run_remote(Remote(adb), bundle, manifest, settings, tasks)
        return list(track(runs, f"bench {manifest.name} on {adb.serial}", enabled=settings.progress))
