"""The browser device: its server, its page in a real Chromium, ends that are none, and the other engines."""

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import folder_kinds
import numpy as np
import places
import psutil
import pytest
import tiny_models as tiny

from msdc.bench.devices.host import PythonDevice
from msdc.bench.devices.web import browser as engines
from msdc.bench.devices.web.browser import ENGINES, PAGE, BrowserDevice, Engine, opened, shown, wait_for_answer
from msdc.bench.devices.web.measurement import Measurement, page_vectors
from msdc.bench.devices.web.server import AnswerServer
from msdc.bench.options import BenchSettings
from msdc.bench.result import BenchFile, parse_result
from msdc.errors import InputError, MsdcError
from msdc.export.golden import encode_vectors

CHROMIUM = ENGINES["chromium"]
ENDLESS = BenchSettings(tasks=(), runs=100_000, warmup=10_000, lengths=(8,))


def bundle() -> Path:
    return tiny.bundle("fp32", "onnx")


# The server, as the page of this machine uses it; attacks on it are in test_hostile_link.py


@pytest.fixture
def server():
    with AnswerServer({"index.html": b"<p>"}, lambda raw: (raw, {}), 100) as opened_server:
        yield opened_server


def post(server: AnswerServer, name: str, body: bytes, **headers: str) -> int:
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    connection.request("POST", parts.path + name, body, headers)
    return connection.getresponse().status


def test_one_answer_is_taken_of_the_page_that_started_last(server):
    assert post(server, "0/alive", b"") == 204
    for number in (1, 2):
        assert post(server, "start", b"{}") == 200
        assert post(server, f"{number}/alive", b"warm") == 204
        assert server.page.phase == "warm"
    assert post(server, "1/alive", b"warm") == post(server, "1/answer", b'{"a": 1}') == 410
    assert not server.settled.is_set()
    assert post(server, "2/answer", b'{"a": 2}') == 200
    assert server.settled.wait(20)
    assert post(server, "2/answer", b'{"a": 3}') == post(server, "start", b"{}") == 409
    assert server.answer == {"a": 2}
    # On a slow phone a sign of life is under way while the reply is read: it must not say that nobody waits.
    assert post(server, "2/alive", b"done") == 204


def test_a_bad_answer_is_one_line(server):
    assert post(server, "0/answer", b"", **{"Content-Length": "-5"}) == 411
    assert post(server, "0/answer", b'{"error": "two\\nlines"}') == 400
    assert server.settled.wait(20)
    assert server.page.state == "failed"
    assert "two lines" in server.page.line


# The answer


def test_vectors_that_are_none_are_one_line():
    good = np.ones((2, 3), dtype=np.float32)
    assert np.array_equal(page_vectors(encode_vectors(good), 2, 3), good)
    for text in (encode_vectors(good[:1]), encode_vectors(good * np.nan), encode_vectors(good * 3e38), "no base64!"):
        with pytest.raises(MsdcError, match="the page's answer: vectors"):
            page_vectors(text, 2, 3)


# The browser


def test_an_unknown_browser_is_refused():
    with pytest.raises(InputError, match="known: chromium"):
        BrowserDevice("netscape").run(bundle(), BenchSettings(tasks=(), lengths=(8,)))


def test_tiny_bundle_in_chromium(chromium):
    settings = BenchSettings(runs=5, warmup=0, lengths=(2, 8), tasks=("graded-pairs",))
    (run,) = BrowserDevice().run(bundle(), settings)
    assert run.device.kind == run.harness == "browser"
    assert "Chromium" in run.device.name
    assert run.parity is not None
    assert run.parity.ids_equal
    assert run.parity.min_cosine > 0.999
    assert [len(timing.samples) for timing in run.latency] == [5, 5]
    facts = run.browser
    assert facts is not None
    assert facts.engine == "chromium"
    assert facts.secure_context
    assert facts.worker
    assert facts.isolated
    assert facts.heap_warm_mib >= facts.heap_loaded_mib > 1
    assert set(facts.cold_ms) == {"2", "8"}
    # The same program on the same texts: ranks differ only where two cosines are equal but for rounding.
    (native,) = PythonDevice().run(bundle(), settings)
    assert run.accuracy[0].spearman == pytest.approx(native.accuracy[0].spearman, abs=0.5)
    file = BenchFile(runs=(run,))
    assert parse_result(json.loads(file.model_dump_json()), "here") == file


@pytest.mark.slow
def test_prompts_that_are_not_pooled(chromium):
    _, bundle = folder_kinds.kind_bundle(folder_kinds.UNPOOLED, "onnx")
    settings = BenchSettings(runs=3, warmup=0, lengths=(8,), tasks=("graded-pairs",))
    (run,), (native,) = BrowserDevice().run(bundle, settings), PythonDevice().run(bundle, settings)
    assert run.parity is not None
    assert run.parity.min_cosine > 0.9999
    assert run.accuracy[0].spearman == pytest.approx(native.accuracy[0].spearman, abs=0.5)


def endless_run(during, silence_s=60.0) -> str:
    """The line that an endless run ends in when `during(browser)` is called while it measures."""
    files = Measurement(bundle(), ENDLESS, "browser").files(PAGE)
    with (
        AnswerServer(files, lambda raw: (raw, {}), 1000) as server,
        opened(CHROMIUM, server.address) as browser,
    ):

        def act() -> None:
            while server.page.phase != "warm" and browser.poll() is None:
                threading.Event().wait(0.1)
            during(browser)

        threading.Thread(target=act, daemon=True).start()
        with pytest.raises(MsdcError) as stop:
            wait_for_answer(CHROMIUM, browser, server, 600, silence_s)
    assert not psutil.pid_exists(browser.pid) or psutil.Process(browser.pid).status() == psutil.STATUS_ZOMBIE
    return str(stop.value)


def kill_renderers(browser) -> None:
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(browser.pid).children(recursive=True):
            if any(CHROMIUM.renderer in word for word in child.cmdline()):
                child.kill()


def test_a_browser_that_is_killed_ends_the_run(chromium):
    assert "Chromium ended with code -9" in endless_run(lambda browser: browser.kill())


def test_a_tab_that_is_killed_ends_the_run(chromium):
    line = endless_run(kill_renderers, silence_s=3)
    assert "fell silent" in line


@pytest.mark.slow
def test_time_limit_ends_the_run(chromium):
    with pytest.raises(MsdcError, match="onnx in Chromium: no result after 10 s"):
        BrowserDevice().run(bundle(), ENDLESS.model_copy(update={"timeout_s": 10}))


QUICK = BenchSettings(tasks=(), runs=5, warmup=0, lengths=(2, 8))


def installed(name: str) -> Engine:
    try:
        ENGINES[name].program()
    except MsdcError as error:
        pytest.skip(str(error))
    return ENGINES[name]


@pytest.mark.parametrize("engine", ENGINES.values(), ids=ENGINES)
def test_each_is_started_with_its_own_profile_on_the_address(engine, tmp_path, monkeypatch):
    monkeypatch.setattr(Engine, "program", lambda self: "/usr/bin/it")
    words = engine.command(tmp_path, "http://127.0.0.1:1/secret/")
    assert words[0] == "/usr/bin/it"
    assert words[-1] == "http://127.0.0.1:1/secret/"
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
        assert run.parity is not None
        assert run.parity.ids_equal
        assert run.parity.min_cosine > 0.999
        assert run.browser is not None
        assert run.browser.engine == name
        assert run.browser.version
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
    assert [process.name() for process in alive] == []
    assert len(gone) >= 3


SANDBOXED = """
import json, sys
from pathlib import Path
import psutil
from msdc.bench.devices.web.browser import ENGINES, opened
from msdc.bench.devices.web.server import AnswerServer
page = b'<script type=module src=page.js></script>'
script = b'fetch("0/answer", {method: "POST", body: JSON.stringify({sum: 1 + 1})})'
engine = ENGINES["chromium"]
files = {"index.html": page, "page.js": script}
with AnswerServer(files, lambda raw: (raw, {}), 1000) as server, opened(engine, server.address) as browser:
    assert server.settled.wait(300), "the page gave no answer"
    filters = []
    for child in psutil.Process(browser.pid).children(recursive=True):
        if any(engine.renderer in word for word in child.cmdline()):
            lines = Path(f"/proc/{child.pid}/status").read_text().splitlines()
            filters += [int(line.split()[1]) for line in lines if line.startswith("Seccomp:")]
    words = psutil.Process(browser.pid).cmdline()
print(json.dumps({"answer": server.answer, "filters": filters, "sandbox": "--no-sandbox" not in words}))
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
    options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True, "timeout": 600}
    done = subprocess.run(command, **options, check=False)
    if "No usable sandbox" in done.stderr or "Operation not permitted" in done.stderr:
        pytest.skip(f"this machine allows no sandbox: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr[-1500:]
    observed = json.loads(done.stdout)
    assert observed["answer"] == {"sum": 2}
    assert observed["sandbox"]
    # 2: system calls are filtered.
    assert observed["filters"]
    assert set(observed["filters"]) == {2}
