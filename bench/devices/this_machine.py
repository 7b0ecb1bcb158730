"""The machine at hand as a device: what it is called, what it can do, how it fares now."""

from __future__ import annotations

import os
import re
from dataclasses import asdict

from bench.devices.base import BenchSettings
from bench.result import DeviceInfo, DeviceState
from msdc.errors import InputError
from msdc.machine import read_heat, read_machine


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
