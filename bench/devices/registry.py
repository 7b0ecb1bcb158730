"""Devices by name. Explicit, loaded when asked for, so that the host needs nothing of the others."""

from __future__ import annotations

import importlib

from msdc.bench.devices.base import Device
from msdc.errors import InputError

# kind -> module:class
DEVICES = {
    "host": "msdc.bench.devices.host:HostDevice",
    "python": "msdc.bench.devices.python:PythonDevice",
    "adb": "msdc.bench.devices.adb:AdbDevice",
    "emulator": "msdc.bench.devices.emulator.device:EmulatorDevice",
}


def device_class(kind: str) -> type[Device]:
    """The class of a device kind.

    Raises:
        InputError: unknown; lists the known ones.
    """
    if kind not in DEVICES:
        raise InputError(f"unknown device {kind!r}; known: {', '.join(DEVICES)} and all")
    module, name = DEVICES[kind].split(":")
    loaded: type[Device] = getattr(importlib.import_module(module), name)
    return loaded


def open_devices(specs: str) -> list[Device]:
    """Devices of a comma-separated list (`host,adb:XYZ,emulator:a53`), or of `all`, each once.

    Raises:
        InputError: an empty list or an unknown name.
    """
    names = [part.strip() for part in specs.split(",") if part.strip()]
    if "all" in names:
        names = [spec for kind in DEVICES for spec in device_class(kind).available()]
    if not names:
        raise InputError("no device named; try --device host")
    devices = []
    for spec in dict.fromkeys(names):
        kind, _, argument = spec.partition(":")
        devices.append(device_class(kind)(argument or None))
    return devices
