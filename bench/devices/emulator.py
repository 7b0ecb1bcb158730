"""`emulator[:a53|a76|i8mm]`: an emulated arm64 machine, measured by the same code as a phone on a cable.

Figures are the executed instructions of the runner, as the emulated processor counts them: they repeat exactly, and
are not a device's time. Memory is real. Each run boots a machine of its own, with a real adbd.

qemu's network reaches nothing outside (`restrict=on`); only adbd's port is forwarded, to a free port of the loopback
interface, because adbd has no password. With `count` the machine's clock advances with the executed instructions, and
the processor's counter of them is exact.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from msdc.bench.devices import emulator_image
from msdc.bench.devices.adb import Adb, disconnect, run_remote
from msdc.bench.devices.base import Device, Job, collect_runs, open_jobs
from msdc.bench.options import BenchSettings
from msdc.bench.result import DeviceRun
from msdc.bench.system_programs import find, last_words, missing_programs, require_programs
from msdc.bench.toolchain.build import can_build
from msdc.errors import InputError, MsdcError
from msdc.progress import say

# Processor -> qemu's model, and the title in results.
CPUS = {
    "a53": ("cortex-a53", "Cortex-A53 (no dot product)"),
    "a76": ("cortex-a76", "Cortex-A76 (sdot)"),
    # Without sme=off qemu 7.2 computes wrong int8 results on its "max" processor.
    "i8mm": ("max,sme=off,pauth-impdef=on", "Armv8.6 (sdot, i8mm)"),
}
DEFAULT_CPU = "a76"
# Counts repeat exactly: more runs would only take time.
MOST_RUNS, MOST_WARMUP = 3, 1
NOTE = "emulated: figures are executed instructions, not time; compare them only with each other"
BOOT_TIMEOUT_S = 180.0


def free_port() -> int:
    """A port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end(log: Path) -> bytes:
    """The last MiB of a log, whatever its size; empty for a missing one."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2**20))
            return file.read()
    except FileNotFoundError:
        return b""


class EmulatorMachine:
    """Boots on entry and ends on exit; `adb` reaches it in between."""

    def __init__(
        self, image: Path, cpu: str, *, memory_mib: int = 256, disk_mib: int = 512, count: bool = True
    ) -> None:
        self.image = image
        self.model = CPUS[cpu][0]
        self.memory_mib, self.disk_mib, self.count = memory_mib, disk_mib, count
        self.port = free_port()
        self.serial = f"127.0.0.1:{self.port}"
        self.adb = Adb(self.serial)
        self.process: subprocess.Popen[bytes] | None = None
        self._folder = contextlib.ExitStack()

    def _command(self, folder: Path) -> list[str]:
        (qemu,) = require_programs("qemu-system-aarch64")
        forward = f"hostfwd=tcp:{self.serial}-:{emulator_image.GUEST_ADBD_PORT}"
        counting = ["-icount", "shift=0,sleep=off"] if self.count else []
        # When msdc is killed, the virtual machine must end too.
        setpriv = find("setpriv")
        return [
            *([setpriv, "--pdeathsig", "KILL"] if setpriv else []),
            qemu, "-M", "virt", "-cpu", self.model, "-m", str(self.memory_mib), "-smp", "1", *counting,
            "-nodefaults", "-nographic", "-no-reboot", "-serial", f"file:{folder / 'console'}",
            "-kernel", str(self.image / "vmlinuz"), "-initrd", str(self.image / "initrd.gz"),
            "-append", "console=ttyAMA0 quiet panic=-1",
            "-drive", f"if=none,id=root,format=raw,readonly=on,file={self.image / 'root.img'}",
            "-device", "virtio-blk-pci,drive=root",
            "-drive", f"if=none,id=data,format=raw,cache=unsafe,file={folder / 'data.img'}",
            "-device", "virtio-blk-pci,drive=data",
            "-netdev", f"user,id=net,restrict=on,{forward}", "-device", "virtio-net-pci,netdev=net,romfile=",
            "-device", "virtio-rng-pci",
        ]  # fmt: skip

    def __enter__(self) -> EmulatorMachine:
        folder = Path(self._folder.enter_context(tempfile.TemporaryDirectory(prefix="msdc-emulator-")))
        try:
            emulator_image.make_disk(folder / "data.img", self.disk_mib)
            with open(folder / "qemu", "wb") as log:
                self.process = subprocess.Popen(
                    self._command(folder), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=log,
                )  # fmt: skip
            self._wait(self.process, folder)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        end = time.monotonic() + BOOT_TIMEOUT_S
        console = folder / "console"
        while time.monotonic() < end:
            if process.poll() is not None:
                raise MsdcError(f"the emulator ended while it started: {last_words(_end(folder / 'qemu'))}")
            if emulator_image.READY.encode() in _end(console) and self.adb.answers():
                return
            time.sleep(0.1)
        word = last_words(_end(console)) or "nothing on its console"
        raise MsdcError(f"the emulator did not start in {BOOT_TIMEOUT_S:g} s ({word})")

    def power_off(self) -> None:
        """Kill the machine without shutting it down."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def __exit__(self, *error: object) -> None:
        self.power_off()
        disconnect(self.serial, self.adb.program)
        self._folder.close()


def counting_settings(settings: BenchSettings) -> BenchSettings:
    """The settings of a run that counts instructions: few repetitions, no pauses, one thread on one processor.

    Default tasks are skipped: they would take half of the time, and the golden vectors already show that the machine
    computes the vectors of the export.
    """
    if settings.threads > 1 or settings.affinity:
        raise InputError("the emulator has one processor: `threads` and `affinity` are for other devices")
    few = {"runs": min(settings.runs, MOST_RUNS), "warmup": min(settings.warmup, MOST_WARMUP), "cooldown_s": 0.0}
    return settings.model_copy(update=few | {"tasks": settings.tasks or ()})


def run_emulated(machine: EmulatorMachine, cpu: str, jobs: Sequence[Job]) -> Iterator[DeviceRun]:
    """Run each job on a machine that counts instructions."""
    name = f"emulated {CPUS[cpu][1]}"
    return run_remote(machine.adb, jobs, clock="instructions", emulated=name, notes=(NOTE,))


class EmulatorDevice(Device):
    """The emulated phone; the argument names the processor."""

    kind = "emulator"
    runs_in_parallel = True

    @classmethod
    def available(cls) -> Sequence[str]:
        """Every processor, where the image was created and a runner can be built."""
        ready = (
            not missing_programs(emulator_image.PROGRAMS)
            and can_build("aarch64")
            and emulator_image.find_image() is not None
        )
        return [f"emulator:{cpu}" for cpu in CPUS] if ready else ()

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`."""
        cpu = self.argument or DEFAULT_CPU
        if cpu not in CPUS:
            raise InputError(f"unknown emulated processor {cpu!r}; known: {', '.join(CPUS)}")
        settings = counting_settings(settings)
        jobs = open_jobs(bundle, settings)
        if settings.progress:
            say(f"bench {jobs[0].manifest.name} on {self.spec}")
        with EmulatorMachine(emulator_image.create_image(), cpu) as machine:
            return collect_runs(run_emulated(machine, cpu, jobs))
