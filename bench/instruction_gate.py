"""A gate on executed instructions: the emulated phone counts the same work the same, so more is a regression."""

from __future__ import annotations

from collections.abc import Mapping

from bench.result import DeviceRun
from msdc.errors import GateError, InputError


def check_instructions(run: DeviceRun, baseline: Mapping[str, float], tolerance: float) -> None:
    """Compare the median count of every length with `baseline` (length as text -> instructions).

    Raises:
        InputError: the run counts no instructions, or the baseline lacks a length.
        GateError: a count is more than `tolerance` (a share: 0.02) above its baseline.
    """
    if run.clock != "instructions":
        raise InputError(f"{run.title}: measured in time; only a run on the emulator counts instructions")
    short = []
    for timing in run.latency:
        if str(timing.length) not in baseline:
            raise InputError(f"{run.title}: the baseline has no length {timing.length}")
        expected = baseline[str(timing.length)]
        if timing.p50 > expected * (1 + tolerance):
            more = f"{100 * (timing.p50 / expected - 1):.1f} % above {expected:,.0f}"
            short.append(f"length {timing.length}: {timing.p50:,.0f} executed instructions, {more}")
    if short:
        raise GateError(f"{run.title}: {'; '.join(short)}")
