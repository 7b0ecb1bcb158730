"""Targets of a report: a limit for latency, size, memory or accuracy, and whether each run keeps it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from msdc.bench.report.data import ReportData, Style, mean_spearman, score_of
from msdc.bench.report.noise import is_noisy
from msdc.bench.result import DeviceRun, ModelScores
from msdc.errors import InputError
from msdc.tables import fixed, megabytes, number

Verdict = Literal["pass", "fail", "not measured"]
MIB = 2**20
BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_NUMBER = r"([0-9]{1,9}(?:\.[0-9]{1,9})?)"
LATENCY = re.compile(_NUMBER + r" ?(ms|s)@([0-9]{1,6})")
AMOUNT = re.compile(_NUMBER + r" ?([kKMG]?i?B)")
ACCURACY = re.compile(_NUMBER + r"(?:@(\S.{0,199}))?")


@dataclass(frozen=True)
class Target:
    """A limit in the unit of its figure (ms, bytes, MiB, Spearman x 100); `at` is a length in tokens or a data set."""

    figure: Literal["latency", "size", "memory", "accuracy"]
    limit: float
    at: str = ""

    @property
    def what(self) -> str:
        """What is limited: "latency at 32 tokens"."""
        return {
            "latency": f"latency at {self.at} tokens",
            "size": "program with tokenizer",
            "memory": "peak memory",
            "accuracy": f"Spearman × 100, {self.at or 'mean'}",
        }[self.figure]

    @property
    def bound(self) -> str:
        """The limit: "at most 20 ms"."""
        scale, unit = {"latency": (1, " ms"), "size": (1e6, " MB"), "memory": (1, " MiB"), "accuracy": (1, "")}[
            self.figure
        ]
        return f"at {'least' if self.figure == 'accuracy' else 'most'} {self.limit / scale:.6g}{unit}"

    @property
    def title(self) -> str:
        """Both: "latency at 32 tokens, at most 20 ms"."""
        return f"{self.what}, {self.bound}"

    def show(self, value: float | None) -> str:
        """`value` with its unit."""
        if self.figure == "latency":
            return f"{number(value)} ms"
        if self.figure == "size":
            return f"{megabytes(value)} MB"
        return f"{fixed(value, 1)} MiB" if self.figure == "memory" else fixed(value, 1)

    def kept(self, value: float) -> bool:
        """Does `value` keep the limit?"""
        return value >= self.limit if self.figure == "accuracy" else value <= self.limit


@dataclass(frozen=True)
class Judged:
    """One run and one target. `noisy`: the machine was, so a latency may be too high."""

    style: Style
    value: float | None
    verdict: Verdict
    noisy: bool = False


@dataclass(frozen=True)
class Outcome:
    """One target and every run it applies to."""

    target: Target
    runs: tuple[Judged, ...]

    @property
    def verdict(self) -> Verdict:
        """ "fail" where a run fails, "not measured" where none was measured."""
        found = {judged.verdict for judged in self.runs}
        return "fail" if "fail" in found else "pass" if "pass" in found else "not measured"

    def worst(self) -> Judged | None:
        """The measured run that is farthest from keeping the limit."""
        sign = -1 if self.target.figure == "accuracy" else 1
        known = [judged for judged in self.runs if judged.value is not None]
        return max(known, key=lambda judged: sign * (judged.value or 0.0), default=None)


def _matched(pattern: re.Pattern[str], text: str, option: str, example: str) -> re.Match[str]:
    found = pattern.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise InputError(f"{option} {text!r}: expected a limit such as {example}")
    return found


def parse_targets(
    latency: Sequence[str] = (), size: str | None = None, memory: str | None = None, accuracy: Sequence[str] = ()
) -> tuple[Target, ...]:
    """Targets from the text of the command line's options: "20ms@32", "12MB", "60MiB", "70" or "70@sts17/en-en".

    Raises:
        InputError: a text that is no limit.
    """
    found = []
    for text in latency:
        match = _matched(LATENCY, text, "--target-latency", "20ms@32 (median at 32 tokens)")
        found.append(Target("latency", float(match[1]) * (1000 if match[2] == "s" else 1), str(int(match[3]))))
    for figure, amount, unit in (("size", size, 1), ("memory", memory, MIB)):
        if amount is not None:
            match = _matched(AMOUNT, amount, f"--target-{figure}", "12MB or 60MiB")
            found.append(Target(figure, float(match[1]) * BYTES[match[2].upper()] / unit))  # type: ignore[arg-type]
    for text in accuracy:
        match = _matched(ACCURACY, text, "--target-accuracy", "70 or 70@sts17/en-en")
        found.append(Target("accuracy", float(match[1]), match[2] or ""))
    return tuple(found)


def memory_mib(run: DeviceRun) -> float | None:
    """Peak of the native runner's process, PSS of a browser's renderer; None where an app's memory is unknown.

    A run from Python includes the interpreter.
    """
    if run.browser is not None:
        return run.browser.renderer_pss_mib
    return run.memory.warm.vmhwm_mib if run.memory is not None and run.harness != "python" else None


def accuracy_of(owner: DeviceRun | ModelScores, data: ReportData, at: str) -> float | None:
    """Spearman x 100 of the set `at`, or the mean over the report's sets."""
    if not at:
        return mean_spearman(owner.accuracy, data.tasks())
    found = next((entry for task in data.tasks() if task[1] == at and (entry := score_of(owner.accuracy, task))), None)
    return found.spearman if found else None


def _value(target: Target, run: DeviceRun, data: ReportData) -> tuple[float | None, bool]:
    if target.figure == "latency":
        # A count of instructions is no time.
        timing = next((t for t in run.latency if t.length == int(target.at)), None) if run.clock == "wall" else None
        return (timing.p50, is_noisy(timing)) if timing is not None else (None, False)
    values: dict[str, Callable[[], float | None]] = {
        "size": lambda: run.artifact.bundle_bytes or run.artifact.bytes,
        "memory": lambda: memory_mib(run),
        "accuracy": lambda: accuracy_of(run, data, target.at),
    }
    return values[target.figure](), False


def judge(data: ReportData, targets: Sequence[Target]) -> tuple[Outcome, ...]:
    """Every target against every run of `data`."""
    outcomes = []
    for target in targets:
        runs = []
        for run, style in data.everything():
            value, noisy = _value(target, run, data)
            verdict: Verdict = "not measured" if value is None else "pass" if target.kept(value) else "fail"
            runs.append(Judged(style, value, verdict, noisy))
        outcomes.append(Outcome(target, tuple(runs)))
    return tuple(outcomes)


def missed(outcomes: Sequence[Outcome]) -> list[str]:
    """One line per target that a run fails or that no run measured."""
    lines = []
    for outcome in outcomes:
        if outcome.verdict == "not measured":
            lines.append(f"{outcome.target.title}: not measured")
        for judged in outcome.runs:
            if judged.verdict == "fail":
                lines.append(f"{outcome.target.title}: {outcome.target.show(judged.value)} by {judged.style.name}")
    return lines
