"""Quantization of a student's weights: the numbers, the plan that says which weight gets which, the torchao copy.

One function, `integers`, makes the integers and scales that everything else uses: the torchao tensors that ExecuTorch
lowers, the ONNX graph, and the int8 student folder. The numbers are torchao's: symmetric, scale = max|w| / 127.5 (int8
per row) or max|w| / 7.5 (int4 per group), rounded half to even, zero point 0. Weights of a coded table are int8 with
one scale per column, because a scale per piece would take more bytes than they do.

Shapes: V vocabulary, E width of the token table, R rows, C columns, G groups of a row.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn

from msdc.compress.student.coded_table import index_type
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.shapes import CODE, DENSE, INDEX, POSITION, PROJECT, TABLE, matrix_names, tensor_shapes
from msdc.errors import InputError

# int4-embed4 is for students trained with fake quantization (msdc.compress.quantization.qat): without it int4 linears
# lose too much (cosine 0.957 to the float model).
PRECISIONS = ("fp32", "int8", "int8-embed4", "int4-embed4")
GROUP = 32

Dtype = Literal["fp32", "int8", "int4"]
ScaleDtype = Literal["float32", "float16", "bfloat16"]
SCALE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
_RANGE = {"int8": (-128, 127), "int4": (-8, 7)}


class PrecisionPlan(BaseModel):
    """Dtype of each named weight (names of `state_dict()`); every tensor that is not named stays float32."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: str = Field(description="the name under which this plan was made")
    weights: dict[str, Dtype]
    group: int = Field(default=GROUP, gt=0, description="columns that share one scale in an int4 weight")

    @model_validator(mode="after")
    def _known_names(self) -> PrecisionPlan:
        for name, what in ((POSITION, "positions"), (CODE, "weights of a coded table")):
            if self.weights.get(name) == "int4":
                raise ValueError(f"{what} are fp32 or int8")
        return self

    def dtype(self, name: str) -> Dtype:
        """Dtype of the weight `name`."""
        return self.weights.get(name, "fp32")


def _config(model: Student | StudentConfig) -> StudentConfig:
    return model if isinstance(model, StudentConfig) else model.config


# States of a layer that come out of a layer norm, and the products that read them: the layer's input, and the state
# before the feed-forward part.
NORM_READERS = {"entry": ("query", "key", "value"), "middle": ("up",)}


def scale_dtype(name: str, dtype: Dtype) -> ScaleDtype:
    """How the scales of a weight are stored: int4 has a scale every 32 numbers, so two bytes each, not four.

    A linear's are bfloat16 because XNNPACK's blockwise int4 kernel keeps them so; rounding them here, before the
    integers are chosen, keeps the artifact equal to the float simulation.
    """
    if dtype != "int4":
        return "float32"
    return "float16" if name == TABLE else "bfloat16"


def plan_for(model: Student | StudentConfig, precision: str) -> PrecisionPlan:
    """The plan behind the name of a precision.

    Bottleneck map and dense head stay int8 in int4-embed4: they are small and every token passes them. So do the
    weights of a coded table, whose base counts as the table. Positions are int8 beside a 4-bit table, else float.

    Raises:
        InputError: unknown name, or an int4 weight whose rows are no multiple of 32.
    """
    if precision not in PRECISIONS:
        raise InputError(f"precision {precision!r} is unknown; known: {', '.join(PRECISIONS)}")
    config = _config(model)
    weights: dict[str, Dtype] = {}
    for name in matrix_names(config):
        if precision == "fp32":
            weights[name] = "fp32"
        elif name == TABLE:
            weights[name] = "int8" if precision == "int8" else "int4"
        else:
            weights[name] = "int4" if precision == "int4-embed4" and name not in (CODE, PROJECT, DENSE) else "int8"
    if precision.endswith("embed4"):
        # Beside a 4-bit table, float positions of 512 tokens would be a twentieth of a small artifact.
        weights[POSITION] = "int8"
    plan = PrecisionPlan(precision=precision, weights=weights)
    check_plan(config, plan)
    return plan


def reads_int8(plan: PrecisionPlan, layer: int, state: str) -> bool:
    """Are all the products that read this state (of NORM_READERS) of a layer int8? Only such inputs are smoothed."""
    return all(plan.dtype(f"layers.{layer}.{part}.weight") == "int8" for part in NORM_READERS[state])


def check_plan(config: StudentConfig, plan: PrecisionPlan) -> None:
    """Refuse a plan that does not fit a student.

    Raises:
        InputError: a name the student does not have, or an int4 weight whose rows are no multiple of the group.
    """
    shapes = tensor_shapes(config)
    allowed = {*matrix_names(config), POSITION}
    for name, dtype in plan.weights.items():
        if name not in allowed:
            raise InputError(f"the precision plan names {name!r}, which this student cannot quantize")
        if dtype == "int4" and shapes[name][1] % plan.group:
            raise InputError(f"{name} has {shapes[name][1]} columns, no multiple of the int4 group of {plan.group}")


def quantize_block(weight_RC: Tensor, columns: int, dtype: Dtype, scale_type: ScaleDtype) -> tuple[Tensor, Tensor]:
    """Integers as int8 [R, C] and float32 scale [R, C / columns], one scale for `columns` numbers of a row."""
    low, high = _RANGE[dtype]
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


def scale_shape(name: str, shape: tuple[int, ...], dtype: Dtype, group: int) -> tuple[int, int]:
    """Shape of the scales of a quantized weight of `shape` [R, C]: [R, G], or [1, C] for the weights of a code."""
    if name == CODE:
        return 1, shape[1]
    return shape[0], 1 if dtype == "int8" else shape[1] // group


@dataclass(frozen=True)
class QuantizedWeight:
    """Integers and scales of one weight: `values` int8 [R, C], `scale` float32 [R, G] ([1, C] for a code)."""

    name: str
    dtype: Dtype
    values: Tensor
    scale: Tensor
    scale_type: ScaleDtype

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
    """Integers and scales of every weight that the plan quantizes, by name.

    A student read from an int8 folder remembers its scales (`student.stored_scales`); where they still reproduce the
    weight exactly they are used again, because quantizing dequantized numbers afresh would move them a second time.

    Raises:
        InputError: the plan does not fit the student.
    """
    check_plan(student.config, plan)
    state = student.state_dict()
    stored = student.stored_scales
    made: dict[str, QuantizedWeight] = {}
    for name, dtype in plan.weights.items():
        if dtype == "fp32":
            continue
        weight_RC = state[name].detach().cpu().float()
        scale_type = scale_dtype(name, dtype)
        found = _stored(weight_RC, stored.get(name), dtype, scale_shape(name, weight_RC.shape, dtype, plan.group))
        if found is None:
            columns = plan.group if dtype == "int4" else weight_RC.shape[1]
            found = (
                quantize_columns(weight_RC) if name == CODE else quantize_block(weight_RC, columns, dtype, scale_type)
            )
        made[name] = QuantizedWeight(name, dtype, *found, scale_type)
    return made


def _stored(
    weight_RC: Tensor, scale_RG: Tensor | None, dtype: Dtype, shape: tuple[int, int]
) -> tuple[Tensor, Tensor] | None:
    if scale_RG is None or tuple(scale_RG.shape) != shape:
        return None
    low, high = _RANGE[dtype]
    blocks_RGC = weight_RC.reshape(weight_RC.shape[0], shape[1], -1)
    values_RC = torch.round(blocks_RGC / scale_RG.unsqueeze(2)).reshape(weight_RC.shape)
    if values_RC.min() < low or values_RC.max() > high:
        return None
    values_RC = values_RC.to(torch.int8)
    return (values_RC, scale_RG) if torch.equal(dequantize_rows(values_RC, scale_RG), weight_RC) else None


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
    values_RC, scale_R1 = quantize_block(weight_RC.detach().cpu(), weight_RC.shape[1], "int8", "float32")
    return QuantizedWeight(name, "int8", values_RC, scale_R1, "float32")


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


def weight_bytes_by_dtype(model: Student | StudentConfig, plan: PrecisionPlan) -> dict[str, int]:
    """Bytes of a model under a plan: `fp32`, `int8`, `int4`, `scales`, `indices`; keys with no bytes are absent."""
    config = _config(model)
    sizes = {"fp32": 0, "int8": 0, "int4": 0, "scales": 0, "indices": 0}
    for name, shape in tensor_shapes(config).items():
        dtype = plan.dtype(name)
        numbers = prod(shape)
        if name == INDEX:
            sizes["indices"] += numbers * index_type(config.table_rows).itemsize
            continue
        if dtype == "fp32":
            sizes["fp32"] += 4 * numbers
            continue
        sizes[dtype] += numbers if dtype == "int8" else numbers // 2
        scales = prod(scale_shape(name, shape, dtype, plan.group))
        sizes["scales"] += scales * SCALE_BYTES[scale_dtype(name, dtype)]
    return {key: value for key, value in sizes.items() if value}


def sqnr_db(reference: Tensor, approximation: Tensor) -> float:
    """Signal-to-quantization-noise ratio in dB, 10 log10( sum reference^2 / sum error^2 ); inf where they are equal."""
    signal = reference.double().square().sum()
    noise = (reference.double() - approximation.double()).square().sum()
    return float("inf") if noise == 0 else float(10 * torch.log10(signal / noise))
