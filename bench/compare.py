"""Compare two results: the difference of each figure, and whether it is noise.

Medians are compared by a bootstrap over blocks of consecutive samples: neighbouring runs share the machine's state
(frequency, heat, other work), and resampling single samples would overstate certainty. Where a file
holds several runs of one artifact on one device, runs are resampled first, then blocks within them. Other work on the
machine shifts the median but not the fastest runs, so a difference counts only when the fastest tenth moved in the
same direction, beyond its own interval and by at least 1 %, and a gate looks at the smaller of both changes. A machine
that was slower throughout cannot be distinguished from a slower artifact: measure both in one session.

Instruction counts need no bootstrap: they are deterministic up to `INSTRUCTION_TOLERANCE`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from msdc.bench.result import BenchFile, DeviceRun, Timing, moments
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
# Bytes and parity have no noise; a load time is one sample and gets no interval.
Verdict = Literal["noise", "faster", "slower", "same", "smaller", "larger", "better", "worse", "unknown"]


@dataclass(frozen=True)
class Difference:
    """One figure in both results. `change` is relative ((new - old) / old); `interval` its 95 % bounds or None."""

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
class Comparison:
    """All figures of one artifact on one device. `where` names runtime and device; `title` also both artifacts.

    `doubts`: why a slower time is not the artifact's: it is the same program, or the machine did other work.
    `same_program`: both have the same program, run by the same versions, so no difference is the artifact's.
    """

    where: str
    title: str
    differences: tuple[Difference, ...]
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    same_program: bool = False

    def verdict(self, item: Difference) -> str:
        """The verdict to show; a timing that may be the machine's is not called faster or slower."""
        if self.same_program and item.unit in ("ms", "MiB"):
            return "same program"
        busier = item.verdict == "slower" and bool(self.doubts)
        if item.unit == "ms" and item.verdict in ("faster", "slower") and (item.noisy or busier):
            return f"not decided ({item.noisy or 'busier now'})"
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
    for i in range(resamples):
        chosen = generator.integers(len(runs), size=len(runs))
        values[i] = np.percentile(np.concatenate([_blocks(runs[r], 1, generator)[0] for r in chosen]), percent)
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
    mine, theirs, unit = ([timing.samples for timing in old], [timing.samples for timing in new], old[0].unit)
    before, after = (float(np.median(np.concatenate(mine))), float(np.median(np.concatenate(theirs))))
    if unit == "instructions":
        change = after / before - 1.0
        same = abs(change) <= INSTRUCTION_TOLERANCE
        return Difference(what, unit, before, after, change, None, "same" if same else _side(change))
    change, interval = percentile_change(mine, theirs, 50, seed=seed)
    fastest_change, fastest = percentile_change(mine, theirs, FASTEST_PERCENT, seed=seed)
    # Both intervals lie on one side of zero, and the fastest runs moved by what matters.
    moved = min(*interval, *fastest) > 0 or max(*interval, *fastest) < 0
    verdict = _side(interval[0]) if moved and abs(fastest_change) >= MATERIAL else "noise"
    sides = [name for name, timings in (("before", old), ("now", new)) if any(timing.noisy for timing in timings)]
    noisy = f"noisy {' and '.join(sides)}" if sides else ""
    return Difference(what, unit, before, after, change, interval, verdict, fastest_change, noisy)


def _side(change: float) -> Verdict:
    return "faster" if change < 0 else "slower"


Groups = dict[tuple[str, ...], list[DeviceRun]]


def place_key(run: DeviceRun) -> tuple[str, ...]:
    """Device, harness, runtime, threads and clock: what two results of one artifact share."""
    return run.device.kind, run.device.name, run.harness, run.artifact.runtime, str(run.threads), run.clock


def _groups(*files: BenchFile) -> list[Groups]:
    """Runs by device, runtime, threads and clock; also by precision where a group has several."""

    def group(file: BenchFile, precise: bool) -> Groups:
        groups: Groups = {}
        for run in file.runs:
            key = place_key(run)
            groups.setdefault((*key, run.artifact.precision) if precise else key, []).append(run)
        return groups

    found = [group(file, False) for file in files]
    single = all(len({run.artifact.precision for run in runs}) == 1 for one in found for runs in one.values())
    return found if single else [group(file, True) for file in files]


def _differences(old: list[DeviceRun], new: list[DeviceRun], seed: int) -> list[Difference]:
    was, now = old[0], new[0]
    size, size_now = was.artifact.bytes, now.artifact.bytes
    verdict: Verdict = "same" if size == size_now else "smaller" if size_now < size else "larger"
    change = size_now / size - 1.0 if size else 0.0
    found = [Difference("program bytes", "bytes", size, size_now, change, None, verdict)]

    def timed(what: str, timings: Callable[[DeviceRun], Sequence[Timing | None]]) -> None:
        before, after = ([t for run in runs for t in timings(run) if t is not None] for runs in (old, new))
        if before and after:
            found.append(_timing(what, before, after, seed))

    for length in dict.fromkeys(timing.length for run in old for timing in run.latency):

        def of_length(run: DeviceRun, length: int | None = length) -> Sequence[Timing]:
            return [timing for timing in run.latency if timing.length == length]

        timed(f"latency, {length} tokens, median", of_length)
    timed("tokenization, median", lambda run: [run.tokenize])
    timed("text to vector, median", lambda run: [run.pipeline])
    # One sample each: a difference can be shown, but not judged.
    if was.clock == "wall" and was.load and now.load:
        found.append(Difference("load", "ms", was.load, now.load, now.load / was.load - 1.0, None, "unknown"))
    if was.memory and now.memory:
        rise, rise_now = (memory.warm.anon_mib - memory.start.anon_mib for memory in (was.memory, now.memory))
        change = rise_now / rise - 1.0 if rise > 0 else 0.0
        what = "rise of anonymous memory"
        found.append(Difference(what, "MiB", rise, rise_now, change, None, "unknown"))
    scores = {(a.task, a.name): a.spearman for a in was.accuracy}
    for entry in now.accuracy:
        twin = scores.get((entry.task, entry.name))
        if twin is not None and entry.spearman is not None:
            change = entry.spearman - twin
            verdict = "same" if change == 0 else "unknown"
            found.append(Difference(f"Spearman, {entry.name}", "x100", twin, entry.spearman, change, None, verdict))
    return found


def _label(run: DeviceRun, made: str) -> str:
    return f"{run.artifact.bundle} {run.artifact.precision} ({run.artifact.sha256[:8]}, {made})"


def compare_results(old: BenchFile, new: BenchFile, seed: int = 0) -> list[Comparison]:
    """Compare every device and runtime that both files hold; `InputError` where they have none in common."""
    before, after = _groups(old, new)
    shared = [key for key in after if key in before]
    if not shared:
        raise InputError("the two results share no device, runtime and thread count: nothing to compare")
    out = []
    for key in shared:
        was, now = before[key][0], after[key][0]
        notes, doubts = [], []
        if was.device.cpu != now.device.cpu:
            notes.append(f"the processors differ: {was.device.cpu} and {now.device.cpu}")
        loads = [run.state_before.load_1min if run.state_before else None for run in (was, now)]
        if loads[0] is not None and loads[1] is not None and abs(loads[0] - loads[1]) > BUSIER:
            notes.append(f"other work on the machine differed: load average {loads[0]:.1f}, then {loads[1]:.1f}")
            doubts += [notes[-1]] if loads[1] > loads[0] else []
        if was.versions != now.versions:
            notes.append("runtime versions differ")
        same = (was.artifact.sha256, was.artifact.bytes) == (now.artifact.sha256, now.artifact.bytes)
        if same:
            notes.append("the same artifact in both: a difference is the machine's")
            doubts.append("it is the same program")
        where = f"{now.artifact.runtime} on {now.device.name}" + (", native" if now.harness == "native" else "")
        differences = tuple(_differences(before[key], after[key], seed))
        title = f"{where}: " + ", then ".join(map(_label, (was, now), moments([was.created, now.created])))
        same = same and was.versions == now.versions
        out.append(Comparison(where, title, differences, tuple(notes), tuple(doubts), same))
    return out


def slower_timings(one: Comparison, percent: float | None = None) -> tuple[list[str], list[str]]:
    """Timings that rose by more than a gate of `percent`: those of the artifact, and those that cannot be decided.

    A time is decided by the smaller of the changes of median and fastest tenth. It is not decided where either side was
    noisy, the program is the same or the machine was busier. Instruction counts repeat exactly: they are decided.
    Without a gate, what rose beyond noise; nothing of the same program.
    """
    certain: list[str] = []
    undecided: list[str] = []
    for item in () if percent is None and one.same_program else one.differences:
        slower = item.verdict == "slower" or (percent is not None and item.noisy != "")
        if item.unit in ("ms", "instructions") and slower and 100 * item.certain > (percent or 0):
            doubts = [] if item.unit == "instructions" else [*one.doubts, *filter(None, [item.noisy])]
            now = f"{item.new:,.0f}" if item.unit == "instructions" else f"{item.new:.3g}"
            rose = f"{item.what} rose by {100 * item.certain:.1f} % to {now} {item.unit}"
            (undecided if doubts else certain).append(rose + (f" ({', '.join(doubts)})" if doubts else ""))
    return certain, undecided


def regressions(comparisons: Sequence[Comparison], percent: float) -> tuple[list[str], list[str]]:
    """One line per timing that is more than `percent` above the earlier result, and per one that cannot be decided."""
    certain: list[str] = []
    undecided: list[str] = []
    for one in comparisons:
        for found, lines in zip((certain, undecided), slower_timings(one, percent), strict=True):
            found += [f"{one.where}: {line} (gate {percent:g} %)" for line in lines]
    return certain, undecided
