"""Child processes: isolated from the user's working directory, bounded in time and output.

Every child starts in a private empty folder unless its caller sets one, so that no file in the user's working directory
is used as code, configuration or library.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from msdc.errors import InputError, MsdcError
from msdc.progress import is_command_line

# Limit of output and of errors of one child. Our runner prints a few lines, a compiler's errors are far below.
MAX_OUTPUT_BYTES = 16 * 1024 * 1024
# Of what a library writes to standard error in this process.
MAX_KEPT_BYTES = 64 * 1024
_QUIET = threading.RLock()


class Captured:
    """What was written to standard error while it was captured."""

    text = ""

    def last_line(self) -> str:
        """The last line that is not blank; empty when nothing was written."""
        return ["", *(line.strip() for line in self.text.splitlines() if line.strip())][-1]


def _flush() -> None:
    with contextlib.suppress(AttributeError, ValueError, OSError):
        sys.stderr.flush()


@contextlib.contextmanager
def quiet() -> Iterator[Captured]:
    """On the command line, send file descriptor 2 (C++ logs included) to a temporary file, and silence warnings.

    The text is readable in the yielded object after the block, also when the block raised. In another program's process
    nothing is changed: streams, warnings and logging are its own, and so is what libraries print.
    """
    captured = Captured()
    try:
        descriptor = os.dup(2) if is_command_line() else None
    except OSError:  # started without standard error
        descriptor = None
    if descriptor is None:
        yield captured
        return
    with _QUIET, tempfile.TemporaryFile() as sink:
        _flush()
        level = logging.root.manager.disable
        try:
            os.dup2(sink.fileno(), 2)
            logging.disable(logging.WARNING)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield captured
        finally:
            logging.disable(level)
            _flush()
            os.dup2(descriptor, 2)
            os.close(descriptor)
            sink.seek(max(0, sink.seek(0, os.SEEK_END) - MAX_KEPT_BYTES))
            captured.text = sink.read().decode("utf-8", "replace")


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
    """Whether this process runs as root; False on Windows, which has no user numbers."""
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
    """Kill a program and its descendants, which can be listed only while it runs.

    `group`: it was started in a session of its own, all of whose processes are killed (not on Windows).
    """
    children = _descendants(process.pid) if process.poll() is None else []
    if group and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    _kill(children)


def kill_children() -> None:
    """Kill all descendants of this process: for one that ends while its other threads wait for programs."""
    _kill(_descendants(os.getpid()))


def end_of_signal(code: int) -> str:
    """`SIGKILL` for -9; `signal 77` for a number without a name."""
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


def run_program(
    command: Sequence[str], *, timeout_s: float, cwd: Path | None = None, env: Mapping[str, str] | None = None,
    group: bool = False, grows: tuple[Path, int] | None = None,
) -> Finished | None:  # fmt: skip
    """Run a program without input until it ends; None if it ran past `timeout_s` and was killed.

    Args:
        command: program and arguments; paths in them are absolute unless `cwd` is given.
        timeout_s: seconds.
        cwd: working directory; None for a private empty one.
        env: environment; None for this process's.
        group: start it in a session of its own, whose processes are killed at the end.
        grows: a file that the program writes, and its largest size in bytes.

    Raises:
        InputError: the program cannot be started.
        MsdcError: it printed or wrote more than allowed and was killed.
    """
    name = Path(command[0]).name
    with contextlib.ExitStack() as stack:
        folder = cwd or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="msdc-child-")))
        # Files, not pipes: they need no reading while it runs, and a process that outlives the program blocks nothing.
        streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
        try:
            process = subprocess.Popen(
                list(command), cwd=folder, env=env, stdin=subprocess.DEVNULL, stdout=streams[0], stderr=streams[1],
                start_new_session=group,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"{command[0]}: cannot be run here ({error.strerror})") from error
        end, pause, running = time.monotonic() + timeout_s, 0.002, True
        try:
            while running:
                running = process.poll() is None
                if any(os.fstat(stream.fileno()).st_size > MAX_OUTPUT_BYTES for stream in streams):
                    raise MsdcError(f"{name} printed more than {MAX_OUTPUT_BYTES / 2**20:g} MiB; stopped")
                if grows is not None and grows[0].exists() and grows[0].stat().st_size > grows[1]:
                    raise MsdcError(f"{name} wrote more than {grows[1] / 2**20:g} MiB; stopped")
                if running and time.monotonic() >= end:
                    return None
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(pause)
                pause = min(0.05, pause * 1.5)
        finally:
            kill_tree(process, group=group)
            process.wait()
        texts = []
        for stream in streams:
            stream.seek(0)
            texts.append(stream.read().decode("utf-8", errors="replace"))
        return Finished(process.returncode, *texts)
