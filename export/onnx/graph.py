"""ONNX graphs, node by node: the builder, a student's weights as initializers, and the linear maps over them.

A quantized linear: x [.., K] -> uint8 with one scale per token (symmetric, or anchored at the activation's minimum),
MatMulInteger with int8 [K, N], scale per token and per channel, bias.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from msdc.compress.student.config import CODE, INDEX, POSITION, TABLE
from msdc.compress.student.plan import PrecisionPlan
from msdc.export.smoothing import Smoothed

# Tensors from this size on go to the external data file, which runtimes memory-map.
EXTERNAL_FROM_BYTES = 1024
ALIGNMENT = 64
# Adds the nodes of a branch to its graph; the name of its result.
Branch = Callable[["GraphBuilder"], str]
MICROSOFT = "com.microsoft"
# The two numbers -8 .. 7 of every byte of the packed token table, float32 [256, 2].
HALVES = "embedding.table.halves"
# Minimum of each activation: few steps are needed below 0, so the zero point can lie near 0.
FLOORS = {"gelu": -0.17, "gelu_new": -0.1701, "relu": 0.0}
FLOOR_ZERO = 32
# Steps of a quantized activation; see pair_safe for why not 255.
LEVELS = 225
# uint8 tensor, step per token, zero point
Quantized = tuple[str, str, int]


class GraphBuilder:
    """Collects nodes and initializers. Loop bodies and branches are children that put theirs into the outer graph."""

    def __init__(self, prefix: str = "", parent: GraphBuilder | None = None) -> None:
        self.prefix = prefix
        self.outer: GraphBuilder = parent.outer if parent else self
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = parent.initializers if parent else {}
        self._count = 0

    def const(self, name: str, value: Any) -> str:
        """Add an initializer once under `name`; the same name must mean the same tensor."""
        if name not in self.initializers:
            array = np.ascontiguousarray(value)
            self.initializers[name] = numpy_helper.from_array(array.reshape(np.shape(value)), name)
        return name

    def raw(self, tensor: onnx.TensorProto) -> str:
        """Add a ready-made initializer (types that numpy does not have)."""
        self.initializers.setdefault(tensor.name, tensor)
        return tensor.name

    def op(self, kind: str, *inputs: str, name: str = "", outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node; its output name (or a list of names for several outputs)."""
        self._count += 1
        label = f"{self.prefix}{name or kind.lower()}_{self._count}"
        names = [label] if outputs == 1 else [f"{label}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=label, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def choose(self, condition: str, then: Branch, otherwise: Branch, shape: Sequence[str | int | None]) -> str:
        """An If whose branches each compute one float tensor of `shape`."""
        branches = {}
        for key, make in (("then_branch", then), ("else_branch", otherwise)):
            body = GraphBuilder(f"{self.prefix}choice_{self._count}/{key}/", parent=self)
            out = helper.make_tensor_value_info(make(body), TensorProto.FLOAT, list(shape))
            branches[key] = helper.make_graph(body.nodes, key, [], [out])
        return str(self.op("If", condition, name="choice", **branches))

    def rename(self, old: str, new: str) -> str:
        """Give the output `old` of the last node that makes it the name `new` (graph outputs have fixed names)."""
        node = next(node for node in reversed(self.nodes) if old in node.output)
        node.output[list(node.output).index(old)] = new
        return new


def save_external(model: onnx.ModelProto, target: Path, data_name: str) -> None:
    """Write `target` and, next to it, `data_name` with every large initializer at an aligned offset.

    Not written by onnx.save_model: fixed offsets and order make two exports byte-identical.
    """
    offset = 0
    with open(target.parent / data_name, "wb") as data:
        for tensor in model.graph.initializer:
            raw = tensor.raw_data
            if len(raw) < EXTERNAL_FROM_BYTES:
                continue
            padding = -offset % ALIGNMENT
            data.write(b"\0" * padding)
            offset += padding
            data.write(raw)
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data_name), ("offset", str(offset)), ("length", str(len(raw)))):
                tensor.external_data.add(key=key, value=value)
            offset += len(raw)
    target.write_bytes(model.SerializeToString(deterministic=True))


class Weights:
    """Weights of a student under a precision plan; methods add them to a graph on first use."""

    def __init__(self, smoothed: Smoothed, plan: PrecisionPlan, microsoft: bool) -> None:
        self.smoothed = smoothed
        self.config = smoothed.weights.config
        self.plan = plan
        self.state = smoothed.weights.arrays
        self.index = self.state.get(INDEX)
        self.quantized = smoothed.integers(plan)
        # com.microsoft operators: allowed; used
        self.microsoft, self.uses_microsoft = microsoft, False
        # Name of the shape [B, T, 1] while rows are tokens; empty once they are sentences.
        self.row_shape = ""
        # Scale 1 and shift 0 of every token, [T] each, for instance norms.
        self.token_norm: tuple[str, ...] = ()
        self._zeros_of: dict[int, str] = {}

    def pair(self, builder: GraphBuilder, name: str) -> tuple[str, str]:
        """Initializers of a norm: its weight and its bias."""
        weight, bias = (builder.const(f"{name}.{part}", self.state[f"{name}.{part}"]) for part in ("weight", "bias"))
        return weight, bias

    def unsmoothed(self, builder: GraphBuilder, kind: str, index: int, value: str) -> str:
        """A hidden state multiplied back to its full scale; `kind` is entry or middle."""
        scale_H = getattr(self.smoothed, kind)[index]
        if scale_H is None:
            return value
        return str(builder.op("Mul", value, builder.const(f"layers.{index}.{kind}.smooth", scale_H)))

    def activate(self, builder: GraphBuilder, kind: str, value: str, reader: str = "") -> str:
        """An activation of `msdc.compress.student.model.ACTIVATIONS`; `reader` is the linear that takes it.

        Where the reader rounds it to 8 bits, GELU is computed with tanh: at most 0.0005 away, less than a step, and
        half the instructions of erf on Arm.
        """
        if kind == "identity":
            return value
        if kind in ("gelu", "gelu_new"):
            close = self.microsoft and self.plan.dtype(f"{reader}.weight") == "int8"
            return str(builder.op("Gelu", value, approximate="tanh" if close or kind == "gelu_new" else "none"))
        return str(builder.op({"relu": "Relu", "tanh": "Tanh"}[kind], value))

    def _bias(self, names: list[str]) -> np.ndarray | None:
        parts = [self.state.get(f"{name}.bias") for name in names]
        return None if any(part is None for part in parts) else np.concatenate([part for part in parts])  # type: ignore[union-attr]

    def qkv(self, builder: GraphBuilder, index: int, hidden: str) -> list[str]:
        """Query (divided by sqrt of the head width), key and value, [B, T, H] each, of one product.

        With Microsoft's operators only the query gets its bias (see `output`), else all three.
        """
        names, H = [f"layers.{index}.{part}" for part in ("query", "key", "value")], self.config.hidden
        factor = np.ones(3 * H, dtype=np.float32)
        factor[:H] = 1.0 / math.sqrt(H // self.config.heads)
        label, bias_3H = f"layers.{index}.qkv", self._bias(names)
        joined = self._product(builder, label, names, hidden, factor=factor)
        if not self.microsoft:
            joined = self._biased(builder, label, joined, None if bias_3H is None else bias_3H * factor)
        three = list(
            builder.op("Split", joined, builder.const("three_hidden", [H, H, H]), name="qkv", outputs=3, axis=-1)
        )
        if self.microsoft and bias_3H is not None:
            three[0] = self._biased(builder, names[0], three[0], bias_3H[:H] * factor[:H])
        return three

    def output(self, builder: GraphBuilder, index: int, context: str) -> tuple[str, str]:
        """The product of attention's output map, and the initializer of its bias.

        Where key and value were left without their biases, this puts them right. A query's scores all change by the
        same number with the key's bias, which softmax ignores; attention's weights add up to 1, so the value's bias
        passes through it and becomes W b_value here.
        """
        name, value = f"layers.{index}.output", self.state.get(f"layers.{index}.value.bias")
        if not self.microsoft or value is None:
            return self.unbiased(builder, name, context)
        bias_H, own_H = self.state[f"{name}.weight"] @ value, self._bias([name])
        bias_H = bias_H if own_H is None else bias_H + own_H
        return self._product(builder, name, [name], context), builder.const(f"{name}.full_bias", bias_H)

    def linear(self, builder: GraphBuilder, name: str, value: str, floor: float | None = None) -> str:
        """x W^T + b for the linear `name`; `floor` is the minimum of x, where it is known."""
        return self._biased(builder, name, self._product(builder, name, [name], value, floor=floor), self._bias([name]))

    def unbiased(self, builder: GraphBuilder, name: str, value: str, floor: float | None = None) -> tuple[str, str]:
        """x W^T, and the initializer b (empty where the linear has none), for an operator that adds b itself."""
        bias_N = self._bias([name])
        product = self._product(builder, name, [name], value, floor=floor)
        return product, "" if bias_N is None else builder.const(f"{name}.bias", bias_N)

    @staticmethod
    def _biased(builder: GraphBuilder, label: str, product: str, bias_N: np.ndarray | None) -> str:
        return product if bias_N is None else str(builder.op("Add", product, builder.const(f"{label}.bias", bias_N)))

    def _product(
        self, builder: GraphBuilder, label: str, names: list[str], value: str, *, factor: np.ndarray | None = None,
        floor: float | None = None,
    ) -> str:  # fmt: skip
        """x W^T of the linears `names`, side by side; `factor` multiplies the outputs."""
        kinds = {self.plan.dtype(f"{name}.weight") for name in names}
        if len(kinds) > 1:
            # A mixed plan: each map on its own, then side by side again.
            factors = [None] * len(names) if factor is None else np.split(factor, len(names))
            parts = [
                self._product(builder, name, [name], value, factor=f) for name, f in zip(names, factors, strict=True)
            ]
            return str(builder.op("Concat", *parts, axis=-1))
        kind = kinds.pop()
        if kind == "fp32":
            weight_NK = np.concatenate([self.state[f"{name}.weight"] for name in names])
            weight_NK = weight_NK if factor is None else weight_NK * factor[:, None]
            return str(builder.op("MatMul", value, builder.const(f"{label}.weight", weight_NK.T), name=label))
        if kind == "int8":
            return self._int8(builder, label, names, value, factor, floor)
        return self._int4(builder, label, names, value, factor)

    def quantize(self, builder: GraphBuilder, value: str, width: int, floor: float | None = None) -> Quantized:
        """uint8 of a hidden state or sentence, its steps, and the zero point."""
        return quantize_tokens(builder, value, width, floor, lambda zero, step: self._zeros(builder, zero, step))

    def _zeros(self, builder: GraphBuilder, zero: int, step: str) -> str:
        """A zero point in the shape of a row's steps: [B, T, 1] made once outside the recurrence, or its own."""
        constant = builder.const(f"zeros_{zero}", np.full((1, 1, 1), zero, np.uint8))
        if not self.row_shape:
            return str(
                builder.op(
                    "Expand",
                    builder.const(f"zeros2_{zero}", np.full((1, 1), zero, np.uint8)),
                    builder.op("Shape", step),
                )
            )
        if zero not in self._zeros_of:
            self._zeros_of[zero] = str(builder.outer.op("Expand", constant, self.row_shape, name=f"zeros_{zero}"))
        return self._zeros_of[zero]

    def _int8(
        self, builder: GraphBuilder, label: str, names: list[str], value: str, factor: np.ndarray | None,
        floor: float | None,
    ) -> str:  # fmt: skip
        parts = [self.quantized[f"{name}.weight"] for name in names]
        weight_NK = np.concatenate([self.state[f"{name}.weight"] for name in names])
        values_NK, scale_N = pair_safe(weight_NK, np.concatenate([part.scale for part in parts])[:, 0])
        scale_N = scale_N if factor is None else scale_N * factor
        # `scale_N` is symmetric int8 with zero point 0, so the product needs no correction for the weights' side.
        quantized, step, zero_value = self.quantize(builder, value, values_NK.shape[1], floor)
        zero = builder.const(f"zero_{zero_value}", np.asarray(zero_value, np.uint8))
        weight, scale = builder.const(f"{label}.weight", values_NK.T), builder.const(f"{label}.scale", scale_N)
        if self.microsoft:
            self.uses_microsoft = True
            unit = builder.const("one", np.float32(1.0))
            scaled = builder.op(
                "MatMulIntegerToFloat", quantized, weight, unit, scale, zero, name=label, domain=MICROSOFT
            )
        else:
            total = builder.op("MatMulInteger", quantized, weight, zero, name=label)
            scaled = builder.op("Mul", builder.op("Cast", total, to=TensorProto.FLOAT), scale)
        return str(builder.op("Mul", scaled, step))

    def _int4(self, builder: GraphBuilder, label: str, names: list[str], value: str, factor: np.ndarray | None) -> str:
        """4-bit groups: Microsoft's MatMulNBits, or on targets without it DequantizeLinear over blocks."""
        parts = [self.quantized[f"{name}.weight"] for name in names]
        values_NK = np.concatenate([part.values for part in parts])
        scale_NG = np.concatenate([part.scale for part in parts])
        scale_NG = scale_NG if factor is None else scale_NG * factor[:, None]
        (N, K), group = values_NK.shape, parts[0].group
        # Stored as bfloat16, as they were chosen; converted once when a session is created.
        half = scale_NG.astype("bfloat16").view("<u2").tobytes()
        stored = helper.make_tensor(f"{label}.scale", TensorProto.BFLOAT16, (N, K // group), half, raw=True)
        scale = builder.outer.op("Cast", builder.raw(stored), name="scale", to=TensorProto.FLOAT)
        if self.microsoft:
            self.uses_microsoft = True
            blocks = _pack_pairs((values_NK + 8).astype(np.uint8)).reshape(N, K // group, group // 2)
            options = {"K": K, "N": N, "bits": 4, "block_size": group, "accuracy_level": 4}
            packed = builder.const(f"{label}.weight", blocks)
            return str(builder.op("MatMulNBits", value, packed, scale, name=label, domain=MICROSOFT, **options))
        half_bytes = _pack_pairs(values_NK.view(np.uint8) & 15).tobytes()
        packed = builder.raw(helper.make_tensor(f"{label}.weight", TensorProto.INT4, (N, K), half_bytes, raw=True))
        weight_NK = builder.outer.op("DequantizeLinear", packed, scale, axis=1, block_size=group)
        return str(builder.op("MatMul", value, builder.outer.op("Transpose", weight_NK, perm=[1, 0]), name=label))

    def table(self, builder: GraphBuilder, ids: str) -> str:
        """Rows of the token table for `ids`, float32 [B, T, E]."""
        return self._rows(builder, ids) if self.index is None else self._coded_rows(builder, ids, self.index)

    def _coded_rows(self, builder: GraphBuilder, ids: str, index_Vk: np.ndarray) -> str:
        """Sums of the base rows that a code names, float32 [B, T, E]."""
        index_BTk = builder.op(
            "Cast", builder.op("Gather", builder.const(INDEX, index_Vk), ids, name="code_index"), to=TensorProto.INT32
        )
        part = self.quantized.get(CODE)
        if part is None:
            weight_BTk = builder.op("Gather", builder.const(CODE, self.state[CODE]), ids, name="code_weights")
        else:
            values = builder.op("Gather", builder.const(CODE, part.values), ids, name="code_weights")
            scale_k = builder.const(f"{CODE}.scale", part.scale[0])
            weight_BTk = builder.op("Mul", builder.op("Cast", values, to=TensorProto.FLOAT), scale_k)
        weight_BTk1 = builder.op("Unsqueeze", weight_BTk, builder.const("axis_last", [-1]))
        rows_BTkE = self._rows(builder, index_BTk, weight_BTk1)
        return str(builder.op("ReduceSum", rows_BTkE, builder.const("axis_nonzeros", [-2]), keepdims=0))

    def _rows(self, builder: GraphBuilder, ids: str, weight: str = "") -> str:
        """Stored rows of the token table for `ids`, each times its `weight` [.., 1] if given, float32 [.., E].

        Two 4-bit numbers are looked up together, by their byte in a table of 256 pairs: four times as fast as ONNX
        Runtime's GatherBlockQuantized, which goes number by number and writes float16.
        """
        part = self.quantized.get(TABLE)
        if part is None:
            rows = builder.op("Gather", builder.const(TABLE, self.state[TABLE]), ids, name="table")
            return str(builder.op("Mul", rows, weight) if weight else rows)
        int4 = part.dtype == "int4"
        scale = builder.op(
            "Gather", builder.const(f"{TABLE}.scale", part.scale.astype(np.float16) if int4 else part.scale), ids
        )
        scale = builder.op("Cast", scale, to=TensorProto.FLOAT) if int4 else scale
        scale = builder.op("Mul", scale, weight) if weight else scale
        if not int4:
            values = builder.op("Gather", builder.const(TABLE, part.values), ids, name="table")
            return str(builder.op("Mul", builder.op("Cast", values, to=TensorProto.FLOAT), scale))
        count, columns = part.values.shape
        packed = builder.const(TABLE, _pack_pairs((part.values + 8).astype(np.uint8)).reshape(count, columns // 2))
        all_bytes = np.arange(256)
        halves = builder.const(HALVES, np.stack([all_bytes & 15, all_bytes >> 4], axis=1).astype(np.float32) - 8)
        byte = builder.op("Cast", builder.op("Gather", packed, ids, name="table"), to=TensorProto.INT32)
        leading = [0, 0, 0] if weight else [0, 0]
        grouped = builder.const("grouped", [*leading, columns // part.group, part.group])
        values = builder.op("Reshape", builder.op("Gather", halves, byte), grouped)
        scaled = builder.op("Mul", values, builder.op("Unsqueeze", scale, builder.const("axis_last", [-1])))
        return str(builder.op("Reshape", scaled, builder.const("ungrouped", [*leading, columns])))

    def positions(self, builder: GraphBuilder, max_length: int, length: str) -> str:
        """The first T rows of the position table, float32 [T, H]."""
        bounds = (builder.const("zero_start", [0]), length, builder.const("axis_0", [0]))
        part = self.quantized.get(POSITION)
        if part is None:
            return str(builder.op("Slice", builder.const(POSITION, self.state[POSITION][:max_length]), *bounds))
        rows = builder.op("Slice", builder.const(POSITION, part.values[:max_length]), *bounds)
        scales = builder.op("Slice", builder.const(f"{POSITION}.scale", part.scale[:max_length]), *bounds)
        return str(builder.op("Mul", builder.op("Cast", rows, to=TensorProto.FLOAT), scales))


def _pack_pairs(half_bytes: np.ndarray) -> np.ndarray:
    """Two 4-bit numbers per byte, the first in the low half; uint8, flat."""
    flat = half_bytes.reshape(-1)
    return (flat[0::2] | (flat[1::2] << 4)).astype(np.uint8)


def pair_safe(weight_NK: np.ndarray, scale_N: np.ndarray, levels: int = LEVELS) -> tuple[np.ndarray, np.ndarray]:
    """int8 [N, K] and scale [N] whose products with activations 0 .. `levels` cannot leave 16 bits in pairs.

    x86 processors without VNNI add two uint8 x int8 products in a saturating 16-bit register (vpmaddubsw, neighbours
    along K): with plain int8 rows and 255 levels one output in sixteen of a typical product saturates there, and the
    vectors of an artifact differ between machines. A row whose neighbours could overflow gets a slightly larger
    scale than `scale_N`; the other rows keep theirs.
    """
    limit = 32767 // levels
    scale_N = scale_N.astype(np.float32).copy()
    values_NK = np.zeros(weight_NK.shape, dtype=np.int8)
    rows = np.arange(len(weight_NK))
    while len(rows):
        rounded = np.clip(np.rint(weight_NK[rows] / scale_N[rows, None]), -128, 127).astype(np.int8)
        values_NK[rows] = rounded
        worst = _worst_pair(rounded)
        rows, worst = rows[worst > limit], worst[worst > limit]
        scale_N[rows] *= np.maximum(worst / limit, 1.002).astype(np.float32)
    return values_NK, scale_N


def _worst_pair(values_NK: np.ndarray) -> np.ndarray:
    """Largest sum of two neighbours of the same sign, per row."""
    padded = np.pad(values_NK.astype(np.int16), ((0, 0), (0, values_NK.shape[1] % 2)))
    sums = [side[:, 0::2] + side[:, 1::2] for side in (np.maximum(padded, 0), np.maximum(-padded, 0))]
    return np.maximum(sums[0].max(1), sums[1].max(1))


def quantize_tokens(
    builder: GraphBuilder,
    value: str,
    width: int,
    floor: float | None,
    zeros: Callable[[int, str], str],
    levels: int = LEVELS,
) -> tuple[str, str, int]:
    """uint8 [.., K] in 0 .. `levels` of float [.., K = `width`], the step of each token [.., 1], and the zero point.

    x ~ (quantized - zero) * step: symmetric around the middle, or, where x is known never to lie below `floor`, with a
    zero point near 0. A row is one block of a blocked QuantizeLinear, which is a third faster than dividing first;
    `zeros(zero, step)` names a tensor of that zero point in the shape of `step`. A token of zeros has step 0:
    whatever it is quantized to is 0 again once it is multiplied by its step.
    """
    last = builder.const("axis_last", [-1])
    if floor is None:
        largest = builder.op("ReduceMax", builder.op("Abs", value), last, keepdims=1)
        zero = steps = levels // 2
    else:
        zero = FLOOR_ZERO if floor else 0
        steps = levels - zero
        largest = builder.op("ReduceMax", value, last, keepdims=1)
        if floor:
            # Below this size of token the floor itself would not fit under the zero point.
            least = np.float32(-floor * steps / zero)
            largest = builder.op("Max", largest, builder.const(f"least_{least:.4f}", least))
    step = str(builder.op("Mul", largest, builder.const(f"inverse_{steps}", np.float32(1.0 / steps))))
    return str(builder.op("QuantizeLinear", value, step, zeros(zero, step), axis=-1, block_size=width)), step, zero
