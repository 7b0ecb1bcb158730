"""A student beside its twin whose unit is applied more often: what recurrence brings and costs."""

from __future__ import annotations

from msdc.bench.report.data import ReportData, mean_spearman
from msdc.bench.report.model import Section
from msdc.bench.report.sections.overview import latency_at, middle_length
from msdc.tables import Column, Table, fixed, megabytes, signed

# Points of Spearman x 100 that one run each on a small corpus can tell apart.
EVIDENCE = 2.0


def _verdict(gain: float) -> str:
    if abs(gain) < EVIDENCE:
        return "too close to tell whether recurrence pays."
    return "recurrence pays in accuracy here." if gain > 0 else "recurrence does not pay here."


def section(data: ReportData) -> Section | None:
    """One row per model and artifact of the two, and a sentence whether recurrence pays; None without a twin."""
    student = next((model for model, _ in data.models() if model.role == "student"), None)
    twin = data.twin
    recurring = next((model for model, _ in data.models() if twin is not None and model.name == twin.name), None)
    if twin is None or student is None or recurring is None:
        return None
    tasks = data.tasks()
    length = middle_length(data)
    rows, times = [], {}
    for model, style in data.models():
        if model in (student, recurring):
            score = mean_spearman(model.accuracy, tasks)
            rows.append((f"{style.name}, float", megabytes(model.bytes), fixed(score, 1), "–"))
    for run, style in data.everything():
        p50 = latency_at(run, length) if length is not None else None
        times[run.artifact.bundle, run.artifact.runtime] = p50
        score = mean_spearman(run.accuracy, tasks)
        rows.append((style.name, megabytes(run.artifact.bytes), fixed(score, 1), fixed(p50, 2)))
    scores = [mean_spearman(model.accuracy, tasks) for model in (recurring, student)]
    lead = ""
    if scores[0] is not None and scores[1] is not None:
        gain = scores[0] - scores[1]
        lead = f"With its unit repeated the student scores {scores[0]:.1f}, with it applied once {scores[1]:.1f} "
        lead += f"({signed(gain, 1)})"
        ratios = [
            first / second
            for (bundle, runtime), first in times.items()
            if bundle == twin.name and first and (second := times.get((student.name, runtime)))
        ]
        if ratios:
            lead += f", and takes {' to '.join(sorted({f'{ratio:.2f}' for ratio in ratios}))} times as long"
        if twin.missed_gate:
            lead += f"; its int8 program misses the gate ({twin.missed_gate}), so only the float model is compared"
        lead += f": {_verdict(gain)}"
    columns = (
        Column("Model or artifact", align="left"), Column("Size", "MB"), Column("Mean Spearman", "× 100"),
        Column(f"Latency at {length} tokens", "ms"),
    )  # fmt: skip
    note = (
        "Both students store the same layers and table, and have the same text, stages, steps and seed; the recurring "
        f"one applies its unit more often. One run each on a small corpus: less than {EVIDENCE:g} points are no "
        "evidence."
    )
    return Section(
        "recurrence", "Recurring unit and plain twin", lead, (), (Table("Twins", columns, tuple(rows), note),)
    )
