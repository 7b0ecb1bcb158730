"""What every device is to the bench: something that runs a bundle under given settings and returns device runs.

A device's constructor takes what follows the colon of its name (`adb:SERIAL`, `emulator:a53`), or None, and does no
work; `run` does. A device that fails raises `MsdcError` with one line and leaves nothing behind; the bench keeps the
results of the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, field_validator

from bench.result import DeviceRun, Runtime
from msdc.errors import InputError

RUNTIMES: tuple[Runtime, ...] = ("executorch", "onnx")
USUAL_LENGTHS = (8, 32, 128)


def usual_lengths(longest: int) -> tuple[int, ...]:
    """8, 32 and 128 tokens, as far as an artifact reads; its longest input in place of those beyond."""
    return tuple(sorted({min(length, longest) for length in USUAL_LENGTHS}))


class BenchSettings(BaseModel):
    """What to measure. The same for every device, so that their numbers stand beside each other."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    runtimes: tuple[Runtime, ...] = Field(default=(), description="empty: every program the bundle holds")
    lengths: tuple[int, ...] = Field(default=USUAL_LENGTHS, min_length=1, description="tokens with special ids")
    runs: int = Field(default=100, ge=1, le=100_000, description="timed runs per length")
    warmup: int = Field(default=10, ge=0, le=10_000, description="untimed runs before them, per length")
    threads: int = Field(default=1, ge=1, le=256)
    tasks: tuple[str, ...] = Field(default=(), description="graded-pairs, sts17, sts=FILE; scored on device vectors")
    tasks_asked: bool = Field(default=True, description="false: nobody named them, so a slow device leaves them out")
    data: Path | None = Field(default=None, description="folder of the named tasks' files")
    timeout_s: float = Field(default=900.0, gt=0, description="per artifact")
    cooldown_s: float = Field(default=0.0, ge=0, description="pause between artifacts and lengths, for phones")
    affinity: tuple[int, ...] = Field(default=(), description="CPU numbers to stay on; empty: any")
    runner: Path | None = Field(default=None, description="a native runner built by the user, for native devices")
    progress: bool = False

    @field_validator("lengths")
    @classmethod
    def _lengths(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(length < 2 for length in value):
            raise ValueError("a length counts the two special ids, so it is at least 2")
        return tuple(sorted(set(value)))


class Device(ABC):
    """One place to measure."""

    kind: str
    # Whether its figures stay the same whatever else this machine does, so that it may run beside other such devices.
    undisturbed = False

    def __init__(self, argument: str | None = None) -> None:
        self.argument = argument

    @property
    def spec(self) -> str:
        """The name the user gave, as in `--device`."""
        return self.kind if self.argument is None else f"{self.kind}:{self.argument}"

    @classmethod
    def available(cls) -> Sequence[str]:
        """Specs that can be measured now without set-up (what `--device all` takes)."""
        return ()

    @abstractmethod
    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """Measure each asked runtime of `bundle`: one result per artifact.

        Raises:
            InputError: the bundle is damaged, lacks an asked runtime, or a length is past its longest input.
            MsdcError: the device failed.
        """


def chosen_runtimes(programs: Sequence[str], settings: BenchSettings, bundle: Path) -> list[Runtime]:
    """The runtimes to measure, in the settings' order.

    Raises:
        InputError: an asked one is not in the bundle.
    """
    held: list[Runtime] = [name for name in RUNTIMES if name in programs]
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
        raise InputError(f"{bundle}: length {too_long[0]} is past the bundle's longest input of {max_length} tokens")
