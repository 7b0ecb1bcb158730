"""A converted stock encoder gives the stock encoder's vectors; the oracle is transformers / sentence-transformers."""

import json

import numpy as np
import pytest
import torch
from stock_models import TEXTS, write_stock

import msdc
from msdc.compress.student.io import load_student
from msdc.compress.student.stock import from_stock, to_student
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.text.tokenizer import pad

CASES = [
    ("bert", {}),
    ("bert", {"pooling": "cls", "hidden_act": "gelu_new", "dense": (16, True, "activation.Tanh")}),
    ("bert", {"pooling": "max", "normalize": False, "hidden_act": "relu", "max_seq_length": None}),
    ("roberta", {}),
    ("xlm-roberta", {"dense": (24, False, "linear.Identity")}),
    ("camembert", {"normalize": False}),
    ("distilbert", {"pooling": "cls"}),
    ("albert", {}),
    ("albert", {"inner_group_num": 1, "num_hidden_layers": 4, "hidden_act": "gelu_new"}),
    ("albert", {"num_hidden_groups": 2, "num_hidden_layers": 4}),
    ("albert", {"num_hidden_groups": 3, "num_hidden_layers": 3, "inner_group_num": 1}),
]


@pytest.mark.parametrize(("family", "settings"), CASES)
def test_vectors_equal_sentence_transformers(tmp_path, family, settings):
    from sentence_transformers import SentenceTransformer

    folder = write_stock(tmp_path / "stock", family, **settings)
    oracle = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    stock = msdc.load_encoder(folder)
    student = from_stock(folder)
    ours = Encoder(student, stock.tokenizer, student.config.positions, "student").encode(TEXTS)
    assert np.abs(ours - oracle).max() < 1e-5
    batch = pad(stock.tokenize(TEXTS), stock.tokenizer.pad_id)
    assert np.abs(to_student(stock)(*batch).detach().numpy() - oracle).max() < 1e-5


def test_the_recurrence_of_albert_is_stored_once(tmp_path):
    config = from_stock(write_stock(tmp_path / "one", "albert")).config
    assert (config.unit, config.repeats, config.bottleneck, config.place) == (2, 3, 16, "embedding")
    config = from_stock(write_stock(tmp_path / "two", "albert", num_hidden_groups=2, num_hidden_layers=4)).config
    assert (config.unit, config.repeats) == (8, 1)


def test_training_a_converted_student_leaves_its_source_alone(bert_folder):
    encoder = msdc.load_encoder(bert_folder)
    before = encoder.encode(TEXTS)
    student = to_student(encoder)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.zero_()
    assert np.array_equal(encoder.encode(TEXTS), before)


def test_groups_applied_twice_own_their_weights(tmp_path):
    student = from_stock(write_stock(tmp_path / "two", "albert", num_hidden_groups=2, num_hidden_layers=4))
    first, third = student.layers[0].query.weight, student.layers[2].query.weight
    assert torch.equal(first, third) and first.data_ptr() != third.data_ptr()


def test_an_unknown_family_is_named(tmp_path):
    folder = write_stock(tmp_path / "stock", "bert")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mpnet"}))
    with pytest.raises(InputError, match="'mpnet' cannot be compressed; known: albert, bert"):
        from_stock(folder)


def test_an_unknown_activation_is_named(tmp_path):
    with pytest.raises(InputError, match="'silu' is not supported; known: gelu"):
        load_student(write_stock(tmp_path / "stock", "bert", hidden_act="silu"))
