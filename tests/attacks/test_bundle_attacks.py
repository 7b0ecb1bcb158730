"""Malicious and damaged bundles: each gives a one-line `MsdcError`; nothing crashes, no program runs."""

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import numpy as np
import onnx
import pytest
import tiny_models as tiny
from folder_kinds import UNPOOLED, kind_bundle
from native_bombs import field
from native_core import CoreError, CoreTokenizer
from refusals import one_line, reseal

from msdc.errors import MsdcError
from msdc.export import origin
from msdc.export.bundle import load_bundle
from msdc.export.golden import read_golden
from msdc.export.inspect import inspect_file, inspect_path
from msdc.export.manifest import MANIFEST_FILE, check_files, read_manifest
from msdc.export.onnx import program as onnx_program
from msdc.export.onnx.program import check_onnx_file
from msdc.files import user_cache


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


@pytest.mark.parametrize("name", ["model.pte", "model.onnx", "model.onnx.data", "sentencepiece.model", "golden.json"])
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
    value["files"][where] = value["files"]["sentencepiece.model"]
    (copy / MANIFEST_FILE).write_text(json.dumps(value))
    assert "leave the bundle" in one_line(lambda: load_bundle(copy))


def test_a_link_that_leads_outside(copy, tmp_path):
    (tmp_path / "secret").write_bytes((copy / "README.md").read_bytes())
    (copy / "README.md").unlink()
    (copy / "README.md").symlink_to(tmp_path / "secret")
    assert "outside" in one_line(lambda: check_files(copy, read_manifest(copy)))
    (copy / "README.md").unlink()
    (copy / "README.md").symlink_to("README.md")
    assert "README.md: cannot be read" in one_line(lambda: load_bundle(copy))


def damage(data: bytes, generator: np.random.Generator) -> bytes:
    """One kind of damage to a file."""
    kind = generator.integers(5)
    position = int(generator.integers(1, len(data)))
    if kind == 0:
        return data[:position]
    if kind == 1:
        return data[:position] + data[position + int(generator.integers(1, 64)) :]
    changed = bytearray(data)
    if kind == 2:
        changed[position] ^= 1 << int(generator.integers(8))
    else:
        number = 2**32 - 1 if kind == 3 else int(generator.integers(0, 2**31))
        changed[position : position + 4] = number.to_bytes(4, "little")
    return bytes(changed)


def test_program_that_is_not_what_the_manifest_says(copy):
    manifest = read_manifest(copy)
    part = manifest.part("executorch")
    for name in ("width", "max_length", "vocabulary"):
        reseal(copy, tiny.bundle(), **{name: getattr(manifest, name) + 1})
        assert f"{name} is" in one_line(lambda: load_bundle(copy, "executorch"))
    for change, message in (({"repeats": 3}, "repeats is"), ({"style": "forward"}, "no method forward")):
        changed = part.model_copy(update=change)
        reseal(copy, tiny.bundle(), programs={"executorch": changed})
        assert message in one_line(lambda: load_bundle(copy, "executorch"))


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


def _loop(trips, extra=()):
    """Nodes of a Loop over the sentence vector, and its number of trips as an initializer or by a node."""
    info = onnx.helper.make_tensor_value_info
    ends = [info("c_out", 9, []), info("v_out", 1, None)]
    body = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["c"], ["c_out"]), onnx.helper.make_node("Identity", ["v"], ["v_out"])],
        "body", [info("i", 7, []), info("c", 9, []), info("v", 1, None)], ends,
    )  # fmt: skip
    return [*extra, onnx.helper.make_node("Loop", [trips, "", "old"], ["sentence_embedding"], body=body)]


def _filled(shape):
    """Nodes that add the least value of a tensor of zeros of a shape, which is the name of a value."""
    make = onnx.helper.make_node
    return [make("ConstantOfShape", [shape], ["zeros"]), make("ReduceMin", ["zeros"], ["least"], keepdims=0),
            make("Add", ["old", "least"], ["sentence_embedding"])]  # fmt: skip


_SIZE = [onnx.helper.make_node("Shape", ["input_ids"], ["size"])]
_COUNT = [*_SIZE, onnx.helper.make_node("ReduceMax", ["size"], ["count"], keepdims=0)]
HOSTILE = {
    "at most 256": (_loop("huge"), {"huge": np.array(2**62)}),
    "unknown trips": (_loop("count", _COUNT), {}),
    "larger than any of an encoder": (_filled("shape"), {"shape": np.array([2**31])}),
    "RandomNormalLike": ([onnx.helper.make_node("RandomNormalLike", ["old"], ["sentence_embedding"])], {}),
    # Its size is only known when it runs: the trial in a child process has bounded memory.
    "ONNX Runtime failed": (
        [*_SIZE, onnx.helper.make_node("Mul", ["size", "factor"], ["shape"]), *_filled("shape")],
        {"factor": np.array([2**17, 2**14])},
    ),
}


@pytest.mark.parametrize("named", HOSTILE)
def test_onnx_that_takes_all_time_or_memory_is_refused(copy, named):
    nodes, constants = HOSTILE[named]
    model = onnx.load(copy / "model.onnx", load_external_data=False)
    last = next(node for node in model.graph.node if "sentence_embedding" in node.output)
    last.output[list(last.output).index("sentence_embedding")] = "old"
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in constants.items())
    (copy / "model.onnx").write_bytes(model.SerializeToString())
    reseal(copy)
    assert named in one_line(lambda: load_bundle(copy, "onnx"))


def test_an_unknown_onnx_program_has_one_trial(copy, monkeypatch):
    model = onnx.load(copy / "model.onnx", load_external_data=False)
    model.producer_name = uuid.uuid4().hex  # a program that this machine never ran
    (copy / "model.onnx").write_bytes(model.SerializeToString())
    reseal(copy)
    asked, ask = [], origin.ask_child

    def watch(module, path, what, **request):
        asked.append(path.name)
        return ask(module, path, what, **request)

    monkeypatch.setattr(origin, "ask_child", watch)
    for folder in (copy, copy, tiny.bundle()):
        assert np.isfinite(load_bundle(folder, "onnx").encode("a")).all()
    assert asked == ["model.onnx"]


# A process in which a package cannot be imported.
WITHOUT = """
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == sys.argv[2]:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from msdc.export.executorch.program import read_pte
try:
    read_pte(Path(sys.argv[1]))
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("package", ["torch", "torchao"])
def test_a_missing_package_is_no_fault_of_the_file(copy, package):
    command = [sys.executable, "-c", WITHOUT, str(copy / "model.pte"), package]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0 and "damaged" not in done.stdout, (done.stdout, done.stderr[-500:])
    assert not done.stdout or done.stdout.startswith("ModuleNotFoundError"), done.stdout


def test_a_trial_without_pytorch_names_the_package(copy, tmp_path, monkeypatch):
    """The child finds no torch, as where it was never installed."""
    start = WITHOUT.partition("from msdc.")[0].replace("sys.argv[2]", '"torch"')
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "sitecustomize.py").write_text(start)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "start"))
    monkeypatch.setattr(origin, "is_known", lambda *_: False)
    message = one_line(lambda: load_bundle(copy, "executorch"))
    assert "needs PyTorch: pip install" in message
    assert "do not use" not in message


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


@pytest.fixture(params=["static", UNPOOLED])
def generic(request, tmp_path):
    _, bundle = kind_bundle(request.param, "both" if request.param == "static" else "onnx")
    folder = tmp_path / "bundle"
    shutil.copytree(bundle, folder)
    return folder


def test_tampered_tokenizers(generic, core_library):
    path = generic / "tokenizer.bin"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    assert "tokenizer.bin" in one_line(lambda: load_bundle(generic))
    with pytest.raises(CoreError, match=r"tokenizer\.bin: sha256 differs"):
        CoreTokenizer(core_library, generic)
    # With a new hash it is still no tokenizer once its header or its description is gone.
    for damaged in (raw[:64], b"\0" * len(raw), raw[: len(raw) // 2]):
        path.write_bytes(damaged)
        reseal(generic)
        with pytest.raises(CoreError) as refused:
            CoreTokenizer(core_library, generic)
        assert refused.value.status == 2
        assert "\n" not in refused.value.line


def test_a_manifest_that_tells_of_another_way(generic):
    """Methods and inputs are those of the program, whatever the manifest says of prompts and styles."""
    includes = read_manifest(generic).include_prompt
    reseal(generic, include_prompt=not includes)
    for runtime in read_manifest(generic).runtimes:
        message = "does not take 2 tensors" if runtime == "executorch" else "the program's inputs are"
        assert message in one_line(lambda: load_bundle(generic, runtime=runtime))  # noqa: B023
    reseal(generic, include_prompt=includes)
    part = read_manifest(generic).programs.executorch
    if part is not None:
        reseal(generic, programs={"executorch": part.model_copy(update={"style": "multi-method"})})
        assert "no method embed" in one_line(lambda: load_bundle(generic, runtime="executorch"))


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache, and a process that knows no program."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(origin, "_safe_programs", set())
    return tmp_path / "cache/msdc/programs"


def resealed(bundle: Path, folder: Path, program: bytes) -> Path:
    """A copy of `bundle` with another program, its hashes and seal made right: anybody can do that."""
    shutil.copytree(bundle, folder)
    (folder / "model.pte").write_bytes(program)
    reseal(folder)
    return folder


def test_programs_that_crash_or_are_refused(tiny_bundle, tmp_path, cache):
    """An operator whose name is not UTF-8: ExecuTorch's message about it ends the process with an abort."""
    program = (tiny_bundle / "model.pte").read_bytes()
    position = program.index(b"aten::") + len(b"aten::")
    folder = resealed(tiny_bundle, tmp_path / "crash", program[:position] + b"\xff" + program[position + 1 :])
    assert "crashes ExecuTorch (SIGABRT" in one_line(lambda: load_bundle(folder, "executorch"))
    folder = resealed(tiny_bundle, tmp_path / "refused", b"\0" * 64 + b"ET12" + b"\0" * 4096)
    assert "refuses the program" in one_line(lambda: load_bundle(folder, "executorch"))
    folder = resealed(tiny_bundle, tmp_path / "foreign", program.replace(b"XnnpackBackend", b"UnknownBackend"))
    assert "refuses the program" in one_line(lambda: load_bundle(folder, "executorch"))
    assert not list(cache.glob("*"))


def test_a_program_that_is_unknown_but_sound(tiny_bundle, tmp_path, cache, monkeypatch):
    program = bytearray((tiny_bundle / "model.pte").read_bytes())
    program[-64] ^= 1  # a weight
    folder = resealed(tiny_bundle, tmp_path / "bundle", bytes(program))
    sha256 = read_manifest(folder).files["model.pte"].sha256
    with monkeypatch.context() as changed:
        changed.setattr(origin, "TIMEOUT_S", 0.01)
        assert "did not end within 0.01 s" in one_line(lambda: load_bundle(folder, "executorch"))
    assert not origin.is_known(sha256)
    expected = load_bundle(folder, "executorch").encode(["hello"])
    assert [path.name.split("-")[0] for path in cache.glob("*.json")] == [sha256]

    def no_child(*args, **options):
        raise AssertionError("a child for a known program")

    monkeypatch.setattr(origin, "_safe_programs", set())
    monkeypatch.setattr(origin, "run_program", no_child)
    assert np.array_equal(load_bundle(folder, "executorch").encode(["hello"]), expected)


def test_exported_programs_are_known(tiny_bundle, monkeypatch):
    home = user_cache()
    home.mkdir(parents=True, exist_ok=True)
    if not os.access(home, os.W_OK):
        pytest.skip("the user's cache cannot be written here")
    monkeypatch.setattr(origin, "_safe_programs", set())
    assert origin.is_known(read_manifest(tiny_bundle).files["model.pte"].sha256)


def test_records_are_bounded(cache, monkeypatch):
    monkeypatch.setattr(origin, "MAX_RECORDS", 3)
    for number in range(6):
        origin.record_safe(f"{number:064d}", "exported")
        for age, path in enumerate(sorted(cache.glob("*.json"))):
            os.utime(path, (age, age))
    assert sorted(int(path.name[:64]) for path in cache.glob("*.json")) == [3, 4, 5]


def test_without_a_cache(tmp_path, monkeypatch):
    """A cache that cannot be made: programs are tried once per process."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(origin, "_safe_programs", set())
    origin.record_safe("0" * 64, "exported")
    assert origin.is_known("0" * 64)
    assert not origin.is_known("1" * 64)
