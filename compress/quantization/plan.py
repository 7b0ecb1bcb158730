"""The precision plan: which weight of a student is stored in which type.

Shapes: R rows, C columns, G groups of a row.
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from msdc.compress.student.config import StudentConfig
from msdc.compress.student.shapes import (
    CODE,
    DENSE,
    INDEX,
    POSITION,
    PROJECT,
    TABLE,
    index_bytes,
    matrix_names,
    tensor_shapes,
)
from msdc.errors import InputError
from msdc.files import read_json

if TYPE_CHECKING:
    from msdc.compress.student.model import Student

# int4-embed4 is for students trained with fake quantization (msdc.compress.quantization.qat): without it int4 linears
# lose too much (cosine 0.957 to the float model).
PRECISIONS = ("fp32", "int8", "int8-embed4", "int4-embed4")
PLAN_FILE = "precision.json"
GROUP = 32

Dtype = Literal["fp32", "int8", "int4"]
ScaleDtype = Literal["float32", "float16", "bfloat16"]
SCALE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}
RANGE = {"int8": (-128, 127), "int4": (-8, 7)}
# States of a layer that come out of a layer norm, and the products that read them: the layer's input, and the state
# before the feed-forward part.
NORM_READERS = {"entry": ("query", "key", "value"), "middle": ("up",)}


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


def scale_dtype(name: str, dtype: Dtype) -> ScaleDtype:
    """How the scales of a weight are stored: int4 has a scale every 32 numbers, so two bytes each, not four.

    A linear's are bfloat16 because XNNPACK's blockwise int4 kernel keeps them so; rounding them here, before the
    integers are chosen, keeps the artifact equal to the float simulation.
    """
    if dtype != "int4":
        return "float32"
    return "float16" if name == TABLE else "bfloat16"


def scale_shape(name: str, shape: tuple[int, ...], dtype: Dtype, group: int) -> tuple[int, int]:
    """Shape of the scales of a quantized weight of `shape` [R, C]: [R, G], or [1, C] for the weights of a code."""
    if name == CODE:
        return 1, shape[1]
    return shape[0], 1 if dtype == "int8" else shape[1] // group


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


def read_plan(folder: str | Path) -> PrecisionPlan | None:
    """The precision plan a student folder carries, or None for a float one.

    Raises:
        InputError: `precision.json` is damaged.
    """
    path = Path(folder) / PLAN_FILE
    if not path.is_file():
        return None
    raw = read_json(path, max_bytes=4 * 1024 * 1024)
    try:
        if not isinstance(raw, dict) or "plan" not in raw:
            raise InputError(f"{path}: no plan in it")
        return PrecisionPlan(**raw["plan"])
    except (ValidationError, TypeError) as error:
        raise InputError(f"{path}: not a precision plan ({' '.join(str(error).split())[:200]})") from error


def weight_bytes_by_dtype(model: Student | StudentConfig, plan: PrecisionPlan) -> dict[str, int]:
    """Bytes of a model under a plan: `fp32`, `int8`, `int4`, `scales`, `indices`; keys with no bytes are absent."""
    config = _config(model)
    sizes = {"fp32": 0, "int8": 0, "int4": 0, "scales": 0, "indices": 0}
    for name, shape in tensor_shapes(config).items():
        dtype = plan.dtype(name)
        numbers = prod(shape)
        if name == INDEX:
            sizes["indices"] += numbers * index_bytes(config.table_rows)
            continue
        if dtype == "fp32":
            sizes["fp32"] += 4 * numbers
            continue
        sizes[dtype] += numbers if dtype == "int8" else numbers // 2
        scales = prod(scale_shape(name, shape, dtype, plan.group))
        sizes["scales"] += scales * SCALE_BYTES[scale_dtype(name, dtype)]
    return {key: value for key, value in sizes.items() if value}
