"""The schema of bundle.json: what it takes, what it refuses, and its seal."""

import hashlib
import json

import pytest
import tiny_models as tiny
from pydantic import ValidationError

from msdc.errors import InputError
from msdc.export.manifest import MANIFEST_FILE, Manifest, check_files, read_manifest, write_manifest


@pytest.fixture
def value() -> dict:
    return json.loads((tiny.bundle() / MANIFEST_FILE).read_text())


def test_round_trip_and_seal(tmp_path):
    """The seal is the hash of the file with zeros in its place."""
    write_manifest(tmp_path, read_manifest(tiny.bundle()))
    raw = (tmp_path / MANIFEST_FILE).read_bytes()
    assert raw == (tiny.bundle() / MANIFEST_FILE).read_bytes()
    seal = json.loads(raw)["seal"].encode()
    assert hashlib.sha256(raw.replace(seal, b"0" * 64)).hexdigest().encode() == seal


@pytest.mark.parametrize(
    ("path", "new"),
    [
        (["format"], 2), (["width"], 0), (["width"], "32"), (["width"], 2**40), (["surprise"], 1),
        (["target"], "toaster"),
        (["tokenizer", "file"], "../tokenizer.model"), (["tokenizer", "file"], "/etc/passwd"),
        (["tokenizer", "file"], "a\\b"), (["tokenizer", "file"], "C:x"), (["tokenizer", "kind"], "pickle"),
        (["tokenizer", "file"], "other.model"), (["programs", "onnx", "data"], "../x"), (["programs", "tflite"], {}),
        (["files", "../up"], {"sha256": "0" * 64, "bytes": 1}), (["files", "model.pte", "sha256"], "xyz"),
        (["files", "model.pte", "bytes"], -1), (["files", "model.pte", "bytes"], 2**50),
        (["files", "bundle.json"], {"sha256": "0" * 64, "bytes": 1}), (["parity", "tflite"], {}),
        (["normalized"], "yes"), (["languages"], "en"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(value, path, new):
    place = value
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    with pytest.raises(ValidationError):
        Manifest.model_validate(value)


def test_not_a_number_is_not_json(value, tmp_path):
    text = json.dumps(value).replace(str(value["parity"]["onnx"]["mean_cosine"]), "NaN", 1)
    (tmp_path / MANIFEST_FILE).write_text(text)
    with pytest.raises(InputError, match="not valid JSON"):
        read_manifest(tmp_path)


def test_a_missing_file_is_named(tmp_path):
    manifest = read_manifest(tiny.bundle())
    for name in manifest.files:
        (tmp_path / name).write_bytes((tiny.bundle() / name).read_bytes())
    check_files(tmp_path, manifest)
    (tmp_path / "model.pte").unlink()
    with pytest.raises(InputError, match=r"model\.pte is missing"):
        check_files(tmp_path, manifest)
