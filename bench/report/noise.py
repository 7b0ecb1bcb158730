"""Runs whose spread says that the machine was busy, hot or throttled while it measured."""

from __future__ import annotations

from msdc.bench.report.data import ReportData
from msdc.bench.result import Timing, percentile

# Of the median. An idle machine stays under 10 %; other work on it, or heat, spreads them over half of the median.
NOISY = 0.25


def spread(timing: Timing) -> float:
    """Distance of the 10th and the 90th percentile, relative to the median; single peaks do not count."""
    return (timing.p90 - percentile(timing.samples, 10)) / timing.p50 if timing.p50 else 0.0


def is_noisy(timing: Timing) -> bool:
    """Does the spread of these times say that the machine was noisy? Counted instructions are not times."""
    return timing.unit == "ms" and spread(timing) > NOISY


def warnings(data: ReportData) -> tuple[str, ...]:
    """One sentence per device with noisy runs: the widest spread, and the load where it is known."""
    worst: dict[str, tuple[float, str]] = {}
    for run, style in data.wall():
        for timing in run.latency:
            wide = spread(timing)
            if not is_noisy(timing) or wide <= worst.get(run.device.name, (0.0, ""))[0]:
                continue
            load = run.state_before.load_1min if run.state_before is not None else None
            busy = f"; load average {load:.1f} on {run.device.cores} cores" if load is not None else ""
            what = f"{style.name} at {timing.length} tokens" if timing.length else style.name
            worst[run.device.name] = (wide, f"{what}: spread of {100 * wide:.0f} % of the median{busy}")
    return tuple(
        f"{device} was noisy while it measured ({detail}). Its times may be too high; measure again when it is idle."
        for device, (_, detail) in worst.items()
    )
