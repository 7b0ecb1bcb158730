"""Files of unknown origin are first loaded in a child process of bounded time and memory.

A `.pte` whose structure is sound can still end the process that loads it, inside ExecuTorch or XNNPACK; an `.onnx` of
allowed operators can take all memory. Hashes do not help: whoever changes a program can rewrite them. What msdc
exported on this machine, and what a child has run once, is remembered by its sha256 in the user's cache. `msdc inspect`
reads files in such a child too, always.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from msdc.errors import InputError, MsdcError, printable
from msdc.extras import named_extras
from msdc.files import drop_oldest, user_cache, write_json
from msdc.processes import end_of_signal, python_child, run_program

TIMEOUT_S = 300.0
MAX_RECORDS = 1000
# Memory of a child in addition to the file: Python, PyTorch, ExecuTorch. A file may cost a multiple of its size.
CHILD_BYTES, PER_BYTE = 4 * 1024**3, 5
_REFUSED = 3
_safe_programs: set[str] = set()


def ask_child(module: str, path: Path, what: str, **request: Any) -> Any:
    """What `answer` of `module` returns for a file, in a child process of bounded time and memory."""
    path = path.absolute()
    command, environment = python_child(module, json.dumps({"path": str(path), **request}))
    done = run_program(command, timeout_s=TIMEOUT_S, env=environment, group=True)
    if done is None:
        raise InputError(f"{path}: the {what} did not end within {TIMEOUT_S:g} s; do not use this file")
    if done.code < 0:
        runtime = {"onnxruntime": "ONNX Runtime"}.get(str(request.get("package")), "ExecuTorch")
        raise InputError(f"{path}: crashes {runtime} ({end_of_signal(done.code)} in the {what}); do not use this file")
    # What a hostile program made the child print is not trusted to be its answer.
    key = {0: "answer", _REFUSED: "refused"}.get(done.code, "")
    try:
        answer = json.loads(done.output.splitlines()[-1])[key]
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path}: the {what} ended with code {done.code}; do not use this file") from error
    if done.code == _REFUSED:
        raise InputError(printable(str(answer)[:1000]))
    return answer


def answer(function: Callable[..., Any]) -> int:
    """The child's side: print what `function` gives for the request on the command line; returns the exit code."""
    request = json.loads(sys.argv[1])
    path = Path(request.pop("path"))
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # not on Windows

        # External data is next to an .onnx file.
        files = [path, *path.parent.glob(f"{path.name}.*")]
        most = CHILD_BYTES + PER_BYTE * sum(file.stat().st_size for file in files)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    try:
        # A missing package is no fault of the file.
        with named_extras(path.name):
            print(json.dumps({"answer": function(path, **request)}))
    except (MsdcError, MemoryError, RecursionError) as error:
        print(json.dumps({"refused": str(error) or f"{path}: needs more memory than any such file"}))
        return _REFUSED
    return 0


def _record_file(sha256: str, package: str) -> Path:
    # Another release may crash where this one does not.
    return user_cache() / "programs" / f"{sha256}-{version(package)}.json"


def is_known(sha256: str, package: str = "executorch") -> bool:
    """Whether a program with this hash was exported or run here before, with this release of its runtime's package."""
    with contextlib.suppress(MsdcError, OSError):
        return sha256 in _safe_programs or _record_file(sha256, package).is_file()
    return False


def record_safe(sha256: str, why: str, package: str = "executorch") -> None:
    """Note that a program needs no child process; without a cache, for this process alone."""
    _safe_programs.add(sha256)
    with contextlib.suppress(MsdcError, OSError):
        file = _record_file(sha256, package)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, {"sha256": sha256, package: version(package), "why": why})
        drop_oldest(file.parent, "*.json", MAX_RECORDS)


def trial_run_if_unknown(path: Path, sha256: str, facts: dict[str, Any], package: str = "executorch") -> None:
    """Return once a program with this hash is known; an unknown one is loaded and run in a child process first.

    `facts` is what the manifest states of it: `constants`, and what else `ExecutorchRunner` takes.
    """
    if not is_known(sha256, package):
        if ask_child("msdc.export.trial_run", path, "trial run", facts=facts, package=package) != "ran":
            raise InputError(f"{path}: the trial run of the program gave another answer; do not use this file")
        record_safe(sha256, "run in a child process", package)
