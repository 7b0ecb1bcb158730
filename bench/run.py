"""Measure one bundle on several devices; results of one device are kept when another fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from msdc.bench.devices.base import Device, Incomplete
from msdc.bench.devices.registry import open_devices
from msdc.bench.measure import PARITY_GATE, SINGLE_GATE, vectors_agree
from msdc.bench.result import BenchFile, DeviceRun, read_result, read_results
from msdc.bench.settings import BenchSettings, usual_lengths
from msdc.errors import GateError, InputError, MsdcError
from msdc.export.manifest import read_manifest
from msdc.export.runtimes import RUNTIMES
from msdc.extras import named_extras
from msdc.files import refuse_existing, write_json
from msdc.machine import usable_cores
from msdc.processes import kill_children
from msdc.progress import say, warn


@dataclass(frozen=True)
class BenchRequest:
    """One `msdc bench`: what to measure, what to compare it with, what to write.

    `usual_lengths`: measure 8, 32 and 128 tokens, limited by the artifact's longest input, instead of the settings'
    lengths. `gate_percent`: fail when a timing is more than this percentage above that of `before`.
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
class BenchOutcome:
    """The runs, and one line per device that failed."""

    runs: list[DeviceRun] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def bench(bundle: Path, devices: str, settings: BenchSettings) -> BenchOutcome:
    """Run `bundle` on every device of the comma-separated list.

    A single device that measured nothing raises its own error. Else a failure is recorded and the others continue;
    whatever a device raises is its failure, since its answers are not under our control.

    Raises:
        InputError: an unknown device; or the only device's input error.
        MsdcError: the only device failed.
    """
    opened = open_devices(devices)
    _check_link_options(opened, settings)
    if len(opened) == 1:
        return _run(opened[0], bundle, settings)

    def attempt(device: Device) -> BenchOutcome:
        try:
            return _run(device, bundle, settings)
        except MsdcError as error:
            failure = f"{device.spec}: {' '.join(str(error).split())}"
            warn(f"failed on {failure}")
            return BenchOutcome(failures=[failure])

    # Devices that measure time run one after another, undisturbed; those that count instructions run in parallel after.
    outcomes = {device: attempt(device) for device in opened if not device.undisturbed}
    counting = [device for device in opened if device.undisturbed]
    with ThreadPoolExecutor(max_workers=len(usable_cores())) as pool:
        try:
            outcomes |= dict(zip(counting, pool.map(attempt, counting), strict=True))
        except BaseException:
            # Interrupted or terminated: the threads wait for machines, which must end first.
            pool.shutdown(wait=False, cancel_futures=True)
            kill_children()
            raise
    done = BenchOutcome()
    for device in opened:
        done.runs += outcomes[device].runs
        done.failures += outcomes[device].failures
    return done


def _check_link_options(devices: Sequence[Device], settings: BenchSettings) -> None:
    asked = {"--address": settings.address is not None, "--tls": settings.tls, "--expect": settings.expect != 1}
    named = [name for name, given in asked.items() if given]
    if named and not any(device.kind == "link" for device in devices):
        raise InputError(f"{named[0]} belongs to --device link, which is not asked for")


def _run(device: Device, bundle: Path, settings: BenchSettings) -> BenchOutcome:
    """Results of one device; an exception that is not one of ours becomes its `MsdcError`."""
    try:
        with named_extras(f"--device {device.kind}"):
            return BenchOutcome(runs=device.run(bundle, settings))
    except Incomplete as error:
        return BenchOutcome(error.runs, [f"{device.spec}: {' '.join(str(error).split())}"])
    except MsdcError:
        raise
    except Exception as error:
        word = " ".join(str(error).split())[:200]
        what = type(error).__name__ + (f": {word}" if word else "")
        raise MsdcError(f"{device.spec}: the run failed: {what}") from error


def parity_failures(runs: Sequence[DeviceRun]) -> list[str]:
    """One line per run whose golden vectors or token ids differ from those of the export."""
    found = []
    for run in runs:
        if run.parity is None:
            continue
        golden = run.parity
        if not vectors_agree(golden):
            mean, least = f"{golden.mean_cosine:.4f}", f"{golden.min_cosine:.4f}"
            gates = f"(gates {PARITY_GATE} and {SINGLE_GATE:.3g})"
            found.append(f"{run.title}: golden vectors agree only to mean cosine {mean}, lowest {least} {gates}")
        if not golden.ids_equal:
            found.append(f"{run.title}: {len(golden.ids_differ)} golden texts get other token ids")
    return found


def build_runners(machines: Sequence[str | None] = (None, "aarch64")) -> list[str]:
    """Build the native runner of every runtime for this machine (None) and for devices, also where one is in the cache.

    Returns one line per runner.

    Raises:
        MsdcError: none could be built; says what is missing.
    """
    from msdc.bench.toolchain.build import build_runner

    lines, built = [], 0
    for machine in machines:
        for runtime in RUNTIMES.names():
            name = f"{runtime} for {machine or 'this machine'}"
            try:
                lines.append(f"{name}: {build_runner(runtime, machine, force=True).program}")
                built += 1
            except MsdcError as error:
                lines.append(f"{name}: not built: {' '.join(str(error).split())}")
    if not built:
        raise MsdcError("; ".join(lines))
    return lines


def run_file_name(run: DeviceRun) -> str:
    """`NAME-RUNTIME-PRECISION-DEVICE.json`, other characters replaced by "_"."""
    artifact = run.artifact
    stem = "-".join((artifact.bundle, artifact.runtime, artifact.precision, run.device.name, run.harness))
    return "".join(c if c.isalnum() or c in "-._" else "_" for c in stem) + ".json"


def run_bench(request: BenchRequest, out: Callable[[str], None]) -> BenchFile:
    """Measure, write every requested file, print the table, then fail when a device or a gate failed.

    Raises:
        InputError: an output exists without force, a bad bundle, option, or imported file.
        MsdcError: a device failed.
        GateError: parity or a timing misses its gate. Results are written before either is raised.
    """
    from msdc.bench.compare import compare_results, regressions
    from msdc.bench.report.page import build_report, check_output, to_text, write_report

    to_stdout = request.json_file is not None and str(request.json_file) == "-"
    # Fail early: everything that can be checked is checked before minutes of measuring.
    if request.output is not None:
        check_output(request.output, request.force)
    if request.json_file is not None and not to_stdout:
        refuse_existing(request.json_file, request.force)
    if request.bundle is not None:
        open_devices(request.devices)
        longest = read_manifest(request.bundle).max_length
        if request.usual_lengths:
            request = replace(request, settings=request.settings.model_copy(update={"lengths": usual_lengths(longest)}))
    before = read_result(request.before) if request.before is not None else None
    imported = read_results(request.imports) if request.imports else BenchFile()
    done = bench(request.bundle, request.devices, request.settings) if request.bundle is not None else BenchOutcome()
    results = BenchFile(runs=(*done.runs, *imported.runs), models=imported.models)
    if results.runs or results.models:
        if to_stdout:
            out(json.dumps(results.model_dump(mode="json"), ensure_ascii=False))
        elif request.json_file is not None:
            write_json(request.json_file, results.model_dump(mode="json"))
        for run in done.runs if request.folder is not None else ():
            assert request.folder is not None
            target = request.folder / run_file_name(run)
            refuse_existing(target, request.force)
            write_json(target, run.model_dump(mode="json"))
        report = build_report(results, run_folder=request.run_folder, before=before, with_peers=request.peers)
        if not to_stdout:
            out(to_text(report))
        if request.output is not None:
            write_report(report, request.output, request.force)
            say(f"report: {request.output}")
    slower = (
        regressions(compare_results(before, results), request.gate_percent)
        if before and request.gate_percent is not None
        else []
    )
    raise_failures(done, slower)
    return results


def raise_failures(done: BenchOutcome, slower: Sequence[str]) -> None:
    """Called after everything is saved: raise when a device failed or a gate is missed.

    Raises:
        MsdcError: a device failed.
        GateError: parity or a timing misses its gate.
    """
    if done.failures:
        raise MsdcError("; ".join(done.failures))
    short = [*parity_failures(done.runs), *slower]
    if short:
        raise GateError("; ".join(short))
