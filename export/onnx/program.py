"""Checks of an `.onnx` before it is opened: size, external data, operators."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import onnx
from google.protobuf.message import DecodeError

from msdc.errors import InputError, printable
from msdc.files import link_root, regular_size
from msdc.limits import LAYERS

MAX_ONNX_BYTES = 2 * 1024**3 - 1
# The graph alone, as bundles have it, weights next to it: the part that grows when it is parsed.
MAX_GRAPH_BYTES = 64 * 1024**2
DOMAINS = ("", "ai.onnx", "com.microsoft")
# What the exporters of this package write, and torch's exporter for encoders: no operator that draws numbers, reads
# strings or keeps sequences, and control flow of a known length only.
OPERATORS = frozenset(
    """
    Abs Acos Add And ArgMax AveragePool Cast CastLike Ceil Clip Concat Constant ConstantOfShape Conv Cos CumSum DFT
    DequantizeLinear Div DynamicQuantizeLinear Einsum Elu Equal Erf Exp Expand Flatten Floor Gather GatherElements
    GatherND Gelu Gemm Greater GreaterOrEqual HardSigmoid HardSwish Identity If InstanceNormalization IsInf IsNaN
    LayerNormalization LeakyRelu Less LessOrEqual Log LogSoftmax Loop MatMul MatMulInteger Max MaxPool Mean Min Mish
    Mod Mul Neg Not Or Pad Pow PRelu QuantizeLinear Range Reciprocal ReduceL1 ReduceL2 ReduceMax ReduceMean
    ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Reshape Round ScatterElements ScatterND Shape Sigmoid Sign
    Sin Size Slice Softmax Softplus Split Sqrt Squeeze Sub Sum Tanh Tile Transpose Trilu Unsqueeze Where Xor
    DynamicQuantizeMatMul FusedMatMul MatMulIntegerToFloat MatMulNBits QuickGelu
    """.split()  # noqa: SIM905
)
# Elements of one tensor of known shape, above the states of any encoder at its longest input.
MOST_ELEMENTS = 2**28


def subgraphs(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    """Graphs inside a node: branches, the body of a loop."""
    return [graph for item in node.attribute for graph in (*([item.g] if item.HasField("g") else []), *item.graphs)]


def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a graph: initializers and attribute tensors, subgraphs included."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield from (sparse.values, sparse.indices)
    for node in graph.node:
        for attribute in node.attribute:
            yield from ([attribute.t] if attribute.HasField("t") else [])
            yield from attribute.tensors
        for subgraph in subgraphs(node):
            yield from tensors(subgraph)


def external_files(model: onnx.ModelProto, path: Path) -> set[str]:
    """Names of the external data files of a model, each held to be a plain file inside the model's own folder."""
    names: set[str] = set()
    root = link_root(path.parent)
    for tensor in tensors(model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        pure = PurePosixPath(location)
        inside = location and not pure.is_absolute() and ".." not in pure.parts and "\\" not in location
        if not inside or "\0" in location or not (path.parent / location).resolve().is_relative_to(root):
            raise InputError(f"{path}: external data {location!r} is outside the model's folder")
        data = path.parent / location
        if not data.is_file():
            raise InputError(f"{path}: external data file {location} is missing")
        start, length = int(entries.get("offset", "0")), int(entries.get("length", "0"))
        if start < 0 or length < 0 or start + length > regular_size(data):
            raise InputError(f"{path}: external data of {tensor.name} is beyond the end of {location}")
        names.add(location)
    return names


def check_operators(model: onnx.ModelProto, path: Path) -> None:
    """Refuse operators that no exporter of encoders writes, a `Loop` without a small constant number of trips, and
    tensors of a known shape that no encoder has.
    """
    if model.functions:
        raise InputError(f"{path}: functions of its own are not supported")
    _check_nodes(model.graph, {}, path)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:
        raise InputError(f"{path}: shapes cannot be inferred ({' '.join(str(error).split())[:200]})") from error
    for value in (*inferred.value_info, *inferred.output):
        dims = [
            dimension.dim_value for dimension in value.type.tensor_type.shape.dim if dimension.HasField("dim_value")
        ]
        if math.prod(dims) > MOST_ELEMENTS:
            raise InputError(f"{path}: a tensor of shape {dims}, larger than any of an encoder")


def _check_nodes(graph: onnx.GraphProto, outer: dict[str, onnx.TensorProto], path: Path, looped: bool = False) -> None:
    """Check the nodes of a graph and of those inside it; `outer` are the constants around it."""
    constants = {**outer, **{tensor.name: tensor for tensor in graph.initializer}}
    for node in graph.node:
        if node.op_type not in OPERATORS:
            raise InputError(f"{path}: operator {printable(repr(node.op_type))[:60]} is not one that encoders use")
        if node.op_type == "Loop":
            trips = _integer(constants.get(next(iter(node.input), "")))
            if trips is None or looped or not 0 <= trips <= LAYERS:
                trips_text = "unknown trips" if trips is None else f"{trips} trips"
                raise InputError(f"{path}: a Loop of {trips_text}, supported are at most {LAYERS}")
        for inner in subgraphs(node):
            _check_nodes(inner, constants, path, looped or node.op_type == "Loop")


def _integer(tensor: onnx.TensorProto | None) -> int | None:
    """The number in a tensor of one integer that is stored in the graph itself; None for anything else."""
    if tensor is None or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return None
    try:
        return int(onnx.numpy_helper.to_array(tensor).item())
    except (ValueError, TypeError):
        return None


def check_onnx_file(path: Path, full: bool = False, most_bytes: int = MAX_ONNX_BYTES) -> onnx.ModelProto:
    """The graph of a file without its external data, checked; `full` adds strict shape inference."""
    if (size := regular_size(path)) > most_bytes:
        raise InputError(f"{path}: {size} bytes, larger than any such ONNX file")
    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
        if not model.graph.node or not model.opset_import:
            raise InputError(f"{path}: not an ONNX model (no graph)")
        external_files(model, path)
        foreign = [used.domain for used in model.opset_import if used.domain not in DOMAINS]
    except InputError:
        raise
    except (DecodeError, TypeError, ValueError) as error:
        # protobuf returns a name that is not UTF-8 as bytes.
        raise InputError(f"{path}: truncated, damaged or not an ONNX model ({error})") from error
    if foreign:
        raise InputError(f"{path}: operators of domain {foreign[0]!r} are not supported")
    check_operators(model, path)
    try:
        # By its path the checker also opens the external data: shapes are inferred from it, but it refuses links.
        onnx.checker.check_model(str(path) if full else _without_data(model), full_check=full)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: onnx.checker refuses the model ({reason})") from error
    return model


def _without_data(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy whose external tensors are empty ones: their bytes are no part of the graph."""
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    for tensor in tensors(copied.graph):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.ClearField("data_location")
            tensor.ClearField("external_data")
            tensor.dims[:] = [0]
    return copied
