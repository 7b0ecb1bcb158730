"""Bench one bundle on several devices: each device's results are kept whatever becomes of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.devices.base import BenchSettings
from bench.devices.registry import open_devices
from bench.result import BenchFile, DeviceRun
from msdc.errors import GateError, MsdcError
from msdc.files import write_json
from msdc.progress import say

PARITY_GATE = 0.999


@dataclass
class Benched:
    """What came of it: the runs, and one line for each device that failed."""

    runs: list[DeviceRun] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def file(self) -> BenchFile:
        return BenchFile(runs=tuple(self.runs))


def bench(bundle: Path, devices: str, settings: BenchSettings) -> Benched:
    """Run `bundle` on every device of the comma-separated list.

    One device alone raises its own error. Of several, a failed one is noted and the others are kept.

    Raises:
        InputError: an unknown device; or the only device's input error.
        MsdcError: the only device failed.
    """
    opened = open_devices(devices)
    done = Benched()
    for device in opened:
        try:
            done.runs += device.run(bundle, settings)
        except MsdcError as error:
            if len(opened) == 1:
                raise
            line = f"{device.spec}: {' '.join(str(error).split())}"
            done.failures.append(line)
            say(f"failed on {line}")
    return done


def parity_failures(runs: Sequence[DeviceRun]) -> list[str]:
    """Runs whose golden vectors or ids differ from those of the export."""
    found = []
    for run in runs:
        if run.parity is None:
            continue
        golden = run.parity.golden
        if golden.min_cosine < PARITY_GATE:
            least = f"{golden.min_cosine:.4f}"
            found.append(f"{run.title}: golden vectors agree only to cosine {least} (gate {PARITY_GATE})")
        if not golden.ids_equal:
            found.append(f"{run.title}: {len(golden.ids_differ)} golden texts get other token ids")
    return found


def save(done: Benched, json_file: Path | None, folder: Path | None) -> None:
    """One collected file, and or one file per run (`NAME-RUNTIME-PRECISION-DEVICE.json`)."""
    if json_file is not None:
        write_json(json_file, done.file.model_dump(mode="json"))
    for run in done.runs if folder is not None else ():
        assert folder is not None
        stem = "-".join((run.artifact.bundle, run.artifact.runtime, run.artifact.precision, run.device.name))
        safe = "".join(c if c.isalnum() or c in "-._" else "_" for c in stem)
        write_json(folder / f"{safe}.json", run.model_dump(mode="json"))


def raise_failures(done: Benched) -> None:
    """After everything is saved: fail when a device failed or a gate fell short.

    Raises:
        MsdcError: a device failed.
        GateError: parity fell short.
    """
    if done.failures:
        raise MsdcError("; ".join(done.failures))
    short = parity_failures(done.runs)
    if short:
        raise GateError("; ".join(short))
