"""Latency by length and over time, tokenization, instruction counts (never mixed with times), and memory."""

from __future__ import annotations

from collections.abc import Sequence

from msdc.bench.report.charts import bars, latency_lines, samples_over_time, stacked_memory
from msdc.bench.report.data import ReportData, Style
from msdc.bench.report.drawing import linear_axis
from msdc.bench.report.model import Section
from msdc.bench.result import DeviceRun, Timing
from msdc.tables import Column, Table, aligned, fixed, number

MEGA = 1e6
PHASES = ("start", "loaded", "warm")


def _lengths(pairs: Sequence[tuple[DeviceRun, Style]]) -> list[int]:
    return sorted({timing.length for run, _ in pairs for timing in run.latency if timing.length})


def _whole(run: DeviceRun) -> list[tuple[str, Timing]]:
    """The timings of tokenization and from text to vector."""
    named = (("tokenization", run.tokenize), ("text to vector", run.pipeline))
    return [(name, timing) for name, timing in named if timing is not None]


def _rows(timed: Sequence[tuple[Style, str, Timing]]) -> tuple[tuple[str, ...], ...]:
    """Rows of a table of times; the decimal points of a column are aligned."""
    figures = [value for _, _, t in timed for value in (t.minimum, t.p50, t.p90, t.p99)]
    texts = aligned(figures, most=3)
    rows = []
    for i, (style, what, timing) in enumerate(timed):
        cells = texts[4 * i : 4 * i + 4]
        per_second = fixed(1000 / timing.p50, 0) if timing.p50 else "–"
        rows.append((style.name, what, *cells, per_second, str(len(timing.samples))))
    return tuple(rows)


def latency(data: ReportData) -> Section | None:
    """Times by length, for runs measured in time; None without any."""
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
        note = "Golden texts of 5 to 40 tokens in turn. Text to vector is tokenization plus inference."
        tables.append(Table("From text", columns, _rows(whole), note))
    lead = ""
    longest = _lengths(pairs)[-1]
    timed = [(t.p50, s) for r, s in pairs for t in r.latency if t.length == longest]
    if len(timed) > 1:
        fast, slow = min(timed, key=lambda p: p[0]), max(timed, key=lambda p: p[0])
        slowest = f"{slow[1].name} slowest ({number(slow[0])} ms)"
        lead = f"At {longest} tokens {fast[1].name} is fastest ({number(fast[0])} ms median), {slowest}."
    figures = [latency_lines(series, "ms", "Latency by length")]
    starts = [(style, run.load + run.first) for run, style in pairs if run.load and run.first]
    if starts:
        shown = [(style, value, f"{number(value)} ms") for style, value in starts]
        figures.append(bars("Load and first run", shown, "From closed files to the first vector, page cache warm."))
    return Section("latency", "Latency by length", lead, tuple(figures), tuple(tables))


def samples(data: ReportData) -> Section | None:
    """Raw samples in order. They show throttling and other load on the machine, which no percentile does."""
    pairs = [(run, style) for run, style in data.wall() if run.latency]
    if not pairs:
        return None
    figures = []
    for length in _lengths(pairs):
        rows = [(style, timing.samples) for run, style in pairs for timing in run.latency if timing.length == length]
        figures.append(samples_over_time(f"{length} tokens", "ms", rows))
    lead = "Every timed run in order. A rising trend means heat; single peaks mean other load on the machine."
    return Section("samples", "Samples over time", lead, tuple(figures))


def counted(data: ReportData) -> Section | None:
    """Instruction counts of emulated devices; they are not times and never share a figure or table with times."""
    pairs = data.counted()
    if not pairs:
        return None
    rows: list[tuple[str, ...]] = []
    for run, style in pairs:
        starts = (("load", run.load), ("first run", run.first))
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
        "These devices are emulated. Executed instructions are counted: the count is the same in every run and shows "
        "whether a change made the artifact cheaper, but it does not measure time on a phone."
    )
    table = Table("Instructions executed, in millions", columns, tuple(rows))
    return Section("instructions", "Emulated devices: instruction counts", lead, (figure,), (table,))


def memory(data: ReportData) -> Section | None:
    """Anonymous and file-backed memory at start, loaded and warm."""
    pairs = [(run, style) for run, style in data.everything() if run.memory is not None]
    if not pairs:
        return None
    peaks = [getattr(run.memory, key).vmhwm_mib for run, _ in pairs for key in PHASES]
    axis = linear_axis(peaks, zero=True)
    figures, rows = [], []
    for run, style in pairs:
        assert run.memory is not None
        phases = []
        for name in PHASES:
            phase = getattr(run.memory, name)
            phases.append((name, phase.anon_mib, phase.file_mib, phase.vmhwm_mib))
            rise = phase.anon_mib - run.memory.start.anon_mib
            values = (phase.anon_mib, phase.file_mib, phase.pss_mib, phase.vmhwm_mib, rise)
            rows.append((style.name, name, *("unknown" if v is None else fixed(v, 1) for v in values)))
        figures.append(stacked_memory(style, phases, axis))
    columns = (
        Column("Artifact", align="left"), Column("Phase", align="left"), Column("Anonymous", "MiB"),
        Column("File-backed", "MiB"), Column("PSS", "MiB"), Column("Peak", "MiB"), Column("Anonymous rise", "MiB"),
    )  # fmt: skip
    notes = []
    if any(run.harness == "python" for run, _ in pairs):
        notes.append(
            "Runs made from Python include the interpreter and the runtime's libraries in every phase: compare with "
            "the start phase, or measure with the native runner to see what an app would use."
        )
    note = "Start: before the artifact is opened; loaded: program and tokenizer ready; warm: after all timed runs."
    table = Table("Memory by phase", columns, tuple(rows), note)
    return Section("memory", "Memory by phase", "", tuple(figures), (table,), tuple(notes))
