"""`emulator[:a53|a76|i8mm]`: the emulated arm64 machine through the same code as a phone on a cable.

Figures are the instructions that the runner executed, as the emulated processor counts them: the same work counts the
same in every run, and no count is a device's time. Memory is real. One machine serves one run and is gone after it.
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
# The counts repeat exactly: more runs would only take time.
MOST_RUNS, MOST_WARMUP = 3, 1
NOTE = "emulated: figures are executed instructions, not time; compare them only with each other"


def counted(settings: BenchSettings) -> BenchSettings:
    """The settings of a run whose clock counts: few repetitions, no pauses, one thread on one processor.

    Tasks that nobody named are left out: they would be half of the minutes, and the golden vectors say already that
    the machine makes the vectors of the export.
    """
    if settings.threads > 1 or settings.affinity:
        raise InputError("the emulator has one processor: leave --threads and --affinity to other devices")
    few = {"runs": min(settings.runs, MOST_RUNS), "warmup": min(settings.warmup, MOST_WARMUP), "cooldown_s": 0.0}
    tasks = settings.tasks if settings.tasks_asked else ()
    return settings.model_copy(update={**few, "tasks": tasks})


class EmulatorDevice(Device):
    """The argument names the processor."""

    kind = "emulator"
    undisturbed = True

    @classmethod
    def available(cls) -> Sequence[str]:
        ready = not missing(PROGRAMS) and can_build("aarch64") and find_image() is not None
        return [f"emulator:{cpu}" for cpu in CPUS] if ready else ()

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        cpu = self.argument or DEFAULT_CPU
        if cpu not in CPUS:
            raise InputError(f"unknown emulated processor {cpu!r}; known: {', '.join(CPUS)}")
        settings = counted(settings)
        manifest, tasks = open_bundle(bundle, settings)
        if settings.progress:
            say(f"bench {manifest.name} on {self.spec}")
            # Several emulators run side by side: a line each, no bars.
            settings = settings.model_copy(update={"progress": False})
        with EmulatorMachine(create_image(), cpu, memory_mib=MEMORY_MIB) as machine:
            remote = Remote(machine.adb, "emulator", f"emulated {CPUS[cpu].title}", "instructions", True, (NOTE,))
            return list(run_remote(remote, bundle, manifest, settings, tasks))
