"""The ExecuTorch program: the student lowered to XNNPACK, whole or refused.

Multi-method (the default): `embed`, `unit` (called `repeats` times by the host) and `pool`, so that XNNPACK packs the
recurring weights once. `forward`: one method that unrolls the recurrence. Both carry the constant methods `repeats`,
`width`, `max_length` and `vocabulary`.

Shapes: T tokens, H hidden, D sentence width.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from compress.quantize import PrecisionPlan, quantize
from compress.student import Student
from export.graph import ExportEmbed, ExportForward, ExportPool, ExportUnit
from export.quiet import quiet
from msdc.errors import GateError, MsdcError
from msdc.files import atomic_path

Style = Literal["multi-method", "forward"]
BACKEND = "XnnpackBackend"
# Outside the delegate these cost a portable kernel's loop; a float linear outside also doubles its bytes.
HEAVY = ("linear", "addmm", "mm", "bmm", "matmul", "softmax", "scaled_dot_product_attention", "gelu", "convolution")
QUANTIZED = ("quantize", "dequantize", "choose_qparams")


def methods_of(student: Student, max_length: int, style: Style) -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Method name -> (module, example input) of one style."""
    config = student.config
    T = min(max_length, 7)
    ids_1T = torch.full((1, T), min(3, config.vocabulary - 1), dtype=torch.int64)
    if style == "forward":
        return {"forward": (ExportForward(student, max_length), ids_1T)}
    hidden_1TH = torch.linspace(-1, 1, T * config.hidden).reshape(1, T, config.hidden)
    return {
        "embed": (ExportEmbed(student, max_length), ids_1T),
        "unit": (ExportUnit(student), hidden_1TH),
        "pool": (ExportPool(student), hidden_1TH),
    }


def outside_delegate(graph_module: torch.fx.GraphModule) -> list[str]:
    """Heavy operators that stayed outside the delegate, each as "operator at module path"."""
    offenders = []
    for node in graph_module.graph.nodes:
        if node.op != "call_function":
            continue
        name = _operator_name(node)
        short = name.split(".")[-2] if "." in name else name
        heavy = short in HEAVY or (name.startswith("torchao") and short.startswith(QUANTIZED) and not _of_table(node))
        if heavy:
            stack = node.meta.get("nn_module_stack") or {}
            paths = [str(path) for path, _ in stack.values() if path]
            offenders.append(f"{short} at {paths[-1] if paths else node.name}")
    return offenders


def _operator_name(node: torch.fx.Node) -> str:
    target = node.target
    return str(getattr(target, "_name", None) or getattr(target, "__name__", target)).replace("::", ".")


def _of_table(node: torch.fx.Node) -> bool:
    # The token table's dequantization is fused with the look-up into quantized_decomposed.embedding_* later on.
    return any("embedding" in _operator_name(user) for user in node.users)


def lower(student: Student, plan: PrecisionPlan, max_length: int, style: Style) -> Any:
    """The lowered program manager (`.buffer`, `.write_to_file`).

    Raises:
        GateError: an attention or linear operator stayed outside the delegate; it is named.
        MsdcError: `torch.export` or the lowering failed.
    """
    chatter = None
    try:
        with quiet() as chatter:
            return _lower(student, plan, max_length, style)
    except MsdcError:
        raise
    except Exception as error:
        words = " ".join(str(error).split())[:300] or (chatter.last_line() if chatter else "")
        raise MsdcError(f"ExecuTorch cannot lower this model: {type(error).__name__}: {words}") from error


def _lower(student: Student, plan: PrecisionPlan, max_length: int, style: Style) -> Any:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from torch.export import Dim, export

    quantized = quantize(student, plan)
    config = student.config
    length = {1: Dim("T", min=1, max=max_length)} if max_length > 1 else None
    programs = {
        name: export(module.eval(), (example,), dynamic_shapes=(length,), strict=False)
        for name, (module, example) in methods_of(quantized, max_length, style).items()
    }
    constants = {
        "repeats": config.repeats,
        "width": config.width,
        "max_length": max_length,
        "vocabulary": config.vocabulary,
    }
    edge = to_edge_transform_and_lower(
        programs, partitioner={name: [XnnpackPartitioner()] for name in programs}, constant_methods=constants
    )
    for name in programs:
        offenders = outside_delegate(edge.exported_program(name).graph_module)
        if offenders:
            raise GateError(f"method {name}: {len(offenders)} operators outside the delegate, first {offenders[0]}")
    return edge.to_executorch(ExecutorchBackendConfig(do_quant_fusion_and_const_prop=True))


def write_executorch(
    student: Student, plan: PrecisionPlan, target: Path, *, max_length: int, style: Style = "multi-method"
) -> None:
    """Lower `student` under `plan` into `target` (.pte), then verify it and run it at lengths 1, 2 and longest.

    Raises:
        GateError: an operator outside the delegate, or a run that gives no finite vector.
        MsdcError: the lowering or the written program failed.
    """
    from export.runtimes import ExecutorchRunner

    program = lower(student, plan, max_length, style)
    with atomic_path(target) as temporary, open(temporary, "wb") as handle:
        program.write_to_file(handle)
    runner = ExecutorchRunner(target, style=style, repeats=student.config.repeats)
    run_once(runner.run, student, max_length, target)


def run_once(run: Callable[[list[list[int]]], Any], student: Student, max_length: int, target: Path) -> None:
    """Execute a fresh artifact at lengths 1, 2 and the longest.

    Raises:
        GateError: a vector is missing, of another width, or not finite.
    """
    import numpy as np

    vocabulary = student.config.vocabulary
    for length in sorted({1, min(2, max_length), max_length}):
        ids = [(7 * step + 3) % vocabulary for step in range(length)]
        sentence_ND = run([ids])
        if sentence_ND.shape != (1, student.width) or not np.isfinite(sentence_ND).all():
            raise GateError(f"{target.name}: no finite vector of width {student.width} at length {length}")
