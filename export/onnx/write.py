"""The ONNX program, written node by node, so that no exporter leaves a weight in fp32.

The recurrence is a `Loop` whose body is the unit; its weights are initializers of the outer graph; linears are int8 per
output channel with per-token uint8 activations in standard operators; q, k and v share one quantization and one
product; the token table is int8 per row or int4 in groups. Inputs `input_ids`, `attention_mask` int64 [B, T]; output
`sentence_embedding` float32 [B, D].

Shapes: B batch, T tokens, E table width, H hidden, N heads, D sentence width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from msdc.compress.student.config import INDEX, POSITION
from msdc.compress.student.plan import PrecisionPlan
from msdc.errors import GateError, InputError
from msdc.export.golden import run_once
from msdc.export.onnx.graph import FLOORS, HALVES, MICROSOFT, GraphBuilder, Weights, save_external
from msdc.export.onnx.program import check_onnx_file
from msdc.export.onnx.runner import OnnxRunner
from msdc.export.origin import record_safe
from msdc.export.schema import TARGETS, OnnxPart, WrittenProgram
from msdc.export.smoothing import Smoothed
from msdc.files import sha256_files

# Opset 21 (ONNX Runtime >= 1.18) has Gelu and 4-bit types.
OPSET = 21
IR_VERSION = 10
# Added to the scores of padding.
NEGATIVE = -1e9
LOW_BIT = {TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4}


class Taps(NamedTuple):
    """Names of the states at each layer's input and at its feed-forward input, as often as the layer is applied."""

    entry: list[list[str]]
    middle: list[list[str]]


class Mask(NamedTuple):
    """What is added to the scores, [B, 1, 1, T], and whether there is nothing to add (bool scalar; empty: unknown)."""

    bias: str
    all_real: str = ""


def _info(name: str, shape: list[Any], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def make_mask(builder: GraphBuilder, weights: Weights, mask_BT: str) -> Mask:
    """The mask as attention takes it, from 1 on real tokens and 0 on padding."""
    padding = builder.op("Sub", builder.const("one", np.float32(1.0)), mask_BT)
    gap = builder.op("Mul", padding, builder.const("negative", np.float32(NEGATIVE)))
    bias = builder.op("Unsqueeze", gap, builder.const("axes_1_2", [1, 2]), name="attention_bias")
    if not weights.microsoft:
        return Mask(bias)
    return Mask(
        bias, builder.op("Cast", builder.op("ReduceMin", mask_BT, keepdims=0), name="all_real", to=TensorProto.BOOL)
    )


def _standard(builder: GraphBuilder, weights: Weights, qkv: list[str], mask: Mask) -> str:
    """Attention of [B, T, H] queries (already scaled), keys and values: [B, T, H]."""
    config = weights.config
    shape_in = builder.const("split_heads", [0, 0, config.heads, config.hidden // config.heads])
    shape_out = builder.const("join_heads", [0, 0, config.hidden])
    query, key, value = qkv
    query_BNTd = builder.op("Transpose", builder.op("Reshape", query, shape_in), perm=[0, 2, 1, 3])
    key_BNdT = builder.op("Transpose", builder.op("Reshape", key, shape_in), perm=[0, 2, 3, 1])
    value_BNTd = builder.op("Transpose", builder.op("Reshape", value, shape_in), perm=[0, 2, 1, 3])
    scores_BNTT = builder.op("Add", builder.op("MatMul", query_BNTd, key_BNdT), mask.bias)
    context_BNTd = builder.op("MatMul", builder.op("Softmax", scores_BNTT, axis=-1), value_BNTd)
    return str(builder.op("Reshape", builder.op("Transpose", context_BNTd, perm=[0, 2, 1, 3]), shape_out))


def _transposed(builder: GraphBuilder, weights: Weights, qkv: list[str], mask: Mask) -> str:
    """Heads are split after a plain transpose, [B, T, H] to [B, H, T], and the products take their sides transposed:
    swapping the axes of tokens and heads would take three times as long. A batch without padding adds no mask.
    """
    config = weights.config
    weights.uses_microsoft = True
    shape_in = builder.const("split_rows", [0, config.heads, config.hidden // config.heads, -1])
    shape_out = builder.const("join_rows", [0, config.hidden, -1])
    query_BNdT, key_BNdT, value_BNdT = [
        builder.op("Reshape", builder.op("Transpose", part_BTH, perm=[0, 2, 1]), shape_in) for part_BTH in qkv
    ]
    scores_BNTT = builder.op("FusedMatMul", query_BNdT, key_BNdT, domain=MICROSOFT, transA=1)

    weight_BNTT = builder.choose(
        mask.all_real,
        lambda real: str(real.op("Softmax", scores_BNTT, axis=-1)),
        lambda padded: str(padded.op("Softmax", padded.op("Add", scores_BNTT, mask.bias), axis=-1)),
        ["batch", config.heads, "length", "length"],
    )
    context_BNdT = builder.op("FusedMatMul", value_BNdT, weight_BNTT, name="attention", domain=MICROSOFT, transB=1)
    return str(builder.op("Transpose", builder.op("Reshape", context_BNdT, shape_out), perm=[0, 2, 1]))


def _layer(builder: GraphBuilder, weights: Weights, index: int, hidden: str, mask: Mask, taps: Taps | None) -> str:
    config = weights.config
    name = f"layers.{index}"
    residual = weights.unsmoothed(builder, "entry", index, hidden)
    context = (_transposed if weights.microsoft else _standard)(
        builder, weights, weights.qkv(builder, index, hidden), mask
    )
    attended = _add_norm(builder, weights, f"{name}.attention_norm", weights.output(builder, index, context), residual)
    if taps is not None:
        taps.entry[index].append(hidden)
        taps.middle[index].append(attended)
    residual = weights.unsmoothed(builder, "middle", index, attended)
    up = weights.linear(builder, f"{name}.up", attended)
    inner = weights.activate(builder, config.activation, up, reader=f"{name}.down")
    down = weights.unbiased(builder, f"{name}.down", inner, floor=FLOORS.get(config.activation))
    return _add_norm(builder, weights, f"{name}.output_norm", down, residual)


def _norm(builder: GraphBuilder, weights: Weights, name: str, value: str) -> str:
    """Layer norm.

    As an instance norm of every token where speed on Arm counts: ONNX Runtime's LayerNormalization goes number by
    number there (15 instructions each), InstanceNormalization, a product and a sum use vectors (9 in all).
    """
    scale, shift = weights.pair(builder, name)
    epsilon = weights.config.layer_norm_eps
    if not weights.microsoft:
        return str(builder.op("LayerNormalization", value, scale, shift, name="norm", axis=-1, epsilon=epsilon))
    ones, zeros = weights.token_norm
    normed = builder.op("InstanceNormalization", value, ones, zeros, name="norm", epsilon=epsilon)
    return str(builder.op("Add", builder.op("Mul", normed, scale), shift))


def _add_norm(builder: GraphBuilder, weights: Weights, name: str, product: tuple[str, str], residual: str) -> str:
    """norm(product + bias + residual).

    A Sum on purpose: ONNX Runtime fuses Add and LayerNormalization into a kernel (SkipLayerNormalization) that is four
    times slower than the two apart on x86.
    """
    value, bias = product
    return _norm(builder, weights, name, builder.op("Sum", *([value, bias] if bias else [value]), residual))


def _unit(builder: GraphBuilder, weights: Weights, hidden: str, mask: Mask, taps: Taps | None = None) -> str:
    for index in range(weights.config.unit):
        hidden = _layer(builder, weights, index, hidden, mask, taps)
    return hidden


def _recurrence(builder: GraphBuilder, weights: Weights, hidden: str, mask: Mask, taps: Taps | None) -> str:
    config = weights.config
    if config.repeats == 1 or taps is not None:
        # States inside a Loop have no names outside it.
        for _ in range(config.repeats):
            hidden = _unit(builder, weights, hidden, mask, taps)
        return hidden
    body = GraphBuilder("unit/", parent=builder)
    result = _unit(body, weights, "unit/hidden_in", mask)
    body.op("Identity", "unit/go_on", name="go_on")
    condition = body.nodes[-1].output[0]
    inside = ["batch", "length", config.hidden]
    graph = helper.make_graph(
        body.nodes,
        "unit",
        [
            _info("unit/step", [], TensorProto.INT64),
            _info("unit/go_on", [], TensorProto.BOOL),
            _info("unit/hidden_in", inside),
        ],
        [_info(condition, [], TensorProto.BOOL), _info(result, inside)],
    )
    trips, start = builder.const("repeats", np.int64(config.repeats)), builder.const("go_on", np.bool_(True))
    return str(builder.op("Loop", trips, start, hidden, name="recurrence", body=graph))


def _embed(builder: GraphBuilder, weights: Weights, max_length: int) -> str:
    config = weights.config
    rows = weights.table(builder, "input_ids")
    if config.bottleneck is not None and config.place == "word":
        rows = weights.linear(builder, "embedding.project", rows)
    if config.static:
        return rows
    length = builder.op("Shape", "input_ids", start=1, end=2)
    position = weights.positions(builder, max_length, length)
    hidden = _norm(builder, weights, "embedding.norm", builder.op("Add", rows, position))
    if config.bottleneck is not None and config.place == "embedding":
        hidden = weights.linear(builder, "embedding.project", hidden)
    return str(hidden)


def _pool(builder: GraphBuilder, weights: Weights, hidden: str, mask_BT1: str) -> str:
    config = weights.config
    middle = builder.const("axis_1", [1])
    if config.pooling == "cls":
        sentence = builder.op("Gather", hidden, builder.const("zero_index", np.int64(0)), axis=1)
    elif config.pooling == "max":
        padding = builder.op("Sub", builder.const("one", np.float32(1.0)), mask_BT1)
        lowest = builder.op("Mul", padding, builder.const("lowest", np.float32(-3.0e38)))
        sentence = builder.op("ReduceMax", builder.op("Add", hidden, lowest), middle, keepdims=0)
    else:
        total = builder.op("ReduceSum", builder.op("Mul", hidden, mask_BT1), middle, keepdims=0)
        count = builder.op(
            "Max", builder.op("ReduceSum", mask_BT1, middle, keepdims=0), builder.const("tiny_count", np.float32(1e-9))
        )
        sentence = builder.op("Div", total, count)
    if not config.static:
        sentence = weights.unsmoothed(builder, "entry", 0, sentence)
    if config.dense is not None:
        sentence = weights.activate(builder, config.dense_activation, weights.linear(builder, "dense", sentence))
    if config.normalize:
        length = builder.op("ReduceL2", sentence, builder.const("axis_last", [-1]), keepdims=1)
        sentence = builder.op(
            "Div", sentence, builder.op("Max", length, builder.const("tiny_length", np.float32(1e-12)))
        )
    if builder.nodes[-1].output[0] != sentence:
        sentence = builder.op("Identity", sentence)
    return builder.rename(sentence, "sentence_embedding")


def build_onnx(
    smoothed: Smoothed, plan: PrecisionPlan, max_length: int, target: str, taps: Taps | None = None
) -> onnx.ModelProto:
    """The model with its weights inside. With `taps` the states that they name (filled here) are outputs too."""
    # Microsoft's operators: products that scale their result, transposed products, 4-bit products.
    weights = Weights(smoothed, plan, TARGETS[target].microsoft_operators)
    config = weights.config
    builder = GraphBuilder()
    mask_BT = builder.op("Cast", "attention_mask", name="mask", to=TensorProto.FLOAT)
    mask_BT1 = builder.op("Unsqueeze", mask_BT, builder.const("axis_last", [-1]), name="mask_rows")
    weights.row_shape = builder.op("Shape", mask_BT1, name="row_shape")
    if weights.microsoft and not config.static:
        length = builder.op("Shape", "input_ids", start=1, end=2)
        fills = (
            builder.const(f"{name}_norm", [value]) for name, value in (("one", np.float32(1)), ("zero", np.float32(0)))
        )
        weights.token_norm = tuple(builder.op("Expand", fill, length) for fill in fills)
    hidden = _embed(builder, weights, max_length)
    if not config.static:
        hidden = _recurrence(builder, weights, hidden, make_mask(builder, weights, mask_BT), taps)
    weights.row_shape = ""
    _pool(builder, weights, hidden, mask_BT1)
    states = [] if taps is None else [name for names in (*taps.entry, *taps.middle) for name in names]
    outputs = [_info(name, ["batch", "length", config.hidden]) for name in dict.fromkeys(states)]
    graph = helper.make_graph(
        builder.nodes,
        "sentence_encoder",
        [_info(name, ["batch", "length"], TensorProto.INT64) for name in ("input_ids", "attention_mask")],
        [_info("sentence_embedding", ["batch", config.width]), *outputs],
        list(builder.initializers.values()),
    )
    opsets = [helper.make_opsetid("", OPSET)]
    if any(node.domain == MICROSOFT for node in builder.nodes) or weights.uses_microsoft:
        opsets.append(helper.make_opsetid(MICROSOFT, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="msdc")


def low_bit_share(model: onnx.ModelProto) -> float:
    """Share of the bytes of the token table and of all linear maps that are 8 bits or less.

    Positions, biases, norms and scales are not weights of a product and are not counted; nor are a code's indices and
    the numbers of its half-bytes.
    """
    weights = [
        tensor for tensor in model.graph.initializer
        if len(tensor.dims) > 1 and tensor.name not in (POSITION, INDEX, HALVES) and not tensor.name.endswith(".scale")
    ]  # fmt: skip
    low = sum(len(tensor.raw_data) for tensor in weights if tensor.data_type in LOW_BIT)
    return low / max(1, sum(len(tensor.raw_data) for tensor in weights))


def write_onnx(
    smoothed: Smoothed, plan: PrecisionPlan, target_file: Path, *, max_length: int, target: str
) -> WrittenProgram:
    """Write `target_file` and its `.data` next to it, for the export target `target`; see `save_onnx_program`."""
    config = smoothed.weights.config
    model = build_onnx(smoothed, plan, max_length, target)
    quantized = any(dtype != "fp32" for dtype in plan.weights.values())
    share = round(low_bit_share(model), 4) if quantized else None
    return save_onnx_program(
        model, target_file, share, vocabulary=config.vocabulary, width=config.width, max_length=max_length,
        pad_id=config.pad_id,
    )  # fmt: skip


def save_onnx_program(
    model: onnx.ModelProto, target_file: Path, share: float | None, *, vocabulary: int, width: int, max_length: int,
    pad_id: int, padded: bool = True,
) -> WrittenProgram:  # fmt: skip
    """Write a model and its external data, check both, run it at lengths 1, 2 and longest, and open it.

    Raises:
        GateError: onnx.checker refuses it, or a run gives no finite vector.
    """
    data = f"{target_file.name}.data"
    save_external(model, target_file, data)
    try:
        check_onnx_file(target_file, full=True)
    except InputError as error:
        raise GateError(f"the written ONNX model is not valid: {error}") from error
    runner = OnnxRunner(target_file, pad_id=pad_id, padded=padded)
    run_once(runner.run, vocabulary, width, max_length, target_file.name)
    record_safe(sha256_files([target_file, target_file.with_name(data)]), "exported", "onnxruntime")
    return WrittenProgram(OnnxPart(file=target_file.name, data=data, opset=OPSET), runner, share)
