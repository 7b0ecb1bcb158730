"""Malicious and damaged bundles: each gives a one-line `MsdcError`; nothing crashes, no program runs."""

import json
import shutil

import numpy as np
import onnx
import pytest
import tiny_models as tiny
from refusals import one_line

from msdc.errors import MsdcError
from msdc.export.bundle import load_bundle
from msdc.export.executorch.pte import check_pte, read_pte
from msdc.export.inspect.report import inspect_path
from msdc.export.manifest import MANIFEST_FILE, check_files, list_files, read_manifest, write_manifest
from msdc.export.onnx.check import check_onnx_file
from msdc.export.reference.golden import read_golden


@pytest.fixture
def copy(tmp_path):
    folder = tmp_path / "bundle"
    shutil.copytree(tiny.bundle(), folder)
    return folder


def reseal(folder, change=None) -> None:
    """Recompute hashes and seal, as an attacker can."""
    manifest = read_manifest(tiny.bundle())
    manifest = manifest.model_copy(update={"files": list_files(folder), **(change or {})})
    (folder / MANIFEST_FILE).unlink()
    write_manifest(folder, manifest)


def test_every_byte_of_the_manifest_flipped(copy, record_property):
    path = copy / MANIFEST_FILE
    raw = path.read_bytes()
    record_property("tries", len(raw))
    for index in range(len(raw)):
        # In turn: case, an adjacent character, white space to a mark, invalid UTF-8.
        flip = (0x01, 0x20, 0x80, 0x10)[index % 4]
        path.write_bytes(raw[:index] + bytes([raw[index] ^ flip]) + raw[index + 1 :])
        one_line(lambda: read_manifest(copy))
    path.write_bytes(raw)
    read_manifest(copy)


def test_manifest_cut_emptied_swollen_or_no_json(copy):
    path = copy / MANIFEST_FILE
    raw = path.read_bytes()
    deep = b"[" * 100_000
    for data in (
        b"",
        raw[: len(raw) // 2],
        raw + b" " * (2 << 20),
        b"null",
        b"[]",
        b'"x"',
        b"\xff\xfe",
        deep,
        b'{"a":' * 50_000,
    ):
        path.write_bytes(data)
        one_line(lambda: load_bundle(copy))


@pytest.mark.parametrize("name", ["model.pte", "model.onnx", "model.onnx.data", "tokenizer.model", "golden.json"])
def test_a_damaged_file_is_named_before_anything_runs(copy, name):
    data = bytearray((copy / name).read_bytes())
    data[len(data) // 3] ^= 0x40
    (copy / name).write_bytes(data)
    assert name in one_line(lambda: load_bundle(copy))
    (copy / name).write_bytes(data[: len(data) // 2])
    assert name in one_line(lambda: load_bundle(copy))
    (copy / name).write_bytes(data + b"\0" * 4096)
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
    elif kind == 3:
        changed[at : at + 4] = b"\xff\xff\xff\xff"
    else:
        changed[at : at + 4] = int(generator.integers(0, 2**31)).to_bytes(4, "little")
    return bytes(changed)


def test_our_own_reader_of_programs_survives_any_damage(tmp_path, record_property):
    """Thousands of damaged programs: an `MsdcError` or a report, never another exception or a hang."""
    data = (tiny.bundle() / "model.pte").read_bytes()
    head = read_pte(tiny.bundle() / "model.pte").flatbuffer_bytes
    generator, path = np.random.default_rng(0), tmp_path / "x.pte"
    refused, tries = 0, 1500
    record_property("tries", tries)
    for _ in range(tries):
        # Most of the file is weights, where any value is valid; damage the structure.
        path.write_bytes(damage(data[:head], generator) + data[head:])
        try:
            read_pte(path, digests=False)
        except MsdcError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 500


def test_resealed_damage_in_the_program(copy, tmp_path, record_property):
    """With recomputed hashes: what our checks let pass is run in a child of the loading process, and may crash there.

    The loading process itself is a child of this test and must end by itself. More programs, and those known to
    crash ExecuTorch: test_program_origin.py.
    """
    import subprocess
    import sys

    count = 6
    record_property("tries", count)
    data = (copy / "model.pte").read_bytes()
    head = read_pte(copy / "model.pte").flatbuffer_bytes
    generator = np.random.default_rng(1)
    folders = []
    for number in range(count):
        folder = tmp_path / f"b{number}"
        shutil.copytree(copy, folder)
        (folder / "model.pte").write_bytes(damage(data[:head], generator) + data[head:])
        reseal(folder)
        folders.append(str(folder))
    code = (
        "import sys\nfrom msdc.export.bundle import load_bundle\nfrom msdc.errors import MsdcError\n"
        "for folder in sys.argv[1:]:\n"
        "    try: load_bundle(folder, 'executorch'); print('loaded')\n"
        "    except MsdcError as error: print('refused', str(error)[:80])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *folders], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.returncode, done.stdout[-500:], done.stderr[-500:])
    assert len(done.stdout.strip().splitlines()) == len(folders)


def test_program_that_is_not_what_the_manifest_says(copy):
    constants = {"repeats": 2, "width": 32, "max_length": tiny.MAX_LENGTH, "vocabulary": tiny.tokenizer().size}
    check_pte(copy / "model.pte", style="multi-method", constants=constants)
    for name in constants:
        wrong = {**constants, name: constants[name] + 1}
        assert name in one_line(
            lambda wrong=wrong: check_pte(copy / "model.pte", style="multi-method", constants=wrong)
        )
    assert "forward" in one_line(lambda: check_pte(copy / "model.pte", style="forward", constants=constants))
    reseal(copy, {"vocabulary": 10**6})
    one_line(lambda: load_bundle(copy, "executorch"))


@pytest.mark.parametrize("size", [0, 1, 7, 63, 4096])
@pytest.mark.parametrize("name", ["x.pte", "x.onnx"])
def test_tiny_and_random_programs(tmp_path, name, size):
    path = tmp_path / name
    path.write_bytes(np.random.default_rng(size).bytes(size))
    one_line(lambda: inspect_path(path))


def test_oversized_files_are_refused_by_their_size_alone(tmp_path):
    for name, size in (("x.pte", 5 * 1024**3), ("x.onnx", 3 * 1024**3)):
        with open(tmp_path / name, "wb") as handle:
            handle.truncate(size)
        assert "larger than any" in one_line(lambda name=name: inspect_path(tmp_path / name))


def external(folder, location: str, offset="0", length="64") -> None:
    """Change where the first external tensor of a bundle's model is stored."""
    model = onnx.load(folder / "model.onnx", load_external_data=False)
    tensor = next(t for t in model.graph.initializer if t.external_data)
    del tensor.external_data[:]
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        tensor.external_data.add(key=key, value=value)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


@pytest.mark.parametrize(
    "location", ["../secret.bin", "/etc/passwd", "", "a/../../secret.bin", "..\\secret.bin", "x\0y"]
)
def test_onnx_data_outside_its_folder(copy, location):
    (copy.parent / "secret.bin").write_bytes(b"s" * 4096)
    external(copy, location)
    assert "outside" in one_line(lambda: check_onnx_file(copy / "model.onnx"))
    assert "outside" in one_line(lambda: inspect_path(copy / "model.onnx"))
    reseal(copy)
    assert "outside" in one_line(lambda: load_bundle(copy, "onnx"))


def test_onnx_data_through_a_link(copy):
    (copy.parent / "secret.bin").write_bytes(b"s" * 4096)
    (copy / "link.bin").symlink_to(copy.parent / "secret.bin")
    external(copy, "link.bin")
    assert "outside" in one_line(lambda: check_onnx_file(copy / "model.onnx"))


@pytest.mark.parametrize(
    ("offset", "length"), [("0", str(2**40)), ("-1", "64"), ("x", "64"), (str(2**62), "64"), ("0", "-5")]
)
def test_onnx_data_beyond_its_file(copy, offset, length):
    external(copy, "model.onnx.data", offset, length)
    one_line(lambda: check_onnx_file(copy / "model.onnx"))


def test_onnx_with_foreign_operators(copy):
    model = onnx.load(copy / "model.onnx", load_external_data=False)
    model.opset_import.add(domain="evil.custom", version=1)
    (copy / "model.onnx").write_bytes(model.SerializeToString())
    assert "evil.custom" in one_line(lambda: check_onnx_file(copy / "model.onnx"))


def test_damaged_onnx_never_crashes(tmp_path, record_property):
    data = (tiny.bundle() / "model.onnx").read_bytes()
    shutil.copy(tiny.bundle() / "model.onnx.data", tmp_path)
    generator, path = np.random.default_rng(2), tmp_path / "model.onnx"
    tries = 150
    record_property("tries", tries)
    for _ in range(tries):
        path.write_bytes(damage(data, generator))
        try:
            inspect_path(path)
        except MsdcError as error:
            assert "\n" not in str(error)


def field(number: int, body: bytes) -> bytes:
    """An encoded length-delimited field of a protobuf message."""
    length, rest = b"", len(body)
    while rest >= 128:
        length, rest = length + bytes([rest & 127 | 128]), rest >> 7
    return bytes([number << 3 | 2]) + length + bytes([rest]) + body


def test_onnx_of_a_million_empty_parts_or_endless_graphs(tmp_path):
    """2 bytes per node on disk, hundreds in memory: refused by counting nodes before parsing."""
    path = tmp_path / "bomb.onnx"
    opset = onnx.helper.make_opsetid("", 21)
    head = onnx.ModelProto(ir_version=10, opset_import=[opset]).SerializeToString()
    path.write_bytes(head + field(7, b"\x0a\x00" * 1_500_000))
    assert "objects" in one_line(lambda: inspect_path(path))
    graph = b""
    for _ in range(5000):
        # graph.node.attribute.g, nested deeper than the stack allows
        graph = field(1, field(5, field(6, graph)))
    path.write_bytes(head + field(7, graph))
    one_line(lambda: inspect_path(path))
    path.write_bytes(head + field(7, field(5, field(7, b"\x01" * (65 << 20)))))
    assert "numbers" in one_line(lambda: inspect_path(path))


def test_golden_file_of_a_stranger(copy):
    value = json.loads((copy / "golden.json").read_text())
    for change in ({"width": 10**9}, {"vectors": {"float": "!!!"}}, {"ids": "x"}, {"vectors": []}, {"texts": None}):
        (copy / "golden.json").write_text(json.dumps({**value, **change}))
        one_line(lambda: read_golden(copy))
