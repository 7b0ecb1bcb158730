"""A student's weights as numbers and as integers, and the reader of student folders, with numpy and without torch.

A quantized weight NAME is stored as NAME (int8 [R, C], or uint8 [R, C / 2] for int4, the even column in the low four
bits) and NAME.scale ([R, G]; float32, or float16 / bfloat16 for int4; [1, C] for the weights of a code). A code's
indices stay integers.

Shapes: V vocabulary, k nonzeros per token, R rows, C columns, G groups of a row.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from safetensors import deserialize

from msdc.compress.student import plan as plans
from msdc.compress.student.config import CODE, INDEX, HasConfig, StudentConfig, index_bytes, tensor_shapes
from msdc.compress.student.plan import PrecisionPlan
from msdc.encoders.folder import OWN_TYPE
from msdc.encoders.source import WEIGHTS_FILE, refuse_other_tensors
from msdc.errors import InputError, MsdcError, first_line
from msdc.files import read_json, regular_size

# Names, shapes and scales around the numbers of a student's weights.
MAX_HEADER_BYTES = 8 * 1024 * 1024
# numpy's names of safetensors' types; `plan` makes bfloat16 one of them.
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "bfloat16", "I64": "<i8", "I32": "<i4", "I16": "<i2",
          "I8": "i1", "U8": "u1", "BOOL": "?"}  # fmt: skip
ReadBytes = Callable[[Path], bytes]


@dataclass(frozen=True)
class StudentWeights:
    """Everything that fixes a student's function: its config, and its tensors by name (those of its `torch.nn.Module`).

    `arrays` are float32, the indices of a coded table int16 or int32. `scales`, by weight, and `plan` are those that a
    quantized folder was read with; empty and None for a float student.
    """

    config: StudentConfig
    arrays: dict[str, NDArray[Any]]
    scales: dict[str, NDArray[np.float32]] = field(default_factory=dict)
    plan: PrecisionPlan | None = None

    def sha256(self) -> str:
        """Hex sha256 over names, shapes and float32 numbers."""
        digest = hashlib.sha256()
        for name, value in sorted(self.arrays.items()):
            digest.update(f"{name} {value.shape}\0".encode())
            digest.update(np.ascontiguousarray(value, dtype="<f4").data)
        return digest.hexdigest()


class HasWeights(HasConfig, Protocol):
    """A student, whose class needs torch."""

    def to_numpy(self) -> StudentWeights:
        """Its weights."""


def read_arrays(
    path: Path, most_bytes: int | None = None, read: ReadBytes = Path.read_bytes
) -> dict[str, NDArray[Any]]:
    """Tensors of a safetensors file, in the types they are stored in; one larger than `most_bytes` is not opened.

    They are parsed from the bytes that `read` gives and own their memory.
    """
    size = regular_size(path)
    if most_bytes is not None and size > most_bytes:
        raise InputError(f"{path}: {size} bytes where its config.json asks for at most {most_bytes}")
    try:
        # Not safetensors.numpy.load, which does not know bfloat16.
        stored = dict(deserialize(read(path)))
        return {n: np.frombuffer(v["data"], DTYPES[v["dtype"]]).reshape(v["shape"]) for n, v in stored.items()}
    except MsdcError:
        raise
    except Exception as error:
        raise InputError(f"{path}: damaged or not a safetensors file ({first_line(error)})") from error


def unpack(
    tensors: dict[str, NDArray[Any]], config: StudentConfig, plan: PrecisionPlan, where: Path
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.float32]]]:
    """(float32 arrays, scales by weight name) of the stored tensors of a quantized student."""
    plans.check_plan(config, plan)
    shapes = tensor_shapes(config)
    arrays = dict(tensors)
    scales: dict[str, NDArray[np.float32]] = {}
    for name, dtype in plan.weights.items():
        if dtype == "fp32" or name not in tensors:
            continue
        value, scale = tensors[name], arrays.pop(f"{name}.scale", None)
        R, C = shapes[name]
        expected = ("int8", (R, C)) if dtype == "int8" else ("uint8", (R, C // 2))
        if (
            (str(value.dtype), value.shape) != expected
            or scale is None
            or scale.dtype != plans.scale_dtype(name, dtype)
        ):
            raise InputError(f"{where}: tensor {name} does not match {plans.PLAN_FILE} ({dtype})")
        fits = scale.shape == plans.scale_shape(name, (R, C), dtype, plan.group)
        if not fits or not np.isfinite(scale.astype(np.float32)).all():
            raise InputError(f"{where}: scales of {name} are damaged")
        scales[name] = scale.astype(np.float32)
        arrays[name] = plans.dequantize_rows(value if dtype == "int8" else plans.unpack_int4(value), scales[name])
    return arrays, scales


def _check_arrays(where: Path, config: StudentConfig, arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse tensors that the config does not name, and indices of a code that are out of bounds."""
    stored = {name: value.shape for name, value in arrays.items()}
    refuse_other_tensors(where.parent, stored, tensor_shapes(config))
    if not config.coded:
        return
    index_Vk, rows = arrays[INDEX], config.table_rows
    if str(index_Vk.dtype) != (expected := f"int{8 * index_bytes(rows)}"):
        raise InputError(f"{where}: {INDEX} is stored as {index_Vk.dtype}, expected {expected}")
    for index in (int(index_Vk.min()), int(index_Vk.max())):
        if not 0 <= index < rows:
            raise InputError(f"{where}: {INDEX} names base row {index}; the base has rows 0 to {rows - 1}")


def read_config(folder: str | Path) -> StudentConfig:
    """The config of a folder written by `save_student`."""
    raw = read_json(Path(folder) / "config.json")
    if not isinstance(raw, dict) or raw.pop("model_type", None) != OWN_TYPE:
        raise InputError(f"{folder}: not a student of msdc (model_type is not {OWN_TYPE})")
    try:
        return StudentConfig(**raw)
    except InputError as error:
        raise InputError(f"{folder}/config.json: {error}") from error


def read_weights(folder: str | Path, read: ReadBytes = Path.read_bytes) -> StudentWeights:
    """Read a folder written by `save_student`, its tensors by `read`; integers as the float numbers they represent.

    The scales of a quantized folder are kept, so that quantizing it again gives the same integers.
    """
    folder = Path(folder)
    config = read_config(folder)
    plan, path = plans.read_plan(folder), folder / WEIGHTS_FILE
    most_bytes = 4 * sum(prod(shape) for shape in tensor_shapes(config).values()) + MAX_HEADER_BYTES
    tensors = read_arrays(path, most_bytes, read)
    arrays, scales = (tensors, {}) if plan is None else unpack(tensors, config, plan, path)
    arrays = {name: v if name == INDEX else v.astype(np.float32, copy=False) for name, v in arrays.items()}
    _check_arrays(path, config, arrays)
    return StudentWeights(config, arrays, scales, plan)


def integers(model: HasWeights | StudentWeights, plan: PrecisionPlan) -> dict[str, plans.QuantizedWeight]:
    """Integers and scales of every weight that the plan quantizes, by name, as of `msdc.compress.student.plan`.

    The torchao tensors that ExecuTorch lowers, the ONNX graph and the int8 student folder are all made of them.

    Weights read from an int8 folder come with its scales; where these still reproduce the weight exactly they are used
    again, because quantizing dequantized numbers afresh would move them a second time.
    """
    plans.check_plan(model.config, plan)
    weights = model if isinstance(model, StudentWeights) else model.to_numpy()
    by_name: dict[str, plans.QuantizedWeight] = {}
    for name, dtype in plan.weights.items():
        if dtype == "fp32":
            continue
        weight_RC = weights.arrays[name]
        kind = plans.scale_dtype(name, dtype)
        shape = plans.scale_shape(name, weight_RC.shape, dtype, plan.group)
        quantized = _stored(weight_RC, weights.scales.get(name), dtype, shape)
        if quantized is None:
            columns = plan.group if dtype == "int4" else weight_RC.shape[1]
            quantized = (
                plans.quantize_columns(weight_RC)
                if name == CODE
                else plans.quantize_block(weight_RC, columns, dtype, kind)
            )
        by_name[name] = plans.QuantizedWeight(name, dtype, *quantized, kind)
    return by_name


def _stored(
    weight_RC: NDArray[np.float32], scale_RG: NDArray[np.float32] | None, dtype: plans.Dtype, shape: tuple[int, int]
) -> tuple[NDArray[np.int8], NDArray[np.float32]] | None:
    if scale_RG is None or tuple(scale_RG.shape) != shape:
        return None
    low, high = plans.RANGE[dtype]
    blocks_RGC = weight_RC.reshape(weight_RC.shape[0], shape[1], -1)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        values_RC = np.rint(blocks_RGC / scale_RG[:, :, None]).reshape(weight_RC.shape)
    # Written so that NaN is refused too.
    if not (values_RC.min() >= low and values_RC.max() <= high):
        return None
    values = values_RC.astype(np.int8)
    return (values, scale_RG) if np.array_equal(plans.dequantize_rows(values, scale_RG), weight_RC) else None
