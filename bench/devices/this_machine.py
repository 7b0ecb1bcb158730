"""This machine as a device: its name, capabilities and state, and the checks of a run on it."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path

from msdc.bench.devices.base import BenchSettings, Device, chosen_runtimes, open_bundle
from msdc.bench.result import DeviceInfo, DeviceRun, DeviceState
from msdc.bench.workload import Tasks
from msdc.errors import InputError
from msdc.export.manifest import Manifest
from msdc.export.runtimes import RUNTIMES, RuntimeName
from msdc.extras import missing
from msdc.machine import read_heat, read_machine, usable_cores
from msdc.progress import track, warn


def short_cpu(cpu: str) -> str:
    """A processor's name without trademarks and clock; used as device name, so that no host name is published."""
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
    """Current load, temperatures and battery of this machine."""
    return DeviceState(**read_heat())


def check_cores(settings: BenchSettings) -> None:
    """Refuse threads or CPU numbers that this process may not use.

    Raises:
        InputError: more threads than cores, or a CPU number outside its own.
    """
    usable = usable_cores()
    if settings.threads > len(usable):
        raise InputError(f"--threads {settings.threads}: this machine has {len(usable)} cores")
    if not set(settings.affinity) <= usable:
        raise InputError(f"--affinity {','.join(map(str, settings.affinity))}: not all of them are usable here")


def runnable_runtimes(chosen: Sequence[RuntimeName], settings: BenchSettings) -> list[RuntimeName]:
    """The chosen runtimes whose packages are installed; of the others one line, or an error for those asked for.

    Raises:
        MissingExtra: a runtime that the settings name, or the only one, is not installed.
    """
    runnable = [name for name in chosen if RUNTIMES[name].installed]
    for name in chosen:
        if name not in runnable and (settings.runtimes or not runnable):
            RUNTIMES[name].require()
        elif name not in runnable:
            warn(f"not measured: {missing(RUNTIMES[name].package, f'runtime {name}')}")
    return runnable


class ThisMachine(Device):
    """Base of the devices that are this machine; they take no argument."""

    # shown in the progress bar
    way: str

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`."""
        if self.argument is not None:
            raise InputError(f"device {self.kind} takes no argument, got {self.argument!r}")
        check_cores(settings)
        manifest, tasks = open_bundle(bundle, settings)
        runtimes = runnable_runtimes(chosen_runtimes(manifest.runtimes, settings, bundle), settings)
        return [
            self.measure(bundle, manifest, runtime, settings, tasks)
            for runtime in track(runtimes, f"bench {manifest.name} {self.way}", enabled=settings.progress)
        ]

    @abstractmethod
    def measure(
        self, bundle: Path, manifest: Manifest, runtime: RuntimeName, settings: BenchSettings, tasks: Tasks
    ) -> DeviceRun:
        """Measure one artifact of a bundle whose files were checked."""
