"""How the results were measured: machines, versions, and the state of the device before and after."""

from __future__ import annotations

from collections.abc import Mapping

from msdc.bench.report.data import ReportData
from msdc.bench.report.model import Section
from msdc.bench.result import DeviceState
from msdc.tables import Column, Table, fixed


def _state(state: DeviceState | None) -> str:
    if state is None:
        return "–"
    parts = []
    if state.load_1min is not None:
        parts.append(f"load {state.load_1min:.2f}")
    if state.battery_percent is not None:
        parts.append(f"battery {state.battery_percent:.0f} %" + (" charging" if state.charging else ""))
    if state.battery_c is not None:
        parts.append(f"battery {state.battery_c:.1f} °C")
    if state.thermal_c:
        parts.append(f"hottest zone {max(state.thermal_c.values()):.1f} °C")
    if state.cpu_mhz:
        parts.append(f"{min(state.cpu_mhz):.0f} to {max(state.cpu_mhz):.0f} MHz")
    return ", ".join(parts) or "unknown"


def _by_length(values: Mapping[str, float], digits: int) -> str:
    """Numbers by length in tokens: "8: 1.9, 32: 6.0"."""
    return ", ".join(f"{length}: {fixed(value, digits)}" for length, value in values.items()) or "–"


def _browsers(data: ReportData) -> tuple[Table, ...]:
    """What decides about a browser's figures, one row per run; nothing without such runs."""
    rows = []
    for run, style in data.everything():
        facts = run.browser
        if facts is None:
            continue
        claims = [f"{facts.claimed_cores} cores"] if facts.claimed_cores else []
        claims += [f"{facts.claimed_memory_gib:g} GiB"] if facts.claimed_memory_gib else []
        pss = "unknown" if facts.renderer_pss_mib is None else fixed(facts.renderer_pss_mib, 1)
        kinds = ((facts.secure_context, "secure"), (facts.isolated, "isolated"), (facts.worker, "worker"))
        rows.append((
            style.name, f"{facts.engine} {facts.version or 'of unknown version'}",
            ", ".join(word for held, word in kinds if held) or "–", ", ".join(claims) or "unknown",
            fixed(1000 * facts.clock_step_ms, 1),
            _by_length(facts.calls_per_sample, 0), _by_length(facts.cold_ms, 1),
            fixed(facts.heap_loaded_mib, 1), fixed(facts.heap_warm_mib, 1), pss, facts.golden_sha256[:12],
        ))  # fmt: skip
    columns = (
        Column("Artifact", align="left"), Column("Browser", align="left"), Column("Context", align="left"),
        Column("Claims", align="left"), Column("Clock step", "µs"), Column("Calls per sample", align="left"),
        Column("First calls", "ms", align="left"),
        Column("Heap loaded", "MiB"), Column("Heap warm", "MiB"), Column("Renderer PSS", "MiB"),
        Column("Golden vectors", align="left"),
    )  # fmt: skip
    note = (
        "First calls: median of the first ten of a length, before the browser's compiler is done; not in the latency. "
        "Claims: what the browser says about its device."
    )
    return (Table("Browsers", columns, tuple(rows), note),) if rows else ()


def section(data: ReportData) -> Section | None:
    """A table of devices, and one row per run with its versions and device state; None without runs."""
    runs = data.everything()
    if not runs:
        return None
    devices = {}
    for run, _ in runs:
        d = run.device
        devices[d.kind, d.name] = (
            d.name, d.kind + (", emulated" if d.emulated else ""), d.cpu or "–", " ".join(d.isa) or "–",
            str(d.cores or "unknown"), "unknown" if d.memory_mib is None else fixed(d.memory_mib / 1024, 1),
            d.os or "–",
        )  # fmt: skip
    device_columns = (
        Column("Device", align="left"), Column("Kind", align="left"), Column("Processor", align="left"),
        Column("Extensions", align="left"), Column("Cores"), Column("Memory", "GiB"), Column("System", align="left"),
    )  # fmt: skip
    rows = []
    for run, style in runs:
        versions = ", ".join(f"{name} {version}" for name, version in run.versions.items()) or "–"
        rows.append((
            style.name, run.created, f"{run.origin}, {run.harness}",
            "wall clock" if run.clock == "wall" else "instructions", versions,
            _state(run.state_before), _state(run.state_after), run.artifact.sha256[:12],
        ))  # fmt: skip
    run_columns = tuple(
        Column(title, align="left")
        for title in ("Artifact", "Measured", "How", "Clock", "Versions", "State before", "State after", "sha256")
    )
    notes = tuple(dict.fromkeys(note[:1].upper() + note[1:] + "." for run, _ in runs for note in run.notes))
    tables = (
        Table("Devices", device_columns, tuple(devices.values())),
        Table("Runs", run_columns, tuple(rows)),
        *_browsers(data),
    )
    return Section("method", "How it was measured", "", (), tables, notes)
