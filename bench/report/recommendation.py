"""The first screen: which artifact to take, what it adds to a download, how fast, how large in memory and how accurate
it is, on what that was measured; one table of all artifacts; what was noisy or became slower.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from msdc.bench.compare import not_compared, slower_timings
from msdc.bench.measure import parity_failures
from msdc.bench.report import charts
from msdc.bench.report.drawing import Figure
from msdc.bench.report.model import (
    ReportData,
    ReportSection,
    Sentence,
    Shown,
    Strong,
    bounds_text,
    fields_of,
    interval_of,
    middle,
    sets_text,
    truncated_text,
)
from msdc.bench.report.targets import Judged
from msdc.bench.result import DeviceRun
from msdc.bench.strain import may_be_phone, strain
from msdc.export.mobile.sizes import measured
from msdc.export.mobile.web.npm import FILES
from msdc.tables import Field, draw, fixed, joined, megabytes, number, percent, text_field

WEB, ANDROID = "a web page", "an Android app"
# Where no interval is known, scores this close are taken as equal.
CLOSE = 1.0
# A download this much larger than the least is no reason to take the slower artifact.
ALIKE = 1.02
TAKEN, OTHER_OUTPUT = "recommended", "rejected: other output"


class AppSizes(NamedTuple):
    """Bytes of an artifact in an app: program with tokenizer, and runtime with module; as they are and compressed."""

    bundle: int
    bundle_compressed: int | None
    runtime: int
    runtime_compressed: int

    @property
    def download(self) -> int | None:
        """Bytes that the download of an app grows by; None where a result does not state it."""
        return None if self.bundle_compressed is None else self.bundle_compressed + self.runtime_compressed


def app_of(run: DeviceRun) -> str:
    """The kind of app that runs the artifact as this run did."""
    return ANDROID if run.browser is None else WEB


@functools.cache
def _libraries(app: str, runtime: str) -> tuple[int, int]:
    """Bytes of a runtime and our module, plain and compressed."""
    if app == ANDROID:
        parts = [measured()[name] for name in (runtime, "core")]
        return sum(part["bytes"] for part in parts), sum(part["compressed"] for part in parts)
    module, files = measured()["web"], FILES.values()
    small = sum(file.compressed for file in files) + module["compressed"]
    return sum(file.bytes for file in files) + module["bytes"], small


def sizes_of(run: DeviceRun) -> AppSizes:
    """What an app grows by with the artifact of `run`; of old results without the tokenizer."""
    artifact = run.artifact
    bundle_bytes = artifact.bundle_bytes or artifact.bytes
    return AppSizes(bundle_bytes, artifact.compressed_bytes, *_libraries(app_of(run), artifact.runtime))


def rise_mib(run: DeviceRun) -> float | None:
    """Resident and swapped memory after all runs over that before the artifact was opened, so that neither Python nor
    the runner counts; of a browser the runtime's heap.
    """
    if run.browser is not None:
        return run.browser.heap_warm_mib
    if run.memory is None:
        return None
    return max(0.0, run.memory.warm.total_mib - run.memory.start.total_mib)


def choose(
    data: ReportData, among: Sequence[Shown], judged: Sequence[Sequence[Judged]]
) -> tuple[Shown | None, dict[str, str]]:
    """The artifact to take, and by name why each other one is not: it must compute what was exported, meet the targets
    if any does, not be less accurate than the best beyond its interval; of those the smallest download, of equally
    small ones the fastest. `among` has one run per artifact; None without a run.
    """
    reasons: dict[str, str] = {}

    def narrowed(pool: Sequence[Shown], keeps: Callable[[Shown], bool], reason: str) -> Sequence[Shown]:
        remaining = [shown for shown in pool if keeps(shown)]
        reasons.update({shown.style.name: reason for shown in pool if remaining and not keeps(shown)})
        return remaining or pool

    def size(shown: Shown) -> int:
        return sizes_of(shown.run).download or sum(sizes_of(shown.run)[::2])

    def mean(shown: Shown) -> float:
        return data.mean(shown.run.accuracy) or 0.0

    fails = {id(judgement.shown) for row in judged for judgement in row if judgement.verdict == "fail"}
    pool = narrowed(among, lambda shown: not parity_failures([shown.run]), OTHER_OUTPUT)
    pool = narrowed(pool, lambda shown: id(shown) not in fails, "rejected: misses a target")
    pool = narrowed(pool, lambda shown: data.mean(shown.run.accuracy) is not None, "rejected: no score")
    if not pool:
        return None, {}
    best = max(pool, key=mean)
    low, _ = data.interval(best.run.accuracy) or (mean(best) - CLOSE, None)
    pool = narrowed(pool, lambda shown: mean(shown) >= low, "rejected: less accurate")
    least = min(map(size, pool))
    pool = narrowed(pool, lambda shown: size(shown) <= ALIKE * least, "rejected: larger")
    chosen = min(pool, key=lambda shown: data.latency(shown.run) or float("inf"))
    narrowed(pool, lambda shown: shown is chosen, "rejected: no faster")
    valid = [shown for shown in among if reasons.get(shown.style.name) != OTHER_OUTPUT]
    return chosen, {name: reason + _advantages(data, name, valid, size, mean) for name, reason in reasons.items()}


def _advantages(
    data: ReportData,
    name: str,
    among: Sequence[Shown],
    size: Callable[[Shown], float],
    mean: Callable[[Shown], float],
) -> str:
    """`; fastest`: in what a rejected artifact is ahead of all others; empty if in nothing."""
    least: dict[str, Callable[[Shown], float]] = {
        "smallest download": size,
        "fastest": lambda shown: data.latency(shown.run) or math.inf,
        "least memory": lambda shown: math.inf if (rise := rise_mib(shown.run)) is None else rise,
        "highest score": lambda shown: -mean(shown),
    }
    figures = {advantage: {shown.style.name: figure(shown) for shown in among} for advantage, figure in least.items()}
    advantages = [
        advantage
        for advantage, by_name in figures.items()
        if by_name.get(name, math.inf)
        < min((other for key, other in by_name.items() if key != name), default=-math.inf)
    ]
    return f"; {joined(advantages)}" if advantages else ""


def _rank(shown: Shown) -> tuple[bool, bool, bool]:
    """Runs on phones, and those most like one, come first."""
    run = shown.run
    return run.clock != "wall", not may_be_phone(run), run.harness == "python"


def _score_share(data: ReportData, run: DeviceRun) -> tuple[str, str]:
    """Which part of the float model's score an artifact keeps, and the sets with both scores."""
    if (comparison := data.score_against_float(run)) is None:
        return "", ""
    run_mean, base, entries = comparison
    share = f"{100 * min(run_mean / base, 1):.3g} %" if base > 0 else fixed(run_mean, 1)
    spans = [span for entry in entries if (span := interval_of(entry))]
    bounds = f" {bounds_text(*spans[0])}" if len(spans) == len(entries) == 1 else ""
    return share, f"{sets_text(entries)}: {fixed(run_mean, 1)}{bounds} of {fixed(base, 1)}"


def _take(data: ReportData, app: str, runs: Sequence[Shown], judged: Sequence[Sequence[Judged]]) -> list[Sentence]:
    """The sentences about one kind of app."""
    first: dict[str, Shown] = {}
    for shown in sorted(runs, key=_rank):
        first.setdefault(shown.style.name, shown)
    chosen, _ = choose(data, list(first.values()), judged)
    if chosen is None:
        return []
    run, artifact, sizes = chosen.run, chosen.run.artifact, sizes_of(chosen.run)
    contents = (
        "program and tokenizer" if artifact.bundle_bytes is not None else "program (its tokenizer was not counted)"
    )
    words = ["Take " if app == ANDROID else "In a web page take "]
    words += [Strong(f"{artifact.bundle} {artifact.runtime} {artifact.precision}"), ": it adds "]
    if sizes.download is not None:
        program_mb, runtime_mb = megabytes(sizes.bundle_compressed), megabytes(sizes.runtime_compressed)
        words += [Strong(f"{megabytes(sizes.download)} MB"), f" to the download of {app} (compressed: "]
    else:
        program_mb, runtime_mb = megabytes(sizes.bundle), megabytes(sizes.runtime)
        words += [Strong(f"{megabytes(sizes.bundle + sizes.runtime)} MB"), f" to {app} as installed ("]
    words.append(f"{program_mb} MB of {contents}, {runtime_mb} MB of runtime)")
    if (timing := data.timing(run)) is not None:
        time = data.time(run)
        where = f" on {chosen.device_label}" if len({shown.device_label for shown in runs}) > 1 else ""
        words += [", answers in " if run.clock == "wall" else ", executes ", time if timing.noisy else Strong(time)]
        words.append(f" at {data.length} tokens{where}")
    if (rise := rise_mib(run)) is not None:
        words += [", takes ", Strong(f"{fixed(rise, 1)} MiB"), " of memory"]
    share, scores = _score_share(data, run)
    if share:
        words += [" and keeps ", Strong(share), f" of the float model's Spearman on {scores}."]
    else:
        parity = run.parity.float_mean_cosine if run.parity is not None else None
        near = f" (its vectors have a mean cosine of {parity:.4f} to the float model's)" if parity is not None else ""
        words.append(f"; whether it keeps the float model's accuracy is not known{near}.")
    sentences: list[Sentence] = [words]
    if failures := parity_failures([run]):
        sentences.append((Strong("It does not compute what was exported"), f": {failures[0]}."))
    if judged:
        fails = [
            judgement
            for row in judged
            for judgement in row
            if judgement.shown is chosen and judgement.verdict != "pass"
        ]
        missed = joined(
            [f"{judgement.target.what} ({judgement.text}; {judgement.target.bound})" for judgement in fails]
        )
        targets = f"{len(fails)} target{'s' if len(fails) > 1 else ''}"
        met = f"It meets all {len(judged[0])} targets." if len(judged[0]) > 1 else "It meets the target."
        sentences.append((met,) if not fails else (f"Misses {targets}: ", Strong(missed), "."))
    return sentences


def recommend(data: ReportData, judged: Sequence[Sequence[Judged]]) -> list[Sentence]:
    """What to take, in sentences; nothing without a run."""
    if not data.runs:
        return []
    sentences: list[Sentence] = []
    for app in (ANDROID, WEB):
        sentences += _take(data, app, [shown for shown in data.runs if app_of(shown.run) == app], judged)
    counted = list(dict.fromkeys(shown.device_label for shown in data.runs if shown.run.clock != "wall"))
    if data.places:
        sentences.append(
            (f"Measured on {joined(list(data.places))}", Strong(", not on a phone"), ": its times and memory differ.")
        )
        if any(may_be_phone(shown.run) for runs in data.places.values() for shown in runs):
            sentences[-1] = (sentences[-1][0] + ".",)
    if counted:
        sentences.append((f"{joined(counted)}: instruction counts, not phone timings.",))
    return sentences


def _drawn(data: ReportData) -> list[Figure]:
    """Size against accuracy of artifacts and float models; nothing where there is one point."""

    def megas(run: DeviceRun) -> float:
        return (run.artifact.bundle_bytes or run.artifact.bytes) / 1e6

    points = [(style, (model.bytes or 0) / 1e6, model.accuracy) for model, style in data.models]
    points += [(shown.style, megas(shown.run), shown.run.accuracy) for shown in data.artifacts]
    rows = [
        (style, size, mean, span, f"{size:.2f} MB, {mean:.1f}" + (f" {bounds_text(*span)}" if span else ""))
        for style, size, scores in points
        if size and (mean := data.mean(scores)) is not None
        for span in [data.interval(scores)]
    ]
    x_title, y_title = "MB on disk", "Spearman × 100" + (", mean of the sets" if len(data.tasks) > 1 else "")
    figure = charts.trade_off("Size and accuracy", x_title, y_title, rows) if len(rows) > 1 else None
    note = "On disk, uncompressed: an artifact's program and tokenizer, a float model's weights."
    return [] if figure is None else [replace(figure, caption=f"{note} {figure.caption}")]


class _Choice(NamedTuple):
    """A run on the first screen: the decision on its artifact, what that adds to an app, and its mean score with its
    interval.
    """

    shown: Shown
    decision: str
    app: str
    size: int | None
    score: tuple[float, tuple[float, float] | None] | None


def _choices(data: ReportData, judged: Sequence[Sequence[Judged]], compressed: bool) -> list[_Choice]:
    """Per device the artifacts that are taken, then the others, the smallest download first."""
    ranked, decisions = sorted(data.runs, key=_rank), dict[tuple[str, str], str]()
    for app in (ANDROID, WEB):
        first = {s.style.name: s for s in reversed(ranked) if app_of(s.run) == app}
        chosen, reasons = choose(data, list(first.values()), judged)
        decisions |= {(app, name): reason for name, reason in reasons.items()}
        if chosen is not None:
            decisions[app, chosen.style.name] = TAKEN
    choices = []
    for shown in ranked:
        run, app, sizes = shown.run, app_of(shown.run), sizes_of(shown.run)
        decision = OTHER_OUTPUT if parity_failures([run]) else decisions[app, shown.style.name]
        size = sizes.download if compressed else sizes.bundle + sizes.runtime
        score = None if (mean := data.mean(run.accuracy)) is None else (mean, data.interval(run.accuracy))
        choices.append(_Choice(shown, decision, app, size, score))
    devices = list(dict.fromkeys(shown.device_label for shown in ranked))
    downloads = {shown.style.name: sizes_of(shown.run).download or 0 for shown in reversed(ranked)}

    def rank(row: _Choice) -> tuple[int, bool, int]:
        name, device_label = row.shown.style.name, row.shown.device_label
        return devices.index(device_label), row.decision != TAKEN, downloads[name]

    return sorted(choices, key=rank)


def _time_text(data: ReportData, run: DeviceRun, unit: str) -> str | None:
    """The median with the middle 80 % of its samples, of noisy ones these alone; None where it was not measured."""
    if (timing := data.timing(run)) is None:
        return None
    if run.clock != "wall":
        return data.time(run)
    around = "–".join(middle(timing))
    return f"{around}{unit} (noisy)" if timing.noisy else f"{number(timing.p50)}{unit} ({around})"


def artifacts(data: ReportData, judged: Sequence[Sequence[Judged]]) -> ReportSection | None:
    """The first screen: one row per artifact and place with the decision and its figures; size against accuracy."""
    if not data.runs:
        return None
    runs = [shown.run for shown in data.runs]
    compressed = any(sizes_of(run).download is not None for run in runs)
    wall = all(run.clock == "wall" for run in runs)
    several = len({app_of(run) for run in runs}) > 1
    time, added = f"{data.length} tokens" if data.length else "Median", "Download" if compressed else "Installed"

    def decision(row: _Choice) -> str:
        return row.decision + (f": {row.app.partition(' ')[2]}" if several and row.decision == TAKEN else "")

    def score(value: tuple[float, tuple[float, float] | None]) -> str:
        mean, span = value
        return fixed(mean, 1) + (f" {bounds_text(*span)}" if span else "")

    named: list[Field[_Choice]] = fields_of(lambda row: row.shown)
    fields: list[Field[_Choice]] = [
        named[0],
        text_field("Decision", decision),
        *named[1:],
        Field(added, lambda row: row.size, megabytes, "MB"),
        Field(time, lambda row: _time_text(data, row.shown.run, "" if wall else " ms"), unit="ms" * wall),
        Field("Memory", lambda row: rise_mib(row.shown.run), ",.1f", "MiB"),
        Field("Accuracy", lambda row: row.score, score),
    ]
    entries = next((shown.run.accuracy for shown in data.artifacts if data.mean(shown.run.accuracy) is not None), ())
    scored = [entry for entry in entries if entry.spearman is not None]
    note = f"{added}: program, tokenizer and runtime, {'' if compressed else 'un'}compressed. "
    note += "Memory: what it adds to the process."
    if any(run.clock == "wall" and run.latency for run in runs):
        note += f" {time}: median (10th–90th percentile); noisy ones without the median."
    if scored:
        note += f" Accuracy: Spearman × 100 on {sets_text(scored)}"
        note += " [95 % interval]." if data.interval(entries) else "."
    rows = _choices(data, judged, compressed)
    table = draw("Artifacts", fields, rows, note, marked=lambda row: row.decision == TAKEN)
    return ReportSection("choice", "Artifacts", "", _drawn(data), [table], tables_first=True, open=True)


def warnings(data: ReportData) -> list[str]:
    """What became slower than an earlier result; devices that were hot, throttled or saving; noisy ones with their
    widest spread.
    """
    lines = []
    for comparison in data.comparisons:
        for kind, timings in zip(("Slower than before", "Not decided"), slower_timings(comparison), strict=True):
            if timings:
                lines.append(f"{kind}, {comparison.where}: {'; '.join(timings)}.")
    if lacking := not_compared(data.comparisons):
        lines.append(f"Not compared with the earlier result: {'; '.join(lacking)}.")
    cut = [f"{entry.name}, {shown.style.name}: {truncated_text(entry.truncated)}"
           for shown in data.artifacts for entry in shown.run.accuracy if entry.truncated]  # fmt: skip
    lines += [f"{'; '.join(cut)}."] if cut else []
    for device_label, runs in data.places.items():
        reasons = list(dict.fromkeys(reason for shown in runs for reason in strain(shown.run)))
        if reasons:
            lines.append(f"{device_label} was {joined(reasons)}. Its times are too high; measure again with "
                         "`--cool-below 37`, charged and without a battery saver.")  # fmt: skip
    busy = []
    for device_label, runs in data.places.items():
        noisy = [(t.spread, t.length, shown) for shown in runs for t in shown.run.latency if t.noisy]
        if noisy:
            wide, length, shown = max(noisy, key=lambda row: row[0])
            state = shown.run.state_before
            load = state.load_1min if state is not None else None
            load_text = f"; load average {load:.1f} on {shown.run.device.cores} cores" if load is not None else ""
            length_note = f" at {length} tokens" if length else ""
            spread = percent(wide, 0).lstrip("+")
            busy.append(
                f"{device_label} was noisy ({shown.style.name}{length_note}: "
                f"spread of {spread} of the median{load_text})"
            )
    if busy:
        lines.append(f"{joined(busy)}. Times may be too high; measure again when it is idle.")
    return lines
