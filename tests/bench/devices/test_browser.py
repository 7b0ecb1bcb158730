"""The browser device: its server against wrong requests, its page in a real Chromium, ends that are none."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import prompt_bundles
import psutil
import pytest
import tiny_models as tiny

from msdc.bench.devices.host import PythonDevice
from msdc.bench.devices.web.browser import ENGINES, PAGE, BrowserDevice, opened, wait_for_answer
from msdc.bench.devices.web.measurement import Measurement, page_vectors
from msdc.bench.devices.web.server import AnswerServer
from msdc.bench.measure import BenchSettings
from msdc.bench.result import BenchFile, parse_result
from msdc.errors import InputError, MsdcError
from msdc.export.golden import encode_vectors

CHROMIUM = ENGINES["chromium"]
ENDLESS = BenchSettings(runs=100_000, warmup=10_000, lengths=(8,))


def bundle() -> Path:
    return tiny.bundle("fp32", ("onnx",))


# The server, as the page of this machine uses it; attacks on it are in test_hostile_link.py


@pytest.fixture
def server():
    with AnswerServer({"index.html": b"<p>"}, lambda raw, _: (raw, {}), 100) as opened_server:
        yield opened_server


def post(server: AnswerServer, name: str, body: bytes, **headers: str) -> int:
    parts = urlsplit(server.address)
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    connection.request("POST", parts.path + name, body, headers)
    return connection.getresponse().status


def test_one_answer_is_taken_and_nobody_joins(server):
    assert post(server, "join", b"{}") == 404
    assert post(server, "alive", b"warm") == 204 and server.seats[0].phase == "warm"
    assert post(server, "answer", b'{"a": 1}') == 200
    assert post(server, "answer", b'{"a": 2}') == 409
    assert server.answers == [{"a": 1}] and server.settled.is_set()


def test_a_bad_answer_is_one_line(server):
    assert post(server, "answer", b'{"error": "two\\nlines"}') == 400
    assert server.settled.is_set() and server.seats[0].state == "failed" and "two lines" in server.seats[0].line
    assert post(server, "answer", b"", **{"Content-Length": "-5"}) == 411


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
        BrowserDevice("netscape").run(bundle(), BenchSettings(lengths=(8,)))


def test_tiny_bundle_in_chromium(chromium):
    settings = BenchSettings(runs=5, warmup=0, lengths=(2, 8), tasks=("graded-pairs",))
    (run,) = BrowserDevice().run(bundle(), settings)
    assert run.device.kind == run.harness == "browser" and "Chromium" in run.device.name
    assert run.parity is not None and run.parity.ids_equal and run.parity.min_cosine > 0.999
    assert [len(timing.samples) for timing in run.latency] == [5, 5]
    facts = run.browser
    assert facts is not None and facts.engine == "chromium" and facts.secure_context and facts.worker
    assert facts.isolated and facts.heap_warm_mib >= facts.heap_loaded_mib > 1 and set(facts.cold_ms) == {"2", "8"}
    # The same program on the same texts: ranks differ only where two cosines are equal but for rounding.
    (native,) = PythonDevice().run(bundle(), settings)
    assert run.accuracy[0].spearman == pytest.approx(native.accuracy[0].spearman, abs=0.5)
    file = BenchFile(runs=(run,))
    assert parse_result(json.loads(file.model_dump_json()), "here") == file


@pytest.mark.slow
def test_prompts_that_are_not_pooled(chromium):
    _, bundle = prompt_bundles.kind_bundle(prompt_bundles.UNPOOLED, "onnx")
    settings = BenchSettings(runs=3, warmup=0, lengths=(8,), tasks=("graded-pairs",))
    (run,), (native,) = BrowserDevice().run(bundle, settings), PythonDevice().run(bundle, settings)
    assert run.parity is not None and run.parity.min_cosine > 0.9999
    assert run.accuracy[0].spearman == pytest.approx(native.accuracy[0].spearman, abs=0.5)


def endless_run(during, silence_s=60.0) -> str:
    """The line that an endless run ends in when `during(browser)` is called while it measures."""
    files = Measurement(bundle(), ENDLESS, "browser").files(PAGE)
    with (
        AnswerServer(files, lambda raw, _: (raw, {}), 1000, silence_s=silence_s) as server,
        opened(CHROMIUM, server.address) as browser,
    ):

        def act() -> None:
            while server.seats[0].phase != "warm" and browser.poll() is None:
                threading.Event().wait(0.1)
            during(browser)

        threading.Thread(target=act, daemon=True).start()
        with pytest.raises(MsdcError) as stop:
            wait_for_answer(CHROMIUM, browser, server, 600)
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
