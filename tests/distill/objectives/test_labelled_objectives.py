"""Losses on labels: the reversed gradient, lengths that do not count, and refusals."""

from __future__ import annotations

import pytest
import torch

from msdc.distill import objectives
from msdc.errors import InputError


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def drawn(name: str, count: int = 5, width: int = 4) -> list[torch.Tensor]:
    first, second = normal(count, width), normal(count, width, seed=9)
    if name == "softmax_classification":
        return [first, second, normal(3, 3 * width), normal(3), torch.arange(count) % 3]
    if name == "cosine_regression":
        return [first, second, torch.linspace(0, 1, count, dtype=torch.float64)]
    return [first, normal(2, width), normal(2), torch.arange(count) % 2]


def test_the_encoder_gets_the_reversed_gradient_and_the_classifier_its_own() -> None:
    vectors, weight, bias, domain = drawn("domain_adversarial")
    for tensor in (vectors, weight, bias):
        tensor.requires_grad_()
    plain = torch.nn.functional.cross_entropy(vectors @ weight.T + bias, domain)
    expected = torch.autograd.grad(plain, [vectors, weight, bias])
    got = torch.autograd.grad(objectives.domain_adversarial(vectors, weight, bias, domain), [vectors, weight, bias])
    torch.testing.assert_close(got[0], -expected[0])
    torch.testing.assert_close(got[1:], expected[1:])
    # A step along it makes the domains harder to tell apart.
    with torch.no_grad():
        moved = vectors - 0.1 * got[0]
    assert objectives.domain_adversarial(moved, weight, bias, domain) > plain


def test_cosines_ignore_length_and_a_zero_vector_has_none() -> None:
    first, second, score = drawn("cosine_regression")
    torch.testing.assert_close(
        objectives.cosine_regression(3 * first, 0.1 * second, score), objectives.cosine_regression(first, second, score)
    )
    zero = torch.zeros(1, 4, requires_grad=True)
    loss = objectives.cosine_regression(zero, torch.ones(1, 4), torch.tensor([0.5]))
    loss.backward()
    assert loss.item() == 0.25 and torch.isfinite(zero.grad).all()


@pytest.mark.parametrize(
    ("name", "at", "change", "message"),
    [
        ("softmax_classification", 2, lambda t: t[:, :-1], r"expected \[C, 12\]"),
        ("softmax_classification", 4, lambda t: t + 1, r"labels must be 0 \.\. 2"),
        ("softmax_classification", 4, lambda t: t.float(), "expected 5 integer labels"),
        ("cosine_regression", 2, lambda t: t[:-1], "expected 5 scores"),
        ("cosine_regression", 0, lambda t: t[:, :-1], "must be equal"),
        ("domain_adversarial", 1, lambda t: t[:, :-1], r"domains_PD is \[2, 3\]"),
        ("domain_adversarial", 3, lambda t: t - 1, r"labels must be 0 \.\. 1"),
    ],
)
def test_what_does_not_fit_is_refused(name, at, change, message) -> None:
    given = drawn(name)
    given[at] = change(given[at])
    with pytest.raises(InputError, match=message):
        getattr(objectives, name)(*given)
