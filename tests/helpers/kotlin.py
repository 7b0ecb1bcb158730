"""A current Kotlin compiler from the npm registry, in the user's cache."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from msdc.bench.toolchain.packages import cached_folder

PACKAGE = "kotlin-compiler@2.4.20"
LIBRARIES = ("kotlin-stdlib", "kotlinx-coroutines-core-jvm")
COMPILER = ("kotlin-compiler", "kotlin-reflect", "kotlin-script-runtime", "annotations-13.0")


def _fetch(stage: Path) -> None:
    # npm compares the registry's hash.
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=stage, check=True, stdout=subprocess.DEVNULL)
    (archive,) = stage.glob("*.tgz")
    with tarfile.open(archive) as packed:
        for name in (*LIBRARIES, *COMPILER):
            packed.extract(f"package/lib/{name}.jar", stage, filter="data")
    archive.unlink()


@functools.cache
def kotlin_home() -> Path:
    """Folder of the compiler's jars; skips the test where npm or Java is absent."""
    absent = [name for name in ("npm", "java", "javac") if shutil.which(name) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not found: apt-get install npm default-jdk-headless")
    return cached_folder("kotlin", {"package": PACKAGE, "format": 1}, _fetch) / "package/lib"


def libraries() -> str:
    """Class path of Kotlin's own libraries and coroutines."""
    return ":".join(str(kotlin_home() / f"{name}.jar") for name in LIBRARIES)


def compile_kotlin(sources: list[Path], class_path: str, out: Path) -> None:
    """Compile `sources` as Android's plugin does (JVM 11), every warning an error."""
    home = kotlin_home()
    jars = ":".join(str(home / f"{name}.jar") for name in (*COMPILER, *LIBRARIES))
    command = [
        "java", "-Xmx1g", "-XX:TieredStopAtLevel=1", "-cp", jars,
        "org.jetbrains.kotlin.cli.jvm.K2JVMCompiler", "-Werror", "-no-stdlib", "-no-reflect", "-jvm-target", "11",
        "-classpath", f"{class_path}:{libraries()}", "-d", str(out), *map(str, sources),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
