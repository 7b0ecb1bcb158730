"""The corners: equal sentences, zero vectors, padding, saturation, wrong shapes, size of the gathered target."""

from __future__ import annotations

import math

import objective_oracles as oracles
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from msdc.distill import objectives
from msdc.errors import InputError

torch.set_num_threads(1)


def normal(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


# --- equal sentences


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
    guide, student = normal(3, 4, 2), normal(3, 4, 2, seed=1)
    mask = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]])
    wanted = oracles.embedding_alignment(guide.tolist(), student.tolist(), mask.tolist(), pooled)
    guide[mask == 0] = filler
    student[mask == 0] = -filler
    student.requires_grad_()
    for kind in (mask, mask.bool(), mask.double()):
        loss = objectives.embedding_alignment(guide, student, kind, pooled=pooled)
        assert loss.item() == pytest.approx(wanted, rel=1e-12)
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
    ids, mask = [-100, 99], [0, 0]
    assert generative(ids, mask, 2, True, "ugt", logits=logits).item() == pytest.approx(single)
    assert generative(ids, mask, 2, False, "ugt", logits=logits).item() == 0
    assert generative(ids, mask, 2, True, "xtr", logits=logits).item() == 0
    assert generative(ids, mask, 2, False, "smlm", logits=logits).item() == pytest.approx(single)
    assert generative(ids, mask, 2, False, "mlm", logits=logits).item() == 0
    none = objectives.unified_generative(
        logits, torch.tensor([2]), torch.tensor([True]), torch.zeros(1, 0).long(), torch.zeros(1, 0)
    )
    assert none.item() == pytest.approx(single)


def test_ids_outside_the_vocabulary() -> None:
    for bad in (6, -1, -100):
        with pytest.raises(InputError, match="outside the vocabulary of 6"):
            generative([bad, 1], [1, 1])
        with pytest.raises(InputError, match="outside the vocabulary of 6"):
            generative([1], [1], masked=bad)
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
    a, b = normal(3, 4), normal(3, 5)
    for call, words in (
        (lambda: objectives.kd(a, b), r"kd: student_BD is \[3, 5\] but teacher_BD is \[3, 4\].*project the student"),
        (lambda: objectives.multilingual_mse(a, a, a[:2]), r"student_target_BD is \[2, 4\]"),
        (lambda: objectives.multilingual_mse(a, a, a, b), r"teacher_target_BD is \[3, 5\]"),
        (lambda: objectives.kd(a[0], a[0]), "must have 2 dimensions"),
        (lambda: objectives.kd(a.long(), a), "floating-point"),
        (lambda: objectives.kd(a.numpy(), a), "floating-point"),
        (lambda: objectives.multilingual_contrastive(a[:2], b, b), "one row per sentence pair"),
        (lambda: objectives.contrastive_cross_entropy(a[:2], b, b), "one row per sentence pair"),
        (lambda: objectives.multilingual_contrastive(a, a, a, labels="bool"), "soft or hard"),
        (lambda: objectives.multilingual_contrastive(a, a, a, "hard", torch.arange(2)), r"sentence_B is \[2\]"),
        (lambda: objectives.contrastive_distillation(a, a, b), r"bank_KD is \[3, 5\], expected \[K, 4\]"),
        (lambda: objectives.contrastive_distillation(a, a, a, temperature=0), "temperature must be above 0"),
        (lambda: objectives.contrastive_cross_entropy(a, a, a, float("nan")), "temperature must be above 0"),
        (lambda: objectives.supervised_contrastive(a, a, b), r"negative_BD is \[3, 5\]"),
        (lambda: objectives.sentence_alignment(a, a, "max"), "sum or mean"),
        (lambda: objectives.embedding_alignment(a[None], a[None], torch.ones(3)), r"mask_BT \[3\]"),
        (lambda: objectives.pkd(a[None], b[None]), "map the student"),
        (lambda: objectives.metakd(a, a, torch.tensor([0, 1, 2]), a[:2]), r"domains must be 0 \.\. 1"),
        (lambda: objectives.metakd(a, a, torch.tensor([0, 1]), a), "expected 3 integer domains"),
        (lambda: objectives.metakd(a, a, torch.zeros(3).long(), a, a[None]), "both models or of neither"),
        (lambda: objectives.metakd(a, a, torch.zeros(3).long(), a, own_share=2), "own_share"),
        (lambda: generative([1], [1], task="clm"), "one of ugt, xtr, smlm, mlm"),
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
    with pytest.raises(InputError, match="skip or last"):
        objectives.layer_subset(4, 2, "first")
