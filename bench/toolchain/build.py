"""The native benchmark runner: a program with its libraries, the user's own, or built with g++ and kept by hash.

Devices ask for a runner with one call, `native_runner`, and know no compiler themselves.

A build for this machine uses the installed libraries. A build for another machine is a folder that needs nothing on the
device, not even a C library: `msdc-runner`, and `lib/` with the shared objects of the runtime and of glibc and the
loader that starts it.
"""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msdc.bench.system_programs import missing_programs, require_programs, run_tool
from msdc.bench.toolchain.sdk import NativeSdk, native_sdk
from msdc.cache import cached_folder
from msdc.errors import InputError, MsdcError
from msdc.export.runtimes import RUNTIMES
from msdc.export.schema import RuntimeName
from msdc.files import PACKAGE, regular_size, sha256_files, without_system_files

CORE = PACKAGE / "export" / "native"
SOURCES = PACKAGE / "bench" / "runner"
RUNNER = "msdc-runner"
# Glibc's dynamic loader per machine: it starts a payload on a system that has another C library or none.
LOADERS = {"aarch64": "ld-linux-aarch64.so.1", "x86_64": "ld-linux-x86-64.so.2"}
# ELF e_machine
ELF_MACHINES = {0x3E: "x86_64", 0xB7: "aarch64", 0x28: "arm", 0x03: "i686", 0xF3: "riscv64"}
FLAGS = ("-std=c++17", "-O2", "-g0", "-Wall", "-Wextra")


@dataclass(frozen=True)
class RunnerBuild:
    """A runner that is ready to be pushed.

    `loader` is the file in lib/ that starts the program; None where the system's own loader does. `machine` is as
    `uname -m` prints it, None for a script.
    """

    program: Path
    libraries: tuple[Path, ...]
    machine: str | None
    loader: str | None
    version: str


def elf_machine(path: Path) -> str | None:
    """Machine of an ELF file as `uname -m` prints it; None for a file that is not ELF (a script)."""
    with open(path, "rb") as handle:
        head = handle.read(20)
    if head[:4] != b"\x7fELF" or len(head) < 20:
        return None
    code = int.from_bytes(head[18:20], "little" if head[5] == 1 else "big")
    if code not in ELF_MACHINES:
        raise InputError(f"{path}: an ELF program for an unknown machine (code {code})")
    return ELF_MACHINES[code]


def own_runner(path: Path) -> RunnerBuild:
    """A runner built by the user (with an NDK, for example): a program, and the libraries of `lib/` next to it."""
    program = path / RUNNER if path.is_dir() else path
    if not program.is_file():
        raise InputError(f"{path}: no such runner; build one with `msdc bench --build-runner`")
    regular_size(program)
    libraries = tuple(without_system_files(p for p in (program.parent / "lib").glob("*") if p.is_file()))
    loader = next((p.name for p in libraries if p.name in LOADERS.values()), None)
    return RunnerBuild(program, libraries, elf_machine(program), loader, "")


def compiler_name(machine: str, host: str) -> str:
    """The C++ compiler that makes programs for `machine` on `host` (both as `uname -m` prints them)."""
    return "g++" if machine == host else f"{machine}-linux-gnu-g++"


def can_build(machine: str) -> bool:
    """Whether this machine has the compiler to build a runner for `machine`."""
    return not missing_programs([compiler_name(machine, platform.machine())])


def _sources(runtime: RuntimeName) -> list[Path]:
    engines = {record.engine for record in RUNTIMES if record.engine}
    left_out = {"c_interface.cpp", "engine_none.cpp", *engines} - {RUNTIMES[runtime].engine}
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

    def compile_source(source: Path) -> str:
        target = objects / f"{source.parent.name}-{source.stem}.o"
        run_tool([compiler, *arguments, "-c", str(source), "-o", str(target)], f"compile {source.name}")
        return str(target)

    with ThreadPoolExecutor(2) as pool:
        compiled = list(pool.map(compile_source, _sources(sdk.runtime)))
    program = stage / RUNNER
    # Kernels and delegate register themselves when loaded; the program does not reference them.
    link = [compiler, *compiled, "-o", str(program), "-Wl,--no-as-needed", *map(str, sdk.libraries), *extra]
    run_tool(link, "link the runner")
    shutil.rmtree(objects)
    return program


def _ship_name(path: Path) -> str:
    # The name of ONNX Runtime's file has the full version; programs load its soname.
    return "libonnxruntime.so.1" if path.name.startswith("libonnxruntime.so.") else path.name


def needed_libraries(compiler: str, program: Path, libraries: tuple[Path, ...]) -> list[Path]:
    """Every shared object that `program` and `libraries` need; those of the C library from the compiler's folders."""
    readelf = re.sub(r"g\+\+$", "readelf", compiler)
    have = {_ship_name(path): path for path in libraries}
    pending, paths = [program, *libraries], dict(have)
    while pending:
        listing = run_tool([readelf, "-d", str(pending.pop())], "list libraries")
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", listing):
            if name in paths:
                continue
            path = Path(run_tool([compiler, f"-print-file-name={name}"], "find libraries").strip())
            if not path.is_absolute():
                raise MsdcError(f"the runner needs {name}, which the compiler's folders do not hold")
            paths[name] = path
            pending.append(path)
    return [path for name, path in paths.items() if name not in have]


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


def build_runner(
    runtime: RuntimeName, machine: str | None = None, *, force: bool = False, defines: Sequence[str] = ()
) -> RunnerBuild:
    """The runner of `runtime`, built now or found in the cache: for this machine, or as a payload for a device's
    `machine` (which may be the same kind of machine, with another C library). `defines` are macros of its sources.
    """
    host = platform.machine()
    payload = machine is not None
    machine = machine or host
    sdk = native_sdk(runtime, machine, host)
    sdk = replace(sdk, defines=(*sdk.defines, *defines))
    (compiler,) = require_programs(compiler_name(machine, host))
    sources = [*_sources(runtime), *(CORE / "src").glob("*.h"), *(CORE / "include").glob("*.h"), *SOURCES.glob("*.h")]
    recipe: dict[str, Any] = {
        "format": 1,
        "runtime": runtime,
        "version": sdk.version,
        "machine": machine,
        "payload": payload,
        "compiler": run_tool([compiler, "--version"], "compiler").splitlines()[0],
        "flags": [*FLAGS, *defines],
        "sources": sha256_files(sources),
        # A build for this machine links to the installed libraries.
        "libraries": [] if payload else [str(path) for path in sdk.libraries],
    }
    folder = cached_folder("runner", recipe, lambda stage: _build(stage, sdk, machine, compiler, payload), force=force)
    libraries = tuple(sorted((folder / "lib").glob("*"))) if payload else ()
    return RunnerBuild(folder / RUNNER, libraries, machine, LOADERS[machine] if payload else None, sdk.version)


def native_runner(
    runtime: RuntimeName, machine: str | None = None, user_runner: str | Path | None = None
) -> RunnerBuild:
    """The runner of `runtime` for a device's `machine` (as `uname -m` prints it), or for this machine (None).

    `user_runner` is a runner that the user built; without it ours is built, or taken from the cache.
    """
    if user_runner is None:
        return build_runner(runtime, machine)
    runner = own_runner(Path(user_runner))
    target_machine = machine or platform.machine()
    if runner.machine not in (None, target_machine):
        raise MsdcError(f"{user_runner}: a runner for {runner.machine}, but the device is {target_machine}")
    return runner


def build_runners(machines: Sequence[str | None] = (None, "aarch64")) -> list[str]:
    """Build the native runner of every runtime for this machine (None) and for devices, also where one is in the cache.

    Returns one line per runner; `MsdcError` lists what is missing where none could be built.
    """
    lines: dict[str, bool] = {}
    for machine in machines:
        for runtime in RUNTIMES.names():
            name = f"{runtime} for {machine or 'this machine'}"
            try:
                lines[f"{name}: {build_runner(runtime, machine, force=True).program}"] = True
            except MsdcError as error:
                lines[f"{name}: not built: {' '.join(str(error).split())}"] = False
    if not any(lines.values()):
        raise MsdcError("; ".join(lines))
    return list(lines)
