"""ExecuTorch programs of any model: one `forward(ids [1, T])`, lowered to XNNPACK where it can be.

What stays outside the delegate runs on portable kernels. That is slower, not wrong: it is counted and named, while the
canonical way (export/executorch/lower.py) refuses it.

Shapes: T tokens, D sentence width.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from msdc.errors import MsdcError
from msdc.export.executorch.lower import LOW_BIT, operator_name
from msdc.export.executorch.pte import read_pte
from msdc.export.executorch.quiet import quiet
from msdc.export.executorch.runner import ExecutorchRunner
from msdc.export.generic.weights import linears, quantized, with_norms
from msdc.export.records import GenericRequest
from msdc.export.reference.gates import run_once
from msdc.files import atomic_path


@dataclass(frozen=True)
class Lowered:
    """Shares of low-bit weight bytes (None for fp32) and delegated operators, and the operators outside by name."""

    low_bit_share: float | None
    delegated_share: float
    outside: dict[str, int]


def delegation(graph_module: torch.fx.GraphModule) -> tuple[float, dict[str, int]]:
    """Share of operators inside delegates, and the others by name, most frequent first."""
    outside: Counter[str] = Counter()
    for node in graph_module.graph.nodes:
        if node.op == "call_function" and not _bookkeeping(node):
            outside[operator_name(node)] += 1
    inside = 0
    for child in graph_module.children():
        original: Any = getattr(child, "original_module", None)
        if original is not None:
            nodes = original.graph_module.graph.nodes
            inside += sum(node.op == "call_function" and not _bookkeeping(node) for node in nodes)
    total = inside + sum(outside.values())
    return (round(inside / total, 4) if total else 1.0), dict(outside.most_common())


def _bookkeeping(node: torch.fx.Node) -> bool:
    # Arithmetic on symbolic lengths is a Python operator; on tensors it is an overload with a schema.
    overload = hasattr(node.target, "_schema") or hasattr(node.target, "_op")
    return not overload or operator_name(node).startswith(("executorch_call_delegate", "getitem", "sym_size"))


def write_generic_executorch(request: GenericRequest, target: Path) -> Lowered:
    """Lower `request.model` into `target` (.pte), verify it, run it at lengths 1, 2 and longest.

    Raises:
        GateError: a run gives no finite vector.
        MsdcError: `torch.export` or the lowering failed.
    """
    captured = None
    try:
        with quiet() as captured:
            program, share, outside = _lower(request)
    except MsdcError:
        raise
    except Exception as error:
        words = " ".join(str(error).split())[:300] or (captured.last_line() if captured else "")
        architecture = request.model.architecture
        raise MsdcError(f"ExecuTorch cannot lower {architecture}: {type(error).__name__}: {words}") from error
    with atomic_path(target) as temporary, open(temporary, "wb") as handle:
        program.write_to_file(handle)
    takes_prompt = request.model.takes_prompt
    runner = ExecutorchRunner(target, style="forward", repeats=1, takes_prompt=takes_prompt)
    run_once(runner.run, request.vocabulary, request.width, request.max_length, target.name)
    low_bit = None if request.precision == "fp32" else round(_low_bit_share(request, target), 4)
    return Lowered(low_bit, share, outside)


def _lower(request: GenericRequest) -> tuple[Any, float, dict[str, int]]:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from torch.export import Dim, export

    model = with_norms(request.model)
    if request.precision == "int8":
        model = quantized(model)
    ids_1T = torch.full((1, min(7, request.max_length)), min(3, request.vocabulary - 1), dtype=torch.int64)
    length = {1: Dim("T", min=1, max=request.max_length)} if request.max_length > 1 else None
    inputs: dict[str, Any] = {}
    if request.model.takes_prompt:
        inputs["prompt_B"] = torch.ones(1, dtype=torch.int64)
    shapes: dict[str, Any] = {"ids_BT": length, **dict.fromkeys(inputs)}
    program = export(model, (ids_1T,), inputs, dynamic_shapes=shapes, strict=False)
    constants = {
        "repeats": 1,
        "width": request.width,
        "max_length": request.max_length,
        "vocabulary": request.vocabulary,
    }
    edge = to_edge_transform_and_lower(
        {"forward": program}, partitioner={"forward": [XnnpackPartitioner()]}, constant_methods=constants
    )
    share, outside = delegation(edge.exported_program("forward").graph_module)
    return edge.to_executorch(ExecutorchBackendConfig(do_quant_fusion_and_const_prop=True)), share, outside


def _low_bit_share(request: GenericRequest, path: Path) -> float:
    """Share of the bytes of the token table and of all linear maps that are 8 bits or less, as stored in the file."""
    table = request.model.tokens.weight
    shapes = {tuple(table.shape)} | {tuple(linear.weight.shape) for linear in linears(request.model).values()}
    shapes |= {tuple(reversed(shape)) for shape in shapes}
    low = total = 0
    for constant in read_pte(path, digests=False).constants:
        if tuple(constant.shape) in shapes:
            total += constant.bytes
            low += constant.bytes if constant.dtype in LOW_BIT else 0
    return low / total if total else 0.0
