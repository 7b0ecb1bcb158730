"""Devices that an artifact is measured on, by name. Adding one is one module here and one record in `DEVICES`.

Records name classes as text: `msdc bench --help` imports no device, and the host needs nothing of the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from msdc.errors import InputError
from msdc.lazy import load

if TYPE_CHECKING:
    from msdc.bench.devices.base import Device


MOST_LABEL = 40


class DeviceKind(NamedTuple):
    """One kind: the `module:class` of its `Device`, and what the help prints after the name (`adb[:SERIAL]`)."""

    target: str
    arguments: str = ""


DEVICES = {
    "host": DeviceKind("msdc.bench.devices.host:HostDevice"),
    "python": DeviceKind("msdc.bench.devices.host:PythonDevice"),
    "adb": DeviceKind("msdc.bench.devices.adb:AdbDevice", "[:SERIAL]"),
    "emulator": DeviceKind("msdc.bench.devices.emulator:EmulatorDevice", "[:a53|a76|i8mm]"),
    "browser": DeviceKind("msdc.bench.devices.web.browser:BrowserDevice", "[:chromium|firefox|webkit]"),
    "link": DeviceKind("msdc.bench.devices.web.link:LinkDevice", "[:NAME]"),
}


def usage() -> str:
    """Every device name with its argument, as the help of `--device` prints them."""
    return ", ".join(name + kind.arguments for name, kind in DEVICES.items()) + ", each with =LABEL"


def device_class(kind: str) -> type[Device]:
    """The class of a kind of device."""
    return cast("type[Device]", load(DEVICES[kind].target))


def open_devices(specs: str) -> list[Device]:
    """Devices of a comma-separated list (`host,adb:XYZ=left,emulator:a53`), or of `all`; duplicates are dropped.

    A label after an equals sign distinguishes a device from others of its name.
    """
    names = [part.strip() for part in specs.split(",") if part.strip()]
    if "all" in names:
        names = [spec for kind in DEVICES for spec in device_class(kind).available()]
    if not names:
        raise InputError('`device` names none; try `device="host"`')
    devices: list[Device] = []
    for spec in dict.fromkeys(names):
        name, has_label, label = spec.partition("=")
        kind, _, argument = name.partition(":")
        if kind not in DEVICES:
            raise InputError(f"unknown device {kind!r}; known: {', '.join(DEVICES)} and all")
        device = device_class(kind)(argument or None)
        device.label = label.strip()
        if has_label and not (device.label.isprintable() and 0 < len(device.label) <= MOST_LABEL):
            raise InputError(f"device {spec!r}: a label after = has 1 to {MOST_LABEL} printable characters")
        devices.append(device)
    labels = [device.label for device in devices if device.label]
    if repeated := next((label for label in labels if labels.count(label) > 1), None):
        raise InputError(f"two devices have the label {repeated!r}")
    return devices
