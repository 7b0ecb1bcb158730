"""Quantized weights inside a safetensors file: integers and scales, two int4 numbers in a byte.

A quantized weight NAME is stored as NAME (int8 [R, C], or uint8 [R, C / 2] for int4, the even column in the low four
bits) and NAME.scale ([R, G]; float32, or float16 / bfloat16 for int4; [1, C] for the weights of a code). A code's
indices stay integers.

Shapes: R rows, C columns, G groups of a row.
"""

from __future__ import annotations

from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from msdc.compress.quantization.weights import (
    PrecisionPlan,
    check_plan,
    dequantize_rows,
    integers,
    scale_dtype,
    scale_shape,
)
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.shapes import INDEX, tensor_shapes
from msdc.errors import InputError
from msdc.files import read_json

PLAN_FILE = "precision.json"


def pack_int4(values_RC: Tensor) -> Tensor:
    """uint8 [R, C / 2] of numbers -8..7."""
    low_RC, high_RC = values_RC[:, 0::2] & 0xF, values_RC[:, 1::2] & 0xF
    return (low_RC | (high_RC << 4)).view(torch.uint8)


def unpack_int4(packed: Tensor) -> Tensor:
    """int8 [R, C] of `pack_int4`'s bytes."""
    pairs = torch.stack([packed & 0xF, packed >> 4], dim=2).to(torch.int8)
    return (pairs - 16 * (pairs > 7).to(torch.int8)).reshape(packed.shape[0], -1)


def pack_student(student: Student, plan: PrecisionPlan) -> dict[str, Tensor]:
    """Tensors of a safetensors file in which the plan's weights are integers and scales."""
    made = integers(student, plan)
    tensors: dict[str, Tensor] = {}
    for name, value in student.state_dict().items():
        part = made.get(name)
        if part is None:
            tensors[name] = value.detach().cpu().contiguous()
            continue
        tensors[name] = pack_int4(part.values) if part.dtype == "int4" else part.values
        tensors[f"{name}.scale"] = part.scale.to(getattr(torch, part.scale_type))
    return tensors


def unpack_student(
    tensors: dict[str, Tensor], config: StudentConfig, plan: PrecisionPlan, where: str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """(float32 state, scales by weight name) of what `pack_student` made.

    Raises:
        InputError: a tensor is missing, or of another type or shape than the plan and the config say.
    """
    check_plan(config, plan)
    shapes = tensor_shapes(config)
    state: dict[str, Tensor] = {}
    scales: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        dtype = plan.dtype(name)
        value = tensors.get(name)
        if value is None:
            raise InputError(f"{where}: tensor {name} is missing")
        if dtype == "fp32":
            state[name] = value if name == INDEX else value.float()
            continue
        R, C = shape
        scale = tensors.get(f"{name}.scale")
        wanted = (torch.int8, (R, C)) if dtype == "int8" else (torch.uint8, (R, C // 2))
        scale_type = getattr(torch, scale_dtype(name, dtype))
        if (value.dtype, tuple(value.shape)) != wanted or scale is None or scale.dtype != scale_type:
            raise InputError(f"{where}: tensor {name} is not the {dtype} weight that {PLAN_FILE} says")
        if tuple(scale.shape) != scale_shape(name, shape, dtype, plan.group) or not bool(torch.isfinite(scale).all()):
            raise InputError(f"{where}: scales of {name} are damaged")
        scales[name] = scale.float()
        state[name] = dequantize_rows(value if dtype == "int8" else unpack_int4(value), scales[name])
    unknown = set(tensors) - set(shapes) - {f"{name}.scale" for name in scales}
    if unknown:
        raise InputError(f"{where}: unknown tensor {sorted(unknown)[0]}")
    return state, scales


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
