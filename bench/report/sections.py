"""The sections about device runs, training and sweeps; each function returns one, or None without data for it."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from msdc.bench.compare import Difference
from msdc.bench.report import charts
from msdc.bench.report.answer import WEB, app_of, rise_mib, sizes_of
from msdc.bench.report.drawing import Figure, Style
from msdc.bench.report.model import Data, Section, Shown, artifact_key, numbered_style, place_of, spearmans
from msdc.bench.result import Accuracy, DeviceRun, DeviceState, Timing
from msdc.distill.sweep import table_of
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
    number,
    percent,
    signed,
)

MEGA = 1e6
PHASES = ("start", "loaded", "warm")
# At most this many data sets get a chart of scores; the table lists all.
MAX_CHARTS = 6
PEERS = Path(__file__).resolve().parent / "peers.csv"
# Points of Spearman x 100 that one run each on a small corpus can tell apart.
EVIDENCE = 2.0
# Of fewer samples the 99th percentile is made of one or two: the largest is shown.
ENOUGH_FOR_P99 = 500


def artifacts(data: Data) -> Section | None:
    """One row per artifact and kind of app: bytes alone and with the runtime, parameters; float models below."""
    rows, drawn = [], []
    for shown in {(s.style.name, app_of(s.run)): s for s in data.runs}.values():
        artifact, sizes = shown.run.artifact, sizes_of(shown.run)
        kind = "web page" if app_of(shown.run) == WEB else "Android, arm64"
        share = NONE if artifact.delegated_share is None else fixed(100 * artifact.delegated_share, 1)
        whole = (artifact.bundle_bytes, sizes.runtime, sizes.own + sizes.runtime, sizes.download)
        rows.append((shown.style.name, kind, megabytes(artifact.bytes), *map(megabytes, whole),
                     millions(artifact.parameters), share))  # fmt: skip
        own, small = (sizes.own, sizes.runtime) if sizes.own_small is None else (sizes.own_small, sizes.runtime_small)
        text = f"{millions(own, 1)} + {millions(small, 1)} = {millions(own + small, 1)} MB"
        style = Style(f"{shown.style.name}, {kind}", shown.style.color)
        drawn.append((style, (own / MEGA, small / MEGA), text))
    blank = (NONE,) * 3
    rows += [(style.name, "float32", megabytes(model.bytes), *blank, NONE, millions(model.parameters), NONE)
             for model, style in data.models]  # fmt: skip
    if not rows:
        return None
    columns = heads(
        "Artifact | In < | Program [MB] | With tokenizer [MB] | Runtime and module [MB] | Installed [MB] | "
        "Download [MB] | Parameters [million] | Delegated [% of operators]"
    )
    note = (
        "Runtime and module: libraries of an arm64 app with all kernels (benchmarks/app_size.py), WebAssembly and "
        "JavaScript of a page. Download: compressed as stores and servers do. Golden vectors are not counted."
    )
    caption = "Solid: program and tokenizer; pale: runtime and module. Compressed where the result tells."
    figures = [charts.bars("What a download grows by", drawn, caption, unit="MB")] if drawn else []
    lead = ""
    teacher = next((model.bytes for model, _ in data.models if model.role == "teacher" and model.bytes), None)
    if teacher and data.runs:
        least = min(shown.run.artifact.bundle_bytes or shown.run.artifact.bytes for shown in data.runs)
        lead = f"The smallest artifact has {least / teacher:.0%} of the bytes of the teacher's {megabytes(teacher)} MB."
    return Section("artifacts", "Sizes", lead, figures, [Table("Sizes", columns, rows, note)])


def runs(data: Data) -> Section | None:
    """One row per run: load and first run, parity with the export and with the float model."""
    if not data.runs:
        return None
    loads, firsts = (aligned([getattr(shown.run, name) if shown.run.clock == "wall" else None for shown in data.runs])
                     for name in ("load", "first"))  # fmt: skip
    rows = []
    for (run, style, place), load, first in zip(data.runs, loads, firsts, strict=True):
        parity = [NONE] * 5
        if (golden := run.parity) is not None:
            ids = "equal" if golden.ids_equal else f"{len(golden.ids_differ)} of {golden.texts} differ"
            cosines = (golden.mean_cosine, golden.min_cosine, golden.float_mean_cosine, golden.float_min_cosine)
            parity = [*(fixed(cosine, 4) for cosine in cosines), ids]
        rows.append((style.name, place, load, first, str(run.threads), *parity))
    columns = heads(
        "Artifact | Device < | Load [ms] | First run [ms] | Threads | Cosine to export [mean] | "
        "Cosine to export [lowest] | Cosine to float model [mean] | Cosine to float model [lowest] | Token ids <"
    )
    note = (
        "Load: from file to runnable program, files in the page cache. Cosines of golden texts: to the export's own "
        "vectors they show whether the device computes the same, to the float model's also what quantization costs."
    )
    count, places = len(rows), list(dict.fromkeys(shown.place for shown in data.runs))
    lead = f"{count} run{'s' if count != 1 else ''} of {joined(data.bundles)} on {joined(places)}."
    return Section("runs", "Every run", lead, (), [Table("Every run", columns, rows, note)])


def history(data: Data) -> Section | None:
    """Medians of every artifact by date where it was measured more than once, in this report or in earlier results."""
    every = sorted((run for file in (*data.earlier, data.results) for run in file.runs), key=lambda run: run.created)
    series: dict[tuple[str, str, str], dict[str, DeviceRun]] = {}
    for run in every:
        key = (place_of(run, every), artifact_key(run.artifact), run.clock)
        series.setdefault(key, {})[run.created] = run
    found = {key: dated for key, dated in series.items() if len(dated) > 1}
    if not found or data.length is None:
        return None
    dates = sorted({date for dated in found.values() for date in dated})
    rows, figures = [], []
    for clock, unit, scale in (("wall", "ms", 1.0), ("instructions", "million instructions", MEGA)):
        drawn: list[tuple[Style, list[tuple[float, float]]]] = []
        for (place, name, own_clock), dated in found.items():
            if own_clock == clock:
                style = numbered_style(f"{name} on {place}", len(drawn))
                points = [(float(dates.index(date)), value / scale) for date, run in dated.items()
                          if (value := data.latency(run)) is not None]  # fmt: skip
                drawn.append((style, points))
        if any(points for _, points in drawn):
            ends = (0, len(dates) - 1)
            labels = {float(i): dates[i][:10] for i in ends}
            title = f"Median at {data.length} tokens by date"
            figures.append(charts.lines(title, "date", unit, drawn, x_labels=labels, zero=True, height=230))
    for (place, name, clock), dated in found.items():
        for date, run in dated.items():
            value = data.latency(run)
            shown = number(value) if clock == "wall" else f"{millions(value, 3)} M instructions"
            cells = (fixed(data.mean(run.accuracy), 1), megabytes(run.artifact.bytes), fixed(rise_mib(run), 1))
            rows.append((f"{name} on {place}", date[:16].replace("T", " "), shown, *cells, run.artifact.sha256[:8]))
    columns = heads(
        f"Artifact | Measured < | Median at {data.length} tokens [ms] | Mean Spearman [× 100] | Program [MB] | "
        "Memory rise [MiB] | sha256 <"
    )
    lead = f"{len(dates)} measurements from {dates[0][:10]} to {dates[-1][:10]}."
    return Section("history", "History", lead, figures, [Table("By date", columns, rows)])


def _interval(entry: Accuracy) -> tuple[float, float] | None:
    """The 95 % interval of a score; None when its task computed none."""
    match (entry.model_extra or {}).get("interval"):
        case [low, high]:
            return float(low), float(high)
    return None


def accuracy(data: Data) -> Section | None:
    """A table of all data sets and charts of the first six; what lies far below the others does not stretch them."""
    owners: list[tuple[Style, str, Sequence[Accuracy]]] = [
        (style, one.role, one.accuracy) for one, style in data.models
    ]
    owners += [(shown.style, "artifact", shown.run.accuracy) for shown in data.artifacts]
    bundled = {shown.run.artifact.bundle: shown.run.float_accuracy for shown in data.runs if shown.run.float_accuracy}
    if not any(role == "student" for _, role, _ in owners):
        owners += [(Style(f"float model of {name}", "m3", "diamond"), "student", own) for name, own in bundled.items()]
    scored = [(style, role, entries, scores) for style, role, entries in owners if (scores := spearmans(entries))]
    if not scored:
        return None
    figures = []
    for task in data.tasks[:MAX_CHARTS]:
        found = [(style, role, entry) for style, role, entries, _ in scored for entry in entries
                 if (entry.task, entry.name) == task and entry.spearman is not None]  # fmt: skip
        pairs = next((entry.pairs for *_, entry in found if entry.pairs), None)
        rows = [(style, entry.spearman or 0.0, _interval(entry), fixed(entry.spearman, 1)) for style, _, entry in found]
        least = charts.focus([value for _, value, _, _ in rows])
        below = [(style.name, role) for style, role, entry in found if (entry.spearman or 0.0) < least]
        caption = "Spearman × 100; lines: 95 % bootstrap interval over pairs."
        for name, role in below:
            why = "; a teacher scores low on languages that it does not know" if role == "teacher" else ""
            caption += f" Below the scale: {name}{why}."
        figures.append(charts.dots(task[1] + (f", {pairs} pairs" if pairs else ""), rows, caption))
    several = len(data.tasks) > 1
    table = []
    for style, _, entries, scores in scored:
        cells = [scores.get(task) for task in data.tasks] + ([data.mean(entries)] if several else [])
        table.append((style.name, *(fixed(cell, 1) for cell in cells)))
    columns = [*heads("Model or artifact"), *(Column(name) for _, name in data.tasks)]
    columns += [Column("Mean")] if several else []
    note = "Spearman × 100 of cosines against gold scores. An artifact is scored on the vectors that it computed."
    return Section(
        "accuracy", "Accuracy", _accuracy_lead(data), figures, [Table("Spearman × 100", columns, table, note)]
    )


def _accuracy_lead(data: Data) -> str:
    """The lowest artifact against its float model, or the teacher where none is known."""
    scored = [(mean, shown) for shown in data.artifacts if (mean := data.mean(shown.run.accuracy)) is not None]
    if not scored:
        return ""
    worst, shown = min(scored, key=lambda pair: pair[0])
    teacher = next((mean for m, _ in data.models if m.role == "teacher" and (mean := data.mean(m.accuracy))), None)
    base, name = (kept[1], "float model") if (kept := data.kept(shown.run)) else (teacher, "teacher")
    if base is None:
        return f"The lowest artifact, {shown.style.name}, scores {worst:.1f}."
    lowest = f"the lowest artifact, {shown.style.name}, {fixed(worst, 1)} ({signed(worst - base, 1)})"
    return f"The {name} scores {base:.1f}; {lowest}."


def trade(data: Data) -> Section | None:
    """Size against accuracy, one point per artifact, and latency against accuracy, one panel per device."""
    scored = [(shown, mean) for shown in data.artifacts if (mean := data.mean(shown.run.accuracy)) is not None]
    if not scored:
        return None

    def megas(run: DeviceRun) -> float:
        return (run.artifact.bundle_bytes or run.artifact.bytes) / MEGA

    sizes = [
        (style, model.bytes / MEGA, mean, f"{megabytes(model.bytes)} MB, {mean:.1f}")
        for model, style in data.models
        if model.bytes and (mean := data.mean(model.accuracy)) is not None
    ]
    sizes += [(s.style, megas(s.run), mean, f"{fixed(megas(s.run), 2)} MB, {mean:.1f}") for s, mean in scored]
    figures = [charts.trade_off("Size and accuracy", "MB of program and tokenizer", sizes)]
    for place, shown in data.places.items():
        times = [(one.style, at, mean, f"{number(at)} ms, {mean:.1f}") for one in shown
                 if (at := data.latency(one.run)) and (mean := data.mean(one.run.accuracy)) is not None]  # fmt: skip
        if len(times) > 1:
            figures.append(charts.trade_off(place, f"ms at {data.length} tokens, median", times))
    note = f"Accuracy is the mean Spearman × 100 over: {', '.join(name for _, name in data.tasks)}."
    return Section("trade-off", "Size, accuracy and latency", "", figures, notes=[note])


def recurrence(data: Data) -> Section | None:
    """The student beside its twin whose unit is applied more often: what recurrence brings and costs."""
    twin, named = data.twin, {model.name: model for model in data.results.models}
    student = next((model for model in data.results.models if model.role == "student"), None)
    if twin is None or student is None or (recurring := named.get(twin.name)) is None:
        return None
    rows = [(f"{style.name}, float", megabytes(model.bytes), fixed(data.mean(model.accuracy), 1), NONE)
            for model, style in data.models if model in (student, recurring)]  # fmt: skip
    rows += [(shown.style.name, megabytes(shown.run.artifact.bytes), fixed(data.mean(shown.run.accuracy), 1),
              fixed(data.latency(shown.run), 2)) for shown in data.runs]  # fmt: skip
    times = {(s.run.artifact.bundle, s.run.artifact.runtime): data.latency(s.run) for s in data.runs}
    lead, first, second = "", data.mean(recurring.accuracy), data.mean(student.accuracy)
    if first is not None and second is not None:
        lead = f"With its unit repeated the student scores {first:.1f}, with it applied once {second:.1f} "
        lead += f"({signed(first - second, 1)})"
        pairs = [(time, times.get((student.name, runtime))) for (name, runtime), time in times.items()
                 if name == twin.name]  # fmt: skip
        ratios = sorted({f"{slow / quick:.2f}" for slow, quick in pairs if slow and quick})
        lead += f", and takes {' to '.join(ratios)} times as long" if ratios else ""
        if twin.missed_gate:
            lead += f"; its int8 program misses the gate ({twin.missed_gate}), so only the float model is compared"
        if abs(first - second) < EVIDENCE:
            lead += ": too close to tell whether recurrence pays."
        else:
            lead += f": recurrence {'pays in accuracy' if first > second else 'does not pay'} here."
    note = (
        "Both have the same layers, table, text, stages, steps and seed; the recurring one applies its unit more "
        f"often. One run each on a small corpus: less than {EVIDENCE:g} points are no evidence."
    )
    columns = heads(f"Model or artifact | Size [MB] | Mean Spearman [× 100] | Latency at {data.length} tokens [ms]")
    return Section("recurrence", "Recurring unit and plain twin", lead, (), [Table("Twins", columns, rows, note)])


def _difference_row(item: Difference) -> tuple[str, ...]:
    def shown(value: float) -> str:
        if item.unit in ("bytes", "instructions"):
            return f"{megabytes(value)} MB" if item.unit == "bytes" else f"{millions(value, 3)} M instructions"
        return fixed(value, 2) if item.unit == "x100" else f"{number(value)} {item.unit}"

    verdict, change = str(item.verdict), percent(item.change, 2 if item.unit == "instructions" else 1)
    if item.unit == "x100":
        change = f"{signed(item.change, 2)} points"
        verdict = "same" if verdict == "same" else "see msdc evaluate --against"
    verdict = "one sample" if verdict == "unknown" else verdict
    interval = NONE if item.interval is None else f"{percent(item.interval[0])} to {percent(item.interval[1])}"
    fastest = NONE if item.fastest is None else percent(item.fastest)
    return (item.what, change, verdict, fastest, interval, shown(item.old), shown(item.new))


def comparison(data: Data) -> Section | None:
    """Differences to an earlier result, their intervals, and whether they exceed noise."""
    if not data.comparisons:
        return None
    # Change and verdict first: a phone shows the other columns after scrolling.
    columns = heads("Figure | Change | Verdict < | Fastest tenth | 95 % interval | Before | Now")
    figures, tables, notes = [], [], []
    colors = {"faster": "good", "slower": "bad"}
    for one in data.comparisons:
        tables.append(Table(one.title, columns, [_difference_row(item) for item in one.differences]))
        spans = [(Style(item.what, colors.get(item.verdict, "m1")), 100 * item.change,
                  (100 * item.interval[0], 100 * item.interval[1]), item.verdict)
                 for item in one.differences if item.interval is not None]  # fmt: skip
        if spans:
            caption = "Change of the median; lines: 95 % block-bootstrap interval."
            figures.append(charts.dots(one.where, spans, caption, percent=True))
        notes += [f"{one.where}: {note}." for note in one.notes]
    notes.append(
        "Interval: 95 %, bootstrap over blocks of consecutive samples. A timing changed when its median and its "
        "fastest tenth moved beyond their intervals; a gate looks at the smaller of both changes. A slower machine "
        "looks like a slower artifact: measure both in one session."
    )
    verdicts = [item.verdict for one in data.comparisons for item in one.differences]
    changed = verdicts.count("faster") + verdicts.count("slower")
    lead = f"{changed} timing{'s' if changed != 1 else ''} changed, {verdicts.count('noise')} within noise."
    return Section("comparison", "Comparison with an earlier result", lead, figures, tables, notes)


def _from_text(run: DeviceRun) -> list[tuple[str, Timing]]:
    """The timings of tokenization and from text to vector."""
    named = (("tokenization", run.tokenize), ("text to vector", run.pipeline))
    return [(name, timing) for name, timing in named if timing is not None]


def _timing_table(caption: str, timed: Sequence[tuple[Shown, str, Timing]], note: str) -> Table:
    """A table of times; the decimal points of all its numbers are aligned."""
    enough = [len(timing.samples) >= ENOUGH_FOR_P99 for *_, timing in timed]
    figures = [
        (t.minimum, t.p50, t.p90, t.p99 if much else None, max(t.samples))
        for (*_, t), much in zip(timed, enough, strict=True)
    ]
    texts = iter(aligned([value for row in figures for value in row], most=3))
    kept = [i for i in range(5) if (i != 3 or any(enough)) and (i != 4 or not all(enough))]
    rows = []
    for shown, what, timing in timed:
        cells = [next(texts) for _ in range(5)]
        rate = fixed(1000 / timing.p50, 0) if timing.p50 else NONE
        count = str(len(timing.samples))
        rows.append((shown.style.name, shown.place, what, *(cells[i] for i in kept), rate, count))
    titles = ("Min", "p50", "p90", "p99", "Max")
    numbers = " | ".join(f"{titles[i]} [ms]" for i in kept)
    return Table(caption, heads(f"Artifact | Device < | What < | {numbers} | Throughput [per s] | Runs"), rows, note)


def latency(data: Data) -> Section | None:
    """Times by length, for runs measured in time; one panel per device."""
    timed = [shown for shown in data.runs if shown.run.clock == "wall" and shown.run.latency]
    if not timed:
        return None
    note = f"One sentence at a time; warm-up runs are not among the samples. p99 from {ENOUGH_FOR_P99} samples on."
    by_length = [(shown, f"{t.length} tokens", t) for shown in timed for t in shown.run.latency]
    tables = [_timing_table("Latency", sorted(by_length, key=lambda row: row[2].length or 0), note)]
    if whole := [(shown, name, timing) for shown in timed for name, timing in _from_text(shown.run)]:
        note = "Golden texts of 5 to 40 tokens in turn. Text to vector is tokenization plus inference."
        tables.append(_timing_table("From text", whole, note))
    figures = [_by_length(place, "ms", shown, 1.0) for place, shown in data.places.items()]
    for place, shown in data.places.items():
        starts = [(s.style, (s.run.load, s.run.first), f"{number(s.run.load + s.run.first)} ms")
                  for s in shown if s.run.load and s.run.first]  # fmt: skip
        if starts:
            caption = f"{place}. Solid: from closed files to a program, page cache warm; pale: its first run."
            figures.append(charts.bars("Load and first run", starts, caption, unit="ms"))
    fastest = min(((time, shown) for shown in timed if (time := data.latency(shown.run))), default=None,
                  key=lambda pair: pair[0])  # fmt: skip
    lead = ""
    if fastest is not None:
        time, best = fastest
        lead = f"At {data.length} tokens {best.style.name} takes {number(time)} ms on {best.place}, the least."
    return Section("latency", "Latency by length", lead, [one for one in figures if one], tables)


def _by_length(title: str, unit: str, shown: Sequence[Shown], scale: float) -> Figure | None:
    series = [(one.style, [(float(t.length), t) for t in one.run.latency if t.length]) for one in shown]
    lengths = sorted({length for _, timings in series for length, _ in timings})
    if not lengths:
        return None
    medians = [(style, [(length, t.p50 / scale) for length, t in timings]) for style, timings in series if timings]
    upper = [[(length, t.p90 / scale) for length, t in timings] for _, timings in series if timings]
    labels = {length: f"{length:g}" for length in lengths}
    caption = "Line: median; band: up to p90."
    return charts.lines(title, "tokens", unit, medians, upper=upper, log_x=True, x_labels=labels, zero=True,
                        caption=caption)  # fmt: skip


def over_time(data: Data) -> Section | None:
    """Raw samples in order, and seconds of sustained load. They show throttling and other load on the machine."""
    figures, rows = [], []
    for place, shown in data.places.items():
        samples = [(one.style, t.samples) for one in shown for t in one.run.latency if t.length == data.length]
        if samples and data.length:
            figures.append(charts.samples_over_time(f"{place}, {data.length} tokens", "ms", samples))
        kept = [(one, one.run.sustained) for one in shown if one.run.sustained is not None]
        if kept:
            series = [(one.style, [(i + 1.0, ms) for i, ms in enumerate(load.medians)]) for one, load in kept]
            title = f"Sustained, {place}"
            figures.append(charts.lines(title, "second", "ms", series, marks=False, zero=True, height=200))
        for one, load in kept:
            ratio = "–" if load.ratio is None else f"{load.ratio:.2f}"
            ends = (number(load.medians[0]), number(load.medians[-1]), ratio)
            states = (_state(load.before), _state(load.after))
            rows.append((one.style.name, place, str(load.length), str(len(load.medians)), *ends, *states))
    if not figures:
        return None
    columns = heads(
        "Artifact | Device < | Tokens | Seconds | First second [ms] | Last second [ms] | Last to first | Before < | "
        "After <"
    )
    tables = [Table("Sustained load", columns, rows, "Medians of each second without a pause.")] if rows else []
    lead = "Timed runs in order. A rising trend means heat; single peaks mean other load on the machine."
    return Section("samples", "Samples over time", lead, figures, tables)


def counted(data: Data) -> Section | None:
    """Instruction counts of emulated devices; they are not times and never share a figure or table with times."""
    found: dict[str, list[Shown]] = {}
    rows: list[tuple[str, ...]] = []
    for shown in (shown for shown in data.runs if shown.run.clock == "instructions"):
        run, name = shown.run, (shown.style.name, shown.place)
        found.setdefault(shown.place, []).append(shown)
        singles = (("load", run.load), ("first run", run.first))
        rows += [(*name, what, millions(count, 3), NONE, NONE, "1") for what, count in singles if count is not None]
        for what, t in [*((f"{t.length} tokens", t) for t in run.latency), *_from_text(run)]:
            counts = (millions(value, 3) for value in (t.p50, t.minimum, max(t.samples)))
            rows.append((*name, what, *counts, str(len(t.samples))))
    if not rows:
        return None
    figures = [_by_length(place, "million instructions", shown, MEGA) for place, shown in found.items()]
    lead = (
        "These devices are emulated: executed instructions are counted. The count shows whether a change made the "
        "artifact cheaper; it does not measure time on a phone."
    )
    columns = heads("Artifact | Device < | What < | Median [million] | Min [million] | Max [million] | Runs")
    tables = [Table("Instructions executed, in millions", columns, rows)]
    drawn = [figure for figure in figures if figure is not None]
    return Section("instructions", "Emulated devices: instruction counts", lead, drawn, tables)


def memory(data: Data) -> Section | None:
    """What each artifact adds to its process, loaded and warm, and all figures by phase."""
    known = [(shown, shown.run.memory) for shown in data.runs if shown.run.memory is not None]
    if not known:
        return None
    rows, drawn = [], []
    for shown, used in known:
        resident = [getattr(used, name).anon_mib + getattr(used, name).file_mib for name in PHASES]
        for name, whole in zip(PHASES, resident, strict=True):
            phase = getattr(used, name)
            values = (whole - resident[0], phase.anon_mib, phase.file_mib, phase.pss_mib, phase.vmhwm_mib)
            rows.append(
                (shown.style.name, shown.place, name, *("unknown" if v is None else fixed(v, 1) for v in values))
            )
        loaded = max(0.0, resident[1] - resident[0])
        further = max(0.0, resident[2] - resident[0] - loaded)
        style = Style(f"{shown.style.name} on {shown.place}", shown.style.color)
        drawn.append((style, (loaded, further), f"{fixed(loaded, 1)} + {fixed(further, 1)} MiB"))
    columns = heads(
        "Artifact | Device < | Phase < | Rise [MiB] | Anonymous [MiB] | File-backed [MiB] | PSS [MiB] | Peak [MiB]"
    )
    note = "Start: before the artifact is opened; loaded: program and tokenizer ready; warm: after all timed runs."
    caption = "Resident memory over the start of the process. Solid: after loading; pale: after all runs."
    python = "Runs from Python include the interpreter and its libraries in every phase: read the rise."
    notes = [python] if any(shown.run.harness == "python" for shown, _ in known) else []
    figures = [charts.bars("What the artifact adds to its process", drawn, caption, unit="MiB")]
    return Section("memory", "Memory", "", figures, [Table("By phase", columns, rows, note)], notes)


def training(data: Data) -> Section | None:
    """One loss curve per stage in training order, and the validation of the checkpoint that each stage kept."""
    if not data.stages:
        return None
    validations = {"heldout_accuracy": "held-out accuracy, %", "graded": "development Spearman × 100"}
    figures: list[Figure] = []
    rows = []

    def curve(name: str, title: str, what: str, points: Sequence[tuple[int, float]]) -> Figure:
        span = f"From {number(points[0][1])} at step {points[0][0]} to {number(points[-1][1])} at step {points[-1][0]}."
        placed = [(float(step), value) for step, value in points]
        figure = charts.lines(title, "step", what, [(Style(name), placed)], marks=False, height=190, caption=span)
        return Figure(name, figure.svg, figure.alt, span)

    for stage in data.stages:
        losses = list(stage.losses.items())
        if losses:
            figures.append(curve(stage.name, f"Training loss of stage {stage.name}", "loss", losses))
        for key, what in validations.items() if data.running else ():
            points = [(step, numbers[key]) for step, numbers in stage.validated.items() if key in numbers]
            if len(points) > 1:
                figures.append(curve(f"{stage.name}: {what}", f"Validation of stage {stage.name}", what, points))
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
        series = [(numbered_style(row.label, j), [(point.x, point.score) for point in row.curve])
                  for j, row in enumerate(sweep.rows)]  # fmt: skip
        figures = []
        if any(points for _, points in series):
            what = "score on development data"
            figures = [charts.lines(title, f"{units} of the last stage", what, series, height=280)]
        best = max(((row.curve[-1].score, row.label) for row in sweep.rows if row.curve), default=None)
        lead = f"{len(sweep.rows)} points" + (f"; {best[1]} ends highest ({best[0]:.1f})." if best else ".")
        key = f"sweep-{i}" if len(data.sweeps) > 1 else "sweep"
        found.append(Section(key, f"Sweep: {title}", lead, figures, [table_of(sweep)]))
    return found


def peers() -> Section:
    """Published figures of other systems, each with its source: the table in peers.csv."""
    lines = [line for line in PEERS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    names, *rows = csv.reader(lines)
    titles = {"system": "System", "embedding_M": "Embedding [million]", "encoder_M": "Encoder [million]",
              "source": "Source <"}  # fmt: skip
    columns = heads(" | ".join(titles.get(name, name) for name in names))
    note = "Not measured here: figures for float models as printed in the papers; parameters as the papers count them."
    cells = [[cell or NONE for cell in row] for row in rows]
    table = Table("Published: Spearman × 100 on STS2017", columns, cells, note)
    return Section("peers", "Published peers", "Figures from the literature, for orientation.", (), [table])


def _state(state: DeviceState | None) -> str:
    if state is None:
        return NONE
    charging = " charging" if state.charging else ""
    parts = [
        (state.load_1min, "load {:.2f}"),
        (state.battery_percent, f"battery {{:.0f}} %{charging}"),
        (state.battery_c, "battery {:.1f} °C"),
        (max(state.thermal_c.values(), default=None), "hottest zone {:.1f} °C"),
    ]
    words = [form.format(value) for value, form in parts if value is not None]
    words += [f"{min(state.cpu_mhz):.0f} to {max(state.cpu_mhz):.0f} MHz"] if state.cpu_mhz else []
    return ", ".join(words) or "unknown"


def _browsers(data: Data) -> list[Table]:
    """What decides about a browser's figures, one row per run; nothing without such runs."""

    def by_length(values: Mapping[str, float], digits: int) -> str:
        return ", ".join(f"{length}: {fixed(value, digits)}" for length, value in values.items()) or NONE

    rows = []
    for shown, facts in ((shown, shown.run.browser) for shown in data.runs if shown.run.browser is not None):
        claims = [f"{facts.claimed_cores} cores"] if facts.claimed_cores else []
        claims += [f"{facts.claimed_memory_gib:g} GiB"] if facts.claimed_memory_gib else []
        kinds = ((facts.secure_context, "secure"), (facts.isolated, "isolated"), (facts.worker, "worker"))
        rows.append((
            shown.style.name, shown.place, f"{facts.engine} {facts.version or 'of unknown version'}",
            ", ".join(word for held, word in kinds if held) or NONE, ", ".join(claims) or "unknown",
            fixed(1000 * facts.clock_step_ms, 1), by_length(facts.calls_per_sample, 0), by_length(facts.cold_ms, 1),
            fixed(facts.heap_loaded_mib, 1), fixed(facts.heap_warm_mib, 1),
            "unknown" if facts.renderer_pss_mib is None else fixed(facts.renderer_pss_mib, 1), facts.golden_sha256[:12],
        ))  # fmt: skip
    columns = heads(
        "Artifact | Device < | Browser < | Context < | Claims < | Clock step [µs] | Calls per sample < | "
        "First calls [ms] < | Heap loaded [MiB] | Heap warm [MiB] | Renderer PSS [MiB] | Golden vectors <"
    )
    note = "First calls: median of the first ten of a length, not in the latency. Claims: the browser's own."
    return [Table("Browsers", columns, rows, note)] if rows else []


def method(data: Data) -> Section | None:
    """How it was measured: a table of devices, and one row per run with its versions and device state."""
    if not data.runs:
        return None
    machines, rows = {}, []
    for run, style, place in data.runs:
        d = run.device
        memory_gib = "unknown" if d.memory_mib is None else fixed(d.memory_mib / 1024, 1)
        kind = d.kind + (", emulated" if d.emulated else "")
        facts = (d.cpu or NONE, " ".join(d.isa) or NONE, str(d.cores or "unknown"), memory_gib, d.os or NONE)
        machines[d.kind, d.name] = (d.name, kind, *facts)
        versions = ", ".join(f"{name} {version}" for name, version in run.versions.items()) or NONE
        how = f"{run.origin}, {run.harness}, {'wall clock' if run.clock == 'wall' else 'instructions'}"
        states = (_state(run.state_before), _state(run.state_after))
        rows.append((style.name, place, run.created, how, versions, *states, run.artifact.sha256[:12]))
    columns = heads("Device | Kind < | Processor < | Extensions < | Cores | Memory [GiB] | System <")
    tables = [Table("Devices", columns, list(machines.values()))]
    columns = heads("Artifact | Device < | Measured < | How < | Versions < | State before < | State after < | sha256 <")
    tables += [Table("Runs", columns, rows), *_browsers(data)]
    notes = dict.fromkeys(note[:1].upper() + note[1:] + "." for shown in data.runs for note in shown.run.notes)
    return Section("method", "How it was measured", "", (), tables, list(notes))
