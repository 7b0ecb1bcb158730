"""The native runner's protocol in Python: `python -m msdc.bench.devices.python_worker REQUEST.json`.

Request, answer and the last line of output are those of `runner_protocol`; the process that runs the artifact imports
nothing of the benchmark, whose memory would count.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import hashlib
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from msdc.errors import MsdcError
from msdc.machine import peak_mib, pin, usable_cores

PROC = Path("/proc/self")
# The words of the protocol, which the native runner prints too (bench/runner/main.cpp).
DONE = "msdc-runner done"
ERROR = "msdc-runner error: "
ANSWER_FORMAT = 1


def _kib(path: Path) -> dict[str, int]:
    """Fields of /proc/PID/status or smaps_rollup in kB, as KiB."""
    fields = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, rest = line.partition(":")
        parts = rest.split()
        if len(parts) == 2 and parts[1] == "kB" and parts[0].isdigit():
            fields[name] = int(parts[0])
    return fields


def read_memory(proc: Path = PROC) -> dict[str, int | None]:
    """Memory of this process now in KiB, as Linux reports it page by page; elsewhere without PSS, by psutil, where
    anonymous are the pages that only this process holds.
    """
    try:
        if (proc / "smaps_rollup").exists():
            peak, now = _kib(proc / "status"), _kib(proc / "smaps_rollup")
            return {"vmhwm_kib": peak["VmHWM"], "pss_kib": now["Pss"], "rss_kib": now["Rss"],
                    "anon_kib": now["Anonymous"], "swap_kib": now.get("SwapPss", 0)}  # fmt: skip
        full = psutil.Process().memory_full_info()
    except (KeyError, psutil.Error, OSError) as error:
        raise MsdcError(f"memory cannot be measured: {type(error).__name__}: {error}") from error
    # Compressed or swapped pages can make the private part larger than what is resident.
    sizes = {"rss_kib": max(full.rss, full.uss), "anon_kib": full.uss}
    return {"vmhwm_kib": round(peak_mib() * 1024), "pss_kib": None} | {name: n // 1024 for name, n in sizes.items()}


def reset_peak(proc: Path = PROC) -> bool:
    """Reset VmHWM to what is resident now, so that importing modules does not count; False where it cannot be reset."""
    with contextlib.suppress(OSError):
        (proc / "clear_refs").write_text("5", encoding="ascii")
        return True
    return False


def timed_ns(call: Callable[[], Any]) -> int:
    """Nanoseconds of one call."""
    start = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - start


def sample_ns(calls: Sequence[Callable[[], Any]], warmup: int, runs: int, stop_ms: float = 0) -> list[int]:
    """Nanoseconds of `runs` calls, cycling through `calls`, after `warmup` untimed ones; of fewer that take `stop_ms`,
    if it is given."""
    # A garbage collection inside a timed call would count Python's time; one after the warm-up would cool the caches.
    gc.collect()
    gc.disable()
    try:
        for number in range(warmup):
            calls[number % len(calls)]()
        samples: list[int] = []
        remaining_ns = 1e6 * stop_ms or math.inf
        while len(samples) < runs and remaining_ns > 0:
            samples.append(timed_ns(calls[len(samples) % len(calls)]))
            remaining_ns -= samples[-1]
        return samples
    finally:
        gc.enable()


def measure(request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Load, time, and read memory: the answer, and the vectors of the golden texts and of those to embed."""
    import numpy as np

    from msdc.export.bundle import defaults_of, open_tokenizer, run_rows
    from msdc.export.golden import read_golden
    from msdc.export.manifest import read_manifest
    from msdc.export.runtimes import RUNTIMES
    from msdc.text.tokenizer import prompt_tokens

    bundle, warmup, runs = Path(request["bundle"]), request["warmup"], request["runs"]
    manifest = read_manifest(bundle)
    texts, longest = read_golden(bundle)["texts"], manifest.max_length
    record = RUNTIMES[request["runtime"]]
    record.start(request["threads"])
    versions = {name: version(name) for name in record.runs_with}
    gc.collect()
    peak_reset = reset_peak()
    memory = {"start": read_memory()}

    start = time.perf_counter_ns()
    runner = record.open(bundle, manifest, request["threads"])
    load = time.perf_counter_ns() - start
    tokenizer = open_tokenizer(bundle, manifest)
    memory["loaded"] = read_memory()

    rows = {row["length"]: row["ids"] for row in request["rows"]}
    first = timed_ns(lambda: runner.run([rows[min(rows)]]))
    latency = []
    for length, row in rows.items():
        time.sleep(request["cooldown_ms"] / 1000)
        samples = sample_ns([functools.partial(runner.run, [row])], warmup, runs, request["stop_ms"])
        latency.append({"length": length, "samples": samples})
    usual = request["texts"]
    to_ids = [functools.partial(tokenizer.encode, [text], longest) for text in usual]
    tokenize = sample_ns(to_ids, warmup, runs) if usual else []
    to_vector = [functools.partial(lambda text: runner.run(tokenizer.encode([text], longest)), text) for text in usual]
    pipeline = sample_ns(to_vector, warmup, runs) if usual else []
    memory["warm"] = read_memory()

    def vectors(rows: list[list[int]], prompt: str) -> Any:
        # Programs that do not pool the prompt are given its number of tokens.
        skipped = 0 if manifest.include_prompt else prompt_tokens(tokenizer, prompt, longest)
        return run_rows(runner, rows, skipped, manifest.width)

    golden_rows = tokenizer.encode(texts, longest)
    results = [vectors(golden_rows, defaults_of(manifest).prompt())]
    embedded = Path(request["embed_file"]).read_text(encoding="utf-8").split("\0")[:-1] if request["embed_file"] else []
    if embedded:
        results.append(vectors(tokenizer.encode(embedded, longest), request["prompt"]))
    answer = {
        "versions": {"python": ".".join(map(str, sys.version_info[:3])), **versions},
        "runtime": request["runtime"],
        "threads": request["threads"],
        "cpus": sorted(usable_cores()),
        "load": load,
        "first": first,
        "latency": latency,
        "tokenize": tokenize,
        "pipeline": pipeline,
        "memory": memory,
        "peak_reset": peak_reset,
        "golden": {"ids": golden_rows, "texts": len(texts)},
        "embedded": len(embedded),
    }
    return answer, np.concatenate(results).astype("<f4").tobytes()


def main(arguments: Sequence[str]) -> int:
    """Entry point of the process; the exit code is that of the error."""
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    try:
        if request["affinity"]:
            pin(request["affinity"])
        answer, vectors = measure(request)
    except MsdcError as error:
        print(f"{ERROR}{' '.join(str(error).split())}", file=sys.stderr)
        return error.exit_code
    raw = json.dumps({"format": ANSWER_FORMAT, "kind": "runner-answer", "clock": "wall", **answer}).encode()
    Path(request["answer_file"]).write_bytes(raw)
    Path(request["vectors_file"]).write_bytes(vectors)
    print(DONE, request["nonce"], hashlib.sha256(raw).hexdigest(), hashlib.sha256(vectors).hexdigest())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
