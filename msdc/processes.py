"""Child processes: isolated from the user's working directory, bounded in time and output.

Every child starts in a private empty folder unless its caller names one, so that nothing in the user's working
directory is picked up as code, configuration or library.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from msdc.errors import InputError, MsdcError

# Output and errors of one child, each. Our own runner prints a few lines; a compiler's errors stay far below.
MAX_OUTPUT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Finished:
    """How a program ended: its exit code (negative for a signal) and what it printed, undecodable bytes replaced."""

    code: int
    output: str
    errors: str


def python_child(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a Python child that runs `module` as installed, never from the working directory.

    `-P` keeps the working directory off the child's path; empty entries of PYTHONPATH, which mean the same, are removed
    and relative ones made absolute, since the child has another working directory.
    """
    environment = dict(os.environ) | {"PYTHONSAFEPATH": "1"}
    entries = [os.path.abspath(entry) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    environment.pop("PYTHONPATH", None)
    if entries:
        environment["PYTHONPATH"] = os.pathsep.join(entries)
    return [sys.executable, "-P", "-m", module, *arguments], environment


def is_root() -> bool:
    """Whether this process has all rights, by user number; False on Windows, which has none."""
    return hasattr(os, "geteuid") and os.geteuid() == 0


def _descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).children(recursive=True)
    return []


def _kill(processes: Sequence[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def kill_tree(process: subprocess.Popen[bytes], *, group: bool) -> None:
    """Kill a program and all below it.

    Args:
        process: the program; its children are known only while it lives.
        group: it was started in a session of its own, whose processes end with it, whoever their parent is. Windows has
            no such groups.
    """
    children = _descendants(process.pid)
    if group and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    _kill(children)


def kill_children() -> None:
    """Kill every process below this one: for a process that ends while other threads of it wait for programs."""
    _kill(_descendants(os.getpid()))


def end_of_signal(code: int) -> str:
    """`SIGKILL` for -9; `signal 77` for a number without a name."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class _Drain(threading.Thread):
    """Reads one pipe to its end and keeps at most `limit` bytes; `full` is set by the first byte beyond."""

    def __init__(self, pipe: IO[bytes], limit: int) -> None:
        super().__init__(daemon=True)
        self.pipe, self.limit = pipe, limit
        self.kept = bytearray()
        self.full = threading.Event()

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            while block := os.read(self.pipe.fileno(), 65536):
                room = self.limit - len(self.kept)
                self.kept += block[:room]
                if len(block) > room:
                    self.full.set()

    def text(self) -> str:
        return bytes(self.kept).decode("utf-8", errors="replace")


def run_program(
    command: Sequence[str], *, timeout_s: float, cwd: Path | None = None, env: Mapping[str, str] | None = None,
    group: bool = False, limit: int = MAX_OUTPUT_BYTES, grows: tuple[Path, int] | None = None,
) -> Finished | None:  # fmt: skip
    """Run to the end without input; None when it ran past `timeout_s` and was killed.

    Args:
        command: program and arguments; paths in them are absolute unless `cwd` is given.
        timeout_s: seconds.
        cwd: working directory; None for a private empty one.
        env: environment; None for this process's.
        group: start it in a session of its own, which is killed with it.
        limit: bytes kept of each stream.
        grows: a file that the program writes, and the bytes that it may have.

    Raises:
        InputError: the program cannot be started.
        MsdcError: it printed or wrote more than allowed; it was killed.
    """
    with contextlib.ExitStack() as stack:
        place = cwd or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="msdc-child-")))
        try:
            process = subprocess.Popen(
                list(command), cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=group,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"{command[0]}: cannot be run here ({error.strerror})") from error
        assert process.stdout is not None and process.stderr is not None
        drains = [_Drain(process.stdout, limit), _Drain(process.stderr, limit)]
        for drain in drains:
            drain.start()

        def stop() -> None:
            kill_tree(process, group=group)
            process.wait()

        try:
            return _wait(process, Path(command[0]).name, drains, timeout_s, limit, grows)
        finally:
            if process.poll() is None or any(drain.is_alive() for drain in drains):
                stop()
            for drain in drains:
                drain.join(5)
            if not any(drain.is_alive() for drain in drains):
                process.stdout.close()
                process.stderr.close()


def _wait(
    process: subprocess.Popen[bytes], name: str, drains: Sequence[_Drain], timeout_s: float, limit: int,
    grows: tuple[Path, int] | None,
) -> Finished | None:  # fmt: skip
    """Until the program has ended and both pipes are closed; see `run_program`."""
    end, pause = time.monotonic() + timeout_s, 0.002
    while True:
        if any(drain.full.is_set() for drain in drains):
            raise MsdcError(f"{name} printed more than {limit / 2**20:g} MiB; stopped")
        if grows is not None and grows[0].exists() and grows[0].stat().st_size > grows[1]:
            raise MsdcError(f"{name} wrote more than {grows[1] / 2**20:g} MiB; stopped")
        left = end - time.monotonic()
        if left <= 0:
            return None
        # The pipes close with the last process that holds them, as subprocess.communicate waits for it.
        alive = next((drain for drain in drains if drain.is_alive()), None)
        if alive is not None:
            alive.join(min(left, pause))
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(min(left, pause))
                if not any(drain.full.is_set() for drain in drains):
                    return Finished(code, drains[0].text(), drains[1].text())
        pause = min(0.05, pause * 1.5)
