"""Devices that an artifact is measured on, by name. Adding one is one module here and one record in `DEVICES`.

Records name classes as text: `msdc bench --help` imports no device, and the host needs nothing of the others.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msdc.errors import InputError

if TYPE_CHECKING:
    from msdc.bench.devices.base import Device


@dataclass(frozen=True)
class DeviceKind:
    """One kind of device.

    `target` is the `module:class` of its `Device`; `arguments` is what the help prints after the name
    (`adb[:SERIAL]`); `command` is the `module:attribute` of a click command that `msdc bench NAME ...` runs, for
    set-up.
    """

    name: str
    target: str
    arguments: str = ""
    command: str | None = None


_KINDS = (
    DeviceKind("host", "msdc.bench.devices.host:HostDevice"),
    DeviceKind("python", "msdc.bench.devices.host:PythonDevice"),
    DeviceKind("adb", "msdc.bench.devices.adb:AdbDevice", "[:SERIAL]"),
    DeviceKind(
        "emulator",
        "msdc.bench.devices.emulator:EmulatorDevice",
        "[:a53|a76|i8mm]",
        "msdc.bench.devices.emulator_image:command",
    ),
    DeviceKind("browser", "msdc.bench.devices.web.browser:BrowserDevice", "[:chromium|firefox|webkit]"),
    DeviceKind("link", "msdc.bench.devices.web.link:LinkDevice", "[:NAME]"),
)
DEVICES: dict[str, DeviceKind] = {kind.name: kind for kind in _KINDS}


def usage() -> str:
    """Every device name with its argument, as the help of `--device` prints them."""
    return ", ".join(kind.name + kind.arguments for kind in DEVICES.values())


def load(target: str) -> Any:
    """The object that `module:attribute` names."""
    module, attribute = target.split(":")
    return getattr(importlib.import_module(module), attribute)


def open_devices(specs: str) -> list[Device]:
    """Devices of a comma-separated list (`host,adb:XYZ,emulator:a53`), or of `all`; duplicates are dropped.

    Raises:
        InputError: an empty list or an unknown name.
    """
    names = [part.strip() for part in specs.split(",") if part.strip()]
    if "all" in names:
        names = [spec for kind in DEVICES.values() for spec in load(kind.target).available()]
    if not names:
        raise InputError("no device named; try --device host")
    devices: list[Device] = []
    for spec in dict.fromkeys(names):
        kind, _, argument = spec.partition(":")
        if kind not in DEVICES:
            raise InputError(f"unknown device {kind!r}; known: {', '.join(DEVICES)} and all")
        devices.append(load(DEVICES[kind].target)(argument or None))
    return devices
