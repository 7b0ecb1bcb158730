"""Quantized weights as torch tensors: for training with rounded weights, and as torchao's tensors for ExecuTorch.

`msdc.compress.quantization.integers` makes the integers and scales of every artifact. The functions on tensors here are
the same arithmetic, for forward passes that train with rounded weights; a test holds both to the same numbers.

Shapes: V vocabulary, E width of the token table, R rows, C columns, G groups of a row.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from msdc.compress.quantization import integers as numbers
from msdc.compress.quantization.plan import RANGE, SCALE_BYTES, Dtype, PrecisionPlan, ScaleDtype
from msdc.compress.student.model import Student
from msdc.compress.student.shapes import CODE, POSITION, TABLE


def quantize_block(weight_RC: Tensor, columns: int, dtype: Dtype, scale_type: ScaleDtype) -> tuple[Tensor, Tensor]:
    """Integers as int8 [R, C] and float32 scale [R, C / columns], one scale for `columns` numbers of a row."""
    low, high = RANGE[dtype]
    R, C = weight_RC.shape
    blocks_RGC = weight_RC.detach().float().reshape(R, C // columns, columns)
    # (high - low) / 2 and the reciprocal below are torchao's (choose_qparams_affine, quantize_affine); dividing by the
    # scale instead flips some ties.
    scale_RG = blocks_RGC.abs().amax(2) / ((high - low) / 2)
    stored_as = getattr(torch, scale_type)
    # A row of zeros must not divide by zero, in the type that the scale is stored in.
    scale_RG = scale_RG.clamp(min=torch.finfo(stored_as).smallest_normal).to(stored_as).float()
    values_RGC = torch.round(blocks_RGC * (1.0 / scale_RG).unsqueeze(2)).clamp(low, high)
    return values_RGC.to(torch.int8).reshape(R, C), scale_RG


def dequantize_rows(values_RC: Tensor, scale_RG: Tensor) -> Tensor:
    """float32 [R, C] of integers and their scales (one per row or group)."""
    R, C = values_RC.shape
    G = scale_RG.shape[1]
    return (values_RC.float().reshape(R, G, C // G) * scale_RG.unsqueeze(2)).reshape(R, C)


def quantize_columns(weight_RC: Tensor) -> tuple[Tensor, Tensor]:
    """Integers as int8 [R, C] and float32 scale [1, C] of the weights of a coded table."""
    values_CR, scale_C1 = quantize_block(weight_RC.T, weight_RC.shape[0], "int8", "float32")
    return values_CR.T.contiguous(), scale_C1.T.contiguous()


@dataclass(frozen=True)
class QuantizedWeight:
    """Integers and scales of one weight: `values` int8 [R, C], `scale` float32 [R, G] ([1, C] for a code)."""

    name: str
    dtype: Dtype
    values: Tensor
    scale: Tensor
    scale_type: ScaleDtype

    @classmethod
    def of(cls, part: numbers.Integers) -> QuantizedWeight:
        """The same integers as tensors; they share memory."""
        return cls(part.name, part.dtype, torch.from_numpy(part.values), torch.from_numpy(part.scale), part.scale_type)

    @property
    def group(self) -> int:
        """Columns that share a scale."""
        return self.values.shape[1] // self.scale.shape[1]

    def dequantize(self) -> Tensor:
        """float32 [R, C]."""
        return dequantize_rows(self.values, self.scale)

    @property
    def bytes(self) -> int:
        """Bytes of integers (two int4 in a byte) and scales as stored."""
        bits = 4 if self.dtype == "int4" else 8
        return self.values.numel() * bits // 8 + self.scale.numel() * SCALE_BYTES[self.scale_type]


def integers(student: Student, plan: PrecisionPlan) -> dict[str, QuantizedWeight]:
    """Integers and scales of every weight that the plan quantizes, by name (`msdc.compress.quantization.integers`).

    A student read from an int8 folder remembers its scales (`student.stored_scales`), which are used again.

    Raises:
        InputError: the plan does not fit the student.
    """
    return {name: QuantizedWeight.of(part) for name, part in numbers.integers(student.numbers(), plan).items()}


def torchao_weight(part: QuantizedWeight, *, activations: bool = True) -> Tensor:
    """A quantized weight as torchao's tensor; `activations`: its products quantize their input to int8 per token."""
    from torchao.quantization import IntxUnpackedToInt8Tensor
    from torchao.quantization.quantize_.workflows.intx.intx_unpacked_to_int8_tensor import (
        IntxUnpackedToInt8TensorActivationQuantization as Activations,
    )

    return IntxUnpackedToInt8Tensor(  # type: ignore[no-any-return]
        qdata=part.values,
        scale=part.scale,
        zero_point=torch.zeros(part.scale.shape, dtype=torch.int8),
        target_dtype=getattr(torch, part.dtype),
        block_size=(1, part.group),
        dtype=torch.float32,
        activation_quantization=Activations.INT8_ASYM_PER_TOKEN if activations else None,
    )


def int8_rows(weight_RC: Tensor, name: str) -> QuantizedWeight:
    """int8 of one matrix, one scale per row: the weight of a model that has no precision plan."""
    return QuantizedWeight.of(numbers.int8_rows(weight_RC.detach().cpu().float().numpy(), name))


def quantize(student: Student, plan: PrecisionPlan) -> Student:
    """A copy of `student` (eval mode) whose planned weights are torchao tensors, as `torch.export` wants them.

    Equal to `quantize_` with `Int8DynamicActivationIntxWeightConfig` (linears: int8 per row or int4 in groups, with
    per-token asymmetric int8 activations) and `IntxWeightOnlyConfig` (token table). int8 positions and weights of a
    code become their dequantized numbers: torchao has no addition for its tensors; `integers` has the integers.

    Raises:
        InputError: the plan does not fit the student.
    """
    parts = integers(student, plan)
    # The big table is about to be replaced: share it with the original while copying instead of doubling it.
    memo = {id(parameter): parameter for name, parameter in student.named_parameters() if name in parts}
    copied = copy.deepcopy(student, memo).eval()
    for name, part in parts.items():
        module = copied.get_submodule(name.removesuffix(".weight"))
        if name in (POSITION, CODE):
            module.weight = nn.Parameter(part.dequantize(), requires_grad=False)
            continue
        tensor = torchao_weight(part, activations=name != TABLE)
        module.weight = nn.Parameter(tensor, requires_grad=False)
    # torchao's embedding refuses a padding_idx, which a table loaded from elsewhere may carry.
    copied.embedding.table.padding_idx = None  # type: ignore[assignment]
    # Only now: until they were replaced, the big weights were the original's own.
    return copied.requires_grad_(False)


def sqnr_db(reference: Tensor, approximation: Tensor) -> float:
    """Signal-to-quantization-noise ratio in dB, 10 log10( sum reference^2 / sum error^2 ); inf where they are equal."""
    signal = reference.double().square().sum()
    noise = (reference.double() - approximation.double()).square().sum()
    return float("inf") if noise == 0 else float(10 * torch.log10(signal / noise))
