"""Targets of a report: a limit for latency, size, memory or accuracy, whether each run keeps it, and noisy machines."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from msdc.bench.report.inputs import Data, spearmans
from msdc.bench.report.model import Section, Style, Tile
from msdc.bench.result import Accuracy, DeviceRun, ModelScores, Timing, percentile
from msdc.errors import InputError
from msdc.tables import NONE, Column, Table, fixed, number

Kind = Literal["latency", "size", "memory", "accuracy"]
Verdict = Literal["pass", "fail", "not measured"]
# Roles of float models that are baselines, as the table calls them.
ROLES = {"student": "float model", "teacher": "teacher", "assistant": "assistant"}
MIB = 2**20
BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": MIB, "GIB": 2**30}
_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
LATENCY = re.compile(_NUMBER + r" ?(ms|s)@([0-9]{1,6})")
AMOUNT = re.compile(_NUMBER + r" ?([kKMG]?i?B)")
ACCURACY = re.compile(_NUMBER + r"(?:@(\S.{0,199}))?")
# kind -> what is limited, unit of limit and value, format of a value
KINDS: dict[Kind, tuple[str, str, Callable[[float | None], str]]] = {
    "latency": ("latency at {} tokens", " ms", number),
    "size": ("program with tokenizer", " MB", partial(fixed, decimals=2)),
    "memory": ("peak memory", " MiB", partial(fixed, decimals=1)),
    "accuracy": ("Spearman × 100, {}", "", partial(fixed, decimals=1)),
}
# Of the median. An idle machine stays under 10 %; other work on it, or heat, spreads them over half of the median.
NOISY = 0.25


@dataclass(frozen=True)
class Target:
    """A limit in the unit of its kind (ms, MB, MiB, Spearman x 100); `at` is a length in tokens or a data set."""

    kind: Kind
    limit: float
    at: str = ""

    @property
    def what(self) -> str:
        """What is limited: "latency at 32 tokens"."""
        return KINDS[self.kind][0].format(self.at or "mean")

    @property
    def bound(self) -> str:
        """The limit: "at most 20 ms"."""
        return f"at {'least' if self.kind == 'accuracy' else 'most'} {self.limit:.6g}{KINDS[self.kind][1]}"

    def show(self, value: float | None) -> str:
        """`value` with its unit."""
        _, unit, shown = KINDS[self.kind]
        return shown(value) + unit

    def excess(self, value: float) -> float:
        """How far `value` is beyond the limit; at most 0 where it keeps it."""
        return self.limit - value if self.kind == "accuracy" else value - self.limit


class Judged(NamedTuple):
    """One run and one target. `noisy`: the machine was, so a latency may be too high."""

    style: Style
    value: float | None
    verdict: Verdict
    noisy: bool


@dataclass(frozen=True)
class Outcome:
    """One target and every run of the report."""

    target: Target
    runs: Sequence[Judged]

    @property
    def title(self) -> str:
        """What is limited, and the limit."""
        return f"{self.target.what}, {self.target.bound}"

    def tile(self) -> Tile:
        """Fail where a run fails, else pass; the run that is farthest from keeping the limit."""
        known = [(self.target.excess(one.value), one) for one in self.runs if one.value is not None]
        if not known:
            return Tile(self.title, "not measured")
        worst = max(known, key=lambda pair: pair[0])[1]
        detail = f"{self.target.show(worst.value)}, {worst.style.name}{' (noisy)' if worst.noisy else ''}"
        return Tile(self.title, worst.verdict, detail, "bad" if worst.verdict == "fail" else "good")

    def missed(self) -> list[str]:
        """One line per run that fails, or one where no run was measured."""
        if all(one.value is None for one in self.runs):
            return [f"{self.title}: not measured"]
        fails = (one for one in self.runs if one.verdict == "fail")
        return [f"{self.title}: {self.target.show(one.value)} by {one.style.name}" for one in fails]


def parse_targets(
    latency: Sequence[str] = (), size: str | None = None, memory: str | None = None, accuracy: Sequence[str] = ()
) -> list[Target]:
    """Targets from the text of the command line's options: "20ms@32", "12MB", "60MiB", "70" or "70@sts17/en-en"."""

    def parts(pattern: re.Pattern[str], option: str, text: str, example: str) -> re.Match[str]:
        found = pattern.fullmatch(text.strip())
        if found is None or float(found[1]) <= 0:
            raise InputError(f"--target-{option} {text!r}: expected a limit such as {example}")
        return found

    targets = []
    for text in latency:
        match = parts(LATENCY, "latency", text, "20ms@32 (median at 32 tokens)")
        targets.append(Target("latency", float(match[1]) * (1000 if match[2] == "s" else 1), str(int(match[3]))))
    amounts: tuple[tuple[Kind, str | None, int], ...] = (("size", size, 10**6), ("memory", memory, MIB))
    for kind, amount, unit in amounts:
        if amount is not None:
            match = parts(AMOUNT, kind, amount, "12MB or 60MiB")
            targets.append(Target(kind, float(match[1]) * BYTES[match[2].upper()] / unit))
    for text in accuracy:
        match = parts(ACCURACY, "accuracy", text, "70 or 70@sts17/en-en")
        targets.append(Target("accuracy", float(match[1]), match[2] or ""))
    return targets


def memory_mib(run: DeviceRun) -> float | None:
    """Peak of the native runner's process, PSS of a browser's renderer; None where an app's memory is unknown.

    A run from Python includes the interpreter.
    """
    if run.browser is not None:
        return run.browser.renderer_pss_mib
    return run.memory.warm.vmhwm_mib if run.memory is not None and run.harness != "python" else None


def _accuracy(scored: DeviceRun | ModelScores, data: Data, at: str) -> float | None:
    """Spearman x 100 of the set `at`, or the mean over the report's sets."""
    if not at:
        return data.mean(scored)
    return next((entry.spearman for (_, name), entry in spearmans(scored).items() if name == at), None)


def _judged(target: Target, run: DeviceRun, style: Style, data: Data) -> Judged:
    value, noisy = None, False
    if target.kind == "latency" and run.clock == "wall":  # a count of instructions is no time
        timing = next((t for t in run.latency if t.length == int(target.at)), None)
        value, noisy = (timing.p50, is_noisy(timing)) if timing is not None else (None, False)
    elif target.kind == "size":
        value = (run.artifact.bundle_bytes or run.artifact.bytes) / 1e6
    elif target.kind == "memory":
        value = memory_mib(run)
    elif target.kind == "accuracy":
        value = _accuracy(run, data, target.at)
    verdict: Verdict = "not measured" if value is None else "pass" if target.excess(value) <= 0 else "fail"
    return Judged(style, value, verdict, noisy)


def judge(data: Data, targets: Sequence[Target]) -> list[Outcome]:
    """Every target against every run of `data`."""
    return [Outcome(target, [_judged(target, run, style, data) for run, style in data.runs]) for target in targets]


def _baselines(data: Data, targets: Sequence[Target]) -> list[list[str]]:
    """Rows of the float model and the teacher; float weights by the number of parameters where no model is known."""
    models = [(f"{ROLES[m.role]}: {m.name}", m) for m in data.results.models if m.role in ROLES]
    for document in data.evaluations:
        for record in document.models:
            scores = tuple(
                Accuracy(task=score.task, name=score.name, spearman=score.value)
                for score in document.results
                if score.model == record.label and score.main == "spearman"
            )
            if record.kind == "float" and scores:
                named = ModelScores(role="other", name=record.label, parameters=0, bytes=record.bytes, accuracy=scores)
                models.append((f"float: {record.label}", named))
    if not any(model.role == "student" for model in data.results.models):
        counts = {r.artifact.bundle: r.artifact.parameters for r in data.results.runs if r.artifact.parameters}
        models += [(f"{name} in float32", ModelScores(role="other", name=name, parameters=count, bytes=4 * count))
                   for name, count in counts.items()]  # fmt: skip
    rows = []
    for name, model in models:
        cells = []
        for target in targets:
            value = _accuracy(model, data, target.at) if target.kind == "accuracy" else None
            if target.kind == "size" and model.bytes is not None:
                value = model.bytes / 1e6
            cells.append(NONE if value is None else target.show(value))
        rows.append([name, "baseline", *cells])
    return rows


def targets_section(data: Data, outcomes: Sequence[Outcome]) -> Section | None:
    """One row per run, one column per target, rows of baselines; None without targets."""
    if not outcomes:
        return None
    rows, met = [], 0
    for i, (_, style) in enumerate(data.runs):
        cells, verdicts = [], set()
        for target, one in ((outcome.target, outcome.runs[i]) for outcome in outcomes):
            verdicts.add(one.verdict)
            noisy = ", noisy" if one.noisy else ""
            cells.append(one.verdict if one.value is None else f"{one.verdict}, {target.show(one.value)}{noisy}")
        verdict = "fail" if "fail" in verdicts else "pass" if verdicts == {"pass"} else "incomplete"
        met += verdict == "pass"
        rows.append([style.name, verdict, *cells])
    targets = [outcome.target for outcome in outcomes]
    named = ((target.what[:1].upper() + target.what[1:], target.bound) for target in targets)
    columns = [Column(title, unit, "left") for title, unit in (("Artifact", ""), ("Verdict", ""), *named)]
    notes = [
        "A target is met when every run that was measured keeps it. Latency is the median in time; counted "
        "instructions are not judged. Memory is the peak of the native runner's process, or the PSS of a browser's "
        "renderer; runs from Python include the interpreter and are not judged."
    ]
    if any(one.noisy for outcome in outcomes for one in outcome.runs):
        notes.append("Noisy: the samples spread so far that the median may be too high; measure again.")
    count = len(data.runs)
    lead = f"{met} of {count} run{'s' if count != 1 else ''} meet{'s' if met == 1 else ''} all targets."
    return Section("targets", "Targets", lead, (), [Table("Targets", columns, rows + _baselines(data, targets))], notes)


def spread(timing: Timing) -> float:
    """Distance of the 10th and the 90th percentile, relative to the median; single peaks do not count."""
    return (timing.p90 - percentile(timing.samples, 10)) / timing.p50 if timing.p50 else 0.0


def is_noisy(timing: Timing) -> bool:
    """Does the spread of these times say that the machine was noisy? Counted instructions are not times."""
    return timing.unit == "ms" and spread(timing) > NOISY


def noise_warnings(data: Data) -> list[str]:
    """One sentence per device whose runs say that it was busy, hot or throttled: the widest spread, and the load."""
    worst: dict[str, tuple[float, str]] = {}
    for run, style in data.timed:
        load = run.state_before.load_1min if run.state_before is not None else None
        busy = f"; load average {load:.1f} on {run.device.cores} cores" if load is not None else ""
        for timing in filter(is_noisy, run.latency):
            wide = spread(timing)
            what = f"{style.name} at {timing.length} tokens" if timing.length else style.name
            found = (wide, f"{what}: spread of {100 * wide:.0f} % of the median{busy}")
            worst[run.device.name] = max(worst.get(run.device.name, (0.0, "")), found, key=lambda pair: pair[0])
    return [
        f"{device} was noisy while it measured ({detail}). Its times may be too high; measure again when it is idle."
        for device, (_, detail) in worst.items()
    ]
