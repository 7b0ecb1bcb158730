"""Builds of the native parsers for attacks: sanitizers, and hooks that count what an input costs."""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from native_core import CORE, core_sources

from msdc.bench.toolchain.packages import cached_folder
from msdc.files import PACKAGE

FUZZ = Path(__file__).resolve().parents[1] / "fuzz"
RUNNER = PACKAGE / "bench" / "runner"
SANITIZE = ["-std=c++17", "-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
            f"-I{CORE / 'include'}", f"-I{CORE / 'src'}", f"-I{RUNNER}", f"-I{FUZZ}"]  # fmt: skip
TARGETS = ("json", "manifest", "golden", "request", "pieces", "compiled")


def limits(target: str) -> list[int]:
    """Basic blocks per byte of an input and beside it, bytes held per byte and beside it; see docs/security.md."""
    bounds = json.loads((FUZZ / "bounds.json").read_text())[target]
    return [bounds[name] for name in ("blocks_per_byte", "blocks", "bytes_per_byte", "bytes")]


def _call(*command: str | Path) -> None:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def _build(folder: Path) -> None:
    sources = [*core_sources(), RUNNER / "request.cpp", FUZZ / "targets.cpp"]
    objects = [folder / f"{Path(source).stem}.o" for source in sources]
    for source, target in zip(sources, objects, strict=True):
        _call("g++", *SANITIZE, "-fsanitize-coverage=trace-pc", "-c", source, "-o", target)
    _call("g++", *SANITIZE, "-c", FUZZ / "counters.cpp", "-o", folder / "counters.o")
    _call("ar", "rcs", folder / "core.a", *objects)
    _call("g++", *SANITIZE, FUZZ / "loop.cpp", folder / "counters.o", folder / "core.a", "-o", folder / "loop")


@functools.cache
def sanitized() -> Path:
    """A folder with `core.a`, `counters.o` and `loop`, made by g++ and kept until a source changes.

    Skips the test where there is no compiler.
    """
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: apt-get install g++")
    digest = hashlib.sha256()
    for path in sorted([*CORE.rglob("*.cpp"), *CORE.rglob("*.h"), *RUNNER.glob("request.*"), *FUZZ.glob("*.[ch]*")]):
        digest.update(path.read_bytes())
    flags = [flag for flag in SANITIZE if not flag.startswith("-I")]
    return cached_folder("sanitized", {"flags": flags, "sources": digest.hexdigest(), "format": 1}, _build)


def link(source: Path, target: Path) -> Path:
    """A program of one source over the sanitized core."""
    _call("g++", *SANITIZE, source, sanitized() / "counters.o", sanitized() / "core.a", "-o", target)
    return target


def costs(target: str, files: Sequence[Path]) -> list[tuple[int, int, int, int]]:
    """Of each file: status, bytes, basic blocks executed, bytes held at once."""
    command = [str(sanitized() / "loop"), "cost", target, *map(str, files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [tuple(int(word) for word in line.split()) for line in done.stdout.splitlines()]


def loop(target: str, folder: Path, files: Sequence[Path], *, executions: int = 0, seconds: float = 0) -> dict:
    """The mutation loop from `files`; its counts. Its working directory `folder` keeps an input that broke it."""
    words = [executions, seconds, 7, *limits(target), *files]
    command = [str(sanitized() / "loop"), "fuzz", target, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False)
    assert done.returncode == 0, (folder / "broke", done.stderr[-3000:])
    return json.loads(done.stdout)


def libfuzzer(folder: Path) -> Path | None:
    """The targets under libFuzzer, None where no clang with its runtime is installed."""
    compiler = next(
        (found for name in ("clang++", "clang++-14", "clang++-16", "clang++-19") if (found := shutil.which(name))), None
    )
    if compiler is None:
        return None
    probe = folder / "probe.cpp"
    probe.write_text('extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n')
    fuzzer = ["-fsanitize=fuzzer", *SANITIZE]
    if (
        subprocess.run([compiler, *fuzzer, str(probe), "-o", str(folder / "probe")], capture_output=True).returncode
        != 0
    ):
        return None
    sources = [*core_sources(), RUNNER / "request.cpp", FUZZ / "targets.cpp", FUZZ / "libfuzzer.cpp"]
    _call(compiler, *fuzzer, *sources, "-o", folder / "fuzzer")
    return folder / "fuzzer"
