"""Headers and libraries of a runtime for a machine, from package registries; native runners are built against them.

ExecuTorch: the installed wheel's own SDK (headers, libraries); for aarch64 the libraries of the same version's aarch64
wheel. ONNX Runtime: the library inside its wheel, with the C API header of Debian's libonnxruntime-dev, whose API
is backward compatible.
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from msdc.bench.system_programs import run_tool
from msdc.bench.toolchain.packages import SUITE, extract
from msdc.cache import cached_folder
from msdc.errors import InputError, MsdcError
from msdc.export.schema import RuntimeName
from msdc.files import sha256_file
from msdc.processes import python_child

HOST_MACHINES = ("x86_64", "aarch64")
EXECUTORCH_LIBRARIES = ("executorch", "executorch_backend_xnnpack", "executorch_kernels_optimized",
                        "executorch_kernels_quantized", "executorch_threadpool")  # fmt: skip
EXECUTORCH_DEFINES = ("C10_USING_CUSTOM_GENERATED_MACROS", "ET_EVENT_TRACER_ENABLED", "ET_USE_THREADPOOL")
MAX_LIBRARY_BYTES = 256 * 1024 * 1024


@dataclass(frozen=True)
class NativeSdk:
    """Compiler and linker inputs of one runtime for one machine. `libraries` are the shared objects to ship."""

    runtime: RuntimeName
    version: str
    machine: str
    includes: tuple[Path, ...]
    defines: tuple[str, ...]
    libraries: tuple[Path, ...]


def _package_folder(name: str) -> Path:
    """Folder of an installed package; does not import it."""
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise MsdcError(f"the Python package {name} is not installed")
    return Path(next(iter(spec.submodule_search_locations)))


def download_wheel(name: str, version: str, machine: str, folder: Path) -> Path:
    """The wheel of `name` for Linux on `machine`, fetched by pip, which verifies the registry's hash."""
    python = ".".join(map(str, sys.version_info[:2]))
    command, environment = python_child(
        "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:",
        "--implementation", "cp", "--python-version", python, "--dest", str(folder.absolute()),
    )  # fmt: skip
    for tag in ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014"):
        command += ["--platform", f"{tag}_{machine}"]
    run_tool([*command, f"{name}=={version}"], f"wheel of {name} {version} for {machine}", env=environment)
    return next(folder.glob("*.whl"))


def _foreign_libraries(package: str, version: str, machine: str, prefixes: tuple[str, ...]) -> Path:
    """The members of a wheel for `machine` whose file name starts with one of `prefixes`, flat, in a cached folder."""

    def make(stage: Path) -> None:
        wheel = download_wheel(package, version, machine, stage)
        (stage / "wheel.sha256").write_text(f"{sha256_file(wheel)}  {wheel.name}\n", encoding="utf-8")
        (stage / "lib").mkdir()
        with zipfile.ZipFile(wheel) as archive:
            for member in archive.infolist():
                name = Path(member.filename).name
                if member.is_dir() or not name.startswith(prefixes):
                    continue
                if member.file_size > MAX_LIBRARY_BYTES:
                    raise MsdcError(f"{wheel.name}: {name} has more than {MAX_LIBRARY_BYTES} bytes")
                (stage / "lib" / name).write_bytes(archive.read(member))
                (stage / "lib" / name).chmod(0o755)
        wheel.unlink()

    recipe = {"package": package, "version": version, "machine": machine, "files": list(prefixes), "format": 1}
    return cached_folder("wheels", recipe, make) / "lib"


def _executorch(machine: str, host: str) -> NativeSdk:
    folder, version = _package_folder("executorch"), metadata.version("executorch")
    includes = (folder / "include", folder / "include" / "executorch/runtime/core/portable_type/c10")
    if not includes[1].is_dir():
        raise MsdcError(f"executorch {version} carries no C++ SDK; 1.5.1 does: pip install executorch==1.5.1")
    names = tuple(f"lib{name}.so" for name in EXECUTORCH_LIBRARIES)
    libraries = folder / "lib" if machine == host else _foreign_libraries("executorch", version, machine, names)
    return NativeSdk(
        "executorch", version, machine, includes, EXECUTORCH_DEFINES, tuple(libraries / name for name in names)
    )


def onnx_headers() -> Path:
    """Folder of onnxruntime_c_api.h: installed by the system, or unpacked from Debian's package."""
    for installed in (Path("/usr/include/onnxruntime"), Path("/usr/local/include/onnxruntime")):
        if (installed / "onnxruntime_c_api.h").is_file():
            return installed

    def make(stage: Path) -> None:
        extract((), stage / "root", arch="amd64", download="libonnxruntime-dev", download_to=stage / "files")
        shutil.rmtree(stage / "root")

    folder = cached_folder("headers", {"package": "libonnxruntime-dev", "suite": SUITE, "format": 1}, make)
    return folder / "files/usr/include/onnxruntime"


def _onnx(machine: str, host: str) -> NativeSdk:
    version = metadata.version("onnxruntime")
    name = f"libonnxruntime.so.{version}"
    if machine == host:
        library = _package_folder("onnxruntime") / "capi" / name
    else:
        library = _foreign_libraries("onnxruntime", version, machine, ("libonnxruntime.so",)) / name
    if not library.is_file():
        raise MsdcError(f"onnxruntime {version}: its wheel carries no {name}")
    return NativeSdk("onnx", version, machine, (onnx_headers(),), (), (library,))


# A runtime of msdc.export.runtimes -> what makes its SDK.
SDKS: dict[str, Callable[[str, str], NativeSdk]] = {"executorch": _executorch, "onnx": _onnx}


def native_sdk(runtime: RuntimeName, machine: str, host: str) -> NativeSdk:
    """Headers and libraries of `runtime` for `machine`, when building on `host` (both as `uname -m` prints them)."""
    if machine not in HOST_MACHINES:
        raise InputError(f"no published {runtime} libraries for {machine}: build a runner yourself and pass it by path")
    return SDKS[runtime](machine, host)
