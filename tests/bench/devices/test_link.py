"""The link: address, certificate, QR code; its server against wrong requests; answers of phones, good and bad."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import http.client
import io
import json
import os
import random
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

import numpy as np
import pytest
import segno
import tiny_models as tiny
from browser import CHROMIUM, dump_dom
from link_phone import ANDROID, WAIT_S, Client, Link, phone_answer

from msdc.bench.devices.base import Incomplete
from msdc.bench.devices.browser.answer import read_answer
from msdc.bench.devices.browser.measurement import Measurement
from msdc.bench.devices.browser.server import MAX_CONNECTIONS
from msdc.bench.devices.link import address as link_address
from msdc.bench.devices.link.address import default_address, listening_address, qr_lines, self_signed, show
from msdc.bench.devices.link.answer import LinkAnswer, browser_of, device_of, plain
from msdc.bench.devices.link.device import LinkDevice
from msdc.bench.devices.link.server import SPARE_SEATS, LinkServer
from msdc.bench.devices.registry import open_devices
from msdc.bench.report.build import build_report
from msdc.bench.report.write import write_report
from msdc.bench.result import BenchFile, parse_result
from msdc.bench.run import bench
from msdc.bench.settings import BenchSettings
from msdc.cli import main
from msdc.errors import InputError, MsdcError, printable
from msdc.export.golden import encode_vectors, read_golden
from msdc.export.mobile.web.runtime import runtime_folder

SETTINGS = BenchSettings(runs=3, warmup=0, lengths=(8, 16), address="127.0.0.2", timeout_s=WAIT_S)
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def bundle():
    return tiny.bundle("fp32", ("onnx",))


@pytest.fixture(scope="module")
def runtime() -> None:
    """Skips where onnxruntime-web, which the page downloads, cannot be had."""
    try:
        runtime_folder()
    except MsdcError as error:
        pytest.skip(str(error))


# Address, certificate, QR code


@pytest.mark.parametrize(
    "text, expected",
    [
        ("192.168.1.5", ("192.168.1.5", 0)),
        ("192.168.1.5:8000", ("192.168.1.5", 8000)),
        ("::1", ("::1", 0)),
        ("[::1]:8000", ("::1", 8000)),
    ],
)
def test_addresses(text, expected):
    assert listening_address(text) == expected


@pytest.mark.parametrize(
    "text", ["phone.local", "1.2.3", "1.2.3.4:99999", "1.2.3.4:x", "0.0.0.0", "::", "224.0.0.1", ""]
)
def test_addresses_that_no_phone_can_open_are_refused(text):
    with pytest.raises(InputError, match="--address"):
        listening_address(text)


def test_an_address_of_another_machine_is_one_line(runtime):
    with pytest.raises(InputError, match=r"--address 192\.0\.2\.77: cannot listen there"):
        LinkDevice().run(bundle(), SETTINGS.model_copy(update={"address": "192.0.2.77"}))


def test_the_default_address_is_this_machines(monkeypatch):
    try:
        found = default_address()
    except InputError:
        pytest.skip("no default route here")
    with socket.socket(socket.AF_INET6 if ":" in found else socket.AF_INET) as listening:
        listening.bind((found, 0))
    monkeypatch.setattr(link_address, "ELSEWHERE", ())
    with pytest.raises(InputError, match="no default route"):
        default_address()


def test_qr_code_holds_the_link():
    link = "http://192.168.178.100:43210/0123456789abcdefABCDEF/"
    lines = qr_lines(link)
    light = {"█": (1, 1), "▀": (1, 0), "▄": (0, 1), " ": (0, 0)}
    rows = []
    for line in lines:
        assert line.startswith(link_address.WHITE_ON_BLACK) and line.endswith(link_address.PLAIN)
        pairs = [light[c] for c in line[len(link_address.WHITE_ON_BLACK) : -len(link_address.PLAIN)]]
        rows += [[pair[0] for pair in pairs], [pair[1] for pair in pairs]]
    code = segno.make(link, micro=False, error="l")
    drawn = [[1 - dark for dark in row] for row in code.matrix_iter(border=4)]
    assert rows[: len(drawn)] == drawn and all(all(row) for row in rows[len(drawn) :])


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_shown(capsys):
    terminal = _Terminal()
    show("http://127.0.0.1:81/secret/", 81, 3, 900, "AA:BB", terminal)
    told = capsys.readouterr().err
    for text in ("3 phones, within 15 min: http://127.0.0.1:81/secret/", "adb reverse tcp:81 tcp:81", "AA:BB"):
        assert text in told
    assert "█" in terminal.getvalue()
    plain_stream = io.StringIO()
    show("http://192.168.1.5:81/secret/", 81, 1, 900, None, plain_stream)
    told = capsys.readouterr().err
    assert plain_stream.getvalue() == "" and "adb" not in told and "certificate" not in told


def test_tls_is_served_and_a_silent_client_holds_up_nobody():
    context, fingerprint = self_signed("127.0.0.2")
    with link_server(host="127.0.0.2", tls=context) as server, socket.create_connection(("127.0.0.2", server.port)):
        assert server.address.startswith("https://127.0.0.2:")
        assert Client(server.address).ask("GET", "")[:2] == (200, b"<p>")
        pem = ssl.get_server_certificate(("127.0.0.2", server.port), timeout=WAIT_S)
        der = ssl.PEM_cert_to_DER_cert(pem)
        assert hashlib.sha256(der).hexdigest() == fingerprint.replace(":", "").lower()
        # The certificate is for this address and no other.
        trusting = ssl.create_default_context(cadata=pem)
        with socket.create_connection(("127.0.0.2", server.port)) as raw:
            trusting.wrap_socket(raw, server_hostname="127.0.0.2").close()
        with socket.create_connection(("127.0.0.2", server.port)) as raw, pytest.raises(ssl.SSLCertVerificationError):
            trusting.wrap_socket(raw, server_hostname="127.0.0.3")


def test_tls_without_cryptography_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(MsdcError, match="pip install cryptography"):
        self_signed("127.0.0.1")


# The server


def link_server(expect=1, max_answer=100, silence_s=WAIT_S, accept=None, host="127.0.0.1", tls=None):
    def take(answer, name):
        raise MsdcError(f"refused {answer} of {name}")

    return LinkServer(
        {"index.html": b"<p>", "about.json": b"{}"}, host, 0, tls, expect=expect, max_answer=max_answer,
        silence_s=silence_s, accept=accept or take, tell=lambda line: None,
    )  # fmt: skip


@pytest.fixture
def server():
    with link_server() as opened:
        yield opened


def test_only_listed_files_behind_the_secret(server, tmp_path):
    client, secret = Client(server.address), urlsplit(server.address).path
    assert len(server.token) >= 22  # 128 bits in base64
    status, body, headers = client.ask("GET", "")
    assert (status, body) == (200, b"<p>") and "default-src 'none'" in headers["Content-Security-Policy"]
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin" and headers["Cache-Control"] == "no-store"
    assert headers["Cross-Origin-Embedder-Policy"] == "require-corp" and "Python" not in headers.get("Server", "")
    seat = client.join()
    for path in ("/", "/favicon.ico", "/wrong-token/", "//", "/%00/", f"{secret}../", f"{secret}/etc/passwd",
                 f"{secret}..%2f..%2fetc%2fpasswd", f"{secret}{__file__}", f"{secret}{seat}/answer"):  # fmt: skip
        assert client.ask("GET", path)[0] == 404, path
    for path in ("/wrong-token/join", f"/{seat}/answer", f"{secret}wrong-seat/answer", f"{secret}{seat}/other",
                 f"{secret}index.html"):  # fmt: skip
        assert client.ask("POST", path, b"{}")[0] == 404, path
    assert server.runs == [] and [s.state for s in server.seats] == ["measuring"]


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
        (b'{"a": 1}', 400, "refused {'a': 1} of Ada"),
    ],
)
def test_bad_answers_are_one_line_and_final(server, body, status, word):
    client = Client(server.address)
    seat = client.join("Ada")
    assert client.ask("POST", f"{seat}/answer", body)[0] == status
    assert client.post(f"{seat}/answer", {"a": 1})[0] == 409
    (line,) = server.wait(WAIT_S)
    assert line.startswith("Ada: ") and word in line and "\n" not in line


def test_an_answer_that_breaks_its_reader_is_one_line():
    def broken(answer, name):
        raise RuntimeError("secret detail")

    with link_server(accept=broken) as server:
        client = Client(server.address)
        status, reply = client.post(f"{client.join()}/answer", {})
        assert status == 400 and "secret" not in reply["error"]
        assert server.wait(WAIT_S) == ["phone 1: the page's answer: RuntimeError"]


def test_silent_phones_are_given_up_and_may_come_back():
    with link_server(silence_s=0.5) as server:
        client = Client(server.address)
        seat = client.join("Ada")
        assert client.ask("POST", f"{seat}/alive", b"warm")[0] == 204
        time.sleep(0.6)
        # The page was loaded again: the same seat, which speaks again.
        assert client.join("Ada", seat) == seat
        assert server.wait(WAIT_S) == [
            "Ada fell silent: its page was closed, its screen locked, or its network lost"
        ]  # fmt: skip
        assert client.ask("POST", f"{seat}/alive", b"warm")[0] == 410
        assert client.post("join", {"name": "late"})[0] == 409


def test_nobody_opens_the_link(server):
    assert server.wait(0.3) == ["no phone started within 0.3 s"]


def test_a_phone_that_still_measures_at_the_end_is_counted():
    with link_server(expect=2) as server:
        Client(server.address).join("Ada")
        assert server.wait(0.3) == ["0 of 2 devices answered in 0.3 s, 1 still measuring"]


def test_a_link_that_is_started_without_end_is_refused(server):
    client = Client(server.address)
    for _ in range(1 + SPARE_SEATS):
        client.join("x" * 500)
    status, reply = client.post("join", {})
    assert status == 409 and "too often" in reply["error"]
    assert all(len(seat.name) <= 60 for seat in server.seats)


# Answers


@pytest.mark.parametrize(
    "agent, engine, version, name, system",
    [
        (ANDROID, "chromium", "140", "Android device, Chromium 140", "Android"),
        ("Mozilla/5.0 (Android 15; Mobile; rv:140.0) Gecko/140.0 Firefox/140.0", "firefox", "140",
         "Android device, Firefox 140", "Android"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.1 "
         "Mobile/15E148 Safari/604.1", "webkit", "26.1", "iPhone, WebKit 26", "iOS"),
        ("Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/140.0 "
         "Mobile/15E148 Safari/604.1", "webkit", None, "iPhone, WebKit", "iOS"),
        ("Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 "
         "Safari/605.1.15", "webkit", "18.5", "Mac or iPad, WebKit 18", ""),
        ("curl/8.0", "unknown", None, "device", ""),
    ],
)  # fmt: skip
def test_what_a_browser_says_of_itself(agent, engine, version, name, system):
    answer = LinkAnswer.model_validate(phone_answer(bundle(), SETTINGS, name="", page__agent=agent))
    browser, _ = browser_of(answer)
    device = device_of(answer, "browser")
    assert (browser.engine, browser.version, device.name, device.os) == (engine, version, name, system)
    assert device.cores is None and device.memory_mib is None


def test_hints_say_more_than_the_agent():
    hints = {"model": "Pixel 9", "platform": "Android", "platform_version": "16.0.0", "version": "140.0.7339.51"}
    answer = LinkAnswer.model_validate(phone_answer(bundle(), SETTINGS, name=" \x1b[2J\n ", hints=hints))
    assert browser_of(answer)[0].version == "140.0.7339.51"
    device = device_of(answer, "browser")
    assert device.os == "Android 16.0.0" and device.name.endswith("[2J, Chromium 140") and "\x1b" not in device.name
    unnamed = answer.model_copy(update={"name": "  "})
    assert device_of(unnamed, "browser").name == "Pixel 9, Chromium 140"


def test_names_are_one_printable_line():
    assert plain("  a\n\tb\x1b[31m ‮c" + "x" * 100) == ("a b�[31m �c" + "x" * 100)[:60]


def test_a_phone_answers_and_its_record_is_complete(runtime):
    link = Link(bundle(), SETTINGS, name="suggested")
    about = json.loads(link.client.ask("GET", "about.json")[1])
    assert about["name"] == "suggested" and about["model"] == "tiny" and about["bytes"] > 10_000_000
    battery = {"percent": 80, "charging": True}
    answer = phone_answer(bundle(), SETTINGS, battery_before=battery, page__device_memory_gib=8)
    status, shown = link.client.post(f"{link.client.join('Ada')}/answer", answer)
    assert status == 200 and shown["agrees"] and [length for length, _ in shown["latency"]] == [8, 16]
    (run,) = link.end()
    assert run.device.kind == run.harness == "browser" and run.device.name == "Ada's phone, Chromium 140"
    facts = run.browser
    assert facts is not None and facts.engine == "chromium" and facts.version == "140"
    assert (facts.secure_context, facts.isolated, facts.worker) == (False, False, True)
    assert facts.claimed_cores == 8 and facts.claimed_memory_gib == 8 and facts.calls_per_sample == {"8": 1, "16": 1}
    assert run.threads == 1 and facts.clock_step_ms == 0.1 and facts.renderer_pss_mib is None
    assert run.state_before is not None and run.state_before.battery_percent == 80 and run.state_after is None
    assert run.parity is not None and run.parity.golden.ids_equal and run.parity.golden.min_cosine == 1
    assert parse_result(json.loads(BenchFile(runs=(run,)).model_dump_json()), "here").runs == (run,)
    with pytest.raises(OSError):
        link.client.ask("GET", "")


# Values of every JSON type, at and beyond every bound.
ODD = (
    None,
    True,
    -1,
    0,
    2**63,
    1e308,
    0.5,
    "",
    "x" * 3000,
    "\x00\x1b[2J",
    [],
    {},
    [[]],
    {"a": {"b": []}},
    "AAAA" * 100,
)


def places(value, path=()):
    """Paths of all parts of a JSON value; of long lists the first part."""
    yield path
    if isinstance(value, dict):
        for key, part in value.items():
            yield from places(part, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def test_any_damage_to_an_answer_is_a_result_or_one_line(runtime, record_property):
    """Every part of an answer replaced by odd values: a run that can be written, or one line, and the server lives."""
    settings = SETTINGS.model_copy(update={"tasks": ("graded-pairs",)})
    measurement = Measurement.of(bundle(), settings, "link")
    zeros = encode_vectors(np.zeros((len(measurement.texts), measurement.manifest.width), dtype=np.float32))
    good = phone_answer(bundle(), settings, vectors=zeros)
    tries = 0
    for path in places(good):
        for odd in ODD:
            if not path or path == ("vectors",):
                continue
            changed = copy.deepcopy(good)
            place = changed
            for part in path[:-1]:
                place = place[part]
            place[path[-1]] = odd
            tries += 1
            try:
                answer = read_answer(changed, settings.lengths, settings.runs, LinkAnswer)
                device_of(answer, "browser")
                measurement.parity(answer)
                found = answer
            except MsdcError as error:
                assert "\n" not in printable(str(error)) and len(str(error)) < 1000
                continue
            json.dumps(found.model_dump(mode="json"), allow_nan=False)
    # Vectors that are all alike have no ranks.
    answer = read_answer(good, settings.lengths, settings.runs, LinkAnswer)
    with pytest.raises(MsdcError, match="same cosine"):
        measurement.run(answer, device_of(answer, "browser"), browser_of(answer)[0])
    record_property("tries", tries)
    assert tries > 300


def test_noise_on_the_wire_does_not_stop_the_server(server, record_property):
    """Requests that are none: wrong lines, endless headers, lengths that lie, connections that stay open."""
    secret, tries = urlsplit(server.address).path, random.Random(3)
    noise = [
        b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"A" * 70_000,
        b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"DELETE / HTTP/1.1\r\n\r\n",
        f"POST {secret}join HTTP/1.1\r\nContent-Length: 99\r\n\r\nx".encode(),
        f"POST {secret}join HTTP/1.1\r\nContent-Length: {'9' * 30}\r\n\r\n".encode(),
        f"POST {secret}join HTTP/1.1\r\nContent-Length: \u0663\r\n\r\n".encode(),
        f"POST {secret}join HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n".encode(),
        *(tries.randbytes(tries.randrange(1, 300)) for _ in range(20)),
    ]  # fmt: skip
    held = []
    for part in noise:
        held.append(socket.create_connection(("127.0.0.1", server.port)))
        with contextlib.suppress(OSError):
            held[-1].sendall(part)
    assert Client(server.address).ask("GET", "")[0] == 200
    # More connections than the server takes: the surplus is closed, and room is made as others end.
    held += [socket.create_connection(("127.0.0.1", server.port)) for _ in range(MAX_CONNECTIONS)]
    for connection in held:
        connection.close()
    end = time.monotonic() + WAIT_S
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if Client(server.address).ask("GET", "")[0] == 200:
                break
        assert time.monotonic() < end
        time.sleep(0.1)
    assert server.seats == []
    record_property("tries", len(noise))


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


def test_nothing_is_written_and_nothing_logged(runtime, capfd):
    """A run with TLS, right and wrong requests: only the certificate's folder is written, and gone before the link."""
    place = bundle()
    answer = phone_answer(place, SETTINGS)
    sys.addaudithook(Opened.hear)  # stays, and does nothing after this test
    capfd.readouterr()
    Opened.names = []
    try:
        link = Link(place, SETTINGS.model_copy(update={"tls": True}))
        certificates = len(Opened.names)
        link.client.ask("GET", "")
        link.client.ask("GET", "/wrong/")
        link.client.ask("POST", "/wrong/", b"x" * 5000)
        link.client.post(f"{link.client.join('Ada')}/answer", answer)
        link.end()
        written = list(Opened.names)
    finally:
        Opened.names = None
    assert certificates and [name for name in written[:certificates] if "msdc-link-" not in name] == []
    assert written[certificates:] == [] and not list(Path(tempfile.gettempdir()).glob("msdc-link-*"))
    assert capfd.readouterr().err.splitlines() == [
        "Ada has opened the link and measures", "Ada's phone, Chromium 140 has answered"
    ]  # fmt: skip


def test_a_link_at_an_address_of_the_sixth_protocol():
    try:
        opened = link_server(host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with opened as server:
        assert server.address.startswith("http://[::1]:")
        assert Client(server.address).ask("GET", "")[:2] == (200, b"<p>")


@pytest.mark.slow
def test_a_phone_on_a_cable(phone, runtime):
    """`adb reverse` over a real adbd: the emulated phone fetches the page from its own localhost."""
    link = Link(bundle(), SETTINGS.model_copy(update={"address": "127.0.0.1"}))
    parts = urlsplit(link.link)
    adb = ["adb", "-s", phone.serial]
    subprocess.run([*adb, "reverse", f"tcp:{parts.port}", f"tcp:{parts.port}"], check=True, timeout=WAIT_S)
    fetch = f"busybox wget -q -O - {link.link}"
    done = subprocess.run([*adb, "shell", fetch], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "How fast is this device?" in done.stdout, done.stderr
    post = f"busybox wget -q -O - --post-data '{{}}' {link.link}join"
    done = subprocess.run([*adb, "shell", post], capture_output=True, text=True, timeout=WAIT_S, check=False)
    seat = json.loads(done.stdout)["seat"]
    assert link.client.post(f"{seat}/answer", phone_answer(bundle(), SETTINGS))[0] == 200
    assert len(link.end()) == 1


def test_several_phones_of_one_name(runtime):
    link = Link(bundle(), SETTINGS.model_copy(update={"expect": 2}))
    answer = phone_answer(bundle(), SETTINGS)
    seats = [link.client.join("Ada"), link.client.join("Ada"), link.client.join("late")]
    assert link.client.post(f"{seats[0]}/answer", answer)[0] == 200
    assert link.client.post(f"{seats[0]}/answer", answer)[0] == 409
    status, reply = link.client.post("join", {"name": "Ada", "seat": seats[0]})
    assert status == 409 and "received already" in reply["error"]
    assert link.client.post(f"{seats[1]}/answer", answer)[0] == 200
    assert [run.device.name for run in link.end()] == ["Ada's phone, Chromium 140", "Ada's phone, Chromium 140 (2)"]


def spoiled_vectors() -> str:
    vectors = np.asarray(read_golden(bundle())["vectors"]["onnx"]).copy()
    vectors[3] = np.nan
    return encode_vectors(vectors)


@pytest.mark.parametrize(
    "changes, word",
    [
        ({"golden__vectors": spoiled_vectors}, "not finite|NaN"),
        ({"golden__vectors": "no base64!"}, "vectors"),
        ({"golden__ids": [[1]]}, "golden"),
        ({"vectors": "AAAA"}, "vectors"),
        ({"page__hidden": True}, "hidden"),
        ({"load_ms": -1.0}, "load_ms"),
        ({"name": "x" * 2000}, "name"),
        ({"surprise": 1}, "surprise"),
        ({"battery_after": {"percent": 101, "charging": True}}, "battery_after.percent"),
    ],
)
def test_answers_that_do_not_fit_are_one_line(runtime, changes, word):
    found = {key: value() if callable(value) else value for key, value in changes.items()}
    link = Link(bundle(), SETTINGS)
    status, reply = link.client.post(f"{link.client.join('Ada')}/answer", phone_answer(bundle(), SETTINGS, **found))
    assert status == 400 and reply["error"]
    with pytest.raises(MsdcError, match=f"onnx by link: Ada: .*({word})") as stop:
        link.end()
    assert "\n" not in str(stop.value) and stop.value.exit_code == 1


def test_results_of_other_phones_are_kept(runtime):
    link = Link(bundle(), SETTINGS.model_copy(update={"expect": 2}))
    assert link.client.post(f"{link.client.join('Ada')}/answer", phone_answer(bundle(), SETTINGS))[0] == 200
    assert link.client.post(f"{link.client.join('Bob')}/answer", {"error": "out of memory"})[0] == 400
    with pytest.raises(Incomplete, match="Bob: out of memory") as stop:
        link.end()
    assert [run.device.name for run in stop.value.runs] == ["Ada's phone, Chromium 140"]


@pytest.mark.parametrize(
    "devices, expect, good, kept, line",
    [
        ("python,link", 1, 0, ["python"], "error: link: onnx by link: Bob: out of memory"),
        ("link", 2, 1, ["browser"], "error: link: Bob: out of memory"),
        ("link", 1, 0, [], "error: onnx by link: Bob: out of memory"),
    ],
)
def test_results_of_others_are_written(runtime, tmp_path, capsys, monkeypatch, devices, expect, good, kept, line):
    settings = BenchSettings(runs=2, lengths=(8,))

    def phones(self, link, port, settings_of_run, fingerprint):
        client = Client(link)
        for _ in range(good):
            assert client.post(f"{client.join('Ada')}/answer", phone_answer(bundle(), settings))[0] == 200
        client.post(f"{client.join('Bob')}/answer", {"error": "out of memory"})

    monkeypatch.setattr(LinkDevice, "show", phones)
    target = tmp_path / "result.json"
    with pytest.raises(SystemExit) as stop:
        main(["bench", str(bundle()), "--device", devices, "--address", "127.0.0.1", "--expect", str(expect), "--json",
              str(target), "--runs", "2", "--lengths", "8", "--tasks", "none", "--timeout", str(WAIT_S)])  # fmt: skip
    assert stop.value.code == 1
    assert capsys.readouterr().err.strip().splitlines()[-1] == line
    found = json.loads(target.read_text())["runs"] if kept else []
    assert [run["harness"] for run in found] == kept and (kept or not target.exists())


def test_a_name_with_a_script_does_not_run_in_the_report(runtime, tmp_path):
    link = Link(bundle(), SETTINGS)
    answer = phone_answer(bundle(), SETTINGS, name=SCRIPT, page__agent=SCRIPT)
    assert link.client.post(f"{link.client.join(SCRIPT)}/answer", answer)[0] == 200
    (run,) = link.end()
    results = BenchFile(runs=(run,))
    for name in ("report.html", "report.md"):
        write_report(build_report(results), results, tmp_path / name, False)
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert "<script>alert" not in text and "<img" not in text and "alert(1)" in text
    if CHROMIUM is not None:
        dom = dump_dom(tmp_path / "report.html")
        assert "<img" not in dom and "<script" not in dom


# What it cannot do


@pytest.mark.parametrize(
    "settings, word",
    [
        ({"runtimes": ("executorch",)}, "no executorch program"),
        ({"affinity": (0,)}, "no --affinity"),
        ({"lengths": (999,)}, "exceeds"),
        ({"address": "here"}, "--address here"),
        ({"truncate_dim": 9999}, "9999"),
    ],
)
def test_what_it_cannot_do_is_refused_before_work(settings, word):
    with pytest.raises(InputError, match=word):
        LinkDevice().run(bundle(), SETTINGS.model_copy(update=settings))


@pytest.mark.parametrize("settings", [{"address": "127.0.0.1"}, {"tls": True}, {"expect": 2}])
def test_its_options_need_it(settings):
    with pytest.raises(InputError, match="belongs to --device link"):
        bench(bundle(), "python", BenchSettings(runs=1, lengths=(8,), **settings))


def test_all_devices_do_not_include_it():
    assert all(device.kind != "link" for device in open_devices("all"))
    assert [device.spec for device in open_devices("link:Ada's phone")] == ["link:Ada's phone"]


def test_answers_are_not_changed_by_reading_them():
    answer = phone_answer(bundle(), SETTINGS)
    before = copy.deepcopy(answer)
    LinkAnswer.model_validate(answer)
    assert answer == before
