"""Latency by length, over time, of tokenization and the whole pipeline; instruction counts apart from all times."""

from __future__ import annotations

from collections.abc import Sequence

from msdc.bench.report.blocks import Column, Section, Table, aligned, fixed, number
from msdc.bench.report.data import ReportData, Style
from msdc.bench.report.parts.charts import bars, latency_lines, samples_over_time
from msdc.bench.result import DeviceRun, Timing

MEGA = 1e6


def _lengths(pairs: Sequence[tuple[DeviceRun, Style]]) -> list[int]:
    return sorted({timing.length for run, _ in pairs for timing in run.latency if timing.length})


def _whole(run: DeviceRun) -> list[tuple[str, Timing]]:
    """The timings that start from text."""
    named = (("tokenization", run.tokenize), ("text to vector", run.pipeline))
    return [(name, timing) for name, timing in named if timing is not None]


def _rows(timed: Sequence[tuple[Style, str, Timing]]) -> tuple[tuple[str, ...], ...]:
    """Rows of a table of times, the points of each column under each other."""
    figures = [value for _, _, t in timed for value in (t.minimum, t.p50, t.p90, t.p99)]
    texts = aligned(figures, most=3)
    rows = []
    for i, (style, what, timing) in enumerate(timed):
        cells = texts[4 * i : 4 * i + 4]
        per_second = fixed(1000 / timing.p50, 0) if timing.p50 else "–"
        rows.append((style.name, what, *cells, per_second, str(len(timing.samples))))
    return tuple(rows)


def latency(data: ReportData) -> Section | None:
    """Times by length, for runs measured in time."""
    pairs = [(run, style) for run, style in data.wall() if run.latency]
    if not pairs:
        return None
    series = [(style, [(t.length, t.p50, t.p90) for t in run.latency if t.length is not None]) for run, style in pairs]
    inference = [
        (style, f"{length} tokens", timing)
        for length in _lengths(pairs)
        for run, style in pairs
        for timing in run.latency
        if timing.length == length
    ]
    whole = [(style, name, timing) for run, style in pairs for name, timing in _whole(run)]
    columns = (
        Column("Artifact", align="left"), Column("What", align="left"), Column("Min", "ms"), Column("p50", "ms"),
        Column("p90", "ms"), Column("p99", "ms"), Column("Throughput", "per s"), Column("Runs"),
    )  # fmt: skip
    tables = [
        Table("Latency", columns, _rows(inference), "One sentence at a time; warm-up runs are not among the samples.")
    ]
    if whole:
        note = "Golden texts of 5 to 40 tokens in turn. Text to vector is tokenization and inference together."
        tables.append(Table("From text", columns, _rows(whole), note))
    lead = ""
    longest = _lengths(pairs)[-1]
    timed = [(t.p50, s) for r, s in pairs for t in r.latency if t.length == longest]
    if len(timed) > 1:
        fast, slow = min(timed, key=lambda p: p[0]), max(timed, key=lambda p: p[0])
        slowest = f"{slow[1].name} slowest ({number(slow[0])} ms)"
        lead = f"At {longest} tokens {fast[1].name} is fastest ({number(fast[0])} ms median), {slowest}."
    figures = [latency_lines(series, "ms", "Latency by length")]
    starts = [(style, run.load_ms + run.first_ms) for run, style in pairs if run.load_ms and run.first_ms]
    if starts:
        shown = [(style, value, f"{number(value)} ms") for style, value in starts]
        figures.append(bars("Load and first run", shown, "From closed files to the first vector, page cache warm."))
    return Section("latency", "Latency by length", lead, tuple(figures), tuple(tables))


def samples(data: ReportData) -> Section | None:
    """Raw samples in order: throttling and other work on the machine show here and in no percentile."""
    pairs = [(run, style) for run, style in data.wall() if run.latency]
    if not pairs:
        return None
    figures = []
    for length in _lengths(pairs):
        rows = [(style, timing.samples) for run, style in pairs for timing in run.latency if timing.length == length]
        figures.append(samples_over_time(f"{length} tokens", "ms", rows))
    lead = "Every timed run in the order it was made. A rising trend is heat; lone peaks are other work on the machine."
    return Section("samples", "Samples over time", lead, tuple(figures))


def counted(data: ReportData) -> Section | None:
    """Emulated devices: instruction counts, which are no times and are never drawn beside them."""
    pairs = data.counted()
    if not pairs:
        return None
    rows: list[tuple[str, ...]] = []
    for run, style in pairs:
        starts = (("load", run.load_instructions), ("first run", run.first_instructions))
        rows += [
            (style.name, name, fixed(value / MEGA, 3), "–", "–", "1") for name, value in starts if value is not None
        ]
        for name, t in [*((f"{t.length} tokens", t) for t in run.latency), *_whole(run)]:
            figures = (fixed(value / MEGA, 3) for value in (t.p50, t.minimum, max(t.samples)))
            rows.append((style.name, name, *figures, str(len(t.samples))))
    columns = (
        Column("Artifact", align="left"), Column("What", align="left"), Column("Median", "million"),
        Column("Min", "million"), Column("Max", "million"), Column("Runs"),
    )  # fmt: skip
    series = [
        (style, [(t.length, t.p50 / MEGA, t.p90 / MEGA) for t in run.latency if t.length is not None])
        for run, style in pairs
    ]
    figure = latency_lines(series, "million instructions", "Instructions by length")
    lead = (
        "These devices are emulated. What is counted is instructions executed: the same in every run, good for telling "
        "whether a change made the artifact cheaper, and no measure of a phone's time."
    )
    table = Table("Instructions executed, in millions", columns, tuple(rows))
    return Section("instructions", "Emulated devices: instruction counts", lead, (figure,), (table,))
