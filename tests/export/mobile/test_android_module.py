"""The Android module as far as it runs without Android: with the JDK's headers and Debian's Kotlin, on a JVM."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from msdc.bench.toolchain.sdk import native_sdk
from msdc.export.manifest import read_manifest
from msdc.export.mobile.android import check_page_size
from msdc.export.mobile.module import write_native_module

JVM = Path(__file__).with_name("jvm")
KOTLIN_LIBRARY = Path("/usr/share/java/kotlin-stdlib.jar")
PACKAGES = {"cmake": "cmake", "javac": "default-jdk-headless", "kotlinc": "kotlin", "g++": "g++"}


def run(*command: object, timeout: float = 300, **options) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False, **options)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def module(tiny_bundle, tmp_path_factory) -> Path:
    """The module as an export for android writes it."""
    stage = tmp_path_factory.mktemp("stage")
    write_native_module(stage, "android", read_manifest(tiny_bundle))
    return stage / "android"


@pytest.fixture(scope="module")
def jni_library(module, tmp_path_factory) -> Path:
    """The JNI library for this machine, through the module's own CMake files, with ExecuTorch's SDK linked in."""
    import platform

    absent = [name for name in ("cmake", "g++", "javac") if shutil.which(name) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not found: apt-get install {' '.join(PACKAGES[name] for name in absent)}")
    sdk = native_sdk("executorch", platform.machine(), platform.machine())
    build = tmp_path_factory.mktemp("build")
    rpath = sdk.libraries[0].parent
    run(
        "cmake", "-S", module / "src/main/cpp", "-B", build, "-DMSDC_ENGINE=executorch",
        f"-DEXECUTORCH_INCLUDE={';'.join(map(str, sdk.includes))}",
        f"-DEXECUTORCH_LIBRARIES={';'.join(map(str, sdk.libraries))}", f"-DCMAKE_BUILD_RPATH={rpath}",
        "-DCMAKE_CXX_FLAGS=-O1 -Wall -Wextra -Werror",
    )  # fmt: skip
    run("cmake", "--build", build, "-j", "2")
    return build / "libmsdc_encoder_jni.so"


@pytest.fixture(scope="module")
def classes(module, tmp_path_factory) -> Path:
    """The Kotlin classes, compiled against the signatures of Android and ExecuTorch's library that they use."""
    absent = [name for name in ("kotlinc", "javac") if shutil.which(name) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not found: apt-get install {' '.join(PACKAGES[name] for name in absent)}")
    out = tmp_path_factory.mktemp("classes")
    run("javac", "-d", out, *sorted(JVM.rglob("*.java")))
    sources = sorted((module / "src/main/kotlin").rglob("*.kt"))
    run("kotlinc", "-classpath", out, "-d", out, *sources, JVM / "Check.kt")
    return out


def test_classes_do_what_they_promise(classes, jni_library, tiny_bundle, tmp_path):
    assets = tmp_path / "assets"
    shutil.copytree(tiny_bundle, assets / "msdc")
    class_path = f"{classes}:{KOTLIN_LIBRARY}"
    out = run(
        "java", f"-Djava.library.path={jni_library.parent}", "-Xcheck:jni", "-cp", class_path, "CheckKt",
        tiny_bundle, assets, tmp_path / "files",
    )  # fmt: skip
    lines = [line for line in out.splitlines() if line.startswith(("ok ", "FAILED "))]
    assert len(lines) == 19 and not [line for line in lines if line.startswith("FAILED")], out
    # -Xcheck:jni prints a warning for every misuse of the interface.
    assert "WARNING in native method" not in out and "FATAL ERROR" not in out


def test_library_loads_on_devices_with_16_kb_pages(jni_library, tmp_path):
    assert check_page_size.misaligned(jni_library) == []
    small = tmp_path / "libsmall.so"
    run("g++", "-shared", "-fPIC", "-Wl,-z,max-page-size=4096", "-x", "c++", "/dev/null", "-o", small)
    assert check_page_size.misaligned(tmp_path) == ["libsmall.so: aligned to 4096 bytes, not to 16384"]
    archive = shutil.make_archive(str(tmp_path / "app"), "zip", tmp_path, "libsmall.so")
    done = subprocess.run(["python3", check_page_size.__file__, archive], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "aligned to 4096" in done.stdout


def test_gradle_files_name_the_bundle(module, tiny_bundle):
    text = (module / "build.gradle.kts").read_text(encoding="utf-8")
    manifest = read_manifest(tiny_bundle)
    assert f"org.pytorch:executorch-android:{manifest.versions['executorch'].split('+')[0]}" in text
    for name in ("bundle.json", "golden.json", manifest.tokenizer.file, manifest.programs.executorch.file):
        assert f'"{name}"' in text
    assert "{{" not in text and "{{" not in (module / "README.md").read_text(encoding="utf-8")
    assert "max-page-size=16384" in (module / "src/main/cpp/CMakeLists.txt").read_text(encoding="utf-8")


def test_swift_package_holds_the_core(tiny_bundle, tmp_path):
    write_native_module(tmp_path, "ios", read_manifest(tiny_bundle))
    package = (tmp_path / "ios/Package.swift").read_text(encoding="utf-8")
    assert "swiftpm-" in package and "{{" not in package
    core = tmp_path / "ios/Sources/MSDCCore"
    assert (core / "include/msdc_encoder.h").is_file() and (core / "src/c_interface.cpp").is_file()
    # What Package.swift leaves out is there to be left out.
    for name in ("CMakeLists.txt", "src/engine_executorch.cpp", "src/engine_onnx.cpp"):
        assert name in package and (core / name).is_file()


def test_bundle_that_the_core_cannot_run_gets_a_page_that_says_so(tiny_bundle, tmp_path):
    manifest = read_manifest(tiny_bundle)
    part = manifest.tokenizer.model_copy(update={"kind": "tokenizer-json"})
    write_native_module(tmp_path, "android", manifest.model_copy(update={"tokenizer": part}))
    assert [p.name for p in (tmp_path / "android").iterdir()] == ["README.md"]
    assert "this model's is a tokenizer-json" in (tmp_path / "android/README.md").read_text(encoding="utf-8")
    write_native_module(tmp_path, "linux", manifest)
    assert not (tmp_path / "linux").exists()


def test_interface_from_a_c_program(module, jni_library, tiny_bundle, tmp_path):
    source = Path(__file__).with_name("interface.c")
    include = module / "src/main/cpp/core/include"
    run(
        "gcc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-pedantic",
        "-Werror",
        "-c",
        source,
        f"-I{include}",
        "-o",
        tmp_path / "program.o",
    )
    import platform

    sdk = native_sdk("executorch", platform.machine(), platform.machine())
    core = jni_library.parent / "core/libmsdc_encoder.a"
    run(
        "g++", tmp_path / "program.o", core, "-Wl,--no-as-needed", *sdk.libraries,
        f"-Wl,-rpath,{sdk.libraries[0].parent}", "-lpthread", "-o", tmp_path / "program",
    )  # fmt: skip
    assert run(tmp_path / "program", tiny_bundle).strip() == "executorch"
