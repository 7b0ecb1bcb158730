"""Why a model takes the generic way: every reason holds, and no model without one is refused by the canonical way."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from folder_kinds import write_folder
from stock_models import TEXTS

import msdc
from msdc.compress.student.stock import to_student
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.export.exporters import canonical_obstacle

REASONS = {
    "prompt not pooled, mean": "pooling leaves the prompt's tokens out",
    "static": "a static embedding has no layers",
    "mpnet": "mpnet models are not of a family",
    "two dense": "its modules Pooling, Dense, Dense, Normalize",
    "layer norm": "its modules Pooling, LayerNorm",
    "dense with residual": "a Dense with identity or a residual connection",
    "pooling lasttoken": "pooling lasttoken; known: mean, cls, max",
    "pooling cls and mean and max": "pooling cls, mean, max; known",
}


def load(place, kind: str) -> Encoder:
    return msdc.load_encoder(write_folder(place, kind))


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    """The folder of a model that goes the canonical way; load it anew to change it."""
    return write_folder(tmp_path_factory.mktemp("bert"), "no normalisation")


@pytest.mark.parametrize("kind", REASONS)
def test_reasons_of_modules(kind, tmp_path):
    encoder = load(tmp_path, kind)
    assert REASONS[kind] in str(canonical_obstacle(encoder))
    if kind != "prompt not pooled, mean":
        with pytest.raises(InputError):
            to_student(encoder)


@pytest.mark.parametrize(
    ("setting", "value", "reason"),
    [
        ("hidden_act", "silu", "activation 'silu' is not supported"),
        ("position_embedding_type", "relative_key", "relative_key positions are not supported"),
        ("is_decoder", True, r"causal attention \(is_decoder\)"),
    ],
)
def test_reasons_of_the_body(bert, setting, value, reason):
    encoder = msdc.load_encoder(bert)
    assert canonical_obstacle(encoder) is None
    setattr(encoder.module.body.config, setting, value)
    assert re.search(reason, str(canonical_obstacle(encoder)))
    with pytest.raises(InputError, match=reason):
        to_student(encoder)


@pytest.mark.parametrize("activation", [torch.nn.SiLU(), torch.nn.GELU(approximate="tanh")])
def test_reasons_of_a_dense_layer(bert, activation):
    from sentence_transformers.sentence_transformer.modules import Dense

    encoder = msdc.load_encoder(bert)
    encoder.module.after.append(Dense(32, 16, activation_function=activation))
    assert "a Dense with" in str(canonical_obstacle(encoder))
    with pytest.raises(InputError, match="a Dense with"):
        to_student(encoder)


@pytest.mark.parametrize("kind", ["pooling max", "roberta", "distilbert", "albert", "truncate_dim", "do_lower_case"])
def test_models_without_a_reason_become_equal_students(kind, tmp_path):
    encoder = load(tmp_path, kind)
    assert canonical_obstacle(encoder) is None
    expected = encoder.encode(TEXTS)
    encoder.module = to_student(encoder)
    assert np.abs(encoder.encode(TEXTS) - expected).max() < 1e-5
