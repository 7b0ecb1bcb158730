"""Signatures of bundles: minisign's own output, every change refused, the real program where it is installed."""

import base64
import hashlib
import json
import shutil
import subprocess

import pytest
from refusals import one_line

from msdc.export.bundle import load_bundle
from msdc.export.signature import SIGNATURE_FILE, PublicKey, verify_message, verify_signature

# minisign 0.11: -G -W, then -S -W -t 'msdc test bundle' of MESSAGE with -l (Ed) and without (ED).
MESSAGE = b'{"format": 1}\n'
KEY = "RWTgJ7ktwccS1p8hVwCGbMmZpip+zMnER6NEhctfDhWupLwLiwENnoPe"
SIGNATURES = {
    "Ed": [
        "untrusted comment: signature from minisign secret key",
        "RWTgJ7ktwccS1ozN41kBhUeskLAwQK0wfNSuilk9awuo6Gd6KFEFO2G4I6Fv1RW0RmEotEbPDWAC/kUFMZBoFjLscNrTxUQuIgM=",
        "trusted comment: msdc test bundle",
        "eM9ES77qhh7ipzvnndVLcDcyEvwaRyEXirVmQZ83B1tLEsKqaN84DGRFK8W4bMuBJigxW3Y2HqEtQdoio0mOCQ==",
    ],
    "ED": [
        "untrusted comment: signature from minisign secret key",
        "RUTgJ7ktwccS1htn2NyQrhJMR9xUXw0ZIK23X0M/uBNdj91lxpsaXLkVAcMyjpLeiAe1T0p+AmD+kCgeCwv92nd/Huv6OmPkMwM=",
        "trusted comment: msdc test bundle",
        "g9AkfAtlgkhYxCgTjO5rZaOlFeYgDWc1T5kmfoN+z+5C8t0W51DIJgDqk57Ahfgt0XMftwnQX+m4uBoq2idCCg==",
    ],
}


def sign(message: bytes, *, hashed: bool = True, comment: str = "by the test") -> tuple[str, str]:
    """A public key and the text of a signature, put together as minisign's format is described."""
    ed25519 = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    secret = ed25519.Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    number = b"8numbers"
    made = secret.sign(hashlib.blake2b(message).digest() if hashed else message)
    own = base64.b64encode((b"ED" if hashed else b"Ed") + number + made).decode()
    whole = base64.b64encode(secret.sign(made + comment.encode())).decode()
    key = base64.b64encode(b"Ed" + number + secret.public_key().public_bytes_raw()).decode()
    return key, f"untrusted comment: anything\n{own}\ntrusted comment: {comment}\n{whole}\n"


@pytest.fixture
def signed(tiny_bundle, tmp_path):
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    key, text = sign((folder / "bundle.json").read_bytes())
    (folder / SIGNATURE_FILE).write_text(text)
    return folder, key


@pytest.mark.parametrize("kind", SIGNATURES)
def test_what_minisign_writes(kind):
    pytest.importorskip("cryptography")
    assert verify_message(MESSAGE, SIGNATURES[kind], PublicKey.read(KEY)) == "msdc test bundle"


@pytest.mark.parametrize("kind", SIGNATURES)
def test_every_change_is_refused(kind):
    pytest.importorskip("cryptography")
    key, lines = PublicKey.read(KEY), SIGNATURES[kind]
    messages = [MESSAGE[:i] + bytes([MESSAGE[i] ^ 1]) + MESSAGE[i + 1 :] for i in range(len(MESSAGE))]
    for message in messages:
        assert "not one of this" in one_line(lambda message=message: verify_message(message, lines, key))
    for row in (1, 3):
        raw = base64.b64decode(lines[row])
        for at in range(len(raw)):
            changed = base64.b64encode(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :]).decode()
            altered = [*lines[:row], changed, *lines[row + 1 :]]
            one_line(lambda altered=altered: verify_message(MESSAGE, altered, key))
    for altered in ([*lines[:2], lines[2] + "s", lines[3]], lines[:3], [*lines[:2], "comment: x", lines[3]], [""] * 4):
        one_line(lambda altered=altered: verify_message(MESSAGE, altered, key))
    other = PublicKey(key.number, bytes([key.key[0] ^ 1]) + key.key[1:])
    one_line(lambda: verify_message(MESSAGE, lines, other))


def test_signed_bundle(signed, tmp_path):
    folder, key = signed
    assert verify_signature(folder, key) == "by the test"
    (tmp_path / "key.pub").write_text(f"untrusted comment: key\n{key}\n")
    assert load_bundle(folder, "onnx", public_key=tmp_path / "key.pub").width > 0
    assert "another key" in one_line(lambda: load_bundle(folder, "onnx", public_key=KEY))
    for wrong in ("RWQ", str(tmp_path / "none"), tmp_path):
        one_line(lambda wrong=wrong: verify_signature(folder, wrong))


def test_a_resealed_bundle_is_not_the_signed_one(signed):
    folder, key = signed
    text = (folder / "bundle.json").read_text(encoding="utf-8")
    changed = json.loads(text)
    changed["name"] = "other"
    from native_core import seal

    (folder / "bundle.json").write_text(seal({**changed, "seal": ""}), encoding="utf-8")
    assert "not one of this bundle.json" in one_line(lambda: load_bundle(folder, "onnx", public_key=key))
    (folder / "bundle.json").write_text(text, encoding="utf-8")
    (folder / "golden.json").write_text("{}")
    assert "golden.json" in one_line(lambda: verify_signature(folder, key))
    (folder / SIGNATURE_FILE).unlink()
    assert "not signed" in one_line(lambda: verify_signature(folder, key))


@pytest.mark.parametrize("options", [[], ["-l"]])
def test_minisign_itself(tiny_bundle, tmp_path, options):
    if shutil.which("minisign") is None:
        pytest.skip("minisign is not installed: apt-get install minisign")
    pytest.importorskip("cryptography")
    folder = tmp_path / "bundle"
    shutil.copytree(tiny_bundle, folder)
    public, secret = tmp_path / "key.pub", tmp_path / "key.sec"
    subprocess.run(["minisign", "-G", "-W", "-p", public, "-s", secret], check=True, capture_output=True)
    command = ["minisign", "-S", "-W", *options, "-s", secret, "-m", folder / "bundle.json", "-t", "version 7"]
    subprocess.run(command, check=True, capture_output=True)
    assert verify_signature(folder, public) == "version 7"
    # And ours is read by minisign.
    message = tmp_path / "message"
    message.write_bytes(MESSAGE)
    key, text = sign(MESSAGE, hashed=not options)
    (tmp_path / "message.minisig").write_text(text)
    subprocess.run(["minisign", "-V", "-P", key, "-m", message], check=True, capture_output=True)
