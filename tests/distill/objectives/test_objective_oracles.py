"""Every objective against its brute-force oracle, in four dtypes, by gradcheck, and over drawn shapes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import objective_oracles as oracles
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msdc.distill import objectives

torch.set_num_threads(1)


@dataclass(frozen=True)
class Case:
    """An objective, its float inputs (shapes in letters), its integer inputs and its options."""

    name: str
    floats: tuple[str, ...]
    integers: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    # The labels of these inputs are no differentiable function of them, or the gradient is reversed on purpose.
    fixed: tuple[int, ...] = ()

    def __str__(self) -> str:
        return "-".join([self.name, *(f"{value}" for value in self.options.values())])


CASES = [
    Case("multilingual_mse", ("BD", "BD", "BD")),
    Case("multilingual_mse", ("BD", "BD", "BD", "BD")),
    Case("embedding_alignment", ("BTH", "BTH"), ("mask",)),
    Case("embedding_alignment", ("BTH", "BTH"), ("mask",), {"pooled": True}),
    Case("multilingual_contrastive", ("BD", "BD", "BD")),
    Case("multilingual_contrastive", ("BD", "BH", "BH")),
    Case("multilingual_contrastive", ("BD", "BD", "BD"), options={"labels": "hard"}, fixed=(0,)),
    Case("contrastive_cross_entropy", ("BD", "BH", "BH")),
    Case("contrastive_cross_entropy", ("BD", "BD", "BD"), options={"reduction": "mean", "temperature": 0.5}),
    Case("contrastive_distillation", ("BD", "BD", "KD")),
    Case("contrastive_distillation", ("BD", "BD", "KD"), options={"temperature": 0.7}),
    Case("similarity_distillation", ("BD", "BD", "KD")),
    Case("similarity_distillation", ("BD", "BD", "KD", "BD"), options={"temperature": 0.3}),
    Case("supervised_contrastive", ("BD", "BD", "BD")),
    Case("supervised_contrastive", ("BD", "BD", "KD"), options={"temperature": 0.3}),
    Case("kd", ("BD", "BD")),
    Case("pkd", ("BLH", "BLH")),
    Case("sentence_alignment", ("BD", "BD")),
    Case("sentence_alignment", ("BD", "BD"), options={"reduction": "mean"}),
    Case("sentence_similarity", ("BD", "BD")),
    Case("sentence_similarity", ("BD", "BD"), options={"reduction": "mean"}),
    Case("softmax_classification", ("BD", "BD", "CW", "C"), ("class",)),
    Case("cosine_regression", ("BD", "BD"), ("score",)),
    Case("domain_adversarial", ("BD", "CD", "C"), ("class",), fixed=(0,)),
    *(
        Case("unified_generative", ("BV",), ("token", "here", "partner", "partner_mask"), {"task": task})
        for task in ("ugt", "xtr", "smlm", "mlm")
    ),
]


def draw(case: Case, sizes: dict[str, int], seed: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"C": 3, "W": 3 * sizes["D"], **sizes}  # classes; u, v and |u - v|
    floats = [
        torch.randn([sizes[letter] for letter in letters], generator=generator, dtype=torch.float64).to(dtype)
        for letters in case.floats
    ]

    def integers(kind: str) -> torch.Tensor:
        B, T, V = sizes["B"], sizes["T"], sizes["V"]
        if kind == "token":
            return torch.randint(V, (B,), generator=generator)
        if kind == "class":
            return torch.randint(sizes["C"], (B,), generator=generator)
        if kind == "score":
            return torch.rand(B, generator=generator, dtype=torch.float64).bfloat16().to(dtype)
        if kind == "here":
            return torch.rand(B, generator=generator) < 0.5
        if kind == "partner":
            return torch.randint(V, (B, T), generator=generator)
        # Some rows are all padding, and padding may be anywhere.
        return torch.rand(B, T, generator=generator) < torch.rand(B, 1, generator=generator).round(decimals=1)

    return floats + [integers(kind) for kind in case.integers]


def run(case: Case, inputs: list[torch.Tensor]) -> torch.Tensor:
    return getattr(objectives, case.name)(*inputs, **case.options)


def expected(case: Case, inputs: list[torch.Tensor]) -> float:
    return getattr(oracles, case.name)(*(tensor.tolist() for tensor in inputs), **case.options)


SIZES = {"B": 5, "T": 7, "D": 6, "H": 4, "K": 9, "L": 3, "V": 11}


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float64, 1e-12), (torch.float32, 3e-5), (torch.float16, 3e-5), (torch.bfloat16, 3e-5)],
    ids=str,
)
def test_equals_oracle(case: Case, dtype: torch.dtype, tolerance: float) -> None:
    """Half precision has float32's tolerance: only the inputs are rounded, and the oracle gets the rounded ones."""
    for seed in range(3):
        inputs = draw(case, SIZES, seed, dtype)
        loss = run(case, inputs)
        assert loss.shape == ()
        assert loss.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert loss.item() == pytest.approx(expected(case, inputs), rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_gradient(case: Case) -> None:
    sizes = {"B": 3, "T": 4, "D": 3, "H": 2, "K": 4, "L": 2, "V": 5}
    inputs = draw(case, sizes, 1, torch.float64)
    for position, tensor in enumerate(inputs[: len(case.floats)]):
        if position not in case.fixed:
            tensor.requires_grad_()
    assert torch.autograd.gradcheck(lambda *x: run(case, list(x)), inputs)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_autocast_changes_nothing(case: Case) -> None:
    inputs = draw(case, SIZES, 3, torch.float32)
    outside = run(case, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = run(case, inputs)
    assert torch.equal(inside, outside)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_shape(data: st.DataObject) -> None:
    case = data.draw(st.sampled_from(CASES))
    sizes = {letter: data.draw(st.integers(1, 6), label=letter) for letter in "BTDHKLV"}
    inputs = draw(case, sizes, data.draw(st.integers(0, 2**31)), torch.float64)
    assert run(case, inputs).item() == pytest.approx(expected(case, inputs), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_empty_batch_is_refused(case: Case) -> None:
    with pytest.raises(objectives.registry.InputError, match=case.name):
        run(case, draw(case, {**SIZES, "B": 0}, 0, torch.float32))


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("domains", [1, 2, 4])
def test_metakd(domains: int, states: bool) -> None:
    generator = torch.Generator().manual_seed(domains)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    teacher, student, prototypes = normal(5, 6), normal(5, 6), normal(domains, 6)
    domain = torch.randint(domains, (5,), generator=generator)
    extra = [normal(5, 3, 4), normal(5, 3, 4)] if states else [None, None]
    for own_share in (0.0, 0.5, 0.9, 1.0):
        loss = objectives.metakd(teacher, student, domain, prototypes, *extra, own_share=own_share)
        oracle = oracles.metakd(
            *(x.tolist() for x in (teacher, student, domain, prototypes)),
            *(None if x is None else x.tolist() for x in extra),
            own_share=own_share,
        )
        assert loss.item() == pytest.approx(oracle, rel=1e-12)
    student.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: objectives.metakd(teacher, s, domain, prototypes, *extra), [student])
    prototypes.requires_grad_()
    loss = objectives.metakd(teacher, student, domain, prototypes, *extra)
    assert torch.autograd.grad(loss, prototypes, allow_unused=True) == (None,)


def test_domain_prototypes() -> None:
    vectors = torch.randn(7, 3, generator=torch.Generator().manual_seed(0))
    domain = torch.tensor([0, 2, 2, 0, 0, 2, 0])
    prototypes = objectives.domain_prototypes(vectors, domain, 4)
    for number in range(4):
        units = [oracles.unit(v) for v, d in zip(vectors.tolist(), domain.tolist(), strict=True) if d == number]
        mean = [sum(column) / len(units) for column in zip(*units, strict=True)] if units else [0.0, 0.0, 0.0]
        assert prototypes[number].tolist() == pytest.approx(mean, abs=1e-6)
