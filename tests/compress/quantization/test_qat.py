"""Training with rounded numbers: forward equals the quantized model, gradients pass, torchao agrees."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from msdc.compress.quantization.plan import plan_for
from msdc.compress.quantization.rounding import convert, is_prepared, prepare, quantize
from msdc.compress.student.model import Student, StudentConfig
from msdc.errors import InputError

CONFIG = {"vocabulary": 97, "hidden": 64, "heads": 4, "intermediate": 96, "unit": 2, "repeats": 2, "positions": 20}


def student_of(**changes) -> Student:
    torch.manual_seed(0)
    student = Student(StudentConfig(**{**CONFIG, "bottleneck": 32, "dropout": 0.0, **changes})).eval()
    with torch.no_grad():
        for parameter in student.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return student


def batch():
    torch.manual_seed(1)
    mask = torch.ones(3, 11, dtype=torch.bool)
    mask[1, 6:] = False
    return torch.randint(0, 97, (3, 11)), mask


@pytest.mark.parametrize("precision", ["int8", "int8-embed4", "int4-embed4"])
@pytest.mark.parametrize(
    "changes", [{}, {"place": "embedding", "dense": 48}, {"bottleneck": None}, {"base_rows": 40, "links": 3}]
)
def test_a_prepared_student_computes_what_it_will_be_quantized_to(precision, changes):
    student = student_of(**changes)
    names = list(student.state_dict())
    plain = copy.deepcopy(student)
    prepare(student, precision)
    assert is_prepared(student) and list(student.state_dict()) == names
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        fake = student(*batch())
        real = quantize(plain, plan_for(plain, precision))(*batch())
        back = convert(student)
        after = quantize(back, plan_for(back, precision))(*batch())
        assert not is_prepared(back) and torch.equal(back(*batch()), plain(*batch()))
    # One rounding step of an activation may fall the other way; a wrong scale would be off by 1e-2 and more.
    assert float((fake - real).abs().max()) < 2e-3 and float((fake * real).sum(1).min()) > 0.99999
    assert torch.equal(after, real)


def test_a_linear_is_torchaos_fake_quantized_linear():
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerAxis
    from torchao.quantization.qat import QATConfig

    student = student_of()
    oracle = nn.Sequential(copy.deepcopy(student.layers[0].up))
    base = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8, weight_granularity=PerAxis(0))
    quantize_(oracle, QATConfig(base, step="prepare"))
    prepare(student, "int8")
    hidden = torch.randn(5, 64, requires_grad=True)
    theirs_in = hidden.detach().clone().requires_grad_()
    ours, theirs = student.layers[0].up(hidden), oracle(theirs_in)
    assert torch.allclose(ours, theirs, atol=1e-5)
    ours.square().sum().backward()
    theirs.square().sum().backward()
    assert torch.allclose(hidden.grad, theirs_in.grad, atol=1e-4)
    # torchao stops the gradient of the one number of a row that is clamped (+127.5 steps to 127); we let it pass.
    weight = student.layers[0].up.weight
    steps = weight / (weight.abs().amax(1, keepdim=True) / 127.5)
    stopped = (oracle[0].weight.grad == 0) & (weight.grad != 0)
    assert bool(stopped.any()) and float(steps[stopped].detach().min()) > 127.49
    assert torch.allclose(weight.grad[~stopped], oracle[0].weight.grad[~stopped], atol=1e-5)


def test_every_parameter_learns_and_training_lowers_the_loss_of_the_quantized_student():
    student = student_of()
    teacher = copy.deepcopy(student)
    ids, mask = batch()
    with torch.no_grad():
        target = teacher(ids, mask)
        before = quantize(student, plan_for(student, "int4-embed4"))(ids, mask)
    prepare(student, "int4-embed4")
    optimizer = torch.optim.Adam(student.parameters(), lr=1e-3)
    for step in range(60):
        loss = (student(ids, mask) - target).square().sum(1).mean()
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            # A key's bias shifts all scores of a query alike, which softmax does not see.
            silent = [n for n, p in student.named_parameters() if p.grad is None or not bool(p.grad.abs().sum() > 0)]
            assert [name for name in silent if not name.endswith("key.bias")] == []
        optimizer.step()
    with torch.no_grad():
        after = quantize(convert(student), plan_for(student, "int4-embed4"))(ids, mask)
    gain = (before - target).square().sum() / (after - target).square().sum()
    assert float(gain) > 1.5


def test_a_checkpoint_of_a_prepared_student_is_one_of_the_plain_student():
    student = student_of()
    prepare(student, "int8")
    plain = student_of()
    plain.load_state_dict(student.state_dict())
    with pytest.raises(InputError, match="prepared for quantization-aware training already"):
        prepare(student, "int8")
    with pytest.raises(InputError, match="unknown"):
        prepare(plain, "int3")
