"""Read a `.pte` without running it: methods, operators, delegates, constants, and the offsets of their bytes.

Source of the layout: ExecuTorch's schema/program.fbs and XNNPACK's serialization/schema.fbs, release 1.5.
"""

from __future__ import annotations

import hashlib
import math
import mmap
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from msdc.errors import InputError
from msdc.export.executorch.flatbuffer import Flatbuffer, Table
from msdc.export.executorch.xnnpack import read_xnnpack

MAX_PROGRAM_BYTES = 4 * 1024**3
MAX_FLATBUFFER_BYTES = 512 * 1024**2
# Working memory that a program may plan for itself: a 12-layer encoder at 512 tokens plans about 50 MB.
MAX_PLANNED_BYTES = 2 * 1024**3
MAX_RANK = 16
HEADER_MAGIC = b"eh00"
SCALARS = {
    0: ("uint8", 1), 1: ("int8", 1), 2: ("int16", 2), 3: ("int32", 4), 4: ("int64", 8), 5: ("float16", 2),
    6: ("float32", 4), 7: ("float64", 8), 11: ("bool", 1), 15: ("bfloat16", 2), 27: ("uint16", 2), 28: ("uint32", 4),
    29: ("uint64", 8),
}  # fmt: skip
KERNEL_CALL = 1
BACKEND = "XnnpackBackend"
OPERATORS = ("aten::", "quantized_decomposed::", "dim_order_ops::", "executorch_prim::")
METHODS = {"multi-method": ("embed", "unit", "pool"), "forward": ("forward",)}
INT, TENSOR = 2, 5


@dataclass(frozen=True)
class Constant:
    """One stored tensor: who uses it, its type and shape, its place in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Delegate:
    """One delegated piece of a method."""

    backend: str
    operators: dict[str, int]
    bytes: int


@dataclass
class Method:
    """One method: what runs outside the delegates, the delegates, its planned memory."""

    name: str
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    operators: dict[str, int] = field(default_factory=dict)
    delegates: list[Delegate] = field(default_factory=list)
    planned_bytes: int = 0
    constant: int | None = None


@dataclass
class PteFile:
    """The whole file."""

    path: Path
    bytes: int
    schema_version: int
    methods: list[Method]
    constants: list[Constant]
    flatbuffer_bytes: int


class _Reader:
    def __init__(self, path: Path, data: memoryview, digests: bool) -> None:
        self.path, self.data, self.digests = path, data, digests
        self.constants: dict[tuple[int, int], Constant] = {}
        self.program, self.base, self.limit = self._program()
        self.segments = [(t.number(0, "Q"), t.number(1, "Q")) for t in self.program.tables(4)]
        for offset, size in self.segments:
            if size and (self.base == 0 or self.base + offset + size > len(data)):
                raise self._fail(f"a segment of {size} bytes ends beyond the file: truncated?")
        constant = self.program.table(5)
        self.constant_segment = constant.number(0, "I") if constant else 0
        self.constant_offsets = constant.numbers(1, "Q") if constant else []
        self.named = {t.string(0): t.number(1, "I") for t in self.program.tables(7)}

    def _fail(self, reason: str) -> InputError:
        return InputError(f"{self.path}: damaged or not an ExecuTorch program ({reason})")

    def _program(self) -> tuple[Table, int, int]:
        if len(self.data) < 64:
            raise self._fail(f"{len(self.data)} bytes")
        size, base = len(self.data), 0
        if bytes(self.data[8:12]) == HEADER_MAGIC:
            header = Flatbuffer(self.data, str(self.path))
            size, base = header.number("Q", 16), header.number("Q", 24)
            length = header.number("I", 12)
            segments = header.number("Q", 32) if length >= 32 else 0
            if size > len(self.data) or base + segments > len(self.data):
                raise self._fail("the header states more bytes than the file has: truncated?")
        if size > MAX_FLATBUFFER_BYTES:
            raise self._fail(f"{size} bytes of program")
        return Flatbuffer(self.data[:size], str(self.path)).root(b"ET12"), base, size

    def segment(self, index: int) -> tuple[int, int]:
        """Start in the file and size of a segment."""
        if index >= len(self.segments):
            raise self._fail(f"segment {index} of {len(self.segments)}")
        offset, size = self.segments[index]
        return self.base + offset, size

    def keep(self, start: int, size: int, name: str, dtype: str, shape: tuple[int, ...]) -> None:
        """Record a stored tensor once, however often it is used."""
        if size < 0 or start < 0 or start + size > len(self.data):
            raise self._fail(f"constant {name} lies outside the file")
        if (start, size) not in self.constants and size:
            digest = hashlib.sha256(self.data[start : start + size]).hexdigest() if self.digests else ""
            self.constants[(start, size)] = Constant(name, dtype, shape, size, digest)

    def tensor(self, table: Table) -> tuple[str, str, tuple[int, ...], int]:
        """Text, dtype, shape and bytes of a tensor value."""
        kind = table.number(0, "b")
        if kind not in SCALARS:
            raise self._fail(f"scalar type {kind}")
        dtype, width = SCALARS[kind]
        shape = tuple(table.numbers(2, "i"))
        if len(shape) > MAX_RANK or any(side < 0 for side in shape):
            raise self._fail(f"a tensor of shape {shape[:MAX_RANK]}")
        size = math.prod(shape) * width
        bound = "" if table.number(7, "b") == 0 else " at most"
        return f"{dtype}{bound} {list(shape)}", dtype, shape, size

    def method(self, plan: Table) -> Method:
        """One execution plan."""
        made = Method(plan.string(0))
        values = [table.union(0) for table in plan.tables(2)]

        def describe(indices: list[int]) -> list[str]:
            found = []
            for index in indices:
                kind, value = values[index] if 0 <= index < len(values) else (0, None)
                found.append(self.tensor(value)[0] if kind == TENSOR and value is not None else f"value type {kind}")
            return found

        made.inputs, made.outputs = describe(plan.numbers(3, "i")), describe(plan.numbers(4, "i"))
        outputs = plan.numbers(4, "i")
        if not plan.numbers(3, "i") and len(outputs) == 1 and 0 <= outputs[0] < len(values):
            kind, value = values[outputs[0]]
            made.constant = value.number(0, "q") if kind == INT and value is not None else None
        for position, (kind, value) in enumerate(values):
            if kind == TENSOR and value is not None:
                self._constant(made.name, position, value)
        operators = [f"{t.string(0)}{'.' + t.string(1) if t.string(1) else ''}" for t in plan.tables(6)]
        calls: Counter[str] = Counter()
        for chain in plan.tables(5):
            for instruction in chain.tables(2):
                kind, call = instruction.union(0)
                if kind == KERNEL_CALL and call is not None:
                    index = call.number(0, "i")
                    if not 0 <= index < len(operators):
                        raise self._fail(f"operator {index} of {len(operators)}")
                    calls[operators[index]] += 1
        made.operators = dict(sorted(calls.items()))
        made.delegates = [self._delegate(made.name, i, table) for i, table in enumerate(plan.tables(7))]
        made.planned_bytes = sum(plan.numbers(8, "q"))
        if not 0 <= made.planned_bytes <= MAX_PLANNED_BYTES:
            raise self._fail(f"method {made.name} plans {made.planned_bytes} bytes of working memory")
        return made

    def _constant(self, method: str, position: int, table: Table) -> None:
        index = table.number(5, "I")
        _, dtype, shape, size = self.tensor(table)
        if index == 0 or table.table(6) is not None:
            return
        if index >= len(self.constant_offsets):
            raise self._fail(f"constant {index} of {len(self.constant_offsets)}")
        start, _ = self.segment(self.constant_segment)
        self.keep(start + self.constant_offsets[index], size, f"{method}: value {position}", dtype, shape)

    def _delegate(self, method: str, number: int, table: Table) -> Delegate:
        backend = table.string(0)
        where = table.table(1)
        if where is None:
            raise self._fail(f"delegate {number} of {method} has no data")
        index = where.number(1, "I")
        if where.number(0, "b") == 1:
            start, size = self.segment(index)
        else:
            inline = self.program.tables(3)
            if index >= len(inline):
                raise self._fail(f"delegate data {index} of {len(inline)}")
            blob = inline[index].blob(0)
            return Delegate(backend, {}, len(blob))
        if backend != BACKEND:
            return Delegate(backend, {}, size)
        graph = read_xnnpack(self.data[start : start + size], f"{self.path}: {method}, delegate {number}")
        for constant in graph.constants:
            name = f"{method}: delegate {number}, {constant.role}"
            if constant.key:
                if constant.key not in self.named:
                    raise self._fail(f"{name} has no data")
                at, length = self.segment(self.named[constant.key])
                self.keep(at, min(length, constant.bytes), name, constant.dtype, constant.shape)
            else:
                self.keep(start + constant.offset, constant.bytes, name, constant.dtype, constant.shape)
        return Delegate(backend, graph.operators, size)


def read_pte(path: Path, digests: bool = True) -> PteFile:
    """Parse a `.pte` of any origin; nothing in it runs, and memory stays within the file's own size.

    `digests` hashes every constant, which reads the whole file.

    Raises:
        InputError: missing, too large, truncated or not an ExecuTorch program.
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    size = path.stat().st_size
    if size > MAX_PROGRAM_BYTES:
        raise InputError(f"{path}: {size} bytes, larger than any program")
    if size == 0:
        raise InputError(f"{path}: empty")
    with open(path, "rb") as handle:
        # Not closed explicitly: views into it live as long as the values read from it.
        mapped = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    reader = _Reader(path, memoryview(mapped), digests)
    methods = [reader.method(plan) for plan in reader.program.tables(1)]
    if not methods:
        raise InputError(f"{path}: a program without methods")
    return PteFile(
        path=path,
        bytes=size,
        schema_version=reader.program.number(0, "I"),
        methods=sorted(methods, key=lambda method: method.name),
        constants=list(reader.constants.values()),
        flatbuffer_bytes=reader.limit,
    )


def check_pte(path: Path, *, style: str, constants: dict[str, int], inputs: int = 1) -> None:
    """Check a program against its manifest, before the C++ runtime opens it. Each method takes `inputs` tensors.

    Raises:
        InputError: damaged, a method or constant that is missing or differs, a foreign operator or backend.
    """
    program = read_pte(path, digests=False)
    methods = {method.name: method for method in program.methods}
    for name in METHODS[style]:
        if name not in methods:
            raise InputError(f"{path}: the program has no method {name}")
        if len(methods[name].inputs) != inputs or len(methods[name].outputs) != 1:
            wanted_inputs = "one tensor" if inputs == 1 else f"{inputs} tensors"
            raise InputError(f"{path}: method {name} does not take {wanted_inputs} and give one")
    for name, wanted in constants.items():
        found = methods[name].constant if name in methods else None
        if found != wanted:
            raise InputError(f"{path}: {name} is {found} in the program and {wanted} in the manifest")
    for method in program.methods:
        for operator in method.operators:
            if not operator.startswith(OPERATORS):
                raise InputError(f"{path}: method {method.name} calls {operator}, which is not allowed in a bundle")
        for delegate in method.delegates:
            if delegate.backend != BACKEND:
                raise InputError(f"{path}: method {method.name} uses backend {delegate.backend!r}, not {BACKEND}")
