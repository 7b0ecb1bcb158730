"""`browser[:chromium]`: the ONNX program in a browser of this machine, in a worker of a page in a fresh profile.

Shapes: N texts, D sentence width.
"""

from __future__ import annotations

import datetime
import hashlib
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from msdc.bench.devices.base import BenchSettings, Device, chosen_runtimes, open_bundle
from msdc.bench.devices.browser.engines import Engine, engine_of, opened, wait_for_answer
from msdc.bench.devices.browser.server import PageServer, json_bytes
from msdc.bench.devices.python_worker import ordinary_texts, row_of_length
from msdc.bench.devices.this_machine import check_cores, host_info, host_state
from msdc.bench.measure import artifact_of, compare_golden
from msdc.bench.result import MAX_SAMPLES, BrowserFacts, DeviceRun, Sample, Timing, make_timing
from msdc.bench.workload import Tasks
from msdc.errors import InputError, MsdcError
from msdc.export.golden import decode_vectors, read_golden
from msdc.export.manifest import GOLDEN_FILE, MANIFEST_FILE, Manifest
from msdc.export.mobile.web.runtime import SCRIPT, VERSION, WASM, runtime_folder
from msdc.export.mobile.web.write import module_source
from msdc.progress import say

PAGE = Path(__file__).resolve().parent / "page"
RUNTIME = "onnx"
# The runtime's script looks for a third file of its package unless it is told where the binary lies.
RUNTIME_MODULE = f"""import * as ort from "./{SCRIPT}";
ort.env.wasm.wasmPaths = {{ wasm: new URL("{WASM}", import.meta.url).href }};
export const {{ InferenceSession, Tensor, env }} = ort;
"""
MIB = 2**20
# Samples and ids as text; vectors are counted apart.
MAX_REST_BYTES = 64 * MIB
LONGEST_GAP_MS = 5000.0


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class _Timed(_Part):
    length: int | None = None
    samples: list[Sample] = Field(min_length=1, max_length=MAX_SAMPLES)
    warmup: int = Field(ge=0, le=2**31)
    settled: bool
    cold: list[Sample] = Field(min_length=1, max_length=1000)
    calls_per_sample: int = Field(ge=1, le=2**31)

    def timing(self) -> Timing:
        return make_timing(self.samples, warmup=self.warmup, length=self.length)


class _Golden(_Part):
    ids: list[list[int]]
    vectors: str


class _Page(_Part):
    agent: str = Field(max_length=1000)
    hidden: bool
    timer_gap_ms: Sample
    secure: bool
    isolated: bool
    cores: int | None = Field(ge=1, le=2**20)
    device_memory_gib: float | None


class PageAnswer(_Part):
    """What the page sends; every field is checked, since a page's answer is not under our control."""

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


def _files(bundle: Path, manifest: Manifest, request: dict[str, Any]) -> dict[str, Path | bytes]:
    """What the page may fetch, by address."""
    runtime = runtime_folder()
    tokenizer = manifest.tokenizer.native_file
    assert tokenizer is not None
    source = module_source(manifest.tokenizer.kind) + (PAGE / "measure.js").read_text(encoding="utf-8")
    held = (MANIFEST_FILE, GOLDEN_FILE, tokenizer, *manifest.program_files(RUNTIME))
    return {
        "index.html": PAGE / "index.html",
        "page.js": PAGE / "page.js",
        "measure.js": source.encode("utf-8"),
        "request.json": json_bytes(request),
        "runtime/ort.mjs": RUNTIME_MODULE.encode("utf-8"),
        f"runtime/{SCRIPT}": runtime / SCRIPT,
        f"runtime/{WASM}": runtime / WASM,
        **{f"bundle/{name}": bundle / name for name in held},
    }


def read_answer(raw: dict[str, Any], lengths: Sequence[int], runs: int) -> PageAnswer:
    """The checked answer of a page.

    Raises:
        MsdcError: it does not fit the schema or the request, or the page was hidden while it measured.
    """
    try:
        answer = PageAnswer.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        raise MsdcError(f"the page's answer: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    if [timed.length for timed in answer.latency] != list(lengths):
        raise MsdcError("the page's answer: other lengths than those asked for")
    if any(len(timed.samples) != runs for timed in (*answer.latency, answer.tokenize, answer.pipeline)):
        raise MsdcError("the page's answer: another number of samples than asked for")
    if answer.page.hidden:
        raise MsdcError("the page was hidden while it measured, and browsers slow hidden pages down; run it again")
    return answer


def _vectors(text: str, count: int, width: int) -> np.ndarray:
    """float32 [N, D] of the page's base64.

    Raises:
        MsdcError: not that many finite numbers.
    """
    try:
        return decode_vectors(text, count, width) if count else np.zeros((0, width), dtype=np.float32)
    except InputError as error:
        raise MsdcError(f"the page's answer: {str(error).replace('golden ', '')}") from error


def _notes(answer: PageAnswer, threads: int) -> list[str]:
    notes = []
    unsettled = [f"{timed.length} tokens" for timed in answer.latency if not timed.settled]
    if unsettled:
        notes.append(f"calls did not settle before they were timed: {', '.join(unsettled)}")
    if answer.page.timer_gap_ms > LONGEST_GAP_MS:
        notes.append(f"the page's timer was held back for {answer.page.timer_gap_ms / 1000:.0f} s: a busy machine")
    if answer.threads != threads:
        notes.append(f"{threads} threads were asked for, the runtime has {answer.threads}")
    if answer.runtime not in (None, VERSION):
        notes.append(f"the runtime is onnxruntime-web {answer.runtime}, not the pinned {VERSION}")
    return notes


class BrowserDevice(Device):
    """A browser of this machine."""

    kind = "browser"

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`."""
        engine = engine_of(self.argument)
        check_cores(settings)
        if settings.affinity or settings.runner is not None:
            raise InputError(f"device {self.spec} has no --affinity and no --runner")
        manifest, tasks = open_bundle(bundle, settings)
        chosen_runtimes(manifest.runtimes, settings, bundle)
        others = [name for name in settings.runtimes if name != RUNTIME]
        if others or RUNTIME not in manifest.runtimes:
            raise InputError(f"{bundle}: browsers run the {RUNTIME} program; export it with --runtime {RUNTIME}")
        if manifest.tokenizer.native_file is None:
            raise InputError(f"{bundle}: {manifest.tokenizer.no_native()}")
        if settings.progress:
            say(f"bench {manifest.name} in {engine.title}")
        try:
            return [self._measure(engine, bundle, manifest, settings, tasks)]
        except InputError:
            raise
        except MsdcError as error:
            raise MsdcError(f"{RUNTIME} in {engine.title}: {error}") from error

    def _measure(
        self, engine: Engine, bundle: Path, manifest: Manifest, settings: BenchSettings, tasks: Tasks
    ) -> DeviceRun:
        golden, texts = read_golden(bundle), tasks.texts()
        version = engine.version()
        request = {
            "runs": settings.runs,
            "warmup": settings.warmup,
            "threads": settings.threads,
            "cooldown_ms": settings.cooldown_s * 1000,
            "rows": [row_of_length(golden["ids"], length) for length in settings.lengths],
            "usual": ordinary_texts(golden["texts"], golden["ids"]),
            "golden": golden["texts"],
            "texts": settings.device_texts(manifest, texts),
        }
        vector_bytes = 4 * manifest.width * (len(texts) + len(golden["texts"]))
        before = host_state()
        with (
            PageServer(_files(bundle, manifest, request), MAX_REST_BYTES + math.ceil(vector_bytes * 4 / 3)) as server,
            opened(engine, server.address) as browser,
        ):
            pss_mib = wait_for_answer(engine, browser, server, settings.timeout_s)
            answer = read_answer(server.result(), settings.lengths, settings.runs)
        host = host_info()
        vectors_UD = _vectors(answer.vectors, len(texts), manifest.width)
        golden_ND = _vectors(answer.golden.vectors, len(golden["texts"]), manifest.width)
        number = re.match(r"\d+", version or "")
        name = f"{host.name}, {engine.title}" + (f" {number.group()}" if number else "")
        return DeviceRun(
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            harness="browser",
            artifact=artifact_of(bundle, manifest, RUNTIME),
            device=host.model_copy(update={"name": name, "kind": self.kind}),
            versions={"onnxruntime-web": answer.runtime or VERSION},
            threads=answer.threads,
            load_ms=answer.load_ms,
            first_ms=answer.first_ms,
            latency=tuple(timed.timing() for timed in answer.latency),
            tokenize=answer.tokenize.timing(),
            pipeline=answer.pipeline.timing(),
            parity=compare_golden(golden, RUNTIME, answer.golden.ids, golden_ND),
            accuracy=tasks.score_vectors(
                f"{manifest.name} {RUNTIME}", texts, vectors_UD[:, : settings.vector_width(manifest)]
            ),
            browser=self._facts(engine, version, answer, golden_ND, pss_mib),
            state_before=before,
            state_after=host_state(),
            notes=tuple(_notes(answer, settings.threads)),
        )

    @staticmethod
    def _facts(
        engine: Engine, version: str | None, answer: PageAnswer, golden_ND: np.ndarray, pss_mib: float | None
    ) -> BrowserFacts:
        return BrowserFacts(
            engine=engine.name,
            version=version,
            agent=answer.page.agent,
            secure_context=answer.page.secure,
            isolated=answer.page.isolated,
            worker=answer.worker,
            clock_step_ms=answer.clock_step_ms,
            claimed_cores=answer.page.cores,
            calls_per_sample={str(timed.length): timed.calls_per_sample for timed in answer.latency},
            cold_ms={str(timed.length): float(np.median(timed.cold)) for timed in answer.latency},
            golden_sha256=hashlib.sha256(golden_ND.astype("<f4").tobytes()).hexdigest(),
            heap_loaded_mib=round(answer.loaded_heap_bytes / MIB, 3),
            heap_warm_mib=round(answer.heap_bytes / MIB, 3),
            renderer_pss_mib=pss_mib,
        )
