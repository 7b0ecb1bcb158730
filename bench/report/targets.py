"""Targets of a report: a limit for latency, size, memory or accuracy, and whether each run keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

from msdc.bench.report.model import ReportData, ReportSection, Shown, fields_of, spearmans
from msdc.bench.result import Accuracy, DeviceRun
from msdc.bench.strain import strain
from msdc.errors import InputError
from msdc.tables import Field, draw, fixed, joined, number, text_field

TargetKind = Literal["latency", "size", "memory", "accuracy"]
TargetVerdict = Literal["pass", "fail", "not measured"]
MIB = 2**20
UNITS = {"ms": 1, "s": 1000, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": MIB, "GIB": 2**30}
_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
_AMOUNT = re.compile(_NUMBER + r" ?([kKMG]?i?B)()")


class _Facts(NamedTuple):
    """What is limited, the unit of limit and value, the format of a value, how a limit is written, an example."""

    what: str
    unit: str
    show: Callable[[float | None], str]
    pattern: re.Pattern[str]
    example: str
    scale: float = 1.0


# The groups of a pattern: a number, its unit, and where it holds.
KINDS: dict[TargetKind, _Facts] = {
    "latency": _Facts("latency at {} tokens", " ms", number, re.compile(_NUMBER + r" ?(ms|s)@([0-9]{1,6})"),
                      "20ms@32 (median at 32 tokens)"),
    "size": _Facts("program with tokenizer, uncompressed", " MB", partial(fixed, decimals=2), _AMOUNT, "12MB", 10**6),
    "memory": _Facts("peak memory", " MiB", partial(fixed, decimals=1), _AMOUNT, "60MiB", MIB),
    "accuracy": _Facts("Spearman × 100, {}", "", partial(fixed, decimals=1),
                       re.compile(_NUMBER + r"()(?:@(\S.{0,199}))?"), "70 or 70@sts17/en-en"),
}  # fmt: skip


@dataclass(frozen=True)
class Limit:
    """A limit in the unit of its kind (ms, MB, MiB, Spearman x 100); `at` is a length in tokens or a data set."""

    kind: TargetKind
    limit: float
    subject: str = ""

    @property
    def what(self) -> str:
        """What is limited: "latency at 32 tokens"."""
        return KINDS[self.kind].what.format(self.subject or "mean")

    @property
    def bound(self) -> str:
        """The limit: "at most 20 ms"."""
        return f"at {'least' if self.kind == 'accuracy' else 'most'} {self.limit:.6g}{KINDS[self.kind].unit}"

    def show(self, value: float) -> str:
        """`value` with its unit."""
        return KINDS[self.kind].show(value) + KINDS[self.kind].unit


class Judged(NamedTuple):
    """One run and one target. `noisy`: the machine was, so a latency may be too high; `strained`: the phone was hot,
    throttled or saving, so it is too high.
    """

    target: Limit
    shown: Shown
    value: float | None
    noisy: bool = False
    strained: bool = False

    @property
    def verdict(self) -> TargetVerdict:
        """Whether the run keeps the limit."""
        if self.value is None:
            return "not measured"
        limit = self.target.limit
        return "pass" if (self.value >= limit if self.target.kind == "accuracy" else self.value <= limit) else "fail"

    @property
    def text(self) -> str:
        """The verdict with the value: "fail, 12.3 ms"."""
        if self.value is None:
            return self.verdict
        doubts = [word for word, holds in (("noisy", self.noisy), ("the phone's state", self.strained)) if holds]
        return ", ".join([self.verdict, self.target.show(self.value), *doubts])


def parse_targets(
    target_latency: Sequence[str] = (),
    target_size: str | None = None,
    target_memory: str | None = None,
    target_accuracy: Sequence[str] = (),
) -> list[Limit]:
    """Targets as text: "20ms@32", "12MB", "60MiB", "70" or "70@sts17/en-en"."""
    targets = []
    for kind, texts in zip(KINDS, (target_latency, target_size, target_memory, target_accuracy), strict=True):
        for text in [texts] if isinstance(texts, str) else texts or ():
            match = KINDS[kind].pattern.fullmatch(text.strip())
            if match is None or float(match[1]) <= 0:
                raise InputError(f"`target_{kind}` {text!r}: expected a limit such as {KINDS[kind].example}")
            unit, subject = match[2], match[3] or ""
            limit = float(match[1]) * UNITS.get(unit if unit in UNITS else unit.upper(), 1) / KINDS[kind].scale
            targets.append(Limit(kind, limit, str(int(subject)) if kind == "latency" else subject))
    return targets


def peak_of(run: DeviceRun) -> float | None:
    """Peak of the native runner's process with its swapped pages, PSS of a browser's renderer; None where an app's
    memory is unknown, as of a run from Python, whose peak is the interpreter's.
    """
    if run.browser is not None:
        return run.browser.renderer_pss_mib
    if run.memory is None or run.harness == "python":
        return None
    return run.memory.warm.vmhwm_mib + (run.memory.warm.swap_mib or 0.0)


def _accuracy(target: Limit, accuracy: Sequence[Accuracy], data: ReportData) -> float | None:
    """Spearman x 100 of the target's set, or the mean over the report's sets."""
    if not target.subject:
        return data.mean(accuracy)
    return next((value for (_, name), value in spearmans(accuracy).items() if name == target.subject), None)


def _judged(target: Limit, shown: Shown, data: ReportData) -> Judged:
    run = shown.run
    if target.kind == "latency":  # a count of instructions is no time
        timings = (t for t in run.latency if t.length == int(target.subject) and run.clock == "wall")
        timing = next(timings, None)
        if timing is None:
            return Judged(target, shown, None)
        return Judged(target, shown, timing.p50, timing.noisy, bool(strain(run)))
    if target.kind == "size":
        return Judged(target, shown, (run.artifact.bundle_bytes or run.artifact.bytes) / 1e6)
    return Judged(target, shown, peak_of(run) if target.kind == "memory" else _accuracy(target, run.accuracy, data))


def judge(data: ReportData, targets: Sequence[Limit]) -> list[list[Judged]]:
    """Every target against every run of `data`, one list per run."""
    return [[_judged(target, shown, data) for target in targets] for shown in data.runs] if targets else []


def undecided(judged: Sequence[Sequence[Judged]]) -> list[str]:
    """One line per limit that a phone exceeds in a state in which its times are too high."""
    return [
        f"{judgement.target.what}, {judgement.target.bound}: {judgement.target.show(judgement.value)} on "
        f"{judgement.shown.device_label}, which was {joined(strain(judgement.shown.run))}"
        for column in zip(*judged, strict=True)
        for judgement in column
        if judgement.verdict == "fail" and judgement.strained and judgement.value is not None
    ]


def missed(judged: Sequence[Sequence[Judged]]) -> list[str]:
    """Per target one line per run that fails, or one where no run was measured; `undecided` ones are not among them."""
    lines = []
    for column in zip(*judged, strict=True):
        title = f"{column[0].target.what}, {column[0].target.bound}"
        if all(judgement.value is None for judgement in column):
            lines.append(f"{title}: not measured")
        lines += [
            f"{title}: {judgement.target.show(judgement.value)} by {judgement.shown.style.name} "
            f"on {judgement.shown.device_label}"
            for judgement in column
            if judgement.verdict == "fail" and judgement.value is not None and not judgement.strained
        ]
    return lines


def _verdict(row: Sequence[Judged]) -> str:
    """The verdict on a run by all its targets."""
    verdicts = {judgement.verdict for judgement in row}
    return "fail" if "fail" in verdicts else "pass" if verdicts == {"pass"} else "incomplete"


def _target_field(target: Limit, index: int) -> Field[Sequence[Judged]]:
    """The column of the target that is judged at `index` of a row."""
    title = target.what[:1].upper() + target.what[1:]
    return Field(title, lambda row: row[index].text, unit=target.bound, align="left")


def targets_section(judged: Sequence[Sequence[Judged]]) -> ReportSection | None:
    """One row per run, one column per target; None without targets."""
    if not judged:
        return None
    fields: list[Field[Sequence[Judged]]] = [
        *fields_of(lambda row: row[0].shown),
        text_field("Verdict", _verdict),
        *(_target_field(judgement.target, index) for index, judgement in enumerate(judged[0])),
    ]
    notes = [
        "Latency is the median in time; counted instructions are not judged. Memory is the peak of the native runner's "
        "process, or the PSS of a browser's renderer; runs from Python include the interpreter and are not judged."
    ]
    if any(judgement.noisy for row in judged for judgement in row):
        notes.append("Noisy: the samples spread so far that the median may be too high; measure again.")
    met = sum(_verdict(row) == "pass" for row in judged)
    lead = f"{met} of {len(judged)} run{'s' if len(judged) != 1 else ''} meet{'s' if met == 1 else ''} all targets."
    table = draw("Targets", fields, judged)
    return ReportSection("targets", "Targets", lead, (), [table], notes, open=True)
