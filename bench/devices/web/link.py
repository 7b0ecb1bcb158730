"""`link[:NAME]`: the browser of a phone that opens a link, which a server on this machine answers."""

from __future__ import annotations

import contextlib
import io
import ipaddress
import re
import socket
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from msdc.bench.devices.base import Device
from msdc.bench.devices.state import States
from msdc.bench.devices.web.measurement import RUNTIME, Hints, Measurement, PageAnswer, battery_state
from msdc.bench.devices.web.server import SILENCE_S, AnswerServer, json_bytes, plain
from msdc.bench.measure import vectors_agree
from msdc.bench.options import BenchSettings
from msdc.bench.result import LINK_NOTE, NOISY, DeviceInfo, DeviceRun
from msdc.errors import InputError, MsdcError
from msdc.extras import installed, missing
from msdc.progress import say, warn

PAGE = {"index.html": "link.html", "link.css": "link.css", "link.js": "link.js"}
# Addresses for documentation: nothing is sent to them, the system only gives the address from which it would send.
ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
STEP_S = 0.2
SILENT = "fell silent: its page was closed, its screen locked, or its network lost"
WHITE_ON_BLACK, PLAIN = "\x1b[97;40m", "\x1b[0m"
# Engine -> its title and where its version is in a browser's identification. On iOS every browser is WebKit.
AGENTS = (
    ("firefox", "Firefox", r"\bFirefox/([\d.]+)"),
    ("chromium", "Chromium", r"\b(?:Headless)?Chrom(?:e|ium)/([\d.]+)"),
    ("webkit", "WebKit", r"\bAppleWebKit/(?:.*\bVersion/([\d.]+))?"),
)
SYSTEMS = (
    ("iPhone", "iPhone", "iOS"),
    ("iPad", "iPad", "iPadOS"),
    ("Android", "Android device", "Android"),
    ("Windows", "Windows computer", "Windows"),
    ("Macintosh", "Mac or iPad", ""),  # iPads pass themselves off as Macs
    ("CrOS", "Chromebook", "ChromeOS"),
    ("Linux", "Linux device", "Linux"),
)


def default_address() -> str:
    """This machine's address on the network of its default route."""
    for family, elsewhere in ELSEWHERE:
        with socket.socket(family, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect((elsewhere, 9))
            return str(probe.getsockname()[0])
    raise InputError(
        "this machine has no default route: pass one of its addresses as `address` "
        "(127.0.0.1 for a phone on a cable, with adb reverse)"
    )


def listening_address(requested: str | None) -> tuple[str, int]:
    """(IP address, port or 0 for any) of `IP`, `IP:PORT`, `[IPv6]:PORT`; None: the default route's."""
    if requested is None:
        return default_address(), 0
    bare_ipv6 = requested.count(":") > 1 and not requested.startswith("[")
    try:
        parts = urlsplit(f"//[{requested}]" if bare_ipv6 else f"//{requested}")
        address, port = ipaddress.ip_address(parts.hostname or ""), parts.port or 0
    except ValueError as error:
        raise InputError(f"`address` {requested}: expected IP or IP:PORT, as in 192.168.1.5:8000") from error
    if address.is_unspecified or address.is_multicast:
        raise InputError(f"`address` {requested}: name one address of this machine, which the phone can reach")
    return str(address), port


def qr_code(link: str) -> str:
    """A QR code of `link` in half blocks: light modules are drawn on black, so that no theme inverts it."""
    import segno

    drawn = io.StringIO()
    segno.make(link, micro=False, error="l").terminal(drawn, border=4, compact=True)
    return "\n".join(WHITE_ON_BLACK + line + PLAIN for line in drawn.getvalue().splitlines())


def browser_of(answer: PageAnswer) -> tuple[str, str | None, str]:
    """Engine, version and title of the browser; `unknown` without a title for an engine that is not known."""
    for engine, title, pattern in AGENTS:
        match = re.search(pattern, answer.page.agent)
        if match:
            version = (answer.hints.version if answer.hints else None) or match[1]
            # Chromium reports 156.0.0.0 whatever the rest of its version is.
            return (engine, re.sub(r"(\.0)+$", "", plain(version)) if version else None, title)
    return "unknown", None, ""


def device_of(answer: PageAnswer) -> DeviceInfo:
    """The device: as its owner calls it, or as its browser describes it."""
    agent, hints = answer.page.agent, answer.hints or Hints()
    usual, system = next(((name, system) for word, name, system in SYSTEMS if word in agent), ("device", ""))
    if hints.platform:
        system = plain(f"{hints.platform} {hints.platform_version or ''}")
    _, version, title = browser_of(answer)
    number = re.match(r"\d+", version or "")
    name = plain(answer.name) or plain(hints.model or "") or usual
    name += (f", {title}" if title else "") + (f" {number.group()}" if number else "")
    return DeviceInfo(name=name, kind="link", os=system)


class LinkDevice(Device):
    """The phone that opens the link; `NAME` is what its owner is offered as the device's name."""

    kind = "link"
    silence_s = SILENCE_S

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`."""
        host, port = listening_address(settings.address)
        measurement = Measurement(bundle, settings, self.spec)
        files = self._files(measurement)
        about = {
            "model": measurement.manifest.name,
            "bytes": sum(len(file) if isinstance(file, bytes) else file.stat().st_size for file in files.values()),
            "sentences": len(measurement.texts) + len(measurement.golden["texts"]),
            "name": plain(self.argument or ""),
            "noisy": NOISY,
        }

        def accept(raw: dict[str, Any]) -> tuple[DeviceRun, dict[str, Any]]:
            run = _run(measurement, measurement.read(raw))
            return run, _shown(run)

        files["about.json"] = json_bytes(about)
        try:
            server = AnswerServer(files, accept, measurement.max_answer, host=host, port=port, report=say)
        except OSError as error:
            raise InputError(f"`address` {host}: cannot listen there ({error.strerror or error})") from error
        with server:
            self.show(server.address, server.port, settings)
            line = self.wait(server, settings.timeout_s)
        if line:
            raise MsdcError(f"{RUNTIME} by link: {line}")
        say(f"{server.answer.device.name} has answered")
        return [server.answer]

    def wait(self, server: AnswerServer, timeout_s: float) -> str:
        """Wait for the answer; returns why there is none, else nothing. A silent page may be opened again."""
        end, silent = time.monotonic() + timeout_s, 0
        while not server.settled.wait(STEP_S):
            page, now = server.page, time.monotonic()
            is_silent = page.number > 0 and now - page.heard > self.silence_s
            if now > end:
                return f"{page.title} {SILENT}" if is_silent else f"no result after {timeout_s:g} s"
            if is_silent and silent < page.number:
                silent, minutes = page.number, max(1, round((end - now) / 60))
                say(f"{page.title} {SILENT}; it may open the link again for {minutes} min, Ctrl-C ends the wait")
        page = server.page
        return f"{page.title}: {page.line}" if page.state == "failed" else ""

    def show(self, link: str, port: int, settings: BenchSettings) -> None:
        """Print the link, and its QR code where standard error is a terminal."""
        warn(f"open this link on the phone, within {max(1, round(settings.timeout_s / 60))} min: {link}")
        if urlsplit(link).hostname == "127.0.0.1":  # adb reaches no other address of this machine
            warn(f"this address is reached from a phone on a cable after: adb reverse tcp:{port} tcp:{port}")
        if sys.stderr.isatty() and not installed("segno"):
            warn(str(missing("segno", "its QR code")))
        elif sys.stderr.isatty():
            print(qr_code(link), file=sys.stderr, flush=True)

    def _files(self, measurement: Measurement) -> dict[str, Path | bytes]:
        return measurement.files(PAGE)


def _run(measurement: Measurement, answer: PageAnswer) -> DeviceRun:
    engine, version, _ = browser_of(answer)
    return measurement.run(
        answer,
        device_of(answer),
        engine,
        version,
        states=States(battery_state(answer.battery_before), None, battery_state(answer.battery_after)),
        notes=(LINK_NOTE,),
    )


def _shown(run: DeviceRun) -> dict[str, Any]:
    """What the phone shows of its result."""
    assert run.parity is not None
    return {
        "name": run.device.name,
        "latency": [[timing.length, float(np.median(timing.samples))] for timing in run.latency],
        "load_ms": run.load,
        "agrees": vectors_agree(run.parity) and run.parity.ids_equal,
        "texts": run.parity.texts,
        "scores": [[score.name, score.spearman] for score in run.accuracy if score.spearman is not None],
    }
