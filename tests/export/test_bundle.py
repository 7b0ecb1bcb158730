"""A bundle as a user meets it: files, manifest and its seal, golden vectors, encode, both runtimes."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from programs import python
from pydantic import ValidationError

from msdc.errors import GateError, InputError
from msdc.export.bundle import load_bundle, open_tokenizer
from msdc.export.exporters import BundleOptions, write_bundle
from msdc.export.golden import Thresholds, golden_texts, read_golden
from msdc.export.manifest import MANIFEST_FILE, Manifest, check_files, read_manifest, write_manifest
from msdc.export.smoothing import TorchModel
from msdc.files import sha256_file

RUNTIMES = ["executorch", "onnx"]


def test_files_and_hashes():
    folder = tiny.bundle()
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "bundle.json", "golden.json", "README.md", "model.pte", "model.onnx", "model.onnx.data", "tokenizer.model"
    }  # fmt: skip
    manifest = read_manifest(folder)
    assert set(manifest.files) == names - {"bundle.json"}
    for name, record in manifest.files.items():
        assert record.sha256 == sha256_file(folder / name) and record.bytes == (folder / name).stat().st_size
    assert manifest.runtimes == RUNTIMES and manifest.gates == "passed"
    student = tiny.student()
    assert manifest.model.parameters == sum(value.numel() for value in student.parameters())
    assert manifest.model.encoder_parameters == sum(value.numel() for value in student.layers.parameters())
    assert manifest.model.embedding_parameters == tiny.tokenizer().size * 32 + 32 * 32 + tiny.MAX_LENGTH * 32
    assert (manifest.languages, manifest.licenses) == (["en", "de"], ["CC0"])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_golden_vectors_and_encode(runtime):
    golden = read_golden(tiny.bundle())
    bundle = load_bundle(tiny.bundle(), runtime)
    assert golden["texts"] == golden_texts() and len(golden["texts"]) > 100
    assert bundle.tokenize(golden["texts"]) == golden["ids"]
    np.testing.assert_allclose(bundle.encode(golden["texts"]), golden["vectors"][runtime], atol=1e-5)
    np.testing.assert_allclose(golden["vectors"]["float"], TorchModel(tiny.student()).vectors(golden["ids"]), atol=1e-6)
    assert max(len(row) for row in golden["ids"]) == tiny.MAX_LENGTH
    assert [bundle.tokenizer.bos_id, bundle.tokenizer.eos_id] in golden["ids"]
    texts = ["", "one", "a longer sentence than that", "word " * 500]
    vectors = bundle.encode(texts)
    assert vectors.shape == (4, 32) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(bundle.encode(texts[::-1])[::-1], vectors, atol=1e-6)
    assert bundle.encode([]).shape == (0, 32)
    for bad in ("one string", ["a", 3]):
        with pytest.raises(InputError):
            bundle.encode(bad)
    for ids in ([[]], [[1] * (tiny.MAX_LENGTH + 1)], [[-1]], [[tiny.tokenizer().size]]):
        with pytest.raises(InputError):
            bundle.encode_ids(ids)


def test_runtime_is_chosen_or_refused_and_onnx_needs_no_torch():
    with pytest.raises(InputError, match="executorch, onnx"):
        load_bundle(tiny.bundle(), "coreml")
    code = (
        "import sys; from msdc.export.bundle import load_bundle; "
        f"b = load_bundle({str(tiny.bundle())!r}, 'onnx'); b.encode(['a']); print('torch' in sys.modules)"
    )
    assert python(code).strip() == "False"


def test_a_bundle_replaced_while_it_is_loaded_is_refused(tmp_path, monkeypatch):
    """Checked, then replaced by another one: its program would answer under the first one's hashes."""
    folder = shutil.copytree(tiny.bundle(), tmp_path / "bundle")

    def replace(*args):
        shutil.rmtree(folder)
        shutil.copytree(tiny.bundle(), folder)
        return open_tokenizer(*args)

    monkeypatch.setattr("msdc.export.bundle.open_tokenizer", replace)
    with pytest.raises(InputError, match="changed while it was loaded"):
        load_bundle(folder)


def test_a_failed_gate_leaves_nothing_and_no_gates_marks_it(tmp_path):
    impossible = Thresholds(mean_cosine=1.5, min_cosine=None)
    options = BundleOptions(runtimes=("onnx",), precision="int8", thresholds=impossible)
    with pytest.raises(GateError, match="mean cosine"):
        write_bundle(tiny.student(), tiny.tokenizer(), tmp_path / "b", options=options)
    assert list(tmp_path.iterdir()) == []
    marked = replace(options, gates=False)
    manifest = write_bundle(tiny.student(), tiny.tokenizer(), tmp_path / "b", options=marked)
    assert manifest.gates == "skipped" and manifest.parity["onnx"].passed is False
    assert "--no-gates" in (tmp_path / "b" / "README.md").read_text()
    load_bundle(tmp_path / "b")


def test_misfits_are_refused_before_work(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("x")
    for options, vocabulary, said in (
        (BundleOptions(runtimes=("onnx",)), tiny.tokenizer().size, "--force"),
        (BundleOptions(max_length=999), tiny.tokenizer().size, "positions"),
        (BundleOptions(), 300, "rows"),
    ):
        with pytest.raises(InputError, match=said):
            write_bundle(tiny.student(vocabulary=vocabulary), tiny.tokenizer(), tmp_path / "b", options=options)
    assert (tmp_path / "b" / "mine").read_text() == "x"


@pytest.mark.slow
def test_two_exports_are_byte_identical(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import torch; torch.set_num_threads(1)\n"
        "import tiny_models as tiny; from pathlib import Path\n"
        "from msdc.export.exporters import *; from msdc.text.tokenizer import PieceTokenizer\n"
        "options = BundleOptions(runtimes=('executorch', 'onnx'), precision='int8', thresholds=tiny.LOOSE)\n"
        "tokenizer, out = PieceTokenizer(sys.argv[2]), Path(sys.argv[3])\n"
        "write_bundle(tiny.student(), tokenizer, out, name='tiny', options=options)"
    )
    here, other = tmp_path / "here", tmp_path / "other"
    # Other processes: hash seeds, import order and addresses differ.
    for out in (here, other):
        python(code, Path(tiny.__file__).parent, tiny.tokenizer().path, out)
    for name in [*read_manifest(here).files, "bundle.json"]:
        assert (here / name).read_bytes() == (other / name).read_bytes(), name


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
