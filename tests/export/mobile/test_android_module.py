"""The Android module as far as it runs without Android: with the JDK's headers and a current Kotlin, on a JVM."""

import functools
import json
import os
import platform
import re
import shutil
import subprocess
import tarfile
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

import hostile_inputs
import phone_search
import pytest
from native_index import sqlite_source
from places import ROOT
from programs import run

from msdc.bench.toolchain.sdk import native_sdk
from msdc.cache import cached_folder
from msdc.errors import InputError
from msdc.export.bundle import load_bundle
from msdc.export.manifest import read_manifest
from msdc.export.mobile.module import require_module, write_native_module
from msdc.export.mobile.sizes import measured
from msdc.export.options import ExportSettings
from msdc.loading import open_index

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


def kotlin_libraries() -> str:
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
        words += ["-classpath", f"{class_path}:{kotlin_libraries()}", "--"]
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "Driver.java")
        source.write_text(DRIVER, encoding="utf-8")
        run("java", "-Xmx1g", "-XX:TieredStopAtLevel=1", "-cp", jars, source, *words)


def find_java_headers() -> list[Path]:
    """Folders of jni.h and jni_md.h."""
    home = Path(shutil.which("javac") or "").resolve().parent.parent / "include"
    return [home, home / "linux"]


JVM = Path(__file__).with_name("jvm")
APP = ROOT / "examples/android"
ENGINES = ("executorch", "onnx")
NATIVE_TOOLS = {"cmake": "cmake", "javac": "default-jdk-headless", "g++": "g++"}


@pytest.fixture(scope="module")
def stage(tiny_bundle, tmp_path_factory) -> Path:
    """The module as an export of the tiny bundle for android writes it."""
    out = tmp_path_factory.mktemp("stage")
    shutil.copytree(tiny_bundle, out, dirs_exist_ok=True)
    write_native_module(out, read_manifest(tiny_bundle), ExportSettings(target="android"))
    return out


@pytest.fixture(scope="module")
def module(stage) -> Path:
    return stage / "android"


@pytest.fixture(scope="module")
def jni_libraries(module, tmp_path_factory) -> dict[str, Path]:
    """The JNI library of each engine for this machine, through the module's own CMake files.

    ExecuTorch's SDK is linked in; ONNX Runtime is loaded by name, as on Android.
    """
    absent = [name for name in NATIVE_TOOLS if shutil.which(name) is None]
    if absent:
        pytest.skip(f"{', '.join(absent)} not found: apt-get install {' '.join(NATIVE_TOOLS[name] for name in absent)}")
    libraries = {}
    for engine in ENGINES:
        sdk = native_sdk(engine, platform.machine(), platform.machine())
        build = tmp_path_factory.mktemp(engine)
        options = [f"-DONNXRUNTIME_INCLUDE={sdk.includes[0]}"]
        if engine == "executorch":
            options = [
                f"-DEXECUTORCH_INCLUDE={';'.join(map(str, sdk.includes))}",
                f"-DEXECUTORCH_LIBRARIES={';'.join(map(str, sdk.libraries))}",
                f"-DCMAKE_BUILD_RPATH={sdk.libraries[0].parent}",
            ]
        else:
            (build / "libonnxruntime.so").symlink_to(sdk.libraries[0])
        run(
            "cmake", "-S", module / "src/main/cpp", "-B", build, f"-DMSDC_ENGINE={engine}", *options,
            "-DCMAKE_CXX_FLAGS=-O0 -Wall -Wextra -Werror", "-DCMAKE_C_FLAGS=-O0", f"-DMSDC_SQLITE={sqlite_source()}",
        )  # fmt: skip
        run("cmake", "--build", build, "-j", "2")
        libraries[engine] = build / "libmsdc_encoder_jni.so"
    return libraries


@pytest.fixture(scope="module")
def jni_library(jni_libraries) -> Path:
    return jni_libraries["executorch"]


def write_signatures(folder: Path) -> None:
    """Signatures of AndroidX, and the class that Gradle makes of the app's texts."""
    _, *packages = re.split(r"^package ", (JVM / "androidx.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for package in packages:
        (folder / f"{package.split()[0]}.kt").write_text(f"package {package}", encoding="utf-8")
    texts = ElementTree.parse(APP / "app/src/main/res/values/strings.xml").getroot()
    numbers = " ".join(f"public static final int {text.get('name')} = {row};" for row, text in enumerate(texts))
    code = f"package org.msdc.notes; public class R {{ public static class string {{ {numbers} }} }}"
    (folder / "R.java").write_text(code, encoding="utf-8")


@pytest.fixture(scope="module")
def classes(stage, tmp_path_factory) -> dict[str, str]:
    """Class path of each engine: all Kotlin sources of the module and of the example.

    They are compiled against the signatures of Android and of ExecuTorch's library that they use.
    """
    libraries = kotlin_libraries()
    out, onnx, signatures = (tmp_path_factory.mktemp(name) for name in ("classes", "onnx-classes", "signatures"))
    write_signatures(signatures)
    run("javac", "-d", out, *sorted(JVM.rglob("*.java")), signatures / "R.java")
    module = stage / "android/src"
    folders = (module / "main/kotlin", module / "executorch/kotlin", APP / "app/src/main/kotlin", signatures)
    sources = [path for folder in folders for path in sorted(folder.rglob("*.kt"))]
    # The one class that differs; found before the other one of its name.
    other = sorted((module / "onnx/kotlin").rglob("*.kt"))
    answers = module / "androidTest/kotlin/org/msdc/encoder/SearchAnswers.kt"
    compile_kotlin(([*sources, answers, *sorted(JVM.glob("*.kt"))], str(out), out), (other, str(out), onnx))
    return {"executorch": f"{out}:{libraries}", "onnx": f"{onnx}:{out}:{libraries}"}


@pytest.mark.parametrize("engine", ENGINES)
def test_classes_run_with_each_runtime(classes, jni_libraries, tiny_bundle, tmp_path, engine):
    assets = tmp_path / "assets"
    shutil.copytree(tiny_bundle, assets / "msdc/tiny")
    words = (tiny_bundle, assets, tmp_path / "files")
    assert len(run_checks("CheckKt", classes[engine], [jni_libraries[engine]], *words)) == 71


def test_the_example(classes, jni_libraries, app, tiny_bundle, tmp_path):
    phone_search.write_other_model(tiny_bundle, tmp_path / "other")
    lines = run_checks("CheckNotesKt", classes["onnx"], [jni_libraries["onnx"]], *app, tmp_path / "other")
    assert len(lines) == 29


@pytest.fixture
def app(tiny_bundle, tmp_path) -> tuple[Path, Path]:
    """The assets and the files of an app with the tiny bundle."""
    shutil.copytree(tiny_bundle, tmp_path / "assets/msdc/tiny")
    (tmp_path / "files").mkdir()
    return tmp_path / "assets", tmp_path / "files"


def test_damaged_files_are_installed_again(classes, jni_libraries, app):
    lines = run_checks("CheckInstallKt", classes["onnx"], [jni_libraries["onnx"]], "heal", *app)
    assert len(lines) >= 40


def test_processes_of_an_app_install_at_once(classes, jni_libraries, app, tmp_path):
    """As after an update; also when one is killed while it installs."""
    assets, files = app
    library = jni_libraries["onnx"].parent

    def start(go: Path) -> subprocess.Popen:
        words = ["-XX:TieredStopAtLevel=1", f"-Djava.library.path={library}", "-cp", classes["onnx"], "CheckInstallKt"]
        return subprocess.Popen(
            ["java", *words, "start", str(assets), str(files), str(go)],
            env=os.environ | {"LD_LIBRARY_PATH": str(library)}, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )  # fmt: skip

    for killed in (False, True):
        shutil.rmtree(files)
        files.mkdir()
        go = tmp_path / f"go-{killed}"
        running = [start(go) for _ in range(3)]
        assert [process.stdout.readline() for process in running] == ["ready\n"] * 3
        go.write_text("")
        if killed:
            while not list(files.glob("msdc/tiny/*")):
                time.sleep(0.001)
            running.pop().kill()
        for process in running:
            out, _ = process.communicate(timeout=120)
            assert out.splitlines() == ["ok installed", "done"], out
    assert sorted(path.suffix for path in (files / "msdc").iterdir()) == ["", ".lock"]


def test_a_device_without_the_library_is_told(classes, app, tmp_path):
    lines = run_checks("CheckInstallKt", classes["onnx"], [tmp_path / "none.so"], "absent", *app)
    assert len(lines) == 7


def test_search_index_is_that_of_the_python_package(classes, module, jni_library, tiny_bundle, tmp_path):
    assets, data, files = tmp_path / "assets", tmp_path / "data", tmp_path / "files"
    assets.mkdir()
    bundle = load_bundle(tiny_bundle, "executorch")
    phone_search.write_data(bundle, data, assets)
    phone_search.write_other_model(tiny_bundle, data / "other")
    shutil.copyfile(module / "src/androidTest/assets/search.tsv", data / "search.tsv")
    files.mkdir()
    words = (tiny_bundle, assets, files, data)
    lines = run_checks("CheckSearchKt", classes["executorch"], [jni_library], *words)
    assert len(lines) == 3 * len(phone_search.QUERIES) + 55
    # What was written there is the file that would have been written here.
    phone_contents = phone_search.contents(files / "phone.sqlite")
    assert phone_contents == phone_search.contents(assets / "desktop.sqlite")
    with open_index(files / "msdc-search/desktop.sqlite", bundle) as index:
        assert len(index) == len(phone_search.DOCUMENTS) + 300 - 2
        (hit,) = index.search("Verspätung", mode="words").hits
        assert (hit.id, hit.metadata) == ("d1", {"year": 2030})
        assert index.search("Number 17 of more texts.", top=1).hits[0].id == "n17"
    with open_index(files / "phone.sqlite", bundle) as index:
        assert index.search("the ticket in the glove box", top=1).hits[0].id == "d1"


def run_checks(name: str, classes: str, libraries: list[Path], *words: object) -> list[str]:
    """The lines of a program of `jvm/`, none of which may be a failure."""
    places = ":".join(str(path.parent) for path in libraries)
    out = run(
        "java", f"-Djava.library.path={places}", "-Xcheck:jni", "-cp", classes, name, *words,
        env=os.environ | {"LD_LIBRARY_PATH": places},
    )  # fmt: skip
    lines = [line for line in out.splitlines() if line.startswith(("ok ", "FAILED "))]
    assert not [line for line in lines if line.startswith("FAILED")], out
    # -Xcheck:jni prints a warning for every misuse of the interface.
    assert out.splitlines()[-1] == "done"
    assert "WARNING in native method" not in out
    assert "FATAL ERROR" not in out
    return lines


@pytest.mark.parametrize("engine", ENGINES)
def test_hostile_texts_damaged_bundles_and_indexes(classes, jni_libraries, tiny_bundle, tmp_path, engine):
    bundle, index = load_bundle(tiny_bundle, engine), tmp_path / "whole.sqlite"
    with open_index(index, bundle) as opened_index:
        opened_index.add(hostile_inputs.DOCUMENTS)
    checks = hostile_inputs.write_inputs(bundle, tmp_path, tiny_bundle, index)
    libraries = [jni_libraries[engine]]
    lines = run_checks("CheckHostileKt", classes[engine], libraries, tiny_bundle, tmp_path)
    assert len(lines) == checks["kotlin"]
    assert phone_search.contents(tmp_path / "own.sqlite") == phone_search.contents(index)


def test_missing_runtime_is_named(classes, jni_libraries, tiny_bundle, tmp_path):
    library = tmp_path / jni_libraries["onnx"].name
    shutil.copyfile(jni_libraries["onnx"], library)
    done = subprocess.run(
        ["java", f"-Djava.library.path={tmp_path}", "-cp", classes["onnx"], "CheckKt", tiny_bundle, tmp_path, tmp_path],
        capture_output=True, text=True, check=False, env=os.environ | {"LD_LIBRARY_PATH": ""},
    )  # fmt: skip
    assert done.returncode == 1
    assert "EncoderException: libonnxruntime.so is not in the app: add com.microsoft" in done.stderr


def test_library_loads_on_devices_with_16_kb_pages(jni_library):
    shown = run("readelf", "-lW", jni_library)
    aligned = [line.split()[-1] for line in shown.splitlines() if line.split()[:1] == ["LOAD"]]
    assert aligned
    assert all(int(number, 16) >= 16384 for number in aligned)


def braces_match(text: str) -> bool:
    """Whether every bracket of a Gradle file is closed; texts and comments left out."""
    code = re.sub(r'"(\\.|[^"\\])*"|//[^\n]*', "", text)
    open_ones = []
    for letter in code:
        if letter in "([{":
            open_ones.append(letter)
        elif letter in ")]}" and (not open_ones or open_ones.pop() + letter not in ("()", "[]", "{}")):
            return False
    return not open_ones


def one_runtime(manifest, name: str):
    """The manifest of a bundle with the program of one runtime."""
    programs = manifest.programs.model_copy(update={runtime: None for runtime in manifest.runtimes if runtime != name})
    return manifest.model_copy(update={"programs": programs})


def test_gradle_files_suit_android_gradle_plugins_8_and_9(stage, module, tiny_bundle):
    code, assets = (path.read_text(encoding="utf-8") for path in sorted(module.rglob("build.gradle.kts")))
    manifest = read_manifest(tiny_bundle)
    for name in ENGINES:
        package = {"executorch": "executorch", "onnx": "onnxruntime"}[name]
        assert f'"{name}" to "{manifest.versions[package].split("+")[0]}"' in code
        files = ["bundle.json", "golden.json", manifest.tokenizer.file, *manifest.program_files(name)]
        assert f'"{name}" to listOf({", ".join(json.dumps(file) for file in files)})' in assets
        assert all((module / "bundle/../.." / file).is_file() for file in files)
    assert all('getOrElse("executorch")' in text for text in (code, assets))
    # Several bundles in one app: the code once, each model under its own name.
    assert 'namespace = "org.msdc.encoder"' in code
    assert 'namespace = "org.msdc.bundle.tiny"' in assets
    assert 'into(assets.dir("msdc/tiny"))' in assets
    assert "kotlin" not in assets
    gradle = sorted([*stage.rglob("*.gradle.kts"), *APP.rglob("*.gradle.kts")])
    assert len(gradle) == 6
    # The example takes the module from where its README exports it to.
    settings = (APP / "settings.gradle.kts").read_text(encoding="utf-8")
    folders = re.findall(r'file\("model/(.*)"\)', settings)
    assert [(stage / folder / "build.gradle.kts").is_file() for folder in folders] == [True, True]
    for path in gradle:
        text = path.read_text(encoding="utf-8")
        assert "kotlinOptions" not in text and "{{" not in text and braces_match(text), path
        if "android {" in text:
            assert "compileSdk = 35" in text
    # Version 9 refuses Kotlin's own plugin: it is applied where nothing else brought Kotlin.
    assert code.count("org.jetbrains.kotlin.android") == 1
    assert 'if (extensions.findByName("kotlin") == null) apply(plugin = "org.jetbrains.kotlin.android")' in code
    stated = re.search(r"Android Gradle plugin (\d+\.\d+) or later", (module / "README.md").read_text(encoding="utf-8"))
    plugin_versions = {
        path: re.findall(r'(?:gradle:|library"\) version ")(\d+\.\d+)', path.read_text(encoding="utf-8"))
        for path in gradle
    }
    assert stated
    assert {version for versions in plugin_versions.values() for version in versions} == {stated[1]}
    assert "{{" not in (module / "README.md").read_text(encoding="utf-8")
    assert "max-page-size=16384" in (module / "src/main/cpp/CMakeLists.txt").read_text(encoding="utf-8")
    for path in [*module.rglob("*.xml"), *APP.rglob("*.xml")]:
        ElementTree.parse(path)


def test_models_in_other_scripts_have_folders_of_their_own(tiny_bundle, tmp_path):
    """Two names without a Latin letter; a name that is plain stays as it is."""
    manifest, assets = read_manifest(tiny_bundle), []
    for name in ("模型一", "模型二", "tiny", "Ti ny", "Ti-ny"):
        stage = tmp_path / str(len(assets))
        shutil.copytree(tiny_bundle, stage)
        write_native_module(stage, manifest.model_copy(update={"name": name}), ExportSettings(target="android"))
        gradle = (stage / "android/bundle/build.gradle.kts").read_text(encoding="utf-8")
        names = re.search(r'into\(assets.dir\("msdc/([\w.-]+)"\)\)', gradle), re.search(r'namespace = "(.*)"', gradle)
        assert all(names)
        assets.append(tuple(match[1] for match in names))
    assert all(len(set(column)) == 5 for column in zip(*assets, strict=True))
    assert assets[2] == ("tiny", "org.msdc.bundle.tiny")
    assert all(re.fullmatch(r"org\.msdc\.bundle\.[a-z_]\w*", namespace) for _, namespace in assets)


def test_shrinking_keeps_what_the_jni_layer_finds_by_name(module):
    rules = (module / "consumer-rules.pro").read_text(encoding="utf-8")
    jni = (module / "src/main/cpp/jni.cpp").read_text(encoding="utf-8")
    signature = re.search(r'GetMethodID\([^"]*"run", "\((.*)\)\[F"\)', jni)
    match = re.search(r"float\[\] run\((.*)\);", rules)
    assert signature
    assert match
    names = {"int[]": "[I", "int": "I"}
    assert "".join(names[word] for word in match[1].split(", ")) == signature[1]
    assert "-keep class org.msdc.encoder.NativeCore { *; }" in rules


@pytest.mark.parametrize("engine", ENGINES)
def test_module_of_a_bundle_with_one_program(tiny_bundle, tmp_path, engine):
    shutil.copytree(tiny_bundle, tmp_path, dirs_exist_ok=True)
    write_native_module(tmp_path, one_runtime(read_manifest(tiny_bundle), engine), ExportSettings(target="android"))
    text = (tmp_path / "android/build.gradle.kts").read_text(encoding="utf-8")
    other = next(name for name in ENGINES if name != engine)
    assert f'getOrElse("{engine}")' in text
    assert f'"{other}" to' not in text
    assert braces_match(text)
    assert (tmp_path / f"android/src/{engine}/kotlin").is_dir()
    assert not (tmp_path / f"android/src/{other}").exists()


def test_readme_states_what_an_app_grows_by(module, tiny_bundle):
    text = (module / "README.md").read_text(encoding="utf-8")
    manifest = read_manifest(tiny_bundle)
    program = manifest.program_files("executorch")[0]
    size = (tiny_bundle / program).stat().st_size
    assert f"| program: {program} | {size:,} |" in text
    numbers = [int(number.replace(",", "")) for number in re.findall(r"^\| [^|]+ \| ([\d,]+) \|", text, re.MULTILINE)]
    assert len(numbers) == 6
    assert sum(numbers[:-1]) == numbers[-1]
    assert numbers[3] == measured()["executorch"]["bytes"] > 10**6


def test_swift_package_holds_the_core(tiny_bundle, tmp_path):
    out = tmp_path / "package"
    shutil.copytree(tiny_bundle, tmp_path / "stage")
    manifest = read_manifest(tiny_bundle)
    folder = write_native_module(
        tmp_path / "stage", manifest, ExportSettings(target="ios"), folder="tiny-ios", package=out
    )
    assert folder == "../tiny-ios-package"
    # The folder that an app takes as a resource holds the bundle alone.
    assert {path.name for path in (tmp_path / "stage").iterdir()} == {path.name for path in tiny_bundle.iterdir()}
    package = (out / "Package.swift").read_text(encoding="utf-8")
    assert re.search(r'executorch\.git", revision: "[0-9a-f]{40}"\)', package)
    assert "branch:" not in package
    assert "{{" not in package
    # A package with unsafe flags cannot be a dependency of another one.
    assert "unsafeFlags" not in package
    core = out / "Sources/MSDCCore"
    assert (core / "include/msdc_encoder.h").is_file()
    assert (core / "src/c_interface.cpp").is_file()
    # What Package.swift leaves out is there to be left out, and what it takes to be taken.
    for name in ("CMakeLists.txt", "src/engine_executorch.cpp", "src/engine_onnx.cpp", "src/index/search.sql",
                 "src/index/sqlite_flags.txt"):  # fmt: skip
        assert name in package
        assert (core / name).is_file()
    assert 'process("search.tsv")' in package
    assert (out / "Tests/MSDCTests/search.tsv").is_file()
    readme = (out / "README.md").read_text(encoding="utf-8")
    assert 'forResource: "tiny-ios"' in readme
    assert "{{" not in readme
    needed = ["bundle.json", "golden.json", manifest.tokenizer.file, *manifest.program_files("executorch")]
    assert ", ".join(f"`{name}`" for name in needed) in readme


def test_what_cannot_be_written_is_refused_with_the_reason(tiny_bundle, tmp_path):
    manifest = read_manifest(tiny_bundle)
    part = manifest.tokenizer.model_copy(
        update={"kind": "tokenizer-json", "refused": "tokenizer.json: no model WordLevel"}
    )
    with pytest.raises(InputError, match=r"no android module: .*no model WordLevel.*module=False"):
        write_native_module(tmp_path, manifest.model_copy(update={"tokenizer": part}), ExportSettings(target="android"))
    with pytest.raises(InputError, match=r'no ios module: .*ExecuTorch.*runtime="both"'):
        require_module("ios", manifest.tokenizer, ["onnx"])
    write_native_module(tmp_path, manifest, ExportSettings(target="linux"))
    assert list(tmp_path.iterdir()) == []


def test_interface_from_a_c_program(module, jni_library, tiny_bundle, tmp_path):
    source = Path(__file__).with_name("interface.c")
    include = module / "src/main/cpp/core/include"
    strict = ("-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror")
    run("gcc", *strict, "-c", source, f"-I{include}", "-o", tmp_path / "program.o")
    sdk = native_sdk("executorch", platform.machine(), platform.machine())
    core = jni_library.parent / "core/libmsdc_encoder.a"
    run(
        "g++", tmp_path / "program.o", core, "-Wl,--no-as-needed", *sdk.libraries,
        f"-Wl,-rpath,{sdk.libraries[0].parent}", "-lpthread", "-o", tmp_path / "program",
    )  # fmt: skip
    assert run(tmp_path / "program", tiny_bundle).strip() == "executorch"
