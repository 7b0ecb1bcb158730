"""Compare two results: the difference of each figure, and whether it is noise.

Medians are compared by a bootstrap over blocks of consecutive samples: neighbouring runs share the machine's state
(frequency, heat, other work), and resampling single samples would overstate certainty. Where a file
holds several runs of one artifact on one device, runs are resampled first, then blocks within them. Other work on the
machine shifts the median but not the fastest runs, so a difference counts only when the fastest tenth moved in the
same direction, beyond its own interval and by at least 1 %, and a gate looks at the smaller of both changes. A machine
that was slower throughout cannot be distinguished from a slower artifact: measure both in one session.

Instruction counts need no bootstrap: they are deterministic up to `INSTRUCTION_TOLERANCE`.

Every figure of either result is accounted for: one that only one of them holds is `Unmatched`, and a gate on it is
inconclusive, since a figure that is not compared may have risen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from msdc.bench.result import UNITS, BenchFile, DeviceRun, Timing, device_key, device_name, moments
from msdc.bench.strain import lower_clock, saves_power, strain
from msdc.errors import InputError

RESAMPLES = 2000
FASTEST_PERCENT = 10
# A smaller change of the fastest tenth is not attributed to the artifact: disturbed runs alone cause as much.
MATERIAL = 0.01
RESAMPLED_AT_ONCE = 4_000_000
# Load averages that differ by more than this are noted.
BUSIER = 1.0
# qemu's count varies with the interrupts that fall into a run.
INSTRUCTION_TOLERANCE = 0.001
# Units of the figures that a gate judges.
TIMED = tuple(UNITS.values())
# The unit of an entry of accuracy that has several scores and no Spearman.
SCORES = "scores"
# Bytes and parity have no noise; a load time is one sample and gets no interval.
Verdict = Literal["noise", "faster", "slower", "same", "smaller", "larger", "better", "worse", "unknown"]


@dataclass(frozen=True)
class Difference:
    """One figure in both results. `change` is relative ((new - old) / old), of scores the difference, NaN where the
    old figure is not above 0; `interval` its 95 % bounds or None.
    """

    what: str
    unit: str
    old: float
    new: float
    change: float
    interval: tuple[float, float] | None
    verdict: Verdict
    # Relative change of the fastest tenth, and in words which side's samples were noisy.
    fastest: float | None = None
    noisy: str = ""

    @property
    def certain(self) -> float:
        """The smaller of the changes of median and fastest tenth, at which a gate looks."""
        return self.change if self.fastest is None else min(self.change, self.fastest, key=abs)


@dataclass(frozen=True)
class Unmatched:
    """A figure that could not be compared, and why. A result that lacks it has None; a time is its median."""

    what: str
    unit: str
    old: float | None
    new: float | None
    why: str


BEFORE_ONLY, NOW_ONLY = "only in the earlier result", "only in the new result"


@dataclass(frozen=True)
class Comparison:
    """All figures of one artifact on one device. `where` names runtime and device; `title` also both artifacts.

    `doubts`: why a slower time is not the artifact's: it is the same program, or the machine did other work.
    `same_program`: both have the same program, run by the same versions, so no difference is the artifact's.
    `strained`: why the times of a phone in either result were too high, which decides nothing.
    `unmatched`: figures of one result only. `missing`: which result alone has this artifact and device, with no figure
    compared; empty where both have it.
    `past`: how many earlier runs' spread decides; 0: one earlier result. `left_out`: which of them were not comparable.
    """

    where: str
    title: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    same_program: bool = False
    unmatched: tuple[Unmatched, ...] = ()
    missing: str = ""
    strained: tuple[str, ...] = ()
    past: int = 0
    left_out: str = ""

    @property
    def not_compared(self) -> list[str]:
        """What was not compared, in words: its figures, or one line for an artifact that one result lacks."""
        if self.missing:
            return [f"{self.where}: {self.missing}"]
        return [f"{self.where}: {item.what}: {item.why}" for item in self.unmatched]

    def verdict(self, item: Difference) -> str:
        """The verdict to show; a timing that may be the machine's is not called faster or slower."""
        if self.same_program and item.unit in ("ms", "MiB"):
            return "same program"
        busier = "busier now" if item.verdict == "slower" and self.doubts else ""
        why = item.noisy or ("the phone's state" if self.strained else busier)
        if item.unit == "ms" and item.verdict in ("faster", "slower") and why:
            return f"not decided ({why})"
        return {"unknown": "one sample"}.get(item.verdict, item.verdict)


def _blocks(samples: np.ndarray, resamples: int, generator: np.random.Generator) -> np.ndarray:
    """Resamples of one run made of blocks of consecutive samples, [resamples, samples]."""
    count = len(samples)
    block = max(1, round(count ** (1 / 3)))
    starts = generator.integers(0, count - block + 1, size=(resamples, -(-count // block)))
    return samples[(starts[:, :, None] + np.arange(block)).reshape(resamples, -1)[:, :count]]


def _resampled(
    runs: Sequence[np.ndarray], percent: float, resamples: int, generator: np.random.Generator
) -> np.ndarray:
    """Bootstrap distribution of a percentile of the pooled samples, [resamples]."""
    if len(runs) == 1:
        rows = max(1, RESAMPLED_AT_ONCE // len(runs[0]))
        sizes = [min(rows, resamples - done) for done in range(0, resamples, rows)]
        return np.concatenate([np.percentile(_blocks(runs[0], size, generator), percent, axis=1) for size in sizes])
    values = np.empty(resamples)
    for row in range(resamples):
        chosen = generator.integers(len(runs), size=len(runs))
        values[row] = np.percentile(np.concatenate([_blocks(runs[r], 1, generator)[0] for r in chosen]), percent)
    return values


def percentile_change(
    old: Sequence[Sequence[float]], new: Sequence[Sequence[float]], percent: float = 50, *,
    resamples: int = RESAMPLES, seed: int = 0,
) -> tuple[float, tuple[float, float]]:  # fmt: skip
    """Relative change of a percentile from `old` to `new` (lists of runs of samples) and its 95 % interval."""
    before, after = ([np.asarray(run, dtype=np.float64) for run in side] for side in (old, new))
    base = float(np.percentile(np.concatenate(before), percent))
    if base == 0:
        raise InputError("the old figure is zero: no relative change")
    generator = np.random.default_rng(seed)
    ratios = _resampled(after, percent, resamples, generator) / _resampled(before, percent, resamples, generator) - 1.0
    low, high = np.percentile(ratios, [2.5, 97.5])
    return float(np.percentile(np.concatenate(after), percent) / base - 1.0), (float(low), float(high))


def _timing(what: str, old: list[Timing], new: list[Timing], seed: int) -> Difference:
    old_samples, new_samples = ([timing.samples for timing in timings] for timings in (old, new))
    unit = old[0].unit
    before, after = (float(np.median(np.concatenate(old_samples))), float(np.median(np.concatenate(new_samples))))
    if unit == "instructions":
        change = after / before - 1.0
        same = abs(change) <= INSTRUCTION_TOLERANCE
        return Difference(what, unit, before, after, change, None, "same" if same else side_of(change))
    change, interval = percentile_change(old_samples, new_samples, 50, seed=seed)
    fastest_change, fastest = percentile_change(old_samples, new_samples, FASTEST_PERCENT, seed=seed)
    # Both intervals lie on one side of zero, and the fastest runs moved by what matters.
    moved = min(*interval, *fastest) > 0 or max(*interval, *fastest) < 0
    verdict = side_of(interval[0]) if moved and abs(fastest_change) >= MATERIAL else "noise"
    sides = [name for name, timings in (("before", old), ("now", new)) if any(timing.noisy for timing in timings)]
    noisy = f"noisy {' and '.join(sides)}" if sides else ""
    return Difference(what, unit, before, after, change, interval, verdict, fastest_change, noisy)


def side_of(change: float) -> Verdict:
    """The verdict on a time that changed."""
    return "faster" if change < 0 else "slower"


Groups = dict[tuple[str, ...], list[DeviceRun]]


def place_key(run: DeviceRun, among: Sequence[DeviceRun]) -> tuple[str, ...]:
    """Device, harness, runtime, threads, clock and the CPUs it was pinned to: what two results of one artifact share.

    `among` are all runs that are compared: they decide whether a device without an identity is one of another run.
    """
    device = device_key(run, among)
    return *device, run.harness, run.artifact.runtime, str(run.threads), run.clock, run.pinned_to


def _groups(*files: BenchFile) -> list[Groups]:
    """Runs by device, runtime, threads and clock; also by precision, and by bundle, where a group has several."""

    every = [run for file in files for run in file.runs]

    def group(keys: Sequence[Callable[[DeviceRun], str]]) -> list[Groups]:
        per_file: list[Groups] = []
        for file in files:
            groups: Groups = {}
            for run in file.runs:
                groups.setdefault((*place_key(run, every), *(key(run) for key in keys)), []).append(run)
            per_file.append(groups)
        return per_file

    keys: list[Callable[[DeviceRun], str]] = []
    for key in (lambda run: run.artifact.precision, lambda run: run.artifact.bundle):
        if any(len({key(run) for run in runs}) > 1 for groups in group(keys) for runs in groups.values()):
            keys.append(key)
    return group(keys)


def _latest(runs: Sequence[DeviceRun]) -> tuple[list[DeviceRun], list[DeviceRun]]:
    """The runs of the program that was measured last, and those of other programs of that name."""
    program = max(runs, key=lambda run: run.created).artifact.sha256 if runs else ""
    of_program = [run for run in runs if run.artifact.sha256 == program]
    return of_program, [run for run in runs if run.artifact.sha256 != program]


class Figure(NamedTuple):
    """One figure of a side: the timings of all its runs, or a single value."""

    unit: str
    value: float
    timings: tuple[Timing, ...] = ()


def has_fixed_performance(run: DeviceRun) -> bool:
    """Whether Android's fixed performance mode was on."""
    fixed = run.conditions.fixed_performance if run.conditions is not None else None
    return fixed is not None and fixed.enabled


def where_of(run: DeviceRun, among: Sequence[DeviceRun]) -> str:
    """Runtime and device of a run, as comparisons name them."""
    return f"{run.artifact.runtime} on {device_name(run, among)}" + (", native" if run.harness == "native" else "")


def figures_of(runs: Sequence[DeviceRun]) -> dict[str, Figure]:
    """All figures of one artifact on one device, by what they are, in the order of the table."""
    figures = {"program bytes": Figure("bytes", runs[0].artifact.bytes)}

    def timed(what: str, timings: Sequence[Timing | None]) -> None:
        held = tuple(timing for timing in timings if timing is not None)
        if held:
            median = float(np.median(np.concatenate([timing.samples for timing in held])))
            figures[what] = Figure(held[0].unit, median, held)

    for length in dict.fromkeys(timing.length for run in runs for timing in run.latency):
        every = [timing for run in runs for timing in run.latency if timing.length == length]
        timed(f"latency, {length} tokens, median", every)
    timed("tokenization, median", [run.tokenize for run in runs])
    timed("text to vector, median", [run.pipeline for run in runs])
    loads = [run.load for run in runs if run.load is not None]
    if loads:
        figures["load"] = Figure(UNITS[runs[0].clock], loads[0])
    rises = [run.memory.warm.process_mib - run.memory.start.process_mib for run in runs if run.memory is not None]
    if rises:
        figures["rise of anonymous memory"] = Figure("MiB", rises[0])
    for run in runs:
        for entry in run.accuracy:
            if entry.spearman is not None:
                figures.setdefault(f"Spearman, {entry.name}", Figure("x100", entry.spearman))
            else:
                figures.setdefault(f"scores, {entry.name}", Figure(SCORES, math.nan))
    return figures


def difference_of(what: str, old: Figure | None, new: Figure | None, seed: int = 0) -> Difference | Unmatched | None:
    """The difference of a figure; `Unmatched` where one side lacks it or the earlier one allows none; None for several
    scores, and where no side has it."""
    if old is None or new is None:
        present, side = old or new, BEFORE_ONLY if new is None else NOW_ONLY
        return present and Unmatched(what, present.unit, old and old.value, new and new.value, side)
    if old.unit == SCORES:
        return None
    before, after, unit = old.value, new.value, new.unit
    if unit == "x100":
        verdict: Verdict = "same" if before == after else "unknown"
        return Difference(what, unit, before, after, after - before, None, verdict)
    if old.timings:
        if np.percentile(np.concatenate([timing.samples for timing in old.timings]), FASTEST_PERCENT) == 0:
            return Unmatched(what, unit, before, after, "the earlier samples are below the step of their clock")
        return _timing(what, list(old.timings), list(new.timings), seed)
    # Apart from bytes, one sample each: a difference can be shown, but not judged.
    verdict = "unknown" if unit != "bytes" else "same" if before == after else "smaller" if after < before else "larger"
    return Difference(what, unit, before, after, after / before - 1.0 if before > 0 else math.nan, None, verdict)


Rows = tuple[tuple[Difference, ...], tuple[Unmatched, ...]]


def sorted_rows(rows: Iterable[Difference | Unmatched | None]) -> Rows:
    """The figures that were compared, and those that could not be."""
    every = list(rows)
    return (
        tuple(row for row in every if isinstance(row, Difference)),
        tuple(row for row in every if isinstance(row, Unmatched)),
    )


def _compared(old: Sequence[DeviceRun], new: Sequence[DeviceRun], seed: int) -> Rows:
    """The differences of figures that both sides hold, and the figures that could not be compared."""
    before, after = figures_of(old), figures_of(new)
    rows = (difference_of(what, before.get(what), after.get(what), seed) for what in dict.fromkeys([*before, *after]))
    return sorted_rows(rows)


def label_of(run: DeviceRun, created: str) -> str:
    """The artifact of a run, with the moment of its measurement."""
    return f"{run.artifact.bundle} {run.artifact.precision} ({run.artifact.sha256[:8]}, {created})"


def _one_sided(runs: Sequence[DeviceRun], where: str, among: Sequence[DeviceRun]) -> Comparison:
    """What only one of the results holds; the line names all that may differ from what the other one holds."""
    run = runs[0]
    threads = f"{run.threads} thread{'s' if run.threads > 1 else ''}"
    clock = ", instructions" if run.clock == "instructions" else ""
    artifact = f"{run.artifact.bundle} {run.artifact.runtime} {run.artifact.precision}"
    cpus = f", {run.pinned_to}" if run.pinned_to else ""
    device = f"{device_name(run, among)} ({run.device.kind}, {run.harness}, {threads}{cpus}{clock})"
    name = f"{artifact} ({run.artifact.sha256[:8]}) on {device}"
    return Comparison(name, f"{name}: {where}", (), missing=where)


def compare_results(old: BenchFile, new: BenchFile, seed: int = 0) -> list[Comparison]:
    """Compare every device and runtime that both files hold, and name what only one of them does.

    Raises:
        InputError: one of them holds no run.
    """
    for file, which in ((old, "earlier"), (new, "new")):
        if not file.runs:
            raise InputError(f"the {which} result holds no run of a device: nothing to compare")
    before, after = _groups(old, new)
    every = [*old.runs, *new.runs]
    out, alone = [], []
    for key in dict.fromkeys([*after, *before]):
        (old_runs, old_rest), (new_runs, new_rest) = (_latest(side.get(key, [])) for side in (before, after))
        for rest, where in ((old_rest, BEFORE_ONLY), (new_rest, NOW_ONLY)):
            programs = dict.fromkeys(run.artifact.sha256 for run in rest)
            alone += [
                _one_sided([run for run in rest if run.artifact.sha256 == program], where, every)
                for program in programs
            ]
        if not (old_runs and new_runs):
            alone.append(_one_sided(old_runs or new_runs, BEFORE_ONLY if old_runs else NOW_ONLY, every))
            continue
        was, now = old_runs[0], new_runs[0]
        notes, doubts = [], []
        if was.artifact.precision != now.artifact.precision:
            notes.append(f"the precisions differ: {was.artifact.precision}, then {now.artifact.precision}")
        if was.device.cpu != now.device.cpu:
            notes.append(f"the processors differ: {was.device.cpu} and {now.device.cpu}")
        loads = [run.state_before.load_1min if run.state_before else None for run in (was, now)]
        if loads[0] is not None and loads[1] is not None and abs(loads[0] - loads[1]) > BUSIER:
            notes.append(f"other work on the machine differed: load average {loads[0]:.1f}, then {loads[1]:.1f}")
            doubts += [notes[-1]] if loads[1] > loads[0] else []
        if saves_power(now) and not saves_power(was):
            notes.append("the computer saved power in the new result alone")
            doubts.append(notes[-1])
        fixed = [has_fixed_performance(run) for run in (was, now)]
        if fixed[0] != fixed[1]:
            notes.append(f"only the {'new' if fixed[1] else 'earlier'} result is of Android's fixed performance mode")
            doubts.append(notes[-1])
        strained = [f"the phone was {reason} in the {which} result"
                    for which, runs in (("earlier", old_runs), ("new", new_runs))
                    for reason in dict.fromkeys(reason for run in runs for reason in strain(run))]  # fmt: skip
        strained += filter(None, [lower_clock(was, now)])
        notes += strained
        doubts += strained
        if was.versions != now.versions:
            notes.append("runtime versions differ")
        others = [entry.name for entry in now.accuracy if entry.spearman is None]
        if others:
            notes.append(f"scores of {', '.join(others)} are not compared here: msdc evaluate --against tests them")
        same = (was.artifact.sha256, was.artifact.bytes) == (now.artifact.sha256, now.artifact.bytes)
        if same:
            notes.append("the same artifact in both: a difference is the machine's")
            doubts.append("it is the same program")
        where = where_of(now, every)
        differences, unmatched = _compared(old_runs, new_runs, seed)
        title = f"{where}: " + ", then ".join(map(label_of, (was, now), moments([was.created, now.created])))
        same = same and was.versions == now.versions
        out.append(
            Comparison(
                where, title, differences, tuple(notes), tuple(doubts), same, unmatched, strained=tuple(strained)
            )
        )
    return [*out, *alone]


def not_compared(comparisons: Sequence[Comparison]) -> list[str]:
    """One line per figure, artifact or device that only one of the results holds."""
    return [line for comparison in comparisons for line in comparison.not_compared]


def shares_nothing(comparisons: Sequence[Comparison]) -> bool:
    """Whether the two results have no artifact on the same device in common."""
    return all(comparison.missing for comparison in comparisons)


def slower_timings(comparison: Comparison, percent: float | None = None) -> tuple[list[str], list[str]]:
    """Timings that rose by more than a gate of `percent`: those of the artifact, and those that cannot be decided.

    A time is decided by the smaller of the changes of median and fastest tenth. It is not decided where either side was
    noisy, the program is the same or the machine was busier. Instruction counts repeat exactly: they are decided.
    Without a gate, what rose beyond noise; nothing of the same program.
    """
    certain: list[str] = []
    undecided: list[str] = []
    for item in () if percent is None and comparison.same_program else comparison.differences:
        slower = item.verdict == "slower" or (percent is not None and item.noisy != "")
        if item.unit in TIMED and slower and 100 * item.certain > (percent or 0):
            doubts = [] if item.unit == "instructions" else [*comparison.doubts, *filter(None, [item.noisy])]
            now = f"{item.new:,.0f}" if item.unit == "instructions" else f"{item.new:.3g}"
            rose = f"{item.what} rose by {100 * item.certain:.1f} % to {now} {item.unit}"
            (undecided if doubts else certain).append(rose + (f" ({', '.join(doubts)})" if doubts else ""))
    return certain, undecided


def regressions(comparisons: Sequence[Comparison], percent: float) -> tuple[list[str], list[str]]:
    """One line per timing that is more than `percent` above the earlier result, and per one that cannot be decided."""
    certain: list[str] = []
    undecided: list[str] = []
    for comparison in comparisons:
        for reasons, lines in zip((certain, undecided), slower_timings(comparison, percent), strict=True):
            reasons += [f"{comparison.where}: {line} (gate {percent:g} %)" for line in lines]
    return certain, undecided


def ungated(comparisons: Sequence[Comparison]) -> list[str]:
    """Why a gate may not pass although nothing rose: `not_compared`, a phone's state, or both results hold no time and
    no count.
    """
    lines = not_compared(comparisons)
    lines += [f"{comparison.where}: {line}" for comparison in comparisons for line in comparison.strained]
    judged = any(
        item.verdict != "unknown" and item.unit in TIMED
        for comparison in comparisons
        for item in comparison.differences
    )
    return lines if lines or judged else ["no time and no count is in both results: the gate compared nothing"]
