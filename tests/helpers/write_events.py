"""Kill a forked child before its n-th write event: everything that changes a folder, as Python's audit hooks see it.

Seen are files opened for writing, renames, removals, new folders, links and changed modes; `msdc.files` raises events
of its own for what no audit event covers (`msdc.files.complete`: the content of a file or folder is there and not
renamed yet). Compiled libraries write to files that Python made or renames, so that the state
before and after is among the windows. An audit hook cannot be removed: it is installed in the child only.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.utime",
    "shutil.copyfile", "shutil.copytree", "shutil.rmtree", "shutil.move", "tempfile.mkstemp", "tempfile.mkdtemp",
    "msdc.files.complete",
}  # fmt: skip
# Numbers of time and memory, which no two runs share.
CLOCK = ("seconds", "steps_per_second", "minutes_per_10000_steps", "peak_mib", "created", "hours")


@dataclass(frozen=True)
class Ended:
    """How a child ended: killed by the harness or by itself, and the write events that it reached."""

    killed: bool
    failed: bool
    events: tuple[str, ...]


def _changes(event: str, args: tuple, root: str) -> bool:
    """Whether an audit event changes something below `root`."""
    if event == "open":
        path, mode, flags = args
        writes = any(c in mode for c in "wax+") if isinstance(mode, str) else bool((flags or 0) & WRITING)
        return writes and isinstance(path, (str, bytes)) and os.path.abspath(os.fsdecode(path)).startswith(root)
    if event not in CHANGES:
        return False
    if event == "os.mkdir" and os.path.isdir(args[0]):
        return False  # nothing changes
    if event == "os.remove" and args[1] < 0 and not os.path.lexists(args[0]):
        return False
    names = [os.fsdecode(part) for part in args if isinstance(part, (str, bytes, os.PathLike))]
    # shutil.rmtree names files relative to an open folder.
    relative = any(isinstance(part, int) and part >= 0 for part in args[1:]) and event in ("os.remove", "os.rmdir")
    return relative or any(os.path.abspath(name).startswith(root) for name in names)


def run_until(work: Callable[[], object], root: Path, kill_at: int | None = None) -> Ended:
    """Run `work` in a forked child and kill it before write event `kill_at` (from 0) below `root`; None: never."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        count = 0
        inside = os.path.abspath(root)

        def hook(event: str, args: tuple) -> None:
            nonlocal count
            if (event == "open" or event in CHANGES) and _changes(event, args, inside):
                if count == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                count += 1
                first = os.fsdecode(args[0]) if isinstance(args[0], (str, bytes, os.PathLike)) else str(args[0])
                os.write(writing, f"{event} {os.path.basename(first)}\n".encode())

        code = 1
        try:
            sys.addaudithook(hook)
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        events = tuple(pipe.read().decode().splitlines())
    status = os.waitpid(child, 0)[1]
    return Ended(os.WIFSIGNALED(status), status != 0 and not os.WIFSIGNALED(status), events)


def _timeless(value: object) -> object:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in CLOCK}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def contents(folder: Path, leave: Callable[[Path], bool] = lambda path: False) -> dict[str, str]:
    """Every file below `folder` by name with a hash of its content; JSON without its numbers of time.

    `leave` says of a path relative to `folder` that it is not compared.
    """
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder)
        if leave(name):
            continue
        raw = path.read_bytes()
        if path.suffix == ".json":
            raw = json.dumps(_timeless(json.loads(raw))).encode()
        elif path.suffix == ".jsonl":
            raw = "\n".join(json.dumps(_timeless(json.loads(line))) for line in raw.splitlines()).encode()
        found[str(name)] = hashlib.sha256(raw).hexdigest()
    return found


def windows(count: int, sample: int | None) -> list[int]:
    """Numbers of the events to be killed at: all, or `sample` of them, evenly spread, with the first and the last."""
    if sample is None or sample >= count:
        return list(range(count))
    return sorted({round(i * (count - 1) / (sample - 1)) for i in range(sample)})
