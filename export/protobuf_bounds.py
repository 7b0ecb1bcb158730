"""How many objects a stranger's protobuf would become, counted on the wire before anything is parsed.

Two bytes can be an empty message, and an empty message takes a hundred bytes once parsed: a file of 10 MB can ask for
2 GB. This walk reads tags and lengths only and gives up at a limit.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from msdc.errors import InputError

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
                    raise InputError(f"{what}: more than {limit:,} parts, which no encoder has")
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
