"""Build the native benchmark runner with g++ or the aarch64 cross compiler; kept in the user's cache by hash.

A build for this machine uses the libraries where they are installed. One for another machine is a folder that needs
nothing on the device, not even a C library: `msdc-runner`, and `lib/` with the runtime's and glibc's shared objects
and the loader that starts it.
"""

from __future__ import annotations

import platform
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msdc.bench.devices.tools import require, run_tool
from msdc.bench.result import Runtime
from msdc.bench.toolchain.cache import cached_folder
from msdc.bench.toolchain.sdk import NativeSdk, native_sdk
from msdc.errors import InputError, MsdcError
from msdc.files import PACKAGE, sha256_files

RUNNER = "msdc-runner"
CORE = PACKAGE / "export" / "native"
SOURCES = PACKAGE / "bench" / "runner"
FLAGS = ("-std=c++17", "-O2", "-g0", "-Wall", "-Wextra")
# Glibc's dynamic loader of each machine, by which a payload is started where the system has none or another libc.
LOADERS = {"aarch64": "ld-linux-aarch64.so.1", "x86_64": "ld-linux-x86-64.so.2"}
# ELF e_machine
ELF_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x28: "arm", 0x03: "i686", 0xF3: "riscv64"}


@dataclass(frozen=True)
class RunnerBuild:
    """A runner ready to be pushed. `loader` is the name in lib/ that starts it, None where the system's own does."""

    program: Path
    libraries: tuple[Path, ...]
    machine: str | None
    loader: str | None
    runtime: Runtime | None
    version: str

    @property
    def files(self) -> tuple[Path, ...]:
        return (self.program, *self.libraries)


def elf_machine(path: Path) -> str | None:
    """Machine of an ELF file as `uname -m` says it, None for anything else (a script).

    Raises:
        InputError: an ELF file for a machine this tool has no name of.
    """
    with open(path, "rb") as handle:
        head = handle.read(20)
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    code = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    if code not in ELF_MACHINES:
        raise InputError(f"{path}: an ELF program for an unknown machine (code {code})")
    return ELF_MACHINES[code]


def own_runner(path: Path) -> RunnerBuild:
    """A runner that the user built (with an NDK, say): a program, and the libraries of `lib/` beside it.

    Raises:
        InputError: there is no such file.
    """
    program = path / RUNNER if path.is_dir() else path
    if not program.is_file():
        raise InputError(f"{path}: no such runner; build one with --build-runner")
    libraries = tuple(sorted(p for p in (program.parent / "lib").glob("*") if p.is_file()))
    loader = next((p.name for p in libraries if p.name in LOADERS.values()), None)
    return RunnerBuild(program, libraries, elf_machine(program), loader, None, "")


def _compiler(machine: str, host: str) -> str:
    name = "g++" if machine == host else f"{machine}-linux-gnu-g++"
    return require(name)[0]


def _sources(runtime: Runtime) -> list[Path]:
    engines = {"executorch": "engine_executorch.cpp", "onnx": "engine_onnx.cpp"}
    left_out = {"c_interface.cpp", "engine_none.cpp", *engines.values()} - {engines[runtime]}
    core = [path for path in sorted((CORE / "src").glob("*.cpp")) if path.name not in left_out]
    return core + sorted(SOURCES.glob("*.cpp"))


def _compile(stage: Path, compiler: str, sdk: NativeSdk, extra: list[str]) -> Path:
    """Compile two files at a time, link, and return the program."""
    arguments = [*FLAGS, f"-I{CORE / 'include'}", f"-I{CORE / 'src'}", f"-I{SOURCES}"]
    for folder in sdk.includes:
        arguments += ["-isystem", str(folder)]
    arguments += [f"-D{name}" for name in sdk.defines] + [f'-DMSDC_RUNTIME_VERSION="{sdk.version}"']
    objects = stage / "objects"
    objects.mkdir()

    def one(source: Path) -> str:
        target = objects / f"{source.parent.name}-{source.stem}.o"
        run_tool([compiler, *arguments, "-c", str(source), "-o", str(target)], f"compile {source.name}")
        return str(target)

    with ThreadPoolExecutor(2) as pool:
        compiled = list(pool.map(one, _sources(sdk.runtime)))
    program = stage / RUNNER
    # The kernels and the delegate register themselves when loaded; nothing in the program names them.
    link = [compiler, *compiled, "-o", str(program), "-Wl,--no-as-needed", *map(str, sdk.libraries), *extra]
    run_tool(link, "link the runner")
    shutil.rmtree(objects)
    return program


def _ship_name(path: Path) -> str:
    # ONNX Runtime's file carries its full version, programs ask for its soname.
    return "libonnxruntime.so.1" if path.name.startswith("libonnxruntime.so.") else path.name


def needed_libraries(compiler: str, program: Path, given: tuple[Path, ...]) -> list[Path]:
    """Every shared object that `program` and `given` ask for, the C library's from the compiler's own folders.

    Raises:
        MsdcError: one is in neither place.
    """
    readelf = re.sub(r"g\+\+$", "readelf", compiler)
    have = {_ship_name(path): path for path in given}
    pending, found = [program, *given], dict(have)
    while pending:
        listing = run_tool([readelf, "-d", str(pending.pop())], "list libraries")
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", listing):
            if name in found:
                continue
            path = Path(run_tool([compiler, f"-print-file-name={name}"], "find libraries").strip())
            if not path.is_absolute():
                raise MsdcError(f"the runner needs {name}, which the compiler's folders do not hold")
            found[name] = path
            pending.append(path)
    return [path for name, path in found.items() if name not in have]


def _build(stage: Path, sdk: NativeSdk, machine: str, compiler: str, payload: bool) -> None:
    shipped = stage / "lib"
    shipped.mkdir()
    program = _compile(stage, compiler, sdk, ["-Wl,-rpath,$ORIGIN/lib", f"-Wl,-rpath-link,{sdk.libraries[0].parent}"])
    if not payload:
        for path in sdk.libraries:
            (shipped / _ship_name(path)).symlink_to(path)
        return
    loader = Path(run_tool([compiler, f"-print-file-name={LOADERS[machine]}"], "find the loader").strip())
    for path in [*sdk.libraries, *needed_libraries(compiler, program, sdk.libraries), loader]:
        shutil.copyfile(path.resolve(), shipped / _ship_name(path))
        (shipped / _ship_name(path)).chmod(0o755)


def build_runner(runtime: Runtime, machine: str | None = None, *, force: bool = False) -> RunnerBuild:
    """The runner of `runtime`, built now or found in the cache: for this machine, or as a payload for a device's
    `machine` (which may be the same kind of machine, with another C library).

    Raises:
        InputError: a machine for which there is no compiler and no published library.
        MsdcError: a compiler or package is missing, or the build failed; says what to install.
    """
    host = platform.machine()
    payload = machine is not None
    machine = machine or host
    sdk = native_sdk(runtime, machine, host)
    compiler = _compiler(machine, host)
    sources = [*_sources(runtime), *(CORE / "src").glob("*.h"), *(CORE / "include").glob("*.h"), *SOURCES.glob("*.h")]
    recipe: dict[str, Any] = {
        "format": 1,
        "runtime": runtime,
        "version": sdk.version,
        "machine": machine,
        "payload": payload,
        "compiler": run_tool([compiler, "--version"], "compiler").splitlines()[0],
        "flags": list(FLAGS),
        "sources": sha256_files(sources),
        # A build for this machine finds its libraries where they are installed.
        "libraries": [] if payload else [str(path) for path in sdk.libraries],
    }
    folder = cached_folder("runner", recipe, lambda stage: _build(stage, sdk, machine, compiler, payload), force=force)
    libraries = tuple(sorted((folder / "lib").glob("*"))) if payload else ()
    return RunnerBuild(folder / RUNNER, libraries, machine, LOADERS[machine] if payload else None, runtime, sdk.version)
