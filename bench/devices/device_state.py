"""Battery, temperatures and frequencies of a device, read through its shell. Absent sources give None."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msdc.bench.result import DeviceState

# One line per fact: path, equals sign, first line of the file. dumpsys reports the battery where /sys does not.
SCRIPT = """
for f in /sys/class/thermal/thermal_zone*/type /sys/class/thermal/thermal_zone*/temp \\
    /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq /sys/class/power_supply/*/type \\
    /sys/class/power_supply/*/capacity /sys/class/power_supply/*/status /sys/class/power_supply/*/temp \\
    /proc/loadavg; do
    if [ -r "$f" ]; then echo "$f=$(head -n 1 "$f" 2>/dev/null)"; fi
done
if command -v dumpsys >/dev/null 2>&1; then
    dumpsys battery 2>/dev/null | sed -n 's/^ *\\([a-zA-Z ]*\\): /dumpsys.\\1=/p'
fi
true
"""
CHARGING = {"charging": True, "full": True, "discharging": False, "not charging": False}
# BatteryManager.BATTERY_STATUS_*
DUMPSYS_STATUS = {"2": True, "3": False, "4": False, "5": True}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def parse_facts(text: str) -> dict[str, str]:
    """path -> value of the lines that `SCRIPT` prints."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {path.strip(): value.strip() for path, separator, value in pairs if separator and value.strip()}


def _thermal(facts: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for path, value in facts.items():
        match = re.fullmatch(r"(/sys/class/thermal/(thermal_zone\d+))/temp", path)
        number = _number(value) if match else None
        if match is None or number is None:
            continue
        name = facts.get(f"{match[1]}/type", match[2])
        # Zones report thousandths of a degree, with some vendors whole degrees. Two zones may share a type.
        celsius = number / 1000 if abs(number) >= 1000 else number
        found[name if name not in found else f"{name} {match[2]}"] = round(celsius, 2)
    return found


def _battery(facts: Mapping[str, str]) -> tuple[float | None, float | None, bool | None]:
    """Percent, degrees Celsius, charging."""
    folder = next(
        (path.removesuffix("/type") for path, value in facts.items()
         if path.startswith("/sys/class/power_supply/") and path.endswith("/type") and value == "Battery"),
        None,
    )  # fmt: skip
    percent = tenths = charging = None
    if folder is not None:
        percent = _number(facts.get(f"{folder}/capacity", ""))
        tenths = _number(facts.get(f"{folder}/temp", ""))
        charging = CHARGING.get(facts.get(f"{folder}/status", "").lower())
    if percent is None:
        percent = _number(facts.get("dumpsys.level", ""))
    if tenths is None:
        tenths = _number(facts.get("dumpsys.temperature", ""))
    if charging is None:
        charging = DUMPSYS_STATUS.get(facts.get("dumpsys.status", ""))
    return percent, None if tenths is None else tenths / 10, charging


def parse_state(text: str) -> DeviceState:
    """The device state in the output of `SCRIPT`."""
    facts = parse_facts(text)
    percent, celsius, charging = _battery(facts)
    speeds = sorted(
        (int(match[1]), number / 1000)
        for path, value in facts.items()
        if (match := re.search(r"/cpu(\d+)/cpufreq/", path)) and (number := _number(value)) is not None
    )
    return DeviceState(
        battery_percent=percent,
        battery_c=celsius,
        charging=charging,
        thermal_c=_thermal(facts),
        cpu_mhz=tuple(mhz for _, mhz in speeds),
        load_1min=_number(facts.get("/proc/loadavg", "").split(" ")[0]),
    )
