"""`python`: this machine through Python's bindings, each artifact in a fresh process of its own.

It needs no compiler. Latency and accuracy are the artifact's; memory includes the interpreter and the runtime's
libraries, so only differences between phases are meaningful. `host` gives the numbers of an app.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.devices.process_memory import PORTABLE_NOTE
from msdc.bench.devices.python_worker import ChildRequest
from msdc.bench.devices.this_machine import ThisMachine, host_info, host_state
from msdc.bench.measure import artifact_of, compare_golden
from msdc.bench.result import DeviceRun, Memory, Timing
from msdc.bench.settings import BenchSettings
from msdc.bench.system_programs import end_of_signal, python_child, run_program
from msdc.bench.workload import Tasks
from msdc.errors import InputError, MsdcError
from msdc.export.golden import read_golden
from msdc.export.manifest import Manifest
from msdc.export.runtimes import RuntimeName

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
PYTHON_NOTE = "memory includes the Python interpreter and the runtime's libraries; read the differences between phases"


def run_child(request: ChildRequest, folder: Path, timeout_s: float) -> dict[str, Any]:
    """Start the measuring process and read its answer.

    Raises:
        InputError: the child refused the artifact.
        MsdcError: it failed, was killed, or ran past `timeout_s`.
    """
    request_file, answer_file = folder / "request.json", folder / "answer.json"
    request_file.write_text(request.model_dump_json(), encoding="utf-8")
    command, environment = python_child("msdc.bench.devices.python_worker", str(request_file), str(answer_file))
    environment |= dict.fromkeys(THREAD_VARIABLES, str(request.threads))
    done = run_program(command, timeout_s=timeout_s, cwd=folder, env=environment, group=True)
    if done is None:
        raise MsdcError(f"{request.runtime} on python: no result after {timeout_s:g} s; stopped")
    if done.code < 0:
        name = end_of_signal(done.code)
        hint = " (out of memory?)" if name == "SIGKILL" else ""
        raise MsdcError(f"{request.runtime} on python: the measuring process was ended by {name}{hint}")
    if not answer_file.is_file():
        lines = done.errors.strip().splitlines()
        last = lines[-1][:300] if lines else "no message"
        raise MsdcError(f"{request.runtime} on python: the measuring process failed: {last}")
    answer: dict[str, Any] = json.loads(answer_file.read_text(encoding="utf-8"))
    if "error" in answer:
        raise (InputError if answer.get("exit_code") == 2 else MsdcError)(answer["error"])
    return answer


def run_python(
    bundle: Path,
    manifest: Manifest,
    runtime: RuntimeName,
    settings: BenchSettings,
    tasks: Tasks,
    notes: Sequence[str] = (),
) -> DeviceRun:
    """Measure one artifact in a fresh process. `notes` are added to those of the result.

    Raises:
        InputError: the artifact is refused.
        MsdcError: the process failed, was killed, or ran past the settings' limit.
    """
    texts = tasks.texts()
    before = host_state()
    with tempfile.TemporaryDirectory(prefix="msdc-bench-") as temporary:
        folder = Path(temporary)
        (folder / "texts.json").write_text(json.dumps(settings.device_texts(manifest, texts)), encoding="utf-8")
        request = ChildRequest(
            bundle=bundle.resolve(),
            runtime=runtime,
            lengths=settings.lengths,
            runs=settings.runs,
            warmup=settings.warmup,
            threads=settings.threads,
            cooldown_s=settings.cooldown_s,
            affinity=settings.affinity,
            texts_file=folder / "texts.json" if texts else None,
            prompt=settings.prompt_text(manifest),
            vectors_file=folder / "vectors.npy" if texts else None,
        )
        answer = run_child(request, folder, settings.timeout_s)
        vectors_UD = np.load(folder / "vectors.npy", allow_pickle=False) if texts else np.zeros((0, manifest.width))
    artifact = artifact_of(bundle, manifest, runtime)
    return DeviceRun(
        harness="python",
        artifact=artifact,
        device=host_info(),
        versions=answer["versions"],
        threads=settings.threads,
        load=answer["load_ms"],
        first=answer["first_ms"],
        latency=tuple(
            Timing(samples=row["samples"], warmup=settings.warmup, length=row["length"]) for row in answer["latency"]
        ),
        tokenize=Timing(samples=answer["tokenize"], warmup=settings.warmup),
        pipeline=Timing(samples=answer["pipeline"], warmup=settings.warmup),
        memory=Memory.model_validate(answer["memory"]),
        parity=compare_golden(
            read_golden(bundle), runtime, answer["golden"]["ids"], np.asarray(answer["golden"]["vectors"])
        ),
        accuracy=tasks.score_vectors(
            f"{manifest.name} {runtime}", texts, vectors_UD[:, : settings.vector_width(manifest)]
        ),
        state_before=before,
        state_after=host_state(),
        notes=(
            *notes,
            PYTHON_NOTE,
            *(() if answer["memory"]["start"]["pss_mib"] is not None else (PORTABLE_NOTE,)),
            *(() if answer["peak_reset"] else ("the peak includes Python's own start",)),
        ),
    )


class PythonDevice(ThisMachine):
    """This machine through Python."""

    kind = "python"
    way = "through Python"

    def measure(
        self, bundle: Path, manifest: Manifest, runtime: RuntimeName, settings: BenchSettings, tasks: Tasks
    ) -> DeviceRun:
        """See `ThisMachine.measure`."""
        return run_python(bundle, manifest, runtime, settings, tasks)
