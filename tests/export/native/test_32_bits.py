"""The core on a 32-bit processor (armeabi-v7a of Android): the same ids, words, plans and passages as here."""

import shutil
from pathlib import Path

import hostile_inputs
import pytest
from programs import run

import msdc.files
from msdc.export.golden import golden_texts

CORE = msdc.files.PACKAGE / "export/native"
SOURCE = Path(__file__).with_name("lines.c")
STRICT = ["-O1", "-Wall", "-Wextra", "-Werror"]
TOOLS = {
    "arm-linux-gnueabihf-g++": "g++-arm-linux-gnueabihf", "qemu-arm-static": "qemu-user-static", "cmake": "cmake",
}  # fmt: skip


def build_here(folder: Path, core: Path) -> Path:
    """The program over the shared library of a core without a runtime."""
    run("gcc", "-std=c11", *STRICT, f"-I{CORE / 'include'}", "-c", SOURCE, "-o", folder / "lines.o")
    run("g++", folder / "lines.o", core, f"-Wl,-rpath,{core.parent}", "-o", folder / "lines-here")
    return folder / "lines-here"


def build_arm(folder: Path) -> Path:
    """The program over the core for 32-bit Arm, built by its own CMake file."""
    compiler, flags = "arm-linux-gnueabihf-g++", ["-march=armv7-a+fp", *STRICT]
    run(
        "cmake", "-S", CORE, "-B", folder, "-DMSDC_ENGINE=none", f"-DCMAKE_CXX_COMPILER={compiler}",
        f"-DCMAKE_CXX_FLAGS={' '.join(flags)}", "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=armv7l",
    )  # fmt: skip
    run("cmake", "--build", folder, "-j", "2")
    compile_c = [compiler.replace("g++", "gcc"), "-std=c11", *flags, f"-I{CORE / 'include'}"]
    run(*compile_c, "-c", SOURCE, "-o", folder / "lines.o")
    run(compiler, folder / "lines.o", folder / "libmsdc_encoder.a", *flags, "-static", "-o", folder / "lines")
    return folder / "lines"


def test_a_32_bit_processor_gives_the_same(tiny_bundle, core_library, tmp_path):
    absent = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if absent:
        pytest.skip(f"apt-get install {' '.join(absent)}")
    texts = [*golden_texts(), *hostile_inputs.TEXTS.values()]
    lines = [text.replace("\n", " ") for text in texts]
    (tmp_path / "texts").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = (tiny_bundle, "onnx", tmp_path / "texts")
    here = run(build_here(tmp_path, core_library), *words)
    there = run("qemu-arm-static", build_arm(tmp_path / "arm"), *words)
    assert here.count("\n") >= 4 * len(lines)
    assert there == here
