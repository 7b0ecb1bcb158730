"""This machine through the native runner: the numbers that an app would see, without Python in the process.

Where no runner can be built (no compiler, no header), the artifact is measured through Python; a note in the result
states it.
"""

from __future__ import annotations

import os
import signal
import subprocess
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
from msdc.bench.system_programs import last_words
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
            done = self._run_program([str(runner.program.resolve()), REQUEST], folder, timeout_s)
            if done is None:
                raise MsdcError(f"{where}: no result after {timeout_s:g} s; stopped")
            hashes = sentinel(done.stdout, job.nonce)
            if hashes is None:
                raise self._failure(where, done)
            answer = read_answer(job, where, folder / ANSWER, folder / VECTORS, hashes)
        return device_run(job, answer, host_info(), runner, before=before, after=host_state())

    @staticmethod
    def _run_program(command: list[str], folder: Path, timeout_s: float) -> subprocess.CompletedProcess[str] | None:
        """Run to the end; None when it ran past `timeout_s` and was killed with its children."""
        try:
            process = subprocess.Popen(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                encoding="utf-8", errors="replace", start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"{command[0]}: cannot be run here ({error.strerror})") from error
        with process:
            try:
                output, errors = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return None
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    @staticmethod
    def _failure(where: str, done: subprocess.CompletedProcess[str]) -> MsdcError:
        message = runner_error(done.stderr)
        if message is not None:
            return (InputError if done.returncode == USAGE_CODE else MsdcError)(f"{where}: {message}")
        if done.returncode < 0:
            name = signal.Signals(-done.returncode).name
            hint = " (out of memory?)" if name == "SIGKILL" else ""
            return MsdcError(f"{where}: the runner was ended by {name}{hint}")
        word = last_words(done.stderr)
        return MsdcError(f"{where}: the runner ended with code {done.returncode}" + (f" ({word})" if word else ""))
