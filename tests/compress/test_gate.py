"""A compressed model is held to the source model's own encoding, and settings that a student lacks are obstacles."""

import json

import numpy as np
import pytest
import torch
from refusals import one_line
from stock_models import TEXTS, write_stock

import msdc
from msdc.compress import cut_student, quantize, trim
from msdc.compress.gate import require_same, require_written
from msdc.compress.student.stock import to_student
from msdc.encoders.encoder import Encoder
from msdc.errors import GateError, InputError
from msdc.export import export
from msdc.scores import cosine_rows


def edit(file, **changes) -> None:
    value = json.loads(file.read_text()) if file.is_file() else {}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**value, **changes}))


def test_another_layer_than_the_last_is_an_obstacle_and_exports(tmp_path):
    folder = write_stock(tmp_path / "model", "bert")
    text = {"method": "forward", "method_output_name": ["hidden_states", -2]}
    edit(folder / "sentence_bert_config.json", modality_config={"text": text}, module_output_name="token_embeddings")
    for number, verb in enumerate((
        lambda out: trim(str(folder), output=out, languages=["en", "de"]),
        lambda out: quantize(str(folder), output=out),
        lambda out: cut_student(str(folder), output=out, unit=1),
        lambda out: export(str(folder), target="linux", runtime="onnx", exporter="canonical", output=out),
    )):  # fmt: skip
        out = tmp_path / f"out{number}"
        assert "hidden_states" in one_line(lambda verb=verb, out=out: verb(out), InputError)
        assert not out.exists()
    manifest = export(
        str(folder), target="linux", runtime="onnx", precision="fp32", output=tmp_path / "bundle"
    ).manifest
    assert manifest.model.config["exporter"] == "generic"
    vectors = msdc.load_bundle(tmp_path / "bundle").encode(TEXTS)
    np.testing.assert_allclose(vectors, msdc.load_encoder(folder).encode(TEXTS), atol=1e-4)


@pytest.mark.parametrize(
    ("file", "changes"),
    [("3_Normalize/config.json", {"module_output_name": "other"}),
     ("2_Dense/config.json", {"module_input_name": "token_embeddings"})],
)  # fmt: skip
def test_a_module_that_works_on_something_else_is_an_obstacle(tmp_path, file, changes):
    folder = write_stock(tmp_path / "model", "bert", dense=(32, True, "activation.Tanh"))
    edit(folder / file, **changes)
    message = one_line(lambda: to_student(msdc.load_encoder(folder)), InputError)
    assert f"works on {next(iter(changes.values()))}" in message


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return msdc.load_encoder(write_stock(tmp_path_factory.mktemp("gate") / "model", "roberta", normalize=False))


def test_a_student_that_computes_something_else_is_refused(source):
    student = to_student(source)
    after = Encoder(student, source.tokenizer, source.max_length, "student")
    require_same(source, after)
    with torch.no_grad():
        student.layers[2].down.weight.mul_(1.2)
    assert "lowest cosine" in one_line(lambda: require_same(source, after), GateError)


def test_a_student_whose_vectors_have_another_length_is_refused(source):
    """No cosine shows it, a dot product does."""
    student = to_student(source)
    with torch.no_grad():
        for parameter in student.layers[-1].output_norm.parameters():
            parameter.mul_(1.01)
    after = Encoder(student, source.tokenizer, source.max_length, "student")
    assert "lowest cosine 1.0000, largest difference" in one_line(lambda: require_same(source, after), GateError)


def test_a_written_folder_is_read_back(source, tmp_path):
    after = Encoder(to_student(source), source.tokenizer, source.max_length, "student")
    require_written(source, after, msdc.load_encoder(source.folder), TEXTS[:3])
    # A small loss is refused too: more than that of rounding.
    damaged = to_student(source)
    with torch.no_grad():
        damaged.layers[2].down.weight.mul_(2.0)
    damaged = Encoder(damaged, source.tokenizer, source.max_length, "damaged")
    loss = 1 - cosine_rows(source.encode(TEXTS[:3]), damaged.encode(TEXTS[:3])).mean()
    assert 0.002 < loss < 0.1
    assert "the written folder has mean cosine" in one_line(
        lambda: require_written(source, after, damaged, TEXTS[:3]), GateError
    )
    other = msdc.load_encoder(write_stock(tmp_path / "other", "roberta", seed=5, normalize=False))
    assert "the written folder has mean cosine" in one_line(
        lambda: require_written(source, after, other, TEXTS[:3]), GateError
    )
