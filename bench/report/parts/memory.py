"""Memory by phase."""

from __future__ import annotations

from msdc.bench.report.blocks import Column, Section, Table, fixed
from msdc.bench.report.data import ReportData
from msdc.bench.report.parts.charts import stacked_memory
from msdc.bench.report.svg import linear_axis

PHASES = (("start", "start"), ("loaded", "loaded"), ("warm", "warm"))


def section(data: ReportData) -> Section | None:
    """Anonymous and file-backed memory at start, loaded and warm."""
    pairs = [(run, style) for run, style in data.everything() if run.memory is not None]
    if not pairs:
        return None
    peaks = [getattr(run.memory, key).vmhwm_mib for run, _ in pairs for key, _ in PHASES]
    axis = linear_axis(peaks, zero=True)
    figures, rows = [], []
    for run, style in pairs:
        assert run.memory is not None
        phases = []
        for key, name in PHASES:
            phase = getattr(run.memory, key)
            phases.append((name, phase.anon_mib, phase.file_mib, phase.vmhwm_mib))
            values = (phase.anon_mib, phase.file_mib, phase.pss_mib, phase.vmhwm_mib)
            start = run.memory.start
            rows.append((style.name, name, *(fixed(v, 1) for v in values), fixed(phase.anon_mib - start.anon_mib, 1)))
        figures.append(stacked_memory(style, phases, axis))
    columns = (
        Column("Artifact", align="left"), Column("Phase", align="left"), Column("Anonymous", "MiB"),
        Column("File-backed", "MiB"), Column("PSS", "MiB"), Column("Peak", "MiB"), Column("Anonymous rise", "MiB"),
    )  # fmt: skip
    notes = []
    if any(run.harness == "python" for run, _ in pairs):
        notes.append(
            "Runs made from Python hold the interpreter and the runtime's libraries in every phase: read the rise "
            "over the start, or measure with the native runner for what an app would use."
        )
    note = "Start: before the artifact is opened; loaded: program and tokenizer ready; warm: after all timed runs."
    table = Table("Memory by phase", columns, tuple(rows), note)
    return Section("memory", "Memory by phase", "", tuple(figures), (table,), tuple(notes))
