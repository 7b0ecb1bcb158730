"""Kill a forked child before its n-th write event: everything that changes a folder, as Python's audit hooks see it.

Seen are files opened for writing, renames, removals, new folders, links and changed modes; `msdc.files` raises events
of its own for what no audit event covers (`msdc.files.complete`: the content of a file or folder is there and not
renamed yet). Compiled libraries write to files that Python made or renames, so that the state
before and after is among the windows. An audit hook cannot be removed: it is installed in the child only.
"""

import hashlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import tiny_models

import msdc.cli
from msdc.files import HOLDER_FILE, LOCK_FILE
from msdc.text import quickstart

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.utime",
    "shutil.copyfile", "shutil.copytree", "shutil.rmtree", "shutil.move", "tempfile.mkstemp", "tempfile.mkdtemp",
    "msdc.files.complete",
}  # fmt: skip
# Numbers of time and memory, which no two runs share.
CLOCK = ("seconds", "steps_per_second", "minutes_per_10000_steps", "peak_mib", "created", "hours")


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


def run_until(work: Callable[[], object], root: Path, kill_at: int | None = None) -> list[str]:
    """The write events below `root` of `work`, which is run in a forked child and killed before event `kill_at`."""
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
        events = pipe.read().decode().splitlines()
    assert os.waitpid(child, 0)[1] == (0 if kill_at is None else signal.SIGKILL), events[-1:]
    return events


def _timeless(value: object) -> object:
    if isinstance(value, dict):
        return {k: _timeless(v) for k, v in value.items() if k not in CLOCK}
    return [_timeless(v) for v in value] if isinstance(value, list) else value


def contents(folder: Path, leave: Callable[[Path], bool] = lambda path: False) -> dict[str, str]:
    """Every file below `folder` by name with a hash of its content; JSON without its numbers of time.

    `leave` says of a path relative to `folder` that it is not compared.
    """
    hashes = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file() and not leave(p.relative_to(folder))):
        raw = path.read_bytes()
        if path.suffix == ".json":
            raw = json.dumps(_timeless(json.loads(raw))).encode()
        elif path.suffix == ".jsonl":
            raw = "\n".join(json.dumps(_timeless(json.loads(line))) for line in raw.splitlines()).encode()
        hashes[str(path.relative_to(folder))] = hashlib.sha256(raw).hexdigest()
    return hashes


def no_clock(name: Path) -> bool:
    """A student's card tells how long the run took, reports have seconds, the teacher's cache is a cache, who held a
    run is said until the next one does."""
    timed = ("report.html", "table.md", "table.csv", "table.tex", LOCK_FILE, HOLDER_FILE)
    return name.parts[0] == "outputs" or name.parts[-2:] == ("student", "README.md") or name.name in timed


def differences(expected: dict, got: dict) -> list[str]:
    """Names that are missing, new, or of other content."""
    return sorted(name for name in expected.keys() | got.keys() if expected.get(name) != got.get(name))


def verb(*words: object) -> None:
    """The command line in this process, without its handler of errors."""
    msdc.cli.msdc.main([str(word) for word in words], standalone_mode=False)


def stage(name: str, **changes) -> dict:
    common = {"name": name, "train": "student", "teacher": "teacher", "objective": "multilingual_mse", "batch": 8}
    return {**common, "max_length": 20, "learning_rate": 1e-3, "evaluate_every": 2, **changes}


def recipe_tree(root: Path, teacher: Path, **changes) -> dict:
    """A tiny recipe whose stage stops early (nothing improves after its first validation), with a report."""
    stages = [stage("one", train="assistant", steps=2), stage("two", epochs=12, patience=1, learning_rate=1e-12)]
    evaluation = {"heldout": {"pairs": 3, "share": 0.1}, "report": [str(quickstart.GRADED_PAIRS)]}
    return {**tiny_models.recipe(teacher, root / "outputs", stages, limit=16), **evaluation, **changes}
