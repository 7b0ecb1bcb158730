"""Integers and scales of a student's weights: the one place where they are made, with numpy alone.

The torchao tensors that ExecuTorch lowers, the ONNX graph and the int8 student folder all take what `integers` returns.
The numbers are torchao's: symmetric, scale = max|w| / 127.5 (int8 per row) or max|w| / 7.5 (int4 per group), rounded
half to even, zero point 0. Weights of a coded table are int8 with one scale per column, because a scale per piece would
take more bytes than they do. Training with rounded weights repeats the arithmetic on tensors
(`msdc.compress.quantization.weights`); a test holds both to the same numbers.

Shapes: R rows, C columns, G groups of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from msdc.compress.quantization.plan import (
    RANGE,
    SCALE_BYTES,
    Dtype,
    PrecisionPlan,
    ScaleDtype,
    check_plan,
    scale_dtype,
    scale_shape,
)
from msdc.compress.student.shapes import CODE

if TYPE_CHECKING:
    from msdc.compress.student.weights import StudentWeights

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Integers:
    """Integers and scales of one weight: `values` int8 [R, C], `scale` float32 [R, G] ([1, C] for a code)."""

    name: str
    dtype: Dtype
    values: NDArray[np.int8]
    scale: Floats
    scale_type: ScaleDtype

    @property
    def group(self) -> int:
        """Columns that share a scale."""
        return int(self.values.shape[1] // self.scale.shape[1])

    @property
    def bytes(self) -> int:
        """Bytes of integers (two int4 in a byte) and scales as stored."""
        bits = 4 if self.dtype == "int4" else 8
        return int(self.values.size * bits // 8 + self.scale.size * SCALE_BYTES[self.scale_type])


def bfloat16_bits(numbers: NDArray[Any]) -> NDArray[np.uint16]:
    """Finite float32 numbers as bfloat16, rounded to nearest, ties to even: the upper halves of their bits."""
    bits = np.ascontiguousarray(numbers, dtype=np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bfloat16_bits(bits: NDArray[np.uint16]) -> Floats:
    """float32 numbers of `bfloat16_bits`."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _as_stored(scale: Floats, kind: ScaleDtype) -> Floats:
    """Scales rounded to the type that they are stored in; a row of zeros gets the smallest one, not zero."""
    smallest = np.finfo(np.float16 if kind == "float16" else np.float32).tiny
    scale = np.maximum(scale, np.float32(smallest))
    if kind == "bfloat16":
        return from_bfloat16_bits(bfloat16_bits(scale))
    return scale.astype(kind).astype(np.float32)


def quantize_block(weight_RC: Floats, columns: int, dtype: Dtype, kind: ScaleDtype) -> tuple[NDArray[np.int8], Floats]:
    """Integers as int8 [R, C] and float32 scale [R, C / columns], one scale for `columns` numbers of a row."""
    low, high = RANGE[dtype]
    R, C = weight_RC.shape
    blocks_RGC = weight_RC.reshape(R, C // columns, columns)
    # (high - low) / 2 and the reciprocal below are torchao's (choose_qparams_affine, quantize_affine); dividing by the
    # scale instead flips some ties.
    scale_RG = _as_stored(np.abs(blocks_RGC).max(2) / np.float32((high - low) / 2), kind)
    # NaN in damaged weights becomes some integer; the gates of an export find it in the vectors.
    with np.errstate(invalid="ignore", over="ignore"):
        values_RGC = np.clip(np.rint(blocks_RGC * (np.float32(1) / scale_RG)[:, :, None]), low, high)
        return values_RGC.astype(np.int8).reshape(R, C), scale_RG


def dequantize_rows(values_RC: NDArray[np.int8], scale_RG: Floats) -> Floats:
    """float32 [R, C] of integers and their scales (one per row or group)."""
    R, C = values_RC.shape
    G = scale_RG.shape[1]
    return (values_RC.astype(np.float32).reshape(R, G, C // G) * scale_RG[:, :, None]).reshape(R, C)


def quantize_columns(weight_RC: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Integers as int8 [R, C] and float32 scale [1, C] of the weights of a coded table."""
    transposed = np.ascontiguousarray(weight_RC.T)
    values_CR, scale_C1 = quantize_block(transposed, weight_RC.shape[0], "int8", "float32")
    return np.ascontiguousarray(values_CR.T), np.ascontiguousarray(scale_C1.T)


def int8_rows(weight_RC: Floats, name: str) -> Integers:
    """int8 of one matrix, one scale per row: the weight of a model that has no precision plan."""
    weight_RC = np.ascontiguousarray(weight_RC, dtype=np.float32)
    return Integers(name, "int8", *quantize_block(weight_RC, weight_RC.shape[1], "int8", "float32"), "float32")


def integers(weights: StudentWeights, plan: PrecisionPlan) -> dict[str, Integers]:
    """Integers and scales of every weight that the plan quantizes, by name.

    Weights read from an int8 folder come with its scales; where these still reproduce the weight exactly they are used
    again, because quantizing dequantized numbers afresh would move them a second time.

    Raises:
        InputError: the plan does not fit the student.
    """
    check_plan(weights.config, plan)
    made: dict[str, Integers] = {}
    for name, dtype in plan.weights.items():
        if dtype == "fp32":
            continue
        weight_RC = weights.arrays[name]
        kind = scale_dtype(name, dtype)
        shape = scale_shape(name, weight_RC.shape, dtype, plan.group)
        found = _stored(weight_RC, weights.scales.get(name), dtype, shape)
        if found is None:
            columns = plan.group if dtype == "int4" else weight_RC.shape[1]
            found = quantize_columns(weight_RC) if name == CODE else quantize_block(weight_RC, columns, dtype, kind)
        made[name] = Integers(name, dtype, *found, kind)
    return made


def _stored(
    weight_RC: Floats, scale_RG: Floats | None, dtype: Dtype, shape: tuple[int, int]
) -> tuple[NDArray[np.int8], Floats] | None:
    if scale_RG is None or tuple(scale_RG.shape) != shape:
        return None
    low, high = RANGE[dtype]
    blocks_RGC = weight_RC.reshape(weight_RC.shape[0], shape[1], -1)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        values_RC = np.rint(blocks_RGC / scale_RG[:, :, None]).reshape(weight_RC.shape)
    # Written so that NaN is refused too.
    if not (values_RC.min() >= low and values_RC.max() <= high):
        return None
    values = values_RC.astype(np.int8)
    return (values, scale_RG) if np.array_equal(dequantize_rows(values, scale_RG), weight_RC) else None
