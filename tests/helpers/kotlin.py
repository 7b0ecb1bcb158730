"""A current Kotlin compiler from the npm registry, in the user's cache."""

from __future__ import annotations

import functools
import shutil
import subprocess
import tarfile
import tempfile
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


# One process for all compilations: the second finds the compiler warm.
DRIVER = """
import java.util.*;
class Driver {
    public static void main(String[] words) {
        List<String> one = new ArrayList<>();
        for (String word : words) {
            if (!word.equals("--")) { one.add(word); continue; }
            var compiler = new org.jetbrains.kotlin.cli.jvm.K2JVMCompiler();
            int code = compiler.exec(System.err, one.toArray(new String[0])).getCode();
            if (code != 0) System.exit(code);
            one.clear();
        }
    }
}
"""


def compile_kotlin(*parts: tuple[list[Path], str, Path]) -> None:
    """Compile parts (sources, class path, folder) as Android's plugin does (JVM 11), every warning an error."""
    home = kotlin_home()
    jars = ":".join(str(home / f"{name}.jar") for name in (*COMPILER, *LIBRARIES))
    words: list[str] = []
    for sources, class_path, out in parts:
        words += ["-Werror", "-no-stdlib", "-no-reflect", "-jvm-target", "11", "-d", str(out), *map(str, sources)]
        words += ["-classpath", f"{class_path}:{libraries()}", "--"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "Driver.java")
        source.write_text(DRIVER, encoding="utf-8")
        command = ["java", "-Xmx1g", "-XX:TieredStopAtLevel=1", "-cp", jars, str(source), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
