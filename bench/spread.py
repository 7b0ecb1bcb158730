"""Compare a result with the spread of many earlier ones: what a folder holds of the same device, model and conditions.

Per figure the earlier values, one per run (of samples their median), are taken as a sample of a log-normal
distribution, and the new value is compared with the two-sided 99 % prediction interval of one more value:
exp(m +- t s sqrt(1 + 1/n)), with mean m and standard deviation s of n logarithms and the quantile t of Student's
distribution with n - 1 degrees of freedom. A value inside it is noise, whatever the samples of the new run are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msdc.bench.compare import (
    BUSIER,
    INSTRUCTION_TOLERANCE,
    MATERIAL,
    TIMED,
    Comparison,
    Difference,
    Figure,
    Rows,
    Unmatched,
    Verdict,
    difference_of,
    figures_of,
    has_fixed_performance,
    label_of,
    side_of,
    sorted_rows,
    where_of,
)
from msdc.bench.result import BenchFile, DeviceRun, device_key, moments, read_result, result_files
from msdc.bench.strain import lower_clock, saves_power, strain
from msdc.errors import InputError
from msdc.extras import require

# Of fewer runs the interval is several times as wide as their spread.
LEAST_RUNS = 5
CONFIDENCE = 0.99
STRAINED = "of a hot, throttled or saving phone"


@dataclass(frozen=True)
class PastRuns:
    """The runs of many earlier results, and the number of other files in their folder."""

    runs: tuple[DeviceRun, ...]
    other_files: int = 0


def _read(paths: Sequence[Path]) -> tuple[list[BenchFile], PastRuns]:
    """The results in files and folders; of a folder, other files are counted."""
    files, others = list[BenchFile](), 0
    for path in paths:
        for file in result_files([path]):
            try:
                files.append(read_result(file))
            except InputError:
                if not path.is_dir():
                    raise
                others += 1
    runs = {run.model_dump_json(): run for file in files for run in file.runs}
    return files, PastRuns(tuple(sorted(runs.values(), key=lambda run: run.created)), others)


def read_past(folder: Path) -> PastRuns:
    """The runs of all results in `folder`, oldest first; equal ones count once.

    Raises:
        InputError: fewer than `LEAST_RUNS`: there is no spread.
    """
    _, past = _read([folder])
    if (count := len(past.runs)) < LEAST_RUNS:
        raise InputError(f"{folder}: holds {count} run{'s' if count != 1 else ''}{_others(past.other_files, ' and ')}; "
                         f"a spread needs {LEAST_RUNS}")  # fmt: skip
    return past


def _others(count: int, before: str = "") -> str:
    return f"{before}{count} file{'s' if count > 1 else ''} without a result" if count else ""


def read_earlier(paths: Sequence[Path], new: BenchFile) -> tuple[list[BenchFile], list[Comparison] | None]:
    """The earlier results in files and folders, and comparisons of `new` with their spread.

    None: the latest is compared with, since there is no folder among `paths` or too few of its runs are comparable.
    """
    files, past = _read(paths)
    if not new.runs or not any(path.is_dir() for path in paths):
        return files, None
    comparisons = compare_spread(past, new)
    return files, None if all(comparison.missing for comparison in comparisons) else comparisons


def left_out(comparisons: Sequence[Comparison]) -> list[str]:
    """One line per comparison with a spread: of how many runs it is, and which were left out."""
    return [
        f"{comparison.where}: compared with {comparison.past} earlier runs"
        + (f"; {comparison.left_out}" if comparison.left_out else "")
        for comparison in comparisons
        if comparison.past
    ]


def prediction_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Geometric mean of positive `values`, and the prediction interval of another value with `CONFIDENCE`."""
    require("scipy", "the spread of earlier runs")
    from scipy.stats import t

    logarithms, count = np.log(np.asarray(values, dtype=np.float64)), len(values)
    half = t.ppf((1 + CONFIDENCE) / 2, count - 1) * logarithms.std(ddof=1) * math.sqrt(1 + 1 / count)
    center = float(logarithms.mean())
    return math.exp(center), math.exp(center - half), math.exp(center + half)


def _other_terms(run: DeviceRun, new: DeviceRun, among: Sequence[DeviceRun]) -> str:
    """How the conditions of `run` differ from those of `new`, in words after a number of runs; empty if equal."""
    terms = {
        "on other devices": (device_key(run, among), device_key(new, among)),
        "of other models": (run.artifact.bundle, new.artifact.bundle),
        "of other precisions": (run.artifact.precision, new.artifact.precision),
        "of other runtimes": (run.artifact.runtime, new.artifact.runtime),
        "by other runners": (run.harness, new.harness),
        "in other units": (run.clock, new.clock),
        "with other threads": (run.threads, new.threads),
        "on other CPUs": (run.pinned_to, new.pinned_to),
        "in another performance mode": (has_fixed_performance(run), has_fixed_performance(new)),
    }
    return next((words for words, (old, now) in terms.items() if old != now), "")


def _spread(what: str, values: Sequence[float], new: Figure) -> Difference | Unmatched:
    """A figure against the prediction interval of its earlier values."""
    if len(values) < LEAST_RUNS:
        return Unmatched(what, new.unit, None, new.value, f"in {len(values)} comparable earlier runs alone")
    if min(*values, new.value) <= 0:
        return Unmatched(what, new.unit, values[-1], new.value, "not above zero in every run: no relative spread")
    center, low, high = prediction_interval(values)
    least = INSTRUCTION_TOLERANCE if new.unit == "instructions" else MATERIAL
    change = new.value / center - 1
    outside = not low <= new.value <= high and abs(change) >= least
    verdict: Verdict = "noise"
    if outside:
        verdict = side_of(change) if new.unit in TIMED else "smaller" if change < 0 else "larger"
    noisy = "noisy now" if outside and any(timing.noisy for timing in new.timings) else ""
    return Difference(
        what, new.unit, center, new.value, change, (low / center - 1, high / center - 1), verdict, None, noisy
    )


def _rows(past: Sequence[DeviceRun], new: Sequence[DeviceRun]) -> Rows:
    earlier, now = [figures_of([run]) for run in past], figures_of(new)

    def row(what: str) -> Difference | Unmatched | None:
        figure = now.get(what)
        if figure is not None and figure.unit in (*TIMED, "MiB"):
            return _spread(what, [figures[what].value for figures in earlier if what in figures], figure)
        # Bytes and scores have no noise.
        return difference_of(what, earlier[-1].get(what), figure)

    return sorted_rows(map(row, dict.fromkeys([*earlier[-1], *now])))


def compare_spread(past: PastRuns, new: BenchFile) -> list[Comparison]:
    """Compare every device and artifact of `new` with the spread of the comparable earlier runs.

    Raises:
        InputError: `new` holds no run.
    """
    if not new.runs:
        raise InputError("the new result holds no run of a device: nothing to compare")
    every, groups = [*past.runs, *new.runs], list[list[DeviceRun]]()
    for run in new.runs:
        group = next((runs for runs in groups if not _other_terms(runs[0], run, every)), None)
        if group is None:
            groups.append([run])
        else:
            group.append(run)
    return [_compare(past, runs, every) for runs in groups]


def _compare(past: PastRuns, new: Sequence[DeviceRun], every: Sequence[DeviceRun]) -> Comparison:
    now = max(new, key=lambda run: run.created)
    earlier = [run for run in past.runs if run not in new]
    reasons = [_other_terms(run, now, every) or (STRAINED if strain(run) else "") for run in earlier]
    runs = [run for run, reason in zip(earlier, reasons, strict=True) if not reason]
    counts = Counter(filter(None, reasons))
    left_out = [f"{count} run{'s' if count > 1 else ''} {reason}" for reason, count in counts.items()]
    left_out += filter(None, [_others(past.other_files)])
    without = f"left out: {', '.join(left_out)}" if left_out else ""
    where = where_of(now, every)
    if len(runs) < LEAST_RUNS:
        missing = f"{len(runs)} comparable earlier run{'s' if len(runs) != 1 else ''}, a spread needs {LEAST_RUNS}"
        missing += f" ({without})" if without else ""
        return Comparison(where, f"{where}: {missing}", (), missing=missing)
    differences, unmatched = _rows(runs, new)
    strained = [
        f"the phone was {reason} in the new result"
        for reason in dict.fromkeys(reason for run in new for reason in strain(run))
    ]
    strained += filter(None, [lower_clock(runs[-1], now)])
    loads = [run.state_before.load_1min for run in runs if run.state_before and run.state_before.load_1min is not None]
    load = now.state_before.load_1min if now.state_before else None
    doubts = list(strained)
    if loads and load is not None and load > max(loads) + BUSIER:
        doubts.append(f"other work on the machine: load average {load:.1f}, at most {max(loads):.1f} before")
    if saves_power(now) and not any(map(saves_power, runs)):
        doubts.append("the computer saved power in the new result alone")
    notes = [*doubts, *filter(None, [without])]
    if len({tuple(run.versions.items()) for run in (*runs, now)}) > 1:
        notes.append("runtime versions differ")
    if {run.artifact.sha256 for run in runs} == {now.artifact.sha256}:
        notes.append("the same program in every run: a difference is the machine's or its system's")
    since, until = runs[0].created[:10], runs[-1].created[:10]
    title = f"{where}: {len(runs)} runs from {since} to {until}, then {label_of(now, moments([now.created])[0])}"
    return Comparison(where, title, differences, tuple(notes), tuple(doubts), unmatched=unmatched,
                      strained=tuple(strained), past=len(runs), left_out=without)  # fmt: skip
