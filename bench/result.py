"""The result file: what was measured of one artifact on one device, and the source of every number.

One `DeviceRun` per artifact and device. A `BenchFile` holds several runs and the scores of float models (teacher,
assistant, student); a report is made from it. Units are in the field names. A run whose clock counts instructions has
no value in a field that ends in `_ms`: an instruction count is not a time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from msdc.errors import InputError
from msdc.export.runtimes import RuntimeName

FORMAT = 1
Clock = Literal["wall", "instructions"]
# 1e15 ms are 30,000 years; what is larger overflows when it is added up.
Sample = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=2**63 - 1)]
Instructions = Annotated[float, Field(ge=0, le=2.0**63, allow_inf_nan=False)]
Cosine = Annotated[float, Field(ge=-1.001, le=1.001)]
MAX_SAMPLES = 1_000_000


class Record(BaseModel):
    """Base of all parts: immutable, unknown keys refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Artifact(Record):
    """The measured file. `bytes` counts the program with its external data; `bundle` is the bundle's name."""

    bundle: str
    runtime: RuntimeName
    precision: str
    file: str
    bytes: int = Field(le=2**63 - 1, ge=0)
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    parameters: int | None = Field(default=None, le=2**63 - 1, ge=0)
    bundle_bytes: int | None = Field(
        default=None, le=2**63 - 1, ge=0, description="every file of the bundle that the device needs"
    )
    compressed_bytes: int | None = Field(
        default=None, le=2**63 - 1, ge=0, description="the same files as stores and web servers compress them"
    )


class DeviceInfo(Record):
    """The machine. `isa` lists the instruction sets that matter to int8 kernels (avx2, avx512_vnni, asimddp, i8mm)."""

    name: str
    kind: str = Field(pattern=r"^[a-z][a-z0-9_]{0,31}$", description="a device of msdc bench, or other")
    cpu: str = ""
    isa: tuple[str, ...] = ()
    cores: int | None = Field(le=2**63 - 1, ge=1, description="None: unknown")
    memory_mib: float | None = Field(ge=0, le=1e12, description="None: unknown")
    os: str = ""
    emulated: bool = False


class DeviceState(Record):
    """Battery, temperatures and frequencies; None where the device does not report them."""

    battery_percent: float | None = None
    battery_c: float | None = None
    charging: bool | None = None
    thermal_c: dict[str, float] = Field(default_factory=dict)
    cpu_mhz: tuple[float, ...] = ()
    load_1min: float | None = Field(default=None, description="load average: other work on the machine")


class _Timing(Record):
    """Raw samples in order of measurement, without warm-up runs, and their percentiles, named NAME_UNIT."""

    unit: ClassVar[str]
    length: int | None = Field(
        default=None, le=2**63 - 1, ge=1, description="tokens with special ids; None for text in, vector out"
    )
    warmup: int = Field(le=2**63 - 1, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> _Timing:
        if not self.minimum <= self.p50 <= self.p90 <= self.p99:
            raise ValueError("minimum and percentiles are not in ascending order")
        return self

    def _figure(self, name: str) -> Any:
        return getattr(self, f"{name}_{self.unit}")

    @property
    def samples(self) -> tuple[float, ...]:
        """Raw samples in the timing's unit."""
        return tuple(self._figure("samples"))

    @property
    def p50(self) -> float:
        """Median."""
        return float(self._figure("p50"))

    @property
    def p90(self) -> float:
        """90th percentile."""
        return float(self._figure("p90"))

    @property
    def p99(self) -> float:
        """99th percentile."""
        return float(self._figure("p99"))

    @property
    def minimum(self) -> float:
        """Smallest sample."""
        return float(self._figure("min"))


class WallTiming(_Timing):
    """Times in milliseconds."""

    unit = "ms"
    samples_ms: tuple[Sample, ...] = Field(min_length=1, max_length=MAX_SAMPLES)
    p50_ms: Sample
    p90_ms: Sample
    p99_ms: Sample
    min_ms: Sample


class InstructionTiming(_Timing):
    """Counted instructions, from an emulator whose clock counts them."""

    unit = "instructions"
    samples_instructions: tuple[Count, ...] = Field(min_length=1, max_length=MAX_SAMPLES)
    p50_instructions: Instructions
    p90_instructions: Instructions
    p99_instructions: Instructions
    min_instructions: Instructions


Timing = WallTiming | InstructionTiming


def percentile(samples: Sequence[float], percent: float) -> float:
    """Linear interpolation between the two nearest ranks (numpy's default, R type 7).

    Raises:
        InputError: no samples, or one that is not a finite number.
    """
    if not len(samples):
        raise InputError("a percentile needs at least one sample")
    if not all(math.isfinite(sample) for sample in samples):
        raise InputError("a sample is not a finite number")
    return float(np.percentile(np.asarray(samples, dtype=np.float64), percent))


def make_timing(samples: Sequence[float], *, warmup: int, length: int | None = None, clock: Clock = "wall") -> Timing:
    """Timing of `samples`, in milliseconds (clock wall) or instructions (clock instructions), percentiles computed."""
    figures = [percentile(samples, percent) for percent in (50, 90, 99)] + [float(min(samples))]
    names = ("p50", "p90", "p99", "min")
    if clock == "wall":
        rounded = {f"{name}_ms": round(value, 6) for name, value in zip(names, figures, strict=True)}
        return WallTiming(length=length, warmup=warmup, samples_ms=tuple(round(s, 6) for s in samples), **rounded)
    counted = {f"{name}_instructions": value for name, value in zip(names, figures, strict=True)}
    return InstructionTiming(
        length=length, warmup=warmup, samples_instructions=tuple(round(s) for s in samples), **counted
    )


class MemoryPhase(Record):
    """VmHWM of /proc/self/status; the others from smaps_rollup. PSS divides shared pages among the processes.

    Outside Linux PSS is None, and a note of the run says what stands for the others.
    """

    vmhwm_mib: float = Field(ge=0, le=1e12)
    pss_mib: float | None = Field(ge=0, le=1e12)
    anon_mib: float = Field(ge=0, le=1e12)
    file_mib: float = Field(ge=0, le=1e12)


class Memory(Record):
    """Before the artifact is opened, after loading it, and after all timed runs."""

    start: MemoryPhase
    loaded: MemoryPhase
    warm: MemoryPhase


class GoldenParity(Record):
    """The artifact's vectors on this device against its own stored at export and, `float_`, the float model's."""

    texts: int = Field(le=2**63 - 1, ge=0)
    mean_cosine: Cosine
    min_cosine: Cosine
    float_mean_cosine: Cosine | None = None
    float_min_cosine: Cosine | None = None
    ids_equal: bool
    ids_differ: tuple[int, ...] = Field(default=(), description="indices of golden texts whose ids differ")


class DeviceParity(Record):
    """How far the device's answers are from those of the exporting machine."""

    golden: GoldenParity


class BrowserFacts(Record):
    """The browser that ran the program; None: unknown. `cold_ms`: medians of the first calls, by length in tokens."""

    engine: str = Field(max_length=100)
    version: str | None = Field(default=None, max_length=100)
    agent: str = Field(max_length=1000)
    secure_context: bool
    isolated: bool = Field(description="cross-origin isolated: the runtime may have threads, clocks are finer")
    worker: bool
    clock_step_ms: Sample = Field(description="smallest step that the page's clock was seen to make")
    claimed_cores: int | None = Field(default=None, ge=1, le=2**20, description="what the browser says")
    claimed_memory_gib: float | None = Field(default=None, ge=0, le=2**20, description="the same, rounded by it")
    calls_per_sample: dict[str, int] = Field(default_factory=dict, description="calls that one sample is the mean of")
    cold_ms: dict[str, Sample] = Field(default_factory=dict)
    golden_sha256: str = Field(pattern=r"^[0-9a-f]{64}$", description="of the golden vectors, to compare browsers")
    heap_loaded_mib: float = Field(ge=0, le=1e12)
    heap_warm_mib: float = Field(ge=0, le=1e12)
    renderer_pss_mib: float | None = Field(default=None, ge=0, le=1e12, description="of the page's process")


class Accuracy(BaseModel):
    """Scores of one task; tasks add fields of their own (intervals, counts)."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    task: str
    name: str
    spearman: float | None = None
    pairs: int | None = None


class DeviceRun(Record):
    """One artifact on one device."""

    format: Literal[1] = 1
    kind: Literal["device-run"] = "device-run"
    created: str
    origin: Literal["measured", "imported"] = "measured"
    harness: Literal["python", "native", "browser", "other"] = Field(
        description="what called the runtime on the device"
    )
    artifact: Artifact
    device: DeviceInfo
    versions: dict[str, str] = Field(default_factory=dict)
    threads: int = Field(le=2**63 - 1, ge=1)
    clock: Clock = "wall"
    load_ms: Sample | None = None
    init_ms: Sample | None = None
    first_ms: Sample | None = None
    load_instructions: int | None = Field(default=None, le=2**63 - 1, ge=0)
    init_instructions: int | None = Field(default=None, le=2**63 - 1, ge=0)
    first_instructions: int | None = Field(default=None, le=2**63 - 1, ge=0)
    latency: tuple[Timing, ...] = ()
    tokenize: Timing | None = None
    pipeline: Timing | None = None
    memory: Memory | None = None
    parity: DeviceParity | None = None
    browser: BrowserFacts | None = None
    accuracy: tuple[Accuracy, ...] = ()
    state_before: DeviceState | None = None
    state_after: DeviceState | None = None
    notes: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_clock(self) -> DeviceRun:
        timings = [*self.latency, *(t for t in (self.tokenize, self.pipeline) if t is not None)]
        wrong = InstructionTiming if self.clock == "wall" else WallTiming
        if any(isinstance(timing, wrong) for timing in timings):
            raise ValueError(f"a timing is not in the unit of the run's clock ({self.clock})")
        suffix = "_instructions" if self.clock == "wall" else "_ms"
        for stem in ("load", "init", "first"):
            if getattr(self, stem + suffix) is not None:
                raise ValueError(f"{stem}{suffix} is filled although the run's clock is {self.clock}")
        if self.clock == "instructions" and not self.device.emulated:
            raise ValueError("only an emulated device counts instructions")
        return self

    @property
    def title(self) -> str:
        """Short name for tables and legends."""
        return f"{self.artifact.bundle} {self.artifact.runtime} {self.artifact.precision} on {self.device.name}"


class ModelScores(Record):
    """Sizes and scores of a float model, shown beside the artifacts: teacher, assistant, student or another."""

    role: Literal["teacher", "assistant", "student", "peer", "other"]
    name: str
    parameters: int = Field(le=2**63 - 1, ge=0)
    embedding_parameters: int | None = Field(default=None, le=2**63 - 1, ge=0)
    encoder_parameters: int | None = Field(default=None, le=2**63 - 1, ge=0)
    bytes: int | None = Field(default=None, le=2**63 - 1, ge=0, description="bytes of its weights on disk")
    accuracy: tuple[Accuracy, ...] = ()


class BenchFile(Record):
    """What `msdc bench --json` writes and `msdc report` reads."""

    format: Literal[1] = 1
    kind: Literal["bench"] = "bench"
    runs: tuple[DeviceRun, ...] = ()
    models: tuple[ModelScores, ...] = ()


def parse_result(raw: Any, where: str) -> BenchFile:
    """A `BenchFile` from parsed JSON of either kind.

    Raises:
        InputError: not a result of this project, or one that does not fit the schema; names the first such field.
    """
    kind = raw.get("kind") if isinstance(raw, dict) else None
    if kind not in ("bench", "device-run"):
        raise InputError(f'{where}: not a result file (no "kind": "bench" or "device-run")')
    if raw.get("format") != FORMAT:
        raise InputError(f"{where}: result format {raw.get('format')!r}; this version reads {FORMAT}")
    try:
        if kind == "bench":
            return BenchFile.model_validate(raw)
        return BenchFile(runs=(DeviceRun.model_validate(raw),))
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"{where}: {'.'.join(map(str, first['loc'])) or 'result'}: {first['msg']}") from error
