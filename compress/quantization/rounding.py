"""A student that computes with rounded weights: with torchao's tensors for an export, or as it learns.

`quantize_student` takes the integers and scales of `msdc.compress.student.weights`. Quantization-aware training rounds
to the same numbers: `prepare_qat` changes the classes of a student's modules in place, not their parameters: names,
checkpoints and optimizers stay as they are; the backward pass treats rounding as the identity (straight-through, Bengio
et al. 2013). torchao 0.18's own QAT modules compute the same int8 forward pass (tested, bit for bit), but know no
two-byte scales, rename the modules, round the whole table at every step, and stop the gradient of the largest number of
every group, which at 32 numbers per group freezes the weights that matter most.

Shapes: B batch, T tokens, V vocabulary, k nonzeros per token, R rows, C columns, G groups of a row.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msdc.compress.student import plan as plans
from msdc.compress.student.coded_table import Code
from msdc.compress.student.config import CODE, POSITION, TABLE
from msdc.compress.student.model import Student
from msdc.compress.student.plan import PrecisionPlan, QuantizedWeight
from msdc.compress.student.weights import integers
from msdc.errors import InputError


def torchao_weight(part: QuantizedWeight, *, activations: bool = True) -> Tensor:
    """A quantized weight as torchao's tensor; `activations`: its products quantize their input to int8 per token."""
    from torchao.quantization import IntxUnpackedToInt8Tensor
    from torchao.quantization.quantize_.workflows.intx.intx_unpacked_to_int8_tensor import (
        IntxUnpackedToInt8TensorActivationQuantization as Activations,
    )

    values_RC, scale_RG = torch.from_numpy(part.values), torch.from_numpy(part.scale)
    return IntxUnpackedToInt8Tensor(  # type: ignore[no-any-return]
        qdata=values_RC,
        scale=scale_RG,
        zero_point=torch.zeros_like(scale_RG, dtype=torch.int8),
        target_dtype=getattr(torch, part.dtype),
        block_size=(1, values_RC.shape[1] // scale_RG.shape[1]),
        dtype=torch.float32,
        activation_quantization=Activations.INT8_ASYM_PER_TOKEN if activations else None,
    )


def quantize_student(student: Student, plan: PrecisionPlan) -> Student:
    """A copy of `student` (eval mode) whose planned weights are torchao tensors, as `torch.export` wants them.

    Equal to torchao with its Int8DynamicActivationIntxWeightConfig (linears: int8 per row or int4 in groups, with
    per-token asymmetric int8 activations) and IntxWeightOnlyConfig (token table). int8 positions and weights of a
    code become their dequantized numbers: torchao has no addition for its tensors; `integers` has the integers.
    """
    return with_integers(student, integers(student, plan))


def with_integers(student: Student, parts: Mapping[str, QuantizedWeight]) -> Student:
    """`quantize_student` for integers that are computed already."""
    # The big table is about to be replaced: share it with the original while copying instead of doubling it.
    memo = {id(parameter): parameter for name, parameter in student.named_parameters() if name in parts}
    copied = copy.deepcopy(student, memo).eval()
    for name, part in parts.items():
        module = copied.get_submodule(name.removesuffix(".weight"))
        plain = name in (POSITION, CODE)
        weight = torch.from_numpy(part.dequantize()) if plain else torchao_weight(part, activations=name != TABLE)
        module.weight = nn.Parameter(weight, requires_grad=False)
    # torchao's embedding refuses a padding_idx, which a table loaded from elsewhere may carry.
    copied.embedding.table.padding_idx = None  # type: ignore[assignment]
    # Only now: until they were replaced, the big weights were the original's own.
    return copied.requires_grad_(False)


def straight_through(value: Tensor, rounded: Tensor) -> Tensor:
    """`rounded` forwards, the gradient of `value` backwards."""
    return value + (rounded - value).detach()


@torch.no_grad()
def round_trip(weight_RC: Tensor, dtype: plans.Dtype, group: int, name: str) -> Tensor:
    """The weight as its integers and scales represent it, float32 [R, C], equal to `QuantizedWeight.dequantize`."""
    if name == CODE:
        return round_trip(weight_RC.T, dtype, group, "").T
    low, high = plans.RANGE[dtype]
    blocks = weight_RC.detach().float().reshape(-1, group if dtype == "int4" else weight_RC.shape[1])
    stored_as = getattr(torch, plans.scale_dtype(name, dtype))
    # A row of zeros must not divide by zero, in the type that the scale is stored in.
    scale = (blocks.abs().amax(1) / ((high - low) / 2)).clamp(min=torch.finfo(stored_as).smallest_normal)
    scale = scale.to(stored_as).float()
    zero = torch.zeros_like(scale, dtype=torch.int32)
    return torch.fake_quantize_per_channel_affine(blocks, scale, zero, 0, low, high).view(weight_RC.shape)


def fake_quantize_tokens(hidden: Tensor) -> Tensor:
    """Per-token asymmetric int8 activations, rounded forwards: torchao's choose_qparams_affine over the last axis."""
    with torch.no_grad():
        value = hidden.detach().float()
        low = value.amin(-1, keepdim=True).clamp(max=0)
        high = value.amax(-1, keepdim=True).clamp(min=0)
        scale = ((high - low) / 255.0).clamp(min=torch.finfo(torch.float32).smallest_normal)
        zero = (-128 - torch.round(low / scale)).clamp(-128, 127)
        steps = (torch.round(value * (1.0 / scale)) + zero).clamp(-128, 127)
        rounded = ((steps - zero) * scale).to(hidden.dtype)
    return straight_through(hidden, rounded)


class Rounded:
    """A module that `prepare_qat` changed: dtype, int4 group and name of its weight. It is never constructed."""

    plan: tuple[plans.Dtype, int, str]
    _parameters: dict[str, Any]

    def rounded(self, weight: Tensor) -> Tensor:
        """`weight` as it will be stored, with the gradient of `weight`."""
        return straight_through(weight, round_trip(weight, *self.plan).to(weight.dtype))


class RoundedWeight(Rounded):
    """A module whose `weight` reads as its rounded numbers; the parameter itself is not changed."""

    @property
    def weight(self) -> Tensor:
        """The rounded weight, with the gradient of the parameter."""
        return self.rounded(self._parameters["weight"])


class FakeQuantizedLinear(Rounded, nn.Linear):
    """A linear whose weight and input are rounded."""

    def forward(self, hidden: Tensor) -> Tensor:
        """The product of rounded input and rounded weight, [..., R]."""
        return F.linear(fake_quantize_tokens(hidden), self.rounded(self.weight), self.bias)


class FakeQuantizedEmbedding(Rounded, nn.Embedding):
    """A token table whose rows are rounded as they are looked up."""

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Rounded rows of the ids, [B, T, C]."""
        # A scale belongs to one row, so rounding the rows of this batch is rounding the table, and far cheaper.
        rows = super().forward(ids_BT)
        return self.rounded(rows.reshape(-1, rows.shape[-1])).view_as(rows)


class FakeQuantizedPositions(RoundedWeight, nn.Embedding):  # type: ignore[misc, override]
    """A position table that reads as its rounded rows: the student takes slices of `weight` itself."""


class FakeQuantizedCode(RoundedWeight, Code):  # type: ignore[misc]
    """The nonzeros of a coded table, whose weights read as their rounded numbers."""


# By name of the weight; any other weight that a plan names is a linear's.
_ROUNDED: dict[str, type[nn.Module]] = {
    TABLE: FakeQuantizedEmbedding,
    POSITION: FakeQuantizedPositions,
    CODE: FakeQuantizedCode,
}


def is_prepared(student: nn.Module) -> bool:
    """Whether any module of `student` computes with rounded numbers."""
    return any(isinstance(module, Rounded) for module in student.modules())


def prepare_qat(student: Student, precision: str | PrecisionPlan) -> None:
    """Make `student` compute, in place, as it will after quantization under `precision` (a name or a plan)."""
    if is_prepared(student):
        raise InputError("this student is prepared for quantization-aware training already")
    plan = precision if isinstance(precision, PrecisionPlan) else plans.plan_for(student, precision)
    plans.check_plan(student.config, plan)
    for name, dtype in plan.weights.items():
        if dtype != "fp32":
            module: Any = student.get_submodule(name.removesuffix(".weight"))
            module.__class__ = _ROUNDED.get(name, FakeQuantizedLinear)
            module.plan = dtype, plan.group, name


def convert(student: Student) -> Student:
    """A plain copy in eval mode with the trained float weights; quantized under the same plan it is what was trained.

    The weights are not rounded here, so that the same student can also be saved and exported in float.
    """
    plain = copy.deepcopy(student)
    for module in plain.modules():
        if isinstance(module, Rounded):
            del module.plan
            # The plain class is the last base.
            module.__class__ = type(module).__bases__[-1]
    return plain.eval()
