"""Converted stock encoders give sentence-transformers' vectors; attention in bfloat16 gives torch's fused kernel's."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from stock_models import TEXTS, write_stock

import msdc
from msdc.compress.student import model
from msdc.compress.student.io import load_student
from msdc.compress.student.model import dot_product_attention
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
    student = from_stock(write_stock(tmp_path / "two", "albert", num_hidden_groups=2, num_hidden_layers=4))
    assert (student.config.unit, student.config.repeats) == (8, 1)
    # Groups applied twice own their weights.
    first, third = student.layers[0].query.weight, student.layers[2].query.weight
    assert torch.equal(first, third)
    assert first.data_ptr() != third.data_ptr()


def test_training_a_converted_student_leaves_its_source_alone(tiny_teacher):
    encoder = msdc.load_encoder(tiny_teacher)
    before = encoder.encode(TEXTS)
    student = to_student(encoder)
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.zero_()
    assert np.array_equal(encoder.encode(TEXTS), before)


def test_an_unknown_family_or_activation_is_named(tmp_path):
    folder = write_stock(tmp_path / "stock", "bert", hidden_act="silu")
    with pytest.raises(InputError, match="'silu' is not supported; known: gelu"):
        load_student(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "mpnet"}))
    with pytest.raises(InputError, match="'mpnet' cannot be compressed; known: albert, bert"):
        from_stock(folder)


def inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(3, 2, 5, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("masked", [False, True])
def test_values_and_gradients_are_those_of_the_fused_kernel(masked):
    attend = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)[:, None, None, :]
    mask = attend if masked else None
    exact, rounded = inputs(torch.float32), inputs(torch.bfloat16)
    expected = F.scaled_dot_product_attention(*exact, attn_mask=mask)
    output = dot_product_attention(*rounded, mask, 0.0)
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float(), expected, atol=0.03, rtol=0.03)
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5))
    (expected * weight).sum().backward()
    (output.float() * weight).sum().backward()
    for exact_tensor, rounded_tensor in zip(exact, rounded, strict=True):
        assert exact_tensor.grad is not None
        assert rounded_tensor.grad is not None
        torch.testing.assert_close(rounded_tensor.grad.float(), exact_tensor.grad, atol=0.06, rtol=0.06)


def test_only_training_in_bfloat16_leaves_the_fused_kernel(monkeypatch):
    calls = []
    monkeypatch.setattr(model.F, "scaled_dot_product_attention", lambda *a, **k: calls.append(a[0].dtype) or a[2])
    dot_product_attention(*inputs(torch.float32), None, 0.0)
    with torch.no_grad():
        dot_product_attention(*[x.detach() for x in inputs(torch.bfloat16)], None, 0.0)
    dot_product_attention(*inputs(torch.bfloat16), None, 0.0)
    assert calls == [torch.float32, torch.bfloat16]


def test_dropout_drops_links_and_keeps_the_mean():
    torch.manual_seed(0)
    query, key, _ = inputs(torch.bfloat16)
    ones = torch.ones_like(query)
    dropped = torch.stack([dot_product_attention(query, key, ones, None, 0.5) for _ in range(200)]).float()
    assert float(dropped.std()) > 0.1
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.05)
