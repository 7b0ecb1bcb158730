"""A bundle as a user meets it: files, manifest, golden vectors, encode, both runtimes."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny

from msdc.errors import GateError, InputError
from msdc.export.bundle import load_bundle
from msdc.export.manifest import read_manifest
from msdc.export.reference.float_model import TorchModel
from msdc.export.reference.gates import Thresholds
from msdc.export.reference.golden import golden_texts, read_golden
from msdc.export.writer import BundleOptions, write_bundle
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
    V = tiny.tokenizer().size
    assert manifest.model.embedding_parameters == V * 32 + 32 * 32 + tiny.MAX_LENGTH * 32
    assert (manifest.languages, manifest.licenses) == (["en", "de"], ["CC0"])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_golden_vectors_are_what_the_bundle_gives(runtime):
    golden = read_golden(tiny.bundle())
    bundle = load_bundle(tiny.bundle(), runtime)
    assert golden["texts"] == golden_texts() and len(golden["texts"]) > 100
    assert bundle.tokenize(golden["texts"]) == golden["ids"]
    np.testing.assert_allclose(bundle.encode(golden["texts"]), golden["vectors"][runtime], atol=1e-5)
    np.testing.assert_allclose(golden["vectors"]["float"], TorchModel(tiny.student()).vectors(golden["ids"]), atol=1e-6)
    assert max(len(row) for row in golden["ids"]) == tiny.MAX_LENGTH
    assert [bundle.tokenizer.bos_id, bundle.tokenizer.eos_id] in golden["ids"]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_encode_takes_what_a_user_gives(runtime):
    bundle = load_bundle(tiny.bundle(), runtime)
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


def test_runtime_is_chosen_or_refused():
    assert load_bundle(tiny.bundle()).runtime == "executorch"
    with pytest.raises(InputError, match="executorch, onnx"):
        load_bundle(tiny.bundle(), "coreml")


def test_onnx_needs_no_torch():
    code = (
        "import sys; from msdc.export.bundle import load_bundle; "
        f"b = load_bundle({str(tiny.bundle())!r}, 'onnx'); b.encode(['a']); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_failed_gate_leaves_nothing_and_no_gates_marks_it(tmp_path):
    impossible = Thresholds(mean_cosine=1.5, min_cosine=None)
    options = BundleOptions(runtimes=("onnx",), precision="int8", thresholds=impossible)
    with pytest.raises(GateError, match="mean cosine"):
        write_bundle(tiny.student(), tiny.tokenizer(), tmp_path / "b", options=options)
    assert list(tmp_path.iterdir()) == []
    marked = options.model_copy(update={"gates": False})
    manifest = write_bundle(tiny.student(), tiny.tokenizer(), tmp_path / "b", options=marked)
    assert manifest.gates == "skipped" and manifest.parity["onnx"].passed is False
    assert "--no-gates" in (tmp_path / "b" / "README.md").read_text()
    load_bundle(tmp_path / "b")


def test_existing_folder_is_kept_without_force(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("x")
    with pytest.raises(InputError, match="--force"):
        write_bundle(tiny.student(), tiny.tokenizer(), tmp_path / "b", options=BundleOptions(runtimes=("onnx",)))
    assert (tmp_path / "b" / "mine").read_text() == "x"


def test_misfits_are_refused_before_work(tmp_path):
    with pytest.raises(InputError, match="positions"):
        write_bundle(tiny.student(), tiny.tokenizer(), tmp_path / "b", options=BundleOptions(max_length=999))
    with pytest.raises(InputError, match="rows"):
        write_bundle(tiny.student(vocabulary=300), tiny.tokenizer(), tmp_path / "b")


@pytest.mark.slow
def test_two_exports_are_byte_identical(tmp_path):
    options = BundleOptions(runtimes=("executorch", "onnx"), precision="int8", thresholds=tiny.LOOSE)
    other = tmp_path / "other"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import torch; torch.set_num_threads(1)\n"
        "import tiny_models as tiny\n"
        "from pathlib import Path; from msdc.export.writer import *; from msdc.text.tokenizer import PieceTokenizer\n"
        "options = BundleOptions.model_validate_json(sys.argv[2])\n"
        "tokenizer, out = PieceTokenizer(sys.argv[3]), Path(sys.argv[4])\n"
        "write_bundle(tiny.student(), tokenizer, out, name='tiny', options=options)"
    )
    here_folder = str(Path(tiny.__file__).parent)
    arguments = [here_folder, options.model_dump_json(), str(tiny.tokenizer().path), str(other)]
    # Another process: hash seeds, import order and addresses differ.
    subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True)
    here = tmp_path / "here"
    write_bundle(tiny.student(), tiny.tokenizer(), here, name="tiny", options=options)
    for name in read_manifest(here).files:
        assert (here / name).read_bytes() == (other / name).read_bytes(), name
    assert (here / "bundle.json").read_bytes() == (other / "bundle.json").read_bytes()
