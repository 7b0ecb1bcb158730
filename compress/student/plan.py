"""The precision plan: the storage type of each weight, with its integers and scales.

Integers and scales need numpy alone, because the base install has no torch. They are torchao's: symmetric, scale =
max|w| / 127.5 (int8 per row) or max|w| / 7.5 (int4 per group), rounded half to even, zero point 0. Weights of a coded
table are int8 with one scale per column, because a scale per token would take more bytes than they do.

Shapes: R rows, C columns, G groups of a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import ml_dtypes  # noqa: F401 (numpy then knows the name bfloat16)
import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from msdc.compress.student import config as names
from msdc.compress.student.config import HasConfig, StudentConfig
from msdc.errors import InputError
from msdc.files import read_json

# int4-embed4 is for students trained with fake quantization (`rounding.prepare_qat`): without it int4 linears
# lose too much (cosine 0.957 to the float model).
PRECISIONS = ("fp32", "int8", "int8-embed4", "int4-embed4")
PLAN_FILE = "precision.json"
GROUP = 32

Dtype = Literal["fp32", "int8", "int4"]
ScaleDtype = Literal["float32", "float16", "bfloat16"]
SCALE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
Floats = NDArray[np.float32]
RANGE = {"int8": (-128, 127), "int4": (-8, 7)}
# States of a layer that come out of a layer norm, and the products that read them: the layer's input, and the state
# before the feed-forward part.
NORM_READERS = {"entry": ("query", "key", "value"), "middle": ("up",)}


class PrecisionPlan(BaseModel):
    """Dtype of each named weight (names of its `torch.nn.Module`); every tensor that is not named stays float32."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    precision: str = Field(description="the name under which this plan was made")
    weights: dict[str, Dtype]
    group: int = Field(default=GROUP, gt=0, description="columns that share one scale in an int4 weight")

    @model_validator(mode="after")
    def _known_names(self) -> PrecisionPlan:
        for name, what in ((names.POSITION, "positions"), (names.CODE, "weights of a coded table")):
            if self.weights.get(name) == "int4":
                raise ValueError(f"{what} are fp32 or int8")
        return self

    def dtype(self, name: str) -> Dtype:
        """Dtype of the weight `name`."""
        return self.weights.get(name, "fp32")


def scale_dtype(name: str, dtype: Dtype) -> ScaleDtype:
    """How the scales of a weight are stored: int4 has a scale every 32 numbers, so two bytes each, not four.

    A linear's are bfloat16 because XNNPACK's blockwise int4 kernel keeps them so; rounding them here, before the
    integers are chosen, keeps the artifact equal to the float simulation.
    """
    if dtype != "int4":
        return "float32"
    return "float16" if name == names.TABLE else "bfloat16"


def scale_shape(name: str, shape: tuple[int, ...], dtype: Dtype, group: int) -> tuple[int, int]:
    """Shape of the scales of a quantized weight of `shape` [R, C]: [R, G], or [1, C] for the weights of a code."""
    if name == names.CODE:
        return 1, shape[1]
    return shape[0], 1 if dtype == "int8" else shape[1] // group


def plan_for(model: HasConfig | StudentConfig, precision: str) -> PrecisionPlan:
    """The plan behind the name of a precision.

    Bottleneck map and dense head stay int8 in int4-embed4: they are small and every token passes them. So do the
    weights of a coded table, whose base counts as the table. Positions are int8 if the table is 4-bit, else float.
    """
    if precision not in PRECISIONS:
        raise InputError(f"precision {precision!r} is unknown; known: {', '.join(PRECISIONS)}")
    config = model if isinstance(model, StudentConfig) else model.config
    weights: dict[str, Dtype] = {}
    for name in names.matrix_names(config):
        if precision == "fp32":
            weights[name] = "fp32"
        elif name == names.TABLE:
            weights[name] = "int8" if precision == "int8" else "int4"
        else:
            weights[name] = (
                "int4"
                if precision == "int4-embed4" and name not in (names.CODE, names.PROJECT, names.DENSE)
                else "int8"
            )
    if precision.endswith("embed4") and not config.static:
        # Next to a 4-bit table, float positions of 512 tokens would be a twentieth of a small artifact.
        weights[names.POSITION] = "int8"
    plan = PrecisionPlan(precision=precision, weights=weights)
    check_plan(config, plan)
    return plan


def reads_int8(plan: PrecisionPlan, layer: int, state: str) -> bool:
    """Are all the products that read this state (of NORM_READERS) of a layer int8? Only such inputs are smoothed."""
    return all(plan.dtype(f"layers.{layer}.{part}.weight") == "int8" for part in NORM_READERS[state])


def check_plan(config: StudentConfig, plan: PrecisionPlan) -> None:
    """Refuse a plan that does not fit a student."""
    shapes = names.tensor_shapes(config)
    allowed = {*names.matrix_names(config), *({names.POSITION} & shapes.keys())}
    for name, dtype in plan.weights.items():
        if name not in allowed:
            raise InputError(f"the precision plan names {name!r}, which this student cannot quantize")
        if dtype == "int4" and shapes[name][1] % plan.group:
            raise InputError(f"{name} has {shapes[name][1]} columns, no multiple of the int4 group of {plan.group}")


def read_plan(folder: str | Path) -> PrecisionPlan | None:
    """The precision plan a student folder carries, or None for a float one."""
    path = Path(folder) / PLAN_FILE
    if not path.is_file():
        return None
    try:
        return PrecisionPlan(**read_json(path, max_bytes=4 * 1024 * 1024)["plan"])
    except (ValidationError, KeyError, TypeError) as error:
        raise InputError(f"{path}: not a precision plan ({' '.join(str(error).split())[:200]})") from error


def weight_bytes_by_dtype(model: HasConfig | StudentConfig, plan: PrecisionPlan) -> dict[str, int]:
    """Bytes of a model under a plan: `fp32`, `int8`, `int4`, `scales`, `indices`; keys with no bytes are absent."""
    config = model if isinstance(model, StudentConfig) else model.config
    sizes = {"fp32": 0, "int8": 0, "int4": 0, "scales": 0, "indices": 0}
    for name, shape in names.tensor_shapes(config).items():
        dtype, numbers = plan.dtype(name), prod(shape)
        if name == names.INDEX:
            sizes["indices"] += numbers * names.index_bytes(config.table_rows)
        elif dtype == "fp32":
            sizes["fp32"] += 4 * numbers
        else:
            sizes[dtype] += numbers if dtype == "int8" else numbers // 2
            scales = prod(scale_shape(name, shape, dtype, plan.group))
            sizes["scales"] += scales * SCALE_BYTES[scale_dtype(name, dtype)]
    return {key: value for key, value in sizes.items() if value}


@dataclass(frozen=True)
class QuantizedWeight:
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

    def dequantize(self) -> Floats:
        """float32 [R, C]."""
        return dequantize_rows(self.values, self.scale)

    def packed(self) -> NDArray[Any]:
        """As stored in a student folder: int8 [R, C], or uint8 [R, C / 2] with the even column in the low four bits."""
        if self.dtype == "int8":
            return self.values
        low, high = (self.values[:, first::2].astype(np.uint8) & 0xF for first in (0, 1))
        return low | high << 4


def unpack_int4(packed: NDArray[np.uint8]) -> NDArray[np.int8]:
    """int8 [R, C] of two numbers -8..7 per byte (`QuantizedWeight.packed`)."""
    pairs = np.stack([packed & 0xF, packed >> 4], axis=2).astype(np.int8)
    return np.where(pairs > 7, pairs - 16, pairs).astype(np.int8).reshape(len(packed), -1)


def _as_stored(scale: Floats, kind: ScaleDtype) -> Floats:
    """Scales rounded to the type that they are stored in; a row of zeros gets the smallest one, not zero."""
    smallest = np.finfo(np.float16 if kind == "float16" else np.float32).tiny
    return np.maximum(scale, np.float32(smallest)).astype(kind).astype(np.float32)


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


def int8_rows(weight_RC: Floats, name: str) -> QuantizedWeight:
    """int8 of one matrix, one scale per row: the weight of a model that has no precision plan."""
    weight_RC = np.ascontiguousarray(weight_RC, dtype=np.float32)
    return QuantizedWeight(name, "int8", *quantize_block(weight_RC, weight_RC.shape[1], "int8", "float32"), "float32")
