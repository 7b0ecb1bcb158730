"""Builds of the native parsers for attacks: sanitizers, and hooks that count what an input costs."""

import functools
import hashlib
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from native_core import CORE, core_sources
from programs import run

from msdc.cache import cached_folder
from msdc.files import PACKAGE

FUZZ = Path(__file__).resolve().parents[1] / "fuzz"
RUNNER = PACKAGE / "bench" / "runner"
SANITIZE = ["-std=c++17", "-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
            f"-I{CORE / 'include'}", f"-I{CORE / 'src'}", f"-I{RUNNER}", f"-I{FUZZ}"]  # fmt: skip
TARGETS = ("json", "manifest", "golden", "request", "pieces", "compiled", "text", "search")


def limits(target: str) -> list[int]:
    """Basic blocks per byte of an input and beside it, bytes held per byte and beside it; see docs/security.md."""
    bounds = json.loads((FUZZ / "bounds.json").read_text())[target]
    return [bounds[name] for name in ("blocks_per_byte", "blocks", "bytes_per_byte", "bytes")]


def _build(folder: Path) -> None:
    sources = [*core_sources(), RUNNER / "request.cpp", FUZZ / "targets.cpp"]
    objects = [folder / f"{Path(source).stem}.o" for source in sources]
    for source, target in zip(sources, objects, strict=True):
        run("g++", *SANITIZE, "-fsanitize-coverage=trace-pc", "-c", source, "-o", target)
    run("g++", *SANITIZE, "-c", FUZZ / "counters.cpp", "-o", folder / "counters.o")
    run("ar", "rcs", folder / "core.a", *objects)
    run("g++", *SANITIZE, FUZZ / "loop.cpp", folder / "counters.o", folder / "core.a", "-o", folder / "loop")


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
    run("g++", *SANITIZE, source, sanitized() / "counters.o", sanitized() / "core.a", "-o", target)
    return target


def costs(target: str, files: Sequence[Path]) -> list[tuple[int, int, int, int]]:
    """Of each file: status, bytes, basic blocks executed, bytes held at once."""
    command = [sanitized() / "loop", "cost", target, *files]
    return [tuple(map(int, line.split())) for line in run(*command).splitlines()]


def loop(target: str, folder: Path, files: Sequence[Path], *, executions: int = 0, seconds: float = 0) -> dict:
    """The mutation loop from `files`; its counts. Its working directory `folder` keeps an input that broke it."""
    words = [executions, seconds, 7, *limits(target), *files]
    return json.loads(run(sanitized() / "loop", "fuzz", target, *words, cwd=folder))


def libfuzzer(folder: Path) -> Path | None:
    """The targets under libFuzzer, None where no clang with its runtime is installed."""
    names = ("clang++", "clang++-14", "clang++-16", "clang++-19")
    compiler = next((path for name in names if (path := shutil.which(name))), None)
    probe, fuzzer = folder / "probe.cpp", ["-fsanitize=fuzzer", *SANITIZE]
    probe.write_text('extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n')
    command = [compiler, *fuzzer, str(probe), "-o", str(folder / "probe")]
    if compiler is None or subprocess.run(command, capture_output=True).returncode != 0:
        return None
    sources = [*core_sources(), RUNNER / "request.cpp", FUZZ / "targets.cpp", FUZZ / "libfuzzer.cpp"]
    run(compiler, *fuzzer, *sources, "-o", folder / "fuzzer")
    return folder / "fuzzer"
