"""A bundle: files, manifest and its seal, golden vectors and their gates, signature, encode in both runtimes."""

import base64
import copy
import hashlib
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from native_core import seal
from programs import python
from pydantic import ValidationError
from refusals import one_line

from msdc.compress.student.model import pool_tokens
from msdc.errors import GateError, InputError
from msdc.export.bundle import load_bundle, open_tokenizer
from msdc.export.exporters import write_bundle
from msdc.export.golden import (
    FP32,
    INT4,
    INT8,
    Thresholds,
    decode_vectors,
    encode_vectors,
    farthest,
    golden_texts,
    length_error,
    parity_of,
    read_golden,
    run_once,
    shortfalls,
    thresholds_for,
    tokenizers_agree,
)
from msdc.export.manifest import MANIFEST_FILE, Manifest, Parity, check_files, read_manifest, write_manifest
from msdc.export.options import ExportSettings
from msdc.export.signature import SIGNATURE_FILE, PublicKey, verify_message, verify_signature
from msdc.export.smoothing import TorchModel
from msdc.files import sha256_file
from msdc.text.tokenizer import JSON_FILE, FastTokenizer, PieceTokenizer, write_fast_copy

RUNTIMES = ["executorch", "onnx"]


def test_files_and_hashes():
    folder = tiny.bundle()
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "bundle.json", "golden.json", "README.md", "model.pte", "model.onnx", "model.onnx.data", "sentencepiece.model"
    }  # fmt: skip
    manifest = read_manifest(folder)
    assert set(manifest.files) == names - {"bundle.json"}
    for name, record in manifest.files.items():
        assert record.sha256 == sha256_file(folder / name)
        assert record.bytes == (folder / name).stat().st_size
    assert manifest.runtimes == RUNTIMES
    assert manifest.gates == "passed"
    student = tiny.student()
    assert manifest.model.parameters == sum(value.numel() for value in student.parameters())
    assert manifest.model.encoder_parameters == sum(value.numel() for value in student.layers.parameters())
    assert manifest.model.embedding_parameters == tiny.tokenizer().size * 32 + 32 * 32 + tiny.MAX_LENGTH * 32
    assert (manifest.languages, manifest.licenses) == (["en", "de"], ["CC0"])


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_golden_vectors_and_encode(runtime):
    golden = read_golden(tiny.bundle())
    bundle = load_bundle(tiny.bundle(), runtime)
    assert golden["texts"] == golden_texts()
    assert len(golden["texts"]) > 100
    assert bundle.tokenize(golden["texts"]) == golden["ids"]
    np.testing.assert_allclose(bundle.encode(golden["texts"]), golden["vectors"][runtime], atol=1e-5)
    np.testing.assert_allclose(golden["vectors"]["float"], TorchModel(tiny.student()).vectors(golden["ids"]), atol=1e-6)
    assert max(len(row) for row in golden["ids"]) == tiny.MAX_LENGTH
    assert [bundle.tokenizer.bos_id, bundle.tokenizer.eos_id] in golden["ids"]
    texts = ["", "one", "a longer sentence than that", "word " * 500]
    vectors = bundle.encode(texts)
    assert vectors.shape == (4, 32)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_allclose(bundle.encode(texts[::-1])[::-1], vectors, atol=1e-6)
    assert bundle.encode([]).shape == (0, 32)
    np.testing.assert_array_equal(bundle.encode(texts[1], show_progress_bar=False), vectors[1])
    np.testing.assert_allclose(
        bundle.similarity(vectors[:1], vectors), bundle.encode_query(texts[:1]) @ vectors.T, atol=1e-6
    )
    for bad in (7, ["a", 3]):
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
    options = ExportSettings(runtime="onnx", precision="int8", thresholds=impossible)
    with pytest.raises(GateError, match="mean cosine"):
        write_bundle(tiny.student(), tiny.tokenizer(), tmp_path / "b", options=options)
    assert list(tmp_path.iterdir()) == []
    marked = options.model_copy(update={"gates": False})
    manifest = write_bundle(tiny.student(), tiny.tokenizer(), tmp_path / "b", options=marked)
    assert manifest.gates == "skipped"
    assert manifest.parity["onnx"].passed is False
    assert "--no-gates" in (tmp_path / "b" / "README.md").read_text()
    load_bundle(tmp_path / "b")


@pytest.fixture(scope="module")
def one_failed(tmp_path_factory):
    """An export for both runtimes whose gate lies between what they reach, as a mapping.

    `better` and `worse`: the runtimes. `folder`, `error`: the bundle and the message. `read`, `quantized`: how often.
    """
    from msdc.compress.student.model import Student
    from msdc.export import smoothing

    reached = {name: part.mean_cosine for name, part in read_manifest(tiny.bundle()).parity.items()}
    better, worse = sorted(reached, key=lambda name: -reached[name])
    between = Thresholds(mean_cosine=(reached[better] + reached[worse]) / 2, min_cosine=None)
    options = ExportSettings(precision="int8", thresholds=between)
    folder, read, quantized = tmp_path_factory.mktemp("gate") / "b", [], []
    numbers, integers = Student.to_numpy, smoothing.integers
    with pytest.MonkeyPatch.context() as patch, pytest.raises(GateError) as caught:
        patch.setattr(Student, "to_numpy", lambda self: read.append(1) or numbers(self))
        patch.setattr(smoothing, "integers", lambda weights, plan: quantized.append(1) or integers(weights, plan))
        write_bundle(tiny.student(), tiny.tokenizer(), folder, options=options)
    return {
        "better": better, "worse": worse, "folder": folder, "error": str(caught.value),
        "read": len(read), "quantized": len(quantized),
    }  # fmt: skip


def test_a_runtime_that_fails_its_gate_does_not_stop_the_other(one_failed):
    """The text that is farthest off is named."""
    better, worse, folder = one_failed["better"], one_failed["worse"], one_failed["folder"]
    assert re.match(
        rf"{worse} int8: mean cosine .*worst on golden text \d+ '.*', cosine 0\.\d+; "
        rf"try `precision=\"fp32\"`; `gates=False` writes it anyway; .*b contains {better} only$",
        one_failed["error"],
    )
    manifest = load_bundle(folder).manifest
    assert manifest.runtimes == [better]
    assert list(read_golden(folder)["vectors"]) == ["float", better]
    # Nothing of the other one is left, and a module that needs it is not written.
    assert {path.name for path in folder.iterdir()} == {*manifest.files, "bundle.json"}


def test_weights_are_read_and_quantized_once_for_both_runtimes(one_failed):
    assert (one_failed["read"], one_failed["quantized"]) == (1, 1)


def test_misfits_are_refused_before_work(tmp_path):
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine").write_text("x")
    for options, vocabulary, message in (
        (ExportSettings(runtime="onnx"), tiny.tokenizer().size, "`force`"),
        (ExportSettings(max_length=999), tiny.tokenizer().size, "positions"),
        (ExportSettings(), 300, "rows"),
    ):
        with pytest.raises(InputError, match=message):
            write_bundle(tiny.student(vocabulary=vocabulary), tiny.tokenizer(), tmp_path / "b", options=options)
    assert (tmp_path / "b" / "mine").read_text() == "x"


@pytest.mark.slow
def test_two_exports_are_byte_identical(tmp_path):
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import torch; torch.set_num_threads(1)\n"
        "import tiny_models as tiny; from pathlib import Path\n"
        "from msdc.export.exporters import write_bundle; from msdc.export.options import ExportSettings\n"
        "from msdc.text.tokenizer import PieceTokenizer\n"
        "options = ExportSettings(runtime='both', precision='int8', thresholds=tiny.LOOSE)\n"
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
        (["tokenizer", "file"], "../sentencepiece.model"), (["tokenizer", "file"], "/etc/passwd"),
        (["tokenizer", "file"], "a\\b"), (["tokenizer", "file"], "C:x"), (["tokenizer", "kind"], "pickle"),
        (["tokenizer", "file"], "other.model"), (["programs", "onnx", "data"], "../x"), (["programs", "tflite"], {}),
        (["files", "../up"], {"sha256": "0" * 64, "bytes": 1}), (["files", "model.pte", "sha256"], "xyz"),
        (["files", "model.pte", "bytes"], -1), (["files", "model.pte", "bytes"], 2**50),
        (["files", "bundle.json"], {"sha256": "0" * 64, "bytes": 1}), (["parity", "tflite"], {}),
        (["normalized"], "yes"), (["languages"], "en"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(value, path, new):
    parent = value
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = new
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


def test_parity_by_hand():
    reference = np.array([[3.0, 4.0], [0.6, 0.8]], np.float32)
    vectors = np.array([[4.0, 3.0], [0.6, 0.8]], np.float32)
    parity = parity_of(reference, vectors, 0.96)
    assert parity.mean_cosine == pytest.approx((24 / 25 + 1) / 2, abs=1e-6)
    assert parity.texts == 2
    assert parity.min_cosine == pytest.approx(24 / 25, abs=1e-6)
    # the first row has length 5, so its error of 1 counts as 0.2
    assert parity.max_abs == pytest.approx(0.2)
    assert farthest(reference, vectors, ["one", "two"]) == "worst on golden text 0 'one', cosine 0.960000"
    zero = np.zeros((1, 2), np.float32)
    assert parity_of(zero, zero, None).min_cosine == 1
    assert parity_of(zero, vectors[:1], None).min_cosine == 0
    # a row shorter than 1 is compared as it is
    assert parity_of(zero, vectors[1:], None).max_abs == pytest.approx(0.8)
    assert parity_of(reference[1:] / 4, vectors[1:] / 2, None).max_abs == pytest.approx(0.2)
    with pytest.raises(GateError, match="golden text 0 'one': the artifact's vector holds NaN"):
        parity_of(zero, np.full((1, 2), np.nan, np.float32), None, ["one"])


GOOD = {"mean_cosine": 0.9985, "min_cosine": 0.991, "max_abs": 0.02, "texts": 9, "low_bit_share": 0.97}
EXACT = {"mean_cosine": 1.0, "min_cosine": 1.0, "max_abs": 9e-5, "texts": 1}


@pytest.mark.parametrize(
    ("limits", "values", "word"),
    [
        (INT8, GOOD, None), (INT8, GOOD | {"mean_cosine": 0.997}, "mean"), (INT8, GOOD | {"min_cosine": 0.98}, "min"),
        (INT8, GOOD | {"low_bit_share": 0.94}, "8-bit"), (FP32, EXACT, None), (FP32, EXACT | {"max_abs": 2e-4}, "max"),
    ],
)  # fmt: skip
def test_gates(limits, values, word):
    failures = shortfalls(Parity(**values), limits)
    assert (word is None and not failures) or (len(failures) == 1 and word in failures[0])
    never = Parity(**EXACT).model_copy(update={"mean_cosine": float("nan")})
    assert shortfalls(never, limits), "NaN must never pass"
    assert thresholds_for({"fp32"}, False) is FP32
    assert thresholds_for({"fp32", "int8"}, False) is INT8
    assert thresholds_for({"int8", "int4"}, False) is INT4
    assert thresholds_for({"int8"}, True).length_error < INT8.length_error < INT4.length_error


def test_a_length_other_than_the_models_is_not_exported():
    """A dot product of unit vectors is the cosine only if the program normalises: no cosine shows whether it does."""
    reference_ND = np.array([[0.6, 0.8], [1.0, 0.0], [0.0, 0.0]], np.float32)
    assert length_error(reference_ND, reference_ND) == 0
    short_ND = reference_ND * np.array([[1.0], [0.9], [1.0]], np.float32)
    parity = parity_of(reference_ND, short_ND, None)
    assert parity.mean_cosine == 1
    assert parity.length_error == pytest.approx(0.1)
    assert shortfalls(parity, INT8) == []
    assert shortfalls(parity, thresholds_for({"int8"}, True)) == ["a vector's length differs by 10 % (at most 0.1 %)"]
    assert len(shortfalls(parity_of(reference_ND, 2 * reference_ND, None), INT8)) == 1
    # Relative to the row's own length, however short it is.
    assert length_error(0.01 * reference_ND, 0.01 * short_ND) == pytest.approx(0.1)


@pytest.mark.parametrize(("longest", "lengths"), [(1, [1]), (2, [1, 2]), (24, [1, 2, 24])])
def test_a_fresh_program_runs_at_its_shortest_and_longest_texts(longest, lengths):
    encoded_rows = []
    run_once(lambda rows: encoded_rows.extend(rows) or np.ones((1, 4), np.float32), 5, 4, longest, "x")
    assert [len(row) for row in encoded_rows] == lengths
    assert all(type(token_id) is int and 0 <= token_id < 5 for row in encoded_rows for token_id in row)
    assert len(set(encoded_rows[-1])) == min(longest, 5)
    for wrong in (np.ones((1, 3)), np.ones((2, 4)), np.full((1, 4), np.nan), np.array([[1, 1, 1, np.inf]])):
        with pytest.raises(GateError, match=f"x: no finite vector of width 4 at length {lengths[-1]}"):
            run_once(lambda rows, end=wrong: end if len(rows[0]) == longest else np.ones((1, 4)), 5, 4, longest, "x")


@pytest.mark.parametrize("runtime", ["executorch", "onnx"])
def test_vectors_shorter_than_one_before_normalisation_have_length_one(tmp_path, runtime):
    """Pooled vectors of length 0.01 to 0.1: a norm clamped at 1 instead of 1e-12 would leave them short."""
    student = copy.deepcopy(tiny.student())
    with torch.no_grad():
        student.layers[-1].output_norm.weight.mul_(0.01)
        student.layers[-1].output_norm.bias.mul_(0.01)
    texts = ["one", "two words", "drei"]
    with torch.no_grad():
        for row in map(torch.tensor, tiny.tokenizer().encode(texts, tiny.MAX_LENGTH)):
            pooled_1H = pool_tokens(student.hidden(row[None], torch.ones(1, len(row))), torch.ones(1, len(row)), "mean")
            assert 0 < pooled_1H.norm() < 0.5
    options = ExportSettings(runtime=runtime, precision="fp32")
    write_bundle(student, tiny.tokenizer(), tmp_path / "bundle", name="small", options=options)
    vectors_ND = load_bundle(tmp_path / "bundle", runtime).encode(texts)
    assert np.allclose(np.linalg.norm(vectors_ND, axis=1), 1, atol=1e-5)


def test_vectors_survive_base64():
    vectors = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)
    assert (decode_vectors(encode_vectors(vectors), 3, 5) == vectors).all()
    for bad in ("***", encode_vectors(vectors)[:-8]):
        with pytest.raises(InputError):
            decode_vectors(bad, 3, 5)


def test_golden_texts_hold_the_corners():
    texts = golden_texts()
    assert {"", " "} <= set(texts)
    assert len(texts) == len(set(texts)) > 100
    assert any(len(text) > 3000 for text in texts)
    assert any("<s>" in text for text in texts)


def test_agreement_gate_names_the_text(tmp_path):
    model = tmp_path / "tokenizer.model"
    model.write_bytes(tiny.tokenizer().path.read_bytes())
    tokenizer = PieceTokenizer(model)
    tokenizers_agree(tokenizer, golden_texts(), 64)
    write_fast_copy(model, tmp_path / JSON_FILE)
    tokenizers_agree(tokenizer, golden_texts(), 64)
    # a twin that folds case is not a twin
    from tokenizers import Tokenizer, normalizers

    backend = Tokenizer.from_file(str(tmp_path / JSON_FILE))
    backend.normalizer = normalizers.Lowercase()
    backend.save(str(tmp_path / JSON_FILE))
    with pytest.raises(GateError, match="differ on"):
        tokenizers_agree(tokenizer, golden_texts(), 64)
    # nor is one that gives as many ids, two of them exchanged
    write_fast_copy(model, tmp_path / JSON_FILE)
    table = json.loads((tmp_path / JSON_FILE).read_text(encoding="utf-8"))
    rows = table["model"]["vocab"]
    first, second = (index for index, (text, _) in enumerate(rows) if text in ("\u2581a", "\u2581b"))
    rows[first][0], rows[second][0] = rows[second][0], rows[first][0]
    (tmp_path / JSON_FILE).write_text(json.dumps(table), encoding="utf-8")
    with pytest.raises(GateError, match="differ on"):
        tokenizers_agree(tokenizer, ["a b"], 64)


@pytest.fixture(scope="module")
def twins(tmp_path_factory) -> tuple[PieceTokenizer, FastTokenizer]:
    path = tmp_path_factory.mktemp("twin") / JSON_FILE
    write_fast_copy(tiny.tokenizer().path, path)
    return tiny.tokenizer(), FastTokenizer(path)


# Surrogates are no text; U+0000 ends a C string inside some tools and is not text either.
TEXTS = st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=60)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        TEXTS,
        st.lists(st.sampled_from([*"abe .,\u00fc\u3000\u2581\u200b", "<s>", "</s>", "<unk>", "<pad>", "  "])).map(
            "".join
        ),
    )
)
@example("<s")
@example("<s><s></s>")
@example("<<s>>")
@example("\u2581\u2581")
@example("\x85")
@example(" \n a \n ")
def test_twin_segments_any_text_alike(twins, text):
    pieces, fast = twins
    assert pieces.encode([text], 500) == fast.encode([text], 500)


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
    signature = secret.sign(hashlib.blake2b(message).digest() if hashed else message)
    message_signature = base64.b64encode((b"ED" if hashed else b"Ed") + number + signature).decode()
    comment_signature = base64.b64encode(secret.sign(signature + comment.encode())).decode()
    key = base64.b64encode(b"Ed" + number + secret.public_key().public_bytes_raw()).decode()
    return key, f"untrusted comment: anything\n{message_signature}\ntrusted comment: {comment}\n{comment_signature}\n"


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
        for position in range(len(raw)):
            changed = base64.b64encode(raw[:position] + bytes([raw[position] ^ 4]) + raw[position + 1 :]).decode()
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
    assert verify_signature(folder, f" {key}\n") == "by the test"
    for wrong in ("RWQ", "RWQ\nRWQ", str(tmp_path / "none"), tmp_path):
        one_line(lambda wrong=wrong: verify_signature(folder, wrong))


def test_a_resealed_bundle_is_not_the_signed_one(signed):
    folder, key = signed
    text = (folder / "bundle.json").read_text(encoding="utf-8")
    changed = json.loads(text)
    changed["name"] = "other"
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
