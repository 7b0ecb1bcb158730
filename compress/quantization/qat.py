"""Quantization-aware training: a student that computes with rounded weights and activations while it learns.

`prepare` changes the classes of a student's modules in place, not their parameters: names, checkpoints and optimizers
stay as they are. The forward pass uses the numbers that `msdc.compress.quantization.weights.quantize` will use (same
scales, same
rounding, same per-token activations); the backward pass treats rounding as the identity (straight-through, Bengio
et al. 2013). torchao 0.18's own QAT modules compute the same int8 forward pass (tested, bit for bit), but know no
two-byte scales, rename the modules, round the whole table at every step, and stop the gradient of the largest number
of every group, which at 32 numbers per group freezes the weights that matter most.

Shapes: B batch, T tokens, R rows, C columns, G groups of a row.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msdc.compress.quantization.plan import Dtype, PrecisionPlan, check_plan, plan_for, scale_dtype
from msdc.compress.quantization.weights import dequantize_rows, quantize_block, quantize_columns
from msdc.compress.student.coded_table import Code
from msdc.compress.student.model import Student
from msdc.compress.student.shapes import CODE, POSITION, TABLE
from msdc.errors import InputError


def straight_through(value: Tensor, rounded: Tensor) -> Tensor:
    """`rounded` forwards, the gradient of `value` backwards."""
    return value + (rounded - value).detach()


@torch.no_grad()
def _round_trip(weight_RC: Tensor, dtype: Dtype, group: int, name: str) -> Tensor:
    columns = group if dtype == "int4" else weight_RC.shape[1]
    return dequantize_rows(*quantize_block(weight_RC, columns, dtype, scale_dtype(name, dtype)))


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


class FakeQuantizedLinear(nn.Linear):
    """A linear whose weight and input are rounded; made by `prepare`, never constructed."""

    plan_dtype: Dtype
    plan_group: int
    plan_name: str

    def forward(self, hidden: Tensor) -> Tensor:
        """The product of rounded input and rounded weight, [..., R]."""
        weight = self.weight
        rounded = _round_trip(weight, self.plan_dtype, self.plan_group, self.plan_name)
        return F.linear(fake_quantize_tokens(hidden), straight_through(weight, rounded.to(weight.dtype)), self.bias)


class FakeQuantizedEmbedding(nn.Embedding):
    """A token table whose rows are rounded as they are looked up; made by `prepare`, never constructed."""

    plan_dtype: Dtype
    plan_group: int
    plan_name: str

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Rounded rows of the ids, [B, T, C]."""
        # A scale belongs to one row, so rounding the rows of this batch is rounding the table, and far cheaper.
        rows = super().forward(ids_BT)
        flat = rows.reshape(-1, rows.shape[-1])
        return straight_through(rows, _round_trip(flat, self.plan_dtype, self.plan_group, self.plan_name).view_as(rows))


class FakeQuantizedPositions(nn.Embedding):
    """A position table that reads as its rounded rows; made by `prepare`, never constructed."""

    plan_dtype: Dtype
    plan_group: int
    plan_name: str

    # The student takes slices of `weight` itself, so reading it rounds; the parameter itself is not changed.
    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The rounded table [R, C], with the gradient of the parameter."""
        own = self._parameters["weight"]
        assert own is not None
        return straight_through(own, _round_trip(own, self.plan_dtype, self.plan_group, self.plan_name))


class FakeQuantizedCode(Code):
    """The links of a coded table, whose weights read as their rounded numbers; made by `prepare`, never constructed."""

    plan_dtype: Dtype
    plan_group: int
    plan_name: str

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The rounded weights [V, k], with the gradient of the parameter."""
        own = self._parameters["weight"]
        assert own is not None
        with torch.no_grad():
            rounded = dequantize_rows(*quantize_columns(own))
        return straight_through(own, rounded)


_PLAIN: dict[type[nn.Module], type[nn.Module]] = {
    FakeQuantizedLinear: nn.Linear,
    FakeQuantizedEmbedding: nn.Embedding,
    FakeQuantizedPositions: nn.Embedding,
    FakeQuantizedCode: Code,
}
_ATTRIBUTES = ("plan_dtype", "plan_group", "plan_name")


def is_prepared(student: nn.Module) -> bool:
    """Whether any module of `student` computes with rounded numbers."""
    return any(type(module) in _PLAIN for module in student.modules())


def prepare(student: Student, precision: str | PrecisionPlan) -> None:
    """Make `student` compute, in place, as it will after quantization under `precision` (a name or a plan).

    Raises:
        InputError: an unknown precision, a plan that does not fit, or a student that is prepared already.
    """
    if is_prepared(student):
        raise InputError("this student is prepared for quantization-aware training already")
    plan = precision if isinstance(precision, PrecisionPlan) else plan_for(student, precision)
    check_plan(student.config, plan)
    for name, dtype in plan.weights.items():
        module: Any = student.get_submodule(name.removesuffix(".weight"))
        if dtype == "fp32":
            continue
        special: dict[str, type[nn.Module]] = {
            TABLE: FakeQuantizedEmbedding,
            POSITION: FakeQuantizedPositions,
            CODE: FakeQuantizedCode,
        }
        module.__class__ = special.get(name, FakeQuantizedLinear)
        module.plan_dtype, module.plan_group, module.plan_name = dtype, plan.group, name


def convert(student: Student) -> Student:
    """A plain copy in eval mode with the trained float weights; quantized under the same plan it is what was trained.

    The weights are not rounded here, so that the same student can also be saved and exported in float.
    """
    plain = copy.deepcopy(student)
    for module in plain.modules():
        if type(module) in _PLAIN:
            for name in _ATTRIBUTES:
                delattr(module, name)
            module.__class__ = _PLAIN[type(module)]
    return plain.eval()
