"""Attacks on a link: its server holds against wrong requests, its answers against what no page would send."""

import contextlib
import copy
import json
import os
import random
import socket
import sys
from typing import ClassVar
from urllib.parse import urlsplit

import numpy as np
import pytest
from browser import CHROMIUM, dump_dom
from link_phone import SETTINGS, WAIT_S, Client, Link, link_server, phone_answer, tiny_bundle

from msdc.bench.devices.web.link import browser_of, device_of
from msdc.bench.devices.web.measurement import Measurement, page_vectors
from msdc.bench.devices.web.server import MAX_STRANGERS
from msdc.bench.measure import compare_golden
from msdc.bench.report.page import build_report, write_report
from msdc.bench.result import BenchFile
from msdc.errors import MsdcError, printable
from msdc.export.golden import encode_vectors, read_golden
from msdc.export.mobile.web.wasm import TOKENIZER, core_wasm

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.fixture
def server():
    with link_server() as opened:
        yield opened


def test_only_listed_files_behind_the_secret(server, tmp_path):
    client, secret = Client(server.address), urlsplit(server.address).path
    assert len(server.token) >= 22  # 128 bits in base64
    status, body, headers = client.ask("GET", "")
    assert (status, body) == (200, b"<p>")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert "Python" not in headers.get("Server", "")
    number = client.start()
    for path in ("/", "/favicon.ico", "/wrong-token/", "//", "/%00/", f"{secret}../", f"{secret}/etc/passwd",
                 f"{secret}..%2f..%2fetc%2fpasswd", f"{secret}{__file__}", f"{secret}{number}/answer"):  # fmt: skip
        assert client.ask("GET", path)[0] == 404, path
    for path in ("/wrong-token/start", f"/{number}/answer", f"{secret}{number}/other", f"{secret}index.html"):
        assert client.ask("POST", path, b"{}")[0] == 404, path
    for other in (number - 1, number + 1, f"0{number}", ""):
        assert client.ask("POST", f"{secret}{other}/answer", b"{}")[0] == 410, other
    assert server.answer is None
    assert server.page.state == "measuring"


HEADERS_OF_A_REQUEST = {  # name -> (lines, bytes of each, status)
    "as a browser sends them": (20, 60, 404),
    "one without an end": (1, 60_000, 431),
    "many": (90, 500, 431),
    "more than http.server takes": (150, 20, 431),
}


@pytest.mark.parametrize("kind", HEADERS_OF_A_REQUEST)
def test_headers_of_strangers_are_bounded(server, kind):
    lines, size, status = HEADERS_OF_A_REQUEST[kind]
    with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as connection:
        head = b"GET / HTTP/1.1\r\nHost: " + server.host.encode() + b"\r\n"
        connection.sendall(head + (b"X: " + b"a" * size + b"\r\n") * lines + b"\r\n")
        assert int(connection.recv(1024).split()[1]) == status
    assert Client(server.address).ask("GET", "")[0] == 200


@pytest.mark.parametrize(
    "body, status, word",
    [
        (b'{"a": "' + b"x" * 101 + b'"}', 413, "more than 100"),
        (b'{"a": NaN}', 400, "not JSON"),
        (b'{"a": 1e999}', 400, "not JSON"),
        (b"\xff\xfe", 400, "not JSON"),
        (b'{"name": "\\ud83d"}', 400, "not JSON"),
        (b"[1]", 400, "not an object"),
        (b'{"error": "two\\nlines"}', 400, "two lines"),
        (b'{"a": 1}', 400, "refused {'a': 1}"),
    ],
)
def test_bad_answers_are_one_line_and_final(server, body, status, word):
    client = Client(server.address)
    number = client.start("Ada")
    assert client.ask("POST", f"{number}/answer", body)[0] == status
    assert client.post(f"{number}/answer", {"a": 1})[0] == 409
    assert client.post("start", {})[0] == 409
    assert server.settled.is_set()
    assert (server.page.title, server.page.state) == ("Ada", "failed")
    assert word in server.page.line
    assert "\n" not in server.page.line


def test_an_answer_that_breaks_its_reader_is_one_line():
    def broken(answer):
        raise RuntimeError("secret detail")

    with link_server(accept=broken) as server:
        client = Client(server.address)
        status, reply = client.post(f"{client.start()}/answer", {})
        assert status == 400
        assert "secret" not in reply["error"]
        assert server.page.line == "the page's answer: RuntimeError"


def test_names_and_signs_of_life_are_bounded(server):
    client = Client(server.address)
    number = client.start("x" * 500)
    assert len(server.page.title) <= 60
    assert client.post("start", {"name": "x" * 2000})[0] == 413
    for raw in (b"", b"\x1b[2J 7777 \xff", b"y" * 1000):
        assert client.ask("POST", f"{number}/alive", raw)[0] == 204
        assert "\x1b" not in server.page.phase
        assert len(server.page.phase) <= 60


def spoiled_vectors() -> str:
    vectors = np.asarray(read_golden(tiny_bundle())["vectors"]["onnx"]).copy()
    vectors[3] = np.nan
    return encode_vectors(vectors)


def timed(**changes) -> dict:
    return {"samples": [1.0] * 3, "warmup": 8, "settled": True, "cold": [3.0], "calls_per_sample": 1} | changes


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"golden__vectors": spoiled_vectors}, "not finite|NaN"),
        ({"golden__vectors": "no base64!"}, "vectors"),
        ({"golden__ids": [[1]]}, "golden"),
        ({"vectors": "AAAA"}, "vectors"),
        ({"page__hidden": True}, "hidden"),
        ({"page__agent": "x" * 2000}, "page.agent"),
        ({"load_ms": -1.0}, "load_ms"),
        ({"first_ms": float("nan")}, "first_ms"),
        ({"threads": 0}, "threads"),
        ({"tokenize": timed(samples=[1.0])}, "another number of samples"),
        ({"tokenize": timed(samples=[1.0, 1.0, -1.0])}, "tokenize.samples"),
        ({"latency": [timed(length=8), timed(length=9)]}, "other lengths"),
        ({"name": "x" * 2000}, "name"),
        ({"surprise": 1}, "surprise"),
        ({"battery_after": {"percent": 101, "charging": True}}, "battery_after.percent"),
    ],
)
def test_answers_that_do_not_fit_are_one_line(changes, word):
    fields = {key: value() if callable(value) else value for key, value in changes.items()}
    measurement = Measurement(tiny_bundle(), SETTINGS, "link")
    with pytest.raises(MsdcError, match=word) as stop:
        answer = measurement.read(phone_answer(tiny_bundle(), SETTINGS, **fields))
        measurement.run(answer, device_of(answer), "chromium")
    assert "\n" not in str(stop.value)
    assert stop.value.exit_code == 1


# Values of every JSON type, at and beyond every bound.
ODD = (
    None, True, -1, 0, 2**63, 1e308, 0.5, "", "x" * 3000, "\x00\x1b[2J", [], {}, [[]], {"a": {"b": []}}, "AAAA" * 100,
)  # fmt: skip


def places(value, path=()):
    """Paths of all parts of a JSON value; of long lists the first part."""
    yield path
    if isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def test_any_damage_to_an_answer_is_a_result_or_one_line(onnxruntime_web):
    """Every part of an answer replaced by odd values: a run that can be written, or one line, and the server lives."""
    settings = SETTINGS.model_copy(update={"tasks": ("graded-pairs",)})
    measurement = Measurement(tiny_bundle(), settings, "link")
    zeros = encode_vectors(np.zeros((len(measurement.texts), measurement.manifest.width), dtype=np.float32))
    good = phone_answer(tiny_bundle(), settings, vectors=zeros)
    tries = 0
    for path in places(good):
        for odd in ODD:
            if not path or path == ("vectors",):
                continue
            changed = copy.deepcopy(good)
            parent = changed
            for part in path[:-1]:
                parent = parent[part]
            parent[path[-1]] = odd
            tries += 1
            try:
                answer = measurement.read(changed)
                device_of(answer)
                vectors_ND = page_vectors(answer.golden.vectors, len(measurement.golden["texts"]), 32)
                compare_golden(measurement.golden, "onnx", answer.golden.ids, vectors_ND)
                accepted = answer
            except MsdcError as error:
                assert "\n" not in printable(str(error))
                assert len(str(error)) < 1000
                continue
            json.dumps(accepted.model_dump(mode="json"), allow_nan=False)
    # Vectors that are all alike have no ranks.
    answer = measurement.read(good)
    with pytest.raises(MsdcError, match="same cosine"):
        measurement.run(answer, device_of(answer), *browser_of(answer)[:2])
    assert tries > 300


def test_noise_on_the_wire_does_not_stop_the_server(server):
    """Requests that are none: wrong lines, endless headers, lengths that lie, connections that stay open."""
    secret, tries = urlsplit(server.address).path, random.Random(3)
    noise = [
        b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"A" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"DELETE / HTTP/1.1\r\n\r\n",
        f"POST {secret}start HTTP/1.1\r\nContent-Length: 99\r\n\r\nx".encode(),
        f"POST {secret}start HTTP/1.1\r\nContent-Length: {'9' * 30}\r\n\r\n".encode(),
        f"POST {secret}start HTTP/1.1\r\nContent-Length: \u0663\r\n\r\n".encode(),
        f"POST {secret}start HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n".encode(),
        *(tries.randbytes(tries.randrange(1, 300)) for _ in range(20)),
    ]  # fmt: skip
    held = []
    for part in noise:
        held.append(socket.create_connection(("127.0.0.1", server.port)))
        with contextlib.suppress(OSError):
            held[-1].sendall(part)
    assert Client(server.address).ask("GET", "")[0] == 200
    assert server.page.number == 0


def loopback(number: int) -> str:
    return f"127.0.1.{number + 1}"


@pytest.mark.parametrize("whose", [lambda number: "127.0.0.1", loopback], ids=["one address", "many addresses"])
def test_slow_connections_without_the_secret_keep_no_phone_out(server, whose):
    slow = []
    for number in range(MAX_STRANGERS + 6):
        slow.append(socket.create_connection(("127.0.0.1", server.port), source_address=(whose(number), 0)))
        slow[-1].sendall(b"GET /")
    for _ in range(3):
        assert Client(server.address).ask("GET", "")[0] == 200
    for connection in slow:
        connection.close()


@pytest.mark.parametrize(
    "headers, status",
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": ""}, 421),
        ({"Origin": "http://evil.example"}, 421),
        ({"Origin": "http://127.0.0.1"}, 421),
        ({"Origin": "null"}, 200),
        ({}, 200),
    ],
)
def test_requests_for_another_host_or_of_another_page_are_refused(server, headers, status):
    """A page elsewhere whose name was led here (DNS rebinding) has the link, and learns nothing and leaves nothing."""
    client = Client(server.address)
    assert client.ask("GET", "", **headers)[0] == status
    assert client.ask("POST", "start", b"{}", **headers)[0] == status
    assert server.page.number == (status == 200)
    assert client.ask("GET", "", Origin=server.origin)[0] == 200


def test_a_connection_must_show_the_secret_in_time():
    """Silent, slow and wrong ones are closed; one that has shown it may be slow."""
    with link_server(token_s=0.3) as server:
        client = Client(server.address)
        number = client.start()
        with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as phone:
            head = f"POST {urlsplit(server.address).path}{number}/alive HTTP/1.1\r\nHost: {server.host}\r\n"
            phone.sendall(f"{head}Content-Length: 4\r\n\r\nwa".encode())
            for first in (b"", b"GET /", f"GET /wrong/ HTTP/1.1\r\nHost: {server.host}\r\n".encode()):
                with socket.create_connection(("127.0.0.1", server.port), timeout=WAIT_S) as stranger:
                    stranger.sendall(first)
                    with contextlib.suppress(ConnectionResetError):
                        while stranger.recv(1 << 16):
                            pass
            phone.sendall(b"rm")
            assert phone.recv(1 << 16).startswith(b"HTTP/1.0 204")
        assert server.page.phase == "warm"


class Opened:
    """Files that this process opens to write, and lines that it prints, while `names` is not None."""

    names: ClassVar[list[str] | None] = None

    @classmethod
    def hear(cls, event: str, arguments: tuple) -> None:
        if cls.names is None or event not in ("open", "os.mkdir", "os.rename"):
            return
        flags = arguments[2] if event == "open" and isinstance(arguments[2], int) else os.O_WRONLY
        # Python keeps what it compiles.
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) and "__pycache__" not in str(arguments[0]):
            cls.names.append(str(arguments[0]))


def test_nothing_is_written_and_nothing_logged(onnxruntime_web, capfd):
    """A run with right and wrong requests."""
    bundle = tiny_bundle()
    answer = phone_answer(bundle, SETTINGS)
    core_wasm(TOKENIZER)  # built once in a checkout
    sys.addaudithook(Opened.hear)  # stays, and does nothing after this test
    capfd.readouterr()
    Opened.names = []
    try:
        link = Link(bundle, SETTINGS)
        link.client.ask("GET", "")
        link.client.ask("GET", "/wrong/")
        link.client.ask("POST", "/wrong/", b"x" * 5000)
        link.client.post(f"{link.client.start('Ada')}/answer", answer)
        link.end()
        written = list(Opened.names)
    finally:
        Opened.names = None
    assert written == []
    opened, answered = capfd.readouterr().err.splitlines()
    assert opened == "Ada has started"
    assert answered == "Ada's phone, Chromium 140 has answered"


def test_a_name_with_a_script_does_not_run_in_the_report(onnxruntime_web, tmp_path):
    link = Link(tiny_bundle(), SETTINGS)
    answer = phone_answer(tiny_bundle(), SETTINGS, name=SCRIPT, page__agent=SCRIPT)
    assert link.client.post(f"{link.client.start(SCRIPT)}/answer", answer)[0] == 200
    (run,) = link.end()
    results = BenchFile(runs=(run,))
    for name in ("report.html", "report.md"):
        write_report(build_report(results), tmp_path / name, False)
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "<script>alert" not in text
        assert "<img" not in text
        assert "alert(1)" in text
    if CHROMIUM is not None:
        dom = dump_dom(tmp_path / "report.html")
        assert "<img" not in dom
        assert "<script" not in dom
