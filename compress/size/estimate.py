"""Parameters, bytes and operations of a student before anything is trained or downloaded.

Parameters are counted as in Ding et al. 2022 (msdc.compress.student.shapes.parameter_counts). Bytes are those of the
files that `msdc export` writes: the weights as stored, plus the program around them (constants below, measured on
exported programs; tests/export keep them within 1 %).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from msdc.compress.quantization.plan import (
    NORM_READERS,
    PRECISIONS,
    PrecisionPlan,
    plan_for,
    reads_int8,
    weight_bytes_by_dtype,
)
from msdc.compress.student.config import StudentConfig
from msdc.compress.student.shapes import (
    CODE,
    DENSE,
    LINEARS,
    POSITION,
    PROJECT,
    TABLE,
    parameter_counts,
    tensor_shapes,
)
from msdc.errors import InputError

REFERENCE_LENGTH = 32


class Cut(BaseModel):
    """What to change of a base shape; None keeps the base's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bottleneck: int | None = Field(default=None, gt=0)
    unit: int | None = Field(default=None, gt=0)
    repeats: int | None = Field(default=None, gt=0, description="None: base layers / unit, as the paper")
    vocabulary: int | None = Field(default=None, gt=0)
    place: Literal["word", "embedding"] = "word"
    max_length: int | None = Field(default=None, gt=1)
    base_rows: int | None = Field(default=None, gt=0, description="rows of a coded table's base")
    links: int | None = Field(default=None, gt=0, description="base rows that a coded row is a sum of")


class SizePlan(BaseModel):
    """The sizes of one student. Bytes by precision, then by runtime; MACs are multiply-accumulates."""

    model_config = ConfigDict(frozen=True)

    shape: str
    config: StudentConfig
    embedding_parameters: int
    embedding_parts: dict[str, int]
    encoder_parameters: int
    parameters: int
    macs_per_token: int
    macs_length: int
    bytes: dict[str, dict[str, int]]


def default_repeats(layers: int, unit: int) -> int:
    """L / M of the paper.

    Raises:
        InputError: the unit does not divide the layers.
    """
    if layers % unit:
        raise InputError(f"a unit of {unit} does not divide {layers} layers; say how often it repeats with --repeats")
    return layers // unit


def cut(base: StudentConfig, changes: Cut) -> StudentConfig:
    """The config of the student that `changes` makes of `base`.

    Raises:
        InputError: more layers, positions or width than the base has, or a base with a bottleneck of its own kind.
    """
    layers = base.unit * base.repeats
    unit = changes.unit or base.unit
    if unit > base.unit:
        raise InputError(f"a unit of {unit} layers out of a model that stores {base.unit}")
    repeats = changes.repeats
    if repeats is None:
        repeats = base.repeats if unit == base.unit else default_repeats(layers, unit)
    settings = base.model_dump() | {"unit": unit, "repeats": repeats}
    if changes.bottleneck is not None:
        if changes.bottleneck > base.hidden:
            raise InputError(f"a bottleneck of {changes.bottleneck} is wider than the hidden size {base.hidden}")
        settings |= {"bottleneck": changes.bottleneck, "place": changes.place}
    if changes.vocabulary is not None:
        settings["vocabulary"] = changes.vocabulary
    if changes.max_length is not None:
        if changes.max_length > base.positions:
            raise InputError(f"longest input {changes.max_length} exceeds the {base.positions} positions of the model")
        settings["positions"] = changes.max_length
    settings |= code_settings(base, changes.base_rows, changes.links, settings["vocabulary"])
    return StudentConfig(**settings)


def code_settings(base: StudentConfig, base_rows: int | None, links: int | None, vocabulary: int) -> dict[str, int]:
    """`base_rows` and `links` of a student whose table is to be coded; empty where neither is asked for.

    Raises:
        InputError: one without the other, links outside 2 to 5, or a base no smaller than the vocabulary.
    """
    rows, links = base_rows or base.base_rows, links or base.links
    if base_rows is None and links == base.links:
        return {}
    if rows is None or links is None:
        raise InputError("a coded table needs both --base-rows and --links")
    if not 2 <= links <= 5:
        raise InputError(f"--links {links}: a coded row is a sum of 2 to 5 base rows")
    if rows >= vocabulary:
        raise InputError(f"a base of {rows} rows is no smaller than the table of {vocabulary}")
    return {"base_rows": rows, "links": links}


def macs_per_token(config: StudentConfig, length: int = REFERENCE_LENGTH) -> int:
    """Multiply-accumulates per token in a sentence of `length` tokens, attention included."""
    H, I = config.hidden, config.intermediate
    layer = 4 * H * H + 2 * H * I + 2 * length * H
    total = layer * config.unit * config.repeats
    if config.bottleneck is not None:
        total += config.bottleneck * H
    if config.links is not None:
        total += config.links * config.table_width
    if config.dense is not None:
        total += -(-H * config.dense // length)
    return total


def predict_bytes(config: StudentConfig, plan: PrecisionPlan, runtime: str, max_length: int | None = None) -> int:
    """Bytes of `model.pte`, or of `model.onnx` and its data together.

    Raises:
        InputError: unknown runtime.
    """
    if runtime not in PROGRAM_BYTES:
        raise InputError(f"runtime {runtime!r} is unknown; known: {', '.join(PROGRAM_BYTES)}")
    length = min(max_length or config.positions, config.positions)
    shorter = config.model_copy(update={"positions": length})
    return PROGRAM_BYTES[runtime](shorter, plan)


def precisions_for(config: StudentConfig) -> list[str]:
    """Precisions whose int4 groups fit the widths of this student."""
    fitting = []
    for precision in PRECISIONS:
        try:
            plan_for(config, precision)
        except InputError:
            continue
        fitting.append(precision)
    return fitting


def size_plan(shape: str, config: StudentConfig) -> SizePlan:
    """All sizes of `config`; `shape` is the name to print."""
    shapes = tensor_shapes(config)
    counts = parameter_counts(config)
    parts = {"table": prod(shapes[TABLE]), "positions": prod(shapes[POSITION])}
    if config.coded:
        parts["code"] = prod(shapes[CODE])
    parts["bottleneck"] = counts["embedding"] - sum(parts.values())
    sizes: dict[str, dict[str, int]] = {}
    for precision in precisions_for(config):
        plan = plan_for(config, precision)
        sizes[precision] = {"weights": sum(weight_bytes_by_dtype(config, plan).values())}
        sizes[precision] |= {runtime: predict_bytes(config, plan, runtime) for runtime in PROGRAM_BYTES}
    return SizePlan(
        shape=shape,
        config=config,
        embedding_parameters=counts["embedding"],
        embedding_parts=parts,
        encoder_parameters=counts["encoder"],
        parameters=counts["total"],
        macs_per_token=macs_per_token(config),
        macs_length=REFERENCE_LENGTH,
        bytes=sizes,
    )


# Bytes of graph, names and alignment. "quantized": once where anything is; "int8", "int4": a product of a layer (ONNX
# joins query, key and value of one type into one int8 product); "smooth": a layer whose inputs export smooths;
# "outside", "bias", "outside_quantized": bottleneck map and dense head; "code", "code_quantized": a coded table;
# "loop": ONNX writes longer names inside a loop.
ONNX = {
    "file": 1990, "quantized": 360, "layer": 3300, "int8": 451, "int4": 136, "smooth": 190, "outside": 200, "bias": 50,
    "outside_quantized": 400, "narrow": 850, "loop": 1.13, "code": 880, "code_quantized": 760,
}  # fmt: skip
PTE = {
    "file": 8700, "quantized": 0, "layer": 7765, "int8": 370, "int4": 390, "smooth": 512, "outside": 384, "bias": 768,
    "outside_quantized": 512, "narrow": 700, "smooth_once": 700, "code": 1600, "code_quantized": 700,
}  # fmt: skip


def _payload(config: StudentConfig, plan: PrecisionPlan) -> int:
    return sum(weight_bytes_by_dtype(config, plan).values())


def _smoothed(config: StudentConfig, plan: PrecisionPlan) -> int:
    """Hidden states whose scales export stores: the inputs of int8 products behind a layer norm."""
    return sum(reads_int8(plan, index, state) for index in range(config.unit) for state in NORM_READERS)


def _outside(config: StudentConfig, plan: PrecisionPlan, cost: Mapping[str, float]) -> float:
    total = 0.0
    biased = {PROJECT: config.place == "embedding", DENSE: config.dense_bias}
    present = {PROJECT: config.bottleneck is not None, DENSE: config.dense is not None}
    for name, there in present.items():
        if there:
            total += cost["outside"] + cost["bias"] * biased[name]
            total += cost["outside_quantized"] * (plan.dtype(name) != "fp32")
    if plan.dtype(TABLE) == "int4" or plan.dtype(POSITION) == "int8":
        total += cost["narrow"]
    if config.coded:
        total += cost["code"] + cost["code_quantized"] * (plan.dtype(CODE) != "fp32")
    return total + cost["quantized"] * any(dtype != "fp32" for dtype in plan.weights.values())


def onnx_bytes(config: StudentConfig, plan: PrecisionPlan) -> int:
    """Bytes of `model.onnx` and `model.onnx.data` together."""
    smoothed = _smoothed(config, plan)
    layers = ONNX["layer"] * config.unit + ONNX["smooth"] * smoothed / 2
    for index in range(config.unit):
        dtypes = {part: plan.dtype(f"layers.{index}.{part}.weight") for part in LINEARS}
        joined = len({dtypes[part] for part in ("query", "key", "value")}) == 1 and dtypes["query"] == "int8"
        eight = [part for part, dtype in dtypes.items() if dtype == "int8"]
        layers += ONNX["int8"] * (len(eight) - 2 * joined)
        layers += ONNX["int4"] * sum(dtype == "int4" for dtype in dtypes.values())
    layers *= ONNX["loop"] if config.repeats > 1 else 1.0
    scales = 4 * config.hidden * smoothed
    return round(_payload(config, plan) + scales + ONNX["file"] + layers + _outside(config, plan, ONNX))


def executorch_bytes(config: StudentConfig, plan: PrecisionPlan) -> int:
    """Bytes of a multi-method `model.pte`."""
    smoothed = _smoothed(config, plan)
    layers = PTE["layer"] * config.unit + PTE["smooth"] * smoothed / 2
    for index in range(config.unit):
        for part in LINEARS:
            dtype = plan.dtype(f"layers.{index}.{part}.weight")
            layers += 0 if dtype == "fp32" else PTE[dtype]
    scales = 4 * config.hidden * smoothed + PTE["smooth_once"] * (smoothed > 0)
    return round(_payload(config, plan) + scales + PTE["file"] + layers + _outside(config, plan, PTE))


# The one list of runtimes outside msdc.export.runtimes, which lies above this package; a test compares the two.
PROGRAM_BYTES: dict[str, Callable[[StudentConfig, PrecisionPlan], int]] = {
    "executorch": executorch_bytes,
    "onnx": onnx_bytes,
}
