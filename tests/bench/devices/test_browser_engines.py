"""Browsers other than Chromium: how they are started, and the same vectors in all of them (slow, where installed)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import places
import psutil
import pytest
import tiny_models as tiny

from msdc.bench.devices.web import browser as engines
from msdc.bench.devices.web.browser import ENGINES, BrowserDevice, Engine, opened, shown
from msdc.bench.measure import BenchSettings
from msdc.errors import MsdcError

QUICK = BenchSettings(runs=5, warmup=0, lengths=(2, 8))


def installed(name: str) -> Engine:
    try:
        ENGINES[name].program()
    except MsdcError as error:
        pytest.skip(str(error))
    return ENGINES[name]


def bundle():
    return tiny.bundle("fp32", ("onnx",))


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_each_is_started_with_its_own_profile_on_the_address(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "program", lambda self: "/usr/bin/it")
    words = engine.command(tmp_path, "http://127.0.0.1:1/secret/")
    assert words[0] == "/usr/bin/it" and words[-1] == "http://127.0.0.1:1/secret/"
    assert any(str(tmp_path) in word for word in words) or engine.display
    assert ("--no-sandbox" in words) == (engine.name == "chromium" and os.geteuid() == 0)


@pytest.mark.parametrize(("name", "present", "package"), [
    ("firefox", (), "apt-get install firefox-esr"), ("webkit", ("Xvfb",), "apt-get install libwebkit2gtk-4.1-0"),
    ("webkit", (), "apt-get install xvfb"),
])  # fmt: skip
def test_what_is_not_installed_is_one_line_with_its_package(name, present, package, monkeypatch):
    monkeypatch.setattr(engines, "find", lambda program: "/usr/bin/it" if program in present else None)
    monkeypatch.setattr(engines.glob, "glob", lambda pattern: [])
    with pytest.raises(MsdcError, match=package) as stop:
        BrowserDevice(name).run(bundle(), QUICK)
    assert "\n" not in str(stop.value)


def test_a_display_that_does_not_start_is_one_line(tmp_path, monkeypatch):
    server = tmp_path / "Xvfb"
    server.write_text("#!/bin/sh\nexit 1\n")
    server.chmod(0o755)
    monkeypatch.setattr(engines, "find", lambda program: str(server))
    monkeypatch.setattr(Engine, "program", lambda self: "/usr/bin/it")
    with pytest.raises(MsdcError, match="Xvfb, the display of WebKitGTK, does not start"), shown(ENGINES["webkit"]):
        pytest.fail("there is no display")


@pytest.mark.slow
def test_vectors_are_the_same_bytes_in_all_browsers(onnxruntime_web):
    hashes = {}
    for name in ENGINES:
        try:
            ENGINES[name].program()
        except MsdcError:
            continue
        (run,) = BrowserDevice(name).run(bundle(), QUICK)
        assert run.parity is not None and run.parity.ids_equal and run.parity.min_cosine > 0.999
        assert run.browser is not None and run.browser.engine == name and run.browser.version
        assert ENGINES[name].title in run.device.name
        hashes[name] = run.browser.golden_sha256
    if len(hashes) < 2:
        pytest.skip(f"installed: {', '.join(hashes) or 'none'}; apt-get install firefox-esr libwebkit2gtk-4.1-0 xvfb")
    assert len(set(hashes.values())) == 1, hashes


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in ENGINES if name != "chromium"])
def test_nothing_of_it_is_left_running(name, onnxruntime_web):
    with opened(installed(name), "about:blank") as browser:
        mine = psutil.Process(browser.pid)
        while len(children := mine.children(recursive=True)) < 2:
            assert browser.poll() is None, "it ended by itself"
            time.sleep(0.1)
    gone, alive = psutil.wait_procs([mine, *children], timeout=60)
    assert [process.name() for process in alive] == [] and len(gone) >= 3


SANDBOXED = """
import json, sys
from pathlib import Path
import psutil
from msdc.bench.devices.web.browser import ENGINES, opened
from msdc.bench.devices.web.server import AnswerServer
page = b'<script type=module src=page.js></script>'
script = b'fetch("answer", {method: "POST", body: JSON.stringify({sum: 1 + 1})})'
engine = ENGINES["chromium"]
files = {"index.html": page, "page.js": script}
with AnswerServer(files, lambda raw, _: (raw, {}), 1000) as server, opened(engine, server.address) as browser:
    assert server.settled.wait(300), "the page gave no answer"
    filters = []
    for child in psutil.Process(browser.pid).children(recursive=True):
        if any(engine.renderer in word for word in child.cmdline()):
            lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
            filters += [int(line.split()[1]) for line in lines if line.startswith("Seccomp:")]
    words = psutil.Process(browser.pid).cmdline()
print(json.dumps({"answer": server.answers[0], "filters": filters, "sandbox": "--no-sandbox" not in words}))
"""


@pytest.mark.slow
def test_for_another_user_than_root_chromium_keeps_its_sandbox(tmp_path):
    installed("chromium")
    command = [sys.executable, "-c", SANDBOXED]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "HOME": str(tmp_path), "PYTHONPATH": str(places.ROOT),
                   "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("setpriv, which runs a program as another user, is not installed")
        for folder in (tmp_path, *tmp_path.parents[:2]):
            folder.chmod(0o777)
        command = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *command]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    if "No usable sandbox" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"this machine allows no sandbox: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr[-1500:]
    found = json.loads(done.stdout)
    assert found["answer"] == {"sum": 2} and found["sandbox"]
    # 2: system calls are filtered.
    assert found["filters"] and set(found["filters"]) == {2}
