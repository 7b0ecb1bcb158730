"""Encoders that ONNX Runtime runs: the int8 program as the default of a shipped model, and PyTorch where it is used."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import tiny_models as tiny
import torch
from stock_models import write_stock

import msdc
from msdc.compress.student.io import save_student
from msdc.compress.student.plan import plan_for
from msdc.encoders.folder import SHIPPED
from msdc.errors import InputError
from msdc.export import export
from msdc.export.onnx.encoder import _opened
from msdc.files import user_cache
from msdc.loading import load_encoder
from msdc.scores import cosine_rows
from msdc.text.quickstart import parallel_table

TEXTS = ["one", "zwei Texte", "", "drei " * 50, "cuatro gatos"]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    return save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "student")


def programs():
    return sorted((user_cache() / "int8").glob("*.onnx"))


def test_a_shipped_model_is_its_int8_program():
    encoder, exact = load_encoder("msdc-mini"), load_encoder("msdc-mini", precision="float")
    assert (encoder.precision, exact.precision) == ("int8", "float")
    lines = [text for row in parallel_table()[1][:12] for text in row if text]
    cosines = cosine_rows(encoder.encode(lines), exact.encode(lines))
    assert 0.999 < cosines.min() < 1 - 1e-6
    assert encoder.fingerprint() != exact.fingerprint()
    assert encoder.source == exact.source == exact.fingerprint()
    encoder.max_seq_length = exact.max_seq_length = 32
    assert encoder.source == exact.source


def test_int8_is_the_program_of_an_export(folder, tmp_path):
    encoder = load_encoder(folder, precision="int8")
    export(folder, target="linux", runtime="onnx", precision="int8", output=tmp_path / "bundle")
    bundle = msdc.load_bundle(tmp_path / "bundle")
    assert np.array_equal(encoder.encode(TEXTS), bundle.encode(TEXTS))
    assert encoder.source == bundle.source


def test_the_plan_of_the_folder_decides(tmp_path):
    student = tiny.student()
    plan = plan_for(student, "int4-embed4")
    stored = save_student(student, tiny.tokenizer().path, tmp_path / "s", plan=plan)
    encoder = load_encoder(stored, precision="int8")
    export(stored, target="linux", runtime="onnx", output=tmp_path / "bundle")
    assert np.array_equal(encoder.encode(TEXTS), msdc.load_bundle(tmp_path / "bundle").encode(TEXTS))


def test_the_program_is_written_once_and_again_where_it_is_damaged(folder):
    expected_ND = load_encoder(folder, precision="int8").encode(TEXTS)
    (path,) = programs()
    before = path.stat().st_mtime_ns
    load_encoder(folder, precision="int8")
    assert path.stat().st_mtime_ns == before
    content = path.read_bytes()
    for damaged in (content[:-7], content[:300] + b"\0" * 9 + content[309:], b""):
        path.write_bytes(damaged)
        assert np.array_equal(load_encoder(folder, precision="int8").encode(TEXTS), expected_ND)
        assert [program.read_bytes() == content for program in programs()] == [True]


def test_another_model_has_another_program(folder, tmp_path):
    load_encoder(folder, precision="int8")
    other = save_student(tiny.student(seed=5), tiny.tokenizer().path, tmp_path / "other")
    assert not np.allclose(load_encoder(other, precision="int8").encode(TEXTS[:2]),
                           load_encoder(folder, precision="int8").encode(TEXTS[:2]), atol=1e-3)  # fmt: skip
    assert len(programs()) == 2


def test_a_cache_that_cannot_be_written_costs_time_only(folder, tmp_path, monkeypatch, capsys):
    expected_ND = load_encoder(folder, precision="int8").encode(TEXTS)
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert np.array_equal(load_encoder(folder, precision="int8").encode(TEXTS), expected_ND)
    assert "the int8 program is written anew by every process" in capsys.readouterr().err


def test_the_oldest_programs_are_dropped(folder, monkeypatch):
    monkeypatch.setattr("msdc.export.onnx.encoder.MOST_PROGRAMS", 2)
    (user_cache() / "int8").mkdir(parents=True)
    for number in range(3):
        old = user_cache() / "int8" / f"{number}-0.onnx"
        old.touch()
        os.utime(old, (number, number))
    load_encoder(folder, precision="int8")
    assert [path.name for path in programs() if path.stat().st_size == 0] == ["2-0.onnx"]
    assert len(programs()) == 2


def test_float_vectors_are_those_of_the_module(folder):
    encoder, expected = load_encoder(folder), tiny.student().eval()
    before_ND = encoder.encode(TEXTS)
    ids_BT = torch.tensor(encoder.tokenize(["zwei Texte"]))
    with torch.inference_mode():
        np.testing.assert_allclose(before_ND[1], expected(ids_BT, torch.ones_like(ids_BT))[0], atol=3e-6)
    assert encoder.module.width == encoder.full_width
    np.testing.assert_allclose(encoder.encode(TEXTS), before_ND, atol=3e-6)
    with torch.no_grad():
        next(encoder.module.parameters()).mul_(1.5)
    assert not np.allclose(encoder.encode(TEXTS), before_ND, atol=1e-4)
    assert encoder.encode(TEXTS, precision="bfloat16").shape == before_ND.shape


def test_an_int8_encoder_keeps_to_the_weights_of_its_folder(folder):
    encoder = load_encoder(folder, precision="int8")
    before_ND, other = encoder.encode(TEXTS), copy.copy(encoder)
    assert np.array_equal(encoder.encode(TEXTS), before_ND) and encoder.module is other.module
    with torch.no_grad():
        next(encoder.module.parameters()).mul_(1.5)
    for program_encoder in (encoder, other):
        with pytest.raises(InputError, match='module was changed, its int8 program was not; load it with precision="f'):
            program_encoder.encode(TEXTS)
    encoder.module = module = tiny.student(seed=5).eval()
    ids_BT = torch.tensor(encoder.tokenize(["zwei Texte"]))
    with torch.inference_mode():
        np.testing.assert_allclose(encoder.encode("zwei Texte"), module(ids_BT, torch.ones_like(ids_BT))[0], atol=1e-6)
    assert encoder.precision == "float"


def test_a_folder_that_changed_gives_no_module(folder):
    encoder = load_encoder(folder, precision="int8")
    save_student(tiny.student(seed=5), tiny.tokenizer().path, folder, force=True)
    with pytest.raises(InputError, match="changed since it was loaded"):
        encoder.module.parameters()


@pytest.mark.parametrize("precision", ["float", "int8"])
def test_encoders_are_pickled_and_copied(folder, precision):
    encoder = load_encoder(folder, precision=precision)
    encoder.max_seq_length, encoder.truncate_dim = 12, 5
    encoder.prompts = {"query": "q: "}
    for other in (pickle.loads(pickle.dumps(encoder)), copy.deepcopy(encoder), copy.copy(encoder)):
        assert np.array_equal(other.encode_query(TEXTS), encoder.encode_query(TEXTS))
        assert (other.precision, other.fingerprint(), other.source) == (
            precision, encoder.fingerprint(), encoder.source,
        )  # fmt: skip
    packed, vectors_ND = pickle.dumps(encoder), encoder.encode(TEXTS)
    first, second = pickle.loads(packed), pickle.loads(packed)
    assert first._runner() is second._runner()  # opened once, as for each task of a worker
    if precision == "float":
        with torch.no_grad():
            next(first.module.parameters()).mul_(1.5)
    assert np.array_equal(second.encode(TEXTS), vectors_ND)
    save_student(tiny.student(seed=5), tiny.tokenizer().path, folder, force=True)
    assert np.array_equal(pickle.loads(packed).encode(TEXTS), vectors_ND)
    _opened.clear()  # as in another process
    with pytest.raises(InputError, match="another model than the one that was pickled"):
        pickle.loads(packed)


def test_a_trained_encoder_is_pickled_with_its_weights(folder):
    encoder = load_encoder(folder)
    with torch.no_grad():
        next(encoder.module.parameters()).mul_(1.5)
    other = pickle.loads(pickle.dumps(encoder))
    assert np.array_equal(other.encode(TEXTS), encoder.encode(TEXTS))


def test_an_index_opens_with_every_precision_of_its_model(folder, tmp_path):
    export(folder, target="linux", runtime="onnx", precision="int8", output=tmp_path / "bundle")
    models = [load_encoder(folder), load_encoder(folder, precision="int8"), msdc.load_bundle(tmp_path / "bundle")]
    for number, writer in enumerate(models):
        path = tmp_path / f"{number}.sqlite"
        with msdc.open_index(path, writer) as index:
            index.add(["one two", "zwei Texte"])
        for reader in models:
            with msdc.open_index(path, reader) as index:
                assert index.search("zwei Texte").hits[0].text == "zwei Texte"
    other = load_encoder(save_student(tiny.student(seed=5), tiny.tokenizer().path, tmp_path / "other"))
    with pytest.raises(InputError, match="made with another"), msdc.open_index(tmp_path / "0.sqlite", other) as index:
        index.search("one")


def test_a_model_of_standard_classes_may_take_its_int8_program(tmp_path):
    stock = write_stock(tmp_path / "stock", "bert")
    exact, encoder = load_encoder(stock), load_encoder(stock, precision="int8")
    texts = ["der Hund lief zum Haus", "a dog ran"]
    assert (exact.precision, encoder.precision) == ("float", "int8")
    assert cosine_rows(exact.encode(texts), encoder.encode(texts)).min() > 0.98
    assert encoder.source == exact.source != encoder.fingerprint()
    assert encoder.module.width == exact.module.width
    (bundle,) = (user_cache() / "bundles").glob("*/stock/bundle.json")
    before = bundle.stat().st_mtime_ns
    load_encoder(stock, precision="int8")
    assert bundle.stat().st_mtime_ns == before
    with pytest.raises(InputError, match='are for precision="float"'):
        load_encoder(stock, trust_remote_code=True, precision="int8")


def test_what_int8_does_not_do_is_said(folder):
    encoder = load_encoder(folder, precision="int8")
    with pytest.raises(AttributeError):
        encoder.precision = "float"  # type: ignore[misc]
    with pytest.raises(InputError, match='precision="float"'):
        encoder.encode(TEXTS, precision="bfloat16")
    with pytest.raises(InputError, match="precision"):
        load_encoder(folder, precision="int4")  # type: ignore[arg-type]


CODE = """
import os, sys, msdc
texts = ["der Hund lief zum Haus", "a dog ran"] * 200
encoder = msdc.load_encoder("msdc-mini")
expected = encoder.encode(texts)
msdc.open_index(texts).search("dog")
print(sorted({"torch", "transformers", "huggingface_hub", "onnx", "scipy"} & set(sys.modules)))
child = os.fork()
if not child:
    os._exit(int(abs(encoder.encode(texts) - expected).max() > 0))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_the_default_imports_little_and_works_in_a_forked_child():
    load_encoder("msdc-mini")  # the program is kept
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr[-500:]


def test_a_shipped_model_is_pickled_by_its_name():
    """A worker has the package in another folder than the driver."""
    packed = pickle.dumps(msdc.load_encoder("msdc-nano"))
    assert str(SHIPPED).encode() not in packed
    assert pickle.loads(packed).encode(["a"]).shape == (1, 384)


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_of_an_encoder(folder, threads):
    for precision in ("float", "int8"):
        encoder = load_encoder(folder, precision=precision, threads=threads)
        assert encoder.encode(TEXTS).shape[0] == len(TEXTS)
        assert encoder._runner().batches_at_once == 1
        assert encoder.tokenizer.threads == threads
    with pytest.raises(InputError, match="`threads` 0: must be at least 1"):
        load_encoder(folder, threads=0)


def test_a_program_that_another_process_dropped_is_written_again(folder, monkeypatch):
    """Between the comparison of its hash and its opening."""
    from msdc.export.onnx import encoder as program_encoders

    load_encoder(folder, precision="int8")
    find, dropped = program_encoders._kept_program, []

    def drop_first(*arguments):
        program = find(*arguments)
        if not dropped:
            dropped.append(program.stored)
            program.stored.unlink()
        return program

    monkeypatch.setattr(program_encoders, "_kept_program", drop_first)
    assert load_encoder(folder, precision="int8").encode(TEXTS).shape[0] == len(TEXTS)
    assert dropped[0].is_file()
