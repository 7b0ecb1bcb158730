"""The process that runs one artifact: `python -m msdc.bench.devices.python_worker REQUEST.json ANSWER.json`.

The request holds the arguments of `measure`; the answer holds raw samples, memory in three phases, golden ids and
vectors; vectors of the tasks' texts are in a file next to it. The parent process computes results from them.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from msdc.bench.result import MemoryPhase
from msdc.errors import InputError, MsdcError
from msdc.machine import peak_mib, pin

PROC = Path("/proc/self")
PORTABLE_NOTE = (
    "memory by psutil, not by Linux's smaps: anonymous stands for pages that only this process holds, file-backed for"
    " the other resident ones; no PSS"
)


def _kib(path: Path) -> dict[str, int]:
    """Fields of /proc/PID/status or smaps_rollup in kB, as KiB."""
    fields = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if len(parts) == 2 and parts[1] == "kB" and parts[0].isdigit():
            fields[name] = int(parts[0])
    return fields


def read_memory(proc: Path = PROC) -> MemoryPhase:
    """Memory of this process now, as Linux reports it page by page; elsewhere see `PORTABLE_NOTE`."""
    mib: dict[str, float | None]
    try:
        if (proc / "smaps_rollup").exists():
            peak, shared = _kib(proc / "status"), _kib(proc / "smaps_rollup")
            anonymous = shared["Anonymous"]
            kib = {"vmhwm": peak["VmHWM"], "pss": shared["Pss"], "anon": anonymous, "file": shared["Rss"] - anonymous}
            mib = {name: size / 2**10 for name, size in kib.items()}
        else:
            full = psutil.Process().memory_full_info()
            # Compressed or swapped pages can make the private part larger than what is resident.
            shared_bytes = max(0, full.rss - full.uss)
            mib = {"vmhwm": peak_mib(), "pss": None, "anon": full.uss / 2**20, "file": shared_bytes / 2**20}
    except (KeyError, psutil.Error, OSError) as error:
        raise MsdcError(f"memory cannot be measured: {type(error).__name__}: {error}") from error
    return MemoryPhase.model_validate({f"{name}_mib": size and round(size, 3) for name, size in mib.items()})


def reset_peak(proc: Path = PROC) -> bool:
    """Reset VmHWM to what is resident now, so that importing modules does not count; False where it cannot be reset."""
    with contextlib.suppress(OSError):
        (proc / "clear_refs").write_text("5", encoding="ascii")
        return True
    return False


def timed_ms(call: Callable[[], Any]) -> float:
    """Milliseconds of one call."""
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e6


def sample_ms(calls: Sequence[Callable[[], Any]], warmup: int, runs: int, stop_after_s: float = 0) -> list[float]:
    """Milliseconds of `runs` calls, cycling through `calls`, after `warmup` untimed ones; of fewer that take
    `stop_after_s` seconds, if it is given."""
    # A garbage collection inside a timed call would count Python's time; one after the warm-up would cool the caches.
    gc.collect()
    gc.disable()
    try:
        for i in range(warmup):
            calls[i % len(calls)]()
        samples: list[float] = []
        left_ms = 1000 * stop_after_s or math.inf
        while len(samples) < runs and left_ms > 0:
            samples.append(timed_ms(calls[len(samples) % len(calls)]))
            left_ms -= samples[-1]
        return samples
    finally:
        gc.enable()


def row_of_length(golden_ids: Sequence[Sequence[int]], length: int) -> list[int]:
    """A row of exactly `length` ids: the first and last id of a golden row around pieces of all golden rows."""
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


def measure(
    bundle: Path,
    runtime: str,
    *,
    lengths: Sequence[int],
    runs: int,
    stop_after_s: float,
    warmup: int,
    threads: int,
    cooldown_s: float,
    from_text: bool,
    prompt: str,
    texts_file: Path | None,
    vectors_file: Path,
) -> dict[str, Any]:
    """Load, time, and read memory; returns the answer as JSON values.

    `from_text` also times tokenization and the way from text to vector. `texts_file` is a JSON list of texts to embed,
    whose vectors go to `vectors_file` (.npy). `prompt` is what these texts begin with: programs that do not pool it are
    given its number of tokens.
    """
    import numpy as np

    from msdc.export.bundle import defaults_of, open_tokenizer, run_rows
    from msdc.export.golden import read_golden
    from msdc.export.manifest import read_manifest
    from msdc.export.runtimes import RUNTIMES
    from msdc.text.tokenizer import prompt_tokens

    manifest = read_manifest(bundle)
    golden = read_golden(bundle)
    texts, longest = golden["texts"], manifest.max_length
    record = RUNTIMES[runtime]
    record.start(threads)
    versions = {
        "python": ".".join(map(str, sys.version_info[:3])),
        **{name: version(name) for name in record.runs_with},
    }
    gc.collect()
    peak_reset = reset_peak()
    memory = {"start": read_memory().model_dump()}

    start = time.perf_counter_ns()
    runner = record.open(bundle, manifest, threads)
    load_ms = (time.perf_counter_ns() - start) / 1e6
    tokenizer = open_tokenizer(bundle, manifest)
    memory["loaded"] = read_memory().model_dump()

    rows = {length: row_of_length(golden["ids"], length) for length in lengths}
    first_ms = timed_ms(lambda: runner.run([rows[min(rows)]]))
    latency = []
    for length, row in rows.items():
        if cooldown_s:
            time.sleep(cooldown_s)
        samples = sample_ms([functools.partial(runner.run, [row])], warmup, runs, stop_after_s)
        latency.append({"length": length, "samples": samples})
    usual = ordinary_texts(texts, golden["ids"]) if from_text else []
    to_ids = [functools.partial(tokenizer.encode, [text], longest) for text in usual]
    tokenize = sample_ms(to_ids, warmup, runs) if usual else []
    to_vector = [functools.partial(lambda text: runner.run(tokenizer.encode([text], longest)), text) for text in usual]
    pipeline = sample_ms(to_vector, warmup, runs) if usual else []
    memory["warm"] = read_memory().model_dump()

    def skipped(prompt: str) -> int:
        return 0 if manifest.include_prompt else prompt_tokens(tokenizer, prompt, longest)

    golden_rows = tokenizer.encode(texts, longest)
    golden_ND = run_rows(runner, golden_rows, skipped(defaults_of(manifest).prompt()), manifest.width)
    if texts_file is not None:
        wanted = json.loads(texts_file.read_text(encoding="utf-8"))
        np.save(vectors_file, run_rows(runner, tokenizer.encode(wanted, longest), skipped(prompt), manifest.width))
    return {
        "versions": versions,
        "load_ms": load_ms,
        "first_ms": first_ms,
        "latency": latency,
        "tokenize": tokenize,
        "pipeline": pipeline,
        "memory": memory,
        "peak_reset": peak_reset,
        "golden": {"ids": golden_rows, "vectors": golden_ND.tolist()},
    }


def main(arguments: Sequence[str]) -> int:
    """Entry point of the process; exit code 0, or 1 when the answer holds an `error`."""
    request_file, answer_file = map(Path, arguments)
    request = json.loads(request_file.read_text(encoding="utf-8"))
    for name in ("bundle", "texts_file", "vectors_file"):
        request[name] = request[name] and Path(request[name])
    affinity = request.pop("affinity")
    try:
        if affinity:
            pin(affinity)
        answer = measure(**request)
    except MsdcError as error:
        answer = {"error": str(error), "exit_code": error.exit_code}
    answer_file.write_text(json.dumps(answer), encoding="utf-8")
    return 1 if "error" in answer else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
