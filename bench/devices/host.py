"""This machine through the native runner: the numbers that an app would see, without Python in the process.

Where no runner can be built (no compiler, no header), the artifact is measured through Python; a note in the result
states it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from msdc.bench.devices.python import run_python
from msdc.bench.devices.runner_protocol import (
    ANSWER,
    REQUEST,
    USAGE_CODE,
    VECTORS,
    RunnerJob,
    device_run,
    read_answer,
    runner_error,
    sentinel,
)
from msdc.bench.devices.this_machine import ThisMachine, host_info, host_state
from msdc.bench.result import DeviceRun
from msdc.bench.settings import BenchSettings
from msdc.bench.system_programs import Finished, end_of_signal, last_words, run_program
from msdc.bench.workload import Tasks
from msdc.errors import InputError, MsdcError
from msdc.export.manifest import Manifest
from msdc.export.runtimes import RuntimeName
from msdc.progress import say


class HostDevice(ThisMachine):
    """This machine through the native runner, or through Python where no runner can be built."""

    kind = "host"
    way = "on host"

    @classmethod
    def available(cls) -> Sequence[str]:
        """Always available."""
        return ("host",)

    def measure(
        self, bundle: Path, manifest: Manifest, runtime: RuntimeName, settings: BenchSettings, tasks: Tasks
    ) -> DeviceRun:
        """See `ThisMachine.measure`."""
        job = RunnerJob(bundle.resolve(), manifest, runtime, settings, tasks)
        where = f"{job.runtime} on host"
        try:
            job.check_tokenizer()
            runner = job.runner()
        except MsdcError as error:
            if job.settings.runner is not None:
                raise
            why = f"measured through Python, not by the native runner: {error}"
            say(f"{where}: {why}")
            return run_python(job.bundle, job.manifest, job.runtime, job.settings, job.tasks, (why,))
        before = host_state()
        with tempfile.TemporaryDirectory(prefix="msdc-bench-") as temporary:
            folder = Path(temporary)
            job.write_request(folder, str(job.bundle), str(folder))
            timeout_s = job.settings.timeout_s
            command = [str(runner.program.resolve()), REQUEST]
            done = run_program(command, timeout_s=timeout_s, cwd=folder, group=True)
            if done is None:
                raise MsdcError(f"{where}: no result after {timeout_s:g} s; stopped")
            hashes = sentinel(done.output, job.nonce)
            if hashes is None:
                raise self._failure(where, done)
            answer = read_answer(job, where, folder / ANSWER, folder / VECTORS, hashes)
        return device_run(job, answer, host_info(), runner, before=before, after=host_state())

    @staticmethod
    def _failure(where: str, done: Finished) -> MsdcError:
        message = runner_error(done.errors)
        if message is not None:
            return (InputError if done.code == USAGE_CODE else MsdcError)(f"{where}: {message}")
        if done.code < 0:
            name = end_of_signal(done.code)
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return MsdcError(f"{where}: the runner was ended by {name}{hint}")
        word = last_words(done.errors)
        return MsdcError(f"{where}: the runner ended with code {done.code}" + (f" ({word})" if word else ""))
