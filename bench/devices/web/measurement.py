"""One measurement of a bundle in a browser: what the page is asked, which files it may fetch, its checked answer.

An answer is not under our control: every field is bounded, and a phone's description of itself is only a claim.

Shapes: U texts of the tasks, N golden texts, D sentence width.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field, ValidationError

from msdc.bench.devices.base import open_jobs
from msdc.bench.devices.runner_protocol import ordinary_texts, row_of_length
from msdc.bench.devices.state import NO_STATES, States, with_unreadable
from msdc.bench.devices.web.server import json_bytes
from msdc.bench.options import BenchSettings
from msdc.bench.result import MAX_SAMPLES, BrowserFacts, DeviceInfo, DeviceRun, DeviceState, Record, Sample, Timing
from msdc.errors import InputError, MsdcError, first_problem
from msdc.export.golden import decode_vectors
from msdc.export.manifest import MANIFEST_FILE
from msdc.export.mobile.web.npm import SCRIPT, VERSION, WASM, runtime_folder
from msdc.export.mobile.web.write import module_source

PAGE = Path(__file__).resolve().parent / "page"
RUNTIME = "onnx"
MIB = 2**20
# Bytes of numbers as text in an answer, at most, and of all that is no number.
SAMPLE_BYTES, ID_BYTES, MAX_REST_BYTES = 32, 12, MIB
LONGEST_GAP_MS = 5000.0
LARGEST = 1e15  # squares of larger numbers do not add up in float32
Text = Field(default=None, max_length=100)


class _Timed(Record):
    length: int | None = None
    samples: tuple[Sample, ...] = Field(min_length=1, max_length=MAX_SAMPLES)
    warmup: int = Field(ge=0, le=2**31)
    settled: bool
    cold: list[Sample] = Field(min_length=1, max_length=1000)
    calls_per_sample: int = Field(ge=1, le=2**31)

    def timing(self) -> Timing:
        return Timing(samples=self.samples, warmup=self.warmup, length=self.length)


class _Golden(Record):
    ids: list[list[int]]
    vectors: str


class _Page(Record):
    agent: str = Field(max_length=1000)
    hidden: bool
    timer_gap_ms: Sample
    secure: bool
    isolated: bool
    cores: int | None = Field(ge=1, le=2**20)
    device_memory_gib: float | None = Field(ge=0, le=2**20)


class Hints(Record):
    """User-agent client hints, which Chromium gives on https and localhost only."""

    model: str | None = Text
    platform: str | None = Text
    platform_version: str | None = Text
    version: str | None = Text


class Battery(Record):
    """The state of the battery, which Chromium gives on https and localhost only."""

    percent: float = Field(ge=0, le=100)
    charging: bool


def battery_state(battery: Battery | None) -> DeviceState:
    """The state of a phone as its browser reports it: no more than its battery."""
    fields = {} if battery is None else {"battery_percent": battery.percent, "charging": battery.charging}
    return with_unreadable(DeviceState.model_validate(fields))


class PageAnswer(Record):
    """What a page sends; the last four fields are those of a page that was opened through a link."""

    load_ms: Sample
    first_ms: Sample
    loaded_heap_bytes: int = Field(ge=0, le=2**40)
    heap_bytes: int = Field(ge=0, le=2**40)
    latency: list[_Timed]
    tokenize: _Timed
    pipeline: _Timed
    clock_step_ms: Sample
    worker: bool
    threads: int = Field(ge=1, le=4096)
    runtime: str | None = Field(max_length=100)
    golden: _Golden
    vectors: str
    page: _Page
    name: str = Field(default="", max_length=1000)
    hints: Hints | None = None
    battery_before: Battery | None = None
    battery_after: Battery | None = None

    def notes(self, threads: int) -> list[str]:
        """What a reader of the figures must know; `threads` were requested."""
        notes = []
        unsettled = [f"{timed.length} tokens" for timed in self.latency if not timed.settled]
        if unsettled:
            notes.append(f"calls did not settle before they were timed: {', '.join(unsettled)}")
        if self.page.timer_gap_ms > LONGEST_GAP_MS:
            notes.append(f"the page's timer was held back for {self.page.timer_gap_ms / 1000:.0f} s: a busy machine")
        if self.threads != threads:
            notes.append(f"{threads} threads were requested, the runtime has {self.threads}")
        return notes


def page_vectors(text: str, count: int, width: int) -> np.ndarray:
    """float32 [N, D] of the page's base64; `MsdcError` for anything but that many numbers of a vector."""
    try:
        vectors_ND = decode_vectors(text, count, width)
    except InputError as error:
        raise MsdcError(f"the page's answer: {str(error).replace('golden ', '')}") from error
    if float(np.abs(vectors_ND).max(initial=0)) > LARGEST:
        raise MsdcError("the page's answer: vectors with numbers that are too large")
    return vectors_ND


class Measurement:
    """A checked bundle with the tasks and settings of a run on the device called `spec`."""

    def __init__(self, bundle: Path, settings: BenchSettings, spec: str) -> None:
        if settings.affinity or settings.runner is not None:
            raise InputError(f"device {spec} takes no `affinity` and no `runner`")
        jobs = {job.runtime: job for job in open_jobs(bundle, settings)}
        if RUNTIME not in jobs or set(settings.runtimes) - {RUNTIME}:
            raise InputError(f"{bundle}: browsers run the {RUNTIME} program; export it with runtime {RUNTIME}")
        self.job, self.settings = jobs[RUNTIME], settings
        self.manifest, self.golden, self.texts = self.job.manifest, self.job.golden, self.job.texts
        self.tokenizer = self.job.native_tokenizer()

    def files(self, page: Mapping[str, str]) -> dict[str, Path | bytes]:
        """What a page may fetch: files of `page` (address -> name), and everything that it measures with.

        The page reads `request.json`, with the sizes of the files that it downloads before it measures.
        """
        settings, golden, runtime = self.settings, self.golden, runtime_folder()
        source = module_source() + (PAGE / "measure.js").read_text(encoding="utf-8")
        names = (MANIFEST_FILE, self.tokenizer, *self.manifest.program_files(RUNTIME))
        held = {f"bundle/{name}": self.job.bundle / name for name in names} | {f"runtime/{WASM}": runtime / WASM}
        request = {
            "runs": settings.runs,
            "warmup": settings.warmup,
            "threads": settings.threads,
            "cooldown_ms": settings.cooldown_s * 1000,
            "rows": [row_of_length(golden["ids"], length) for length in self.job.lengths],
            "usual": ordinary_texts(golden["texts"], golden["ids"]),
            "golden": golden["texts"],
            "texts": self.job.prompted,
            "prompt": self.job.prompt,
            "files": {name: path.stat().st_size for name, path in held.items()},
        }
        return {
            "session.js": PAGE / "session.js",
            "measure.js": source.encode("utf-8"),
            "request.json": json_bytes(request),
            "runtime/ort.mjs": PAGE / "runtime.js",
            f"runtime/{SCRIPT}": runtime / SCRIPT,
            **held,
            **{address: PAGE / name for address, name in page.items()},
        }

    @property
    def max_answer(self) -> int:
        """Bytes that an answer may have."""
        vectors = 4 * self.manifest.width * (len(self.texts) + len(self.golden["texts"]))
        samples = SAMPLE_BYTES * self.settings.runs * (len(self.job.lengths) + 2)
        ids = ID_BYTES * sum(len(row) for row in self.golden["ids"])
        return MAX_REST_BYTES + samples + ids + math.ceil(vectors * 4 / 3)

    def read(self, raw: dict[str, Any]) -> PageAnswer:
        """The answer of a page that fits the schema and this request, and was in front while it measured."""
        try:
            answer = PageAnswer.model_validate(raw)
        except ValidationError as error:
            raise MsdcError(f"the page's answer: {first_problem(error)}") from error
        if [timed.length for timed in answer.latency] != list(self.job.lengths):
            raise MsdcError("the page's answer: other lengths than requested")
        timings = (*answer.latency, answer.tokenize, answer.pipeline)
        if any(len(timed.samples) != self.settings.runs for timed in timings):
            raise MsdcError("the page's answer: another number of samples than requested")
        if answer.page.hidden:
            raise MsdcError("the page was hidden while it measured, and browsers slow hidden pages down; run it again")
        return answer

    def run(
        self,
        answer: PageAnswer,
        device: DeviceInfo,
        engine: str,
        version: str | None = None,
        *,
        pss_mib: float | None = None,
        states: States = NO_STATES,
        notes: Sequence[str] = (),
    ) -> DeviceRun:
        """The result of one answer from a browser; `pss_mib` is that of the page's process."""
        vectors_UD = page_vectors(answer.vectors, len(self.texts), self.manifest.width)
        golden_ND = page_vectors(answer.golden.vectors, len(self.golden["texts"]), self.manifest.width)
        return DeviceRun(
            harness="browser",
            device=device,
            versions={"onnxruntime-web": answer.runtime or VERSION},
            threads=answer.threads,
            load=answer.load_ms,
            first=answer.first_ms,
            latency=tuple(timed.timing() for timed in answer.latency),
            tokenize=answer.tokenize.timing(),
            pipeline=answer.pipeline.timing(),
            **self.job.scored(answer.golden.ids, golden_ND, vectors_UD),
            browser=BrowserFacts(
                engine=engine,
                version=version,
                agent=answer.page.agent,
                secure_context=answer.page.secure,
                isolated=answer.page.isolated,
                worker=answer.worker,
                clock_step_ms=answer.clock_step_ms,
                claimed_cores=answer.page.cores,
                claimed_memory_gib=answer.page.device_memory_gib,
                calls_per_sample={str(timed.length): timed.calls_per_sample for timed in answer.latency},
                cold_ms={str(timed.length): float(np.median(timed.cold)) for timed in answer.latency},
                golden_sha256=hashlib.sha256(golden_ND.astype("<f4").tobytes()).hexdigest(),
                heap_loaded_mib=round(answer.loaded_heap_bytes / MIB, 3),
                heap_warm_mib=round(answer.heap_bytes / MIB, 3),
                renderer_pss_mib=pss_mib,
            ),
            state_before=states.before,
            state_during=states.during,
            state_after=states.after,
            notes=(*answer.notes(self.settings.threads), *notes),
        )
