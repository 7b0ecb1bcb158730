"""The content of an `.onnx` and its external data, read without creating a session, and its report."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from msdc.errors import InputError
from msdc.export.executorch.pte import Constant
from msdc.export.inspect.format import Format, operator_counts, tensor_figures
from msdc.export.onnx.check import check_onnx_file, external_files
from msdc.files import sha256_file

BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "float64": 64, "int64": 64, "int32": 32, "int16": 16,
        "uint64": 64, "uint32": 32, "uint16": 16, "int8": 8, "uint8": 8, "bool": 8, "int4": 4, "uint4": 4}  # fmt: skip
NAMES = {"float": "float32", "double": "float64"}
# Float products over weights: an int8 artifact must hold none.
FLOAT_PRODUCTS = ("MatMul", "Gemm")


@dataclass(frozen=True)
class OnnxFile:
    """The content of one model."""

    path: Path
    bytes: int
    data_files: dict[str, int]
    opsets: dict[str, int]
    ir_version: int
    producer: str
    inputs: list[str]
    outputs: list[str]
    operators: dict[str, int]
    subgraphs: dict[str, dict[str, int]]
    constants: list[Constant]
    float_weight_products: list[str]


def _dtype(tensor: onnx.TensorProto) -> str:
    name = onnx.TensorProto.DataType.Name(tensor.data_type).lower()
    return NAMES.get(name, name)


def _bytes_of(tensor: onnx.TensorProto, path: Path) -> Iterator[bytes]:
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        # Whichever field holds the numbers, the serialized form distinguishes two tensors.
        nameless = onnx.TensorProto()
        nameless.CopyFrom(tensor)
        nameless.ClearField("name")
        yield tensor.raw_data or nameless.SerializeToString(deterministic=True)
        return
    entries = {entry.key: entry.value for entry in tensor.external_data}
    left = int(entries.get("length", "0"))
    with open(path.parent / entries["location"], "rb") as handle:
        handle.seek(int(entries.get("offset", "0")))
        while left > 0 and (block := handle.read(min(left, 1 << 20))):
            left -= len(block)
            yield block


def _constant(tensor: onnx.TensorProto, path: Path) -> Constant:
    dtype, shape = _dtype(tensor), tuple(tensor.dims)
    digest = hashlib.sha256()
    for block in _bytes_of(tensor, path):
        digest.update(block)
    size = math.prod(shape) * BITS.get(dtype, 8) // 8
    return Constant(tensor.name, dtype, shape, size, digest.hexdigest())


def _label(node: onnx.NodeProto) -> str:
    return f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type


def _walk(graph: onnx.GraphProto, where: str, found: dict[str, Counter[str]], nodes: list[onnx.NodeProto]) -> None:
    counts = found.setdefault(where, Counter())
    for node in graph.node:
        counts[_label(node)] += 1
        nodes.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _walk(attribute.g, f"{where}/{node.name or node.op_type}", found, nodes)


def _value(info: onnx.ValueInfoProto) -> str:
    kind = info.type.tensor_type
    sides = [side.dim_param or (str(side.dim_value) if side.HasField("dim_value") else "?") for side in kind.shape.dim]
    name = onnx.TensorProto.DataType.Name(kind.elem_type).lower()
    return f"{info.name}: {NAMES.get(name, name)} [{', '.join(sides)}]"


def read_onnx(path: Path) -> OnnxFile:
    """Parse and check a model of any origin; no session is made and no weight is decoded.

    Raises:
        InputError: damaged, refused by onnx.checker, or with external data outside its folder.
    """
    path = Path(path)
    model = check_onnx_file(path, full=False)
    try:
        return _describe(model, path)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        # protobuf hands out a name that is no UTF-8 as bytes, and an unknown enum as a bare number.
        raise InputError(f"{path}: damaged ONNX model ({' '.join(str(error).split())[:200]})") from error


def _describe(model: onnx.ModelProto, path: Path) -> OnnxFile:
    found: dict[str, Counter[str]] = {}
    nodes: list[onnx.NodeProto] = []
    _walk(model.graph, "", found, nodes)
    constants = [_constant(tensor, path) for tensor in model.graph.initializer]
    matrices = {c.name for c in constants if c.dtype == "float32" and len(c.shape) == 2 and min(c.shape) > 1}
    floats = [node.name for node in nodes if node.op_type in FLOAT_PRODUCTS and matrices & set(node.input)]
    return OnnxFile(
        path=path,
        bytes=path.stat().st_size,
        data_files={name: (path.parent / name).stat().st_size for name in sorted(external_files(model, path))},
        opsets={used.domain or "ai.onnx": used.version for used in model.opset_import},
        ir_version=model.ir_version,
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        inputs=[_value(info) for info in model.graph.input],
        outputs=[_value(info) for info in model.graph.output],
        operators=dict(sorted(found.pop("").items())),
        subgraphs={name.lstrip("/"): dict(sorted(counts.items())) for name, counts in sorted(found.items())},
        constants=constants,
        float_weight_products=floats,
    )


def inspect_onnx(path: Path) -> dict[str, Any]:
    """Report of an ONNX model."""
    model = read_onnx(path)
    return {
        "kind": "onnx",
        "file": path.name,
        "bytes": model.bytes + sum(model.data_files.values()),
        "sha256": sha256_file(path),
        "data_files": [
            {"file": name, "bytes": size, "sha256": sha256_file(path.parent / name)}
            for name, size in model.data_files.items()
        ],
        "opsets": model.opsets,
        "ir_version": model.ir_version,
        "producer": model.producer,
        "inputs": model.inputs,
        "outputs": model.outputs,
        "operators": model.operators,
        "subgraphs": model.subgraphs,
        "float_weight_products": model.float_weight_products,
        **tensor_figures(model.constants),
    }


def _lines(report: dict[str, Any]) -> list[str]:
    opsets = ", ".join(f"{domain} {number}" for domain, number in report["opsets"].items())
    lines = [
        f"  opset {opsets}; IR {report['ir_version']}; producer {report['producer'] or 'not named'}",
        f"  {', '.join(report['inputs'])} -> {', '.join(report['outputs'])}",
        f"  operators: {operator_counts(report['operators'])}",
    ]
    for name, counts in report["subgraphs"].items():
        lines.append(f"  inside {name}: {operator_counts(counts)}")
    if report["float_weight_products"]:
        lines.append(f"  products over float32 weights: {', '.join(report['float_weight_products'][:8])}")
    return lines


ONNX = Format("onnx", ".onnx", None, inspect_onnx, _lines)
