"""Integers, plans and training with rounded numbers: all three say the same, and torchao agrees."""

import copy

import numpy as np
import pytest
import tiny_models as tiny
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from msdc.compress.quantization.rounding import convert, is_prepared, prepare_qat, quantize_student, round_trip
from msdc.compress.quantization.search import sqnr_db
from msdc.compress.student.config import CODE, POSITION, TABLE, matrix_names, parameter_counts, tensor_shapes
from msdc.compress.student.io import load_student
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.plan import (
    PRECISIONS,
    PrecisionPlan,
    dequantize_rows,
    plan_for,
    quantize_block,
    quantize_columns,
    weight_bytes_by_dtype,
)
from msdc.compress.student.weights import integers
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.errors import InputError, MsdcError

CONFIG = {"vocabulary": 97, "hidden": 64, "heads": 4, "intermediate": 96, "unit": 2, "repeats": 2, "positions": 20,
          "bottleneck": 32, "dropout": 0.0}  # fmt: skip


def student_of(**changes) -> Student:
    return tiny.shaken(StudentConfig(**(CONFIG | changes)))


CONFIGS = [
    StudentConfig(**(CONFIG | changes))
    for changes in (
        {},
        {"unit": 1, "repeats": 3, "place": "embedding", "dense": 48, "dense_activation": "tanh"},
        {"repeats": 1, "bottleneck": None, "dense": 32, "dense_bias": False},
    )
]


def batch():
    torch.manual_seed(1)
    mask = torch.ones(3, 11, dtype=torch.bool)
    mask[1, 6:] = False
    return torch.randint(0, 97, (3, 11)), mask


def torchao_copy(student: Student, table: torch.dtype, linear: torch.dtype) -> Student:
    """The oracle: torchao's own one-call API."""
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, IntxWeightOnlyConfig, quantize_
    from torchao.quantization.granularity import PerAxis, PerGroup

    def granularity(dtype):
        return PerAxis(0) if dtype == torch.int8 else PerGroup(32)

    copied = copy.deepcopy(student)
    linears = Int8DynamicActivationIntxWeightConfig(weight_dtype=linear, weight_granularity=granularity(linear))
    quantize_(copied, linears, lambda module, name: isinstance(module, nn.Linear))
    tables = IntxWeightOnlyConfig(table, granularity(table))
    quantize_(copied, tables, lambda module, name: name == "embedding.table")
    return copied


@pytest.mark.parametrize("config", CONFIGS)
def test_names_and_shapes_are_the_students(config):
    state = Student(config).state_dict()
    assert tensor_shapes(config) == {name: tuple(value.shape) for name, value in state.items()}
    assert parameter_counts(config)["total"] == sum(value.numel() for value in state.values())


@pytest.mark.parametrize(("bits", "columns"), [("int8", 128), ("int4", 32)])
def test_integers_equal_torchaos_bit_for_bit(bits, columns):
    from torchao.quantization import IntxUnpackedToInt8Tensor

    torch.manual_seed(1)
    weight = torch.randn(300, 128) * torch.logspace(-6, 2, 300)[:, None]
    if bits == "int8":
        weight[7] = 0
    weight[8, 3] = float(weight[8].abs().max()) * 3
    oracle = IntxUnpackedToInt8Tensor.from_hp(weight, (1, columns), getattr(torch, bits))
    values, scale = quantize_block(weight.numpy(), columns, bits, "float32")
    assert np.array_equal(values, oracle.qdata)
    assert np.array_equal(scale, oracle.scale)
    assert np.array_equal(dequantize_rows(values, scale), oracle.dequantize())


@pytest.mark.parametrize("scale_type", ["float16", "bfloat16"])
def test_short_scales_are_exact_in_their_type_and_torchao_makes_the_same_integers_from_them(scale_type):
    from torchao.quantization import IntxUnpackedToInt8Tensor

    torch.manual_seed(3)
    weight = torch.randn(50, 64)
    values, scale = (torch.from_numpy(array) for array in quantize_block(weight.numpy(), 32, "int4", scale_type))
    assert torch.equal(scale.to(getattr(torch, scale_type)).float(), scale)
    oracle = IntxUnpackedToInt8Tensor.from_hp(
        weight, (1, 32), torch.int4, intx_choose_qparams_algorithm=None, custom_scale=scale,
        custom_zero_point=torch.zeros_like(scale, dtype=torch.int8),
    )  # fmt: skip
    assert torch.equal(values, oracle.qdata)
    error = np.abs(dequantize_rows(values.numpy(), scale.numpy()) - weight.numpy()).reshape(50, 2, 32)
    # Half a step inside the range; the largest positive number of a group is clamped from 7.5 to 7 steps.
    assert (error <= scale.numpy()[:, :, None] * 0.54).all()


@pytest.mark.parametrize("config", CONFIGS)
def test_int8_copy_is_the_model_that_torchao_makes(config):
    student = tiny.shaken(config)
    before = {name: value.clone() for name, value in student.state_dict().items()}
    ids, mask = batch()
    ours = quantize_student(student, plan_for(student, "int8"))
    oracle = torchao_copy(student, torch.int8, torch.int8)
    with torch.no_grad():
        assert torch.equal(ours(ids, mask), oracle(ids, mask))
    assert ours.embedding.table.padding_idx is None
    # The original is untouched.
    assert all(torch.equal(before[name], value) for name, value in student.state_dict().items())
    assert all(parameter.requires_grad for parameter in student.parameters())


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_bytes_by_dtype_are_those_of_the_integers_made(config, precision):
    student = tiny.shaken(config)
    plan = plan_for(student, precision)
    quantized = integers(student, plan)
    positions = {POSITION} if precision.endswith("embed4") else set()
    assert set(quantized) == ({*matrix_names(config)} | positions if precision != "fp32" else set())
    rest = sum(4 * v.numel() for name, v in student.state_dict().items() if name not in quantized)
    sizes = weight_bytes_by_dtype(config, plan)
    assert sum(sizes.values()) == rest + sum(part.bytes for part in quantized.values())
    assert sizes["fp32"] == rest


def test_scales_that_were_stored_are_used_again_and_only_while_they_hold():
    student = student_of()
    plan = plan_for(student, "int8")
    first = integers(student, plan)
    student.load_state_dict({name: torch.from_numpy(part.dequantize()) for name, part in first.items()}, strict=False)
    assert not np.array_equal(integers(student, plan)[TABLE].scale, first[TABLE].scale)
    student.stored_scales = {name: part.scale for name, part in first.items()}
    for name, part in integers(student, plan).items():
        assert np.array_equal(part.values, first[name].values)
        assert np.array_equal(part.scale, first[name].scale)
    with torch.no_grad():
        student.embedding.table.weight[3, 5] += 1e-4
    assert not np.array_equal(integers(student, plan)[TABLE].scale, first[TABLE].scale)


def test_a_plan_that_does_not_fit_is_refused():
    with pytest.raises(InputError, match="unknown; known: fp32"):
        plan_for(CONFIGS[0], "int3")
    narrow = StudentConfig(vocabulary=9, hidden=40, heads=4, intermediate=96, unit=1, positions=20)
    with pytest.raises(InputError, match="40 columns, no multiple of the int4 group of 32"):
        plan_for(narrow, "int8-embed4")
    with pytest.raises(InputError, match="cannot quantize"):
        integers(student_of(), PrecisionPlan(precision="x", weights={"layers.9.query.weight": "int8"}))
    with pytest.raises(ValueError, match="positions are fp32 or int8"):
        PrecisionPlan(precision="x", weights={POSITION: "int4"})


def test_sqnr_of_a_known_error():
    reference = np.ones(1000)
    assert sqnr_db(reference, reference * 1.1) == pytest.approx(20.0, abs=1e-4)
    assert sqnr_db(reference, reference) is None


@pytest.mark.parametrize(
    ("name", "dtype", "group", "kind"),
    [("up.weight", "int8", 0, "float32"), (TABLE, "int4", 32, "float16"), ("up.weight", "int4", 32, "bfloat16")],
)
def test_training_rounds_to_the_integers_of_the_artifact(name, dtype, group, kind):
    """Bit for bit the same numbers, ties, zeros and outliers too."""
    generator = np.random.default_rng(5)
    weight_RC = (generator.standard_normal((400, 96)) * generator.lognormal(0, 3, (400, 1))).astype(np.float32)
    weight_RC[0], weight_RC[1, :32] = 0.0, 1e-42
    weight_RC[2] = np.arange(96) / 2  # ties
    stored = dequantize_rows(*quantize_block(weight_RC, group or 96, dtype, kind))
    assert np.array_equal(round_trip(torch.from_numpy(weight_RC), dtype, group, name), stored)
    code = dequantize_rows(*quantize_columns(weight_RC))
    assert np.array_equal(round_trip(torch.from_numpy(weight_RC), "int8", 0, CODE), code)


@pytest.mark.parametrize("precision", ["int8", "int8-embed4", "int4-embed4"])
@pytest.mark.parametrize(
    "changes", [{}, {"place": "embedding", "dense": 48}, {"bottleneck": None}, {"base_rows": 40, "nonzeros": 3}]
)
def test_a_prepared_student_computes_what_it_will_be_quantized_to(precision, changes):
    student = student_of(**changes)
    names = list(student.state_dict())
    plain = copy.deepcopy(student)
    prepare_qat(student, precision)
    assert is_prepared(student)
    assert list(student.state_dict()) == names
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        fake = student(*batch())
        real = quantize_student(plain, plan_for(plain, precision))(*batch())
        back = convert(student)
        after = quantize_student(back, plan_for(back, precision))(*batch())
        assert not is_prepared(back)
        assert torch.equal(back(*batch()), plain(*batch()))
    # One rounding step of an activation may fall the other way; a wrong scale would be off by 1e-2 and more.
    assert float((fake - real).abs().max()) < 2e-3
    assert float((fake * real).sum(1).min()) > 0.99999
    assert torch.equal(after, real)


def test_a_linear_is_torchaos_fake_quantized_linear():
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, quantize_
    from torchao.quantization.granularity import PerAxis
    from torchao.quantization.qat import QATConfig

    student = student_of()
    oracle = nn.Sequential(copy.deepcopy(student.layers[0].up))
    base = Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8, weight_granularity=PerAxis(0))
    quantize_(oracle, QATConfig(base, step="prepare"))
    prepare_qat(student, "int8")
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
    assert bool(stopped.any())
    assert float(steps[stopped].detach().min()) > 127.49
    assert torch.allclose(weight.grad[~stopped], oracle[0].weight.grad[~stopped], atol=1e-5)


def test_every_parameter_learns_and_training_lowers_the_loss_of_the_quantized_student():
    student = student_of()
    teacher = copy.deepcopy(student)
    ids, mask = batch()
    with torch.no_grad():
        target = teacher(ids, mask)
        before = quantize_student(student, plan_for(student, "int4-embed4"))(ids, mask)
    prepare_qat(student, "int4-embed4")
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
        after = quantize_student(convert(student), plan_for(student, "int4-embed4"))(ids, mask)
    gain = (before - target).square().sum() / (after - target).square().sum()
    assert float(gain) > 1.5


def test_a_checkpoint_of_a_prepared_student_is_one_of_the_plain_student():
    student = student_of()
    prepare_qat(student, "int8")
    plain = student_of()
    plain.load_state_dict(student.state_dict())
    with pytest.raises(InputError, match="prepared for quantization-aware training already"):
        prepare_qat(student, "int8")
    with pytest.raises(InputError, match="unknown"):
        prepare_qat(plain, "int3")


def with_stage(tree: dict, precision: str) -> dict:
    first = {**tree["stages"][0], "steps": 2}
    last = {
        **tree["stages"][3],
        "name": "qat",
        "steps": 4,
        "objective": "multilingual_mse",
        "quantize": precision,
    }
    return tree | {"stages": [first, last]}


def test_stage_trains_with_rounding_and_leaves_float_weights(tiny_tree, tmp_path):
    recipe = parse_recipe(with_stage(tiny_tree, "int8"), "tiny")
    distill(recipe, tmp_path / "run")
    student = load_student(tmp_path / "run" / "student")
    assert not is_prepared(student)
    assert not student.stored_scales
    weight_RC = student.layers[0].up.weight.detach().numpy()
    # Float numbers, which another precision can still be made of: far more values than 255 steps a row.
    assert all(len(np.unique(row)) == weight_RC.shape[1] for row in weight_RC)


def test_a_precision_that_does_not_fit_is_said_in_one_line(tiny_tree, tmp_path):
    recipe = parse_recipe(with_stage(tiny_tree, "int4-embed4"), "tiny")
    with pytest.raises(MsdcError, match="int4 group of 32") as caught:
        distill(recipe, tmp_path / "run")
    assert "\n" not in str(caught.value)
