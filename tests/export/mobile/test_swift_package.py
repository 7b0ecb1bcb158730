"""The Swift package on Linux: built with SwiftPM and run over the real program; ExecuTorch's package is a stand-in."""

import functools
import hashlib
import http.server
import os
import platform
import re
import shutil
import threading
from pathlib import Path

import hostile_inputs
import phone_search
import pytest
from places import ROOT
from programs import run

from msdc.bench.toolchain.sdk import native_sdk
from msdc.export.bundle import load_bundle
from msdc.export.manifest import read_manifest
from msdc.export.mobile.module import write_native_module
from msdc.export.options import ExportSettings
from msdc.loading import open_index

SWIFT = Path(__file__).with_name("swift")
APP = ROOT / "examples/ios/Sources"


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server of files that says nothing."""

    def log_message(self, *_: object) -> None:
        """Nothing."""


def core_library(core: Path, folder: Path) -> Path:
    """The core with ExecuTorch as a shared library."""
    sdk = native_sdk("executorch", platform.machine(), platform.machine())
    run("cmake", "-S", core, "-B", folder / "build", "-DMSDC_ENGINE=executorch", "-DCMAKE_CXX_FLAGS=-O0",
        f"-DEXECUTORCH_INCLUDE={';'.join(map(str, sdk.includes))}",
        f"-DEXECUTORCH_LIBRARIES={';'.join(map(str, sdk.libraries))}")  # fmt: skip
    run("cmake", "--build", folder / "build", "-j", "2")
    library = folder / "libcore.so"
    run("g++", "-shared", "-Wl,--whole-archive", folder / "build/libmsdc_encoder.a", "-Wl,--no-whole-archive",
        "-Wl,--no-as-needed", *sdk.libraries, f"-Wl,-rpath,{sdk.libraries[0].parent}", "-o", library)  # fmt: skip
    return library


def linux_package(package: Path) -> None:
    """Change an exported package for Linux: another ExecuTorch, the checks, the example without its views."""
    shutil.copytree(SWIFT / "Check", package / "Sources/Check")
    for name in ("Notes.swift", "NotesModel.swift"):
        shutil.copyfile(APP / name, package / "Sources/Check" / name)
    path = package / "Package.swift"
    text, count = re.subn(r"\.package\(url: [^)]*\)", f'.package(path: "{SWIFT / "executorch"}")', path.read_text())
    assert count == 1
    # Debian's libswiftObservation.so lacks a function that ends the program where a lock fails.
    flags = 'linkerSettings: [.unsafeFlags(["-Xlinker", "--allow-shlib-undefined"])]'
    added = f'.executableTarget(name: "Check", dependencies: ["MSDC", "MSDCCore"], {flags}),'
    assert text.count(".testTarget(") == 1
    text = text.replace(".testTarget(", f"{added}\n    .testTarget(")
    path.write_text(text)


def test_package_runs_on_linux(tiny_bundle, tmp_path):
    if shutil.which("swift") is None:
        pytest.skip("swift not found: apt-get install swiftlang libsqlite3-dev (Debian 13)")
    stage, data, files = tmp_path / "stage", tmp_path / "data", tmp_path / "files"
    shutil.copytree(tiny_bundle, stage)
    package = tmp_path / "package"
    write_native_module(
        stage, read_manifest(tiny_bundle), ExportSettings(target="ios"), folder="stage", package=package
    )
    run("swift", "-frontend", "-parse", "-swift-version", "5", "-parse-as-library", APP / "NotesApp.swift")
    library = core_library(package / "Sources/MSDCCore", tmp_path)
    linux_package(package)
    files.mkdir()
    bundle = load_bundle(tiny_bundle, "executorch")
    phone_search.write_data(bundle, data, files)
    phone_search.write_other_model(tiny_bundle, data / "other")
    shutil.copyfile(files / "desktop.sqlite", tmp_path / "made-here.sqlite")
    (hostile := tmp_path / "hostile").mkdir()
    with open_index(hostile / "whole.sqlite", bundle) as index:
        index.add(hostile_inputs.DOCUMENTS)
    checks = hostile_inputs.write_inputs(bundle, hostile, tiny_bundle, hostile / "whole.sqlite")["swift"]
    digits = hashlib.sha256((tiny_bundle / "bundle.json").read_bytes()).hexdigest()
    handler = functools.partial(Quiet, directory=str(tiny_bundle))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        out = run(
            "swift", "run", "--package-path", package, "--jobs", "2", "Check", tiny_bundle, library, data, files,
            f"http://127.0.0.1:{server.server_port}", digits, bundle.width, hostile, cwd=tmp_path,
            env=os.environ | {"XDG_DATA_HOME": str(tmp_path / "home")},  # where downloads go
        )  # fmt: skip
        server.shutdown()
    lines = [line for line in out.splitlines() if line.startswith(("ok ", "FAILED "))]
    assert len(lines) == 3 * len(phone_search.QUERIES) + 88 + checks, out
    assert not any(line.startswith("FAILED") for line in lines), out
    assert out.splitlines()[-1] == "done"
    assert phone_search.contents(files / "phone.sqlite") == phone_search.contents(tmp_path / "made-here.sqlite")
    with open_index(files / "desktop.sqlite", bundle) as index:
        assert index.search("Verspätung", mode="words").hits[0].id == "d1"
        assert index.search("Number 17 of more texts.", top=1).hits[0].id == "n17"
    with open_index(files / "phone.sqlite", bundle) as index:
        assert index.search("the ticket in the glove box", top=1).hits[0].id == "d1"
