"""Programs of unknown origin are run in a child process before this process loads them.

A `.pte` whose structure is sound can still end the process that loads it, inside ExecuTorch or XNNPACK, and hashes do
not help: whoever changes a program can write the hashes anew. What msdc exported on this machine, and what a child has
run once, is remembered by its sha256 in the user's cache.
"""

from __future__ import annotations

import contextlib
import json
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

from msdc.errors import InputError, MsdcError, printable
from msdc.files import sha256_file, user_cache, write_json
from msdc.processes import end_of_signal, python_child, run_program

__all__ = ["remember", "require_known"]

TIMEOUT_S = 300.0
MAX_RECORDS = 1000
# Longer inputs than this reach no other code.
MOST_TOKENS = 256
_REFUSED = 3
_known: set[str] = set()


@cache
def _runtime() -> str:
    return version("executorch")


def _place(sha256: str) -> Path:
    # Another release may crash where this one does not.
    return user_cache() / "programs" / f"{sha256}-{_runtime()}.json"


def is_known(sha256: str) -> bool:
    """Whether a program with this hash was exported or run here before, with this release of ExecuTorch."""
    with contextlib.suppress(MsdcError, OSError):
        return sha256 in _known or _place(sha256).is_file()
    return False


def remember(sha256: str, why: str) -> None:
    """Note that a program needs no child process; without a cache, for this process alone."""
    _known.add(sha256)
    with contextlib.suppress(MsdcError, OSError):
        place = _place(sha256)
        place.parent.mkdir(parents=True, exist_ok=True)
        records = sorted(place.parent.glob("*.json"), key=lambda path: path.stat().st_mtime)
        for old in records[: max(len(records) - MAX_RECORDS + 1, 0)]:
            old.unlink(missing_ok=True)
        write_json(place, {"sha256": sha256, "executorch": _runtime(), "why": why})


def remember_exported(path: Path) -> None:
    """Note a program that msdc has just written."""
    remember(sha256_file(path), "exported")


def require_known(
    path: Path, sha256: str, *, style: str, repeats: int, max_length: int, vocabulary: int, takes_prompt: bool = False
) -> None:
    """Return once a program with this hash is known; an unknown one is loaded and run in a child process first.

    Args:
        path: the program, its structure checked.
        sha256: its hash, compared with the file.
        style: `multi-method` or `forward`.
        repeats: how often `unit` is applied.
        max_length: longest input in tokens.
        vocabulary: number of ids.
        takes_prompt: `forward` has a second input, the number of tokens that are not pooled.

    Raises:
        InputError: the child crashed, did not end, or ExecuTorch refused the program.
    """
    if is_known(sha256):
        return
    words = [str(path.absolute()), style, str(repeats), str(min(max_length, MOST_TOKENS)), str(vocabulary)]
    words.append(str(int(takes_prompt)))
    command, environment = python_child("msdc.export.executorch.origin", *words)
    done = run_program(command, timeout_s=TIMEOUT_S, env=environment, group=True)
    if done is None:
        raise InputError(f"{path}: the program did not end within {TIMEOUT_S:g} s in a trial run; do not use it")
    if done.code < 0:
        raise InputError(
            f"{path}: the program crashes ExecuTorch ({end_of_signal(done.code)} in a trial run); do not use it"
        )
    lines = done.output.splitlines()
    if done.code == _REFUSED:
        # What a hostile program made the child print is not trusted to be our answer.
        with contextlib.suppress(ValueError, KeyError, TypeError, IndexError):
            raise InputError(printable(str(json.loads(lines[-1])["refused"])[:1000]))
    if done.code != 0 or lines[-1:] != ["ran"]:
        raise InputError(f"{path}: the trial run of the program ended with code {done.code}; do not use this bundle")
    remember(sha256, "run in a child process")


def _trial(path: Path, style: str, repeats: int, max_length: int, vocabulary: int, takes_prompt: bool) -> None:
    from msdc.export.executorch.runner import ExecutorchRunner

    runner = ExecutorchRunner(path, style=style, repeats=repeats, threads=1, takes_prompt=takes_prompt)
    lengths = sorted({1, 2, 3, 7, 16, max_length} & set(range(1, max_length + 1)))
    runner.run([[(7 * i * length) % vocabulary for i in range(length)] for length in lengths])
    runner.run([[0], [vocabulary - 1]])


def main(words: list[str]) -> int:
    """The child: path, style, repeats, longest input, vocabulary, and whether the program takes the prompt's tokens."""
    with contextlib.suppress(ImportError):
        import resource  # not on Windows, which writes no core files

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    path, style, repeats, max_length, vocabulary, takes_prompt = words
    try:
        _trial(Path(path), style, int(repeats), int(max_length), int(vocabulary), takes_prompt == "1")
    except MsdcError as error:
        print(json.dumps({"refused": str(error)}))
        return _REFUSED
    print("ran")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
