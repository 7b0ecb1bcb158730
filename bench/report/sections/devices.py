"""Devices and dates as columns: the main figures of every artifact where they were measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msdc.bench.report.data import ReportData, Style, mean_spearman
from msdc.bench.report.model import Section
from msdc.bench.report.sections.overview import latency_at, middle_length
from msdc.bench.report.targets import memory_mib
from msdc.bench.result import DeviceRun
from msdc.tables import NONE, Column, Table, fixed, number

DAY, MINUTE = 10, 16
Figure = tuple[str, Callable[[DeviceRun], str]]


def _artifact(run: DeviceRun) -> str:
    """What stays the same when it is measured again elsewhere or later."""
    threads = f", {run.threads} threads" if run.threads > 1 else ""
    return f"{run.artifact.bundle} {run.artifact.runtime} {run.artifact.precision}{threads}"


def _place(run: DeviceRun, digits: int) -> tuple[str, str]:
    """Date and device, as a column; Python's interpreter makes another one."""
    name = run.device.name + (", from Python" if run.harness == "python" else "")
    return run.created[:digits].replace("T", " "), name


def _dated(pairs: Sequence[tuple[DeviceRun, Style]]) -> int:
    """Digits of the date that keep repeated runs apart; a day where that is enough."""
    keys = [(_artifact(run), *_place(run, DAY)) for run, _ in pairs]
    return DAY if len(set(keys)) == len(keys) else MINUTE


def _table(caption: str, pairs: Sequence[tuple[DeviceRun, Style]], figures: Sequence[Figure]) -> Table | None:
    digits = _dated(pairs)
    places = sorted({_place(run, digits) for run, _ in pairs})
    if len(places) < 2:
        return None
    # Two runs of one artifact within a minute: the later one.
    cells = {(_artifact(run), _place(run, digits)): run for run, _ in sorted(pairs, key=lambda p: p[0].created)}
    rows = []
    for artifact in dict.fromkeys(_artifact(run) for run, _ in pairs):
        for title, shown in figures:
            row = [shown(cells[artifact, place]) if (artifact, place) in cells else NONE for place in places]
            if any(cell != NONE for cell in row):
                rows.append((artifact, title, *row))
    columns = (
        Column("Artifact", align="left"), Column("Figure", align="left"),
        *(Column(device, date) for date, device in places),
    )  # fmt: skip
    return Table(caption, columns, tuple(rows))


def section(data: ReportData) -> Section | None:
    """One table of devices with a clock, one of emulated ones; None where one device was measured once."""
    length = middle_length(data)
    tasks = data.tasks()

    def latency(run: DeviceRun) -> float | None:
        return latency_at(run, length) if length is not None else None

    common: list[Figure] = [
        ("peak memory, MiB", lambda run: fixed(memory_mib(run), 1)),
        ("mean Spearman × 100", lambda run: fixed(mean_spearman(run.accuracy, tasks), 1)),
        ("program, MB", lambda run: fixed(run.artifact.bytes / 1e6, 2)),
    ]
    timed: list[Figure] = [
        (f"median at {length} tokens, ms", lambda run: number(latency(run))),
        ("load, ms", lambda run: number(run.load)),
    ]
    counted: list[Figure] = [
        (
            f"median at {length} tokens, million instructions",
            lambda run: NONE if (value := latency(run)) is None else fixed(value / 1e6, 3),
        )
    ]
    tables = (
        _table("Measured in time", data.wall(), [*timed, *common]),
        _table("Counted in instructions", data.counted(), [*counted, *common]),
    )
    found = tuple(table for table in tables if table is not None)
    return Section("devices", "By device and date", "", (), found) if found else None
