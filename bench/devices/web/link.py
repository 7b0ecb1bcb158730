"""`link[:NAME]`: the browser of any phone that opens a link, which a server on this machine answers."""

from __future__ import annotations

import contextlib
import datetime
import functools
import gzip
import io
import ipaddress
import re
import socket
import ssl
import sys
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from msdc.bench.devices.base import Device, Incomplete
from msdc.bench.devices.state import States
from msdc.bench.devices.web.measurement import RUNTIME, Hints, Measurement, PageAnswer, battery_state
from msdc.bench.devices.web.server import SILENCE_S, AnswerServer, json_bytes, plain
from msdc.bench.measure import vectors_agree
from msdc.bench.options import BenchSettings
from msdc.bench.result import LINK_NOTE, NOISY, DeviceInfo, DeviceRun
from msdc.errors import InputError, MsdcError
from msdc.extras import installed, missing, require
from msdc.progress import live_lines, say, warn

PAGE = {"index.html": "link.html", "link.css": "link.css", "link.js": "link.js"}
# Files that get much smaller: phones may be on a slow network. Weights hardly do.
PACKED = (".html", ".css", ".js", ".mjs", ".json", ".wasm")
# Addresses for documentation: nothing is sent to them, the system only gives the address from which it would send.
ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
VALID = datetime.timedelta(days=2)
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


def self_signed(host: str) -> tuple[ssl.SSLContext, str]:
    """A server's context with a new certificate for the IP address `host`, and its SHA-256 fingerprint."""
    require("cryptography", "tls")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "msdc bench --device link")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([x509.ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # ssl reads certificates from files only; this one is the owner's alone and is gone before the server starts.
    with tempfile.TemporaryDirectory(prefix="msdc-link-") as folder:
        path = Path(folder) / "certificate.pem"
        path.write_bytes(private + certificate.public_bytes(pem))
        context.load_cert_chain(path)
    return context, certificate.fingerprint(hashes.SHA256()).hex(":").upper()


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
    """Phones that open the link; `NAME` is what their owners are offered as the device's name."""

    kind = "link"
    silence_s = SILENCE_S

    def run(self, bundle: Path, settings: BenchSettings) -> list[DeviceRun]:
        """See `Device.run`; where fewer phones answered than expected, `Incomplete` has the others' runs."""
        host, port = listening_address(settings.address)
        measurement = Measurement(bundle, settings, self.spec)
        files = self._files(measurement)
        packed = {name: _gzip(content(source)) for name, source in files.items() if Path(name).suffix in PACKED}
        sizes = [len(packed[name]) if name in packed else len(content(source)) for name, source in files.items()]
        about = {
            "model": measurement.manifest.name,
            "bytes": sum(sizes),
            "sentences": len(measurement.texts) + len(measurement.golden["texts"]),
            "name": plain(self.argument or ""),
            "noisy": NOISY,
        }
        tls, fingerprint = self_signed(host) if settings.tls else (None, None)
        runs: list[DeviceRun] = []

        def accept(raw: dict[str, Any], name: str) -> tuple[DeviceRun, dict[str, Any]]:
            run = _run(measurement, measurement.read(raw), {run.device.name for run in runs})
            runs.append(run)
            return run, _shown(run)

        try:
            server = AnswerServer(
                {**files, "about.json": json_bytes(about)}, accept, measurement.max_answer, link=True,
                expect=settings.expect, host=host, port=port, tls=tls, packed=packed, silence_s=self.silence_s,
                report=say,
            )  # fmt: skip
        except OSError as error:
            raise InputError(f"`address` {host}: cannot listen there ({error.strerror or error})") from error
        try:
            with server:
                self.show(server.address, server.port, settings, fingerprint)
                with live_lines() as show:
                    failures = server.wait(settings.timeout_s, show)
        except KeyboardInterrupt:
            if not runs:
                raise
            failures = [f"interrupted after {len(runs)} of {settings.expect} devices"]
        if failures and runs:
            raise Incomplete("; ".join(failures), runs)
        if failures:
            raise MsdcError(f"{RUNTIME} by link: {'; '.join(failures)}")
        return runs

    def show(self, link: str, port: int, settings: BenchSettings, fingerprint: str | None) -> None:
        """Print the link, and its QR code where standard error is a terminal."""
        devices = "the phone" if settings.expect == 1 else f"{settings.expect} phones"
        warn(f"open this link on {devices}, within {max(1, round(settings.timeout_s / 60))} min: {link}")
        if urlsplit(link).hostname == "127.0.0.1":  # adb reaches no other address of this machine
            warn(f"this address is reached from a phone on a cable after: adb reverse tcp:{port} tcp:{port}")
        if fingerprint is not None:
            # Nobody makes another certificate with the same 64 bits while the link is open.
            warn(f"the browser will warn of a certificate; its SHA-256 fingerprint must begin with {fingerprint[:23]}")
        if sys.stderr.isatty() and not installed("segno"):
            warn(str(missing("segno", "its QR code")))
        elif sys.stderr.isatty():
            print(qr_code(link), file=sys.stderr, flush=True)

    def _files(self, measurement: Measurement) -> dict[str, Path | bytes]:
        return measurement.files(PAGE)


def content(source: Path | bytes) -> bytes:
    """The bytes of a file that is served."""
    return source if isinstance(source, bytes) else source.read_bytes()


@functools.lru_cache(maxsize=32)
def _gzip(raw: bytes) -> bytes:
    return gzip.compress(raw, compresslevel=6, mtime=0)


def _run(measurement: Measurement, answer: PageAnswer, others: set[str]) -> DeviceRun:
    device, (engine, version, _) = device_of(answer), browser_of(answer)
    name, number = device.name, 2
    # Results are kept by name: another phone of the same name gets a number.
    while name in others:
        name, number = f"{device.name} ({number})", number + 1
    return measurement.run(
        answer,
        device.model_copy(update={"name": name}),
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
