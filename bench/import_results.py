"""Results measured elsewhere: an iPhone, a device farm, the log of an Android benchmark.

Required is JSON with `artifact` {bundle, runtime, precision, file, bytes, sha256}, `device` {name, cpu, cores,
memory_mib} and `latency` [{length, samples_ms}]; percentiles are computed here from the samples. Other fields of a
device run are optional. A file in our own format is read as it is.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from msdc.bench.result import (
    Accuracy,
    Artifact,
    BenchFile,
    DeviceInfo,
    DeviceParity,
    DeviceRun,
    Memory,
    ModelScores,
    Sample,
    make_timing,
    parse_result,
)
from msdc.errors import InputError
from msdc.files import read_json


class ForeignTiming(BaseModel):
    """Raw samples; a percentile beside them is ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    length: int | None = Field(default=None, ge=1, le=1_000_000)
    warmup: int = Field(default=0, ge=0, le=1e12)
    samples_ms: tuple[Sample, ...] = Field(min_length=1, max_length=1_000_000)


class ForeignDevice(BaseModel):
    """A device that this project cannot measure itself."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False)

    name: str
    cpu: str = ""
    isa: tuple[str, ...] = ()
    cores: int | None = Field(default=None, ge=1, le=1_000_000)
    memory_mib: float | None = Field(default=None, ge=0, le=1e12)
    os: str = ""


class ForeignRun(BaseModel):
    """The fields of a result from elsewhere; unknown keys are refused, so that a misspelt key is not ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    artifact: Artifact
    device: ForeignDevice
    latency: tuple[ForeignTiming, ...] = Field(min_length=1)
    tokenize: ForeignTiming | None = None
    pipeline: ForeignTiming | None = None
    created: str | None = None
    threads: int = Field(default=1, ge=1, le=1_000_000)
    versions: dict[str, str] = Field(default_factory=dict)
    load_ms: Sample | None = None
    init_ms: Sample | None = None
    first_ms: Sample | None = None
    memory: Memory | None = None
    parity: DeviceParity | None = None
    accuracy: tuple[Accuracy, ...] = ()
    notes: tuple[str, ...] = ()

    def to_run(self) -> DeviceRun:
        """As a device run, marked imported, percentiles computed."""

        def timing(t: ForeignTiming | None) -> Any:
            return None if t is None else make_timing(t.samples_ms, warmup=t.warmup, length=t.length)

        return DeviceRun(
            created=self.created or datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            origin="imported",
            harness="other",
            artifact=self.artifact,
            device=DeviceInfo(kind="other", **self.device.model_dump()),
            versions=self.versions,
            threads=self.threads,
            load_ms=self.load_ms,
            init_ms=self.init_ms,
            first_ms=self.first_ms,
            latency=tuple(timing(t) for t in self.latency),
            tokenize=timing(self.tokenize),
            pipeline=timing(self.pipeline),
            memory=self.memory,
            parity=self.parity,
            accuracy=self.accuracy,
            notes=self.notes,
        )


def read_result(path: Path) -> BenchFile:
    """A result file of ours, or one from elsewhere.

    Raises:
        InputError: neither; names the first field that does not fit.
    """
    raw = read_json(path)
    if isinstance(raw, dict) and "kind" in raw:
        return parse_result(raw, str(path))
    rows = raw if isinstance(raw, list) else [raw]
    try:
        return BenchFile(runs=tuple(ForeignRun.model_validate(row).to_run() for row in rows))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "result"
        hint = "a result from elsewhere needs artifact, device, latency"
        raise InputError(f"{path}: {where}: {first['msg']} ({hint})") from error


def result_files(paths: Sequence[Path]) -> list[Path]:
    """The named files, and the `*.json` files of the named folders.

    Raises:
        InputError: a folder without results, or no file named.
    """
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.json"))
            if not inside:
                raise InputError(f"{path}: no result file (*.json) in this folder")
            files += inside
        else:
            files.append(path)
    if not files:
        raise InputError("no result file named")
    return files


def read_results(paths: Sequence[Path]) -> BenchFile:
    """The results of several files and folders as one; duplicate runs are dropped.

    Raises:
        InputError: a file that is not a result, a folder without results, or no file named.
    """
    files = result_files(paths)
    runs: dict[str, DeviceRun] = {}
    models: dict[str, ModelScores] = {}
    for path in files:
        found = read_result(path)
        runs |= {run.model_dump_json(): run for run in found.runs}
        models |= {model.model_dump_json(): model for model in found.models}
    return BenchFile(runs=tuple(runs.values()), models=tuple(models.values()))
