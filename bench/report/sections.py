"""The sections about device runs, training and sweeps; each function returns one, or None without data for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from msdc.bench.compare import Comparison, Difference, Unmatched, not_compared
from msdc.bench.report import charts
from msdc.bench.report.drawing import Figure, Style
from msdc.bench.report.model import (
    ReportData,
    ReportSection,
    Shown,
    artifact_names,
    interval_of,
    label_device,
    numbered_style,
    spearmans,
)
from msdc.bench.report.recommendation import WEB, app_of, rise_mib, sizes_of
from msdc.bench.result import Accuracy, DeviceRun, DeviceState, Record, Timing, moments
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
# Points of Spearman x 100 that one run each on a small corpus can separate.
EVIDENCE = 2.0
# Of fewer samples the 99th percentile is made of one or two: the largest is shown.
ENOUGH_FOR_P99 = 500


def artifacts(data: ReportData) -> ReportSection | None:
    """One row per artifact and kind of app: bytes alone and with the runtime, parameters; float models below."""
    rows = []
    for shown in {(s.style.name, app_of(s.run)): s for s in data.runs}.values():
        artifact, sizes = shown.run.artifact, sizes_of(shown.run)
        kind = "web page" if app_of(shown.run) == WEB else "Android, arm64"
        share = NONE if artifact.delegated_share is None else fixed(100 * artifact.delegated_share, 1)
        app_bytes = (artifact.bundle_bytes, sizes.runtime, sizes.bundle + sizes.runtime, sizes.download)
        rows.append((shown.style.name, kind, megabytes(artifact.bytes), *map(megabytes, app_bytes),
                     millions(artifact.parameters), share))  # fmt: skip
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
        "Bytes are uncompressed, as installed. "
        "Runtime and module: libraries of an arm64 app with all kernels (benchmarks/app_size.py), WebAssembly and "
        "JavaScript of a page. Download: the same, compressed as stores and servers do. Golden vectors are not counted."
    )
    lead = ""
    teacher = next((model.bytes for model, _ in data.models if model.role == "teacher" and model.bytes), None)
    if teacher and data.runs:
        least = min(shown.run.artifact.bundle_bytes or shown.run.artifact.bytes for shown in data.runs)
        lead = f"The smallest program with its tokenizer has {100 * least / teacher:.0f} % of the teacher's bytes."
    return ReportSection("artifacts", "Sizes", lead, (), [Table("Sizes", columns, rows, note)])


def history(data: ReportData) -> ReportSection | None:
    """Medians by date of what was measured more than once, here or in earlier results; one panel per device."""
    every = sorted((run for file in (*data.earlier, data.results) for run in file.runs), key=lambda run: run.created)
    series: dict[str, dict[str, list[DeviceRun]]] = {}
    for run, name in zip(every, artifact_names(every), strict=True):
        series.setdefault(label_device(run, every), {}).setdefault(name, []).append(run)
    series = {
        device_label: {name: runs for name, runs in named.items() if len(runs) > 1}
        for device_label, named in series.items()
    }
    dates = sorted({run.created for named in series.values() for runs in named.values() for run in runs})
    if not dates or data.length is None:
        return None
    rows, figures = [], []
    dated = dict(zip(dates, moments(dates), strict=True))
    labels = {0.0: dates[0][:10], len(dates) - 1.0: dates[-1][:10]}
    for device_label, named in series.items():
        drawn: list[tuple[Style, charts.Points]] = []
        unit = "ms"
        for index, (name, runs) in enumerate(named.items()):
            unit, scale = ("ms", 1.0) if runs[0].clock == "wall" else ("million instructions", MEGA)
            timed_runs = [(run, value / scale) for run in runs if (value := data.latency(run)) is not None]
            drawn.append(
                (numbered_style(name, index), [(float(dates.index(run.created)), value) for run, value in timed_runs])
            )
            rows += [(name, device_label, dated[run.created], data.time(run),
                      fixed(data.mean(run.accuracy), 1), megabytes(run.artifact.bytes), fixed(rise_mib(run), 1),
                      run.artifact.sha256[:8]) for run, value in timed_runs]  # fmt: skip
        if any(points for _, points in drawn):
            what = f"median at {data.length} tokens, {unit}"
            figures.append(charts.lines(device_label, "date", what, drawn, x_labels=labels, zero=True, height=230))
    columns = heads(
        f"Artifact | Device < | Measured < | Median at {data.length} tokens | Mean Spearman [× 100] | Program [MB] | "
        "Memory rise [MiB] | sha256 <"
    )
    lead = f"{len(dates)} measurements from {dates[0][:10]} to {dates[-1][:10]}."
    return ReportSection("history", "History", lead, figures, [Table("By date", columns, rows)])


def accuracy(data: ReportData) -> ReportSection | None:
    """A table of all data sets and charts of the first six; outliers far below do not stretch them."""
    owners: list[tuple[Style, str, Sequence[Accuracy]]] = [
        (style, model.role, model.accuracy) for model, style in data.models
    ]
    owners += [(shown.style, "artifact", shown.run.accuracy) for shown in data.artifacts]
    bundled = {shown.run.artifact.bundle: shown.run.float_accuracy for shown in data.runs if shown.run.float_accuracy}
    if not any(role == "student" for _, role, _ in owners):
        owners += [
            (Style(f"float model of {name}", "m3", "diamond"), "student", float_scores)
            for name, float_scores in bundled.items()
        ]
    scored = [(style, role, entries, scores) for style, role, entries in owners if (scores := spearmans(entries))]
    if not scored:
        return None
    figures = []
    for task in data.tasks[:MAX_CHARTS]:
        set_entries = [(style, role, entry) for style, role, entries, _ in scored for entry in entries
                 if (entry.task, entry.name) == task and entry.spearman is not None]  # fmt: skip
        pairs = next((entry.pairs for *_, entry in set_entries if entry.pairs), None)
        rows = [
            (style, entry.spearman or 0.0, interval_of(entry), fixed(entry.spearman, 1))
            for style, _, entry in set_entries
        ]
        caption = "Spearman × 100; lines: 95 % bootstrap interval over pairs."
        figures.append(charts.dots(task[1] + (f", {pairs} pairs" if pairs else ""), rows, caption))
    several = len(data.tasks) > 1
    table = []
    for style, _, entries, scores in scored:
        cells = [scores.get(task) for task in data.tasks] + ([data.mean(entries)] if several else [])
        table.append((style.name, *(fixed(cell, 1) for cell in cells)))
    columns = [*heads("Model or artifact"), *(Column(name) for _, name in data.tasks)]
    columns += [Column("Mean")] if several else []
    note = "Spearman × 100 of cosines against gold scores. An artifact is scored on the vectors that it computed."
    lead, means = "", [(mean, shown) for shown in data.artifacts if (mean := data.mean(shown.run.accuracy)) is not None]
    if means:
        worst, shown = min(means, key=lambda pair: pair[0])
        float_comparison = data.score_against_float(shown.run)
        base = (
            f", {signed(round(float_comparison[0] - float_comparison[1], 1) + 0.0, 1)} against its float model"
            if float_comparison
            else ""
        )
        name = f"The lowest artifact, {shown.style.name}," if len(means) > 1 else shown.style.name
        lead = f"{name} scores {worst:.1f}{base}."
    return ReportSection("accuracy", "Accuracy", lead, figures, [Table("Spearman × 100", columns, table, note)])


def recurrence(data: ReportData) -> ReportSection | None:
    """The student and its twin whose unit is applied more often: gain and cost of recurrence."""
    twin, named = data.twin, {model.name: model for model in data.results.models}
    student = next((model for model in data.results.models if model.role == "student"), None)
    if twin is None or student is None or (recurring := named.get(twin.name)) is None:
        return None
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
            lead += ": the difference is not significant."
        else:
            lead += f": recurrence {'pays in accuracy' if first > second else 'does not pay'} here."
    note = (
        "Both have the same layers, table, text, stages, steps and seed; the recurring one applies its unit more "
        f"often. One run each on a small corpus: less than {EVIDENCE:g} points are no evidence."
    )
    return ReportSection("recurrence", "Repeated layers vs. the same model without repeats", lead, notes=[note])


def _figure_text(value: float | None, unit: str) -> str:
    if value is None or math.isnan(value):
        return NONE
    if unit in ("bytes", "instructions"):
        return f"{megabytes(value)} MB" if unit == "bytes" else f"{millions(value, 3)} M instructions"
    return fixed(value, 2) if unit == "x100" else f"{number(value)} {unit}"


def _unmatched_row(item: Unmatched) -> tuple[str, ...]:
    return (item.what, NONE, item.why, _figure_text(item.old, item.unit), _figure_text(item.new, item.unit), NONE, NONE)


def _difference_row(device_comparison: Comparison, item: Difference) -> tuple[str, ...]:
    def shown(value: float) -> str:
        return _figure_text(value, item.unit)

    verdict = device_comparison.verdict(item)
    change = NONE if math.isnan(item.change) else percent(item.change, 2 if item.unit == "instructions" else 1)
    if item.unit == "x100":
        change = f"{signed(item.change, 2)} points"
        verdict = "same" if verdict == "same" else "see msdc evaluate --against"
    if verdict == "same program":
        return (item.what, NONE, verdict, shown(item.old), shown(item.new), NONE, NONE)
    interval = NONE if item.interval is None else f"{percent(item.interval[0])} to {percent(item.interval[1])}"
    fastest = NONE if item.fastest is None else percent(item.fastest)
    return (item.what, change, verdict, shown(item.old), shown(item.new), fastest, interval)


def comparison(data: ReportData) -> ReportSection | None:
    """Differences to an earlier result, their intervals, and whether they exceed noise."""
    if not data.comparisons:
        return None
    # The last columns are those that a narrow terminal may hide.
    columns = heads("Figure | Change | Verdict < | Before | Now | Fastest tenth | 95 % interval")
    figures, tables, notes = [], [], []
    colors = {"faster": "good", "slower": "bad"}
    shared = [device_comparison for device_comparison in data.comparisons if not device_comparison.missing]
    for device_comparison in shared:
        rows = [_difference_row(device_comparison, item) for item in device_comparison.differences]
        tables.append(
            Table(
                device_comparison.title, columns, rows + [_unmatched_row(item) for item in device_comparison.unmatched]
            )
        )
        spans = [
            (
                Style(item.what, colors.get(device_comparison.verdict(item), "m1")),
                100 * item.change,
                (100 * item.interval[0], 100 * item.interval[1]),
                device_comparison.verdict(item).partition(" (")[0],
            )
            for item in device_comparison.differences
            if item.interval is not None and not device_comparison.same_program
        ]
        if spans:
            caption = "Change of the median; lines: 95 % block-bootstrap interval."
            figures.append(charts.dots(device_comparison.where, spans, caption, percent=True))
        notes += [f"{device_comparison.where}: {note}." for note in device_comparison.notes]
    alone = [
        (device_comparison.where, device_comparison.missing)
        for device_comparison in data.comparisons
        if device_comparison.missing
    ]
    if alone:
        tables.append(Table("In one result only, not compared", heads("Artifact and device | Where <"), alone))
    same = all(device_comparison.same_program for device_comparison in shared)
    if not same:
        notes.append(
            "95 % interval: bootstrap over blocks of consecutive samples. A timing changed when its median and its "
            "fastest tenth moved beyond their intervals; a gate looks at the smaller of both changes. A slower machine "
            "looks like a slower artifact: measure both in one session."
        )
    verdicts = [
        device_comparison.verdict(item)
        for device_comparison in data.comparisons
        for item in device_comparison.differences
        if item.unit != "bytes"
    ]
    changed, unclear = (sum(verdict.startswith(words) for verdict in verdicts)
                        for words in (("faster", "slower"), "not decided"))  # fmt: skip
    lead = f"{changed} timing{'s' if changed != 1 else ''} changed, {verdicts.count('noise')} within noise"
    lead += f", {unclear} not decided." if unclear else "."
    if same:
        lead = "The same program in both results: what differs is the machine's."
    if not shared:
        lead = "The two results share no device, runtime and thread count: nothing is compared."
    elif missing := len(not_compared(data.comparisons)):
        lead += f" Not compared: {missing}, which only one of the results holds."
    return ReportSection("comparison", "Comparison with an earlier result", lead, figures, tables, notes, open=True)


def _timing_table(caption: str, timed: Sequence[tuple[Shown, str, Timing]], note: str, unit: str) -> Table:
    """A table of times or counts; the decimal points of all its numbers are aligned."""
    scale, enough = (1.0 if unit == "ms" else MEGA), [len(timing.samples) >= ENOUGH_FOR_P99 for *_, timing in timed]
    figures = [(t.minimum, t.p50, t.p90, t.p99 if much else None, max(t.samples))
               for (*_, t), much in zip(timed, enough, strict=True)]  # fmt: skip
    texts = iter(aligned([value and value / scale for row in figures for value in row], most=3))
    shown_columns = [i for i in range(5) if (i != 3 or any(enough)) and (i != 4 or not all(enough))]
    rows = []
    for shown, what, timing in timed:
        cells = [next(texts) for _ in range(5)]
        rows.append(
            (shown.style.name, shown.device_label, what, *(cells[i] for i in shown_columns), str(len(timing.samples)))
        )
    numbers = " | ".join(f"{('Min', 'p50', 'p90', 'p99', 'Max')[i]} [{unit}]" for i in shown_columns)
    note += f" p99: from {ENOUGH_FOR_P99} samples on." if any(enough) else ""
    return Table(caption, heads(f"Artifact | Device < | What < | {numbers} | Runs"), rows, note)


def _timings(runs: Sequence[Shown], unit: str) -> tuple[list[Figure], list[Table]]:
    """A panel per device with a line per artifact, and tables: by length, and from text."""
    lengths: list[tuple[Shown, str, Timing]] = []
    texts: list[tuple[Shown, str, Timing]] = []
    figures = []
    scale = 1.0 if unit == "ms" else MEGA
    for device_label in dict.fromkeys(shown.device_label for shown in runs):
        series = {
            s.style: [t for t in s.run.latency if t.length]
            for s in runs
            if s.device_label == device_label and s.run.latency
        }
        labels = {float(n): str(n) for n in sorted({t.length or 0 for timings in series.values() for t in timings})}
        medians, upper = ([[(float(t.length or 0), getattr(t, which) / scale) for t in timings]
                           for timings in series.values()] for which in ("p50", "p90"))  # fmt: skip
        if labels:
            caption, rows = "Line: median; band: up to p90.", list(zip(series, medians, strict=True))
            figures.append(charts.lines(device_label, "tokens", f"median, {unit}", rows, upper=upper, log_x=True,
                                        x_labels=labels, zero=True, caption=caption))  # fmt: skip
    for shown in runs:
        singles = (("load", shown.run.load), ("first run", shown.run.first)) if unit != "ms" else ()
        lengths += [(shown, what, Timing(unit="instructions", samples=(count,))) for what, count in singles if count]
        lengths += [(shown, f"{t.length} tokens", t) for t in shown.run.latency]
        named = (("tokenization", shown.run.tokenize), ("text to vector", shown.run.pipeline))
        texts += [(shown, name, timing) for name, timing in named if timing is not None]
    lengths.sort(key=lambda row: row[2].length or 0)
    note = "One sentence at a time; warm-up runs are not among the samples."
    tables = [_timing_table("By length", lengths, note, unit)] if lengths else []
    note = "Golden texts of 5 to 40 tokens in turn. Text to vector is tokenization plus inference."
    return figures, tables + ([_timing_table("From text", texts, note, unit)] if texts else [])


def latency(data: ReportData) -> ReportSection | None:
    """Times by length, for runs measured in time; one panel per device."""
    timed = [shown for shown in data.runs if shown.run.clock == "wall" and shown.run.latency]
    if not timed:
        return None
    figures, tables = _timings(timed, "ms")
    with_latency = [shown for shown in timed if data.latency(shown.run)]
    best = min(with_latency, key=lambda shown: data.latency(shown.run) or 0.0, default=None)
    lead = (
        f"At {data.length} tokens {best.style.name} takes {data.time(best.run)} on {best.device_label}." if best else ""
    )
    return ReportSection("latency", "Latency by length", lead, figures, tables)


def counted(data: ReportData) -> ReportSection | None:
    """Instruction counts of emulated devices; they are not times and never share a figure or table with times."""
    if not (runs := [shown for shown in data.runs if shown.run.clock == "instructions"]):
        return None
    lead = (
        "These devices are emulated: executed instructions are counted. The count shows whether a change made the "
        "artifact cheaper; it does not measure time on a phone."
    )
    return ReportSection("instructions", "Emulated devices: instruction counts", lead, *_timings(runs, "million"))


def sustained(data: ReportData) -> ReportSection | None:
    """Medians of each second of sustained load: what heat costs."""
    figures, rows = [], []
    for device_label, shown in data.places.items():
        loads = [(measured, measured.run.sustained) for measured in shown if measured.run.sustained is not None]
        if loads:
            series = [
                (measured.style, [(i + 1.0, ms) for i, ms in enumerate(load.medians)]) for measured, load in loads
            ]
            what = "median of the second, ms"
            figures.append(charts.lines(device_label, "second", what, series, marks=False, zero=True, height=200))
        for measured, load in loads:
            ratio = NONE if load.ratio is None else f"{load.ratio:.2f}"
            ends = (number(load.medians[0]), number(load.medians[-1]), ratio)
            states = (_state(load.before), _state(load.after))
            rows.append((measured.style.name, device_label, str(load.length), str(len(load.medians)), *ends, *states))
    if not rows:
        return None
    columns = heads(
        "Artifact | Device < | Tokens | Seconds | First second [ms] | Last second [ms] | Last to first | Before < | "
        "After <"
    )
    worst = max((s.run.sustained.ratio or 0.0 for s in data.runs if s.run.sustained is not None), default=0.0)
    lead = f"The last second takes up to {worst:.2f} times as long as the first."
    tables = [Table("Sustained load", columns, rows, "Medians of each second without a pause.")]
    return ReportSection("sustained", "Sustained load", lead, figures, tables)


def memory(data: ReportData) -> ReportSection | None:
    """What each artifact adds to its process, loaded and warm, and all figures by phase."""
    measured = [(shown, shown.run.memory) for shown in data.runs if shown.run.memory is not None]
    if not measured:
        return None
    rows = []
    for shown, used in measured:
        resident = [getattr(used, name).anon_mib + getattr(used, name).file_mib for name in PHASES]
        for name, resident_mib in zip(PHASES, resident, strict=True):
            phase = getattr(used, name)
            values = (resident_mib - resident[0], phase.anon_mib, phase.file_mib, phase.pss_mib, phase.vmhwm_mib)
            rows.append(
                (shown.style.name, shown.device_label, name, *("unknown" if v is None else fixed(v, 1) for v in values))
            )
    columns = heads(
        "Artifact | Device < | Phase < | Rise [MiB] | Anonymous [MiB] | File-backed [MiB] | PSS [MiB] | Peak [MiB]"
    )
    note = (
        "Rise: resident memory over that at the start. Phase: start, before the artifact is opened; loaded, program "
        "and tokenizer ready; warm, after all timed runs."
    )
    python = "Runs from Python include the interpreter and its libraries in every phase: read the rise."
    notes = [python] if any(shown.run.harness == "python" for shown, _ in measured) else []
    least, best = min(((rise_mib(shown.run) or 0.0, shown) for shown, _ in measured), key=lambda pair: pair[0])
    lead = f"{best.style.name} adds {fixed(least, 1)} MiB to its process on {best.device_label}"
    lead += ", the least." if len(measured) > 1 else "."
    return ReportSection("memory", "Memory", lead, (), [Table("By phase", columns, rows, note)], notes)


def training(data: ReportData) -> ReportSection | None:
    """One loss curve per stage in training order, and the validation of the checkpoint that each stage kept."""
    if not data.stages:
        return None
    validations = {"heldout_accuracy": "held-out pairs found, %", "graded": "development Spearman × 100"}
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
    return ReportSection("training", "Training loss by stage", lead, figures, [Table("Stages", columns, rows, note)])


def _state(state: DeviceState | None) -> str:
    if state is None:
        return NONE
    parts = {
        "load {:.2f}": state.load_1min, "battery {:.0f} %" + " charging" * bool(state.charging): state.battery_percent,
        "battery {:.1f} °C": state.battery_c, "hottest zone {:.1f} °C": max(state.thermal_c.values(), default=None),
    }  # fmt: skip
    words = [form.format(value) for form, value in parts.items() if value is not None]
    words += [f"{min(state.cpu_mhz):.0f} to {max(state.cpu_mhz):.0f} MHz"] if state.cpu_mhz else []
    return ", ".join(words) or "unknown"


def _listed(name: str, record: Record) -> str:
    """A record as a line: "Intel Xeon: kind host, cpu ...". What is unknown is left out."""

    def shown(value: Any) -> str:
        if isinstance(value, dict):
            return " ".join(f"{key}: {shown(nested)}" for key, nested in value.items())
        if isinstance(value, (list, tuple)):
            return " ".join(map(str, value))
        if isinstance(value, bool):
            return "yes" if value else "no"
        return number(value) if isinstance(value, float) else str(value)

    entries = [
        (key, text)
        for key, value in record
        if key != "agent" and value is not None and (text := shown(value)) and text != name
    ]
    units = {key: unit for key, _ in entries for unit in ("MiB", "GiB", "ms") if key.endswith(f"_{unit.lower()}")}
    named = [(key.removesuffix(f"_{units[key].lower()}"), f"{text} {units[key]}") if key in units else (key, text)
             for key, text in entries]  # fmt: skip
    return f"{name}: " + ", ".join(f"{key.replace('_', ' ')} {text}" for key, text in named)


def method(data: ReportData) -> ReportSection | None:
    """How it was measured: one row per run with its parity, and tables of devices and browsers as reported."""
    if not data.runs:
        return None
    loads, firsts = (aligned([getattr(shown.run, name) if shown.run.clock == "wall" else None for shown in data.runs])
                     for name in ("load", "first"))  # fmt: skip
    rows = []
    for (run, style, device_label), load, first in zip(data.runs, loads, firsts, strict=True):
        parity = [NONE] * 5
        if (golden := run.parity) is not None:
            ids = "equal" if golden.ids_equal else f"{len(golden.ids_differ)} of {golden.texts} differ"
            cosines = (golden.mean_cosine, golden.min_cosine, golden.float_mean_cosine, golden.float_min_cosine)
            parity = [*(fixed(cosine, 4) for cosine in cosines), ids]
        versions = ", ".join(f"{name} {version}" for name, version in run.versions.items()) or NONE
        how = f"{run.origin}, {run.harness}, {'wall clock' if run.clock == 'wall' else 'instructions'}"
        provenance = (run.created[:16].replace("T", " "), how, versions)
        states = (_state(run.state_before), _state(run.state_after))
        rows.append(
            (
                style.name,
                device_label,
                load,
                first,
                str(run.threads),
                *parity,
                *provenance,
                *states,
                run.artifact.sha256[:12],
            )
        )
    columns = heads(
        "Artifact | Device < | Load [ms] | First run [ms] | Threads | Cosine to export [mean] | "
        "Cosine to export [lowest] | Cosine to float model [mean] | Cosine to float model [lowest] | Token ids < | "
        "Measured < | How < | Versions < | State before < | State after < | sha256 <"
    )
    note = (
        "Load: from file to runnable program, files in the page cache. Cosine to export: of golden texts, whether the "
        "device computes what the exporting machine did. Cosine to float model: also what quantization costs."
    )
    tables = [Table("Every run", columns, rows, note)]
    machines = {shown.run.device.name: shown.run.device for shown in data.runs}
    browsers = {f"{s.style.name} on {s.device_label}": s.run.browser for s in data.runs if s.run.browser is not None}
    about = [_listed(name, record) for records in (machines, browsers) for name, record in records.items()]
    notes = dict.fromkeys(note[:1].upper() + note[1:] + "." for shown in data.runs for note in shown.run.notes)
    count, places = len(rows), list(dict.fromkeys(shown.device_label for shown in data.runs))
    lead = f"{count} run{'s' if count != 1 else ''} of {joined(data.bundles)} on {joined(places)}."
    return ReportSection("method", "How it was measured", lead, (), tables, [*about, *notes])
