"""Results as CSV for spreadsheets and scripts: one row per run and timed figure, units in the header."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

from msdc.bench.result import BenchFile, DeviceRun, Timing, percentile
from msdc.bench.strain import strain
from msdc.errors import printable

Cell = str | float | int | None


def _of_unit(unit: str, value: Callable[[Timing], float]) -> Callable[[Timing], float | None]:
    return lambda timing: value(timing) if timing.unit == unit else None


# A column of a run, and one of its timings.
RUN: dict[str, Callable[[DeviceRun], Cell]] = {
    "created_utc": lambda run: run.created,
    "bundle": lambda run: run.artifact.bundle,
    "runtime": lambda run: run.artifact.runtime,
    "precision": lambda run: run.artifact.precision,
    "sha256": lambda run: run.artifact.sha256,
    "program_bytes": lambda run: run.artifact.bytes,
    "device": lambda run: run.device.name,
    "device_kind": lambda run: run.device.kind,
    "device_identity": lambda run: run.device.identity,
    "os": lambda run: run.device.os,
    "harness": lambda run: run.harness,
    "threads": lambda run: run.threads,
    "cpus": lambda run: " ".join(map(str, run.conditions.cpus)) if run.conditions is not None else None,
    "pinned": lambda run: int(run.conditions.pinned) if run.conditions is not None else None,
    "state": lambda run: "; ".join(strain(run)),
    "load_ms": lambda run: run.load if run.clock == "wall" else None,
    "first_run_ms": lambda run: run.first if run.clock == "wall" else None,
    "peak_memory_mib": lambda run: run.memory.warm.vmhwm_mib if run.memory is not None else None,
    "cosine_to_export": lambda run: run.parity.mean_cosine if run.parity is not None else None,
}
TIMING: dict[str, Callable[[Timing], Cell]] = {
    "tokens": lambda timing: timing.length,
    "samples": lambda timing: len(timing.samples),
    "median_ms": _of_unit("ms", lambda timing: timing.p50),
    "p10_ms": _of_unit("ms", lambda timing: percentile(timing.samples, 10)),
    "p90_ms": _of_unit("ms", lambda timing: timing.p90),
    "p99_ms": _of_unit("ms", lambda timing: timing.p99),
    "median_instructions": _of_unit("instructions", lambda timing: timing.p50),
}


def _cell(value: Cell) -> Cell:
    # Names come from devices: a spreadsheet must not take one for a formula.
    if isinstance(value, str):
        return f"'{value}" if value.startswith(("=", "+", "-", "@", "\t")) else printable(value)
    return value


def to_csv(results: BenchFile) -> str:
    """A header, and a row per run and figure: latency by length, tokenization, text to vector; unknown cells empty.

    Scores are columns named by their sets, of Spearman x 100.
    """
    scores = [(run, {entry.name: entry.spearman for entry in run.accuracy}) for run in results.runs]
    sets = list(dict.fromkeys(name for _, by_set in scores for name in by_set))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*RUN, "figure", *TIMING, *(f"spearman_x100 {name}" for name in sets)])
    for run, by_set in scores:
        timed = [("latency", timing) for timing in run.latency]
        timed += [(name, timing) for name, timing in (("tokenization", run.tokenize), ("text to vector", run.pipeline))
                  if timing is not None]  # fmt: skip
        for name, timing in timed:
            row = [*(column(run) for column in RUN.values()), name, *(column(timing) for column in TIMING.values())]
            writer.writerow([_cell(value) for value in [*row, *(by_set.get(key) for key in sets)]])
    return text.getvalue()
