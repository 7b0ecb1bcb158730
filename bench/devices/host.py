"""This machine: `host` through the native runner, `python` through Python's bindings, each artifact in a new process.

The native runner gives the numbers that an app would see, without Python in the process. Where none can be built (no
compiler, no header), `host` measures through Python; a note in the result states it. `python` needs no compiler:
latency and accuracy are the artifact's; memory includes the interpreter and the runtime's libraries, so only
differences between phases are meaningful.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msdc.bench.devices import runner_protocol as protocol
from msdc.bench.devices.base import Device, Job, collect_runs, open_jobs
from msdc.bench.devices.state import Watched, host_state, with_affinity
from msdc.bench.options import BenchSettings
from msdc.bench.result import DeviceInfo, DeviceRun
from msdc.bench.system_programs import last_words
from msdc.bench.toolchain.build import native_runner
from msdc.errors import InputError, MsdcError
from msdc.export.runtimes import RUNTIMES
from msdc.extras import missing
from msdc.machine import core_count, read_machine, usable_cores
from msdc.processes import end_of_signal, python_child, run_program
from msdc.progress import say, track, warn

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
PORTABLE_NOTE = (
    "memory by psutil, not by Linux's smaps: anonymous are the pages that only this process holds, file-backed the "
    "other resident ones; no PSS"
)
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


def with_cores(settings: BenchSettings) -> BenchSettings:
    """`settings` with numbers of this machine's cores in the place of "big"; CPUs that it may not use are refused."""
    if settings.threads > (cores := core_count()):
        raise InputError(f"`threads` {settings.threads}: this process may use {cores} core{'s' if cores > 1 else ''}")
    settings = with_affinity(settings, host_state(), "this machine", usable_cores())
    if not set(settings.cpus) <= usable_cores():
        raise InputError(f"`affinity` {','.join(map(str, settings.cpus))}: not all of them are usable here")
    return settings


def _answer(job: Job, where: str, command: Sequence[str], env: Mapping[str, str] | None = None) -> protocol.Answer:
    """The answer of a runner: `command` and a request file."""
    timeout_s = job.settings.timeout_s
    with tempfile.TemporaryDirectory(prefix="msdc-bench-") as temporary:
        folder = Path(temporary)
        nonce, _ = protocol.write_request(job, folder, str(job.bundle), str(folder))
        done = run_program([*command, protocol.REQUEST], timeout_s=timeout_s, cwd=folder, env=env, group=True)
        if done is None:
            raise MsdcError(f"{where}: no result after {timeout_s:g} s; stopped")
        if (hashes := protocol.sentinel(done.output, nonce)) is not None:
            return protocol.read_answer(job, where, folder, hashes)
    message = protocol.runner_error(done.errors)
    if message is None and done.code < 0:
        name = end_of_signal(done.code)
        message = f"ended by {name}" + (" (out of memory?)" if name == "SIGKILL" else "")
    elif message is None:
        message = f"the runner ended with code {done.code} ({last_words(done.errors)})"
    raise (InputError if done.code == protocol.USAGE_CODE else MsdcError)(f"{where}: {message}")


class ThisMachine(Device):
    """Base of the devices that are this machine; they take no argument."""

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`; a runtime whose package is missing is an error where it was requested, else one line."""
        if self.argument is not None:
            raise InputError(f"device {self.kind} takes no argument, got {self.argument!r}")
        settings = with_cores(settings)
        jobs = open_jobs(bundle, settings)
        runnable = [job for job in jobs if RUNTIMES[job.runtime].installed]
        for job in jobs:
            if job not in runnable and (settings.runtimes or not runnable):
                RUNTIMES[job.runtime].require()
            elif job not in runnable:
                warn(f"not measured: {missing(RUNTIMES[job.runtime].package, f'runtime {job.runtime}')}")
        title = f"bench {jobs[0].manifest.name} on {self.kind}"
        return collect_runs(map(self.measure, track(runnable, title, enabled=settings.progress)))

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
        where = f"{job.runtime} on host"
        try:
            job.native_tokenizer()
            runner = native_runner(job.runtime, None, job.settings.runner)
        except MsdcError as error:
            if job.settings.runner is not None:
                raise
            why = f"measured through Python, not by the native runner: {error}"
            say(f"{where}: {why}")
            return run_python(job, (why,))
        with Watched() as watched:
            answer = _answer(job, where, [str(runner.program.resolve())])
        return protocol.device_run(job, answer, host_info(), runner, states=watched.states)


class PythonDevice(ThisMachine):
    """This machine through Python."""

    kind = "python"


def run_python(job: Job, notes: Sequence[str] = ()) -> DeviceRun:
    """Measure one artifact in a fresh process. `notes` are added to those of the result."""
    command, environment = python_child("msdc.bench.devices.python_worker")
    environment |= dict.fromkeys(THREAD_VARIABLES, str(job.settings.threads))
    with Watched() as watched:
        answer = _answer(job, f"{job.runtime} on python", command, environment)
    run = protocol.device_run(job, answer, host_info(), None, states=watched.states)
    noted = [*notes, PYTHON_NOTE]
    if run.memory is not None and run.memory.start.pss_mib is None:
        noted.append(PORTABLE_NOTE)
    if not answer[0]["peak_reset"]:
        noted.append("the peak includes Python's own start")
    return run.model_copy(update={"notes": tuple(noted)})
