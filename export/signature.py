"""Signatures of bundles in minisign's format: who made a bundle, which no seal and no hash can say.

`bundle.json` holds the sha256 of every other file, so a signature of it covers the bundle. minisign writes it to
`bundle.json.minisig`; Ed25519 itself comes from the package `cryptography` (extra `signature`).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
from pathlib import Path
from typing import NamedTuple

from msdc.errors import InputError, printable
from msdc.export.manifest import MANIFEST_FILE, check_files, locate_bundle, read_manifest
from msdc.extras import require
from msdc.files import regular_size

__all__ = ["SIGNATURE_FILE", "PublicKey", "verify_message", "verify_signature"]

SIGNATURE_FILE = f"{MANIFEST_FILE}.minisig"
_MAX_BYTES = 64 * 1024
# minisign's names of what is signed: the file itself (`minisign -Sl`), or its BLAKE2b-512 (`minisign -S`).
_PLAIN, _HASHED = b"Ed", b"ED"
_TRUSTED = "trusted comment: "


def _lines(path: Path) -> list[str]:
    with contextlib.suppress(OSError, UnicodeDecodeError):
        if regular_size(path) <= _MAX_BYTES:
            return path.read_text(encoding="utf-8").splitlines()
    raise InputError(f"{path}: cannot be read as a key or a signature of minisign")


def _decoded(text: str, size: int, kinds: tuple[bytes, ...], what: str) -> bytes:
    """`size` bytes in base64 that begin with one of `kinds`."""
    with contextlib.suppress(ValueError):
        raw = base64.b64decode(text, validate=True)
        if len(raw) == size and raw.startswith(kinds):
            return raw
    raise InputError(f"{what}: not of minisign's format")


class PublicKey(NamedTuple):
    """A public key of minisign: its number, and the 32 bytes of Ed25519."""

    number: bytes
    key: bytes

    @classmethod
    def read(cls, key_or_file: str | Path) -> PublicKey:
        """From the key itself (`RW...`) or the file that `minisign -G` wrote; an `InputError` where it is neither."""
        text = str(key_or_file).strip()
        if isinstance(key_or_file, Path) or not text.startswith("RW"):
            text = ["", *(line.strip() for line in _lines(Path(key_or_file)) if line.strip())][-1]
        raw = _decoded(text, 42, (_PLAIN,), f"{' '.join(str(key_or_file).split())[:200]}: the public key")
        return cls(raw[2:10], raw[10:])

    def holds(self, signature: bytes, message: bytes) -> bool:
        """Whether `signature` of `message` was made with this key; a `MissingExtra` without `cryptography`."""
        require("cryptography", "checking a signature")
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.key).verify(signature, message)
        except (InvalidSignature, ValueError):
            return False
        return True


def verify_message(message: bytes, lines: list[str], key: PublicKey, where: str = SIGNATURE_FILE) -> str:
    """The trusted comment of minisign's signature `lines` of `message`; an `InputError` where it is not one."""
    if len(lines) < 4 or not lines[2].startswith(_TRUSTED):
        raise InputError(f"{where}: not of minisign's format")
    raw, global_signature = _decoded(lines[1], 74, (_PLAIN, _HASHED), where), _decoded(lines[3], 64, (b"",), where)
    number, signature = raw[2:10], raw[10:]
    if number != key.number:
        raise InputError(f"{where}: signed with another key ({number[::-1].hex().upper()})")
    comment = lines[2].removeprefix(_TRUSTED)
    if not key.holds(signature, message if raw.startswith(_PLAIN) else hashlib.blake2b(message).digest()):
        raise InputError(f"{where}: the signature is not one of this {MANIFEST_FILE}; do not use this bundle")
    if not key.holds(global_signature, signature + comment.encode()):
        raise InputError(f"{where}: its trusted comment was changed; do not use this bundle")
    return printable(comment)


def verify_signature(folder: str | Path, public_key: str | Path) -> str:
    """The trusted comment of a bundle's signature, once the signature and the hashes of all files are found right.

    Args:
        folder: the bundle or its hub id, with `bundle.json.minisig` next to `bundle.json`.
        public_key: the maker's key, from a source that the reader trusts: `RW...`, or the file that minisign wrote.

    Raises:
        InputError: not signed, not with this key, or changed afterwards.
        MissingExtra: `cryptography` is not installed.
    """
    folder = locate_bundle(folder)
    key = PublicKey.read(public_key)
    manifest = read_manifest(folder)
    path = folder / SIGNATURE_FILE
    if not path.is_file():
        raise InputError(f"{folder}: not signed (no {SIGNATURE_FILE})")
    comment = verify_message((folder / MANIFEST_FILE).read_bytes(), _lines(path), key, str(path))
    check_files(folder, manifest)
    return comment
