"""The machine at hand as a device: what it is called, what it can do, how it fares now, and what it is asked."""

from __future__ import annotations

import os
import re
from abc import abstractmethod
from dataclasses import asdict
from pathlib import Path

from msdc.bench.devices.base import BenchSettings, Device, chosen_runtimes, open_bundle
from msdc.bench.result import DeviceInfo, DeviceRun, DeviceState
from msdc.bench.workload import Tasks
from msdc.errors import InputError
from msdc.export.manifest import Manifest
from msdc.export.runtimes import RuntimeName
from msdc.machine import read_heat, read_machine
from msdc.progress import track


def short_cpu(cpu: str) -> str:
    """A processor's name without marks and clock: a device's name that gives away no host name."""
    plain = re.sub(r"\((R|TM|C)\)|\bCPU\b|\bProcessor\b|@.*$", " ", cpu)
    return " ".join(plain.split())


def host_info() -> DeviceInfo:
    """This machine as a device."""
    machine = read_machine()
    return DeviceInfo(
        name=short_cpu(machine.cpu) or "host",
        kind="host",
        cpu=f"{machine.cpu} ({machine.arch})",
        isa=machine.isa,
        cores=machine.cores,
        memory_mib=machine.memory_mib,
        os=machine.os,
    )


def host_state() -> DeviceState:
    """Load, heat and energy of this machine now."""
    return DeviceState(**asdict(read_heat()))


def check_cores(settings: BenchSettings) -> None:
    """Refuse threads or CPU numbers that this process may not use.

    Raises:
        InputError: more threads than cores, or a CPU number outside its own.
    """
    usable = os.sched_getaffinity(0)
    if settings.threads > len(usable):
        raise InputError(f"--threads {settings.threads}: this machine has {len(usable)} cores")
    if not set(settings.affinity) <= usable:
        raise InputError(f"--affinity {','.join(map(str, settings.affinity))}: not all of them are usable here")


class ThisMachine(Device):
    """This machine; takes no argument. What the two ways to measure on it check and read is the same."""

    # how it is measured, for the progress bar
    way: str

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        if self.argument is not None:
            raise InputError(f"device {self.kind} takes no argument, got {self.argument!r}")
        check_cores(settings)
        manifest, tasks = open_bundle(bundle, settings)
        runtimes = chosen_runtimes(manifest.runtimes, settings, bundle)
        return [
            self.measure(bundle, manifest, runtime, settings, tasks)
            for runtime in track(runtimes, f"bench {manifest.name} {self.way}", enabled=settings.progress)
        ]

    @abstractmethod
    def measure(
        self, bundle: Path, manifest: Manifest, runtime: RuntimeName, settings: BenchSettings, tasks: Tasks
    ) -> DeviceRun:
        """One artifact of a bundle whose files were checked."""
