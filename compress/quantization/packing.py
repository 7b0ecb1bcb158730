"""Quantized weights inside a safetensors file: integers and scales, two int4 numbers in a byte.

The layout is described, and read, in `msdc.compress.student.weights`.

Shapes: R rows, C columns.
"""

from __future__ import annotations

import torch
from torch import Tensor

from msdc.compress.quantization.plan import PrecisionPlan
from msdc.compress.quantization.weights import integers
from msdc.compress.student.model import Student


def pack_int4(values_RC: Tensor) -> Tensor:
    """uint8 [R, C / 2] of numbers -8..7."""
    low_RC, high_RC = values_RC[:, 0::2] & 0xF, values_RC[:, 1::2] & 0xF
    return (low_RC | (high_RC << 4)).view(torch.uint8)


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
