"""A written `.pte`: run it with ExecuTorch, ids in, vectors out; and read what is in it with ExecuTorch's deserializer.

Nothing of ExecuTorch is imported before it is used.

Shapes: N texts, T tokens, H hidden, D sentence width.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import math
import re
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from msdc.errors import InputError, MsdcError
from msdc.machine import quota_threads
from msdc.processes import quiet

METHODS = {"multi-method": ("embed", "unit", "pool"), "forward": ("forward",), "masked": ("forward",)}
BACKEND = "XnnpackBackend"
EXIR = "executorch.exir"  # the compiler
XNNPACK = "executorch.backends.xnnpack"  # its part for XNNPACK, with the schema of the delegate
COMPILER_LOCK = threading.RLock()  # while it is imported, or kept from being imported
_threads: int | None = None


@contextlib.contextmanager
def without_compiler(*others: str) -> Iterator[None]:
    """Import ExecuTorch's runtime, or its deserializers, alone.

    The runtime imports `executorch.exir._warnings`, and with this module's package the whole compiler: 4 s of 4.2
    (executorch 1.5.1). Here the package, and those of `others`, are empty ones meanwhile; afterwards they are imported
    as ever where an export needs them.
    """
    with COMPILER_LOCK:
        if EXIR in sys.modules or importlib.util.find_spec("executorch") is None:
            yield
            return
        packages = {name: ModuleType(name) for name in (EXIR, *others)}
        for name, package in packages.items():
            parent, _, child = name.rpartition(".")
            package.__path__ = [str(Path(folder, child)) for folder in import_module(parent).__path__]
            sys.modules[name] = package
            setattr(import_module(parent), child, package)
        try:
            yield
        finally:
            for name in [
                name for name in sys.modules if f"{name}.".startswith(tuple(f"{parent}." for parent in packages))
            ]:
                del sys.modules[name]
            for name in packages:
                parent, _, child = name.rpartition(".")
                vars(import_module(parent)).pop(child, None)


@functools.cache
def executorch() -> Any:
    """ExecuTorch's runtime, imported now."""
    with quiet(), without_compiler():
        # The import registers quantized operators (the int8 and int4 token tables) with the runtime.
        import executorch.kernels.quantized  # noqa: F401
        from executorch.runtime import Runtime

        return Runtime.get()


def set_executorch_threads(threads: int) -> None:
    """Set the size of XNNPACK's thread pool for the whole process; a pool of that size is kept."""
    global _threads
    if threads == _threads:
        return
    from executorch.extension.pybindings import portable_lib

    with quiet():
        portable_lib._unsafe_reset_threadpool(threads)
    _threads = threads


class ExecutorchRunner:
    """An open `.pte`, run at batch 1.

    Args:
        path: the program.
        style: its methods, see `METHODS`.
        constants: of the manifest, which its constant methods must return; `repeats`: how often `unit` is applied.
        threads: of XNNPACK, for the whole process; None keeps what is set, within the quota of a container.
        takes_prompt: its one method `forward` has a second input, the number of tokens that are not pooled.
    """

    name = "executorch"

    def __init__(
        self, path: Path, *, style: str, constants: Mapping[str, int], threads: int | None = None,
        takes_prompt: bool = False,
    ) -> None:  # fmt: skip
        import torch

        self._torch, self.repeats, self.takes_prompt = torch, constants["repeats"], takes_prompt
        self.takes_mask = style == "masked"
        runtime = executorch()
        if threads is None and _threads is None:
            threads = quota_threads()
        if threads is not None:
            set_executorch_threads(threads)
        from executorch.runtime import Verification

        captured = None
        try:
            with quiet() as captured:
                self.program = runtime.load_program(path, verification=Verification.InternalConsistency)
                for name in METHODS[style]:
                    self._check_method(path, name, 2 if takes_prompt or self.takes_mask else 1)
                for name, expected in constants.items():
                    self._check_method(path, name, 0)
                    outputs = self.program.load_method(name).execute([])
                    if outputs != [expected]:
                        raise InputError(f"{path}: {name} is {str(outputs)[:80]} in the program, not {expected}")
                self.methods: dict[str, Any] = {name: self.program.load_method(name) for name in METHODS[style]}
        except (InputError, ImportError):
            raise
        except Exception as error:
            message = captured.last_line() if captured else ""
            raise InputError(f"{path}: ExecuTorch refuses the program ({message or error})") from error

    def _check_method(self, path: Path, name: str, inputs: int) -> None:
        if name not in self.program.method_names:
            raise InputError(f"{path}: the program has no method {name}")
        method = self.program.metadata(name)
        if (method.num_inputs(), method.num_outputs()) != (inputs, 1):
            raise InputError(f"{path}: method {name} does not take {inputs} tensors and give one value")

    def _vector(self, ids: Sequence[int], prompt_tokens: int) -> np.ndarray:
        ids_1T = self._torch.tensor([list(ids)], dtype=self._torch.int64)
        if "forward" in self.methods:
            second = [self._torch.tensor([prompt_tokens], dtype=self._torch.int64)] if self.takes_prompt else []
            second += [self._torch.ones_like(ids_1T)] if self.takes_mask else []
            return self.methods["forward"].execute([ids_1T, *second])[0].numpy()[0]
        hidden_1TH = self.methods["embed"].execute([ids_1T])[0]
        for _ in range(self.repeats):
            hidden_1TH = self.methods["unit"].execute([hidden_1TH])[0]
        return self.methods["pool"].execute([hidden_1TH])[0].numpy()[0]

    def run(self, rows: Sequence[Sequence[int]], prompt_tokens: int = 0) -> np.ndarray:
        """float32 [N, D] of ragged rows of ids; see `Runner.run`."""
        try:
            return np.stack([self._vector(row, prompt_tokens) for row in rows]).astype(np.float32, copy=False)
        except RuntimeError as error:
            raise MsdcError(f"ExecuTorch failed to run the program: {' '.join(str(error).split())[:200]}") from error


class Constant(NamedTuple):
    """One stored tensor: who uses it, its type and shape, its bytes and their hash."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    sha256: str


class PteFile(NamedTuple):
    """The content of a `.pte`; `methods` are objects of the report of `msdc inspect`."""

    schema_version: int
    flatbuffer_bytes: int
    methods: list[dict[str, Any]]
    constants: list[Constant]


# Names of ExecuTorch's scalar types -> (dtype, bytes).
SCALARS = {
    "BYTE": ("uint8", 1), "CHAR": ("int8", 1), "SHORT": ("int16", 2), "INT": ("int32", 4), "LONG": ("int64", 8),
    "HALF": ("float16", 2), "FLOAT": ("float32", 4), "DOUBLE": ("float64", 8), "BOOL": ("bool", 1),
    "BFLOAT16": ("bfloat16", 2), "UINT16": ("uint16", 2), "UINT32": ("uint32", 4), "UINT64": ("uint64", 8),
}  # fmt: skip
FLOATS = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "pfp32": "float32"}


def read_pte(path: Path) -> PteFile:
    """The content of a program, without running it. In this process: a stranger's file is read by `inspect_path`."""
    with quiet():
        from executorch.exir._serialize._program import _get_extended_header, deserialize_pte_binary

    raw = path.read_bytes()
    try:
        header = _get_extended_header(raw)
        file = deserialize_pte_binary(raw)
        reader = _Reader(file)
        methods = sorted((reader.method(plan) for plan in file.program.execution_plan), key=lambda m: str(m["name"]))
        size = header.program_size if header else len(raw)
        return PteFile(file.program.version, size, methods, list(reader.constants.values()))
    except ImportError:
        raise  # no fault of the file
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise InputError(f"{path}: truncated, damaged or not an ExecuTorch program ({reason})") from error


class _Reader:
    """Methods of a deserialized program as report objects; every stored tensor is noted once in `constants`."""

    def __init__(self, file: Any) -> None:
        self.program, self.named = file.program, file.named_data
        self.constants: dict[Any, Constant] = {}

    def keep(self, position: Any, name: str, dtype: str, shape: Sequence[int], size: int, data: bytes) -> None:
        if size > len(data):
            raise ValueError(f"{name} has {len(data)} of {size} bytes")
        if size and position not in self.constants:
            self.constants[position] = Constant(
                name, dtype, tuple(shape), size, hashlib.sha256(data[:size]).hexdigest()
            )

    def method(self, plan: Any) -> dict[str, Any]:
        values = [value.val for value in plan.values]

        def described(index: int) -> str:
            tensor = values[index]
            if not hasattr(tensor, "scalar_type"):
                return type(tensor).__name__
            bound = " at most" if tensor.shape_dynamism else ""
            return f"{SCALARS[tensor.scalar_type.name][0]}{bound} {list(tensor.sizes)}"

        for index, tensor in enumerate(values):
            if hasattr(tensor, "scalar_type") and tensor.data_buffer_idx and tensor.allocation_info is None:
                dtype, width = SCALARS[tensor.scalar_type.name]
                data = self.program.constant_buffer[tensor.data_buffer_idx].storage
                size = width * math.prod(tensor.sizes)
                self.keep(tensor.data_buffer_idx, f"{plan.name}: value {index}", dtype, tensor.sizes, size, data)
        operators = [f"{used.name}{'.' + used.overload if used.overload else ''}" for used in plan.operators]
        steps = [step.instr_args for chain in plan.chains for step in chain.instructions]
        calls = Counter(operators[step.op_index] for step in steps if hasattr(step, "op_index"))
        constant = values[plan.outputs[0]] if not plan.inputs and len(plan.outputs) == 1 else None
        return {
            "name": plan.name,
            "inputs": [described(index) for index in plan.inputs],
            "outputs": [described(index) for index in plan.outputs],
            "constant": getattr(constant, "int_val", None),
            "delegates": [self.delegate(plan.name, i, delegate) for i, delegate in enumerate(plan.delegates)],
            "outside": dict(sorted(calls.items())),
            "planned_bytes": sum(plan.non_const_buffer_sizes),
        }

    def delegate(self, method: str, number: int, delegate: Any) -> dict[str, Any]:
        blob = bytes(self.program.backend_delegate_data[delegate.processed.index].data)
        operators: Counter[str] = Counter()
        if delegate.id == BACKEND:
            graph, base = xnnpack_graph(blob)
            roles: dict[int, str] = {}
            for node in graph["xnodes"]:
                kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node["xnode_union_type"].removeprefix("XNN")).lower()
                operators[kind] += 1
                if kind == "fully_connected":
                    roles[node["xnode_union"]["filter_id"]] = f"{kind} {operators[kind]} weight"
                    roles.setdefault(node["xnode_union"]["bias_id"], f"{kind} {operators[kind]} bias")
            for value in graph["xvalues"]:
                tensor, quantized = value["xvalue_union"], value["xvalue_union"].get("quant_params", {})
                tensor = tensor.get("tensor_value", tensor)
                kind = tensor["datatype"].removeprefix("xnn_datatype_")
                integer = re.search(r"u?int\d+", kind)
                parts = [(tensor["constant_buffer_idx"], FLOATS.get(kind) or (integer and integer[0]) or kind, "")]
                shapes = [tensor["dims"]]
                if quantized.get("scale_buffer_idx"):
                    grouped = "group_size" in quantized
                    parts.append((quantized["scale_buffer_idx"], "bfloat16" if grouped else "float32", " scale"))
                    shapes.append([quantized["num_scales"]])
                role = f"{method}: delegate {number}, {roles.get(tensor['id_out'], 'constant')}"
                for (index, dtype, of), shape in zip(parts, shapes, strict=True):
                    if index:
                        self._stored(graph["constant_data"][index], blob, base, number, f"{role}{of}", dtype, shape)
        return {"backend": delegate.id, "operators": dict(sorted(operators.items())), "bytes": len(blob)}

    def _stored(
        self, entry: Any, blob: bytes, base: int, number: int, name: str, dtype: str, shape: Sequence[int]
    ) -> None:
        """Note a constant of a delegate: by key among the program's named data, else at an offset of its blob."""
        # The stored bytes may carry padding; the tensor's own are what counts.
        bits = int((re.search(r"\d+$", dtype) or ["8"])[0])
        size = min(math.prod(shape) * bits // 8, entry["size"])
        if entry["named_key"]:
            index = self.named.pte_data[entry["named_key"]].buffer_index
            self.keep(("named", index), name, dtype, shape, size, self.named.buffers[index])
        else:
            start = base + entry["offset"]
            self.keep((name, start), name, dtype, shape, size, blob[start : start + size])


def xnnpack_graph(blob: bytes) -> tuple[dict[str, Any], int]:
    """The graph of an XNNPACK delegate as its schema's JSON, and where its own constants begin in `blob`."""
    from executorch.backends.xnnpack.serialization.xnnpack_graph_serialize import XNNHeader, _get_schema_bytes
    from executorch.exir._serialize._flatbuffer import _flatc_decompile

    header = XNNHeader.from_bytes(blob[: XNNHeader.EXPECTED_LENGTH])
    with tempfile.TemporaryDirectory(prefix="msdc-xnnpack-") as folder:
        schema, data = Path(folder, "schema.fbs"), Path(folder, "graph.bin")
        schema.write_bytes(_get_schema_bytes())
        data.write_bytes(blob[header.flatbuffer_offset :][: header.flatbuffer_size])
        _flatc_decompile(folder, str(schema), str(data))
        text = data.with_suffix(".json").read_bytes()
        return json.loads(re.sub(rb"(?<=: )-?(inf|nan)\b", b"null", text)), header.constant_data_offset
