"""The protocol of runners, native or in Python, the same on every device: request, answer, and the result made of it.

Shapes: G golden texts, U texts of tasks, D sentence width.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.devices.base import Job
from msdc.bench.devices.python_worker import ANSWER_FORMAT, DONE, ERROR
from msdc.bench.devices.state import States, clusters_of
from msdc.bench.result import (
    UNITS,
    Clock,
    Conditions,
    DeviceInfo,
    DeviceRun,
    FixedPerformance,
    Memory,
    MemoryPhase,
    Timing,
)
from msdc.bench.toolchain.build import RunnerBuild
from msdc.errors import InputError, MsdcError
from msdc.export.manifest import GOLDEN_FILE, MANIFEST_FILE
from msdc.export.runtimes import RUNTIMES
from msdc.files import parse_json
from msdc.machine import parse_cpuinfo

ANSWER, VECTORS, REQUEST, EMBED = "answer.json", "vectors.bin", "request.json", "texts.bin"
MAX_ANSWER_BYTES = 256 * 1024 * 1024
USAGE_CODE = 2

# The runner's answer, checked against its last line of output; vectors [G, D] and [U, D].
Answer = tuple[dict[str, Any], np.ndarray, np.ndarray]


def row_of_length(golden_ids: Sequence[Sequence[int]], length: int) -> list[int]:
    """A row of exactly `length` ids: the first and last id of a golden row around tokens of all golden rows."""
    full = max(golden_ids, key=len)
    inner = [i for row in golden_ids if row != full for i in row[1:-1]] + list(full[1:-1])
    if not inner:
        raise InputError("the golden texts hold no token: cannot make a row to time")
    repeats = -(-(length - 2) // len(inner))
    return [full[0], *(inner * repeats)[: length - 2], full[-1]]


def ordinary_texts(texts: Sequence[str], ids: Sequence[Sequence[int]]) -> list[str]:
    """Golden texts of 5 to 40 ids, in order; tokenization and the whole pipeline are timed on them in turn."""
    usual = [text for text, row in zip(texts, ids, strict=True) if 5 <= len(row) <= 40]
    return usual or list(texts)


def bundle_files(job: Job) -> list[str]:
    """Files of the bundle that a device needs."""
    return [MANIFEST_FILE, job.native_tokenizer(), GOLDEN_FILE, *job.manifest.program_files(job.runtime)]


def write_request(job: Job, target: Path, bundle: str, folder: str, clock: Clock = "wall") -> tuple[str, list[Path]]:
    """Write the request and the tasks' texts, if any, to the local folder `target`.

    `bundle` and `folder` (of the answers) are paths on the runner's machine. Returns the nonce that the runner repeats,
    and the files.
    """
    settings, golden, nonce = job.settings, job.golden, secrets.token_hex(8)
    request = {
        "nonce": nonce,
        "clock": clock,
        "runtime": job.runtime,
        "bundle": bundle,
        "rows": [{"length": n, "ids": row_of_length(golden["ids"], n)} for n in job.lengths],
        "texts": ordinary_texts(golden["texts"], golden["ids"]) if settings.from_text else [],
        "runs": settings.runs,
        "stop_ms": round(settings.stop_after_s * 1000),
        "warmup": settings.warmup,
        "threads": settings.threads,
        "cooldown_ms": round(settings.cooldown_s * 1000),
        # After the host's own limit, whose message is clearer.
        "deadline_s": int(settings.timeout_s) + 30,
        "affinity": settings.cpus,
        "embed_file": f"{folder}/{EMBED}" if job.tasks.loaded else "",
        "prompt": job.prompt,
        "answer_file": f"{folder}/{ANSWER}",
        "vectors_file": f"{folder}/{VECTORS}",
    }
    files = [target / REQUEST]
    files[0].write_text(json.dumps(request, ensure_ascii=False), encoding="utf-8")
    if job.tasks.loaded:
        files.append(target / EMBED)
        # The runner reads NUL as the end of a text; inside a sentence it is noise like any control character.
        files[1].write_bytes(b"".join(text.replace("\0", " ").encode("utf-8") + b"\0" for text in job.prompted))
    return nonce, files


def runner_error(output: str) -> str | None:
    """The runner's own error message, None without one."""
    lines = [line for line in output.splitlines() if line.startswith(ERROR)]
    return lines[-1].removeprefix(ERROR)[:400] if lines else None


def sentinel(output: str, nonce: str) -> tuple[str, str] | None:
    """(sha256 of the answer, sha256 of the vectors) as the runner prints them at its end; None without them.

    Where both streams are one, warnings of a loader or a shell are before and after them.
    """
    match = re.search(rf"{re.escape(DONE)} {re.escape(nonce)} ([0-9a-f]{{64}}) ([0-9a-f]{{64}})\s", output)
    return (match[1], match[2]) if match else None


def read_answer(job: Job, where: str, folder: Path, hashes: tuple[str, str], clock: Clock = "wall") -> Answer:
    """The files that the runner wrote to `folder`, checked against its last line of output and the job."""
    files = [folder / ANSWER, folder / VECTORS]
    size = max(path.stat().st_size for path in files)
    if size > MAX_ANSWER_BYTES:
        raise MsdcError(f"{where}: an answer of {size} bytes, more than {MAX_ANSWER_BYTES}")
    raw, numbers = (path.read_bytes() for path in files)
    if (hashlib.sha256(raw).hexdigest(), hashlib.sha256(numbers).hexdigest()) != hashes:
        raise MsdcError(f"{where}: the answer was damaged on its way back; run again")
    value = parse_json(raw.decode("utf-8"))
    expected = {"format": ANSWER_FORMAT, "kind": "runner-answer", "clock": clock, "runtime": job.runtime}
    answer = {key: value.get(key) for key in expected}
    if answer != expected:
        raise MsdcError(f"{where}: the runner answers {answer}, not {expected}: run `msdc bench --build-runner`")
    width, golden, embedded = job.manifest.width, value["golden"]["texts"], value["embedded"]
    rows_RD = np.frombuffer(numbers, dtype="<f4")
    if rows_RD.size != (golden + embedded) * width:
        raise MsdcError(f"{where}: {rows_RD.size} numbers came back for {golden} + {embedded} vectors of {width}")
    rows_RD = rows_RD.reshape(-1, width).astype(np.float32)
    return value, rows_RD[:golden], rows_RD[golden:]


def _phase(kib: dict[str, Any]) -> MemoryPhase:
    # Runners that were built earlier do not report swap.
    sizes = {"vmhwm": kib["vmhwm_kib"], "pss": kib["pss_kib"], "anon": kib["anon_kib"], "swap": kib.get("swap_kib")}
    sizes["file"] = kib["rss_kib"] - kib["anon_kib"]
    return MemoryPhase.model_validate({f"{name}_mib": size and round(size / 1024, 3) for name, size in sizes.items()})


def device_info(value: dict[str, Any], *, name: str, kind: str, os: str = "", emulated: bool = False) -> DeviceInfo:
    """The machine as reported by the runner."""
    machine = value["machine"]
    cpu, isa = parse_cpuinfo(machine["cpuinfo"])
    return DeviceInfo(
        name=name,
        kind=kind,
        cpu=cpu,
        isa=isa,
        cores=max(1, machine["cores"]),
        memory_mib=round(machine["memory_kib"] / 1024, 1),
        os=os or machine["system"],
        emulated=emulated,
    )


def _listed(cpus: Sequence[int]) -> str:
    return ",".join(map(str, cpus))


def device_run(
    job: Job, answer: Answer, device: DeviceInfo, runner: RunnerBuild | None, *,
    states: States, fixed_performance: FixedPerformance | None = None, notes: Sequence[str] = (),
) -> DeviceRun:  # fmt: skip
    """The result of a run; `runner` is None for Python's. `load` is the program's, `init` the tokenizer's; files are
    read from a warm page cache.
    """
    value, golden_GD, vectors_UD = answer
    clock: Clock = value["clock"]

    def figure(count: float) -> float:
        """Nanoseconds as milliseconds; instructions as they are."""
        return count if clock == "instructions" else round(count / 1e6, 6)

    def timing(samples: list[int], length: int | None = None) -> Timing | None:
        if not samples:
            return None
        figures = tuple(map(figure, samples))
        return Timing(unit=UNITS[clock], samples=figures, warmup=job.settings.warmup, length=length)

    versions: dict[str, str] = value.get("versions", {})
    if runner is not None:
        version = value["runtime_version"] or runner.version
        versions = {RUNTIMES[job.runtime].runs_with[0]: version} if version else {}
    cpus = tuple(value.get("cpus") or ())
    requested = job.settings.cpus
    if requested and cpus and cpus != requested:
        notes = [*notes, f"CPUs {_listed(requested)} were requested, the system gave {_listed(cpus)}"]
    if requested and (count := len(cpus or requested)) < value["threads"]:
        notes = [*notes, f"{value['threads']} threads shared {count} CPU{'s' if count > 1 else ''}"]
    conditions = Conditions(
        cpus=cpus, pinned=bool(requested), cooldown_s=job.settings.cooldown_s, cool_below_c=job.settings.cool_below,
        clusters=clusters_of(states.before), fixed_performance=fixed_performance,
    )  # fmt: skip
    return DeviceRun(
        conditions=conditions,
        harness="python" if runner is None else "native",
        device=device,
        versions=versions,
        threads=value["threads"],
        clock=clock,
        load=figure(value["load"]),
        init=figure(value["init"]) if "init" in value else None,
        first=figure(value["first"]),
        latency=tuple(filter(None, (timing(row["samples"], row["length"]) for row in value["latency"]))),
        tokenize=timing(value["tokenize"]),
        pipeline=timing(value["pipeline"]),
        memory=Memory(**{name: _phase(kib) for name, kib in value["memory"].items()}),
        **job.scored(value["golden"]["ids"], golden_GD, vectors_UD),
        state_before=states.before,
        state_during=states.during,
        state_after=states.after,
        notes=tuple(notes),
    )
