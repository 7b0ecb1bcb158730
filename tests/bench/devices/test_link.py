"""The link: its address and QR code, the wait for the phone, and the record of its answer."""

import json
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

import pytest
import segno
from link_phone import ANDROID, SETTINGS, WAIT_S, Client, Link, link_server, phone_answer, tiny_bundle

from msdc.bench.devices import open_devices
from msdc.bench.devices.base import run_devices
from msdc.bench.devices.web import link as link_address
from msdc.bench.devices.web.browser import BrowserDevice
from msdc.bench.devices.web.link import (
    LinkDevice,
    browser_of,
    default_address,
    device_of,
    listening_address,
    qr_code,
)
from msdc.bench.devices.web.measurement import PageAnswer
from msdc.bench.options import BenchSettings
from msdc.bench.result import BenchFile, parse_result
from msdc.cli import main
from msdc.errors import InputError
from msdc.export.mobile.web.npm import SCRIPT
from msdc.machine import usable_cores

# Address, QR code


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
    LinkDevice().show("http://127.0.0.1:81/secret/", 81, BenchSettings(timeout_s=900))
    told = capsys.readouterr().err
    for text in ("the phone, within 15 min: http://127.0.0.1:81/secret/", "adb reverse tcp:81 tcp:81", "█"):
        assert text in told


# The wait


def test_a_silent_phone_is_waited_for_and_may_come_back(onnxruntime_web, capsys):
    """A closed page does not end the wait; the page that is opened again answers, the former one no longer."""
    link = Link(tiny_bundle(), SETTINGS, silence_s=0.5)
    first = link.client.start("Ada")
    told = ""
    while "fell silent" not in told:
        time.sleep(0.05)
        told += capsys.readouterr().err
    assert told.splitlines()[-2] == "Ada has started"
    assert told.splitlines()[-1].startswith("Ada fell silent: its page was closed")
    second = link.client.start("Bob")
    answer = phone_answer(tiny_bundle(), SETTINGS)
    assert link.client.ask("POST", f"{first}/alive", b"warm")[0] == 410
    assert link.client.post(f"{first}/answer", answer)[0] == 410
    assert link.client.post(f"{second}/answer", answer)[0] == 200
    assert len(link.end()) == 1
    assert capsys.readouterr().err.splitlines() == ["Bob has started", "Ada's phone, Chromium 140 has answered"]


@pytest.mark.parametrize(
    "name, line",
    [
        (None, "no result after 0.5 s"),
        ("Ada", "Ada fell silent: its page was closed, its screen locked, or its network lost"),
    ],
)
def test_a_wait_that_is_over_names_the_phone(name, line):
    with link_server() as server:
        if name is not None:
            Client(server.address).start(name)
        device = LinkDevice()
        device.silence_s = 0.1
        assert device.wait(server, 0.5) == line


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
    names = json.loads(link.client.ask("GET", "request.json")[1])["files"]
    page = ("index.html", "link.css", "link.js", "session.js", "measure.js")
    sent = {}
    for name in (*page, "about.json", "request.json", "runtime/ort.mjs", f"runtime/{SCRIPT}", *names):
        status, body, _ = link.client.ask("GET", name)
        assert status == 200
        assert len(body) == names.get(name, len(body))
        sent[name] = len(body)
    assert sum(sent.values()) == about["bytes"] + sent["about.json"]
    battery = {"percent": 80, "charging": True}
    answer = phone_answer(tiny_bundle(), SETTINGS, battery_before=battery, page__device_memory_gib=8)
    status, shown = link.client.post(f"{link.client.start('Ada')}/answer", answer)
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
    post = f"busybox wget -q -O - --post-data '{{}}' {link.link}start"
    done = subprocess.run([*adb, "shell", post], capture_output=True, text=True, timeout=WAIT_S, check=False)
    number = json.loads(done.stdout)["number"]
    assert link.client.post(f"{number}/answer", phone_answer(tiny_bundle(), SETTINGS))[0] == 200
    assert len(link.end()) == 1


def test_results_of_others_are_written(onnxruntime_web, tmp_path, capsys, monkeypatch):
    def phone(self, link, *_):
        client = Client(link)
        client.post(f"{client.start('Bob')}/answer", {"error": "out of memory"})

    monkeypatch.setattr(LinkDevice, "show", phone)
    target = tmp_path / "result.json"
    options = f"--address 127.0.0.1 --runs 2 --lengths 8 --tasks none --timeout {WAIT_S}"
    with pytest.raises(SystemExit) as stop:
        main(["bench", str(tiny_bundle()), "--device", "python,link", "--json", str(target), *options.split()])
    assert stop.value.code == 1
    assert capsys.readouterr().err.strip().splitlines()[-1] == "error: link: onnx by link: Bob: out of memory"
    assert [run["harness"] for run in json.loads(target.read_text())["runs"]] == ["python"]


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


def test_its_address_needs_it():
    settings = BenchSettings(tasks=(), runs=1, lengths=(8,), address="127.0.0.1")
    with pytest.raises(InputError, match="`address` is for device link"):
        run_devices(open_devices("python"), tiny_bundle(), settings)
    assert all(device.kind != "link" for device in open_devices("all"))
