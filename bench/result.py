"""Results: what was measured of one artifact on one device, where every number comes from, and the files of them.

One `DeviceRun` per artifact and device. A `BenchFile` holds several runs and the scores of float models (teacher,
assistant, student); a report is made from it. Units are in the field names; a `Timing` names its unit, because a device
whose clock counts instructions has no times.

Results measured elsewhere (an iPhone, a device farm, the log of an Android benchmark) are read too: JSON with
`artifact` {bundle, runtime, precision, file, bytes, sha256}, `device` {name, cpu, cores, memory_mib} and
`latency` [{length, samples_ms}]; other fields of a device run are optional.
"""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from msdc.errors import InputError, first_problem
from msdc.export.schema import RuntimeName
from msdc.files import read_json, without_system_files

FORMAT = 2
# The first words marked results of a link before its devices had a kind of their own.
LINK_NOTE = "measured on a phone or computer through its link; its own description of itself is not verified"
Clock = Literal["wall", "instructions"]
Unit = Literal["ms", "instructions"]
UNITS: dict[Clock, Unit] = {"wall": "ms", "instructions": "instructions"}
# 1e15 ms are 30,000 years; what is larger overflows when it is added up.
Sample = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Natural = Annotated[int, Field(ge=0, le=2**63 - 1)]
Nonzero = Annotated[int, Field(ge=1, le=2**63 - 1)]
Mib = Annotated[float, Field(ge=0, le=1e12)]
Cosine = Annotated[float, Field(ge=-1.001, le=1.001)]
MAX_SAMPLES = 1_000_000


def _utc(created: str) -> str:
    """A date and time in UTC, so that times of several zones are ordered; one without a zone is in UTC."""
    try:
        moment = datetime.datetime.fromisoformat(created)
        moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)
        return moment.astimezone(datetime.UTC).isoformat()
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{created[:40]!r} is not a date and time such as 2026-01-02T03:04:05+00:00") from error


Moment = Annotated[str, AfterValidator(_utc)]


class Record(BaseModel):
    """Base of all parts: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Artifact(Record):
    """The measured file. `bytes` counts the program with its external data; `bundle` is the bundle's name."""

    bundle: str
    runtime: RuntimeName
    precision: str
    file: str
    bytes: Natural
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    parameters: Natural | None = None
    bundle_bytes: Natural | None = Field(default=None, description="every file of the bundle that the device needs")
    compressed_bytes: Natural | None = Field(default=None, description="the same, as stores and servers compress it")
    delegated_share: float | None = Field(default=None, ge=0, le=1, description="of operators, inside the delegate")


# What `hash_serial` gives; any other identity is a label that a user chose.
HASH = re.compile(r"[0-9a-f]{8}")


def hash_serial(serial: str) -> str:
    """The identity of a device with this serial number: 8 hex digits, of which no serial number can be derived, since
    many have the same."""
    return hashlib.sha256(f"msdc device {serial}".encode()).hexdigest()[:8]


class DeviceInfo(Record):
    """The machine. `isa` lists the instruction sets that matter to int8 kernels (avx2, avx512_vnni, asimddp, i8mm)."""

    name: str
    kind: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}$", description="a device of msdc bench, or other")
    cpu: str = ""
    isa: tuple[str, ...] = ()
    cores: Nonzero | None = Field(default=None, description="None: unknown")
    memory_mib: Mib | None = Field(default=None, description="None: unknown")
    os: str = ""
    emulated: bool = False
    identity: str = Field(
        default="", max_length=100,
        description="which one of its kind: a label, or 8 hex digits of a hash of its serial number; empty: unknown",
    )  # fmt: skip


class DeviceState(Record):
    """Battery, temperatures and frequencies; None where the device does not report them.

    Per processor of `cpus` (empty: of all, from 0 on) `cpu_mhz` is its frequency, `cpu_limit_mhz` what the system
    allows now, `cpu_top_mhz` its highest. A processor that is switched off has none.
    During a run temperatures and frequencies are the highest that were seen, limits the lowest.
    """

    battery_percent: float | None = None
    battery_c: float | None = None
    charging: bool | None = None
    thermal_c: dict[str, float] = Field(default_factory=dict)
    cpus: tuple[Natural, ...] = ()
    cpu_mhz: tuple[float, ...] = ()
    cpu_limit_mhz: tuple[float, ...] = ()
    cpu_top_mhz: tuple[float, ...] = ()
    power_save: bool | None = Field(default=None, description="the system's battery saver is on")
    thermal_status: int | None = Field(default=None, description="Android's, 0 (none) to 6 (shutdown)")
    load_1min: float | None = Field(default=None, description="load average: other work on the machine")
    unreadable: tuple[str, ...] = Field(default=(), description="what was asked for and is not reported")


# Of the median. An idle machine stays under 10 %; other work on it, or heat, spreads them over half of the median.
NOISY = 0.25


def moments(created: Sequence[str]) -> list[str]:
    """Dates and times to the minute; to the second where two of them would read the same."""
    digits = 16 if len({moment[:16] for moment in created}) == len(set(created)) else 19
    return [moment[:digits].replace("T", " ") for moment in created]


def percentile(samples: Sequence[float], percent: float) -> float:
    """Linear interpolation between the two nearest ranks (numpy's default, R type 7)."""
    return float(np.percentile(np.asarray(samples, dtype=np.float64), percent))


class Timing(Record):
    """Raw samples in order of measurement, without warm-up runs: milliseconds, or executed instructions."""

    unit: Unit = "ms"
    length: Nonzero | None = Field(default=None, description="tokens with special ids; None for text in, vector out")
    warmup: Natural = 0
    samples: tuple[Annotated[Sample, AfterValidator(lambda sample: round(sample, 6))], ...] = Field(
        min_length=1, max_length=MAX_SAMPLES
    )

    @property
    def p50(self) -> float:
        """Median."""
        return percentile(self.samples, 50)

    @property
    def p90(self) -> float:
        """90th percentile."""
        return percentile(self.samples, 90)

    @property
    def p99(self) -> float:
        """99th percentile."""
        return percentile(self.samples, 99)

    @property
    def minimum(self) -> float:
        """Smallest sample."""
        return min(self.samples)

    @property
    def spread(self) -> float:
        """Distance of the 10th and the 90th percentile, relative to the median; single peaks do not count."""
        return (self.p90 - percentile(self.samples, 10)) / self.p50 if self.p50 else 0.0

    @property
    def noisy(self) -> bool:
        """Whether the spread of these times shows a noisy machine; counted instructions are not times."""
        return self.unit == "ms" and self.spread > NOISY


class Sustained(Record):
    """The same input without a pause: heat slows a phone down after seconds. Medians of each second, in ms."""

    length: Nonzero
    medians: tuple[Sample, ...] = Field(min_length=1, max_length=100_000)
    before: DeviceState | None = None
    after: DeviceState | None = None

    @property
    def ratio(self) -> float | None:
        """The last full second to the first; None where the first took no time."""
        return self.medians[-1] / self.medians[0] if self.medians[0] else None


class MemoryPhase(Record):
    """VmHWM of /proc/self/status; the others from smaps_rollup. PSS divides shared pages among the processes.

    Outside Linux PSS is None, and a note of the run states what replaces the others.
    """

    vmhwm_mib: Mib
    pss_mib: Mib | None
    anon_mib: Mib
    file_mib: Mib
    swap_mib: Mib | None = Field(default=None, description="on disk or in zram, divided as PSS; None: not reported")

    @property
    def process_mib(self) -> float:
        """Anonymous pages, swapped ones included: a phone under memory pressure takes those from the resident ones."""
        return self.anon_mib + (self.swap_mib or 0.0)

    @property
    def total_mib(self) -> float:
        """All pages of the process, resident or swapped."""
        return self.process_mib + self.file_mib


class Memory(Record):
    """Before the artifact is opened, after loading it, and after all timed runs."""

    start: MemoryPhase
    loaded: MemoryPhase
    warm: MemoryPhase


class DeviceParity(Record):
    """Golden vectors on this device against those of the export and (`float_mean_cosine`, ...) of the float model."""

    texts: Natural
    mean_cosine: Cosine
    min_cosine: Cosine
    float_mean_cosine: Cosine | None = None
    float_min_cosine: Cosine | None = None
    ids_equal: bool
    ids_differ: tuple[int, ...] = Field(default=(), description="indices of golden texts whose ids differ")


class BrowserFacts(Record):
    """The browser that ran the program; None: unknown. `cold_ms`: medians of the first calls, by length in tokens."""

    engine: str = Field(max_length=100)
    version: str | None = Field(default=None, max_length=100)
    agent: str = Field(max_length=1000)
    secure_context: bool
    isolated: bool = Field(description="cross-origin isolated: the runtime may have threads, clocks are finer")
    worker: bool
    clock_step_ms: Sample = Field(description="smallest step that the page's clock was seen to make")
    claimed_cores: int | None = Field(default=None, ge=1, le=2**20, description="as the browser reports")
    claimed_memory_gib: float | None = Field(default=None, ge=0, le=2**20, description="the same, rounded by it")
    calls_per_sample: dict[str, int] = Field(default_factory=dict, description="calls that one sample is the mean of")
    cold_ms: dict[str, Sample] = Field(default_factory=dict)
    golden_sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of the golden vectors, to compare browsers")
    heap_loaded_mib: Mib
    heap_warm_mib: Mib
    renderer_pss_mib: Mib | None = Field(default=None, description="of the page's process")


class Accuracy(BaseModel):
    """Scores of one task; tasks add fields of their own (intervals, counts)."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    task: str
    name: str
    spearman: float | None = None
    pairs: int | None = None
    truncated: int | None = Field(default=None, description="distinct texts that the model read only in part")


class Cluster(Record):
    """Processors of one top frequency."""

    cpus: tuple[Natural, ...]
    top_mhz: float


class FixedPerformance(Record):
    """Android's fixed performance mode: clocks that the phone holds for long, of all its apps."""

    enabled: bool = Field(description="False: the phone refused it")
    limit_mhz: tuple[float, ...] = Field(default=(), description="per processor, what the mode allows it")


class Conditions(Record):
    """Under what a run was measured. `cpus` are those that the system let the runner use, as it reported them back."""

    cpus: tuple[Natural, ...] = ()
    pinned: bool = Field(default=False, description="whether CPUs were requested")
    cooldown_s: float = 0.0
    cool_below_c: float | None = None
    clusters: tuple[Cluster, ...] = Field(default=(), description="the fastest first; empty: unknown")
    fixed_performance: FixedPerformance | None = Field(default=None, description="None: the system has no such mode")

    @property
    def pinned_to(self) -> str:
        """The CPUs that were requested and given, as words of a place: "CPUs 4,5"; empty: none were requested."""
        return f"CPUs {','.join(map(str, self.cpus))}" if self.pinned else ""


class DeviceRun(Record):
    """One artifact on one device. `load`, `init` and `first` are in the clock's unit: milliseconds or instructions."""

    format: Literal[2] = 2
    kind: Literal["device-run"] = "device-run"
    created: Moment = Field(default_factory=lambda: datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
    origin: Literal["measured", "imported"] = "measured"
    harness: Literal["python", "native", "browser", "other"] = Field(
        description="what called the runtime on the device"
    )
    artifact: Artifact
    device: DeviceInfo
    versions: dict[str, str] = Field(default_factory=dict)
    threads: Nonzero
    clock: Clock = "wall"
    load: Sample | None = Field(default=None, description="opening the program")
    init: Sample | None = Field(default=None, description="opening the tokenizer")
    first: Sample | None = Field(default=None, description="the first run")
    latency: tuple[Timing, ...] = ()
    tokenize: Timing | None = None
    pipeline: Timing | None = Field(default=None, description="text to vector")
    memory: Memory | None = None
    parity: DeviceParity | None = None
    browser: BrowserFacts | None = None
    accuracy: tuple[Accuracy, ...] = ()
    float_accuracy: tuple[Accuracy, ...] = Field(default=(), description="of the float model, as the bundle kept it")
    sustained: Sustained | None = None
    conditions: Conditions | None = None
    state_before: DeviceState | None = None
    state_during: DeviceState | None = None
    state_after: DeviceState | None = None
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_clock(self) -> DeviceRun:
        timings = [*self.latency, *(t for t in (self.tokenize, self.pipeline) if t is not None)]
        if any(timing.unit != UNITS[self.clock] for timing in timings):
            raise ValueError(f"a timing is not in the unit of the run's clock ({self.clock})")
        if self.clock == "instructions" and not self.device.emulated:
            raise ValueError("only an emulated device counts instructions")
        return self

    @property
    def pinned_to(self) -> str:
        """The CPUs that the run was restricted to, as words of a place: "CPUs 4,5"; empty: to none."""
        return "" if self.conditions is None else self.conditions.pinned_to

    @property
    def title(self) -> str:
        """Short name for tables and legends."""
        device = self.device.name + (f" [{self.device.identity}]" if self.device.identity else "")
        return f"{self.artifact.bundle} {self.artifact.runtime} {self.artifact.precision} on {device}"


class ModelScores(Record):
    """Sizes and scores of a float model, shown next to the artifacts: teacher, assistant, student or another."""

    role: Literal["teacher", "assistant", "student", "peer", "other"]
    name: str
    parameters: Natural
    embedding_parameters: Natural | None = None
    encoder_parameters: Natural | None = None
    bytes: Natural | None = Field(default=None, description="bytes of its weights on disk")
    accuracy: tuple[Accuracy, ...] = ()


class BenchFile(Record):
    """What `msdc bench --json` writes and `msdc report` reads."""

    format: Literal[2] = 2
    kind: Literal["bench"] = "bench"
    runs: tuple[DeviceRun, ...] = ()
    models: tuple[ModelScores, ...] = ()


def _same_name(run: DeviceRun, among: Iterable[DeviceRun]) -> set[str]:
    """The known identities of devices that have the kind and name of that of `run`."""
    names = (run.device.kind, run.device.name)
    return {other.device.identity for other in among if (other.device.kind, other.device.name) == names} - {""}


def device_key(run: DeviceRun, among: Iterable[DeviceRun]) -> tuple[str, str, str]:
    """Which device a run was measured on: kind, name and identity.

    Older results have no identity: where the results `among` know only one device of that name, all are of it.
    """
    identities = _same_name(run, among) | {run.device.identity} - {""}
    return run.device.kind, run.device.name, run.device.identity if len(identities) > 1 else ""


def device_name(run: DeviceRun, among: Iterable[DeviceRun]) -> str:
    """The device's name with its label; with its hash where the results `among` have several devices of that name."""
    identity = run.device.identity
    if HASH.fullmatch(identity) and not device_key(run, among)[2]:
        return run.device.name
    return run.device.name + (f" [{identity}]" if identity else "")


def _timing(raw: Any) -> Any:
    """A timing measured elsewhere: `samples_ms`; its percentiles are computed here."""
    if not isinstance(raw, dict):
        return raw
    timing = {"unit": "ms", "samples": raw.get("samples_ms")}
    return timing | {key: raw[key] for key in ("length", "warmup") if key in raw}


def _imported(raw: Any) -> Any:
    """A run measured elsewhere as one of ours; `latency` is required, other keys of a device are ignored."""
    if not isinstance(raw, dict):
        return raw
    run = {"threads": 1, "latency": None, **raw, "format": FORMAT}
    for name in ("load", "init", "first"):
        run[name] = run.pop(f"{name}_ms", None)
    if isinstance(run["latency"], list):
        run["latency"] = [_timing(timing) for timing in run["latency"]]
    run |= {name: _timing(run[name]) for name in ("tokenize", "pipeline") if name in run}
    run |= {"origin": "imported", "harness": "other", "clock": "wall"}
    if isinstance(device := run.get("device"), dict):
        fields = {name: device[name] for name in DeviceInfo.model_fields if name in device}
        run["device"] = {**fields, "kind": "other", "emulated": False}
    return run


def parse_result(raw: Any, where: str) -> BenchFile:
    """A `BenchFile` from parsed JSON: of ours, one run, or runs from elsewhere."""
    ours = isinstance(raw, dict) and "kind" in raw
    if ours and raw["kind"] not in ("bench", "device-run"):
        raise InputError(f'{where}: not a result file (no "kind": "bench" or "device-run")')
    if ours and raw.get("format") != FORMAT:
        raise InputError(f"{where}: result format {raw.get('format')!r}; this version reads {FORMAT}")
    try:
        if ours and raw["kind"] == "bench":
            return BenchFile.model_validate(raw)
        rows = raw if isinstance(raw, list) else [raw]
        return BenchFile(runs=tuple(DeviceRun.model_validate(run if ours else _imported(run)) for run in rows))
    except ValidationError as error:
        hint = "" if ours else " (a result from elsewhere needs artifact, device, latency)"
        raise InputError(f"{where}: {first_problem(error)}{hint}") from error


def read_result(path: Path) -> BenchFile:
    """A result file of ours, or one from elsewhere."""
    return parse_result(read_json(path), str(path))


def result_files(paths: Sequence[Path]) -> list[Path]:
    """The named files, and the `*.json` files of the named folders."""
    files: list[Path] = []
    for path in paths:
        inside = without_system_files(path.glob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise InputError(f"{path}: no result file (*.json) in this folder")
        files += inside
    return files


def read_results(paths: Sequence[Path]) -> BenchFile:
    """The results of several files and folders as one; duplicate runs are dropped."""
    results = [read_result(path) for path in result_files(paths)]
    runs = {run.model_dump_json(): run for file in results for run in file.runs}
    models = {model.model_dump_json(): model for file in results for model in file.models}
    return BenchFile(runs=tuple(runs.values()), models=tuple(models.values()))
