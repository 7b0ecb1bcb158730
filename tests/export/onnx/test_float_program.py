"""The float program stands in for PyTorch: the same vectors, the same scales of smoothing, the same artifact."""

import hashlib

import numpy as np
import pytest
import tiny_models as tiny
import torch

from msdc.compress.quantization.plan import plan_for
from msdc.compress.student.io import load_student, save_student
from msdc.compress.student.weights import read_weights
from msdc.encoders.encoder import load_encoder
from msdc.errors import InputError
from msdc.export.onnx.float_program import FloatProgram, ProgramEncoder
from msdc.export.smoothing import TorchModel, calibration_texts, smooth


@pytest.mark.parametrize("shape", tiny.SHAPES)
def test_runs_as_pytorch_does(shape):
    """Vectors and channel sizes, for every shape of student: recurring, coded, both places of the bottleneck."""
    student = tiny.student(**tiny.SHAPES[shape])
    one, other = TorchModel(student), FloatProgram(student.numbers())
    np.testing.assert_allclose(other.vectors(tiny.rows()), one.vectors(tiny.rows()), atol=3e-6, rtol=1e-5)
    rows = tiny.tokenizer().encode(calibration_texts()[:8], tiny.MAX_LENGTH)
    for found, wanted in zip(other.channel_sizes(rows), one.channel_sizes(rows), strict=True):
        np.testing.assert_allclose(np.stack(found), np.stack(wanted), rtol=1e-4)
    made = [smooth(model, plan_for(student, "int8"), tiny.tokenizer(), tiny.MAX_LENGTH) for model in (one, other)]
    for found, wanted in zip([*made[1].entry, *made[1].middle], [*made[0].entry, *made[0].middle], strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("precision", ["fp32", "int8", "int4-embed4"])
def test_folders_are_read_as_with_pytorch(precision, tmp_path):
    student = tiny.student()
    plan = None if precision == "fp32" else plan_for(student, precision)
    folder = save_student(student, tiny.tokenizer().path, tmp_path / "s", plan=plan)
    weights, loaded = read_weights(folder), load_student(folder)
    assert set(weights.scales) == set(loaded.stored_scales) and bool(weights.scales) == (plan is not None)
    for name, value in loaded.state_dict().items():
        assert torch.equal(torch.from_numpy(weights.arrays[name].copy()), value), name


def test_an_encoder_without_pytorch(tmp_path, monkeypatch):
    folder = save_student(tiny.student(), tiny.tokenizer().path, tmp_path / "s")
    encoder = load_encoder(folder)
    monkeypatch.setattr("msdc.encoders.encoder.installed", lambda package: False)
    program = load_encoder(folder)
    assert isinstance(program, ProgramEncoder)
    texts = ["one", "zwei Texte", "", "drei " * 50]
    np.testing.assert_allclose(program.encode(texts), encoder.encode(texts), atol=3e-6)
    np.testing.assert_allclose(program.encode(texts, truncate_dim=5), encoder.encode(texts, truncate_dim=5), atol=3e-6)
    assert program.fingerprint() == encoder.fingerprint() and repr(program) == repr(encoder)
    with pytest.raises(InputError, match=r"needs PyTorch: pip install 'msdc\[train\]'"):
        program.module.parameters()
    with pytest.raises(InputError, match="needs PyTorch"):
        program.encode(texts, precision="bfloat16")


def test_hash_of_weights_is_that_of_their_numbers():
    student = tiny.student()
    digest = hashlib.sha256()
    for name, value in sorted(student.state_dict().items()):
        digest.update(f"{name} {tuple(value.shape)}\0".encode())
        digest.update(value.float().numpy().tobytes())
    assert student.numbers().sha256() == digest.hexdigest()
