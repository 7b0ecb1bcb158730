"""Sizes of a student before anything is trained or downloaded.

Parameters are counted as in Ding et al. 2022 (`parameter_counts`). Bytes are those of the files that `msdc export`
writes: the weights as stored, plus the program around them (constants below, measured on exported programs; tests keep
them within 1 %). Bytes and operations are exact before training; accuracy is not (`msdc.compress.budget`).
"""

from __future__ import annotations

from contextlib import suppress
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict

from msdc.arguments import checked
from msdc.compress.student import config as names
from msdc.compress.student import plan as plans
from msdc.compress.student.config import StudentConfig
from msdc.compress.student.plan import PrecisionPlan
from msdc.errors import InputError

if TYPE_CHECKING:
    from msdc.compress.student.model import Student

REFERENCE_LENGTH = 32
# Bytes of graph, names and alignment, by runtime: the one list of runtimes outside msdc.export.runtimes, a higher
# package; a test compares the two. "quantized": once if any weight is; "int8", "int4": a product of a layer; "joined":
# products saved where query, key and value are one int8 product; "smooth": a layer whose inputs export smooths;
# "outside", "bias", "outside_quantized": bottleneck map and dense head; "code", "code_quantized": a coded table;
# "halves": the look-up of a 4-bit table; "loop": ONNX writes longer names inside a loop.
PROGRAM_BYTES: dict[str, dict[str, float]] = {
    "executorch": {
        "file": 8128, "quantized": -444, "layer": 6336, "int8": 370, "int4": 355, "joined": 1.7, "smooth": 512,
        "smooth_once": 700, "outside": 384, "bias": 768, "outside_quantized": 512, "narrow": 700, "loop": 1,
        "code": 2300, "code_quantized": 400, "halves": 0,
    },
    "onnx": {
        "file": 1990, "quantized": 360, "layer": 3050, "int8": 451, "int4": 136, "joined": 2, "smooth": 190,
        "smooth_once": 0, "outside": 200, "bias": 50, "outside_quantized": 400, "narrow": 850, "loop": 1.13,
        "code": 880, "code_quantized": 760, "halves": 2500,
    },
}  # fmt: skip


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
    """L / M of the paper."""
    if layers % unit:
        raise InputError(f"a unit of {unit} does not divide {layers} layers; pass `repeats`, the times it is applied")
    return layers // unit


def require_positive(**values: int | None) -> None:
    """Refuse arguments below 1; None is allowed."""
    for name, value in values.items():
        if value is not None and value < 1:
            raise InputError(f"`{name}` {value}: must be at least 1")


def cut_config(
    base: StudentConfig,
    *,
    bottleneck: int | None = None,
    unit: int | None = None,
    repeats: int | None = None,
    vocabulary: int | None = None,
    place: str = "word",
    max_length: int | None = None,
    base_rows: int | None = None,
    nonzeros: int | None = None,
) -> StudentConfig:
    """The config of the student with these changes of `base`; None keeps the base's own (repeats: layers / unit)."""
    require_positive(bottleneck=bottleneck, unit=unit, repeats=repeats, vocabulary=vocabulary, max_length=max_length)
    require_positive(base_rows=base_rows, nonzeros=nonzeros)
    unit = unit or base.unit
    if unit > base.unit:
        raise InputError(f"a unit of {unit} layers out of a model that stores {base.unit}")
    if repeats is None:
        repeats = base.repeats if unit == base.unit else default_repeats(base.unit * base.repeats, unit)
    settings = base.model_dump() | {"unit": unit, "repeats": repeats, "vocabulary": vocabulary or base.vocabulary}
    if bottleneck is not None:
        if bottleneck > base.hidden:
            raise InputError(f"a bottleneck of {bottleneck} is wider than the hidden size {base.hidden}")
        settings |= {"bottleneck": bottleneck, "place": place}
    if max_length is not None:
        if max_length > base.positions:
            raise InputError(f"longest input {max_length} exceeds the {base.positions} positions of the model")
        settings["positions"] = max_length
    if base_rows is not None or nonzeros not in (None, base.nonzeros):
        rows, nonzeros = base_rows or base.base_rows, nonzeros or base.nonzeros
        if rows is None or nonzeros is None:
            raise InputError("a coded table needs both `base_rows` and `nonzeros`")
        names.check_code(rows, nonzeros, settings["vocabulary"])
        settings |= {"base_rows": rows, "nonzeros": nonzeros}
    return StudentConfig(**settings)


def macs_per_token(config: StudentConfig, length: int = REFERENCE_LENGTH) -> int:
    """Multiply-accumulates per token in a sentence of `length` tokens, attention included."""
    H, I = config.hidden, config.intermediate
    layer = 4 * H * H + 2 * H * I + 2 * length * H
    total = layer * config.unit * config.repeats + (config.bottleneck or 0) * H
    return total + (config.nonzeros or 0) * config.table_width - (-H * (config.dense or 0) // length)


def predict_bytes(config: StudentConfig, plan: PrecisionPlan, runtime: str, max_length: int | None = None) -> int:
    """Bytes of `model.pte`, or of `model.onnx` and its data together."""
    if runtime not in PROGRAM_BYTES:
        raise InputError(f"runtime {runtime!r} is unknown; known: {', '.join(PROGRAM_BYTES)}")
    cost = PROGRAM_BYTES[runtime]
    config = config.model_copy(update={"positions": min(max_length or config.positions, config.positions)})
    # Hidden states whose scales export stores: the inputs of int8 products behind a layer norm.
    smoothed = sum(plans.reads_int8(plan, index, state) for index in range(config.unit) for state in plans.NORM_READERS)
    layers = cost["layer"] * config.unit + cost["smooth"] * smoothed / 2
    for index in range(config.unit):
        dtypes = [plan.dtype(f"layers.{index}.{part}.weight") for part in names.LINEARS]
        layers += sum(cost[dtype] for dtype in dtypes if dtype != "fp32")
        layers -= cost["joined"] * cost["int8"] * (dtypes[:3] == ["int8"] * 3)
    total = cost["file"] + layers * (cost["loop"] if config.repeats > 1 else 1)
    total += sum(plans.weight_bytes_by_dtype(config, plan).values())
    total += 4 * config.hidden * smoothed + cost["smooth_once"] * (smoothed > 0)
    biased = {names.PROJECT: config.place == "embedding", names.DENSE: config.dense_bias}
    for name, width in ((names.PROJECT, config.bottleneck), (names.DENSE, config.dense)):
        if width is not None:
            total += cost["outside"] + cost["bias"] * biased[name]
            total += cost["outside_quantized"] * (plan.dtype(name) != "fp32")
    if plan.dtype(names.TABLE) == "int4" or plan.dtype(names.POSITION) == "int8":
        total += cost["narrow"]
    total += cost["halves"] * (plan.dtype(names.TABLE) == "int4")
    if config.coded:
        total += cost["code"] + cost["code_quantized"] * (plan.dtype(names.CODE) != "fp32")
    return round(total + cost["quantized"] * any(dtype != "fp32" for dtype in plan.weights.values()))


def precisions_for(config: StudentConfig) -> list[str]:
    """Precisions whose int4 groups fit the widths of this student."""
    fitting = []
    for precision in plans.PRECISIONS:
        with suppress(InputError):
            plans.plan_for(config, precision)
            fitting.append(precision)
    return fitting


def size_plan(shape: str, config: StudentConfig) -> SizePlan:
    """All sizes of `config`; `shape` is the name to print."""
    shapes = names.tensor_shapes(config)
    counts = names.parameter_counts(config)
    parts = {"table": prod(shapes[names.TABLE]), "positions": prod(shapes.get(names.POSITION, (0,)))}
    if config.coded:
        parts["code"] = prod(shapes[names.CODE])
    parts["bottleneck"] = counts["embedding"] - sum(parts.values())
    sizes: dict[str, dict[str, int]] = {}
    for precision in precisions_for(config):
        plan = plans.plan_for(config, precision)
        sizes[precision] = {"weights": sum(plans.weight_bytes_by_dtype(config, plan).values())}
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


def base_of(model: str | Path | None, shape: str | None) -> tuple[str, StudentConfig, Student | None]:
    """Name and config of a model or of a published shape, and the model's student."""
    if (model is None) == (shape is None):
        raise InputError("pass either `model` or `shape`")
    if shape is not None:
        if shape not in names.SHAPES:
            raise InputError(f"shape {shape!r} is unknown; known: {', '.join(sorted(names.SHAPES))}")
        return shape, names.SHAPES[shape], None
    from msdc.compress.loading import find_model
    from msdc.compress.student.io import load_student

    student = load_student(find_model(str(model)))
    return str(model), student.config, student


@checked
def plan(
    model: str | Path | None = None,
    *,
    shape: str | None = None,
    bottleneck: int | None = None,
    unit: int | None = None,
    repeats: int | None = None,
    vocabulary: int | None = None,
    max_length: int | None = None,
    base_rows: int | None = None,
    nonzeros: int | None = None,
    place: Literal["word", "embedding"] = "word",
) -> SizePlan:
    """Parameters, bytes and operations of a student before anything is trained.

        from msdc.compress import plan

        print(plan(shape="xlmr-base", bottleneck=128, unit=3).bytes["int8"]["onnx"])

    Args:
        model: the model to cut the student from: a shipped name, a folder or a hub id.
        shape: a published shape by name, instead of `model`.
        bottleneck: width of the token table's rows; this and the next ones: None keeps the model's own.
        unit: stored layers of the recurring unit.
        repeats: how often the unit is applied; None: layers / unit.
        vocabulary: rows of the token table.
        max_length: longest input in tokens.
        base_rows: rows of a coded table's base.
        nonzeros: base rows that a row of a coded table is a sum of, 2 to 5.
        place: "word" is the paper's bottleneck, "embedding" that of a stock AlbertModel.

    Raises:
        InputError: no such model or shape, or an argument that does not fit it.
    """
    name, base, _ = base_of(model, shape)
    cut = {"bottleneck": bottleneck, "unit": unit, "repeats": repeats, "vocabulary": vocabulary}
    config = cut_config(base, **cut, place=place, max_length=max_length, base_rows=base_rows, nonzeros=nonzeros)
    return size_plan(name, config)
