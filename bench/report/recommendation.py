"""The first screen: which artifact to take, what it adds to a download, how fast, how large in memory and how accurate
it is, on what that was measured; one row per device; what was noisy or became slower.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from msdc.bench.compare import slower_timings
from msdc.bench.measure import parity_failures
from msdc.bench.report.model import ReportData, ReportSection, Sentence, Shown, interval_of
from msdc.bench.report.targets import Judged
from msdc.bench.result import DeviceRun
from msdc.export.mobile.sizes import LEVEL, measured
from msdc.export.mobile.web.npm import FILES
from msdc.export.mobile.web.write import TOKENIZERS, module_source
from msdc.tables import NONE, Table, fixed, heads, joined, megabytes, millions, number, percent

WEB, ANDROID = "a web page", "an Android app"
# Devices that may be phones: over adb, by a link, or measured elsewhere. A link is also opened on computers.
PHONES, COMPUTERS = ("adb", "link", "other"), ("Windows", "Linux", "macOS", "Chrome")
# Where no interval is known, scores this close are taken as equal.
CLOSE = 1.0
# A download this much larger than the least is no reason to take the slower artifact.
ALIKE = 1.02
# A median is called faster where it is this much below the other.
FASTER = 0.9


class Sizes(NamedTuple):
    """Bytes of an artifact in an app: program with tokenizer, and runtime with module; as they are and compressed."""

    own: int
    own_small: int | None
    runtime: int
    runtime_small: int

    @property
    def download(self) -> int | None:
        """Bytes that the download of an app grows by; None where a result does not state it."""
        return None if self.own_small is None else self.own_small + self.runtime_small


def app_of(run: DeviceRun) -> str:
    """The kind of app that runs the artifact as this run did."""
    return ANDROID if run.browser is None else WEB


@functools.cache
def _libraries(app: str, runtime: str) -> tuple[int, int]:
    """Bytes of a runtime and our module, plain and compressed; of a page with the larger of its modules."""
    if app == ANDROID:
        parts = [measured()[name] for name in (runtime, "core")]
        return sum(part["bytes"] for part in parts), sum(part["compressed"] for part in parts)
    module = max((module_source(kind).encode("utf-8") for kind in TOKENIZERS), key=len)
    files = FILES.values()
    small = sum(file.compressed for file in files) + len(zlib.compress(module, LEVEL))
    return sum(file.bytes for file in files) + len(module), small


def sizes_of(run: DeviceRun) -> Sizes:
    """What an app grows by with the artifact of `run`; of old results without the tokenizer."""
    artifact = run.artifact
    own = artifact.bundle_bytes or artifact.bytes
    return Sizes(own, artifact.compressed_bytes, *_libraries(app_of(run), artifact.runtime))


def rise_mib(run: DeviceRun) -> float | None:
    """Resident memory after all runs over that before the artifact was opened, so that neither Python nor the runner
    counts; of a browser the runtime's heap.
    """
    if run.browser is not None:
        return run.browser.heap_warm_mib
    if run.memory is None:
        return None
    start, warm = run.memory.start, run.memory.warm
    return max(0.0, warm.anon_mib + warm.file_mib - start.anon_mib - start.file_mib)


def _low_bound(run: DeviceRun, mean: float) -> float:
    """The mean of the lower ends of a run's intervals; 1 point below the score where a task has none."""
    lows = [span[0] for entry in run.accuracy if entry.spearman is not None and (span := interval_of(entry))]
    return sum(lows) / len(lows) if lows else mean - CLOSE


def choose(data: ReportData, among: Sequence[Shown], judged: Sequence[Sequence[Judged]]) -> Shown | None:
    """The artifact to take: computes what was exported, meets the targets if any does, is not less accurate than the
    best beyond its interval; of those the smallest download, of equally small ones the fastest. None without a run.
    """

    def failing(shown: Shown) -> bool:
        return any(one.shown is shown and one.verdict == "fail" for row in judged for one in row)

    def size(shown: Shown) -> int:
        return sizes_of(shown.run).download or sum(sizes_of(shown.run)[::2])

    pool = [shown for shown in among if not parity_failures([shown.run])] or list(among)
    pool = [shown for shown in pool if not failing(shown)] or pool
    scored = [(mean, shown) for shown in pool if (mean := data.mean(shown.run.accuracy)) is not None]
    if scored:
        best, winner = max(scored, key=lambda pair: pair[0])
        pool = [shown for mean, shown in scored if mean >= _low_bound(winner.run, best)]
    if not pool:
        return None
    least = min(map(size, pool))
    return min((s for s in pool if size(s) <= ALIKE * least), key=lambda s: data.latency(s.run) or float("inf"))


def may_be_phone(run: DeviceRun) -> bool:
    """Whether a run may be of a phone: over adb, measured elsewhere, or by a link that no computer opened."""
    return run.device.kind in PHONES and not (run.device.kind == "link" and run.device.os.startswith(COMPUTERS))


def _rank(shown: Shown) -> tuple[bool, bool, bool]:
    """Runs that say most about a phone come first."""
    run = shown.run
    return run.clock != "wall", not may_be_phone(run), run.harness == "python"


def _time(data: ReportData, run: DeviceRun) -> str:
    value = data.latency(run)
    if value is None:
        return NONE
    return f"{number(value)} ms" if run.clock == "wall" else f"{millions(value, 1)} M instructions"


def _kept(data: ReportData, run: DeviceRun) -> tuple[str, str]:
    """Which part of the float model's accuracy an artifact keeps, and the scores."""
    if (found := data.kept(run)) is None:
        return "", ""
    own, base, names = found
    share = f"{100 * min(own / base, 1):.3g} %" if base > 0 else fixed(own, 1)
    return share, f"{fixed(own, 1)} of {fixed(base, 1)}, Spearman × 100 on {_sets(names)}"


def _sets(names: Sequence[str]) -> str:
    return joined(list(names)) if len(names) < 3 else f"{len(names)} sets"


def _take(data: ReportData, app: str, runs: Sequence[Shown], judged: Sequence[Sequence[Judged]]) -> list[Sentence]:
    """The sentences about one kind of app."""
    first: dict[str, Shown] = {}
    for shown in sorted(runs, key=_rank):
        first.setdefault(shown.style.name, shown)
    chosen = choose(data, list(first.values()), judged)
    if chosen is None:
        return []
    run, artifact, sizes = chosen.run, chosen.run.artifact, sizes_of(chosen.run)
    words = ["Take " if app == ANDROID else "In a web page take "]
    words += [f"{artifact.bundle} {artifact.runtime} {artifact.precision}", ": it adds "]
    own = "program and tokenizer" if artifact.bundle_bytes is not None else "program (its tokenizer was not counted)"
    if sizes.download is not None:
        words += [f"{megabytes(sizes.download)} MB", f" to the download of {app} ({megabytes(sizes.own_small)} MB of "
                  f"{own}, {megabytes(sizes.runtime_small)} MB of runtime)"]  # fmt: skip
    else:
        words += [f"{megabytes(sizes.own + sizes.runtime)} MB", f" to {app} as installed "
                  f"({megabytes(sizes.own)} MB of {own}, {megabytes(sizes.runtime)} MB of runtime)"]  # fmt: skip
    if data.latency(run) is not None:
        verb = ", answers in " if run.clock == "wall" else ", executes "
        words[-1] += verb
        where = f" on {chosen.place}" if len({shown.place for shown in runs}) > 1 else ""
        words += [_time(data, run), f" at {data.length} tokens{where}"]
    if (rise := rise_mib(run)) is not None:
        words[-1] += ", takes "
        words += [f"{fixed(rise, 1)} MiB", " of memory"]
    share, scores = _kept(data, run)
    if share:
        words[-1] += " and keeps "
        words += [share, f" of the float model's accuracy ({scores})."]
    else:
        parity = run.parity.float_mean_cosine if run.parity is not None else None
        near = f" (its vectors have a mean cosine of {parity:.4f} to the float model's)" if parity is not None else ""
        words[-1] += f"; whether it keeps the float model's accuracy is not known{near}."
    sentences: list[Sentence] = [words]
    if failures := parity_failures([run]):
        sentences.append(("", "It does not compute what was exported", f": {failures[0]}."))
    if judged:
        fails = [one for row in judged for one in row if one.shown is chosen and one.verdict != "pass"]
        missed = joined([f"{one.target.what} ({one.text}; {one.target.bound})" for one in fails])
        targets = f"{len(fails)} target{'s' if len(fails) > 1 else ''}"
        met = f"It meets all {len(judged[0])} targets." if len(judged[0]) > 1 else "It meets the target."
        sentences.append((met,) if not fails else (f"Misses {targets}: ", missed, "."))
    return sentences + _faster(data, chosen, list(first.values()))


def _faster(data: ReportData, chosen: Shown, others: Sequence[Shown]) -> list[Sentence]:
    """A sentence about the fastest other artifact in the same place, if it is faster."""
    mine, sizes = data.latency(chosen.run), sizes_of(chosen.run).download
    right = [shown for shown in others if shown.place == chosen.place and not parity_failures([shown.run])]
    rivals = [(time, shown) for shown in right if (time := data.latency(shown.run)) is not None]
    fastest, rival = min(rivals, key=lambda pair: pair[0], default=(0.0, chosen))
    if mine is None or rival is chosen or fastest > FASTER * mine:
        return []
    more = sizes_of(rival.run).download
    text = f"{rival.style.name} is faster there ({_time(data, rival.run)})"
    if more is not None and sizes is not None:
        difference = more - sizes
        text += f" and adds {millions(abs(difference), 1)} MB {'more' if difference >= 0 else 'less'}"
    mean, own = data.mean(rival.run.accuracy), data.mean(chosen.run.accuracy)
    text += f"; it scores {fixed(mean, 1)} against {fixed(own, 1)}" if mean is not None and own is not None else ""
    return [(text + ".",)]


def recommend(data: ReportData, judged: Sequence[Sequence[Judged]]) -> list[Sentence]:
    """What to take, in sentences; nothing without a run."""
    if not data.runs:
        return []
    found: list[Sentence] = []
    for app in (ANDROID, WEB):
        found += _take(data, app, [shown for shown in data.runs if app_of(shown.run) == app], judged)
    counted = list(dict.fromkeys(shown.place for shown in data.runs if shown.run.clock != "wall"))
    if data.places:
        found.append((f"Measured on {joined(list(data.places))}", ", not on a phone", ": its times and memory differ."))
        if any(may_be_phone(shown.run) for runs in data.places.values() for shown in runs):
            found[-1] = (found[-1][0] + ".",)
    if counted:
        found.append((f"{joined(counted)}: instruction counts, not phone timings.",))
    return found


def devices(data: ReportData, judged: Sequence[Sequence[Judged]]) -> ReportSection | None:
    """One row per device: the artifact to take there, and its main figures."""
    rows = []
    for place in dict.fromkeys(shown.place for shown in sorted(data.runs, key=_rank)):
        chosen = choose(data, [shown for shown in data.runs if shown.place == place], judged)
        if chosen is None:
            continue
        run = chosen.run
        start = run.load + run.first if run.clock == "wall" and run.load and run.first else None
        same = "unknown" if run.parity is None else "no" if parity_failures([run]) else "yes"
        share, scores = _kept(data, run)
        kept = f"{share} ({scores.partition(',')[0]})" if share else "unknown"
        row = [place, chosen.style.name, _time(data, run), number(start), fixed(rise_mib(run), 1), kept, same]
        if judged:
            verdicts = [one for row in judged for one in row if one.shown is chosen]
            unmet = [one.target.what for one in verdicts if one.verdict != "pass"]
            row.append("met" if not unmet else "not met: " + joined(unmet))
        rows.append(row)
    if not rows:
        return None
    columns = heads(
        f"Device | Artifact < | {f'At {data.length} tokens' if data.length else 'Median'} | Start [ms] | "
        "Memory [MiB] | Accuracy kept < | Same output as export <" + (" | Targets <" if judged else "")
    )
    note = (
        "The artifact to take on each device. Start: load and first run. Memory: what it adds to the process. Accuracy "
        "kept: Spearman × 100 of the artifact and of the float model. Same output as export: a parity check, "
        "not an accuracy score."
    )
    return ReportSection("devices", "By device", "", (), [Table("By device", columns, rows, note)], open=True)


def warnings(data: ReportData) -> list[str]:
    """What became slower than an earlier result, and per device that was busy, hot or throttled its widest spread."""
    lines = []
    for one in data.comparisons:
        for kind, found in zip(("Slower than before", "Not decided"), slower_timings(one), strict=True):
            if found:
                lines.append(f"{kind}, {one.where}: {'; '.join(found)}.")
    busy = []
    for place, runs in data.places.items():
        noisy = [(t.spread, t.length, shown) for shown in runs for t in shown.run.latency if t.noisy]
        if noisy:
            wide, length, shown = max(noisy, key=lambda row: row[0])
            state = shown.run.state_before
            load = state.load_1min if state is not None else None
            load_text = f"; load average {load:.1f} on {shown.run.device.cores} cores" if load is not None else ""
            at = f" at {length} tokens" if length else ""
            spread = percent(wide, 0).lstrip("+")
            busy.append(f"{place} was noisy ({shown.style.name}{at}: spread of {spread} of the median{load_text})")
    if busy:
        lines.append(f"{joined(busy)}. Times may be too high; measure again when it is idle.")
    return lines
