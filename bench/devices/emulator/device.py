"""`emulator[:a53|a76|i8mm]`: an emulated arm64 machine, measured by the same code as a phone on a cable.

Figures are the executed instructions of the runner, as the emulated processor counts them: they repeat exactly, and
are not a device's time. Memory is real. Each run boots a machine of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msdc.bench.devices.adb import Remote, run_remote
from msdc.bench.devices.base import Device, open_bundle
from msdc.bench.devices.emulator.image import PROGRAMS, create_image, find_image
from msdc.bench.devices.emulator.machine import CPUS, EmulatorMachine
from msdc.bench.result import DeviceRun
from msdc.bench.settings import BenchSettings
from msdc.bench.system_programs import missing
from msdc.bench.toolchain.build import can_build
from msdc.errors import InputError
from msdc.progress import say

DEFAULT_CPU = "a76"
MEMORY_MIB = 256
# Counts repeat exactly: more runs would only take time.
MOST_RUNS, MOST_WARMUP = 3, 1
NOTE = "emulated: figures are executed instructions, not time; compare them only with each other"


def counted(settings: BenchSettings) -> BenchSettings:
    """The settings of a run that counts instructions: few repetitions, no pauses, one thread on one processor.

    Default tasks are skipped: they would take half of the time, and the golden vectors already show that the machine
    computes the vectors of the export.
    """
    if settings.threads > 1 or settings.affinity:
        raise InputError("the emulator has one processor: leave --threads and --affinity to other devices")
    few = {"runs": min(settings.runs, MOST_RUNS), "warmup": min(settings.warmup, MOST_WARMUP), "cooldown_s": 0.0}
    tasks = settings.tasks if settings.tasks_asked else ()
    return settings.model_copy(update={**few, "tasks": tasks})


class EmulatorDevice(Device):
    """The emulated phone; the argument names the processor."""

    kind = "emulator"
    undisturbed = True

    @classmethod
    def available(cls) -> Sequence[str]:
        """Every processor, where the image was created and a runner can be built."""
        ready = not missing(PROGRAMS) and can_build("aarch64") and find_image() is not None
        return [f"emulator:{cpu}" for cpu in CPUS] if ready else ()

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`."""
        cpu = self.argument or DEFAULT_CPU
        if cpu not in CPUS:
            raise InputError(f"unknown emulated processor {cpu!r}; known: {', '.join(CPUS)}")
        settings = counted(settings)
        manifest, tasks = open_bundle(bundle, settings)
        if settings.progress:
            say(f"bench {manifest.name} on {self.spec}")
            # Several emulators run in parallel: one line each instead of bars.
            settings = settings.model_copy(update={"progress": False})
        with EmulatorMachine(create_image(), cpu, memory_mib=MEMORY_MIB) as machine:
            remote = Remote(machine.adb, "emulator", f"emulated {CPUS[cpu].title}", "instructions", True, (NOTE,))
            return list(run_remote(remote, bundle, manifest, settings, tasks))
