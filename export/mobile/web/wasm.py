"""The core for browsers: tokenizer.wasm, and search.wasm, its index with SQLite. Wheels contain them; a checkout
builds them once.

The compiler is zig, of the PyPI package `ziglang`; SQLite is the release that the core's CMakeLists.txt pins. Equal
sources give equal bytes, which stay in the user's cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from msdc.cache import cached_folder
from msdc.errors import MsdcError
from msdc.export.mobile.web.npm import PackageFile, runtime_folder
from msdc.files import PACKAGE, sha256_file, staged_folder, user_cache
from msdc.processes import run_program
from msdc.progress import say

HERE = Path(__file__).resolve().parent
CORE = PACKAGE / "export" / "native"
SOURCES, INDEX, SYSTEM = CORE / "src", CORE / "src" / "index", HERE / "core"
TIMEOUT_S = 1800.0
ZIG_VERSION = "0.17.1"
# The wheels of all systems.
ZIG_HASHES = (
    "09953b6af7f64168b915180a42774f520f92d86ef6331b28e33915c7e1f0bb23",  # macosx_13_0_arm64
    "4e0b4b9c02b8d0d220e9948010f860b62ff11d96abb39762eca5fa2ef3f7bc97",  # macosx_13_0_x86_64
    "b7c5f02fccd40f89b999ee16a1f5ddced56e6182370f8affe494bcf8a28cf07e",  # manylinux_2_17_aarch64
    "ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54",  # manylinux_2_12_x86_64
    "69c3dfc3aff6a297ec4017aa904782c0e450eb988982d7f675d83edce27526fb",  # win_amd64
)
# npm's binaryen, whose optimizer makes the file smaller.
BINARYEN = "binaryen", "132.0.0"
BINARYEN_FILES = {
    "wasm-opt": PackageFile("608c021fa3f2c68cdc26f06a1454341089a0e689abb71cbe5a23ef7300e7f3e3", 11_279_933, 0),
    "package.json": PackageFile("58b55392b5778941e1e96892a70edc12e2d7bb8541289b237fbddc9926ed51bd", 28, 0),
}
# Sources of the core that a browser has no use for, or has others of.
LEFT_OUT = ("engine_executorch.cpp", "engine_onnx.cpp", "files.cpp")
# Exceptions need a feature that the compiler's own choice of a CPU leaves out; browsers have had it since 2022.
FEATURES = ("bulk_memory", "exception_handling", "mutable_globals", "nontrapping_fptoint", "sign_ext")
COMPILE = ("-target", "wasm32-wasi", f"-mcpu=generic+{'+'.join(FEATURES)}", "-Oz", "-DNDEBUG", "-w")
OPTIMIZE = ("-Oz", "--enable-bulk-memory", "--enable-exception-handling", "--enable-mutable-globals",
            "--enable-nontrapping-float-to-int", "--enable-sign-ext")  # fmt: skip
# Without files, threads and what is for debugging.
SQLITE_OPTIONS = (
    "SQLITE_OS_OTHER=1", "SQLITE_THREADSAFE=0", "SQLITE_OMIT_WAL", "SQLITE_OMIT_COMPILEOPTION_DIAGS",
    "SQLITE_OMIT_COMPLETE", "SQLITE_OMIT_DECLTYPE", "SQLITE_OMIT_GET_TABLE", "SQLITE_OMIT_LOCALTIME",
    "SQLITE_OMIT_TCL_VARIABLE", "SQLITE_UNTESTABLE",
)  # fmt: skip
# The part of the library of C++ that throws, which the compiler's own build for wasm lacks.
THROWING = ("cxa_exception", "cxa_personality")
THROWING_DEFINES = ("_LIBCPP_BUILDING_LIBRARY", "_LIBCXXABI_BUILDING_LIBRARY", "_LIBCXXABI_HAS_NO_THREADS",
                    "_LIBCPP_ENABLE_CXX17_REMOVED_UNEXPECTED_FUNCTIONS", "LIBCXX_BUILDING_LIBCXXABI")  # fmt: skip
UNWIND_DEFINES = ("_LIBUNWIND_HAS_NO_THREADS", "_LIBUNWIND_HIDE_SYMBOLS", "thread_local=")
SEARCH, TOKENIZER = "search.wasm", "tokenizer.wasm"
# What JavaScript calls.
CALLS = {
    SEARCH: (
        "index_batch_close", "index_bytes", "index_check", "index_close", "index_compact", "index_documents",
        "index_get", "index_ids", "index_open", "index_query", "index_rebuild", "index_remove", "index_search",
        "index_state", "index_texts", "index_write", "tokenizer_close", "tokenizer_open", "web_file", "web_receiver",
    ),
    TOKENIZER: ("web_file", "web_receiver", "web_tokenize", "web_tokenizer"),
}  # fmt: skip


def sqlite_source() -> Path:
    """A folder with SQLite's amalgamation, of the release that the core's CMakeLists.txt pins."""
    text = (CORE / "CMakeLists.txt").read_text(encoding="utf-8")
    package, version = (re.findall(rf"set\({name} ([\w.-]+)\)", text)[0] for name in ("package", "version"))
    hashes = dict(re.findall(r"set\((sqlite3\.[ch]) ([0-9a-f]{64})\)", text))
    files = {name: PackageFile(digest, 0, 0) for name, digest in hashes.items()}
    return runtime_folder(package, version, files, "deps/sqlite3")


def core_wasm(name: str) -> Path:
    """The file `name` of this installation, or the one that is built for its sources and kept."""
    if (HERE / name).is_file():
        return HERE / name
    digest = hashlib.sha256()
    files = [*SOURCES.glob("*.*"), *INDEX.glob("*.*"), *SYSTEM.glob("*.*"), *(CORE / "include").glob("*.h")]
    for path in sorted((*files, CORE / "CMakeLists.txt", Path(__file__))):
        digest.update(path.read_bytes())

    def make(stage: Path) -> None:
        say(f"build {' and '.join(CALLS)} with zig {ZIG_VERSION}: about 2 minutes, once")
        build(stage)

    return cached_folder("core-wasm", {"sources": digest.hexdigest()}, make) / name


def build(folder: Path) -> None:
    """Build the files of `CALLS` into `folder` from the core's sources; what is in between is removed."""
    sqlite = sqlite_source()
    with tempfile.TemporaryDirectory(prefix="msdc-wasm-") as temporary:
        work = Path(temporary)
        with zipfile.ZipFile(_compiler_wheel()) as wheel:
            wheel.extractall(work)
        zig = work / "ziglang" / ("zig.exe" if os.name == "nt" else "zig")
        zig.chmod(0o755)
        library = work / "ziglang" / "lib"
        caches = {"ZIG_GLOBAL_CACHE_DIR": str(work / "cache"), "ZIG_LOCAL_CACHE_DIR": str(work / "cache")}
        (work / "search_sql.h").write_text(f'R"sql({(INDEX / "search.sql").read_text(encoding="utf-8")})sql"\n')
        (work / "threads.h").touch()  # which the library includes and does not need

        def compile_source(compiler: str, source: Path, *arguments: str) -> str:
            result = f"{source.stem}.o"
            _run([str(zig), compiler, *arguments, "-c", str(source), "-o", result], work, caches)
            return result

        includes = [f"-I{folder}" for folder in (work, CORE / "include", SOURCES, INDEX, sqlite)]
        throws = [f"-I{library / name}" for name in ("libcxxabi/include", "libunwind/include", "libunwind/src",
                                                     "libcxx/src", "libcxxabi/src", "libcxx/libc")]  # fmt: skip
        flags = [f"-D{line}" for line in (INDEX / "sqlite_flags.txt").read_text(encoding="utf-8").split()]
        options = [f"-U{option.split('=')[0]}" for option in SQLITE_OPTIONS] + [f"-D{name}" for name in SQLITE_OPTIONS]
        objects = [compile_source("cc", sqlite / "sqlite3.c", *COMPILE, *flags, *options)]
        unwind = [*COMPILE, "-fwasm-exceptions", f"-I{work}", *throws, *(f"-D{name}" for name in UNWIND_DEFINES)]
        objects.append(compile_source("cc", library / "libunwind/src/Unwind-wasm.c", *unwind))
        throwing = [*COMPILE, "-std=c++23", "-fwasm-exceptions", *throws, *(f"-D{name}" for name in THROWING_DEFINES)]
        objects += [compile_source("c++", library / f"libcxxabi/src/{name}.cpp", *throwing) for name in THROWING]
        core = [path for path in sorted(SOURCES.glob("*.cpp")) if path.name not in LEFT_OUT]
        sources = [*core, *sorted(INDEX.glob("*.cpp")), SYSTEM / "system.cpp"]
        core_flags = [
            *COMPILE,
            "-std=c++17",
            "-fno-rtti",
            "-fwasm-exceptions",
            "-include",
            str(SYSTEM / "no_threads.h"),
            *includes,
        ]
        objects += [compile_source("c++", source, *core_flags) for source in sources]
        optimizer = runtime_folder(*BINARYEN, BINARYEN_FILES, "bin") / "wasm-opt"
        for name, calls in CALLS.items():
            exports = [f"-Wl,--export={name}" for name in ("malloc", "free", *(f"msdc_{call}" for call in calls))]
            _run([str(zig), "c++", *COMPILE, "-fwasm-exceptions", "-mexec-model=reactor", "-Wl,--gc-sections", "-Wl,-s",
                  "-Wl,-z,stack-size=1048576", *exports, *objects, "-o", name], work, caches)  # fmt: skip
            _run(["node", str(optimizer), *OPTIMIZE, name, "-o", str(folder / name)], work, {})


def _compiler_wheel() -> Path:
    """The wheel of zig for this machine, whose hash pip compares; kept in the cache."""
    folder = user_cache() / "ziglang" / ZIG_VERSION
    cached = next(folder.glob("*.whl"), None)
    if cached is not None and sha256_file(cached) in ZIG_HASHES:
        return cached
    with staged_folder(folder, force=True) as stage:
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in ZIG_HASHES)
        (stage / "requirements.txt").write_text(f"ziglang=={ZIG_VERSION} {hashes}\n", encoding="utf-8")
        say(f"fetch ziglang {ZIG_VERSION}: about 100 MB")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        _run([*pip, "--require-hashes", "--dest", ".", "--requirement", "requirements.txt"], stage, {})
    return next(folder.glob("*.whl"))


def _run(command: Sequence[str], folder: Path, environment: dict[str, str]) -> None:
    finished = run_program(command, timeout_s=TIMEOUT_S, cwd=folder, env={**os.environ, **environment})
    if finished is None or finished.code != 0:
        lines = finished.errors.strip().splitlines() if finished else [f"no answer in {TIMEOUT_S:g} s"]
        message = next((line for line in lines if "error" in line.lower()), (lines or ["no message"])[-1])
        raise MsdcError(f"the core for browsers cannot be built: {message[:300]}")
