"""What a runtime and the module add to an Android app: their arm64 libraries, plain and compressed.

    python benchmarks/app_size.py --write docs/results/app-size.md

ONNX Runtime: the library in its Android archive (AAR), from an npm package that contains one, or `--onnx-aar FILE`.
ExecuTorch: the libraries of the aarch64 wheel (runtime, XNNPACK, optimized and quantized kernels, thread pool; kernels
are not selected for a program), since its AAR is on Maven only. The module's own library is built with the aarch64
cross compiler, with the C++ library inside, and stripped.

Also writes `export/mobile/runtime_sizes.json`, from which the README of a bundle takes its figures.
"""

import json
import platform
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from results_page import options_for, table, write_page

from msdc.bench.toolchain.sdk import native_sdk
from msdc.cache import cached_folder
from msdc.export.mobile.module import CORE, HERE
from msdc.export.mobile.sizes import MEASURED, deflated
from msdc.export.mobile.web.write import module_source

# A package that contains Microsoft's AAR unchanged.
AAR_PACKAGE, AAR_MEMBER = "com.github.asus4.onnxruntime@0.4.9", "package/Plugins/Android/onnxruntime.aar"
ARCHITECTURE = "arm64-v8a"


def onnx_aar() -> Path:

    def make(stage: Path) -> None:
        subprocess.run(["npm", "pack", "--silent", AAR_PACKAGE], cwd=stage, check=True, stdout=subprocess.DEVNULL)
        (archive,) = stage.glob("*.tgz")
        with tarfile.open(archive) as packed:
            member = packed.extractfile(AAR_MEMBER)
            assert member is not None, f"{AAR_MEMBER} is a folder"
            (stage / "onnxruntime.aar").write_bytes(member.read())
        archive.unlink()

    return cached_folder("aar", {"package": AAR_PACKAGE, "format": 1}, make) / "onnxruntime.aar"


def entry(what: str, source: str, paths: list[Path]) -> dict[str, Any]:
    size = sum(path.stat().st_size for path in paths)
    return {"what": what, "source": source, "bytes": size, "compressed": deflated(paths)}


def measure_onnx(aar: Path, work: Path) -> dict[str, Any]:
    """The archive's libraries; the one of its Java binding is packaged too, though the module does not call it."""
    with zipfile.ZipFile(aar) as archive:
        folder = f"jni/{ARCHITECTURE}/"
        names = [name for name in archive.namelist() if name.startswith(folder) and name.endswith(".so")]
        paths = [Path(archive.extract(name, work)) for name in names]
        header = archive.read("headers/onnxruntime_c_api.h").decode()
    api = next(line.split()[-1] for line in header.splitlines() if line.startswith("#define ORT_API_VERSION"))
    return entry("runtime", f"ONNX Runtime 1.{api}, libraries of its Android archive", paths)


def measure_core(work: Path) -> dict[str, Any]:
    """The JNI library with the core, without a runtime inside, for arm64."""
    cpp = work / "cpp"
    shutil.copytree(HERE / "android/src/main/cpp", cpp)
    shutil.copytree(CORE, cpp / "core")
    subprocess.run(
        ["cmake", "-S", cpp, "-B", work / "build", "-DMSDC_ENGINE=none", "-DCMAKE_SYSTEM_NAME=Linux",
         "-DCMAKE_SYSTEM_PROCESSOR=aarch64", "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
         "-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc", "-DCMAKE_C_FLAGS=-ffunction-sections -fdata-sections",
         "-DCMAKE_SHARED_LINKER_FLAGS=-static-libstdc++ -static-libgcc -Wl,--gc-sections -s",
         "-DCMAKE_CXX_FLAGS=-ffunction-sections -fdata-sections"],
        check=True, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    subprocess.run(["cmake", "--build", work / "build", "-j", "1"], check=True, stdout=subprocess.DEVNULL)
    return entry(
        "module",
        "this module's JNI library: encoder, search index, SQLite, C++ library",
        [work / "build/libmsdc_encoder_jni.so"],
    )


def measure_web(work: Path) -> dict[str, Any]:
    (work / "msdc.js").write_text(module_source(), encoding="utf-8")
    return entry("module", "the web module, with the core's tokenizers", [work / "msdc.js"])


def main() -> None:
    parser = options_for(__doc__, "app-size")
    parser.add_argument("--onnx-aar", type=Path, help="ONNX Runtime's Android archive")
    options = parser.parse_args()
    sdk = native_sdk("executorch", "aarch64", platform.machine())
    source = f"ExecuTorch {sdk.version}, libraries of its aarch64 wheel"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        sizes = {
            "executorch": entry("runtime", source, list(sdk.libraries)),
            "onnx": measure_onnx(options.onnx_aar or onnx_aar(), work),
            "core": measure_core(work),
            "web": measure_web(work),
        }
    MEASURED.write_text(json.dumps(sizes, indent=2) + "\n", encoding="utf-8")
    rows = [
        (part["what"], part["source"], f"{part['bytes']:,}", f"{part['compressed']:,}")
        for name, part in sizes.items()
        if name != "web"
    ]
    write_page(options.write, "What a runtime and the module add to an Android app", "none; libraries only",
               table(["part", "source", "bytes", "bytes compressed"], rows), "executorch onnxruntime")  # fmt: skip


if __name__ == "__main__":
    main()
