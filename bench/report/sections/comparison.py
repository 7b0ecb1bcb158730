"""Comparison of two results: differences, their intervals, and whether they exceed noise."""

from __future__ import annotations

from msdc.bench.compare import Difference
from msdc.bench.report.charts import change_intervals
from msdc.bench.report.data import ReportData
from msdc.bench.report.model import Section
from msdc.tables import Column, Table, fixed, megabytes, minus, number, percent

WORDS = {"unknown": "one sample"}


def _value(difference: Difference, value: float) -> str:
    if difference.unit == "bytes":
        return f"{megabytes(value)} MB"
    if difference.unit == "instructions":
        return f"{fixed(value / 1e6, 3)} M instructions"
    if difference.unit == "x100":
        return fixed(value, 2)
    return f"{number(value)} {difference.unit}"


def _row(difference: Difference) -> tuple[str, ...]:
    span = difference.interval
    interval = "–" if span is None else f"{percent(span[0])} to {percent(span[1])}"
    verdict = WORDS.get(difference.verdict, difference.verdict)
    change = percent(difference.change, 2 if difference.unit == "instructions" else 1)
    if difference.unit == "x100":
        change = minus(f"{difference.change:+.2f} points")
        verdict = "same" if difference.verdict == "same" else "see msdc evaluate --against"
    before, now = _value(difference, difference.old), _value(difference, difference.new)
    return (difference.what, change, verdict, interval, before, now)


def section(data: ReportData) -> Section | None:
    """One table and one figure of intervals per pair of runs; None without an earlier result."""
    if not data.comparisons:
        return None
    # Change and verdict first: a phone shows the other columns after scrolling.
    columns = (
        Column("Figure", align="left"), Column("Change"), Column("Verdict", align="left"), Column("95 % interval"),
        Column("Before"), Column("Now"),
    )  # fmt: skip
    figures, tables, notes = [], [], []
    for comparison in data.comparisons:
        tables.append(Table(comparison.title, columns, tuple(_row(d) for d in comparison.differences)))
        spans = [(d.what, d.change, d.interval, d.verdict) for d in comparison.differences if d.interval is not None]
        if spans:
            figures.append(change_intervals(comparison.where, spans))
        notes += [f"{comparison.where}: {note}." for note in comparison.notes]
    notes.append(
        "The interval is a bootstrap over blocks of consecutive samples (95 %). A timing counts as changed when its "
        "median and its fastest tenth both moved beyond their intervals; a machine that was slower throughout cannot "
        "be distinguished from a slower artifact, so measure both in one session."
    )
    timed = [d for c in data.comparisons for d in c.differences if d.verdict in ("faster", "slower")]
    noise = sum(d.verdict == "noise" for c in data.comparisons for d in c.differences)
    lead = f"{len(timed)} timing{'s' if len(timed) != 1 else ''} changed, {noise} within noise."
    return Section("comparison", "Comparison with an earlier result", lead, tuple(figures), tuple(tables), tuple(notes))
