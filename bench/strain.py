"""Whether a phone's state makes its times too high: hot, throttled, or saving its battery.

Only phones are judged: the processors of computers may be hot, and their governors lower an idle clock. Temperatures
are in degrees Celsius, frequencies in MHz.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msdc.bench.result import DeviceRun, DeviceState

# Devices that may be phones: over adb, by a link, or measured elsewhere. A link is also opened on computers.
PHONES, COMPUTERS = ("adb", "link", "other"), ("Windows", "Linux", "macOS", "Chrome")
# Phones lower their clocks from about these temperatures on; a cool one is at 25 to 35 in the hand.
HOT_BATTERY_C, HOT_SKIN_C, HOT_PROCESSOR_C = 40.0, 42.0, 85.0
SKIN, PROCESSOR = ("skin", "surf", "quiet"), ("cpu", "soc", "tsens", "apc")
# Android's thermal status: 0 none, 1 light, 2 moderate, 3 severe, 4 critical, 5 emergency, 6 shutdown.
THROTTLED_STATUS = 2
STATUSES = ("none", "light", "moderate", "severe", "critical", "emergency", "shutdown")
# Below this share of its processor's top frequency a phone may not clock it: some makers take a little always.
LEAST_LIMIT = 0.9
LOW_BATTERY_PERCENT = 15.0
# Two runs whose fastest cores differ by more than this share ran at other clocks.
CLOCK_CHANGE = 0.2


def may_be_phone(run: DeviceRun) -> bool:
    """Whether a run may be of a phone: over adb, measured elsewhere, or by a link that no computer opened."""
    device = run.device
    opened_on_computer = device.kind == "link" and device.os.startswith(COMPUTERS)
    return device.kind in PHONES and not device.emulated and not opened_on_computer


def states(run: DeviceRun) -> list[DeviceState]:
    """What is known of the device's state before, during and after the run, in this order."""
    return [state for state in (run.state_before, run.state_during, run.state_after) if state is not None]


def surface_c(state: DeviceState) -> float | None:
    """The temperature that `cool_below` waits for: the highest of battery and skin; None where neither is reported."""
    skin = [celsius for name, celsius in state.thermal_c.items() if _is_zone(name, SKIN)]
    return max([*([] if state.battery_c is None else [state.battery_c]), *skin], default=None)


def _is_zone(name: str, words: Iterable[str]) -> bool:
    return any(word in name.lower() for word in words)


def _heat(observed: Sequence[DeviceState]) -> list[str]:
    """The temperatures that are too high, each in words with its highest value."""
    highest: dict[str, float] = {}
    for state in observed:
        parts = [("battery", HOT_BATTERY_C, state.battery_c)]
        parts += [(name, HOT_SKIN_C, celsius) for name, celsius in state.thermal_c.items() if _is_zone(name, SKIN)]
        parts += [(name, HOT_PROCESSOR_C, celsius) for name, celsius in state.thermal_c.items()
                  if _is_zone(name, PROCESSOR) and not _is_zone(name, SKIN)]  # fmt: skip
        for name, limit, celsius in parts:
            if celsius is not None and celsius >= limit:
                highest[name] = max(celsius, highest.get(name, celsius))
    # One of each kind is enough: phones have dozens of sensors in their processors.
    hottest = sorted(highest.items(), key=lambda row: -row[1])
    kinds = (lambda n: n == "battery", lambda n: _is_zone(n, SKIN), lambda n: n != "battery" and not _is_zone(n, SKIN))
    highest_of_kinds = [next((row for row in hottest if of_kind(row[0])), None) for of_kind in kinds]
    return [f"{name} {celsius:.0f} °C" for name, celsius in filter(None, highest_of_kinds)]


def _tops(run: DeviceRun, state: DeviceState) -> tuple[float, ...]:
    """The frequencies that the processors of `state` may have without throttling."""
    fixed = run.conditions.fixed_performance if run.conditions is not None else None
    if fixed is not None and fixed.limit_mhz and state is not run.state_before:
        return fixed.limit_mhz
    # What is sampled during a run does not repeat what never changes.
    return next((other.cpu_top_mhz for other in (state, *states(run)) if other.cpu_top_mhz), ())


def strain(run: DeviceRun) -> list[str]:
    """Why the times of a phone may be too high, in words after "it was"; empty for a cool one and for computers."""
    if not may_be_phone(run) or run.clock != "wall":
        return []
    observed, reasons = states(run), []
    if heat := _heat(observed):
        reasons.append(f"hot ({', '.join(heat)})")
    status = max((state.thermal_status or 0 for state in observed), default=0)
    limits = [
        pair for state in observed for pair in zip(state.cpu_limit_mhz, _tops(run, state), strict=False) if pair[1]
    ]
    lowest = min(limits, key=lambda pair: pair[0] / pair[1], default=None)
    if lowest is not None and lowest[0] < LEAST_LIMIT * lowest[1]:
        reasons.append(f"throttled (a core was limited to {lowest[0]:,.0f} of {lowest[1]:,.0f} MHz)")
    elif status >= THROTTLED_STATUS:
        reasons.append(f"throttled (thermal status {STATUSES[min(status, len(STATUSES) - 1)]})")
    if any(state.power_save for state in observed):
        reasons.append("in its battery saver")
    else:
        low = [state.battery_percent for state in observed
               if state.battery_percent is not None and state.battery_percent <= LOW_BATTERY_PERCENT
               and state.charging is False]  # fmt: skip
        if low:
            reasons.append(f"at {min(low):.0f} % of its battery without a charger")
    return reasons


def saves_power(run: DeviceRun) -> bool:
    """Whether a computer's firmware or system was set to save power: no gate decides on it, but it is a doubt."""
    return not may_be_phone(run) and any(state.power_save for state in states(run))


def lower_clock(old: DeviceRun, new: DeviceRun) -> str | None:
    """The top frequencies of two runs where those of the new one are lower, in words; None where they are not."""
    tops = [max((mhz for state in states(run) for mhz in state.cpu_mhz), default=0.0) for run in (old, new)]
    if not may_be_phone(new) or not all(tops) or tops[1] >= (1 - CLOCK_CHANGE) * tops[0]:
        return None
    return f"its fastest core was seen at {tops[0]:,.0f} MHz before and at {tops[1]:,.0f} MHz now"
