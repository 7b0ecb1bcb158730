"""The ExecuTorch program of a student: its modules rewritten for export, lowered to XNNPACK.

Stock attention decomposes into a safe softmax on portable kernels and breaks the delegate into pieces; the modules here
share the student's layers (quantized or not) and compute the same function at batch 1 with operators that XNNPACK
delegates whole. An operator left outside the delegate is an error.

Multi-method (the default): `embed`, `unit` (called `repeats` times by the host) and `pool`, so that XNNPACK packs the
recurring weights once. `forward`: one method that unrolls the recurrence. `masked`: the same with an attention mask, as
packages take it that run any sentence encoder. All carry the constant methods `repeats`, `width`, `max_length` and
`vocabulary`.

Shapes: T tokens, E table width, k nonzeros per piece of a coded table, H hidden, N heads, D sentence width.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msdc.compress.quantization.rounding import torchao_weight, with_integers
from msdc.compress.student.config import CODE, POSITION, TABLE
from msdc.compress.student.model import ACTIVATIONS, Layer, Student
from msdc.compress.student.plan import PrecisionPlan, QuantizedWeight
from msdc.errors import GateError, MsdcError, printable
from msdc.export.executorch.program import COMPILER_LOCK, ExecutorchRunner, read_pte
from msdc.export.golden import run_once
from msdc.export.origin import record_safe
from msdc.export.schema import ExecutorchPart, ProgramStyle, WrittenProgram
from msdc.export.smoothing import Smoothed
from msdc.files import atomic_path, sha256_file
from msdc.processes import quiet

# Outside the delegate these run on slow portable kernels; a float linear there also doubles its bytes.
HEAVY = ("linear", "addmm", "mm", "bmm", "matmul", "softmax", "scaled_dot_product_attention", "gelu", "convolution")
LOW_BIT = ("int8", "uint8", "int4")
INDICES = ("int16", "int32", "int64")
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
# Stored by this package's own modules; torchao quantizes the linears alone.
OWN_MODULES = (TABLE, CODE, POSITION)
# Of a layer's input; one product here.
READERS = ("query", "key", "value")
# What a masked score is lowered by: its exponential is zero in float32.
MASKED = 1e4
QUANTIZED = ("quantize", "dequantize", "choose_qparams")


def from_int8(values: Tensor) -> Tensor:
    """Integers as float32, in the delegate: the runtime's own conversion takes 20 times as many instructions on Arm."""
    floats: Tensor = torch.ops.quantized_decomposed.dequantize_per_tensor(values, 1.0, 0, -128, 127, torch.int8)
    return floats


class TableInt8(nn.Module):
    """Token table of int8 rows with one float32 scale each: ids [1, T] -> [1, T, E]."""

    values: Tensor
    scale: Tensor

    def __init__(self, values_VE: Tensor, scale_V1: Tensor) -> None:
        super().__init__()
        self.register_buffer("values", values_VE)
        self.register_buffer("scale", scale_V1.float())

    def forward(self, ids_1T: Tensor) -> Tensor:
        """See the class."""
        # Not the runtime's `embedding_byte`, which multiplies number by number.
        return from_int8(F.embedding(ids_1T, self.values)) * F.embedding(ids_1T, self.scale)


class TableInt4(nn.Module):
    """Token table in 4 bits, two numbers per byte, one float16 scale per group: ids [1, T] -> [1, T, E]."""

    def __init__(self, values_VE: Tensor, scale_VG: Tensor) -> None:
        super().__init__()
        unsigned_VE = (values_VE + 8).to(torch.uint8)
        self.register_buffer("values", (unsigned_VE[:, 0::2] << 4) | unsigned_VE[:, 1::2])
        self.register_buffer("scale", scale_VG.half())

    def forward(self, ids_1T: Tensor) -> Tensor:
        """See the class."""
        look_up = torch.ops.quantized_decomposed.embedding_4bit.dtype
        return look_up(self.values, self.scale, None, -8, 7, ids_1T, dtype=torch.float32)


class Positions(nn.Module):
    """The first T rows of the position table, float32 or int8 with one scale per row: [T, H]."""

    values: Tensor
    scale: Tensor | None

    def __init__(self, weight_PH: Tensor, part: QuantizedWeight | None, max_length: int) -> None:
        super().__init__()
        # Truncated: rows beyond the longest input would only add bytes.
        values_TH = weight_PH.detach() if part is None else torch.from_numpy(part.values)
        self.register_buffer("values", values_TH[:max_length].clone())
        self.register_buffer("scale", None if part is None else torch.from_numpy(part.scale)[:max_length].clone())

    def forward(self, length: int) -> Tensor:
        """See the class."""
        values_TH = self.values[:length]
        return values_TH if self.scale is None else from_int8(values_TH) * self.scale[:length]


class CodedTable(nn.Module):
    """Rows that are sums of k base rows: ids [1, T] -> [1, T, E]; `base` maps ids [..] to rows [.., E]."""

    index: Tensor
    values: Tensor
    scale: Tensor | None

    def __init__(self, base: nn.Module, index_Vk: Tensor, weight_Vk: Tensor, part: QuantizedWeight | None) -> None:
        super().__init__()
        self.base = base
        self.register_buffer("index", index_Vk)
        self.register_buffer("values", weight_Vk.detach() if part is None else torch.from_numpy(part.values))
        # One scale per column, kept in one dimension: two would read as a weight in an inspection of the program.
        self.register_buffer("scale", None if part is None else torch.from_numpy(part.scale).reshape(-1))

    def forward(self, ids_1T: Tensor) -> Tensor:
        """See the class."""
        # Tokens in one dimension: the runtime's kernels for look-ups are then reached without reshaping rows of k.
        ids_T = ids_1T.view(-1)
        weight_Tk = self.values[ids_T]
        if self.scale is not None:
            weight_Tk = weight_Tk.to(torch.float32) * self.scale
        rows_TkE = self.base(self.index[ids_T].to(torch.int64))
        return (rows_TkE * weight_Tk.unsqueeze(-1)).sum(1).unsqueeze(0)


def export_table(student: Student, parts: dict[str, QuantizedWeight]) -> nn.Module:
    """The token table as the runtime stores it; `parts` are the integers of the quantized weights, by name."""
    stored: nn.Module = student.embedding.table
    part, code = parts.get(TABLE), student.embedding.code
    if part is not None:
        table = TableInt8 if part.dtype == "int8" else TableInt4
        stored = table(torch.from_numpy(part.values), torch.from_numpy(part.scale))
    return stored if code is None else CodedTable(stored, code.index, code.weight, parts.get(CODE))


class ExportEmbed(nn.Module):
    """ids [1, T] -> hidden [1, T, H]. `parts` are the integers of the quantized weights, by name."""

    def __init__(self, student: Student, parts: dict[str, QuantizedWeight], max_length: int) -> None:
        super().__init__()
        self.table = export_table(student, parts)
        self.static = student.config.static
        if self.static:
            return
        self.position = Positions(student.embedding.position.weight, parts.get(POSITION), max_length)
        self.project = student.embedding.project
        self.norm = student.embedding.norm
        self.at_word = student.config.place == "word"

    def forward(self, ids_1T: Tensor) -> Tensor:
        """See the class."""
        hidden = self.table(ids_1T)
        if self.static:
            return hidden
        if self.project is not None and self.at_word:
            hidden = self.project(hidden)
        hidden = self.norm(hidden + self.position(ids_1T.shape[1]))
        if self.project is not None and not self.at_word:
            hidden = self.project(hidden)
        return hidden


def side_by_side(maps: Sequence[tuple[nn.Linear, QuantizedWeight | None, float]]) -> nn.Linear:
    """One linear map whose outputs are those of `maps`, each times its factor; integers are those of its weight."""
    joined = nn.Linear(1, 1)
    if (first := maps[0][1]) is None:
        weight = torch.cat([linear.weight * factor for linear, _, factor in maps])
    else:
        parts = [(part.values, part.scale * np.float32(factor)) for _, part, factor in maps if part is not None]
        values, scale = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        weight = torchao_weight(replace(first, values=values, scale=scale))
    joined.weight = nn.Parameter(weight, requires_grad=False)
    joined.bias = nn.Parameter(torch.cat([linear.bias * factor for linear, _, factor in maps]), requires_grad=False)
    return joined


class ExportLayer(nn.Module):
    """One layer over [T, H]; every view carries a literal -1 so that the length stays free.

    Query (divided by sqrt of the head width), key and value are one product: its input is rounded and packed once.
    They are three where a plan gives them several types.
    """

    entry: Tensor | None
    middle: Tensor | None

    def __init__(
        self, layer: Layer, parts: Sequence[QuantizedWeight | None], entry_H: Tensor | None, middle_H: Tensor | None
    ) -> None:
        super().__init__()
        # What the residuals multiply a smoothed hidden state by.
        self.register_buffer("entry", entry_H)
        self.register_buffer("middle", middle_H)
        self.heads, self.hidden = layer.heads, layer.query.out_features
        factors = ((self.hidden // self.heads) ** -0.5, 1.0, 1.0)
        maps = list(zip((layer.query, layer.key, layer.value), parts, factors, strict=True))
        alike = len({part and part.dtype for part in parts}) == 1
        self.products = nn.ModuleList(
            side_by_side(few) for few in ([maps] if alike else [[product] for product in maps])
        )
        self.output, self.attention_norm = layer.output, layer.attention_norm
        self.up, self.activation, self.down = layer.up, layer.activation, layer.down
        self.output_norm = layer.output_norm

    def forward(self, hidden_TH: Tensor, last: bool = False, bias_11T: Tensor | None = None) -> Tensor:
        """See the class; `bias_11T` is added to the scores of each key."""
        products = [product(hidden_TH) for product in self.products]
        joined_TC = products[0] if len(products) == 1 else torch.cat(products, -1)
        # Heads first, then their three kinds: slices of whole rows cost least.
        heads_MTd = joined_TC.view(-1, 3 * self.heads, self.hidden // self.heads).permute(1, 0, 2)
        query, key, value = (heads_MTd[i * self.heads : (i + 1) * self.heads] for i in range(3))
        scores_NTT = torch.bmm(query, key.permute(0, 2, 1))
        weights_NTT = (scores_NTT if bias_11T is None else scores_NTT + bias_11T).softmax(-1)
        context_TH = torch.bmm(weights_NTT, value).permute(1, 0, 2).contiguous().view(-1, self.hidden)
        residual_TH = hidden_TH if self.entry is None else hidden_TH * self.entry
        hidden_TH = self.attention_norm(residual_TH + self.output(context_TH))
        residual_TH = hidden_TH if self.middle is None else hidden_TH * self.middle
        sum_TH = residual_TH + self.down(self.activation(self.up(hidden_TH)))
        # The norm runs outside the delegate: a view after it would be a delegate of its own, with a copy.
        normed: Tensor = self.output_norm(sum_TH.view(1, -1, self.hidden) if last else sum_TH)
        return normed


class ExportUnit(nn.Module):
    """One pass through the recurring unit, [1, T, H] -> [1, T, H]."""

    def __init__(self, student: Student, parts: dict[str, QuantizedWeight], smoothed: Smoothed) -> None:
        super().__init__()
        self.hidden = student.config.hidden
        scales = (smoothed.entry, smoothed.middle)
        entry, middle = ([None if s is None else torch.from_numpy(s) for s in kind] for kind in scales)
        layers = [layer for layer in student.layers if isinstance(layer, Layer)]
        of_layers = [[parts.get(f"layers.{i}.{name}.weight") for name in READERS] for i in range(len(layers))]
        self.layers = nn.ModuleList(map(ExportLayer, layers, of_layers, entry, middle))

    def forward(self, hidden_1TH: Tensor, bias_11T: Tensor | None = None) -> Tensor:
        """See the class."""
        hidden_TH = hidden_1TH.view(-1, self.hidden)
        *first, last = self.layers
        for layer in first:
            hidden_TH = layer(hidden_TH, bias_11T=bias_11T)
        return last(hidden_TH, last=True, bias_11T=bias_11T)


class ExportPool(nn.Module):
    """Pooling, dense and normalisation of one sentence, [1, T, H] -> [1, D]; its bias leaves padding out."""

    end: Tensor | None
    zeros: Tensor
    ones: Tensor

    def __init__(self, student: Student, max_length: int, smoothed: Smoothed) -> None:
        super().__init__()
        self.how = student.config.pooling
        # A mean and a length as products: the runtime's own mean, sum and power take ten times as many instructions.
        self.register_buffer("zeros", torch.zeros(1, 1, max_length) if self.how == "mean" else None)
        self.register_buffer("ones", torch.ones(1, student.config.width) if student.config.normalize else None)
        self.register_buffer("end", None if smoothed.end is None else torch.from_numpy(smoothed.end))
        self.dense = student.dense
        self.dense_activation = ACTIVATIONS[student.config.dense_activation]
        self.normalize = student.config.normalize

    def forward(self, hidden_1TH: Tensor, bias_11T: Tensor | None = None) -> Tensor:
        """See the class."""
        if self.how == "cls":
            sentence_1D = hidden_1TH[:, 0]
        elif self.how == "max":
            sentence_1D = (hidden_1TH if bias_11T is None else hidden_1TH + bias_11T.permute(0, 2, 1)).amax(1)
        else:
            equal_11T = self.zeros[:, :, : hidden_1TH.shape[1]]
            share_11T = (equal_11T if bias_11T is None else equal_11T + bias_11T).softmax(-1)
            sentence_1D = torch.bmm(share_11T, hidden_1TH).view(1, -1)
        if self.end is not None:
            sentence_1D = sentence_1D * self.end
        if self.dense is not None:
            sentence_1D = self.dense_activation(self.dense(sentence_1D))
        if not self.normalize:
            return sentence_1D
        return sentence_1D / F.linear(sentence_1D * sentence_1D, self.ones).sqrt().clamp(min=1e-12)


class ExportForward(nn.Module):
    """The whole encoder in one method: ids [1, T], for the style `masked` their attention mask [1, T], -> [1, D]."""

    def __init__(
        self, student: Student, parts: dict[str, QuantizedWeight], max_length: int, smoothed: Smoothed
    ) -> None:
        super().__init__()
        self.embed = ExportEmbed(student, parts, max_length)
        self.static = student.config.static
        self.unit = nn.Identity() if self.static else ExportUnit(student, parts, smoothed)
        self.pool = ExportPool(student, max_length, smoothed)
        self.repeats = student.config.repeats

    def forward(self, ids_1T: Tensor, mask_1T: Tensor | None = None) -> Tensor:
        """See the class."""
        hidden_1TH = self.embed(ids_1T)
        bias_11T = None if mask_1T is None else ((mask_1T.to(torch.float32) - 1) * MASKED).unsqueeze(0)
        for _ in range(self.repeats):
            hidden_1TH = hidden_1TH if self.static else self.unit(hidden_1TH, bias_11T)
        return self.pool(hidden_1TH, bias_11T)


def methods_of(
    smoothed: Smoothed, plan: PrecisionPlan, max_length: int, style: ProgramStyle
) -> dict[str, tuple[nn.Module, tuple[Tensor, ...]]]:
    """Method name -> (module, example inputs) of a style; the student is a float one, the modules are under `plan`."""
    parts = smoothed.integers(plan)
    # Query, key and value are quantized where they are joined.
    joined = {f"layers.{i}.{name}.weight" for i in range(smoothed.weights.config.unit) for name in READERS}
    apart = {name: part for name, part in parts.items() if name not in joined and name not in OWN_MODULES}
    student = with_integers(smoothed.student, apart)
    config = student.config
    T = min(max_length, 7)
    ids_1T = torch.full((1, T), min(3, config.vocabulary - 1), dtype=torch.int64)
    if style != "multi-method":
        inputs = (ids_1T, torch.ones_like(ids_1T)) if style == "masked" else (ids_1T,)
        return {"forward": (ExportForward(student, parts, max_length, smoothed), inputs)}
    hidden_1TH = torch.linspace(-1, 1, T * config.hidden).reshape(1, T, config.hidden)
    return {
        "embed": (ExportEmbed(student, parts, max_length), (ids_1T,)),
        "unit": (ExportUnit(student, parts, smoothed), (hidden_1TH,)),
        "pool": (ExportPool(student, max_length, smoothed), (hidden_1TH,)),
    }


def outside_delegate(graph_module: torch.fx.GraphModule) -> list[str]:
    """Heavy operators that stayed outside the delegate, each as "operator at module path"."""
    offenders = []
    for node in graph_module.graph.nodes:
        short = operator_name(node) if node.op == "call_function" else ""
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


def delegation(graphs: Iterable[torch.fx.GraphModule]) -> tuple[float, dict[str, int]]:
    """Share of the operators of a program's methods inside delegates, and the others by name, most frequent first."""
    outside: Counter[str] = Counter()
    inside = 0
    for graph_module in graphs:
        outside.update(_operators(graph_module))
        for child in graph_module.children():
            original: Any = getattr(child, "original_module", None)
            inside += 0 if original is None else len(_operators(original.graph_module))
    total = inside + sum(outside.values())
    return (round(inside / total, 4) if total else 1.0), dict(outside.most_common())


def _operators(graph_module: torch.fx.GraphModule) -> list[str]:
    """Names of the operators that are called on tensors."""
    # Arithmetic on symbolic lengths is a Python operator; on tensors it is an overload with a schema.
    called = [node for node in graph_module.graph.nodes if node.op == "call_function"]
    named = [operator_name(node) for node in called if hasattr(node.target, "_schema") or hasattr(node.target, "_op")]
    return [name for name in named if not name.startswith(("executorch_call_delegate", "getitem", "sym_size"))]


def write_executorch(
    smoothed: Smoothed, plan: PrecisionPlan, target: Path, *, max_length: int, style: ProgramStyle = "multi-method"
) -> WrittenProgram:
    """Lower a (smoothed) student under `plan` into `target` (.pte), run it at lengths 1, 2 and longest, and open it.

    Raises:
        GateError: an attention or linear operator stayed outside the delegate, or a run gives no finite vector.
        MsdcError: `torch.export` or the lowering failed.
    """
    student = smoothed.student
    config = student.config
    style = "forward" if config.static and style == "multi-method" else style
    constants = {
        "repeats": config.repeats, "width": config.width, "max_length": max_length, "vocabulary": config.vocabulary,
    }  # fmt: skip
    length = {1: torch.export.Dim("T", min=1, max=max_length)} if max_length > 1 else None
    with lowering("this model"):
        programs = {
            name: torch.export.export(module.eval(), inputs, dynamic_shapes=(length,) * len(inputs), strict=False)
            for name, (module, inputs) in methods_of(smoothed, plan, max_length, style).items()
        }
        edge = to_edge(programs, constants)
        graphs = {name: edge.exported_program(name).graph_module for name in programs}
        delegated = delegation(graphs.values())
        for name, graph in graphs.items():
            offenders = outside_delegate(graph)
            if offenders:
                raise GateError(f"method {name}: {len(offenders)} operators outside the delegate, first {offenders[0]}")
        program = to_executorch_program(edge)
    runner = save_executorch_program(program, target, style=style, constants=constants)
    quantized = any(dtype != "fp32" for dtype in plan.weights.values())
    share = round(low_bit_share(target, student, max_length), 4) if quantized else None
    part = ExecutorchPart(file=target.name, style=style, repeats=config.repeats)
    return WrittenProgram(part, runner, share, *delegated)


def not_exported(runtime: str, what: str, error: BaseException, last_line: str = "") -> MsdcError:
    """The error for a model that torch.export or a runtime's exporter does not take: one plain line.

    The libraries' own texts are pages for programmers, in colours; of their causes the innermost one counts.
    """
    while error.__cause__ is not None:
        error = error.__cause__
    # An error of torch.export's symbols: lengths that are specialized, or unknown before a text is there.
    if type(error).__module__.startswith(("torch._dynamo", "torch.fx", "torch._export")) or "Guard" in str(error):
        words = "its code branches on the length or the values of a text, which torch.export does not follow"
    else:
        plain = COLOURS.sub("", str(error)).strip() or last_line or type(error).__name__
        words = shorten(printable(plain.splitlines()[0]), 160, placeholder="...")
    return MsdcError(f"{runtime} cannot run {what}: {words}; use the model in Python, or distill a student from it")


@contextlib.contextmanager
def lowering(what: str) -> Iterator[None]:
    """Silence libraries; what they raise becomes an `MsdcError` that names `what`."""
    captured = None
    try:
        with quiet() as captured:
            with COMPILER_LOCK:
                import executorch.exir  # noqa: F401  (registers operators of the token tables)

            yield
    except MsdcError:
        raise
    except Exception as error:
        raise not_exported("ExecuTorch", what, error, captured.last_line() if captured else "") from error


def to_edge(programs: dict[str, Any], constants: dict[str, int]) -> Any:
    """Exported programs with what XNNPACK can take in its delegate."""
    from executorch.exir import to_edge_transform_and_lower

    from msdc.export.executorch.partition import partitioner_of

    partitioner = {name: [partitioner_of()] for name in programs}
    return to_edge_transform_and_lower(programs, partitioner=partitioner, constant_methods=constants)


def to_executorch_program(edge: Any, **options: bool) -> Any:
    """The program to write; `options` are those of ExecuTorch's `ExecutorchBackendConfig`."""
    from executorch.exir import ExecutorchBackendConfig

    return edge.to_executorch(ExecutorchBackendConfig(**options))


def save_executorch_program(
    program: Any, target: Path, *, style: ProgramStyle, constants: dict[str, int], takes_prompt: bool = False
) -> ExecutorchRunner:
    """Write a lowered program, run it at lengths 1, 2 and longest, and note that it is ours."""
    with atomic_path(target) as temporary, open(temporary, "wb") as handle:
        program.write_to_file(handle)
    runner = ExecutorchRunner(target, style=style, constants=constants, takes_prompt=takes_prompt)
    run_once(runner.run, constants["vocabulary"], constants["width"], constants["max_length"], target.name)
    record_safe(sha256_file(target), "exported")
    return runner


def low_bit_share(path: Path, student: Student, max_length: int) -> float:
    """Share of the bytes of the token table and of all linear maps that are 8 bits or less, as stored in the file.

    Positions, biases, norms and scales are not weights of a product and are not counted; nor are a code's indices.
    """
    positions = () if student.config.static else (max_length, student.embedding.position.weight.shape[1])
    # float16 is the type of a 4-bit table's scales alone; one column holds one scale per row, one row a fixed sum.
    weights = [
        constant for constant in read_pte(path).constants
        if constant.dtype not in (*INDICES, "float16") and len(constant.shape) > 1
        and constant.shape != positions and 1 not in constant.shape
    ]  # fmt: skip
    return sum(c.bytes for c in weights if c.dtype in LOW_BIT) / max(1, sum(c.bytes for c in weights))
