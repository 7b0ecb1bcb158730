"""What is stored of shipped models, so that nobody measures it again: cosines of unrelated sentences, channel sizes.

`make generated` writes both where the shipped models are others than those measured.
"""

import numpy as np
import pytest
from generated import WRITES
from safetensors.numpy import save_file

import msdc
from msdc.compress.student.plan import NORM_READERS
from msdc.compress.student.weights import read_weights
from msdc.encoders.encoder import unrelated_cosines
from msdc.encoders.folder import SHIPPED, shipped_cosines, shipped_names
from msdc.encoders.source import ModelSource
from msdc.export.onnx.float_program import FloatProgram
from msdc.export.smoothing import calibration_texts, shipped_sizes, smooth_by
from msdc.files import write_json
from msdc.text.tokenizer import load_tokenizer

NAMES = shipped_names()


def measured_cosines(model) -> tuple[float, float]:
    return unrelated_cosines(model.tokenizer, model.max_length, model.encode)


def open_weights(name):
    source = ModelSource(SHIPPED / name, name)
    return read_weights(source.folder, source.read), source.identity()


def measured_sizes(name, weights):
    rows = load_tokenizer(SHIPPED / name, weights.config.pad_id).encode(calibration_texts(), weights.config.positions)
    return FloatProgram(weights).channel_sizes(rows)


def test_models_are_written():
    models = {name: msdc.load_encoder(name, precision="float") for name in NAMES}
    if shipped_cosines().keys() == {model.source for model in models.values()}:
        return
    assert WRITES, "other models are measured than shipped: run make generated"
    cosines, sizes = {}, {}
    for name, model in models.items():
        cosines[model.source] = measured_cosines(model)
        weights, identity = open_weights(name)
        if weights.config.unit:
            measured = measured_sizes(name, weights)
            sizes |= {
                f"{identity}.{state}": np.array(rows, np.float32)
                for state, rows in zip(NORM_READERS, measured, strict=True)
            }
    write_json(SHIPPED / "cosines.json", cosines)
    save_file(sizes, SHIPPED / "channel_sizes.safetensors")


@pytest.mark.parametrize("name", NAMES)
def test_the_cosines_of_a_shipped_model_are_the_measured_ones(name):
    model = msdc.load_encoder(name, precision="float")
    assert shipped_cosines()[model.source] == pytest.approx(measured_cosines(model), abs=1e-3)
    stored = model.cosines()
    assert stored == shipped_cosines()[model.source]
    model.truncate_dim = 64  # another width has other cosines
    assert model.cosines() == measured_cosines(model)
    assert model.cosines() != stored


@pytest.mark.parametrize("name", NAMES)
def test_the_channel_sizes_of_a_shipped_model_smooth_as_the_measured_ones(name):
    weights, identity = open_weights(name)
    sizes = shipped_sizes(identity)
    if not weights.config.unit:
        assert sizes is None  # a static model has no layers
        return
    stored, measured = (smooth_by(weights, weights.plan, lambda s=s: s) for s in (sizes, measured_sizes(name, weights)))
    assert [len(part) for part in sizes] == [weights.config.unit] * 2
    for state in NORM_READERS:
        np.testing.assert_array_equal(getattr(stored, state), getattr(measured, state))
    assert shipped_sizes("0" * 64) is None
