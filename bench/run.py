"""Bench one bundle on several devices: each device's results are kept whatever becomes of the others."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from msdc.bench.devices.base import Device
from msdc.bench.devices.registry import open_devices
from msdc.bench.result import BenchFile, DeviceRun
from msdc.bench.settings import BenchSettings, usual_lengths
from msdc.errors import GateError, MsdcError
from msdc.export.manifest import read_manifest
from msdc.export.runtimes import RUNTIMES
from msdc.files import refuse_existing, write_json
from msdc.progress import say

# Mean cosine to the golden vectors; a single one may be ten times as far from 1. The kernels that a runtime has for a
# processor round activations to 8 bits each in their own way (KleidiAI's on Arm differ from those on x86), and two
# right answers lie as far apart as each from the float model. Wrong kernels are far off: 0.81 to 0.88 where seen.
PARITY_GATE = 0.999
SINGLE_GATE = 1 - 10 * (1 - PARITY_GATE)


@dataclass(frozen=True)
class BenchJob:
    """One `msdc bench`: what to measure, what to set beside it, what to write.

    `usual_lengths`: take 8, 32, 128 as far as the artifact reads, in place of the settings' lengths. `gate_percent`:
    fail when a timing rose by more over that of `before`.
    """

    bundle: Path | None
    devices: str
    settings: BenchSettings
    usual_lengths: bool = False
    imports: tuple[Path, ...] = ()
    before: Path | None = None
    gate_percent: float | None = None
    run_folder: Path | None = None
    output: Path | None = None
    json_file: Path | None = None
    folder: Path | None = None
    peers: bool = False
    force: bool = False


@dataclass
class Benched:
    """What came of it: the runs, and one line for each device that failed."""

    runs: list[DeviceRun] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def bench(bundle: Path, devices: str, settings: BenchSettings) -> Benched:
    """Run `bundle` on every device of the comma-separated list.

    One device alone raises its own error. Of several, a failed one is noted and the others are kept.

    Raises:
        InputError: an unknown device; or the only device's input error.
        MsdcError: the only device failed.
    """
    opened = open_devices(devices)
    if len(opened) == 1:
        return Benched(runs=opened[0].run(bundle, settings))

    def attempt(device: Device) -> list[DeviceRun] | MsdcError:
        try:
            return device.run(bundle, settings)
        except MsdcError as error:
            say(f"failed on {device.spec}: {' '.join(str(error).split())}")
            return error

    # What measures time has the machine to itself; what counts instructions comes after it, side by side.
    outcomes = {device: attempt(device) for device in opened if not device.undisturbed}
    counting = [device for device in opened if device.undisturbed]
    with ThreadPoolExecutor(max_workers=len(os.sched_getaffinity(0))) as pool:
        outcomes |= dict(zip(counting, pool.map(attempt, counting), strict=True))
    done = Benched()
    for device in opened:
        outcome = outcomes[device]
        if isinstance(outcome, MsdcError):
            done.failures.append(f"{device.spec}: {' '.join(str(outcome).split())}")
        else:
            done.runs += outcome
    return done


def parity_failures(runs: Sequence[DeviceRun]) -> list[str]:
    """Runs whose golden vectors or ids differ from those of the export."""
    found = []
    for run in runs:
        if run.parity is None:
            continue
        golden = run.parity.golden
        if golden.mean_cosine < PARITY_GATE or golden.min_cosine < SINGLE_GATE:
            mean, least = f"{golden.mean_cosine:.4f}", f"{golden.min_cosine:.4f}"
            gates = f"(gates {PARITY_GATE} and {SINGLE_GATE:.3g})"
            found.append(f"{run.title}: golden vectors agree only to mean cosine {mean}, lowest {least} {gates}")
        if not golden.ids_equal:
            found.append(f"{run.title}: {len(golden.ids_differ)} golden texts get other token ids")
    return found


def build_runners(machines: Sequence[str | None] = (None, "aarch64")) -> list[str]:
    """Build the native runner of every runtime for this machine (None) and for devices; one line each.

    Raises:
        MsdcError: none could be built; says what is missing.
    """
    from msdc.bench.toolchain.build import build_runner

    lines, built = [], 0
    for machine in machines:
        for runtime in RUNTIMES.names():
            name = f"{runtime} for {machine or 'this machine'}"
            try:
                lines.append(f"{name}: {build_runner(runtime, machine).program}")
                built += 1
            except MsdcError as error:
                lines.append(f"{name}: not built: {' '.join(str(error).split())}")
    if not built:
        raise MsdcError("; ".join(lines))
    return lines


def run_file_name(run: DeviceRun) -> str:
    """`NAME-RUNTIME-PRECISION-DEVICE.json`, without what a file system or a shell would stumble over."""
    artifact = run.artifact
    stem = "-".join((artifact.bundle, artifact.runtime, artifact.precision, run.device.name, run.harness))
    return "".join(c if c.isalnum() or c in "-._" else "_" for c in stem) + ".json"


def run_job(job: BenchJob, out: Callable[[str], None]) -> BenchFile:
    """Measure, write everything that was asked for, print the table, then fail if something fell short.

    Raises:
        InputError: an output exists without force, a bad bundle, option, or imported file.
        MsdcError: a device failed; GateError: parity fell short or a timing rose. What was measured is written before.
    """
    from msdc.bench.compare import compare, regressions
    from msdc.bench.import_results import read_result, read_results
    from msdc.bench.report.build import build_report
    from msdc.bench.report.write import check_output, to_text, write_report

    to_stdout = job.json_file is not None and str(job.json_file) == "-"
    # Everything that can be refused is refused before minutes of measuring.
    if job.output is not None:
        check_output(job.output, job.force)
    if job.json_file is not None and not to_stdout:
        refuse_existing(job.json_file, job.force)
    if job.bundle is not None:
        open_devices(job.devices)
        longest = read_manifest(job.bundle).max_length
        if job.usual_lengths:
            job = replace(job, settings=job.settings.model_copy(update={"lengths": usual_lengths(longest)}))
    before = read_result(job.before) if job.before is not None else None
    imported = read_results(job.imports) if job.imports else BenchFile()
    done = bench(job.bundle, job.devices, job.settings) if job.bundle is not None else Benched()
    results = BenchFile(runs=(*done.runs, *imported.runs), models=imported.models)
    if results.runs or results.models:
        if to_stdout:
            out(json.dumps(results.model_dump(mode="json"), ensure_ascii=False))
        elif job.json_file is not None:
            write_json(job.json_file, results.model_dump(mode="json"))
        for run in done.runs if job.folder is not None else ():
            assert job.folder is not None
            target = job.folder / run_file_name(run)
            refuse_existing(target, job.force)
            write_json(target, run.model_dump(mode="json"))
        report = build_report(results, run_folder=job.run_folder, before=before, with_peers=job.peers)
        if not to_stdout:
            out(to_text(report))
        if job.output is not None:
            write_report(report, results, job.output, job.force)
            say(f"report: {job.output}")
    slower = regressions(compare(before, results), job.gate_percent) if before and job.gate_percent is not None else []
    raise_failures(done, slower)
    return results


def raise_failures(done: Benched, slower: Sequence[str]) -> None:
    """After everything is saved: fail when a device failed or a gate fell short.

    Raises:
        MsdcError: a device failed.
        GateError: parity fell short, or a timing rose.
    """
    if done.failures:
        raise MsdcError("; ".join(done.failures))
    short = [*parity_failures(done.runs), *slower]
    if short:
        raise GateError("; ".join(short))
