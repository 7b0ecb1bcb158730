"""The ExecuTorch program: the student lowered to XNNPACK; an operator left outside the delegate is an error.

Multi-method (the default): `embed`, `unit` (called `repeats` times by the host) and `pool`, so that XNNPACK packs the
recurring weights once. `forward`: one method that unrolls the recurrence. Both carry the constant methods `repeats`,
`width`, `max_length` and `vocabulary`.

Shapes: T tokens, H hidden, D sentence width.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from msdc.compress.quantization.plan import PrecisionPlan, integers
from msdc.compress.quantization.rounding import quantize
from msdc.compress.student.config import CODE, POSITION, TABLE
from msdc.compress.student.model import Student
from msdc.errors import GateError, MsdcError
from msdc.export.executorch.modules import ExportEmbed, ExportForward, ExportPool, ExportUnit
from msdc.export.executorch.pte import read_pte
from msdc.export.executorch.quiet import quiet
from msdc.export.executorch.record import Style
from msdc.export.executorch.runner import ExecutorchRunner
from msdc.export.reference.gates import run_once
from msdc.export.reference.smooth import Smoothed
from msdc.files import atomic_path

# Outside the delegate these run on slow portable kernels; a float linear there also doubles its bytes.
HEAVY = ("linear", "addmm", "mm", "bmm", "matmul", "softmax", "scaled_dot_product_attention", "gelu", "convolution")
LOW_BIT = ("int8", "uint8", "int4")
INDICES = ("int16", "int32", "int64")
# Stored by this package's own modules; torchao quantizes the linears alone.
OWN_MODULES = (TABLE, CODE, POSITION)
QUANTIZED = ("quantize", "dequantize", "choose_qparams")


def methods_of(
    smoothed: Smoothed, plan: PrecisionPlan, max_length: int, style: Style
) -> dict[str, tuple[nn.Module, torch.Tensor]]:
    """Method name -> (module, example input) of one style; the student is a float one, the modules are under `plan`."""
    student = smoothed.student
    parts = {name: part for name, part in integers(student, plan).items() if name in OWN_MODULES}
    linears = plan.model_copy(update={"weights": {n: d for n, d in plan.weights.items() if n not in OWN_MODULES}})
    student = quantize(student, linears)
    config = student.config
    T = min(max_length, 7)
    ids_1T = torch.full((1, T), min(3, config.vocabulary - 1), dtype=torch.int64)
    if style == "forward":
        return {"forward": (ExportForward(student, parts, max_length, smoothed), ids_1T)}
    hidden_1TH = torch.linspace(-1, 1, T * config.hidden).reshape(1, T, config.hidden)
    return {
        "embed": (ExportEmbed(student, parts, max_length), ids_1T),
        "unit": (ExportUnit(student, smoothed), hidden_1TH),
        "pool": (ExportPool(student, smoothed), hidden_1TH),
    }


def outside_delegate(graph_module: torch.fx.GraphModule) -> list[str]:
    """Heavy operators that stayed outside the delegate, each as "operator at module path"."""
    offenders = []
    for node in graph_module.graph.nodes:
        if node.op != "call_function":
            continue
        short = operator_name(node)
        if short in HEAVY or short.startswith(QUANTIZED):
            stack = node.meta.get("nn_module_stack") or {}
            paths = [str(path) for path, _ in stack.values() if path]
            offenders.append(f"{short} at {paths[-1] if paths else node.name}")
    return offenders


def operator_name(node: torch.fx.Node) -> str:
    """`aten::bmm.out` -> bmm."""
    target = node.target
    full = str(getattr(target, "_name", None) or getattr(target, "__name__", target))
    return full.rsplit("::", 1)[-1].split(".")[0 if "::" in full else -1]


def lower(smoothed: Smoothed, plan: PrecisionPlan, max_length: int, style: Style) -> Any:
    """The lowered program manager (`.buffer`, `.write_to_file`).

    Raises:
        GateError: an attention or linear operator stayed outside the delegate; it is named.
        MsdcError: `torch.export` or the lowering failed.
    """
    captured = None
    try:
        with quiet() as captured:
            return _lower(smoothed, plan, max_length, style)
    except MsdcError:
        raise
    except Exception as error:
        words = " ".join(str(error).split())[:300] or (captured.last_line() if captured else "")
        raise MsdcError(f"ExecuTorch cannot lower this model: {type(error).__name__}: {words}") from error


def _lower(smoothed: Smoothed, plan: PrecisionPlan, max_length: int, style: Style) -> Any:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import ExecutorchBackendConfig, to_edge_transform_and_lower
    from torch.export import Dim, export

    config = smoothed.student.config
    length = {1: Dim("T", min=1, max=max_length)} if max_length > 1 else None
    programs = {
        name: export(module.eval(), (example,), dynamic_shapes=(length,), strict=False)
        for name, (module, example) in methods_of(smoothed, plan, max_length, style).items()
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
    return edge.to_executorch(ExecutorchBackendConfig())


def write_executorch(
    smoothed: Smoothed, plan: PrecisionPlan, target: Path, *, max_length: int, style: Style = "multi-method"
) -> float | None:
    """Lower a (smoothed) student under `plan` into `target` (.pte), verify it, run it at lengths 1, 2 and longest.

    Returns the share of weight bytes of 8 bits or less, read back from the file; None for a float plan.

    Raises:
        GateError: an operator outside the delegate, or a run that gives no finite vector.
        MsdcError: the lowering or the written program failed.
    """
    student = smoothed.student
    program = lower(smoothed, plan, max_length, style)
    with atomic_path(target) as temporary, open(temporary, "wb") as handle:
        program.write_to_file(handle)
    runner = ExecutorchRunner(target, style=style, repeats=student.config.repeats)
    run_once(runner.run, student.config.vocabulary, student.width, max_length, target.name)
    quantized = any(dtype != "fp32" for dtype in plan.weights.values())
    return round(low_bit_share(target, student, max_length), 4) if quantized else None


def low_bit_share(path: Path, student: Student, max_length: int) -> float:
    """Share of the bytes of the token table and of all linear maps that are 8 bits or less, as stored in the file.

    Positions, biases, norms and scales are not weights of a product and are not counted; nor are a code's indices.
    """
    positions = (max_length, student.embedding.position.weight.shape[1])
    low = total = 0
    for constant in read_pte(path, digests=False).constants:
        if constant.dtype in INDICES:
            continue
        # float16 is the type of a 4-bit table's scales alone; one column holds one scale per row.
        scale = constant.dtype == "float16" or constant.shape[-1:] == (1,)
        if len(constant.shape) < 2 or constant.shape == positions or scale:
            continue
        total += constant.bytes
        low += constant.bytes if constant.dtype in LOW_BIT else 0
    return low / total if total else 0.0
