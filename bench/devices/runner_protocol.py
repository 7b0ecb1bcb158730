"""The protocol of the native runner, the same on every device: its request, its answer, and the result made of it.

Shapes: G golden texts, U texts of tasks, D sentence width.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.devices.python_worker import ordinary_texts, row_of_length
from msdc.bench.measure import artifact_of, compare_golden
from msdc.bench.result import (
    UNITS,
    Clock,
    DeviceInfo,
    DeviceRun,
    DeviceState,
    Memory,
    MemoryPhase,
    Timing,
)
from msdc.bench.settings import BenchSettings
from msdc.bench.toolchain.build import native_runner
from msdc.bench.toolchain.runner import RunnerBuild
from msdc.bench.workload import Tasks
from msdc.errors import InputError, MsdcError
from msdc.export.golden import read_golden
from msdc.export.manifest import GOLDEN_FILE, MANIFEST_FILE, Manifest
from msdc.export.runtimes import RUNTIMES, RuntimeName
from msdc.files import parse_json
from msdc.machine import parse_cpuinfo

DONE = "msdc-runner done"
ERROR = "msdc-runner error: "
ANSWER, VECTORS, REQUEST, EMBED = "answer.json", "vectors.bin", "request.json", "texts.bin"
ANSWER_FORMAT = 1
MAX_ANSWER_BYTES = 256 * 1024 * 1024
USAGE_CODE = 2


@dataclass(frozen=True)
class RunnerJob:
    """One artifact to run natively, with everything that does not depend on the device."""

    bundle: Path
    manifest: Manifest
    runtime: RuntimeName
    settings: BenchSettings
    tasks: Tasks
    clock: Clock = "wall"
    nonce: str = field(default_factory=lambda: secrets.token_hex(8))

    def check_tokenizer(self) -> None:
        """Refuse a tokenizer that the native core does not read.

        Raises:
            InputError: a tokenizer.json that was not compiled at export; says why.
        """
        if self.manifest.tokenizer.native_file is None:
            raise InputError(f"{self.bundle}: {self.manifest.tokenizer.no_native()}")

    @property
    def bundle_files(self) -> list[str]:
        """Files of the bundle that the device needs."""
        tokenizer = self.manifest.tokenizer.native_file or self.manifest.tokenizer.file
        return [MANIFEST_FILE, tokenizer, GOLDEN_FILE, *self.manifest.program_files(self.runtime)]

    def request(self, bundle: str, folder: str) -> dict[str, Any]:
        """The request; `bundle` and `folder` (of the answers) are paths on the runner's machine."""
        golden = read_golden(self.bundle)
        settings = self.settings
        return {
            "nonce": self.nonce,
            "clock": self.clock,
            "bundle": bundle,
            "rows": [{"length": n, "ids": row_of_length(golden["ids"], n)} for n in settings.lengths],
            "texts": ordinary_texts(golden["texts"], golden["ids"]),
            "runs": settings.runs,
            "warmup": settings.warmup,
            "threads": settings.threads,
            "cooldown_ms": round(settings.cooldown_s * 1000),
            # After the host's own limit, whose message is clearer.
            "deadline_s": int(settings.timeout_s) + 30,
            "affinity": list(settings.affinity),
            "embed_file": f"{folder}/{EMBED}" if self.tasks.loaded else "",
            "prompt": settings.prompt_text(self.manifest),
            "answer_file": f"{folder}/{ANSWER}",
            "vectors_file": f"{folder}/{VECTORS}",
        }

    def write_request(self, target: Path, bundle: str, folder: str) -> list[Path]:
        """Write the request and the tasks' texts, if any, to the local folder `target`; returns the files."""
        request = target / REQUEST
        request.write_text(json.dumps(self.request(bundle, folder), ensure_ascii=False), encoding="utf-8")
        if not self.tasks.loaded:
            return [request]
        texts = target / EMBED
        # The runner reads NUL as the end of a text; inside a sentence it is noise like any control character.
        prompted = self.settings.device_texts(self.manifest, self.tasks.texts())
        texts.write_bytes(b"".join(text.replace("\0", " ").encode("utf-8") + b"\0" for text in prompted))
        return [request, texts]

    def runner(self, machine: str | None = None) -> RunnerBuild:
        """The runner for a device's machine (as `uname -m` prints it), or for this one (None); see `native_runner`."""
        return native_runner(self.runtime, machine, self.settings.runner)


@dataclass(frozen=True)
class Answer:
    """The runner's answer, checked against its last line of output."""

    value: dict[str, Any]
    vectors_GD: np.ndarray
    vectors_UD: np.ndarray


def runner_error(output: str) -> str | None:
    """The runner's own error message, None without one."""
    lines = [line for line in output.splitlines() if line.startswith(ERROR)]
    return lines[-1].removeprefix(ERROR)[:400] if lines else None


def sentinel(output: str, nonce: str) -> tuple[str, str] | None:
    """(sha256 of the answer, sha256 of the vectors) in the last line that the runner prints; None without it."""
    match = re.search(rf"^{re.escape(DONE)} {re.escape(nonce)} ([0-9a-f]{{64}}) ([0-9a-f]{{64}})\s*\Z", output, re.M)
    return (match[1], match[2]) if match else None


def read_answer(job: RunnerJob, where: str, answer: Path, vectors: Path, hashes: tuple[str, str]) -> Answer:
    """Parse the files that the runner wrote.

    Raises:
        MsdcError: a file differs from its hash in the runner's last line, or does not fit the job.
    """
    sizes = [path.stat().st_size for path in (answer, vectors)]
    if max(sizes) > MAX_ANSWER_BYTES:
        raise MsdcError(f"{where}: an answer of {max(sizes)} bytes, more than {MAX_ANSWER_BYTES}")
    raw, numbers = answer.read_bytes(), vectors.read_bytes()
    if (hashlib.sha256(raw).hexdigest(), hashlib.sha256(numbers).hexdigest()) != hashes:
        raise MsdcError(f"{where}: the answer was damaged on its way back; run again")
    value = parse_json(raw.decode("utf-8"))
    if value.get("format") != ANSWER_FORMAT or value.get("kind") != "runner-answer":
        raise MsdcError(f"{where}: the runner answers in another format; build it again with --build-runner")
    if value["clock"] != job.clock:
        raise MsdcError(f"{where}: the runner measured in {value['clock']}, not in {job.clock}; build it again")
    if value["runtime"] != job.runtime:
        raise MsdcError(f"{where}: the runner runs {value['runtime']}, the artifact needs {job.runtime}")
    width, golden, embedded = job.manifest.width, value["golden"]["texts"], value["embedded"]
    rows_RD = np.frombuffer(numbers, dtype="<f4")
    if rows_RD.size != (golden + embedded) * width:
        raise MsdcError(f"{where}: {rows_RD.size} numbers came back for {golden} + {embedded} vectors of {width}")
    rows_RD = rows_RD.reshape(-1, width).astype(np.float32)
    return Answer(value, rows_RD[:golden], rows_RD[golden:])


def _memory(value: dict[str, dict[str, int]]) -> Memory:
    def phase(kib: dict[str, int]) -> MemoryPhase:
        return MemoryPhase(
            vmhwm_mib=round(kib["vmhwm_kib"] / 1024, 3),
            pss_mib=round(kib["pss_kib"] / 1024, 3),
            anon_mib=round(kib["anon_kib"] / 1024, 3),
            file_mib=round((kib["rss_kib"] - kib["anon_kib"]) / 1024, 3),
        )

    return Memory(**{name: phase(kib) for name, kib in value.items()})


def device_info(value: dict[str, Any], *, name: str, kind: str, os: str = "", emulated: bool = False) -> DeviceInfo:
    """The machine as reported by the runner."""
    machine = value["machine"]
    cpu, isa = parse_cpuinfo(machine["cpuinfo"])
    return DeviceInfo.model_validate(
        {
            "name": name,
            "kind": kind,
            "cpu": cpu,
            "isa": isa,
            "cores": max(1, machine["cores"]),
            "memory_mib": round(machine["memory_kib"] / 1024, 1),
            "os": os or machine["system"],
            "emulated": emulated,
        }
    )


def device_run(
    job: RunnerJob, answer: Answer, device: DeviceInfo, runner: RunnerBuild, *,
    before: DeviceState | None = None, after: DeviceState | None = None, notes: Sequence[str] = (),
) -> DeviceRun:  # fmt: skip
    """The result of a run. `load` is the program's, `init` the tokenizer's; files are read from a warm page cache."""
    value = answer.value

    def figure(count: float) -> float:
        """Nanoseconds as milliseconds; instructions as they are."""
        return count if job.clock == "instructions" else round(count / 1e6, 6)

    def timing(samples: list[int], length: int | None = None) -> Timing:
        figures = tuple(map(figure, samples))
        return Timing(unit=UNITS[job.clock], samples=figures, warmup=job.settings.warmup, length=length)

    version = value["runtime_version"] or runner.version
    texts = job.tasks.texts()
    return DeviceRun(
        harness="native",
        artifact=artifact_of(job.bundle, job.manifest, job.runtime),
        device=device,
        versions={RUNTIMES[job.runtime].runs_with[0]: version} if version else {},
        threads=value["threads"],
        clock=job.clock,
        load=figure(value["load"]),
        init=figure(value["init"]),
        first=figure(value["first"]),
        latency=tuple(timing(row["samples"], row["length"]) for row in value["latency"]),
        tokenize=timing(value["tokenize"]),
        pipeline=timing(value["pipeline"]),
        memory=_memory(value["memory"]),
        parity=compare_golden(read_golden(job.bundle), job.runtime, value["golden"]["ids"], answer.vectors_GD),
        accuracy=job.tasks.score_vectors(
            f"{job.manifest.name} {job.runtime}", texts, answer.vectors_UD[:, : job.settings.vector_width(job.manifest)]
        ),
        state_before=before,
        state_after=after,
        notes=tuple(notes),
    )
