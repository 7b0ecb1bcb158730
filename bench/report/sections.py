"""The sections about device runs, training and sweeps; each function returns one, or None without data for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msdc.bench.report import charts
from msdc.bench.report.drawing import Figure, Style
from msdc.bench.report.model import (
    ReportData,
    ReportSection,
    Shown,
    StageLog,
    Task,
    fields_of,
    interval_of,
    spearmans,
)
from msdc.bench.report.recommendation import WEB, AppSizes, app_of, rise_mib, sizes_of
from msdc.bench.result import (
    Accuracy,
    Conditions,
    DeviceParity,
    DeviceRun,
    DeviceState,
    MemoryPhase,
    Record,
    Sustained,
    Timing,
    device_name,
)
from msdc.tables import (
    Field,
    Table,
    aligned,
    draw,
    fixed,
    joined,
    megabytes,
    millions,
    number,
    signed,
    text_field,
)

MEGA = 1e6
CLOCKS = {"wall": "wall clock", "instructions": "instructions"}
PHASES = ("start", "loaded", "warm")
# At most this many data sets get a chart of scores; the table lists all.
MAX_CHARTS = 6
# Of fewer samples the 99th percentile is made of one or two: the largest is shown.
ENOUGH_FOR_P99 = 500


class _Sized(NamedTuple):
    """Bytes of an artifact in a kind of app, or of a float model; `delegated_share` of its operators."""

    name: str
    kind: str
    program: int | None
    parameters: int | None
    sizes: AppSizes | None = None
    bundle: int | None = None
    delegated_share: float | None = None


def _sizes(data: ReportData) -> list[_Sized]:
    """One row per artifact and kind of app; float models below."""
    rows = []
    for shown in {(s.style.name, app_of(s.run)): s for s in data.runs}.values():
        artifact, kind = shown.run.artifact, "web page" if app_of(shown.run) == WEB else "Android, arm64"
        rows.append(_Sized(shown.style.name, kind, artifact.bytes, artifact.parameters, sizes_of(shown.run),
                           artifact.bundle_bytes, artifact.delegated_share))  # fmt: skip
    return rows + [_Sized(style.name, "float32", model.bytes, model.parameters) for model, style in data.models]


def artifacts(data: ReportData) -> ReportSection | None:
    """Bytes of artifacts and float models alone, those of artifacts also with the runtime, and parameters."""
    if not (rows := _sizes(data)):
        return None
    fields: list[Field[_Sized]] = [
        text_field("Artifact", lambda row: row.name),
        text_field("In", lambda row: row.kind),
        Field("Program", lambda row: row.program, megabytes, "MB"),
        Field("With tokenizer", lambda row: row.bundle, megabytes, "MB"),
        Field("Runtime and module", lambda row: row.sizes and row.sizes.runtime, megabytes, "MB"),
        Field("Installed", lambda row: row.sizes and row.sizes.bundle + row.sizes.runtime, megabytes, "MB"),
        Field("Download", lambda row: row.sizes and row.sizes.download, megabytes, "MB"),
        Field("Parameters", lambda row: row.parameters, millions, "million"),
        Field("Delegated", lambda row: row.delegated_share, lambda share: fixed(100 * share, 1), "% of operators"),
    ]
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
    return ReportSection("artifacts", "Sizes", lead, (), [draw("Sizes", fields, rows, note)])


class _Scored(NamedTuple):
    """A model or artifact and its scores."""

    style: Style
    entries: Sequence[Accuracy]


def _score_field(task: Task) -> Field[_Scored]:
    return Field(task[1], lambda row: spearmans(row.entries).get(task), ",.1f")


def accuracy(data: ReportData) -> ReportSection | None:
    """A table of all data sets and charts of the first six; outliers far below do not stretch them."""
    scored = [_Scored(style, model.accuracy) for model, style in data.models]
    scored += [_Scored(shown.style, shown.run.accuracy) for shown in data.artifacts]
    if not any(model.role == "student" for model, _ in data.models):
        runs = [shown.run for shown in data.runs if shown.run.float_accuracy]
        bundled = {run.artifact.bundle: run.float_accuracy for run in runs}
        styles = {name: Style(f"float model of {name}", "m3", "diamond") for name in bundled}
        scored += [_Scored(styles[name], scores) for name, scores in bundled.items()]
    scored = [row for row in scored if spearmans(row.entries)]
    if not scored:
        return None
    figures = []
    for task in data.tasks[:MAX_CHARTS]:
        set_entries = [(style, entry) for style, entries in scored for entry in entries
                       if (entry.task, entry.name) == task and entry.spearman is not None]  # fmt: skip
        pairs = next((entry.pairs for _, entry in set_entries if entry.pairs), None)
        rows = [
            (style, entry.spearman or 0.0, interval_of(entry), fixed(entry.spearman, 1)) for style, entry in set_entries
        ]
        caption = "Spearman × 100; lines: 95 % bootstrap interval over pairs."
        figures.append(charts.dots(task[1] + (f", {pairs} pairs" if pairs else ""), rows, caption))
    fields: list[Field[_Scored]] = [text_field("Model or artifact", lambda row: row.style.name)]
    fields += [_score_field(task) for task in data.tasks]
    fields += [Field("Mean", lambda row: data.mean(row.entries), ",.1f")] if len(data.tasks) > 1 else []
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
    return ReportSection("accuracy", "Accuracy", lead, figures, [draw("Spearman × 100", fields, scored, note)])


class _Timed(NamedTuple):
    """What was measured in a run, in time or in instructions."""

    shown: Shown
    what: str
    timing: Timing

    @property
    def p99(self) -> float | None:
        """The 99th percentile of enough samples."""
        return self.timing.p99 if len(self.timing.samples) >= ENOUGH_FOR_P99 else None


def _timing_table(caption: str, rows: Sequence[_Timed], note: str, unit: str) -> Table:
    """A table of times or counts; the decimal points of all its numbers are aligned."""
    scale = 1.0 if unit == "ms" else MEGA
    figures: dict[str, Callable[[_Timed], float | None]] = {
        "Min": lambda row: row.timing.minimum / scale,
        "p50": lambda row: row.timing.p50 / scale,
        "p90": lambda row: row.timing.p90 / scale,
        "p99": lambda row: row.p99 and row.p99 / scale,
    }
    if any(row.p99 is None for row in rows):
        figures["Max"] = lambda row: max(row.timing.samples) / scale
    form = aligned((value(row) for value in figures.values() for row in rows), most=3)
    fields: list[Field[_Timed]] = [
        *fields_of(lambda row: row.shown),
        text_field("What", lambda row: row.what),
        *(Field(title, value, form, unit) for title, value in figures.items()),
        Field("Runs", lambda row: len(row.timing.samples)),
    ]
    return draw(caption, fields, rows, f"{note} p99: from {ENOUGH_FOR_P99} samples on.")


def _timings(runs: Sequence[Shown], unit: str) -> tuple[list[Figure], list[Table]]:
    """A panel per device with a line per artifact, and tables: by length, and from text."""
    lengths: list[_Timed] = []
    texts: list[_Timed] = []
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
        counts = [(what, Timing(unit="instructions", samples=(count,))) for what, count in singles if count]
        lengths += [_Timed(shown, what, timing) for what, timing in counts]
        lengths += [_Timed(shown, f"{t.length} tokens", t) for t in shown.run.latency]
        named = (("tokenization", shown.run.tokenize), ("text to vector", shown.run.pipeline))
        texts += [_Timed(shown, name, timing) for name, timing in named if timing is not None]
    lengths.sort(key=lambda row: row.timing.length or 0)
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


class _Sustained(NamedTuple):
    """The sustained load of a run."""

    shown: Shown
    load: Sustained


def sustained(data: ReportData) -> ReportSection | None:
    """Medians of each second of sustained load: what heat costs."""
    figures = []
    rows: list[_Sustained] = []
    for device_label, runs in data.places.items():
        loads = [_Sustained(shown, shown.run.sustained) for shown in runs if shown.run.sustained is not None]
        if loads:
            series = [(row.shown.style, [(i + 1.0, ms) for i, ms in enumerate(row.load.medians)]) for row in loads]
            what = "median of the second, ms"
            figures.append(charts.lines(device_label, "second", what, series, marks=False, zero=True, height=200))
        rows += loads
    if not rows:
        return None
    fields: list[Field[_Sustained]] = [
        *fields_of(lambda row: row.shown),
        Field("Tokens", lambda row: row.load.length),
        Field("Seconds", lambda row: len(row.load.medians)),
        Field("First second", lambda row: row.load.medians[0], number, "ms"),
        Field("Last second", lambda row: row.load.medians[-1], number, "ms"),
        Field("Last to first", lambda row: row.load.ratio, ".2f"),
        text_field("Before", lambda row: _state(row.load.before)),
        text_field("After", lambda row: _state(row.load.after)),
    ]
    worst = max((s.run.sustained.ratio or 0.0 for s in data.runs if s.run.sustained is not None), default=0.0)
    lead = f"The last second takes up to {worst:.2f} times as long as the first."
    tables = [draw("Sustained load", fields, rows, "Medians of each second without a pause.")]
    return ReportSection("sustained", "Sustained load", lead, figures, tables)


class _Phase(NamedTuple):
    """The memory of a run in a phase, and at its start."""

    shown: Shown
    name: str
    used: MemoryPhase
    start: MemoryPhase

    @property
    def rise(self) -> float:
        """MiB of resident and swapped memory over that at the start."""
        return self.used.total_mib - self.start.total_mib


def memory(data: ReportData) -> ReportSection | None:
    """What each artifact adds to its process, loaded and warm, and all figures by phase."""
    measured = [(shown, shown.run.memory) for shown in data.runs if shown.run.memory is not None]
    if not measured:
        return None
    rows = [_Phase(shown, name, getattr(used, name), used.start) for shown, used in measured for name in PHASES]
    fields: list[Field[_Phase]] = [
        *fields_of(lambda row: row.shown),
        text_field("Phase", lambda row: row.name),
        Field("Rise", lambda row: row.rise, ",.1f", "MiB"),
        Field("Anonymous", lambda row: row.used.anon_mib, ",.1f", "MiB"),
        Field("File-backed", lambda row: row.used.file_mib, ",.1f", "MiB"),
        Field("PSS", lambda row: row.used.pss_mib, ",.1f", "MiB"),
        Field("Peak", lambda row: row.used.vmhwm_mib, ",.1f", "MiB"),
    ]
    if any(row.used.swap_mib for row in rows):
        fields.append(Field("Swapped", lambda row: row.used.swap_mib, ",.1f", "MiB"))
    note = (
        "Rise: resident and swapped memory over that at the start. Phase: start, before the artifact is opened; "
        "loaded, program and tokenizer ready; warm, after all timed runs."
    )
    python = "Runs from Python include the interpreter and its libraries in every phase: read the rise."
    notes = [python] if any(shown.run.harness == "python" for shown, _ in measured) else []
    least, best = min(((rise_mib(shown.run) or 0.0, shown) for shown, _ in measured), key=lambda pair: pair[0])
    lead = f"{best.style.name} adds {fixed(least, 1)} MiB to its process on {best.device_label}"
    lead += ", the least." if len(measured) > 1 else "."
    return ReportSection("memory", "Memory", lead, (), [draw("By phase", fields, rows, note)], notes)


def _held_out(stage: StageLog) -> dict[str, float]:
    return chosen[1] if (chosen := stage.chosen()) else {}


def _shares(stage: StageLog) -> str | None:
    return ", ".join(f"{name} {100 * share:.3g} %" for name, share in stage.shares.items()) or None


def _graded(stage: StageLog) -> float | None:
    """Mean Spearman of the kept checkpoint on the development files."""
    values = [value for key, value in _held_out(stage).items() if key.startswith("spearman_")]
    return sum(values) / len(values) if values else None


def training(data: ReportData) -> ReportSection | None:
    """One loss curve per stage in training order, and the validation of the checkpoint that each stage kept."""
    if not data.stages:
        return None
    validations = {"heldout_accuracy": "held-out pairs found, %", "graded": "development Spearman × 100"}
    figures: list[Figure] = []

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
    fields: list[Field[StageLog]] = [
        text_field("Stage", lambda stage: stage.name),
        Field("Steps", lambda stage: stage.steps),
        Field("First loss", lambda stage: next(iter(stage.losses.values()), None), number),
        Field("Last loss", lambda stage: next(reversed(stage.losses.values()), None), number),
        Field("Chosen step", lambda stage: chosen[0] if (chosen := stage.chosen()) else None),
        Field("Held-out MSE", lambda stage: _held_out(stage).get("heldout_mse"), number),
        Field("Held-out accuracy", lambda stage: _held_out(stage).get("heldout_accuracy"), ",.1f", "%"),
        Field("Development Spearman", _graded, ",.1f", "× 100"),
        text_field("Shares of the loss", _shares),
        Field("Time", lambda stage: stage.seconds, ",.0f", "s"),
    ]
    note = (
        "Held-out figures are those of the checkpoint that was kept, on parallel sentences left out of training, "
        "not on a test set. Losses of different stages are different quantities."
    )
    count, seconds = len(data.stages), sum(stage.seconds for stage in data.stages)
    lead = f"{count} stage{'s' if count != 1 else ''}, {seconds / 60:.1f} minutes of training."
    if data.running:
        lead += " The run is not finished: these are the figures up to now."
    table = draw("Stages", fields, data.stages, note)
    return ReportSection("training", "Training loss by stage", lead, figures, [table])


def _state(state: DeviceState | None) -> str | None:
    if state is None:
        return None
    parts = {
        "load {:.2f}": state.load_1min, "battery {:.0f} %" + " charging" * bool(state.charging): state.battery_percent,
        "battery {:.1f} °C": state.battery_c, "hottest zone {:.1f} °C": max(state.thermal_c.values(), default=None),
    }  # fmt: skip
    words = [form.format(value) for form, value in parts.items() if value is not None]
    words += [f"{min(state.cpu_mhz):.0f} to {max(state.cpu_mhz):.0f} MHz"] if state.cpu_mhz else []
    words += [f"not readable: {', '.join(state.unreadable)}"] if state.unreadable else []
    return ", ".join(words) or "unknown"


def _conditions(conditions: Conditions | None) -> str | None:
    """What a run was measured under, and the device's clusters, as "2 x 2,850 MHz"; None where nothing is known."""
    if conditions is None:
        return None
    words = [f"pinned to {conditions.pinned_to}"] if conditions.pinned else []
    words += [f"pauses of {conditions.cooldown_s:g} s"] if conditions.cooldown_s else []
    words += [f"cooled below {conditions.cool_below_c:g} °C"] if conditions.cool_below_c is not None else []
    words += [f"{len(cluster.cpus)} x {cluster.top_mhz:,.0f} MHz" for cluster in conditions.clusters]
    if (fixed := conditions.fixed_performance) is not None:
        words.append(f"fixed performance mode {'on' if fixed.enabled else 'refused'}")
    return ", ".join(words) or None


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


def _token_ids(parity: DeviceParity | None) -> str | None:
    if parity is None:
        return None
    return "equal" if parity.ids_equal else f"{len(parity.ids_differ)} of {parity.texts} differ"


def method(data: ReportData) -> ReportSection | None:
    """How it was measured: one row per run with its parity, and tables of devices and browsers as reported."""
    if not data.runs:
        return None

    def time_field(title: str, time: Callable[[DeviceRun], float | None]) -> Field[Shown]:
        form = aligned(time(shown.run) for shown in data.runs if shown.run.clock == "wall")
        return Field(title, lambda row: time(row.run) if row.run.clock == "wall" else None, form, "ms")

    def parity_field(title: str, unit: str, cosine: Callable[[DeviceParity], float | None]) -> Field[Shown]:
        return Field(title, lambda row: row.run.parity and cosine(row.run.parity), ",.4f", unit)

    fields: list[Field[Shown]] = [
        *fields_of(lambda row: row),
        time_field("Load", lambda run: run.load),
        time_field("First run", lambda run: run.first),
        Field("Threads", lambda row: row.run.threads, varies=True),
        parity_field("Cosine to export", "mean", lambda parity: parity.mean_cosine),
        parity_field("Cosine to export", "lowest", lambda parity: parity.min_cosine),
        parity_field("Cosine to float model", "mean", lambda parity: parity.float_mean_cosine),
        parity_field("Cosine to float model", "lowest", lambda parity: parity.float_min_cosine),
        text_field("Token ids", lambda row: _token_ids(row.run.parity)),
        text_field("Measured", lambda row: row.run.created[:16].replace("T", " ")),
        text_field("How", lambda row: f"{row.run.origin}, {row.run.harness}, {CLOCKS[row.run.clock]}"),
        text_field("Versions", lambda row: ", ".join(map(" ".join, row.run.versions.items())) or None),
        text_field("Conditions", lambda row: _conditions(row.run.conditions)),
        text_field("State before", lambda row: _state(row.run.state_before)),
        text_field("During", lambda row: _state(row.run.state_during)),
        text_field("State after", lambda row: _state(row.run.state_after)),
        text_field("sha256", lambda row: row.run.artifact.sha256[:12]),
    ]
    note = (
        "Load: from file to runnable program, files in the page cache. Cosine to export: of golden texts, whether the "
        "device computes what the exporting machine did. Cosine to float model: also what quantization costs."
    )
    tables = [draw("Every run", fields, data.runs, note)]
    runs = [shown.run for shown in data.runs]
    machines = {device_name(run, runs): run.device for run in runs}
    browsers = {f"{s.style.name} on {s.device_label}": s.run.browser for s in data.runs if s.run.browser is not None}
    about = [_listed(name, record) for records in (machines, browsers) for name, record in records.items()]
    notes = dict.fromkeys(note[:1].upper() + note[1:] + "." for shown in data.runs for note in shown.run.notes)
    count, places = len(data.runs), list(dict.fromkeys(shown.device_label for shown in data.runs))
    lead = f"{count} run{'s' if count != 1 else ''} of {joined(data.bundles)} on {joined(places)}."
    return ReportSection("method", "How it was measured", lead, (), tables, [*about, *notes])
