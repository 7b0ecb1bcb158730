"""A student whose unit recurs beside its twin whose unit is applied once: what the repetition brings and costs."""

from __future__ import annotations

from msdc.bench.report.data import ReportData, mean_spearman
from msdc.bench.report.model import Section
from msdc.bench.report.sections.overview import latency_at, middle_length
from msdc.tables import Column, Table, fixed, megabytes, signed


def section(data: ReportData) -> Section | None:
    """One row per artifact of the two, and a sentence whether recurrence pays; None without a twin."""
    student = next((model for model, _ in data.models() if model.role == "student"), None)
    plain = next((model for model, _ in data.models() if model.name == data.twin), None)
    if not data.twin or student is None or plain is None:
        return None
    tasks = data.tasks()
    length = middle_length(data)
    rows, times = [], {}
    for run, style in data.everything():
        p50 = latency_at(run, length) if length is not None else None
        times[run.artifact.bundle, run.artifact.runtime] = p50
        score = mean_spearman(run.accuracy, tasks)
        rows.append((style.name, megabytes(run.artifact.bytes), fixed(score, 1), fixed(p50, 2)))
    scores = [mean_spearman(model.accuracy, tasks) for model in (student, plain)]
    lead = ""
    if scores[0] is not None and scores[1] is not None:
        gain = scores[0] - scores[1]
        lead = f"With its unit repeated the student scores {scores[0]:.1f}, with it applied once {scores[1]:.1f} "
        lead += f"({signed(gain, 1)})"
    ratios = [
        first / second
        for (bundle, runtime), first in times.items()
        if bundle == student.name and first and (second := times.get((data.twin, runtime)))
    ]
    if ratios and lead:
        lead += f", and takes {min(ratios):.2f} to {max(ratios):.2f} times as long"
        lead += ": recurrence pays in accuracy here." if gain > 0 else ": recurrence does not pay here."
    columns = (
        Column("Artifact", align="left"), Column("Size", "MB"), Column("Mean Spearman", "× 100"),
        Column(f"Latency at {length} tokens", "ms"),
    )  # fmt: skip
    note = (
        "Both students have the same layers, table, text, stages, steps and seed; the twin applies its unit once. One "
        "run each on a small corpus: a difference of a point or two is not evidence."
    )
    return Section(
        "recurrence", "Recurring unit and plain twin", lead, (), (Table("Twins", columns, tuple(rows), note),)
    )
