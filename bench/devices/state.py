"""The state of a device before, during and after a run: battery, temperatures, frequencies; and its fastest processors.

Linux and Android have one list of files, which a device's shell prints (`SCRIPT`) and this machine reads itself. Where
there are none (macOS, Windows), psutil gives what it knows. What a device does not report is named in the state.
"""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Event, Thread
from typing import NamedTuple

from msdc.bench.options import BIG, BenchSettings
from msdc.bench.result import Cluster, DeviceState
from msdc.errors import InputError
from msdc.machine import read_heat

MARK = "msdc-state"
# Patterns of files of one line: those that change while a runner works, and the others.
ZONES = ("/sys/class/thermal/thermal_zone*/type", "/sys/class/thermal/thermal_zone*/temp")
SPEEDS = tuple(f"/sys/devices/system/cpu/cpu[0-9]*/cpufreq/{name}" for name in ("scaling_cur_freq", "scaling_max_freq"))
CHANGING = (*ZONES, *SPEEDS)
FILES = (*CHANGING, "/sys/devices/system/cpu/cpu[0-9]*/cpufreq/cpuinfo_max_freq", "/proc/loadavg",
         "/sys/firmware/acpi/platform_profile")  # fmt: skip
# One line per fact: path, equals sign, first line of the file. Absent sources print nothing.
SCRIPT = f"""
for f in {" ".join(FILES)}; do
    if [ -r "$f" ]; then echo "$f=$(head -n 1 "$f" 2>/dev/null)"; fi
done
if command -v dumpsys >/dev/null 2>&1; then
    dumpsys battery 2>/dev/null | sed -n 's/^ *\\([a-zA-Z ]*\\): /dumpsys.\\1=/p'
    dumpsys thermalservice 2>/dev/null | sed -n 's/^ *Thermal Status: /thermal_status=/p'
fi
if command -v settings >/dev/null 2>&1; then echo "low_power=$(settings get global low_power 2>/dev/null)"; fi
true
"""
# What changes, from the runner's start on and every DURING_S seconds, by the shell alone: no process for each file.
DURING_S, DURING = 2, "during.txt"
DURING_SCRIPT = f"""
( while :; do
    for f in {" ".join(CHANGING)}; do
        if [ -r "$f" ] && read -r v < "$f"; then echo "$f=$v"; fi
    done
    echo {MARK}
    sleep {DURING_S}
done ) > {DURING} 2>/dev/null &
sampler=$!
"""
# BatteryManager.BATTERY_STATUS_*
DUMPSYS_STATUS = {"2": True, "3": False, "4": False, "5": True}
# What the firmware of laptops calls saving.
SAVING_PROFILES = ("low-power", "quiet")
# What of a state a reader may miss, and in which fields it is.
CHANGES = {"temperatures": "thermal_c", "frequencies": "cpu_mhz", "frequency limits": "cpu_limit_mhz"}
NAMES = {"battery": "battery_percent", "battery temperature": "battery_c", **CHANGES, "battery saver": "power_save",
         "thermal status": "thermal_status"}  # fmt: skip


class States(NamedTuple):
    """The states of a device around one run; None where nothing was read."""

    before: DeviceState | None = None
    during: DeviceState | None = None
    after: DeviceState | None = None


NO_STATES = States()


def with_unreadable(state: DeviceState, names: Mapping[str, str] = NAMES) -> DeviceState:
    """`state` with the names of what its device does not report."""
    absent = tuple(name for name, field in names.items() if getattr(state, field) in (None, (), {}))
    return state.model_copy(update={"unreadable": absent})


def _number(facts: Mapping[str, str], path: str) -> float | None:
    """The first number of a fact; None where it is absent, or none: broken sensors report nan."""
    with contextlib.suppress(ValueError, IndexError):
        number = float(facts.get(path, "").split()[0])
        return number if math.isfinite(number) else None
    return None


def parse_facts(text: str) -> dict[str, str]:
    """Lines of name, equals sign, value, between others: loaders and shells print their warnings anywhere."""
    return {name.strip(): value.strip()[:100] for name, _, value in (line.partition("=") for line in text.splitlines())}


def state_of(facts: Mapping[str, str]) -> DeviceState:
    """The state in facts by the names that `SCRIPT` prints."""
    thermal: dict[str, float] = {}
    speeds: dict[str, dict[int, float]] = {"scaling_cur_freq": {}, "scaling_max_freq": {}, "cpuinfo_max_freq": {}}
    for path in facts:
        number = _number(facts, path)
        if number is None:
            continue
        if match := re.fullmatch(r"(/sys/class/thermal/(thermal_zone\d{1,3}))/temp", path):
            name = facts.get(f"{match[1]}/type", match[2])
            # Zones report thousandths of a degree, with some vendors whole degrees. Two zones may share a type.
            celsius = number / 1000 if abs(number) >= 1000 else number
            thermal[name if name not in thermal else f"{name} {match[2]}"] = round(celsius, 2)
        elif match := re.search(r"/cpu(\d{1,4})/cpufreq/(\w{1,32})$", path):
            speeds.get(match[2], {})[int(match[1])] = number / 1000
    # A processor that is switched off has no frequencies: the numbers have gaps, and no two files need have the same.
    numbered = [set(by_cpu) for by_cpu in speeds.values() if by_cpu]
    cpus = sorted(set.intersection(*numbered)) if numbered else []

    def of_processors(name: str) -> tuple[float, ...]:
        return tuple(speeds[name][cpu] for cpu in cpus) if speeds[name] else ()

    status, tenths = _number(facts, "thermal_status"), _number(facts, "dumpsys.temperature")
    profile = facts.get("/sys/firmware/acpi/platform_profile")
    saves = None if profile is None else profile in SAVING_PROFILES
    return DeviceState(
        battery_percent=_number(facts, "dumpsys.level"),
        battery_c=None if tenths is None else tenths / 10,
        charging=DUMPSYS_STATUS.get(facts.get("dumpsys.status", "")),
        thermal_c=thermal,
        cpus=tuple(cpus),
        cpu_mhz=of_processors("scaling_cur_freq"),
        cpu_limit_mhz=of_processors("scaling_max_freq"),
        cpu_top_mhz=of_processors("cpuinfo_max_freq"),
        power_save={"1": True, "0": False}.get(facts.get("low_power", ""), saves),
        thermal_status=None if status is None else int(status),
        load_1min=_number(facts, "/proc/loadavg"),
    )


def parse_state(text: str) -> DeviceState:
    """The device state in the output of `SCRIPT`."""
    return state_of(parse_facts(text))


def extremes(observed: Sequence[DeviceState]) -> DeviceState | None:
    """Several states as one: the highest temperatures and frequencies, the lowest limits; None of none."""
    if not observed:
        return None
    zones = dict.fromkeys(name for state in observed for name in state.thermal_c)
    cpus = observed[0].cpus

    def by_cpu(field: str, choose: Callable[..., float]) -> tuple[float, ...]:
        # Of the states in which the same processors were on as in the first.
        rows = [getattr(state, field) for state in observed if state.cpus == cpus]
        longest = max(map(len, rows))
        return tuple(choose(column) for column in zip(*(row for row in rows if len(row) == longest), strict=True))

    return with_unreadable(
        DeviceState(
            thermal_c={
                zone: max(state.thermal_c[zone] for state in observed if zone in state.thermal_c) for zone in zones
            },
            cpus=cpus,
            cpu_mhz=by_cpu("cpu_mhz", max),
            cpu_limit_mhz=by_cpu("cpu_limit_mhz", min),
        ),
        CHANGES,
    )


def parse_during(text: str) -> DeviceState | None:
    """The states that `DURING_SCRIPT` wrote, as one; None where the run was over before the first."""
    return extremes([parse_state(part) for part in text.split(MARK)[:-1]])


def read_facts(patterns: Iterable[str], root: Path = Path("/")) -> dict[str, str]:
    """The facts of this machine as `SCRIPT` names them; `root` is the folder that holds `proc` and `sys`."""
    facts = {}
    for pattern in patterns:
        for path in root.glob(pattern.lstrip("/")):
            with contextlib.suppress(OSError):
                first = path.read_text(encoding="utf-8", errors="replace").partition("\n")[0]
                facts[f"/{path.relative_to(root).as_posix()}"] = first.strip()[:100]
    return facts


def _of_files(patterns: Iterable[str], root: Path) -> DeviceState:
    """What this machine's files state, and psutil of what they do not."""
    state, heat = state_of(read_facts(patterns, root)), read_heat()
    fields = {name: value for name, value in heat.items() if getattr(state, name) in (None, ())}
    return state.model_copy(update={**fields, "thermal_c": {**state.thermal_c, **heat["thermal_c"]}})


def host_state(root: Path = Path("/")) -> DeviceState:
    """The state of this machine now."""
    return with_unreadable(_of_files(FILES, root))


class Watched:
    """The states of this machine around a `with` block; a thread reads what changes, every `DURING_S` seconds."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root, self._end, self._observed = root, Event(), list[DeviceState]()
        self._thread = Thread(target=self._sample, daemon=True)
        self.states = States(host_state(root))

    def _sample(self) -> None:
        while True:
            self._observed.append(_of_files(CHANGING, self._root))
            if self._end.wait(DURING_S):
                return

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        self.states = States(self.states.before, extremes(self._observed), host_state(self._root))


def clusters_of(state: DeviceState | None) -> tuple[Cluster, ...]:
    """The processors of a device by their top frequency, the fastest first; empty where it is unknown."""
    by_mhz: dict[float, list[int]] = {}
    if state is not None:
        for cpu, mhz in zip(state.cpus or range(len(state.cpu_top_mhz)), state.cpu_top_mhz, strict=False):
            by_mhz.setdefault(mhz, []).append(cpu)
    return tuple(Cluster(cpus=tuple(cpus), top_mhz=mhz) for mhz, cpus in sorted(by_mhz.items(), reverse=True))


def with_affinity(
    settings: BenchSettings, state: DeviceState | None, where: str, usable: Iterable[int] | None = None
) -> BenchSettings:
    """`settings` with CPU numbers in the place of "big": those of the fastest clusters, as few as hold the threads.

    `usable` are the CPUs that the runner may use; None: all.

    Raises:
        InputError: the device does not report its clusters, or has fewer usable CPUs than threads.
    """
    if settings.affinity != BIG:
        return settings
    clusters, cpus = clusters_of(state), list[int]()
    if not clusters:
        raise InputError(f"`affinity` {BIG}: {where} does not report the top frequencies of its processors; "
                         "name CPU numbers")  # fmt: skip
    for cluster in clusters:
        if len(cpus) < settings.threads:
            cpus += [cpu for cpu in cluster.cpus if usable is None or cpu in set(usable)]
    if len(cpus) < settings.threads:
        raise InputError(f"`affinity` {BIG}: {where} has {len(cpus)} usable CPUs for {settings.threads} threads")
    return settings.model_copy(update={"affinity": tuple(sorted(cpus))})
