"""Where the link's server listens, and how the link is shown: address, certificate, QR code."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import ssl
import sys
import tempfile
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

import segno

from msdc.errors import InputError
from msdc.extras import require
from msdc.progress import warn

# Addresses for documentation: nothing is sent to them, the system only says from where it would send.
ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
VALID = datetime.timedelta(days=2)
WHITE_ON_BLACK, PLAIN = "\x1b[97;40m", "\x1b[0m"


def default_address() -> str:
    """This machine's address on the network of its default route.

    Raises:
        InputError: it has no such route.
    """
    for family, elsewhere in ELSEWHERE:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            try:
                probe.connect((elsewhere, 9))
            except OSError:
                continue
            return str(probe.getsockname()[0])
    raise InputError(
        "this machine has no default route: name one of its addresses with --address "
        "(127.0.0.1 for a phone on a cable, with adb reverse)"
    )


def listening_address(wanted: str | None) -> tuple[str, int]:
    """(IP address, port or 0 for any) of `IP`, `IP:PORT`, `[IPv6]:PORT`; None: the default route's.

    Raises:
        InputError: not such an address, one that stands for all of the machine's, or no default route.
    """
    if wanted is None:
        return default_address(), 0
    host, port = wanted, "0"
    if wanted.startswith("["):
        host, _, rest = wanted[1:].partition("]")
        port = rest.removeprefix(":") or "0"
    elif wanted.count(":") == 1:
        host, port = wanted.split(":")
    try:
        address = ipaddress.ip_address(host)
    except ValueError as error:
        raise InputError(f"--address {wanted}: not an IP address, as in 192.168.1.5 or 192.168.1.5:8000") from error
    if not (port.isascii() and port.isdigit() and int(port) < 2**16):
        raise InputError(f"--address {wanted}: the port is not 1 to 65535")
    if address.is_unspecified or address.is_multicast:
        raise InputError(f"--address {wanted}: name one address of this machine, which the phone can reach")
    return str(address), int(port)


def self_signed(host: str) -> tuple[ssl.SSLContext, str]:
    """A server's context with a new certificate for the IP address `host`, and the certificate's SHA-256 fingerprint.

    Raises:
        MissingExtra: `cryptography` is not installed.
    """
    require("cryptography", "--tls")
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


def qr_lines(link: str) -> list[str]:
    """A QR code of `link` in half blocks, two modules per character, with colors that no theme inverts."""
    matrix = [list(row) for row in segno.make(link, micro=False, error="l").matrix_iter(border=4)]
    matrix += [[0] * len(matrix[0])] * (len(matrix) % 2)
    # Light modules are drawn, on black: the light border then sets the code off from any background.
    blocks = {(0, 0): "█", (0, 1): "▀", (1, 0): "▄", (1, 1): " "}
    return [
        WHITE_ON_BLACK + "".join(blocks[top, bottom] for top, bottom in zip(*rows, strict=True)) + PLAIN
        for rows in zip(matrix[::2], matrix[1::2], strict=True)
    ]


def show(
    link: str, port: int, expect: int, timeout_s: float, fingerprint: str | None, stream: TextIO | None = None
) -> None:
    """Print the link, and its QR code where standard error is a terminal."""
    devices = "the phone" if expect == 1 else f"{expect} phones"
    warn(f"open this link on {devices}, within {max(1, round(timeout_s / 60))} min: {link}")
    if urlsplit(link).hostname == "127.0.0.1":  # adb reaches no other address of this machine
        warn(f"this address is reached from a phone on a cable after: adb reverse tcp:{port} tcp:{port}")
    if fingerprint is not None:
        warn(f"the browser will warn of a certificate that it does not know; its SHA-256 fingerprint: {fingerprint}")
    stream = stream or sys.stderr
    if stream.isatty():
        print("\n".join(qr_lines(link)), file=stream, flush=True)
