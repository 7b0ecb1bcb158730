"""The sections about device runs, training and sweeps; each function returns one, or None without data for it."""

from __future__ import annotations

import csv
import functools
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msdc.bench.compare import Difference
from msdc.bench.report import charts
from msdc.bench.report.drawing import linear_axis
from msdc.bench.report.inputs import Data, Scored, numbered_style, spearmans
from msdc.bench.report.model import Figure, Section, Style, Tile
from msdc.bench.report.targets import memory_mib
from msdc.bench.result import Accuracy, DeviceRun, DeviceState, Timing
from msdc.distill.sweep import table_of
from msdc.export.mobile.sizes import LEVEL, measured
from msdc.export.mobile.web.npm import FILES
from msdc.export.mobile.web.write import TOKENIZERS, module_source
from msdc.tables import (
    NONE,
    Column,
    Table,
    aligned,
    fixed,
    heads,
    joined,
    megabytes,
    millions,
    minus,
    number,
    percent,
    signed,
)

Runs = Sequence[tuple[DeviceRun, Style]]
Figures = tuple[str, Callable[[DeviceRun], str]]
MEGA = 1e6
PHASES = ("start", "loaded", "warm")
# At most this many data sets get a chart of scores; the table lists all.
MAX_CHARTS = 6
PEERS = Path(__file__).resolve().parent / "peers.csv"
WEB, ANDROID = "web page", "Android app, arm64"
# Points of Spearman x 100 that one run each on a small corpus can tell apart.
EVIDENCE = 2.0


def tiles(data: Data) -> list[Tile]:
    """Smallest program, fastest median, best accuracy of an artifact, lowest parity."""
    found = []
    if data.runs:
        run, style = min(data.runs, key=lambda pair: pair[0].artifact.bytes)
        found.append(Tile("smallest program", f"{megabytes(run.artifact.bytes)} MB", style.name))
    timed = [(value, style) for run, style in data.timed if (value := data.latency(run)) is not None]
    if timed:
        value, style = min(timed, key=lambda pair: pair[0])
        found.append(Tile(f"fastest median, {data.length} tokens", f"{number(value)} ms", style.name))
    if scored := data.scored_runs():
        _, style, best = max(scored, key=lambda row: row[2])
        what = data.tasks[0][1] if len(data.tasks) == 1 else f"mean of {len(data.tasks)} sets"
        found.append(Tile("best Spearman × 100 of an artifact", fixed(best, 1), f"{style.name}; {what}"))
    parities = [(run.parity.mean_cosine, style) for run, style in data.runs if run.parity is not None]
    if parities:
        worst, style = min(parities, key=lambda pair: pair[0])
        found.append(Tile("lowest parity of a device (mean cosine)", fixed(worst, 4), style.name))
    return found


def artifacts(data: Data) -> Section | None:
    """One row per run: bytes, load and first run, parity."""
    runs = data.results.runs
    if not runs:
        return None
    loads, firsts = (
        aligned([getattr(run, name) if run.clock == "wall" else None for run in runs]) for name in ("load", "first")
    )
    rows = []
    for (run, style), load, first in zip(data.runs, loads, firsts, strict=True):
        device = run.device.name
        # The device has a column of its own here.
        name = style.name.replace(f" on {device}", "", 1)
        device += " (emulated)" if run.device.emulated and "emulated" not in device else ""
        parity = [NONE] * 5
        if run.parity is not None:
            golden = run.parity
            ids = "equal" if golden.ids_equal else f"{len(golden.ids_differ)} of {golden.texts} differ"
            cosines = (golden.mean_cosine, golden.min_cosine, golden.float_mean_cosine, golden.float_min_cosine)
            parity = [*(fixed(cosine, 4) for cosine in cosines), ids]
        sizes = (megabytes(run.artifact.bytes), megabytes(run.artifact.bundle_bytes))
        rows.append((name, device, *sizes, load, first, str(run.threads), *parity))
    columns = heads(
        "Artifact | Device < | Program [MB] | With tokenizer [MB] | Load [ms] | First run [ms] | Threads | "
        "Cosine to export [mean] | Cosine to export [lowest] | Cosine to float model [mean] | "
        "Cosine to float model [lowest] | Token ids <"
    )
    note = (
        "Load: from file to runnable program, files in the page cache. Cosines and token ids: golden texts on the "
        "device against the export's vectors (rounding, wrong kernels) and the float model's (quantization too)."
    )
    bundles, devices = ({run.artifact.bundle: 0 for run in runs}, {run.device.name: 0 for run in runs})
    lead = f"{len(runs)} run{'s' if len(runs) != 1 else ''} of {joined(list(bundles))} on {joined(list(devices))}."
    return Section("artifacts", "Artifacts", lead, (), [Table("Artifacts and devices", columns, rows, note)])


@functools.cache
def _web_module() -> tuple[int, int]:
    """Bytes of onnxruntime-web and the larger of the modules, plain and compressed."""
    module = max((module_source(kind).encode("utf-8") for kind in TOKENIZERS), key=len)
    plain = sum(file.bytes for file in FILES.values()) + len(module)
    return plain, sum(file.compressed for file in FILES.values()) + len(zlib.compress(module, LEVEL))


def growth(data: Data) -> Section | None:
    """What an app or a web page grows by: one row per artifact and kind of app."""
    rows: dict[tuple[str, str], tuple[str, ...]] = {}
    downloads: list[tuple[int, str, str]] = []
    for run, style in data.runs:
        artifact, app = run.artifact, WEB if run.browser is not None else ANDROID
        if artifact.bundle_bytes is None or (artifact.sha256, app) in rows:
            continue
        if app == WEB:
            plain, small = _web_module()
        else:
            plain, small = (sum(measured()[part][key] for part in (artifact.runtime, "core"))
                            for key in ("bytes", "compressed"))  # fmt: skip
        name = style.name.replace(f" on {run.device.name}", "", 1)
        download = artifact.compressed_bytes + small if artifact.compressed_bytes is not None else None
        if download is not None:
            downloads.append((download, name, app))
        sizes = (artifact.bundle_bytes, artifact.compressed_bytes, plain, small, artifact.bundle_bytes + plain)
        rows[artifact.sha256, app] = (name, app, *map(megabytes, (*sizes, download)))
    if not rows:
        return None
    columns = heads(
        "Artifact | In < | Program and tokenizer [MB] | Program and tokenizer [MB compressed] | "
        "Runtime and module [MB] | Runtime and module [MB compressed] | Installed [MB] | Download [MB]"
    )
    note = (
        "Runtime and module: libraries of an arm64 app with all kernels (benchmarks/app_size.py), WebAssembly and "
        "JavaScript of a page; compressed as stores and servers do. Golden vectors are not counted."
    )
    lead = ""
    if downloads:
        least, name, app = min(downloads)
        lead = f"{name} adds {fixed(least / 1e6, 1)} MB to the download of {'a' if app == WEB else 'an'} {app}."
    title = "What an app grows by"
    return Section("growth", title, lead, (), [Table(title, columns, list(rows.values()), note)])


def _by_place(caption: str, pairs: Runs, figures: Sequence[Figures]) -> Table | None:
    """Devices and dates as columns, figures of every artifact as rows; None where one device was measured once."""

    def artifact(run: DeviceRun) -> str:
        """What stays the same when it is measured again elsewhere or later."""
        threads = f", {run.threads} threads" if run.threads > 1 else ""
        return f"{run.artifact.bundle} {run.artifact.runtime} {run.artifact.precision}{threads}"

    def place(run: DeviceRun) -> tuple[str, str]:
        """Date and device; Python's interpreter makes another one."""
        name = run.device.name + (", from Python" if run.harness == "python" else "")
        return run.created[:digits].replace("T", " "), name

    digits = len("2026-01-01")
    if len({(artifact(run), place(run)) for run, _ in pairs}) < len(pairs):
        digits = len("2026-01-01T00:00")
    places = sorted({place(run) for run, _ in pairs})
    if len(places) < 2:
        return None
    # Two runs of one artifact within a minute: the later one.
    cells = {(artifact(run), place(run)): run for run, _ in sorted(pairs, key=lambda pair: pair[0].created)}
    rows = []
    for name in dict.fromkeys(artifact(run) for run, _ in pairs):
        for title, shown in figures:
            row = [shown(cells[name, where]) if (name, where) in cells else NONE for where in places]
            if any(cell != NONE for cell in row):
                rows.append((name, title, *row))
    return Table(caption, [*heads("Artifact | Figure <"), *(Column(device, date) for date, device in places)], rows)


def devices(data: Data) -> Section | None:
    """The main figures of every artifact where they were measured: devices with a clock, and emulated ones."""

    median = f"median at {data.length} tokens"
    common: list[Figures] = [
        ("peak memory, MiB", lambda run: fixed(memory_mib(run), 1)),
        ("mean Spearman × 100", lambda run: fixed(data.mean(run), 1)),
        ("program, MB", lambda run: megabytes(run.artifact.bytes)),
    ]
    timed: list[Figures] = [
        (f"{median}, ms", lambda run: number(data.latency(run))),
        ("load, ms", lambda run: number(run.load)),
    ]
    counts: list[Figures] = [(f"{median}, million instructions", lambda run: millions(data.latency(run), 3))]
    tables = (
        _by_place("Measured in time", data.timed, timed + common),
        _by_place("Counted in instructions", data.counted, counts + common),
    )
    found = [table for table in tables if table is not None]
    return Section("devices", "By device and date", "", (), found) if found else None


def _interval(entry: Accuracy) -> tuple[float, float] | None:
    """The 95 % interval of a score; None when its task computed none."""
    match (entry.model_extra or {}).get("interval"):
        case [low, high]:
            return float(low), float(high)
    return None


def _accuracy_lead(data: Data) -> str:
    """The lowest artifact against the float student, or the teacher where there is no student."""
    runs = data.scored_runs()
    if not runs:
        return ""
    _, style, worst = min(runs, key=lambda row: row[2])
    base = {model.role: mean for model, _ in data.models if (mean := data.mean(model)) is not None}
    for role, name in (("student", "float student"), ("teacher", "teacher")):
        if role in base:
            lowest = f"the lowest artifact, {style.name}, {fixed(worst, 1)} ({signed(worst - base[role], 1)})"
            return f"The {name} scores {base[role]:.1f}; {lowest}."
    return f"The lowest artifact, {style.name}, scores {worst:.1f}."


def accuracy(data: Data) -> Section | None:
    """A table of all data sets and charts of the first six."""
    owners: list[tuple[Scored, Style]] = [*data.models, *data.runs]
    scored = [(style, one, scores) for one, style in owners if (scores := spearmans(one))]
    if not scored:
        return None
    figures = []
    for task in data.tasks[:MAX_CHARTS]:
        found = [(style, scores[task]) for style, _, scores in scored if task in scores]
        pairs = next((entry.pairs for _, entry in found if entry.pairs), None)
        rows = [(style, entry.spearman or 0.0, _interval(entry)) for style, entry in found]
        figures.append(charts.score_dots(task[1] + (f", {pairs} pairs" if pairs else ""), rows))
    several = len(data.tasks) > 1
    table = []
    for style, one, scores in scored:
        cells = [scores[task].spearman if task in scores else None for task in data.tasks]
        cells += [data.mean(one)] if several else []
        table.append((style.name, *(fixed(cell, 1) for cell in cells)))
    columns = [*heads("Model or artifact"), *(Column(name) for _, name in data.tasks)]
    columns += [Column("Mean")] if several else []
    note = "Spearman × 100 of cosines against gold scores. An artifact is scored on the vectors that it computed."
    tables = [Table("Spearman × 100", columns, table, note)]
    return Section("accuracy", "Accuracy", _accuracy_lead(data), figures, tables)


def trade(data: Data) -> Section | None:
    """Size against accuracy and latency against accuracy with their Pareto lines."""
    scored = data.scored_runs()
    if not scored:
        return None
    sizes = [(style, model.bytes / 1e6, mean, f"{megabytes(model.bytes)} MB, {mean:.1f}")
             for model, style in data.models if model.bytes and (mean := data.mean(model)) is not None]  # fmt: skip
    times = []
    for run, style, mean in scored:
        at, size = data.latency(run) if run.clock == "wall" else None, f"{megabytes(run.artifact.bytes)} MB"
        sizes.append(
            (style, run.artifact.bytes / 1e6, mean, f"{size}, {mean:.1f}" + (f", {number(at)} ms" if at else ""))
        )
        if at is not None:
            times.append((style, at, mean, f"{number(at)} ms, {mean:.1f}, {size}"))
    figures = [charts.trade_off("Size and accuracy", "MB, logarithmic", sizes, log=True)]
    if times:
        figures.append(
            charts.trade_off("Latency and accuracy", f"ms at {data.length} tokens, median", times, log=False)
        )
    note = f"Accuracy is the mean Spearman × 100 over: {', '.join(name for _, name in data.tasks)}."
    title = "Size, accuracy and latency"
    return Section("trade-off", title, "Up and to the left is better.", figures, notes=[note])


def recurrence(data: Data) -> Section | None:
    """The student beside its twin whose unit is applied more often: what recurrence brings and costs."""
    twin = data.twin
    student = next((model for model in data.results.models if model.role == "student"), None)
    recurring = next((model for model in data.results.models if twin is not None and model.name == twin.name), None)
    if twin is None or student is None or recurring is None:
        return None
    rows = [
        (f"{style.name}, float", megabytes(model.bytes), fixed(data.mean(model), 1), NONE)
        for model, style in data.models
        if model in (student, recurring)
    ]
    times = {}
    for run, style in data.runs:
        p50 = times[run.artifact.bundle, run.artifact.runtime] = data.latency(run)
        rows.append((style.name, megabytes(run.artifact.bytes), fixed(data.mean(run), 1), fixed(p50, 2)))
    lead, scores = "", (data.mean(recurring), data.mean(student))
    if scores[0] is not None and scores[1] is not None:
        gain = scores[0] - scores[1]
        lead = f"With its unit repeated the student scores {scores[0]:.1f}, with it applied once {scores[1]:.1f} "
        lead += f"({signed(gain, 1)})"
        pairs = [
            (first, times.get((student.name, runtime))) for (name, runtime), first in times.items() if name == twin.name
        ]
        ratios = sorted({f"{first / second:.2f}" for first, second in pairs if first and second})
        lead += f", and takes {' to '.join(ratios)} times as long" if ratios else ""
        if twin.missed_gate:
            lead += f"; its int8 program misses the gate ({twin.missed_gate}), so only the float model is compared"
        if abs(gain) < EVIDENCE:
            lead += ": too close to tell whether recurrence pays."
        else:
            lead += f": recurrence {'pays in accuracy' if gain > 0 else 'does not pay'} here."
    note = (
        "Both have the same layers, table, text, stages, steps and seed; the recurring one applies its unit more "
        f"often. One run each on a small corpus: less than {EVIDENCE:g} points are no evidence."
    )
    columns = heads(f"Model or artifact | Size [MB] | Mean Spearman [× 100] | Latency at {data.length} tokens [ms]")
    tables = [Table("Twins", columns, rows, note)]
    return Section("recurrence", "Recurring unit and plain twin", lead, (), tables)


def _difference_row(difference: Difference) -> tuple[str, ...]:
    def shown(value: float) -> str:
        if difference.unit == "bytes":
            return f"{megabytes(value)} MB"
        if difference.unit == "instructions":
            return f"{fixed(value / MEGA, 3)} M instructions"
        return fixed(value, 2) if difference.unit == "x100" else f"{number(value)} {difference.unit}"

    span, verdict = difference.interval, str(difference.verdict)
    interval = NONE if span is None else f"{percent(span[0])} to {percent(span[1])}"
    if difference.unit == "x100":
        change = minus(f"{difference.change:+.2f} points")
        verdict = "same" if verdict == "same" else "see msdc evaluate --against"
    else:
        change = percent(difference.change, 2 if difference.unit == "instructions" else 1)
        verdict = "one sample" if verdict == "unknown" else verdict
    return (difference.what, change, verdict, interval, shown(difference.old), shown(difference.new))


def comparison(data: Data) -> Section | None:
    """Differences to an earlier result, their intervals, and whether they exceed noise."""
    if not data.comparisons:
        return None
    # Change and verdict first: a phone shows the other columns after scrolling.
    columns = heads("Figure | Change | Verdict < | 95 % interval | Before | Now")
    figures, tables, notes = [], [], []
    for one in data.comparisons:
        tables.append(Table(one.title, columns, [_difference_row(difference) for difference in one.differences]))
        spans = [(d.what, d.change, d.interval, d.verdict) for d in one.differences if d.interval is not None]
        if spans:
            figures.append(charts.change_intervals(one.where, spans))
        notes += [f"{one.where}: {note}." for note in one.notes]
    notes.append(
        "Interval: 95 %, bootstrap over blocks of consecutive samples. A timing changed when its median and its "
        "fastest tenth moved beyond their intervals. A slower machine looks like a slower artifact: measure both in "
        "one session."
    )
    verdicts = [difference.verdict for one in data.comparisons for difference in one.differences]
    changed = verdicts.count("faster") + verdicts.count("slower")
    lead = f"{changed} timing{'s' if changed != 1 else ''} changed, {verdicts.count('noise')} within noise."
    return Section("comparison", "Comparison with an earlier result", lead, figures, tables, notes)


def _lengths(pairs: Runs) -> list[int]:
    return sorted({timing.length for run, _ in pairs for timing in run.latency if timing.length})


def _from_text(run: DeviceRun) -> list[tuple[str, Timing]]:
    """The timings of tokenization and from text to vector."""
    named = (("tokenization", run.tokenize), ("text to vector", run.pipeline))
    return [(name, timing) for name, timing in named if timing is not None]


def _timing_table(caption: str, timed: Sequence[tuple[Style, str, Timing]], note: str) -> Table:
    """A table of times; the decimal points of all its numbers are aligned."""
    texts = iter(aligned([value for *_, t in timed for value in (t.minimum, t.p50, t.p90, t.p99)], most=3))
    rows = []
    for style, what, timing in timed:
        rate = fixed(1000 / timing.p50, 0) if timing.p50 else NONE
        rows.append((style.name, what, *(next(texts) for _ in range(4)), rate, str(len(timing.samples))))
    columns = heads("Artifact | What < | Min [ms] | p50 [ms] | p90 [ms] | p99 [ms] | Throughput [per s] | Runs")
    return Table(caption, columns, rows, note)


def latency(data: Data) -> Section | None:
    """Times by length, for runs measured in time."""
    pairs = [(run, style) for run, style in data.timed if run.latency]
    if not pairs:
        return None
    inference = [
        (style, f"{length} tokens", timing)
        for length in _lengths(pairs)
        for run, style in pairs
        for timing in run.latency
        if timing.length == length
    ]
    note = "One sentence at a time; warm-up runs are not among the samples."
    tables = [_timing_table("Latency", inference, note)]
    whole = [(style, name, timing) for run, style in pairs for name, timing in _from_text(run)]
    if whole:
        note = "Golden texts of 5 to 40 tokens in turn. Text to vector is tokenization plus inference."
        tables.append(_timing_table("From text", whole, note))
    lead, longest = "", _lengths(pairs)[-1]
    timed = [(t.p50, style.name) for run, style in pairs for t in run.latency if t.length == longest]
    if len(timed) > 1:
        (fast, first), (slow, last) = (one(timed, key=lambda pair: pair[0]) for one in (min, max))
        lead = f"At {longest} tokens {first} is fastest ({number(fast)} ms median), {last} slowest ({number(slow)} ms)."
    series = [(style, [(t.length, t.p50, t.p90) for t in run.latency if t.length is not None]) for run, style in pairs]
    figures = [charts.latency_lines(series, "ms", "Latency by length")]
    starts = [(style, run.load + run.first) for run, style in pairs if run.load and run.first]
    if starts:
        shown = [(style, value, f"{number(value)} ms") for style, value in starts]
        figures.append(
            charts.bars("Load and first run", shown, "From closed files to the first vector, page cache warm.")
        )
    return Section("latency", "Latency by length", lead, figures, tables)


def samples(data: Data) -> Section | None:
    """Raw samples in order. They show throttling and other load on the machine, which no percentile does."""
    figures = []
    for length in _lengths(data.timed):
        rows = [(style, t.samples) for run, style in data.timed for t in run.latency if t.length == length]
        figures.append(charts.samples_over_time(f"{length} tokens", "ms", rows))
    lead = "Every timed run in order. A rising trend means heat; single peaks mean other load on the machine."
    return Section("samples", "Samples over time", lead, figures) if figures else None


def counted(data: Data) -> Section | None:
    """Instruction counts of emulated devices; they are not times and never share a figure or table with times."""
    if not data.counted:
        return None
    rows: list[tuple[str, ...]] = []
    for run, style in data.counted:
        for name, count in (("load", run.load), ("first run", run.first)):
            if count is not None:
                rows.append((style.name, name, millions(count, 3), NONE, NONE, "1"))
        for name, t in [*((f"{t.length} tokens", t) for t in run.latency), *_from_text(run)]:
            counts = (millions(value, 3) for value in (t.p50, t.minimum, max(t.samples)))
            rows.append((style.name, name, *counts, str(len(t.samples))))
    series = [
        (style, [(t.length, t.p50 / MEGA, t.p90 / MEGA) for t in run.latency if t.length is not None])
        for run, style in data.counted
    ]
    figure = charts.latency_lines(series, "million instructions", "Instructions by length")
    lead = (
        "These devices are emulated: executed instructions are counted. The count shows whether a change made the "
        "artifact cheaper; it does not measure time on a phone."
    )
    columns = heads("Artifact | What < | Median [million] | Min [million] | Max [million] | Runs")
    tables = [Table("Instructions executed, in millions", columns, rows)]
    return Section("instructions", "Emulated devices: instruction counts", lead, [figure], tables)


def memory(data: Data) -> Section | None:
    """Anonymous and file-backed memory at start, loaded and warm."""
    known = [(run.memory, style) for run, style in data.runs if run.memory is not None]
    if not known:
        return None
    axis = linear_axis([getattr(used, name).vmhwm_mib for used, _ in known for name in PHASES], zero=True)
    figures, rows = [], []
    for used, style in known:
        phases = [(name, getattr(used, name)) for name in PHASES]
        for name, phase in phases:
            rise = phase.anon_mib - used.start.anon_mib
            values = (phase.anon_mib, phase.file_mib, phase.pss_mib, phase.vmhwm_mib, rise)
            rows.append((style.name, name, *("unknown" if v is None else fixed(v, 1) for v in values)))
        drawn = [(name, phase.anon_mib, phase.file_mib, phase.vmhwm_mib) for name, phase in phases]
        figures.append(charts.stacked_memory(style, drawn, axis))
    columns = heads(
        "Artifact | Phase < | Anonymous [MiB] | File-backed [MiB] | PSS [MiB] | Peak [MiB] | Anonymous rise [MiB]"
    )
    python = "Runs from Python include the interpreter and its libraries in every phase: compare with the start phase."
    notes = [python] if any(run.harness == "python" for run, _ in data.runs if run.memory is not None) else []
    note = "Start: before the artifact is opened; loaded: program and tokenizer ready; warm: after all timed runs."
    return Section("memory", "Memory by phase", "", figures, [Table("Memory by phase", columns, rows, note)], notes)


def parameters(data: Data) -> Section | None:
    """Parameters and bytes of every model and artifact."""
    rows: list[tuple[str, ...]] = []
    sizes: list[tuple[Style, int | None]] = []
    for model, style in data.models:
        counts = (model.parameters, model.embedding_parameters, model.encoder_parameters)
        rows.append((style.name, "float32", *map(millions, counts), megabytes(model.bytes)))
        sizes.append((style, model.bytes))
    seen = set()
    for artifact, style in ((run.artifact, style) for run, style in data.runs):
        if artifact.sha256 not in seen:  # one row, however often it was measured
            seen.add(artifact.sha256)
            parts = (artifact.precision, millions(artifact.parameters), NONE, NONE, megabytes(artifact.bytes))
            rows.append((style.name, *parts))
            sizes.append((style, artifact.bytes))
    if not rows:
        return None
    columns = heads(
        "Model or artifact | Precision < | Parameters [million] | Embedding [million] | Encoder [million] | Bytes [MB]"
    )
    lead = ""
    teacher = next((model.bytes for model, _ in data.models if model.role == "teacher" and model.bytes), None)
    if teacher and data.runs:
        least = min(run.artifact.bytes for run, _ in data.runs)
        lead = f"The smallest artifact is {least / teacher:.0%} of the teacher's {megabytes(teacher)} MB."
    known = [(style, size, f"{megabytes(size)} MB") for style, size in sizes if size]
    note = "Embedding counts the token table, its bottleneck map and positions; encoder the stored layers."
    title = "Parameters and bytes"
    figures = [charts.bars("Bytes on disk", known)] if known else []
    return Section("parameters", title, lead, figures, [Table(title, columns, rows, note)])


def training(data: Data) -> Section | None:
    """One loss curve per stage in training order, and the validation of the checkpoint that each stage kept."""
    if not data.stages:
        return None
    validations = {"heldout_accuracy": "held-out accuracy, %", "graded": "development Spearman × 100"}
    figures: list[Figure] = []
    rows = []
    for stage in data.stages:
        losses = list(stage.losses.items())
        if losses:
            figures.append(charts.loss_curve(stage.name, losses))
        for key, what in validations.items() if data.running else ():
            curve = [(step, numbers[key]) for step, numbers in stage.validated.items() if key in numbers]
            if len(curve) > 1:
                figures.append(charts.loss_curve(stage.name, curve, what))
        step, numbers = stage.chosen() or (NONE, {})
        graded = [value for key, value in numbers.items() if key.startswith("spearman_")]
        shares = ", ".join(f"{name} {100 * share:.3g} %" for name, share in stage.shares.items())
        rows.append((
            stage.name, str(stage.steps), number(losses[0][1]) if losses else NONE,
            number(losses[-1][1]) if losses else NONE, str(step), number(numbers.get("heldout_mse")),
            fixed(numbers.get("heldout_accuracy"), 1), fixed(sum(graded) / len(graded) if graded else None, 1),
            shares or NONE, fixed(stage.seconds, 0),
        ))  # fmt: skip
    columns = heads(
        "Stage | Steps | First loss | Last loss | Chosen step | Held-out MSE | Held-out accuracy [%] | "
        "Development Spearman [× 100] | Shares of the loss < | Time [s]"
    )
    note = (
        "Held-out figures are those of the checkpoint that was kept, on parallel sentences left out of training, "
        "not on a test set. Losses of different stages are different quantities."
    )
    count, seconds = len(data.stages), sum(stage.seconds for stage in data.stages)
    lead = f"{count} stage{'s' if count != 1 else ''}, {seconds / 60:.1f} minutes of training."
    if data.running:
        lead += " The run is not finished: these are the figures up to now."
    return Section("training", "Training loss by stage", lead, figures, [Table("Stages", columns, rows, note)])


def sweeps(data: Data) -> list[Section]:
    """Per sweep of recipes: the curve of every point's last stage, and its table with the paper's figures."""
    found = []
    for i, sweep in enumerate(data.sweeps, 1):
        title = f"{sweep.recipe}, {sweep.sweep}"
        units = " / ".join(sorted({row.unit for row in sweep.rows}))
        lines = [(numbered_style(row.label, j), [(point.x, point.score) for point in row.curve])
                 for j, row in enumerate(sweep.rows)]  # fmt: skip
        figure = charts.curves(title, f"{units} of the last stage", "score on development data", lines)
        best = max(((row.curve[-1].score, row.label) for row in sweep.rows if row.curve), default=None)
        lead = f"{len(sweep.rows)} points" + (f"; {best[1]} ends highest ({best[0]:.1f})." if best else ".")
        key = f"sweep-{i}" if len(data.sweeps) > 1 else "sweep"
        found.append(Section(key, f"Sweep: {title}", lead, [figure], [table_of(sweep)]))
    return found


def peers() -> Section:
    """Published figures of other systems, each with its source: the table in peers.csv."""
    lines = [line for line in PEERS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    names, *rows = csv.reader(lines)
    titles = {"system": "System", "embedding_M": "Embedding [million]", "encoder_M": "Encoder [million]",
              "source": "Source <"}  # fmt: skip
    columns = heads(" | ".join(titles.get(name, name) for name in names))
    note = "Not measured here: figures for float models as printed in the papers; parameters as the papers count them."
    table = Table(
        "Published: Spearman × 100 on STS2017", columns, [[cell or NONE for cell in row] for row in rows], note
    )
    return Section("peers", "Published peers", "Figures from the literature, for orientation.", (), [table])


def _state(state: DeviceState | None) -> str:
    if state is None:
        return NONE
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


def _browsers(data: Data) -> list[Table]:
    """What decides about a browser's figures, one row per run; nothing without such runs."""

    def by_length(values: Mapping[str, float], digits: int) -> str:
        return ", ".join(f"{length}: {fixed(value, digits)}" for length, value in values.items()) or NONE

    rows = []
    for facts, style in ((run.browser, style) for run, style in data.runs if run.browser is not None):
        claims = [f"{facts.claimed_cores} cores"] if facts.claimed_cores else []
        claims += [f"{facts.claimed_memory_gib:g} GiB"] if facts.claimed_memory_gib else []
        kinds = ((facts.secure_context, "secure"), (facts.isolated, "isolated"), (facts.worker, "worker"))
        rows.append((
            style.name, f"{facts.engine} {facts.version or 'of unknown version'}",
            ", ".join(word for held, word in kinds if held) or NONE, ", ".join(claims) or "unknown",
            fixed(1000 * facts.clock_step_ms, 1), by_length(facts.calls_per_sample, 0), by_length(facts.cold_ms, 1),
            fixed(facts.heap_loaded_mib, 1), fixed(facts.heap_warm_mib, 1),
            "unknown" if facts.renderer_pss_mib is None else fixed(facts.renderer_pss_mib, 1), facts.golden_sha256[:12],
        ))  # fmt: skip
    columns = heads(
        "Artifact | Browser < | Context < | Claims < | Clock step [µs] | Calls per sample < | First calls [ms] < | "
        "Heap loaded [MiB] | Heap warm [MiB] | Renderer PSS [MiB] | Golden vectors <"
    )
    note = "First calls: median of the first ten of a length, not in the latency. Claims: the browser's own."
    return [Table("Browsers", columns, rows, note)] if rows else []


def method(data: Data) -> Section | None:
    """How it was measured: a table of devices, and one row per run with its versions and device state."""
    if not data.runs:
        return None
    machines, rows = {}, []
    for run, style in data.runs:
        d = run.device
        memory_gib = "unknown" if d.memory_mib is None else fixed(d.memory_mib / 1024, 1)
        kind = d.kind + (", emulated" if d.emulated else "")
        cores = str(d.cores or "unknown")
        facts = (d.cpu or NONE, " ".join(d.isa) or NONE, cores, memory_gib, d.os or NONE)
        machines[d.kind, d.name] = (d.name, kind, *facts)
        versions = ", ".join(f"{name} {version}" for name, version in run.versions.items()) or NONE
        clock = "wall clock" if run.clock == "wall" else "instructions"
        states = (_state(run.state_before), _state(run.state_after))
        how = f"{run.origin}, {run.harness}"
        rows.append((style.name, run.created, how, clock, versions, *states, run.artifact.sha256[:12]))
    columns = heads("Device | Kind < | Processor < | Extensions < | Cores | Memory [GiB] | System <")
    tables = [Table("Devices", columns, list(machines.values()))]
    columns = heads("Artifact | Measured < | How < | Clock < | Versions < | State before < | State after < | sha256 <")
    tables += [Table("Runs", columns, rows), *_browsers(data)]
    notes = dict.fromkeys(note[:1].upper() + note[1:] + "." for run, _ in data.runs for note in run.notes)
    return Section("method", "How it was measured", "", (), tables, list(notes))
