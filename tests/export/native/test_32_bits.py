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
STRICT = "-O1 -Wall -Wextra -Werror"
TOOLS = {
    "arm-linux-gnueabihf-g++": "g++-arm-linux-gnueabihf", "qemu-arm-static": "qemu-user-static", "cmake": "cmake",
}  # fmt: skip


def build(folder: Path, compiler: str, flags: str) -> Path:
    """The program over a core without a runtime."""
    options = [f"-DCMAKE_CXX_COMPILER={compiler}", f"-DCMAKE_CXX_FLAGS={flags} {STRICT}"]
    if "arm" in compiler:
        options += ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=armv7l"]
    run("cmake", "-S", CORE, "-B", folder, "-DMSDC_ENGINE=none", *options)
    run("cmake", "--build", folder, "-j", "2")
    words = [*flags.split(), *STRICT.split(), f"-I{CORE / 'include'}", "-static", "-o", folder / "lines"]
    compile_c = [compiler.replace("g++", "gcc"), "-std=c11", *words[:-3], "-c", SOURCE, "-o", folder / "lines.o"]
    run(*compile_c)
    run(compiler, folder / "lines.o", folder / "libmsdc_encoder.a", *words)
    return folder / "lines"


def test_a_32_bit_processor_gives_the_same(tiny_bundle, tmp_path):
    absent = [package for tool, package in TOOLS.items() if shutil.which(tool) is None]
    if absent:
        pytest.skip(f"apt-get install {' '.join(absent)}")
    texts = [*golden_texts(), *hostile_inputs.TEXTS.values()]
    lines = [text.replace("\n", " ") for text in texts]
    (tmp_path / "texts").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = (tiny_bundle, "onnx", tmp_path / "texts")
    here = run(build(tmp_path / "here", "g++", ""), *words)
    there = run("qemu-arm-static", build(tmp_path / "arm", "arm-linux-gnueabihf-g++", "-march=armv7-a+fp"), *words)
    assert here.count("\n") >= 4 * len(lines)
    assert there == here
