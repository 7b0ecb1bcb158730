"""Attention while training in bfloat16 is written out; torch's fused attention is the oracle."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from msdc.compress.student import model
from msdc.compress.student.model import attention


def inputs(dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    return [torch.randn(3, 2, 5, 8, generator=generator).to(dtype).requires_grad_() for _ in range(3)]


@pytest.mark.parametrize("masked", [False, True])
def test_values_and_gradients_are_those_of_the_fused_kernel(masked):
    attend = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)[:, None, None, :]
    mask = attend if masked else None
    exact, rounded = inputs(torch.float32), inputs(torch.bfloat16)
    expected = F.scaled_dot_product_attention(*exact, attn_mask=mask)
    found = attention(*rounded, mask, 0.0)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), expected, atol=0.03, rtol=0.03)
    weight = torch.randn(expected.shape, generator=torch.Generator().manual_seed(5))
    (expected * weight).sum().backward()
    (found.float() * weight).sum().backward()
    for one, other in zip(exact, rounded, strict=True):
        assert one.grad is not None and other.grad is not None
        torch.testing.assert_close(other.grad.float(), one.grad, atol=0.06, rtol=0.06)


def test_only_training_in_bfloat16_leaves_the_fused_kernel(monkeypatch):
    calls = []
    monkeypatch.setattr(model.F, "scaled_dot_product_attention", lambda *a, **k: calls.append(a[0].dtype) or a[2])
    attention(*inputs(torch.float32), None, 0.0)
    with torch.no_grad():
        attention(*[x.detach() for x in inputs(torch.bfloat16)], None, 0.0)
    attention(*inputs(torch.bfloat16), None, 0.0)
    assert calls == [torch.float32, torch.bfloat16]


def test_dropout_drops_links_and_keeps_the_mean():
    torch.manual_seed(0)
    query, key, _ = inputs(torch.bfloat16)
    ones = torch.ones_like(query)
    dropped = torch.stack([attention(query, key, ones, None, 0.5) for _ in range(200)]).float()
    assert float(dropped.std()) > 0.1
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.05)
