"""The link: its address, certificate and QR code, the wait for phones, and the record of an answer."""

import gzip
import hashlib
import json
import socket
import ssl
import subprocess
import sys
import threading
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
import segno
from link_phone import ANDROID, SETTINGS, WAIT_S, Client, Link, link_server, phone_answer, tiny_bundle

from msdc.bench.devices import open_devices
from msdc.bench.devices.base import Incomplete, run_devices
from msdc.bench.devices.web import link as link_address
from msdc.bench.devices.web.browser import BrowserDevice
from msdc.bench.devices.web.link import (
    LinkDevice,
    browser_of,
    default_address,
    device_of,
    listening_address,
    qr_code,
    self_signed,
)
from msdc.bench.devices.web.measurement import PageAnswer
from msdc.bench.devices.web.server import WORDS, Seat
from msdc.bench.options import BenchSettings
from msdc.bench.result import BenchFile, parse_result
from msdc.cli import main
from msdc.errors import InputError, MsdcError
from msdc.export.mobile.web.npm import SCRIPT
from msdc.machine import usable_cores

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
    with pytest.raises(InputError, match="`address`"):
        listening_address(text)


def test_an_address_of_another_machine_is_one_line(onnxruntime_web):
    with pytest.raises(InputError, match=r"`address` 192\.0\.2\.77: cannot listen there"):
        LinkDevice().run(tiny_bundle(), SETTINGS.model_copy(update={"address": "192.0.2.77"}))


def test_the_default_address_is_this_machines(monkeypatch):
    try:
        address = default_address()
    except InputError:
        pytest.skip("no default route here")
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as listening:
        listening.bind((address, 0))
    monkeypatch.setattr(link_address, "ELSEWHERE", ())
    with pytest.raises(InputError, match="no default route"):
        default_address()


def test_qr_code_holds_the_link():
    """Light modules are drawn, dark ones are left out: read back, the blocks are the code's own matrix."""
    link = "http://192.168.178.100:43210/0123456789abcdefABCDEF/"
    light = {"█": (1, 1), "▀": (1, 0), "▄": (0, 1), " ": (0, 0)}
    rows = []
    for line in qr_code(link).splitlines():
        pairs = [light[c] for c in line.removeprefix(link_address.WHITE_ON_BLACK).removesuffix(link_address.PLAIN)]
        rows += zip(*pairs, strict=True)
    drawn = [tuple(1 - dark for dark in row) for row in segno.make(link, micro=False, error="l").matrix_iter(border=4)]
    assert rows[: len(drawn)] == drawn


def test_what_is_shown(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    settings = BenchSettings(expect=3, timeout_s=900)
    LinkDevice().show("http://127.0.0.1:81/secret/", 81, settings, ":".join(["AB"] * 32))
    told = capsys.readouterr().err
    for text in (
        "3 phones, within 15 min: http://127.0.0.1:81/secret/",
        "adb reverse tcp:81 tcp:81",
        f"begin with {'AB:' * 7}AB\n",
        "█",
    ):
        assert text in told


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
    monkeypatch.setattr("msdc.extras.installed", lambda package: package != "cryptography")
    with pytest.raises(MsdcError, match=r"tls needs .*: pip install '\.\[signature\]'"):
        self_signed("127.0.0.1")


# The wait


def test_a_silent_phone_is_waited_for_and_may_come_back():
    """One line per phone, with words that its page shows too; a closed page does not end the wait."""
    run = SimpleNamespace(device=SimpleNamespace(name="Ada's phone"))
    told, lines = list[str](), list[str]()
    with link_server(accept=lambda answer, name: (run, {}), silence_s=0.5) as server:
        server.report = told.append
        client = Client(server.address)
        _, shown = client.post("join", {"name": "Ada", "seat": None})
        assert shown["number"] == 1
        assert len(shown["words"].split()) == 4
        assert client.ask("POST", f"{shown['seat']}/alive", b"warm 40 83")[0] == 204
        back = threading.Event()

        def show(now: list[str]) -> None:
            lines.extend(now)
            if now == [f"phone 1 ({shown['words']}) Ada: silent, 40 %, battery 83 %"] and not back.is_set():
                back.set()
                # The page was loaded again: the same seat.
                assert client.join("Ada", shown["seat"]) == shown["seat"]
                assert client.post(f"{shown['seat']}/answer", {"a": 1})[0] == 200

        assert server.wait(WAIT_S, show) == []
        assert back.is_set()
        assert lines[0] == f"phone 1 ({shown['words']}) Ada: measures, 40 %, battery 83 %"
        assert told[0] == f"Ada has opened the link; its page shows: phone 1, {shown['words']}"
        assert told[1].startswith("Ada fell silent: its page was closed")
        assert told[2:] == ["Ada has answered"]
        assert client.ask("POST", f"{shown['seat']}/alive", b"warm")[0] == 204
        assert client.post("join", {"name": "late"})[0] == 409


def test_a_phone_that_stays_silent_is_named_when_the_time_is_over():
    with link_server(silence_s=0.1) as server:
        seat = Client(server.address).join("Ada")
        line = "Ada fell silent: its page was closed, its screen locked, or its network lost"
        assert server.wait(0.5) == [line, "0 of 1 devices answered in 0.5 s"]
        assert Client(server.address).ask("POST", f"{seat}/alive", b"x \x1b[2J 7777 \xff")[0] == 410


def test_words_tell_phones_apart_and_signs_of_life_are_bounded():
    assert len(set(WORDS)) == 256
    assert max(map(len, WORDS)) <= 9
    seats = [Seat(str(token)) for token in range(200)]
    assert len({seat.words for seat in seats}) == 200
    for raw in (b"", b" ", b"\x1b[2J 7777 \xff", b"warm 999999999999 -1", "warm \u0663 1e9".encode()):
        seats[0].beat(raw)
        assert seats[0].numbers == ()
        assert "\x1b" not in seats[0].status()


def test_a_phone_that_still_measures_at_the_end():
    with link_server(expect=2) as server:
        Client(server.address).join("Ada")
        assert server.wait(0.3) == ["0 of 2 devices answered in 0.3 s"]


def test_a_page_may_speak_once_more_after_its_answer():
    run = SimpleNamespace(device=SimpleNamespace(name="Ada's phone"))
    with link_server(accept=lambda answer, name: (run, {})) as server:
        client = Client(server.address)
        seat = client.join("Ada")
        assert client.post(f"{seat}/answer", {"a": 1})[0] == 200
        # On a slow phone a sign of life is under way while the reply is read: it must not say that nobody waits.
        assert client.ask("POST", f"{seat}/alive", b"done")[0] == 204
        assert server.wait(WAIT_S) == []


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
    answer = PageAnswer.model_validate(phone_answer(tiny_bundle(), SETTINGS, name="", page__agent=agent))
    found_engine, found_version, _ = browser_of(answer)
    device = device_of(answer)
    assert (found_engine, found_version, device.name, device.os) == (engine, version, name, system)
    assert device.cores is None
    assert device.memory_mib is None


def test_hints_say_more_than_the_agent():
    hints = {"model": "Pixel 9", "platform": "Android", "platform_version": "16.0.0", "version": "140.0.7339.51"}
    answer = PageAnswer.model_validate(phone_answer(tiny_bundle(), SETTINGS, name=" \x1b[2J\n ", hints=hints))
    assert browser_of(answer)[1] == "140.0.7339.51"
    device = device_of(answer)
    assert device.os == "Android 16.0.0"
    assert device.name.endswith("[2J, Chromium 140")
    assert "\x1b" not in device.name
    unnamed = answer.model_copy(update={"name": "  "})
    assert device_of(unnamed).name == "Pixel 9, Chromium 140"


def test_a_phone_answers_and_its_record_is_complete(onnxruntime_web):
    link = Link(tiny_bundle(), SETTINGS, name="suggested")
    about = json.loads(link.client.ask("GET", "about.json")[1])
    assert about["name"] == "suggested"
    assert about["model"] == "tiny"
    assert about["bytes"] > 3_000_000
    # Compressed for browsers: the same content, and what the page says that it downloads.
    names = json.loads(link.client.ask("GET", "request.json")[1])["files"]
    page = ("index.html", "link.css", "link.js", "session.js", "measure.js")
    sent = {}
    for name in (*page, "request.json", "runtime/ort.mjs", f"runtime/{SCRIPT}", *names):
        status, body, headers = link.client.ask("GET", name, None, **{"Accept-Encoding": "gzip"})
        plain_body = link.client.ask("GET", name)[1]
        assert status == 200
        assert len(plain_body) == names.get(name, len(plain_body))
        assert (gzip.decompress(body) if headers.get("Content-Encoding") == "gzip" else body) == plain_body
        sent[name] = len(body)
    assert sum(sent.values()) == pytest.approx(about["bytes"], abs=1000)
    assert sum(sent[name] for name in page) < 80_000  # the core's tokenizers are 45 kB of it
    battery = {"percent": 80, "charging": True}
    answer = phone_answer(tiny_bundle(), SETTINGS, battery_before=battery, page__device_memory_gib=8)
    status, shown = link.client.post(f"{link.client.join('Ada')}/answer", answer)
    assert status == 200
    assert shown["agrees"]
    assert [length for length, _ in shown["latency"]] == [8, 16]
    (run,) = link.end()
    assert (run.device.kind, run.harness) == ("link", "browser")
    assert run.device.name == "Ada's phone, Chromium 140"
    facts = run.browser
    assert facts is not None
    assert facts.engine == "chromium"
    assert facts.version == "140"
    assert (facts.secure_context, facts.isolated, facts.worker) == (False, False, True)
    assert facts.claimed_cores == 8
    assert facts.claimed_memory_gib == 8
    assert facts.calls_per_sample == {"8": 1, "16": 1}
    assert run.threads == 1
    assert facts.clock_step_ms == 0.1
    assert facts.renderer_pss_mib is None
    assert run.state_before is not None
    assert run.state_before.battery_percent == 80
    assert "battery" not in run.state_before.unreadable
    assert {"battery", "temperatures"} <= set(run.state_after.unreadable)
    assert run.parity is not None
    assert run.parity.ids_equal
    assert run.parity.min_cosine == 1
    assert parse_result(json.loads(BenchFile(runs=(run,)).model_dump_json()), "here").runs == (run,)
    with pytest.raises(OSError):
        link.client.ask("GET", "")


def test_a_link_at_an_address_of_the_sixth_protocol():
    try:
        opened = link_server(host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with opened as server:
        assert server.address.startswith("http://[::1]:")
        assert Client(server.address).ask("GET", "")[:2] == (200, b"<p>")


@pytest.mark.slow
def test_a_phone_on_a_cable(phone, onnxruntime_web):
    """`adb reverse` over a real adbd: the emulated phone fetches the page from its own localhost."""
    link = Link(tiny_bundle(), SETTINGS.model_copy(update={"address": "127.0.0.1"}))
    parts = urlsplit(link.link)
    adb = ["adb", "-s", phone.serial]
    subprocess.run([*adb, "reverse", f"tcp:{parts.port}", f"tcp:{parts.port}"], check=True, timeout=WAIT_S)
    fetch = f"busybox wget -q -O - {link.link}"
    done = subprocess.run([*adb, "shell", fetch], capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert "How fast is this device?" in done.stdout, done.stderr
    post = f"busybox wget -q -O - --post-data '{{}}' {link.link}join"
    done = subprocess.run([*adb, "shell", post], capture_output=True, text=True, timeout=WAIT_S, check=False)
    seat = json.loads(done.stdout)["seat"]
    assert link.client.post(f"{seat}/answer", phone_answer(tiny_bundle(), SETTINGS))[0] == 200
    assert len(link.end()) == 1


def test_several_phones_of_one_name(onnxruntime_web):
    link = Link(tiny_bundle(), SETTINGS.model_copy(update={"expect": 2}))
    answer = phone_answer(tiny_bundle(), SETTINGS)
    seats = [link.client.join("Ada"), link.client.join("Ada"), link.client.join("late")]
    assert link.client.post(f"{seats[0]}/answer", answer)[0] == 200
    assert link.client.post(f"{seats[0]}/answer", answer)[0] == 409
    status, reply = link.client.post("join", {"name": "Ada", "seat": seats[0]})
    assert status == 409
    assert "received already" in reply["error"]
    assert link.client.post(f"{seats[1]}/answer", answer)[0] == 200
    assert [run.device.name for run in link.end()] == ["Ada's phone, Chromium 140", "Ada's phone, Chromium 140 (2)"]


def test_an_interrupt_keeps_what_has_been_measured(onnxruntime_web, monkeypatch):
    good = 0

    def phones(self, link, port, settings, fingerprint):
        client = Client(link)
        for _ in range(good):
            assert client.post(f"{client.join('Ada')}/answer", phone_answer(tiny_bundle(), SETTINGS))[0] == 200
        raise KeyboardInterrupt

    monkeypatch.setattr(LinkDevice, "show", phones)
    device, settings = LinkDevice(), SETTINGS.model_copy(update={"expect": 2})
    with pytest.raises(KeyboardInterrupt):
        device.run(tiny_bundle(), settings)
    good = 1
    with pytest.raises(Incomplete, match="interrupted after 1 of 2 devices") as stop:
        device.run(tiny_bundle(), settings)
    assert len(stop.value.runs) == 1


@pytest.mark.parametrize(
    "devices, good, line",
    [
        ("python,link", 0, "error: link: onnx by link: Bob: out of memory"),
        ("link", 1, "error: link: Bob: out of memory"),
        ("link", 0, "error: onnx by link: Bob: out of memory"),
    ],
)
def test_results_of_others_are_written(onnxruntime_web, tmp_path, capsys, monkeypatch, devices, good, line):
    def phones(self, link, *_):
        client = Client(link)
        answer = phone_answer(tiny_bundle(), BenchSettings(tasks=(), runs=2, lengths=(8,)))
        for _ in range(good):
            assert client.post(f"{client.join('Ada')}/answer", answer)[0] == 200
        client.post(f"{client.join('Bob')}/answer", {"error": "out of memory"})

    monkeypatch.setattr(LinkDevice, "show", phones)
    target = tmp_path / "result.json"
    options = f"--address 127.0.0.1 --expect {good + 1} --runs 2 --lengths 8 --tasks none --timeout {WAIT_S}"
    with pytest.raises(SystemExit) as stop:
        main(["bench", str(tiny_bundle()), "--device", devices, "--json", str(target), *options.split()])
    assert stop.value.code == 1
    assert capsys.readouterr().err.strip().splitlines()[-1] == line
    harnesses = ["python"] * (devices != "link") + ["browser"] * good
    assert (
        [run["harness"] for run in json.loads(target.read_text())["runs"]] == harnesses
        if harnesses
        else not target.exists()
    )


# What it cannot do


@pytest.mark.parametrize("device", [LinkDevice(), BrowserDevice()], ids=["link", "browser"])
@pytest.mark.parametrize(
    "settings, word",
    [
        ({"runtime": "executorch"}, "no executorch program"),
        ({"affinity": (min(usable_cores()),)}, "takes no `affinity`"),
        ({"lengths": (999,)}, "exceeds"),
        ({"truncate_dim": 9999}, "9999"),
    ],
)
def test_what_pages_cannot_do_is_refused_before_work(device, settings, word):
    with pytest.raises(InputError, match=word):
        device.run(tiny_bundle(), SETTINGS.model_copy(update=settings))


@pytest.mark.parametrize("settings", [{"address": "127.0.0.1"}, {"tls": True}, {"expect": 2}])
def test_its_options_need_it(settings):
    with pytest.raises(InputError, match="is for device link"):
        run_devices(open_devices("python"), tiny_bundle(), BenchSettings(tasks=(), runs=1, lengths=(8,), **settings))
    assert all(device.kind != "link" for device in open_devices("all"))
