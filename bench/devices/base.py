"""The interface of a device: it runs a bundle under given settings and returns device runs.

The constructor takes what follows the colon of the device's name (`adb:SERIAL`, `emulator:a53`), or None, and does no
work. A device that fails raises `MsdcError` with one line and leaves nothing behind; results of the other devices are
kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from msdc.bench.result import DeviceRun
from msdc.bench.settings import BenchSettings
from msdc.bench.workload import Tasks, collect
from msdc.errors import InputError, MsdcError
from msdc.export.manifest import Manifest, check_files, read_manifest
from msdc.export.runtimes import RUNTIMES, RuntimeName


class Incomplete(MsdcError):
    """A device failed after it had measured something: `runs` are kept."""

    def __init__(self, line: str, runs: Sequence[DeviceRun]) -> None:
        super().__init__(line)
        self.runs = list(runs)


class Device(ABC):
    """A machine to measure on."""

    kind: str
    # Whether other work on this machine leaves its figures unchanged, so that it may run beside other such devices.
    undisturbed = False

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
            InputError: the bundle is damaged, lacks a requested runtime, or a length exceeds its longest input.
            MsdcError: the device failed; an `Incomplete` carries the runs that were finished before.
        """


def chosen_runtimes(programs: Sequence[str], settings: BenchSettings, bundle: Path) -> list[RuntimeName]:
    """The runtimes to measure, in the settings' order.

    Raises:
        InputError: a requested one is not in the bundle.
    """
    held: list[RuntimeName] = [name for name in RUNTIMES.names() if name in programs]
    if not held:
        raise InputError(f"{bundle}: the bundle holds no program")
    missing = [name for name in settings.runtimes if name not in held]
    if missing:
        raise InputError(f"{bundle}: no {missing[0]} program in it; export it with --runtime {missing[0]}")
    return list(settings.runtimes) or held


def check_lengths(max_length: int, settings: BenchSettings, bundle: Path) -> None:
    """Refuse a length the artifact cannot take.

    Raises:
        InputError: a length is longer than the bundle's longest input.
    """
    too_long = [length for length in settings.lengths if length > max_length]
    if too_long:
        raise InputError(f"{bundle}: length {too_long[0]} exceeds the bundle's longest input of {max_length} tokens")


def open_bundle(bundle: Path, settings: BenchSettings) -> tuple[Manifest, Tasks]:
    """The checked manifest and the tasks of a run.

    Raises:
        InputError: the bundle is damaged, a length exceeds its longest input, or a task's data is absent or bad.
    """
    manifest = read_manifest(bundle)
    check_files(bundle, manifest)
    check_lengths(manifest.max_length, settings, bundle)
    return manifest, collect(settings)
