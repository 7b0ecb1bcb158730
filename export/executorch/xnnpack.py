"""The XNNPACK part of a `.pte`: a small header, a flatbuffer graph, constants by key or offset."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from msdc.errors import InputError
from msdc.export.executorch.flatbuffer import Flatbuffer, Table

MAGIC = b"XH00"
# Order of the schema's union XNodeUnion; number 0 is "none".
NODES = (
    "none", "add", "fully_connected", "softmax", "sigmoid", "transpose", "clamp", "conv2d", "div", "resize_bilinear",
    "constant_pad", "avg_pool", "minimum", "depthwise_conv2d", "max_pool", "multiply", "subtract", "floor", "convert",
    "global_avg_pool", "reshape", "argmax_pool", "sqrt", "ceil", "hardswish", "leaky_relu", "maximum", "negate",
    "square", "elu", "abs", "prelu", "concat2", "concat3", "concat4", "slice", "sdpa", "batch_matmul", "concat5",
    "conv_transpose2d", "rsqrt", "log", "gelu", "tanh", "exp", "sin", "copy", "cos",
)  # fmt: skip
# XNNDatatype -> (name, bits)
TYPES = {
    1: ("float32", 32), 2: ("float16", 16), 3: ("int8", 8), 4: ("uint8", 8), 5: ("int32", 32), 6: ("int8", 8),
    7: ("int32", 32), 8: ("int4", 4), 9: ("int8", 8), 10: ("int4", 4), 11: ("int8", 8), 12: ("int32", 32),
    13: ("float32", 32), 14: ("bfloat16", 16),
}  # fmt: skip
FULLY_CONNECTED = 2
PER_CHANNEL, PER_GROUP = 1, 4
QUANTIZED_VALUE = 2


@dataclass(frozen=True)
class BlobConstant:
    """One constant of a graph: by `key` in the program's named data, else at `offset` of the blob."""

    role: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    key: str
    offset: int


@dataclass(frozen=True)
class XnnpackGraph:
    """Operators by name and count, and the constants."""

    operators: dict[str, int]
    constants: list[BlobConstant]


def _tensor(value: Table) -> tuple[Table | None, int, Table | None]:
    """The base tensor value of an XValue and its quantization (type, parameters)."""
    kind, table = value.union(0)
    if table is None:
        return None, 0, None
    if kind != QUANTIZED_VALUE:
        return table, 0, None
    quantization, parameters = table.union(1)
    return table.table(0), quantization, parameters


def read_xnnpack(data: memoryview, what: str) -> XnnpackGraph:
    """Parse one delegate blob.

    Raises:
        InputError: damaged.
    """
    outer = Flatbuffer(data, what)
    start, size, constant_base = 0, len(data), 0
    if bytes(outer.take(4, 4)) == MAGIC:
        start, size = outer.number("I", 10), outer.number("I", 14)
        constant_base = outer.number("I", 18)
    graph = Flatbuffer(outer.take(start, size), what).root(b"XN01")
    stored = [(t.number(0, "Q"), t.number(1, "Q"), t.string(2)) for t in graph.tables(8)]
    operators: Counter[str] = Counter()
    roles: dict[int, str] = {}
    for node in graph.tables(1):
        kind, table = node.union(0)
        name = NODES[kind] if kind < len(NODES) else f"node type {kind}"
        operators[name] += 1
        if kind == FULLY_CONNECTED and table is not None:
            count = operators[name]
            roles[table.number(1, "I")] = f"{name} {count} weight"
            roles.setdefault(table.number(2, "I"), f"{name} {count} bias")
    constants = []

    def keep(index: int, role: str, dtype: str, bits: int, shape: tuple[int, ...]) -> None:
        if index == 0:
            return
        if index >= len(stored):
            raise InputError(f"{what}: constant {index} of {len(stored)}")
        offset, size, key = stored[index]
        exact = math.prod(shape) * bits // 8
        # The stored size may carry padding; the tensor's own is what counts as payload.
        if not key and constant_base + offset + size > len(data):
            raise InputError(f"{what}: constant {index} lies outside the delegate")
        constants.append(BlobConstant(role, dtype, shape, min(exact, size), key, 0 if key else constant_base + offset))

    for value in graph.tables(2):
        base, quantization, parameters = _tensor(value)
        if base is None:
            continue
        kind = base.number(0, "h")
        dtype, bits = TYPES.get(kind, (f"type {kind}", 8))
        shape = tuple(base.numbers(2, "I"))
        role = roles.get(base.number(6, "I"), "constant")
        keep(base.number(3, "I"), role, dtype, bits, shape)
        if parameters is not None and quantization in (PER_CHANNEL, PER_GROUP):
            slot = 2 if quantization == PER_CHANNEL else 4
            scale, width = ("float32", 32) if quantization == PER_CHANNEL else ("bfloat16", 16)
            keep(parameters.number(slot, "I"), f"{role} scale", scale, width, (parameters.number(slot + 1, "I"),))
    return XnnpackGraph(dict(sorted(operators.items())), constants)
