"""Sizes of a student before anything is trained or downloaded, and every student that fits a byte budget.

Parameters are counted as in Ding et al. 2022 (`parameter_counts`). Bytes are those of the files that `msdc export`
writes: the weights as stored, plus the program around them (constants below, measured on exported programs; tests keep
them within 1 %). They and the operations are exact before training; accuracy is not. `expected_loss` orders candidates
by what is published or measured, in Spearman points lost against the base model:

* bottleneck: `BOTTLENECK_POINTS` x the share of the token table's variance that it drops. The share is measured on
  the given model's own table; for a bare shape it follows `KEPT_CURVE`, measured on all-MiniLM-L6-v2.
* stored layers: `HALVING_POINTS` each time the unit is half the base's layers (Ding et al. 2022, table 2: 12 to 6 to 3
  layers cost 1.7 and 1.7 points with XLM-R, 3.7 and 4.3 with MiniLM).
* depth: fewer applied layers (unit x repeats below the base's) cost `DEPTH_POINTS` more per halving.
* vocabulary: `VOCABULARY_POINTS` each time it is halved.
* precision: the gates of an artifact: int8 0.3, an int4 table 0.3 more, int4 linears 0.6 more.

It ranks candidates and does not predict a score: train two or three from the Pareto set.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from math import inf, log2, prod
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import BaseModel, ByteSize, ConfigDict, TypeAdapter, ValidationError

from msdc.compress.quantization import plan as plans
from msdc.compress.quantization.plan import PrecisionPlan
from msdc.compress.student import config as names
from msdc.compress.student.config import StudentConfig
from msdc.errors import InputError
from msdc.scores import pareto

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
BOTTLENECK_POINTS = 15.0
HALVING_POINTS = 2.5
DEPTH_POINTS = 1.0
VOCABULARY_POINTS = 1.0
PRECISION_POINTS = {"fp32": 0.0, "int8": 0.3, "int8-embed4": 0.6, "int4-embed4": 1.2}
# Share of the frequency-weighted variance of all-MiniLM-L6-v2's table (384 wide) kept at these shares of the width.
KEPT_CURVE = (0.0, 64 / 384, 128 / 384, 192 / 384, 256 / 384, 1.0), (0.0, 0.55, 0.74, 0.85, 0.93, 1.0)
# Share of the frequency-weighted variance of msdc-mini's table that a fitted code of 2 to 4 nonzeros drops, by base
# rows per token; between 2 and 4 nonzeros it differs less than between one of these sizes and the next.
CODE_CURVE = (0.0, 1 / 8, 1 / 5, 1 / 4, 1.0), (1.0, 0.029, 0.024, 0.016, 0.0)
# Values that a budget tries besides the base's own.
VOCABULARIES = (8_000, 12_000, 16_000, 24_000, 32_000, 48_000, 64_000, 96_000, 128_000)
WIDTHS = (32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 512)
UNITS = (1, 2, 3, 4, 5, 6, 8, 9, 12, 18, 24)
REPEATS = (1, 2, 3, 4, 6)
BASE_ROWS = (4_000, 8_000, 16_000, 32_000)
NONZEROS = (2, 3, 4, 5)


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


def _positive(**values: int | None) -> None:
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
    _positive(bottleneck=bottleneck, unit=unit, repeats=repeats, vocabulary=vocabulary, max_length=max_length)
    _positive(base_rows=base_rows, nonzeros=nonzeros)
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
    parts = {"table": prod(shapes[names.TABLE]), "positions": prod(shapes[names.POSITION])}
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


def _base(model: str | None, shape: str | None) -> tuple[str, StudentConfig, Student | None]:
    if (model is None) == (shape is None):
        raise InputError("pass either `model` or `shape`")
    if shape is not None:
        if shape not in names.SHAPES:
            raise InputError(f"shape {shape!r} is unknown; known: {', '.join(sorted(names.SHAPES))}")
        return shape, names.SHAPES[shape], None
    from msdc.compress.student.io import load_student
    from msdc.encoders.folder import locate_model

    student = load_student(locate_model(str(model)))
    return str(model), student.config, student


def plan(
    model: str | None = None,
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
    name, base, _ = _base(model, shape)
    cut = {"bottleneck": bottleneck, "unit": unit, "repeats": repeats, "vocabulary": vocabulary}
    config = cut_config(base, **cut, place=place, max_length=max_length, base_rows=base_rows, nonzeros=nonzeros)
    return size_plan(name, config)


class Candidate(BaseModel):
    """One student; `pareto`: no other one is at most as big, as slow and as lossy, and better in one of the three."""

    model_config = ConfigDict(frozen=True)

    vocabulary: int
    bottleneck: int | None
    base_rows: int | None = None
    nonzeros: int | None = None
    unit: int
    repeats: int
    precision: str
    needs_qat: bool
    bytes: int
    macs_per_token: int
    parameters: int
    expected_loss: float
    pareto: bool = False


def plan_budget(
    budget: str | int,
    model: str | None = None,
    *,
    shape: str | None = None,
    runtime: str = "executorch",
    max_length: int | None = None,
    bottleneck: int | None = None,
    unit: int | None = None,
    repeats: int | None = None,
    vocabulary: int | None = None,
    base_rows: int | None = None,
    nonzeros: int | None = None,
    place: Literal["word", "embedding"] = "word",
) -> list[Candidate]:
    """Every student that fits a budget, least expected loss first, the Pareto set marked.

        from msdc.compress import plan_budget

        best = [student for student in plan_budget("10MB", "msdc-mini", unit=3) if student.pareto]

    Args:
        budget: bytes of the program, as 10MB or 9.5MiB.
        model: the model to cut the students from: a shipped name, a folder or a hub id.
        shape: a published shape by name, instead of `model`.
        runtime: runtime whose file the budget is for.
        max_length: longest input in tokens.
        bottleneck: width of the token table's rows; this and the next ones: None tries several.
        unit: stored layers of the recurring unit.
        repeats: how often the unit is applied.
        vocabulary: rows of the token table.
        base_rows: rows of a coded table's base; with this or `nonzeros` every candidate's table is coded.
        nonzeros: base rows that a row of a coded table is a sum of, 2 to 5.
        place: position of the bottleneck, see `plan`.

    Raises:
        InputError: no such model, an argument out of range, or no student fits.
    """
    fixed = {"bottleneck": bottleneck, "unit": unit, "repeats": repeats, "vocabulary": vocabulary}
    fixed |= {"base_rows": base_rows, "nonzeros": nonzeros}
    _positive(max_length=max_length, **fixed)
    try:
        size = TypeAdapter(ByteSize).validate_python(budget)
    except ValidationError as error:
        raise InputError(f"size {budget!r} is not a number of bytes, such as 10MB or 9.5MiB") from error
    _, base, student = _base(model, shape)
    kept = None
    if student is not None:
        from msdc.compress.student.cut import kept_shares, wide_table

        kept = kept_shares(wide_table(student), [width for width in WIDTHS if width < base.table_width])
    codes: list[tuple[int, int]] = []
    if base_rows is not None or nonzeros is not None:
        if nonzeros not in (None, *NONZEROS):
            raise InputError(f"`nonzeros` {nonzeros}: a coded row is a sum of 2 to 5 base rows")
        codes = list(product([base_rows] if base_rows else BASE_ROWS, [nonzeros] if nonzeros else NONZEROS))
    found = enumerate_students(base, size, runtime=runtime, max_length=max_length, place=place, kept=kept, codes=codes)
    return [row for row in found if all(value in (None, getattr(row, key)) for key, value in fixed.items())]


def enumerate_students(
    base: StudentConfig,
    budget_bytes: int,
    *,
    runtime: str = "executorch",
    max_length: int | None = None,
    place: str = "word",
    kept: dict[int, float] | None = None,
    codes: Sequence[tuple[int, int]] = (),
) -> list[Candidate]:
    """Every combination that fits `budget_bytes`, least expected loss first, the Pareto set marked.

    `kept` maps bottleneck widths to the share of the model's own table that they keep; `codes` are pairs of base rows
    and nonzeros of coded tables, which replace the table of every vocabulary that is larger than the base.
    """
    layers = base.unit * base.repeats
    shares: dict[int | None, float] = {
        width: (kept or {}).get(width, float(np.interp(width / base.hidden, *KEPT_CURVE)))
        for width in WIDTHS
        if width < base.table_width and width != base.bottleneck
    }
    # None keeps the base's own width.
    shares[None] = 1.0
    stacks = [
        (unit, repeats) for unit in UNITS for repeats in REPEATS if unit <= base.unit and unit * repeats <= layers
    ]
    vocabularies = [*(size for size in VOCABULARIES if size < base.vocabulary), base.vocabulary]
    tables: list[tuple[int, int | None, int | None]] = [(size, None, None) for size in vocabularies]
    if codes and not base.coded:
        tables = [(size, rows, nonzeros) for size in vocabularies for rows, nonzeros in codes if rows < size]
    found: list[Candidate] = []
    smallest = inf
    for (width, share), (unit, repeats), (vocabulary, rows, nonzeros) in product(shares.items(), stacks, tables):
        cut: dict[str, Any] = {"unit": unit, "repeats": repeats, "vocabulary": vocabulary}
        cut |= {"bottleneck": width, "base_rows": rows, "nonzeros": nonzeros}
        config = cut_config(base, **cut, place=place, max_length=max_length)
        points = BOTTLENECK_POINTS * (1 - share) + HALVING_POINTS * log2(layers / unit)
        points += DEPTH_POINTS * log2(layers / (unit * repeats))
        points += VOCABULARY_POINTS * log2(base.vocabulary / vocabulary)
        if rows is not None:
            points += BOTTLENECK_POINTS * float(np.interp(rows / vocabulary, *CODE_CURVE))
        for precision in precisions_for(config):
            size = predict_bytes(config, plans.plan_for(config, precision), runtime)
            smallest = min(smallest, size)
            if size <= budget_bytes:
                candidate = Candidate(
                    **{name: getattr(config, name) for name in cut},
                    precision=precision,
                    needs_qat=precision == "int4-embed4",
                    bytes=size,
                    macs_per_token=macs_per_token(config),
                    parameters=names.parameter_counts(config)["total"],
                    expected_loss=round(points + PRECISION_POINTS[precision], 3),
                )
                found.append(candidate)
    if not found:
        raise InputError(f"no student of this model fits {budget_bytes} bytes; the smallest takes {smallest}")
    front = pareto([(row.bytes, row.macs_per_token, row.expected_loss) for row in found])
    found = [row.model_copy(update={"pareto": best}) for row, best in zip(found, front, strict=True)]
    return sorted(found, key=lambda row: (row.expected_loss, row.bytes, row.macs_per_token))
