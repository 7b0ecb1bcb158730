"""One measurement of a bundle in a browser: what the page is asked, which files it may fetch, the run of its answer.

Shapes: U texts of the tasks, N golden texts, D sentence width.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.devices.base import chosen_runtimes, open_bundle
from msdc.bench.devices.browser.answer import PageAnswer, page_vectors
from msdc.bench.devices.browser.server import json_bytes
from msdc.bench.devices.python_worker import ordinary_texts, row_of_length
from msdc.bench.measure import artifact_of, compare_golden
from msdc.bench.result import BrowserFacts, DeviceInfo, DeviceRun, DeviceState, Parity
from msdc.bench.settings import BenchSettings
from msdc.bench.workload import Tasks
from msdc.errors import InputError
from msdc.export.golden import read_golden
from msdc.export.manifest import MANIFEST_FILE, Manifest
from msdc.export.mobile.web.npm import SCRIPT, VERSION, WASM, runtime_folder
from msdc.export.mobile.web.write import module_source

PAGE = Path(__file__).resolve().parent / "page"
RUNTIME = "onnx"
# The runtime's script looks for a third file of its package unless it is told where the binary lies.
RUNTIME_MODULE = f"""import * as ort from "./{SCRIPT}";
ort.env.wasm.wasmPaths = {{ wasm: new URL("{WASM}", import.meta.url).href }};
export const {{ InferenceSession, Tensor, env }} = ort;
"""
MIB = 2**20
# Bytes of numbers as text in an answer, at most, and of all that is no number.
SAMPLE_BYTES, ID_BYTES, MAX_REST_BYTES = 32, 12, MIB


@dataclass(frozen=True)
class Browser:
    """The browser of a run, as far as it is known."""

    engine: str
    version: str | None = None
    renderer_pss_mib: float | None = None


@dataclass(frozen=True)
class Measurement:
    """A checked bundle with the tasks and settings of a run."""

    bundle: Path
    manifest: Manifest
    tasks: Tasks
    settings: BenchSettings

    @classmethod
    def of(cls, bundle: Path, settings: BenchSettings, spec: str) -> Measurement:
        """The measurement of `bundle` on the device called `spec`.

        Raises:
            InputError: the bundle is damaged, holds nothing that browsers run, or a setting does not apply to them.
        """
        if settings.affinity or settings.runner is not None:
            raise InputError(f"device {spec} has no --affinity and no --runner")
        manifest, tasks = open_bundle(bundle, settings)
        chosen_runtimes(manifest.runtimes, settings, bundle)
        others = [name for name in settings.runtimes if name != RUNTIME]
        if others or RUNTIME not in manifest.runtimes:
            raise InputError(f"{bundle}: browsers run the {RUNTIME} program; export it with --runtime {RUNTIME}")
        if manifest.tokenizer.native_file is None:
            raise InputError(f"{bundle}: {manifest.tokenizer.no_native()}")
        settings.vector_width(manifest)
        return cls(bundle, manifest, tasks, settings)

    @cached_property
    def golden(self) -> dict[str, Any]:
        """The bundle's golden texts, ids and vectors."""
        return read_golden(self.bundle)

    @cached_property
    def texts(self) -> list[str]:
        """Texts of the tasks, without the prompt."""
        return self.tasks.texts()

    def request(self) -> dict[str, Any]:
        """What the page reads as `request.json`, beside the sizes of the files that it downloads before it measures."""
        settings, golden = self.settings, self.golden
        return {
            "runs": settings.runs,
            "warmup": settings.warmup,
            "threads": settings.threads,
            "cooldown_ms": settings.cooldown_s * 1000,
            "rows": [row_of_length(golden["ids"], length) for length in settings.lengths],
            "usual": ordinary_texts(golden["texts"], golden["ids"]),
            "golden": golden["texts"],
            "texts": settings.device_texts(self.manifest, self.texts),
            "prompt": settings.prompt_text(self.manifest),
        }

    def files(self, page: Mapping[str, Path | bytes]) -> dict[str, Path | bytes]:
        """What a page may fetch, by address: those of `page` and everything that it measures with."""
        runtime = runtime_folder()
        tokenizer = self.manifest.tokenizer.native_file
        assert tokenizer is not None
        source = module_source(self.manifest.tokenizer.kind) + (PAGE / "measure.js").read_text(encoding="utf-8")
        names = (MANIFEST_FILE, tokenizer, *self.manifest.program_files(RUNTIME))
        held = {f"bundle/{name}": self.bundle / name for name in names} | {f"runtime/{WASM}": runtime / WASM}
        request = {**self.request(), "files": {name: path.stat().st_size for name, path in held.items()}}
        return {
            "session.js": PAGE / "session.js",
            "measure.js": source.encode("utf-8"),
            "request.json": json_bytes(request),
            "runtime/ort.mjs": RUNTIME_MODULE.encode("utf-8"),
            f"runtime/{SCRIPT}": runtime / SCRIPT,
            **held,
            **page,
        }

    @property
    def max_answer(self) -> int:
        """Bytes that an answer may have."""
        vectors = 4 * self.manifest.width * (len(self.texts) + len(self.golden["texts"]))
        samples = SAMPLE_BYTES * self.settings.runs * (len(self.settings.lengths) + 2)
        ids = ID_BYTES * sum(len(row) for row in self.golden["ids"])
        return MAX_REST_BYTES + samples + ids + math.ceil(vectors * 4 / 3)

    def _golden_vectors(self, answer: PageAnswer) -> np.ndarray:
        return page_vectors(answer.golden.vectors, len(self.golden["texts"]), self.manifest.width)

    def parity(self, answer: PageAnswer) -> Parity:
        """The page's golden ids and vectors against those of the export.

        Raises:
            MsdcError: vectors of another number, or with NaN.
        """
        return self._parity(answer, self._golden_vectors(answer))

    def _parity(self, answer: PageAnswer, golden_ND: np.ndarray) -> Parity:
        return compare_golden(self.golden, RUNTIME, answer.golden.ids, golden_ND)

    def run(
        self,
        answer: PageAnswer,
        device: DeviceInfo,
        browser: Browser,
        *,
        before: DeviceState | None = None,
        after: DeviceState | None = None,
        notes: Sequence[str] = (),
    ) -> DeviceRun:
        """The result of one answer.

        Raises:
            MsdcError: vectors of another number, or with NaN.
        """
        manifest, settings = self.manifest, self.settings
        vectors_UD = page_vectors(answer.vectors, len(self.texts), manifest.width)
        golden_ND = self._golden_vectors(answer)
        return DeviceRun(
            harness="browser",
            artifact=artifact_of(self.bundle, manifest, RUNTIME),
            device=device,
            versions={"onnxruntime-web": answer.runtime or VERSION},
            threads=answer.threads,
            load=answer.load_ms,
            first=answer.first_ms,
            latency=tuple(timed.timing() for timed in answer.latency),
            tokenize=answer.tokenize.timing(),
            pipeline=answer.pipeline.timing(),
            parity=self._parity(answer, golden_ND),
            accuracy=self.tasks.score_vectors(
                f"{manifest.name} {RUNTIME}", self.texts, vectors_UD[:, : settings.vector_width(manifest)]
            ),
            browser=self._facts(answer, browser, golden_ND),
            state_before=before,
            state_after=after,
            notes=(*answer.notes(settings.threads), *notes),
        )

    def _facts(self, answer: PageAnswer, browser: Browser, golden_ND: np.ndarray) -> BrowserFacts:
        return BrowserFacts(
            engine=browser.engine,
            version=browser.version,
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
            renderer_pss_mib=browser.renderer_pss_mib,
        )
