"""The interface of a device: it runs a bundle under given settings and returns device runs.

The constructor takes what follows the colon of the device's name (`adb:SERIAL`, `emulator:a53`), or None, and does no
work. A device that fails raises `MsdcError` with one line and leaves nothing behind; results of the other devices are
kept.

Shapes: N golden texts, U texts of tasks, D sentence width.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from msdc.bench.measure import Tasks, artifact_of, collect, compare_golden, usual_lengths
from msdc.bench.options import BenchSettings
from msdc.bench.result import MAX_SAMPLES, Accuracy, DeviceRun, Sustained
from msdc.encoders.folder import with_prompt
from msdc.errors import InputError, MsdcError
from msdc.export.bundle import defaults_of, open_tokenizer
from msdc.export.golden import read_golden
from msdc.export.manifest import Manifest, check_files, read_manifest
from msdc.export.runtimes import RUNTIMES
from msdc.export.schema import RuntimeName
from msdc.extras import named_extras
from msdc.machine import core_count
from msdc.processes import kill_children
from msdc.progress import warn
from msdc.text.tokenizer import count_truncated


class Incomplete(MsdcError):
    """A device failed after it had measured something: `runs` are kept."""

    def __init__(self, line: str, runs: Sequence[DeviceRun]) -> None:
        super().__init__(line)
        self.runs = list(runs)


def collect_runs(runs: Iterable[DeviceRun]) -> list[DeviceRun]:
    """All `runs`; where one fails after others, they are in an `Incomplete`."""
    finished: list[DeviceRun] = []
    try:
        finished.extend(runs)
    except Exception as error:
        if not finished:
            raise
        raise Incomplete(_error_line(error), finished) from error
    return finished


def _error_line(error: Exception) -> str:
    """The line of one of our errors; of another one, what kind it is, too: a device's answers may break anything."""
    line = " ".join(str(error).split())
    if isinstance(error, MsdcError):
        return line
    return f"the run failed: {type(error).__name__}" + (f": {line[:200]}" if line else "")


class Device(ABC):
    """A machine to measure on."""

    kind: str
    # Whether other work on this machine leaves its figures unchanged, so that it may run next to other such devices.
    runs_in_parallel = False

    # Which one of its kind, in the user's words.
    label = ""

    def __init__(self, argument: str | None = None) -> None:
        self.argument = argument

    @property
    def spec(self) -> str:
        """The device's name with its argument, as in `--device`."""
        return self.kind if self.argument is None else f"{self.kind}:{self.argument}"

    @classmethod
    def available(cls) -> Sequence[str]:
        """Specs of devices that can be measured now without set-up (those of `--device all`)."""
        return ()

    @abstractmethod
    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """Measure each requested runtime of `bundle`; one result per artifact.

        Raises:
            InputError: the bundle or a setting is bad.
            MsdcError: the device failed; an `Incomplete` carries the runs that were finished before.
        """


@dataclass(frozen=True)
class Job:
    """One artifact of a checked bundle, with everything that does not depend on the device."""

    bundle: Path
    manifest: Manifest
    runtime: RuntimeName
    settings: BenchSettings
    tasks: Tasks

    @cached_property
    def golden(self) -> dict[str, Any]:
        """The bundle's golden texts, ids and vectors."""
        return read_golden(self.bundle)

    @cached_property
    def lengths(self) -> tuple[int, ...]:
        """Tokens of the timed rows."""
        return tuple(self.settings.lengths or usual_lengths(self.manifest.max_length))

    @cached_property
    def prompt(self) -> str:
        """The prompt before the tasks' texts; `InputError` for a name that the bundle lacks."""
        return defaults_of(self.manifest).prompt(self.settings.prompt, self.settings.prompt_name)

    @cached_property
    def width(self) -> int:
        """Numbers of a vector that the tasks score; `InputError` for more than the bundle's."""
        return defaults_of(self.manifest).width(self.manifest.width, self.settings.truncate_dim)

    @cached_property
    def texts(self) -> list[str]:
        """Texts of the tasks, without the prompt."""
        return self.tasks.texts()

    @cached_property
    def prompted(self) -> list[str]:
        """The same as the device receives them: the prompt before each."""
        return with_prompt(self.prompt, self.texts)

    def count_truncated(self, texts: Sequence[str]) -> int:
        """How many of the tasks' texts are longer, with the prompt, than the artifact reads."""
        tokenizer = open_tokenizer(self.bundle, self.manifest)
        return count_truncated(tokenizer, with_prompt(self.prompt, texts), self.manifest.max_length)

    def native_tokenizer(self) -> str:
        """The file that the native core reads; `InputError` with the reason where none was compiled at export."""
        if self.manifest.tokenizer.native_file is None:
            raise InputError(f"{self.bundle}: {self.manifest.tokenizer.no_native()}")
        return self.manifest.tokenizer.native_file

    def scored(self, ids: Sequence[Sequence[int]], golden_ND: np.ndarray, vectors_UD: np.ndarray) -> dict[str, Any]:
        """Artifact, parity and accuracy of a run whose device answered with ids and vectors."""
        name = f"{self.manifest.name} {self.runtime}"
        return {
            "artifact": artifact_of(self.bundle, self.manifest, self.runtime),
            "parity": compare_golden(self.golden, self.runtime, ids, golden_ND),
            "accuracy": self.tasks.score_vectors(name, self.texts, vectors_UD[:, : self.width], self.count_truncated),
            "float_accuracy": self.float_accuracy(),
        }

    def float_accuracy(self) -> tuple[Accuracy, ...]:
        """Scores of the float model that the bundle holds, where the settings ask for the bundle's prompt and width."""
        default = defaults_of(self.manifest)
        if (self.prompt, self.width) != (default.prompt(), default.width(self.manifest.width)):
            return ()
        return tuple(Accuracy(**score.model_dump()) for score in self.manifest.float_scores)


def open_jobs(bundle: Path, settings: BenchSettings) -> list[Job]:
    """One job per runtime that the settings name, in their order, or that the bundle holds."""
    bundle = bundle.resolve()
    manifest = read_manifest(bundle)
    check_files(bundle, manifest)
    if (most := max(settings.lengths or [0])) > manifest.max_length:
        raise InputError(f"{bundle}: length {most} exceeds the bundle's longest input of {manifest.max_length} tokens")
    held: list[RuntimeName] = [name for name in RUNTIMES.names() if name in manifest.runtimes]
    for name in settings.runtimes:
        if name not in held:
            raise InputError(f"{bundle}: no {name} program in it; export it with runtime {name}")
    tasks = collect(settings)
    jobs = [Job(bundle, manifest, runtime, settings, tasks) for runtime in settings.runtimes or held]
    # A name or a width that the bundle lacks is an error before anything is measured.
    _ = [(job.prompt, job.width) for job in jobs]
    return jobs


RunsAndFailures = tuple[list[DeviceRun], list[str]]


def run_devices(
    devices: Sequence[Device],
    bundle: Path,
    settings: BenchSettings,
    keep: Callable[[Sequence[DeviceRun]], None] = lambda runs: None,
) -> RunsAndFailures:
    """The runs of `bundle` on every device, and one line per device that failed.

    `keep` gets the runs of each device as soon as it is measured, from one thread at a time.

    A single device that measured nothing raises its own error. Else a failure is recorded and the others continue;
    whatever a device raises is its failure, since its answers are not under our control.
    """
    if settings.address is not None and not any(device.kind == "link" for device in devices):
        raise InputError("`address` is for device link, which is not requested")
    if settings.cool_below is not None and not any(device.kind == "adb" for device in devices):
        raise InputError("`cool_below` is for device adb, which is not requested")
    lock = Lock()

    def measured(device: Device) -> RunsAndFailures:
        runs, lines = _run(device, bundle, settings)
        with lock:
            keep(runs)
        return runs, lines

    if len(devices) == 1:
        return measured(devices[0])

    def attempt(device: Device) -> RunsAndFailures:
        try:
            return measured(device)
        except MsdcError as error:
            failure = _line(device, error)
            warn(f"failed on {failure}")
            return [], [failure]

    # Devices that measure time run one after another, undisturbed; those that count instructions run in parallel after.
    outcomes = {device: attempt(device) for device in devices if not device.runs_in_parallel}
    counting = [device for device in devices if device.runs_in_parallel]
    with ThreadPoolExecutor(max_workers=core_count()) as pool:
        try:
            outcomes |= dict(zip(counting, pool.map(attempt, counting), strict=True))
        except BaseException:
            # Interrupted or terminated: the threads wait for machines, which must end first.
            pool.shutdown(wait=False, cancel_futures=True)
            kill_children()
            raise
    results = [outcomes[device] for device in devices]
    lines = [line for _, failures in results for line in failures]
    runs = [run for runs, _ in results for run in runs]
    return runs, [*lines, *_indistinguishable([(device, outcomes[device][0]) for device in devices])]


def _indistinguishable(measured: Sequence[tuple[Device, Sequence[DeviceRun]]]) -> list[str]:
    """One line per phone whose runs cannot be distinguished from another's of the same name."""
    device_by_identity: dict[tuple[str, str, str], Device] = {}
    lines = []
    for device, runs in measured:
        for run in runs[:1] if device.kind == "adb" else ():
            identity = (run.device.kind, run.device.name, run.device.identity)
            earlier = device_by_identity.setdefault(identity, device)
            if earlier is not device:
                lines.append(f"{earlier.spec} and {device.spec} have one name and serial number: give them labels "
                             f"({device.spec}=LABEL)")  # fmt: skip
    return lines


def _line(device: Device, error: Exception) -> str:
    return f"{device.spec}: {_error_line(error)}"


def _sustained(device: Device, bundle: Path, settings: BenchSettings, run: DeviceRun) -> DeviceRun:
    """`run` with medians of each second of a second run without a pause, as long as the settings ask."""
    if not settings.sustain_s or not run.latency or run.clock != "wall":
        return run
    timing = run.latency[len(run.latency) // 2]
    if run.harness == "browser":
        warn(f"{device.spec}: no sustained load: a browser measures by its own plan")
        return run
    # More calls than fit: the device ends them in time. A runner that you built earlier makes them all.
    calls = min(MAX_SAMPLES, max(1, math.ceil(2000 * settings.sustain_s / max(timing.minimum, 1e-3))))
    again = settings.model_copy(
        update={
            "runtime": run.artifact.runtime, "lengths": (timing.length,), "runs": calls, "tasks": (), "warmup": 0,
            "stop_after_s": settings.sustain_s,
            "from_text": False, "cooldown_s": 0.0, "timeout_s": settings.timeout_s + 10 * settings.sustain_s,
        }
    )  # fmt: skip
    (steady,) = device.run(bundle, again)
    seconds: dict[int, list[float]] = {}
    for end, ms in zip(np.cumsum(steady.latency[0].samples), steady.latency[0].samples, strict=True):
        seconds.setdefault(int(end // 1000), []).append(ms)
    medians = tuple(round(float(np.median(part)), 6) for _, part in sorted(seconds.items()))
    # The last second is not full.
    medians = medians[:-1] if len(medians) > 1 else medians
    load = Sustained(length=timing.length or 1, medians=medians, before=steady.state_before, after=steady.state_after)
    return run.model_copy(update={"sustained": load})


def _run(device: Device, bundle: Path, settings: BenchSettings) -> RunsAndFailures:
    """Results of one device; an exception that is not one of ours becomes its `MsdcError`."""
    failures: list[str] = []
    try:
        with named_extras(f"device {device.kind}"):
            runs = list(device.run(bundle, settings))
    except Incomplete as error:
        runs, failures = error.runs, [_line(device, error)]
    except MsdcError:
        raise
    except Exception as error:
        raise MsdcError(_line(device, error)) from error
    for position, run in enumerate(runs):
        if device.label:
            runs[position] = run = run.model_copy(
                update={"device": run.device.model_copy(update={"identity": device.label})}
            )
        try:
            runs[position] = _sustained(device, bundle, settings, run)
        except Exception as error:
            failures.append(f"{_line(device, error)} (under sustained load)")
    return runs, failures
