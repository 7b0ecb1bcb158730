"""A private adb server and one emulated phone for all tests that need a device."""

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from msdc.bench.devices.emulator import EmulatorMachine, free_port
from msdc.bench.devices.emulator_image import PROGRAMS, create_image
from msdc.bench.devices.web.browser import ENGINES
from msdc.bench.system_programs import PACKAGES, missing_programs
from msdc.bench.toolchain.build import build_runner
from msdc.errors import MsdcError
from msdc.export.mobile.web.npm import runtime_folder

CROSS = "aarch64-linux-gnu-g++"


@pytest.fixture(scope="session", autouse=True)
def adb_server():
    """A server of our own: the user's phones and server stay out of the tests."""
    if missing_programs(["adb"]):
        yield None
        return
    before = os.environ.get("ANDROID_ADB_SERVER_PORT")
    os.environ["ANDROID_ADB_SERVER_PORT"] = str(free_port())
    yield os.environ["ANDROID_ADB_SERVER_PORT"]
    subprocess.run(["adb", "kill-server"], capture_output=True, check=False, timeout=30)
    if before is None:
        del os.environ["ANDROID_ADB_SERVER_PORT"]
    else:
        os.environ["ANDROID_ADB_SERVER_PORT"] = before


@pytest.fixture(scope="session")
def runner(tmp_path_factory) -> Path:
    """The native runner of this machine, which a pushed script starts where its libraries are."""
    try:
        program = build_runner("onnx").program
    except MsdcError as error:
        pytest.skip(f"no native runner here: {error}")
    script = tmp_path_factory.mktemp("runner") / "msdc-runner"
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(str(program))} "$@"\n')
    script.chmod(0o755)
    return script


@pytest.fixture(scope="session")
def onnxruntime_web() -> None:
    """Skips where onnxruntime-web, which measuring pages run, cannot be had."""
    try:
        runtime_folder()
    except MsdcError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def chromium(onnxruntime_web, tmp_path_factory) -> None:
    """Skips where Chromium is not installed or cannot start as it is."""
    engine = ENGINES["chromium"]
    try:
        command = engine.command(tmp_path_factory.mktemp("profile"), "--dump-dom", "about:blank")
    except MsdcError as error:
        pytest.skip(str(error))
    if os.geteuid() != 0:
        # Some containers let no user make the namespaces of Chromium's sandbox.
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode != 0:
            pytest.skip(f"Chromium does not start with its sandbox: {done.stderr.strip()[-200:]}")


@pytest.fixture(scope="session")
def emulator_image():
    """The disk image; skips where it cannot be made."""
    absent = missing_programs([*PROGRAMS, CROSS])
    if absent:
        packages = " ".join(PACKAGES[name] for name in absent)
        pytest.skip(f"the emulated phone needs {', '.join(absent)}: apt-get install {packages}")
    try:
        return create_image()
    except MsdcError as error:
        pytest.skip(f"the emulated phone's image cannot be made here: {error}")


@pytest.fixture(scope="session")
def phone(emulator_image):
    """A machine in real time (no counting)."""
    with EmulatorMachine(emulator_image, "a76", count=False, disk_mib=128) as machine:
        yield machine
