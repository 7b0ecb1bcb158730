"""Checks of an `.onnx` before a runtime opens it: size, structure, external data inside its folder, onnx.checker."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import onnx
from google.protobuf.message import DecodeError

from msdc.errors import InputError

# Weights are external; what is left is a graph.
MAX_ONNX_BYTES = 2 * 1024**3 - 1
DOMAINS = ("", "ai.onnx", "com.microsoft")


def tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Every tensor of a graph: initializers and attribute tensors, subgraphs included."""
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("g"):
                yield from tensors(attribute.g)
            for subgraph in attribute.graphs:
                yield from tensors(subgraph)


def parse_onnx(path: Path) -> onnx.ModelProto:
    """The graph of a file, without its external data.

    Raises:
        InputError: missing, too large, or not an ONNX model.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    if path.stat().st_size > MAX_ONNX_BYTES:
        raise InputError(f"{path}: {path.stat().st_size} bytes, larger than any ONNX file")
    model = onnx.ModelProto()
    raw = path.read_bytes()
    check_objects(raw, onnx.ModelProto.DESCRIPTOR, str(path))
    try:
        model.ParseFromString(raw)
    except DecodeError as error:
        raise InputError(f"{path}: truncated or not an ONNX model") from error
    if not model.graph.node or not model.opset_import:
        raise InputError(f"{path}: not an ONNX model (no graph)")
    return model


def external_files(model: onnx.ModelProto, path: Path) -> set[str]:
    """Names of the external data files of a model, each held to be a plain file inside the model's own folder.

    Raises:
        InputError: a location outside the folder, a missing file, or a tensor beyond the end of its file.
    """
    names: set[str] = set()
    root = path.parent.resolve()
    for tensor in tensors(model.graph):
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            continue
        entries = {entry.key: entry.value for entry in tensor.external_data}
        location = entries.get("location", "")
        pure = PurePosixPath(location)
        inside = location and not pure.is_absolute() and ".." not in pure.parts and "\\" not in location
        if not inside or "\0" in location or not (path.parent / location).resolve().is_relative_to(root):
            raise InputError(f"{path}: external data {location!r} lies outside the model's folder")
        data = path.parent / location
        if not data.is_file():
            raise InputError(f"{path}: external data file {location} is missing")
        try:
            start, length = int(entries.get("offset", "0")), int(entries.get("length", "0"))
        except ValueError as error:
            raise InputError(f"{path}: external data of {tensor.name} has no valid offset") from error
        if start < 0 or length < 0 or start + length > data.stat().st_size:
            raise InputError(f"{path}: external data of {tensor.name} lies beyond the end of {location}")
        names.add(location)
    return names


def check_onnx_file(path: Path, full: bool = False) -> onnx.ModelProto:
    """Parse and check a model before a runtime sees it; `full` adds strict shape inference.

    Raises:
        InputError: naming what is wrong.
    """
    model = parse_onnx(path)
    try:
        external_files(model, path)
        foreign = [used.domain for used in model.opset_import if used.domain not in DOMAINS]
    except (TypeError, ValueError) as error:
        # protobuf returns a name that is not UTF-8 as bytes.
        raise InputError(f"{path}: damaged ONNX model ({error})") from error
    if foreign:
        raise InputError(f"{path}: operators of domain {foreign[0]!r} are not supported")
    try:
        onnx.checker.check_model(str(path), full_check=full)
    except Exception as error:
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"{path}: onnx.checker refuses the model ({reason})") from error
    return model


# A 24-layer model written by an exporter, one node for each small operator, has about 100,000.
MAX_OBJECTS = 1_000_000
# Numbers in varints grow eightfold when parsed; large tensors stand in raw bytes, which do not.
MAX_PACKED_BYTES = 64 * 1024**2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@cache
def _fields(descriptor: Any) -> dict[int, tuple[Any, bool]]:
    """Field number -> (descriptor of its message or None, whether it is packed numbers) for what may grow."""
    found: dict[int, tuple[Any, bool]] = {}
    for entry in descriptor.fields:
        words = entry.type in (entry.TYPE_STRING, entry.TYPE_BYTES)
        found[entry.number] = (entry.message_type, not words and entry.message_type is None)
    return found


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(value, position after it)."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("a number is cut off")


def check_objects(data: bytes, descriptor: Any, what: str, limit: int = MAX_OBJECTS) -> None:
    """Refuse `data` (a message of `descriptor`) that is cut off or would become more than `limit` objects.

    Raises:
        InputError: naming `what`.
    """
    pending = [(0, len(data), descriptor)]
    seen = 0
    try:
        while pending:
            at, end, kind = pending.pop()
            fields = _fields(kind)
            while at < end:
                tag, at = _varint(data, at, end)
                wire = tag & 7
                seen += 1
                if seen > limit:
                    raise InputError(f"{what}: more than {limit:,} objects, more than any encoder has")
                if wire == VARINT:
                    _, at = _varint(data, at, end)
                elif wire == BYTES:
                    size, at = _varint(data, at, end)
                    if size > end - at:
                        raise ValueError("a field ends beyond its message")
                    message, packed = fields.get(tag >> 3, (None, False))
                    if message is not None:
                        pending.append((at, at + size, message))
                    elif packed and size > MAX_PACKED_BYTES:
                        raise InputError(f"{what}: {size} bytes of numbers outside raw data")
                    at += size
                elif wire in (FIXED64, FIXED32):
                    at += 8 if wire == FIXED64 else 4
                else:
                    raise ValueError(f"a field of wire type {wire}")
    except ValueError as error:
        raise InputError(f"{what}: truncated or not an ONNX model ({error})") from error
