"""This machine: `host` through the native runner, `python` through Python's bindings, each artifact in a new process.

The native runner gives the numbers that an app would see, without Python in the process. Where none can be built (no
compiler, no header), `host` measures through Python; a note in the result states it. `python` needs no compiler:
latency and accuracy are the artifact's; memory includes the interpreter and the runtime's libraries, so only
differences between phases are meaningful.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.bench.devices import runner_protocol as protocol
from msdc.bench.devices.base import Device, Job, as_far_as, open_jobs
from msdc.bench.devices.python_worker import PORTABLE_NOTE
from msdc.bench.measure import BenchSettings
from msdc.bench.result import DeviceInfo, DeviceRun, DeviceState, Memory, Timing
from msdc.bench.system_programs import last_words
from msdc.bench.toolchain.build import native_runner
from msdc.errors import InputError, MsdcError
from msdc.export.runtimes import RUNTIMES
from msdc.extras import missing
from msdc.machine import read_heat, read_machine, usable_cores
from msdc.processes import Finished, end_of_signal, python_child, run_program
from msdc.progress import say, track, warn

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
PYTHON_NOTE = "memory includes the Python interpreter and the runtime's libraries; read the differences between phases"


def short_cpu(cpu: str) -> str:
    """A processor's name without trademarks and clock; used as device name, so that no host name is published."""
    plain = re.sub(r"\((R|TM|C)\)|\bCPU\b|\bProcessor\b|@.*$", " ", cpu)
    return " ".join(plain.split())


def host_info() -> DeviceInfo:
    """This machine as a device."""
    machine = read_machine()
    return DeviceInfo(
        name=short_cpu(machine.cpu) or "host",
        kind="host",
        cpu=f"{machine.cpu} ({machine.arch})",
        isa=machine.isa,
        cores=machine.cores,
        memory_mib=machine.memory_mib,
        os=machine.os,
    )


def host_state() -> DeviceState:
    """Current load, temperatures and battery of this machine."""
    return DeviceState(**read_heat())


def check_cores(settings: BenchSettings) -> None:
    """Refuse threads or CPU numbers that this process may not use."""
    usable = usable_cores()
    if settings.threads > len(usable):
        raise InputError(f"`threads` {settings.threads}: this machine has {len(usable)} cores")
    if not set(settings.affinity) <= usable:
        raise InputError(f"`affinity` {','.join(map(str, settings.affinity))}: not all of them are usable here")


def _finished(where: str, done: Finished | None, timeout_s: float) -> Finished:
    """`done`, where the process came to an end by itself."""
    if done is None:
        raise MsdcError(f"{where}: no result after {timeout_s:g} s; stopped")
    if done.code < 0:
        name = end_of_signal(done.code)
        raise MsdcError(f"{where}: ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else ""))
    return done


class ThisMachine(Device):
    """Base of the devices that are this machine; they take no argument."""

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`; a runtime whose package is missing is an error where it was asked for, else one line."""
        if self.argument is not None:
            raise InputError(f"device {self.kind} takes no argument, got {self.argument!r}")
        check_cores(settings)
        jobs = open_jobs(bundle, settings)
        runnable = [job for job in jobs if RUNTIMES[job.runtime].installed]
        for job in jobs:
            if job not in runnable and (settings.runtimes or not runnable):
                RUNTIMES[job.runtime].require()
            elif job not in runnable:
                warn(f"not measured: {missing(RUNTIMES[job.runtime].package, f'runtime {job.runtime}')}")
        title = f"bench {jobs[0].manifest.name} on {self.kind}"
        return as_far_as(map(self.measure, track(runnable, title, enabled=settings.progress)))

    def measure(self, job: Job) -> DeviceRun:
        """Measure one artifact of a bundle whose files were checked."""
        return run_python(job)


class HostDevice(ThisMachine):
    """This machine through the native runner, or through Python where no runner can be built."""

    kind = "host"

    @classmethod
    def available(cls) -> Sequence[str]:
        """Always available."""
        return ("host",)

    def measure(self, job: Job) -> DeviceRun:
        """See `ThisMachine.measure`."""
        where, timeout_s = f"{job.runtime} on host", job.settings.timeout_s
        try:
            job.native_tokenizer()
            runner = native_runner(job.runtime, None, job.settings.runner)
        except MsdcError as error:
            if job.settings.runner is not None:
                raise
            why = f"measured through Python, not by the native runner: {error}"
            say(f"{where}: {why}")
            return run_python(job, (why,))
        before = host_state()
        with tempfile.TemporaryDirectory(prefix="msdc-bench-") as temporary:
            folder = Path(temporary)
            nonce, _ = protocol.write_request(job, folder, str(job.bundle), str(folder))
            command = [str(runner.program.resolve()), protocol.REQUEST]
            done = run_program(command, timeout_s=timeout_s, cwd=folder, group=True)
            hashes = protocol.sentinel(done.output, nonce) if done is not None else None
            if hashes is None:
                message = protocol.runner_error(done.errors) if done is not None else None
                if done is None or message is None:
                    done = _finished(where, done, timeout_s)
                    message = f"the runner ended with code {done.code} ({last_words(done.errors)})"
                raise (InputError if done.code == protocol.USAGE_CODE else MsdcError)(f"{where}: {message}")
            answer = protocol.read_answer(job, where, folder, hashes)
        return protocol.device_run(job, answer, host_info(), runner, before=before, after=host_state())


class PythonDevice(ThisMachine):
    """This machine through Python."""

    kind = "python"


def _run_child(request: dict[str, Any], folder: Path, timeout_s: float) -> dict[str, Any]:
    """The answer of the measuring process of `python_worker`; what it refused is raised here."""
    where = f"{request['runtime']} on python"
    request_file, answer_file = folder / "request.json", folder / "answer.json"
    request_file.write_text(json.dumps(request), encoding="utf-8")
    command, environment = python_child("msdc.bench.devices.python_worker", str(request_file), str(answer_file))
    environment |= dict.fromkeys(THREAD_VARIABLES, str(request["threads"]))
    done = run_program(command, timeout_s=timeout_s, cwd=folder, env=environment, group=True)
    done = _finished(where, done, timeout_s)
    if not answer_file.is_file():
        raise MsdcError(f"{where}: the measuring process failed: {last_words(done.errors)}")
    answer: dict[str, Any] = json.loads(answer_file.read_text(encoding="utf-8"))
    if "error" in answer:
        raise (InputError if answer["exit_code"] == InputError.exit_code else MsdcError)(answer["error"])
    return answer


def run_python(job: Job, notes: Sequence[str] = ()) -> DeviceRun:
    """Measure one artifact in a fresh process. `notes` are added to those of the result."""
    settings = job.settings
    before = host_state()
    with tempfile.TemporaryDirectory(prefix="msdc-bench-") as temporary:
        folder = Path(temporary)
        texts_file, vectors_file = folder / "texts.json", folder / "vectors.npy"
        texts_file.write_text(json.dumps(job.prompted), encoding="utf-8")
        request = settings.model_dump(
            include={"lengths", "runs", "stop_after_s", "warmup", "threads", "cooldown_s", "affinity", "from_text"}
        ) | {
            "bundle": str(job.bundle),
            "runtime": job.runtime,
            "prompt": settings.prompt_text(job.manifest),
            "texts_file": str(texts_file) if job.texts else None,
            "vectors_file": str(vectors_file),
        }
        answer = _run_child(request, folder, settings.timeout_s)
        vectors_UD = np.load(vectors_file, allow_pickle=False) if job.texts else np.zeros((0, job.manifest.width))

    def timing(samples: Sequence[float], length: int | None = None) -> Timing | None:
        return Timing(samples=tuple(samples), warmup=settings.warmup, length=length) if samples else None

    memory = Memory.model_validate(answer["memory"])
    notes_of_run = [*notes, PYTHON_NOTE]
    if memory.start.pss_mib is None:
        notes_of_run.append(PORTABLE_NOTE)
    if not answer["peak_reset"]:
        notes_of_run.append("the peak includes Python's own start")
    return DeviceRun(
        harness="python",
        device=host_info(),
        versions=answer["versions"],
        threads=settings.threads,
        load=answer["load_ms"],
        first=answer["first_ms"],
        latency=tuple(filter(None, (timing(row["samples"], row["length"]) for row in answer["latency"]))),
        tokenize=timing(answer["tokenize"]),
        pipeline=timing(answer["pipeline"]),
        memory=memory,
        **job.scored(answer["golden"]["ids"], np.asarray(answer["golden"]["vectors"]), vectors_UD),
        state_before=before,
        state_after=host_state(),
        notes=tuple(notes_of_run),
    )
