"""Malicious and damaged bundles: each gives a one-line `MsdcError`; nothing crashes, no program runs."""

import json
import shutil

import numpy as np
import onnx
import pytest
import tiny_models as tiny
from refusals import one_line, reseal

from msdc.errors import MsdcError
from msdc.export.bundle import load_bundle
from msdc.export.golden import read_golden
from msdc.export.inspect import inspect_file, inspect_path
from msdc.export.manifest import MANIFEST_FILE, check_files, read_manifest
from msdc.export.onnx import program as onnx_program
from msdc.export.onnx.program import check_onnx_file


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "bundle"
    shutil.copytree(tiny.bundle(), folder)
    return folder


def test_a_bit_of_the_manifest_flipped(copy):
    path = copy / MANIFEST_FILE
    raw = path.read_bytes()
    for index in range(0, len(raw), 3):
        # In turn: case, an adjacent character, white space to a mark, invalid UTF-8.
        flip = (0x01, 0x20, 0x80, 0x10)[index % 4]
        path.write_bytes(raw[:index] + bytes([raw[index] ^ flip]) + raw[index + 1 :])
        one_line(lambda: read_manifest(copy))
    deep = (b"[" * 100_000, b'{"a":' * 50_000)
    for data in (b"", raw[: len(raw) // 2], raw + b" " * (2 << 20), b"null", b"[]", b'"x"', b"\xff\xfe", *deep):
        path.write_bytes(data)
        one_line(lambda: load_bundle(copy))


@pytest.mark.parametrize("name", ["model.pte", "model.onnx", "model.onnx.data", "tokenizer.model", "golden.json"])
def test_a_damaged_file_is_named_before_anything_runs(copy, name):
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 3] ^= 0x40
    for damaged in (data, data[: len(data) // 2], data + b"\0" * 4096):
        (copy / name).write_bytes(damaged)
        assert name in one_line(lambda: load_bundle(copy))


@pytest.mark.parametrize("where", ["../outside.model", "/etc/passwd", "a/../../b", "..\\x", "c:evil"])
def test_paths_that_leave_the_bundle(copy, where):
    value = json.loads((copy / MANIFEST_FILE).read_text())
    value["tokenizer"]["file"] = where
    value["files"][where] = value["files"]["tokenizer.model"]
    (copy / MANIFEST_FILE).write_text(json.dumps(value))
    assert "leave the bundle" in one_line(lambda: load_bundle(copy))


def test_a_link_that_leads_outside(copy, tmp_path):
    (tmp_path / "secret").write_bytes((copy / "README.md").read_bytes())
    (copy / "README.md").unlink()
    (copy / "README.md").symlink_to(tmp_path / "secret")
    assert "outside" in one_line(lambda: check_files(copy, read_manifest(copy)))


def damage(data: bytes, generator: np.random.Generator) -> bytes:
    """One kind of damage to a file."""
    kind = generator.integers(5)
    at = int(generator.integers(1, len(data)))
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + data[at + int(generator.integers(1, 64)) :]
    changed = bytearray(data)
    if kind == 2:
        changed[at] ^= 1 << int(generator.integers(8))
    else:
        number = 2**32 - 1 if kind == 3 else int(generator.integers(0, 2**31))
        changed[at : at + 4] = number.to_bytes(4, "little")
    return bytes(changed)


def test_program_that_is_not_what_the_manifest_says(copy):
    manifest = read_manifest(copy)
    part = manifest.part("executorch")
    for name in ("width", "max_length", "vocabulary"):
        reseal(copy, tiny.bundle(), **{name: getattr(manifest, name) + 1})
        assert f"{name} is" in one_line(lambda: load_bundle(copy, "executorch"))
    for change, said in (({"repeats": 3}, "repeats is"), ({"style": "forward"}, "no method forward")):
        changed = part.model_copy(update=change)
        reseal(copy, tiny.bundle(), programs={"executorch": changed})
        assert said in one_line(lambda: load_bundle(copy, "executorch"))


@pytest.mark.parametrize("name", ["x.pte", "x.onnx"])
def test_files_that_are_no_programs(tmp_path, name):
    path = tmp_path / name
    for size in (0, 7, 4096):
        path.write_bytes(np.random.default_rng(size).bytes(size))
        one_line(lambda: inspect_path(path))
    with open(path, "wb") as handle:
        handle.write(b"\0\0\0\0ET12" if name == "x.pte" else b"")
        handle.truncate(5 * 1024**3)
    assert "larger than any" in one_line(lambda: inspect_path(path))


def external(folder, location: str, offset="0", length="64") -> None:
    """Change where the first external tensor of a bundle's model is stored."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    tensor = next(t for t in model.graph.initializer if t.external_data)
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def test_onnx_data_outside_its_folder(copy):
    (copy.parent / "secret.bin").write_bytes(b"s" * 4096)
    (copy / "link.bin").symlink_to(copy.parent / "secret.bin")
    places = ("../secret.bin", "/etc/passwd", "", "a/../../secret.bin", "..\\secret.bin", "x\0y", "link.bin")
    for location in places:
        external(copy, location)
        assert "outside" in one_line(lambda: check_onnx_file(copy / "model.onnx"))
    assert "outside" in one_line(lambda: inspect_path(copy / "model.onnx"))
    external(copy, places[0])
    reseal(copy)
    assert "outside" in one_line(lambda: load_bundle(copy, "onnx"))


@pytest.mark.parametrize(
    ("offset", "length"), [("0", str(2**40)), ("-1", "64"), ("x", "64"), (str(2**62), "64"), ("0", "-5")]
)
def test_onnx_data_beyond_its_file(copy, offset, length):
    external(copy, "model.onnx.data", offset, length)
    one_line(lambda: check_onnx_file(copy / "model.onnx"))


def test_onnx_with_foreign_operators_or_too_large(copy, monkeypatch):
    model = onnx.load(copy / "model.onnx", load_external_data=False)
    model.opset_import.add(domain="evil.custom", version=1)
    (copy / "model.onnx").write_bytes(model.SerializeToString())
    assert "evil.custom" in one_line(lambda: check_onnx_file(copy / "model.onnx"))
    reseal(copy)
    monkeypatch.setattr(onnx_program, "MAX_GRAPH_BYTES", 1000)
    assert "larger than any" in one_line(lambda: load_bundle(copy, "onnx"))


def field(number: int, body: bytes) -> bytes:
    """An encoded length-delimited field of a protobuf message."""
    length, rest = b"", len(body)
    while rest >= 128:
        length, rest = length + bytes([rest & 127 | 128]), rest >> 7
    return bytes([number << 3 | 2]) + length + bytes([rest]) + body


def test_damaged_onnx_never_crashes(tmp_path):
    data = (tiny.bundle() / "model.onnx").read_bytes()
    shutil.copy(tiny.bundle() / "model.onnx.data", tmp_path)
    generator, path = np.random.default_rng(2), tmp_path / "model.onnx"
    for _ in range(60):
        path.write_bytes(damage(data, generator))
        try:
            inspect_file(path, is_pte=False)
        except MsdcError as error:
            assert "\n" not in str(error)
    graph = b""
    for _ in range(5000):
        # graph.node.attribute.g, nested deeper than the stack allows
        graph = field(1, field(5, field(6, graph)))
    path.write_bytes(onnx.ModelProto(ir_version=10).SerializeToString() + field(7, graph))
    one_line(lambda: inspect_path(path))


def test_golden_file_of_a_stranger(copy):
    value = json.loads((copy / "golden.json").read_text())
    for change in ({"width": 10**9}, {"vectors": {"float": "!!!"}}, {"ids": "x"}, {"vectors": []}, {"texts": None}):
        (copy / "golden.json").write_text(json.dumps({**value, **change}))
        one_line(lambda: read_golden(copy))
