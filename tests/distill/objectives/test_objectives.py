"""Every objective against its oracle, in four dtypes, by gradcheck, over drawn shapes; corners and refusals."""

import math
from dataclasses import dataclass, field
from typing import Any

import objective_oracles as oracles
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from msdc.distill import objectives
from msdc.errors import InputError


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


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
        return "-".join([self.name, *self.integers, *(f"{value}" for value in self.options.values())])


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
    Case("contrastive_distillation", ("BD", "BD", "KD"), options={"margin": 0.9, "temperature": 0.3}, fixed=(1, 2)),
    Case("guided_contrastive", ("BH", "BH", "BD", "BD"), fixed=(0, 1)),
    Case(
        "guided_contrastive",
        ("BH", "BH", "BD", "BD", "BND", "BJ"),
        options={"margin": 0.2, "temperature": 0.3},
        fixed=(0, 1, 5),
    ),
    Case(
        "guided_contrastive", ("BH", "BH", "BD", "BD", "BND", "BJ"), ("texts_BS", "negative_texts_BN"), fixed=(0, 1, 5)
    ),
    Case("contrastive_distillation", ("BD", "BD", "KD"), ("texts_BS", "bank_texts_K")),
    Case("contrastive_distillation", ("BD", "BD", "KD"), ("texts_BS",)),
    Case("supervised_contrastive", ("BD", "BD", "BD"), ("texts_BS", "negative_texts_BO"), options={"temperature": 0.3}),
    Case("sentence_alignment", ("BD", "BD"), ("texts_BS",)),
    Case("margin_mse", ("BJ", "BD", "BD", "BND")),
    Case("listwise_kl", ("BJ", "BD", "BD", "BND"), options={"temperature": 0.5}),
    *(
        Case("relational", floats, options={"relation": what})
        for what in ("distance", "angle")
        for floats in (("BD", "BH", "BH"), ("BD", "BD", "BD", "BD"))
    ),
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
        for task in ("ugt", "xtr", "smlm")
    ),
]


def draw(case: Case, sizes: dict[str, int], seed: int, dtype: torch.dtype) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    sizes = {"O": 1, "S": 2, "C": 3, "W": 3 * sizes["D"], "N": 2, "J": 3, **sizes}  # classes; u, v and |u - v|
    shapes = ([sizes[letter] for letter in letters] for letters in case.floats)
    floats = [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]

    B, T, V = sizes["B"], sizes["T"], sizes["V"]
    share = torch.rand(B, T, generator=generator)
    integers = {
        "token": torch.randint(V, (B,), generator=generator),
        "class": torch.randint(sizes["C"], (B,), generator=generator),
        "score": torch.rand(B, generator=generator, dtype=torch.float64).bfloat16().to(dtype),
        "here": torch.rand(B, generator=generator) < 0.5,
        "partner": torch.randint(V, (B, T), generator=generator),
        # Some rows are all padding, and padding may be anywhere.
        "mask": share < torch.rand(B, 1, generator=generator).round(decimals=1),
    }
    for kind in case.integers:
        if "texts" in kind:  # few of them, so that many are equal
            shape = [sizes[letter] for letter in kind.rsplit("_", 1)[-1]]
            integers[kind] = torch.randint(1, 2 * B + 2, shape, generator=generator)
    return floats + [integers[kind.removeprefix("partner_")] for kind in case.integers]


TEXTS = {"texts": "texts_BS", "negative_texts": "negative_texts_BN", "bank_texts": "bank_texts_K"}


def arguments(case: Case, inputs: list[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Vectors by position, texts and options by name."""
    names = [None] * len(case.floats) + [TEXTS.get(kind.rsplit("_", 1)[0]) for kind in case.integers]
    named = {name: value for name, value in zip(names, inputs, strict=True) if name}
    return [value for name, value in zip(names, inputs, strict=True) if not name], named | case.options


def run(case: Case, inputs: list[torch.Tensor]) -> torch.Tensor:
    plain, named = arguments(case, inputs)
    return getattr(objectives, case.name)(*plain, **named)


def expected(case: Case, inputs: list[torch.Tensor]) -> float:
    plain, named = arguments(case, [tensor.tolist() for tensor in inputs])
    return getattr(oracles, case.name)(*plain, **named)


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
    teacher, student, prototypes = normal(5, 6), normal(5, 6, seed=1), normal(domains, 6, seed=2)
    domain = torch.randint(domains, (5,), generator=torch.Generator().manual_seed(domains))
    extra = [normal(5, 3, 4, seed=3), normal(5, 3, 4, seed=4)] if states else [None, None]
    for own_share in (0.0, 0.5, 0.9, 1.0):
        loss = objectives.metakd(teacher, student, domain, prototypes, *extra, own_share=own_share)
        inputs = (None if x is None else x.detach().tolist() for x in (teacher, student, domain, prototypes, *extra))
        oracle = oracles.metakd(*inputs, own_share=own_share)
        assert loss.item() == pytest.approx(oracle, rel=1e-12)
    student.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: objectives.metakd(teacher, s, domain, prototypes, *extra), [student])
    prototypes.requires_grad_()
    loss = objectives.metakd(teacher, student, domain, prototypes, *extra)
    assert torch.autograd.grad(loss, prototypes, allow_unused=True) == (None,)


def test_domain_prototypes() -> None:
    vectors, domain = normal(7, 3), torch.tensor([0, 2, 2, 0, 0, 2, 0])
    prototypes = objectives.domain_prototypes(vectors, domain, 4)
    for number in (0, 2):
        assert prototypes[number].numpy() == pytest.approx(oracles.unit(vectors[domain == number]).mean(0), abs=1e-6)
    assert not prototypes[[1, 3]].any()


# --- equal sentences


@pytest.mark.parametrize("equal", [(0, 0), (1, 1), (0, 1)], ids=["sources", "targets", "a source and a target"])
def test_a_batch_of_rows_that_all_share_a_text_has_no_negatives(equal: tuple[int, int]) -> None:
    """Whatever rounding makes of equal vectors: the loss of a batch without negatives is 0."""
    texts = torch.arange(8).view(4, 2)
    if equal[0] == equal[1]:
        texts[:, equal[0]] = 99
    else:  # each row's target is the source of all others
        texts[:] = torch.tensor([[1, 2], [2, 1], [1, 2], [2, 1]])
    queries, passages, negatives = normal(4, 6), normal(4, 6, seed=1), normal(4, 6, seed=2)
    none = objectives.contrastive_distillation(queries, passages, negatives[:0], texts_BS=texts)
    assert none.item() == 0.0 < objectives.contrastive_distillation(queries, passages, negatives[:0]).item()
    banked = objectives.contrastive_distillation(
        queries, passages, negatives, texts_BS=texts, bank_texts_K=texts[:1, equal[0]].expand(4)
    )
    assert banked.item() == 0.0 or equal[0] != equal[1]
    assert (
        objectives.guided_contrastive(queries, passages, queries, passages, margin=-3.0, texts_BS=texts).item() == 0.0
    )
    assert objectives.sentence_alignment(queries, passages, texts_BS=texts).item() == 0.0
    negative_texts = texts[:, 1:]
    assert objectives.supervised_contrastive(
        queries, passages, negatives, texts_BS=texts, negative_texts_BN=negative_texts
    ).item() == (
        0.0
        if equal != (0, 0)
        else pytest.approx(
            oracles.supervised_contrastive(
                *(x.tolist() for x in (queries, passages, negatives)),
                texts_BS=texts.tolist(),
                negative_texts_BN=negative_texts.tolist(),
            )
        )
    )


def test_equal_sentences_are_positive_for_hard_labels() -> None:
    teacher = normal(4, 3)
    teacher[2] = teacher[0]
    source, target = normal(4, 3, seed=1), normal(4, 3, seed=2)
    loss = objectives.multilingual_contrastive(teacher, source, target, labels="hard")
    same = [0, 1, 0, 3]
    assert loss.item() == pytest.approx(
        oracles.multilingual_contrastive(teacher.tolist(), source.tolist(), target.tolist(), "hard", same)
    )
    # Ids say it too, where the teacher's vectors of one sentence differ in the last bits.
    noisy = teacher + 1e-7 * normal(4, 3, seed=3)
    named = objectives.multilingual_contrastive(noisy, source, target, labels="hard", sentence_B=torch.tensor(same))
    assert named.item() == pytest.approx(loss.item(), rel=1e-12)
    apart = objectives.multilingual_contrastive(noisy, source, target, labels="hard")
    assert apart.item() != pytest.approx(loss.item(), rel=1e-3)


# --- vectors without a direction, saturation


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_zero_vectors_have_cosine_zero_and_no_gradient(dtype: torch.dtype) -> None:
    teacher, bank = normal(3, 4, dtype=dtype), normal(2, 4, seed=5, dtype=dtype)
    source = normal(3, 4, seed=1, dtype=dtype)
    source[1] = 0
    source.requires_grad_()
    target = normal(3, 4, seed=2, dtype=dtype)
    for loss in (
        objectives.multilingual_contrastive(teacher, source, target),
        objectives.contrastive_cross_entropy(teacher, source, target),
        objectives.contrastive_distillation(source, teacher, bank),
        objectives.supervised_contrastive(source, teacher, target),
        objectives.pkd(teacher.unsqueeze(1), source.unsqueeze(1)),
    ):
        (gradient,) = torch.autograd.grad(loss, source)
        assert torch.isfinite(loss)
        assert torch.isfinite(gradient).all()
        assert not gradient[1].any()
        assert gradient[0].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_large_vectors_stay_finite(dtype: torch.dtype) -> None:
    """Squares and products of these overflow float16, and the softmaxes saturate to exactly 0 and 1."""
    source = (300 * normal(4, 64, dtype=torch.float32)).to(dtype).requires_grad_()
    target = (300 * normal(4, 64, seed=1, dtype=torch.float32)).to(dtype)
    far = target.flip(0).contiguous()
    for loss in (
        objectives.multilingual_mse(target, source, far),
        objectives.multilingual_contrastive(target, source, far),
        objectives.contrastive_cross_entropy(target, source, far, temperature=1e-3),
        objectives.contrastive_distillation(source, target, far, temperature=1e-3),
        objectives.sentence_alignment(source, target),
        objectives.sentence_similarity(source, target),
    ):
        (gradient,) = torch.autograd.grad(loss, source)
        assert torch.isfinite(loss)
        assert torch.isfinite(gradient.float()).all()


def test_similarity_at_its_pole() -> None:
    """Side one sees only itself, side two only its neighbour: all four shares differ by exactly 1 in float32."""
    source = torch.tensor([[100.0, 0.0], [0.0, 100.0]], requires_grad=True)
    target = torch.tensor([[1.0, 0.0], [200.0, 0.0]])
    loss = objectives.sentence_similarity(source, target)
    loss.backward()
    limit = -math.log(torch.finfo(torch.float32).eps)
    assert loss.item() == pytest.approx(2 * limit, rel=1e-5)
    assert torch.isfinite(source.grad).all()


# --- padding


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("filler", [1e30, float("inf"), float("nan")])
def test_padding_is_never_read(pooled: bool, filler: float) -> None:
    teacher, student = normal(3, 4, 2), normal(3, 4, 2, seed=1)
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    expected = oracles.embedding_alignment(teacher.tolist(), student.tolist(), mask.tolist(), pooled)
    teacher[mask == 0] = filler
    student[mask == 0] = -filler
    student.requires_grad_()
    for kind in (mask, mask.bool(), mask.double()):
        loss = objectives.embedding_alignment(teacher, student, kind, pooled=pooled)
        assert loss.item() == pytest.approx(expected, rel=1e-12)
    (gradient,) = torch.autograd.grad(loss, student)
    assert torch.isfinite(gradient).all()
    assert not gradient[mask == 0].any()


@pytest.mark.parametrize("pooled", [False, True])
def test_nothing_but_padding(pooled: bool) -> None:
    student = normal(2, 3, 4).requires_grad_()
    loss = objectives.embedding_alignment(normal(2, 3, 4, seed=1), student, torch.zeros(2, 3), pooled=pooled)
    loss.backward()
    assert loss.item() == 0
    assert not student.grad.any()


# --- generative tasks


def generative(partner, mask, masked=0, here=True, task="ugt", V=6, logits=None):
    logits = normal(1, V) if logits is None else logits
    return objectives.unified_generative(
        logits, torch.tensor([masked]), torch.tensor([here]), torch.tensor([partner]), torch.tensor([mask]), task=task
    )


def test_repeated_tokens_are_renormalised() -> None:
    """[3, 3, 3, 4] shares like [3, 4]: the loss is 0 exactly where the model predicts the halves."""
    for partner, mask in (([3, 3, 3, 4], [1, 1, 1, 1]), ([4, 3, 9, 3], [1, 1, 0, 1]), ([3, 4], [1, 1])):
        elsewhere = torch.tensor([[0.0, 0, 0, 0.5, 0.5, 0]], dtype=torch.float64).log()
        assert generative(partner, mask, here=False, logits=elsewhere).item() == pytest.approx(0, abs=1e-12)
        both = torch.tensor([[0.5, 0, 0, 0.25, 0.25, 0]], dtype=torch.float64).log()
        assert generative(partner, mask, here=True, logits=both).item() == pytest.approx(0, abs=1e-12)


def test_translation_of_nothing_but_padding() -> None:
    logits = normal(1, 6)
    single = -logits.log_softmax(1)[0, 2].item()
    for here, task, expected in ((True, "ugt", single), (False, "ugt", 0), (True, "xtr", 0), (False, "smlm", single)):
        assert generative([-100, 99], [0, 0], 2, here, task, logits=logits).item() == pytest.approx(expected)
    none = objectives.unified_generative(
        logits, torch.tensor([2]), torch.tensor([True]), torch.zeros(1, 0).long(), torch.zeros(1, 0)
    )
    assert none.item() == pytest.approx(single)


def test_ids_outside_the_vocabulary() -> None:
    for bad in (6, -1, -100):
        for partner, masked in (([bad, 1], 0), ([1, 2], bad)):
            with pytest.raises(InputError, match="outside the vocabulary of 6"):
                generative(partner, [1, 1], masked)
    # Where nothing asks for the masked token, its id may say "none".
    assert torch.isfinite(generative([1, 2], [1, 1], masked=-100, task="xtr"))


class Sizes(TorchDispatchMode):
    """Remembers the largest tensor any operation gave back."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        return result


def test_no_dense_target_is_built() -> None:
    B, T, V = 4, 16, 50_000
    logits = normal(B, V, dtype=torch.float32)
    ids = torch.arange(B * T).view(B, T)
    with Sizes() as sizes, torch.no_grad():
        objectives.unified_generative(logits, ids[:, 0], torch.tensor([True, False] * 2), ids, torch.ones(B, T))
    assert 0 < sizes.largest <= B * (T + 1)


# --- what is refused


def test_wrong_shapes_say_what_was_expected() -> None:
    width_4, width_5, wide, numbers = normal(3, 4), normal(3, 5), normal(3, 12), torch.arange(3)
    for call, words in (
        (
            lambda: objectives.kd(width_4, width_5),
            r"kd: student_BD is \[3, 5\] but teacher_BD is \[3, 4\].*map the student",
        ),
        (lambda: objectives.multilingual_mse(width_4, width_4, width_4[:2]), r"student_target_BD is \[2, 4\]"),
        (lambda: objectives.multilingual_mse(width_4, width_4, width_4, width_5), r"teacher_target_BD is \[3, 5\]"),
        (lambda: objectives.kd(width_4[0], width_4[0]), "must have 2 dimensions"),
        (lambda: objectives.kd(width_4.long(), width_4), "floating-point"),
        (lambda: objectives.kd(width_4.numpy(), width_4), "floating-point"),
        (
            lambda: objectives.multilingual_contrastive(width_4[:2], width_5, width_5),
            r"student_source_BD is \[3, 5\].*: B differs$",
        ),
        (lambda: objectives.contrastive_cross_entropy(width_4[:2], width_5, width_5), "B differs"),
        (
            lambda: objectives.multilingual_contrastive(width_4, width_4, width_4, labels="bool"),
            "`labels` 'bool' is unknown.*soft, hard",
        ),
        (
            lambda: objectives.multilingual_contrastive(width_4, width_4, width_4, "hard", torch.arange(2)),
            r"sentence_B is \[2\]",
        ),
        (
            lambda: objectives.contrastive_distillation(width_4, width_4, width_5),
            r"bank_KD is \[3, 5\] but student_BD is \[3, 4\]",
        ),
        (
            lambda: objectives.contrastive_distillation(width_4, width_4, width_4, temperature=0),
            "temperature must be above 0",
        ),
        (
            lambda: objectives.contrastive_cross_entropy(width_4, width_4, width_4, float("nan")),
            "temperature must be above 0",
        ),
        (lambda: objectives.supervised_contrastive(width_4, width_4, width_5), r"negative_BD is \[3, 5\]"),
        (
            lambda: objectives.contrastive_distillation(width_4, width_4, width_4, margin=-1),
            "margin must not be negative",
        ),
        (
            lambda: objectives.margin_mse(width_4, width_4, width_4, width_4[None]),
            r"student_negatives_BND is \[1, 3, 4\].*: B differs",
        ),
        (
            lambda: objectives.listwise_kl(width_4, width_4, width_4, width_4[:, None]),
            r"BJ is \[3, 4\], candidates are \[3, 2\]",
        ),
        (lambda: objectives.guided_contrastive(width_4[:2], width_4[:2], width_5, width_5), "B differs"),
        (lambda: objectives.sentence_alignment(width_4, width_4, "max"), "`reduction` 'max' is unknown.*sum, mean"),
        (
            lambda: objectives.embedding_alignment(width_4[None], width_4[None], torch.ones(3)),
            "mask_BT must have 2 dimensions",
        ),
        (lambda: objectives.pkd(width_4[None], width_5[None]), "map the student"),
        (
            lambda: objectives.metakd(width_4, width_4, torch.tensor([0, 1, 2]), width_4[:2]),
            r"domains must be 0 \.\. 1",
        ),
        (lambda: objectives.metakd(width_4, width_4, torch.tensor([0, 1]), width_4), r"domain_B is \[2\].*: B differs"),
        (
            lambda: objectives.metakd(width_4, width_4, torch.zeros(3).long(), width_4, width_4[:, None]),
            "both models or of neither",
        ),
        (lambda: objectives.metakd(width_4, width_4, torch.zeros(3).long(), width_4, own_share=2), "own_share"),
        (lambda: generative([1], [1], task="clm"), "`task` 'clm' is unknown"),
        (
            lambda: objectives.softmax_classification(width_4, width_4, normal(3, 11), width_5[0, :3], numbers),
            r"expected \[C, 12\]",
        ),
        (
            lambda: objectives.softmax_classification(width_4, width_4, wide, wide[:, 0], numbers + 1),
            r"labels must be 0 \.\. 2",
        ),
        (
            lambda: objectives.softmax_classification(width_4, width_4, wide, wide[:, 0], width_4[0, :3]),
            "labels must be integers",
        ),
        (lambda: objectives.cosine_regression(width_4, width_4, width_4[0, :2]), r"score_B is \[2\].*: B differs"),
        (lambda: objectives.cosine_regression(width_4, width_5, width_4[0, :3]), "D differs"),
        (
            lambda: objectives.domain_adversarial(width_4, width_5[:2], width_5[0, :2], numbers % 2),
            r"domains_PD is \[2, 5\]",
        ),
        (
            lambda: objectives.domain_adversarial(width_4, width_4[:2], width_4[0, :2], numbers),
            r"labels must be 0 \.\. 1",
        ),
    ):
        with pytest.raises(InputError, match=words):
            call()


def test_layer_subset_follows_the_paper() -> None:
    assert [t for t, _ in objectives.layer_subset(12, 6)] == [2, 4, 6, 8, 10]
    assert [t for t, _ in objectives.layer_subset(12, 6, "last")] == [7, 8, 9, 10, 11]
    assert objectives.layer_subset(24, 4) == ((6, 1), (12, 2), (18, 3))
    for bad in ((12, 1), (4, 6)):
        with pytest.raises(InputError, match="pkd"):
            objectives.layer_subset(*bad)
    with pytest.raises(InputError, match=r"`how` 'first' is unknown.*skip, last"):
        objectives.layer_subset(4, 2, "first")


def test_the_encoder_gets_the_reversed_gradient_and_the_classifier_its_own() -> None:
    vectors, weight, bias, domain = normal(5, 4), normal(2, 4, seed=1), normal(2, seed=2), torch.arange(5) % 2
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
    first, second, score = normal(5, 4), normal(5, 4, seed=9), torch.linspace(0, 1, 5, dtype=torch.float64)
    longer = objectives.cosine_regression(3 * first, 0.1 * second, score)
    torch.testing.assert_close(longer, objectives.cosine_regression(first, second, score))
    zero = torch.zeros(1, 4, requires_grad=True)
    loss = objectives.cosine_regression(zero, torch.ones(1, 4), torch.tensor([0.5]))
    loss.backward()
    assert loss.item() == 0.25
    assert torch.isfinite(zero.grad).all()
