"""The memory bank against a deque, its state, and the registry of objectives."""

import collections
import inspect
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from msdc.distill import objectives
from msdc.distill.objectives import MemoryBank
from msdc.errors import InputError


@settings(max_examples=100, deadline=None)
@given(size=st.integers(1, 9), batches=st.lists(st.integers(1, 20), max_size=12))
def test_first_in_first_out(size: int, batches: list[int]) -> None:
    bank, oracle, count = MemoryBank(width=1, size=size), collections.deque(maxlen=size), 0
    for batch in batches:
        numbers = [float(n) for n in range(count, count + batch)]
        bank.push(torch.tensor(numbers).unsqueeze(1))
        oracle.extend(numbers)
        count += batch
        assert len(bank) == len(oracle)
        assert sorted(bank.vectors().flatten().tolist()) == sorted(oracle)
        # The pointer is the slot of the oldest vector, the next to be overwritten.
        assert int(bank.pointer) == count % size
        if len(oracle) == size:
            assert bank.bank_KD[int(bank.pointer), 0].item() == oracle[0]


def test_of_a_batch_larger_than_the_bank_the_last_vectors_stay_with_their_texts() -> None:
    """The texts stay those of their vectors, so that an equal text in the next batch is no negative."""
    bank = MemoryBank(width=1, size=5)
    for start, count in ((0, 3), (3, 12), (15, 4)):
        numbers = torch.arange(start, start + count)
        bank.push(numbers.float().unsqueeze(1), numbers + 100)
    pairs = dict(zip(bank.vectors().flatten().tolist(), bank.texts().tolist(), strict=True))
    assert pairs == {float(number): number + 100 for number in range(14, 19)}


def test_state_goes_on_where_it_was(tmp_path: Path) -> None:
    batches = [torch.randn(n, 3, generator=torch.Generator().manual_seed(n)) for n in (4, 5, 6, 7, 3)]
    straight, before = MemoryBank(3, 10), MemoryBank(3, 10)
    for number, batch in enumerate(batches):
        straight.push(batch)
        if number < 3:
            before.push(batch)
    torch.save(before.state_dict(), tmp_path / "bank.pt")
    resumed = MemoryBank(3, 10)
    resumed.load_state_dict(torch.load(tmp_path / "bank.pt", weights_only=True))
    for batch in batches[3:]:
        resumed.push(batch)
    for name, value in straight.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert set(straight.state_dict()) == {"bank_KD", "texts_K", "pointer", "filled"}


@pytest.mark.parametrize(("pointer", "filled"), [(4, 4), (-1, 4), (2, 1), (0, 3), (0, 5), (0, -1)])
def test_a_damaged_state_is_refused(pointer: int, filled: int) -> None:
    state = MemoryBank(2, 4).state_dict()
    state["pointer"], state["filled"] = torch.tensor(pointer), torch.tensor(filled)
    with pytest.raises(InputError, match="damaged"):
        MemoryBank(2, 4).load_state_dict(state)


def test_another_size_and_wrong_pushes_are_refused() -> None:
    bank = MemoryBank(2, 4)
    for width, size in ((2, 8), (2, 3), (1, 4), (3, 4)):
        with pytest.raises(InputError, match=rf"\[4, 2\], this run's is \[{size}, {width}\]"):
            MemoryBank(width, size).load_state_dict(bank.state_dict())
    for wrong in (torch.zeros(3, 3), torch.zeros(2), torch.zeros(0, 2), torch.zeros(2, 2).long()):
        with pytest.raises(InputError, match=r"MemoryBank\.push"):
            bank.push(wrong)
    assert len(bank) == 0
    with pytest.raises(InputError, match="at least 1"):
        MemoryBank(2, 0)


def test_push_takes_half_precision_and_keeps_no_graph() -> None:
    bank = MemoryBank(2, 4)
    bank.push(torch.ones(3, 2, dtype=torch.float16, requires_grad=True) * 2)
    assert bank.vectors().dtype == torch.float32
    assert not bank.vectors().requires_grad
    assert bank.vectors().tolist() == [[2.0, 2.0]] * 3


def test_pushing_before_backward_does_not_change_the_gradient() -> None:
    student, teacher = torch.randn(3, 4).requires_grad_(), torch.randn(3, 4)
    gradients = []
    for early in (False, True):
        bank = MemoryBank(4, 5)
        bank.push(torch.arange(20.0).view(5, 4).cos())
        loss = objectives.contrastive_distillation(student, teacher, bank.vectors())
        if early:
            bank.push(teacher)
        gradients.append(torch.autograd.grad(loss, student)[0])
    assert torch.equal(*gradients)


# --- registry


def test_every_objective_is_public() -> None:
    assert {objective.function for objective in objectives.OBJECTIVES.values()} == {
        getattr(objectives, name)
        for name in objectives.__all__
        if inspect.isfunction(getattr(objectives, name))
        and name not in ("find_objective", "layer_subset", "domain_prototypes", "candidate_scores", "matryoshka")
    }


def test_calls_by_name() -> None:
    with pytest.raises(InputError) as caught:
        objectives.find_objective("multilingual_msse")
    assert all(name in str(caught.value) for name in objectives.OBJECTIVES)
    batch = {"teacher_BD": torch.ones(2, 3), "student_BD": torch.zeros(2, 3), "something_else": None}
    assert objectives.find_objective("kd")(batch).item() == 1.0
    with pytest.raises(InputError, match="needs bank_KD, which this stage does not provide"):
        objectives.find_objective("contrastive_distillation")(batch)
    with pytest.raises(InputError, match=r"unknown option temperature \(known: reduction\)"):
        objectives.find_objective("kd")(batch, temperature=1)
    with pytest.raises(InputError, match=r"known: temperature"):
        objectives.find_objective("contrastive_distillation")({}, tau=1)


def test_optional_inputs_are_used_where_given() -> None:
    ones, zeros = torch.ones(2, 3), torch.zeros(2, 3)
    batch = {"teacher_source_BD": ones, "student_source_BD": ones, "student_target_BD": zeros}
    objective = objectives.find_objective("multilingual_mse")
    assert objective(batch).item() == 1.0
    assert objective({**batch, "teacher_target_BD": zeros}).item() == 0.0
    assert objective({**batch, "teacher_target_BD": None}).item() == 1.0
