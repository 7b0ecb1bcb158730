"""Read an untrusted flatbuffer: every offset is checked against the buffer, all work against a budget.

No generated code, no C++: a damaged file can only raise `InputError`. Field numbers are the slots of the schema (a
union takes two: its type and its value).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from msdc.errors import InputError

# Far above any program of ours (a 12-layer one has about 5,000 tables), far below what would exhaust a machine.
MAX_TABLES = 2_000_000
MAX_NUMBERS = 20_000_000
_SIZES = {code: struct.calcsize("<" + code) for code in "bBhHiIqQfd?"}


class Flatbuffer:
    """One buffer and its remaining read budget."""

    def __init__(self, data: memoryview, what: str) -> None:
        self.data = data
        self.what = what
        self.tables_left = MAX_TABLES
        self.numbers_left = MAX_NUMBERS

    def fail(self, reason: str) -> InputError:
        """The error for a damaged buffer."""
        return InputError(f"{self.what}: damaged or of another format ({reason})")

    def number(self, code: str, position: int) -> int:
        """One number of struct code `code` at `position`."""
        if position < 0 or position + _SIZES[code] > len(self.data):
            raise self.fail(f"an offset leads to byte {position} of {len(self.data)}")
        value = struct.unpack_from("<" + code, self.data, position)[0]
        return value  # type: ignore[no-any-return]

    def take(self, position: int, size: int) -> memoryview:
        """`size` bytes from `position`."""
        if position < 0 or size < 0 or position + size > len(self.data):
            raise self.fail(f"{size} bytes at {position} of {len(self.data)}")
        return self.data[position : position + size]

    def follow(self, position: int) -> int:
        """Where the unsigned offset at `position` leads."""
        return position + self.number("I", position)

    def root(self, identifier: bytes) -> Table:
        """The root table of a buffer with this four-byte identifier."""
        if bytes(self.take(4, 4)) != identifier:
            raise self.fail(f"identifier {bytes(self.take(4, 4))!r}, not {identifier!r}")
        return self.table(self.follow(0))

    def table(self, position: int) -> Table:
        """The table at `position`."""
        self.tables_left -= 1
        if self.tables_left < 0:
            raise self.fail(f"more than {MAX_TABLES} tables")
        vtable = position - self.number("i", position)
        size = self.number("H", vtable)
        self.take(vtable, size)
        return Table(self, position, vtable, size)


@dataclass(frozen=True)
class Table:
    """A table of a buffer; fields by slot."""

    buffer: Flatbuffer
    position: int
    vtable: int
    vtable_size: int

    def _field(self, slot: int) -> int | None:
        entry = 4 + 2 * slot
        if entry + 2 > self.vtable_size:
            return None
        offset = self.buffer.number("H", self.vtable + entry)
        return self.position + offset if offset else None

    def number(self, slot: int, code: str, default: int = 0) -> int:
        """A scalar field."""
        position = self._field(slot)
        return default if position is None else self.buffer.number(code, position)

    def table(self, slot: int) -> Table | None:
        """A table field."""
        position = self._field(slot)
        return None if position is None else self.buffer.table(self.buffer.follow(position))

    def union(self, slot: int) -> tuple[int, Table | None]:
        """Type number and table of a union whose type stands at `slot`."""
        kind = self.number(slot, "B")
        return kind, self.table(slot + 1) if kind else None

    def _vector(self, slot: int, size: int) -> tuple[int, int]:
        position = self._field(slot)
        if position is None:
            return 0, 0
        start = self.buffer.follow(position)
        count = self.buffer.number("I", start)
        self.buffer.numbers_left -= count
        if self.buffer.numbers_left < 0:
            raise self.buffer.fail(f"more than {MAX_NUMBERS} entries")
        self.buffer.take(start + 4, count * size)
        return start + 4, count

    def string(self, slot: int) -> str:
        """A string field, empty where absent.

        Raises:
            InputError: not UTF-8; ExecuTorch's messages with such a name end a Python process.
        """
        start, count = self._vector(slot, 1)
        try:
            return bytes(self.buffer.take(start, count)).decode("utf-8") if count else ""
        except UnicodeDecodeError:
            raise self.buffer.fail("a name that is not UTF-8") from None

    def blob(self, slot: int) -> memoryview:
        """A vector of bytes."""
        position = self._field(slot)
        if position is None:
            return self.buffer.data[:0]
        start = self.buffer.follow(position)
        return self.buffer.take(start + 4, self.buffer.number("I", start))

    def numbers(self, slot: int, code: str) -> list[int]:
        """A vector of scalars."""
        start, count = self._vector(slot, _SIZES[code])
        return list(struct.unpack_from(f"<{count}{code}", self.buffer.data, start)) if count else []

    def tables(self, slot: int) -> list[Table]:
        """A vector of tables."""
        start, count = self._vector(slot, 4)
        return [self.buffer.table(self.buffer.follow(start + 4 * index)) for index in range(count)]
