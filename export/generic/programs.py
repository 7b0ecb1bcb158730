"""Programs of any model, through `torch.export`.

ExecuTorch: one `forward(ids [1, T])`, or with a mask [1, T], lowered to XNNPACK where it can be. What stays outside the
delegate runs on portable kernels: slower, not wrong; it is counted and named, where the canonical exporter refuses it.

ONNX: torch's exporter, then every linear map and the token table rewritten to int8. The exporter leaves weights behind
`Transpose` or in `Gemm`, where `onnxruntime.quantization` does not find them; here they are followed to their
initializers. A quantized map: uint8 activations with a scale and a minimum per token, int8 weights with a scale per
output channel.

Shapes: B batch, T tokens, K inputs and N outputs of a linear map, V vocabulary, D sentence width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from msdc.compress.student.plan import int8_rows
from msdc.errors import InputError
from msdc.export.executorch.lower import (
    LOW_BIT,
    delegation,
    lowering,
    not_exported,
    save_executorch_program,
    to_edge,
    to_executorch_program,
)
from msdc.export.executorch.program import FLOATS, read_pte
from msdc.export.generic.model import GenericModel, is_large, quantized, with_norms
from msdc.export.onnx.graph import MICROSOFT, GraphBuilder, pair_safe, quantize_tokens
from msdc.export.onnx.program import subgraphs
from msdc.export.onnx.write import IR_VERSION, OPSET, save_onnx_program
from msdc.export.schema import TARGETS, ExecutorchPart, ProgramStyle, WrittenProgram
from msdc.processes import quiet

INPUTS, PROMPT, OUTPUT = ("input_ids", "attention_mask"), "prompt_tokens", "sentence_embedding"


def write_generic_executorch(
    model: GenericModel, precision: str, target: Path, *, max_length: int, masked: bool = False
) -> WrittenProgram:
    """Lower `model` as `fp32` or `int8` into `target` (.pte), run it at lengths 1, 2 and longest, and open it.

    With `masked` its second input is an attention mask, int64 [1, T].

    Raises:
        InputError: `masked`, for a model whose second input is the number of the prompt's tokens.
        GateError: a run gives no finite vector.
        MsdcError: `torch.export` or the lowering failed.
    """
    constants = {"repeats": 1, "width": model.width, "max_length": max_length, "vocabulary": model.vocabulary}
    if masked and model.takes_prompt:
        raise InputError(f"{model.architecture}: its pooling leaves the prompt's tokens out (include_prompt: false)")
    style: ProgramStyle = "masked" if masked else "forward"
    with lowering(f"{model.architecture} models"):
        lowerable_model = with_norms(model)
        lowerable_model = quantized(lowerable_model) if precision == "int8" else lowerable_model
        ids_1T = torch.full((1, min(7, max_length)), min(3, model.vocabulary - 1), dtype=torch.int64)
        length = {1: torch.export.Dim("T", min=1, max=max_length)} if max_length > 1 else None
        inputs = {"prompt_B": torch.ones(1, dtype=torch.int64)} if model.takes_prompt else {}
        shapes: dict[str, Any] = {"ids_BT": length, **dict.fromkeys(inputs)}
        if masked:
            inputs["mask_BT"], shapes["mask_BT"] = torch.ones_like(ids_1T), length
        program = torch.export.export(lowerable_model, (ids_1T,), inputs, dynamic_shapes=shapes, strict=False)
        edge = to_edge({"forward": program}, constants)
        share, outside = delegation([edge.exported_program("forward").graph_module])
        lowered = to_executorch_program(edge, do_quant_fusion_and_const_prop=True)
    runner = save_executorch_program(lowered, target, style=style, constants=constants, takes_prompt=model.takes_prompt)
    low_bit = None if precision == "fp32" else round(_low_bit_share(target), 4)
    return WrittenProgram(ExecutorchPart(file=target.name, style=style, repeats=1), runner, low_bit, share, outside)


def _is_weight(shape: Sequence[int]) -> bool:
    """Whether a stored tensor is a matrix of weights: not a bias, a norm, a scale per row or a single factor."""
    return sum(size > 1 for size in shape) > 1


def _low_bit_share(path: Path) -> float:
    """Share of the bytes of all weights stored in the file that are 8 bits or less; indices and masks are no weights.

    Everything counts, whatever module it comes from, so a weight that no rule found shows.
    """
    stored = [constant for constant in read_pte(path).constants if _is_weight(constant.shape)]
    low, high = (sum(c.bytes for c in stored if c.dtype in kinds) for kinds in (LOW_BIT, tuple(FLOATS.values())))
    return low / (low + high) if low + high else 0.0


def exported(model: GenericModel, max_length: int) -> onnx.ModelProto:
    """The float graph as torch's exporter writes it, weights inside."""
    ids_BT = torch.full((2, min(7, max_length)), 3, dtype=torch.int64)
    dims = {0: torch.export.Dim("batch", min=1, max=4096), 1: torch.export.Dim("length", min=1, max=max_length)}
    inputs: list[tuple[str, torch.Tensor, Any]] = [
        (INPUTS[0], ids_BT, dims),
        (INPUTS[1], torch.ones_like(ids_BT), dims),
    ]
    if model.takes_prompt:
        inputs.append((PROMPT, torch.ones(2, dtype=torch.int64), {0: dims[0]}))
    names, values, shapes = zip(*inputs, strict=True)
    captured = None
    try:
        with quiet() as captured:
            exported_program = torch.onnx.export(
                model, values, dynamo=True, opset_version=OPSET, verbose=False,
                input_names=list(names), output_names=[OUTPUT], dynamic_shapes=shapes,
            )  # fmt: skip
    except Exception as error:
        words = captured.last_line() if captured else ""
        raise not_exported("ONNX Runtime", f"{model.architecture} models", error, words) from error
    assert exported_program is not None
    proto: onnx.ModelProto = exported_program.model_proto
    return proto


@dataclass
class _Rewriter:
    """Replaces products with constant weights, and look-ups in the token table, in one graph."""

    graph: onnx.GraphProto
    table_shape: tuple[int, ...]
    microsoft: bool
    builder: GraphBuilder = field(default_factory=lambda: GraphBuilder("int8/"))

    def __post_init__(self) -> None:
        self.constants = {tensor.name: tensor for tensor in self.graph.initializer}
        self.makers = {name: node for node in self.graph.node for name in node.output}
        self._quantized: dict[Any, tuple[str, str, str, int]] = {}
        self.uses_microsoft = False

    def share(self) -> float:
        """Share of the bytes of all weights in the rewritten graph that are 8 bits; see `_low_bit_share`."""
        sizes = {TensorProto.FLOAT: 4, TensorProto.FLOAT16: 2, TensorProto.INT8: 1, TensorProto.UINT8: 1}
        weights = [t for t in self.graph.initializer if t.data_type in sizes and _is_weight(t.dims)]
        total = sum(math.prod(t.dims) * sizes[t.data_type] for t in weights)
        return round(sum(math.prod(t.dims) for t in weights if sizes[t.data_type] == 1) / total, 4) if total else 0.0

    def matrix(self, name: str) -> np.ndarray | None:
        """A constant matrix [K, N] by the name of a value, through a Transpose; None for anything else."""
        if name in self.constants:
            tensor = self.constants[name]
            is_float_matrix = len(tensor.dims) == 2 and tensor.data_type == TensorProto.FLOAT
            return numpy_helper.to_array(tensor) if is_float_matrix else None
        node = self.makers.get(name)
        if node is None or node.op_type not in ("Transpose", "Identity"):
            return None
        inner = self.matrix(node.input[0])
        return inner if inner is None or node.op_type == "Identity" else inner.T

    def product(self, node: onnx.NodeProto, value: str, weight_KN: np.ndarray, bias: str = "") -> None:
        """value [.., K] @ weight + bias into the node's output."""
        builder, name = self.builder, node.output[0]
        K = weight_KN.shape[0]
        part = int8_rows(weight_KN.T, name)
        values_NK, scale_N = pair_safe(np.ascontiguousarray(weight_KN.T), part.scale[:, 0])
        same = self._same_product(value)
        if same not in self._quantized:
            # Anchored at each token's minimum: what is known of an activation differs between architectures.
            low = builder.op("ReduceMin", value, builder.const("int8/axis_last", [-1]), keepdims=1)
            self._quantized[same] = (low, *quantize_tokens(builder, builder.op("Sub", value, low), K, 0.0, self._zeros))
        low, quantized, step, zero_value = self._quantized[same]
        zero = builder.const(f"int8/zero_{zero_value}", np.asarray(zero_value, np.uint8))
        weight, scale = builder.const(f"{name}.weight", values_NK.T), builder.const(f"{name}.scale", scale_N)
        if self.microsoft:
            self.uses_microsoft = True
            unit = builder.const("int8/one", np.float32(1.0))
            scaled = builder.op("MatMulIntegerToFloat", quantized, weight, unit, scale, zero, domain=MICROSOFT)
        else:
            total = builder.op("MatMulInteger", quantized, weight, zero)
            scaled = builder.op("Mul", builder.op("Cast", total, to=TensorProto.FLOAT), scale)
        total_N = values_NK.sum(1, dtype=np.int64).astype(np.float32) * scale_N
        shift = builder.op("Mul", low, builder.const(f"{name}.shift", total_N))
        shifted = builder.op("Add", builder.op("Mul", scaled, step), shift)
        builder.rename(builder.op("Add", shifted, bias) if bias else shifted, name)

    def _same_product(self, value: str) -> Any:
        """What equal values have in common: query, key and value each multiply one state by equal constants."""
        node = self.makers.get(value)
        if node is None or node.op_type != "Mul" or node.input[1] not in self.constants:
            return value
        return node.input[0], numpy_helper.to_array(self.constants[node.input[1]]).tobytes()

    def _zeros(self, zero: int, step: str) -> str:
        constant = self.builder.const(f"int8/zeros_{zero}", np.asarray(zero, np.uint8))
        return str(self.builder.op("Expand", constant, self.builder.op("Shape", step)))

    def look_up(self, node: onnx.NodeProto, table_VE: np.ndarray) -> None:
        """Rows of a table for ids: tokens, positions."""
        builder, ids = self.builder, node.input[1]
        name = "tokens" if table_VE.shape == self.table_shape else node.input[0]
        part = int8_rows(table_VE, name)
        rows = builder.op("Gather", builder.const(f"{name}.weight/int8", part.values), ids)
        scales = builder.op("Gather", builder.const(f"{name}.scale/int8", part.scale), ids)
        builder.rename(builder.op("Mul", builder.op("Cast", rows, to=TensorProto.FLOAT), scales), node.output[0])

    def run(self) -> None:
        """Rewrite the graph in place."""
        for node in self.graph.node:
            if not self._replaced(node):
                self.builder.nodes.append(node)
        nodes, self.builder.nodes = self.builder.nodes, []
        self._store_others({name for node in nodes for name in node.input})
        del self.graph.node[:]
        self.graph.node.extend([*self.builder.nodes, *nodes])
        self.graph.initializer.extend(self.builder.initializers.values())
        drop_unused(self.graph)

    def _store_others(self, used: set[str]) -> None:
        """Store tables that are read whole (DeBERTa's relative positions) as int8; ONNX Runtime unfolds them once."""
        builder = self.builder
        for tensor in [t for t in self.graph.initializer if t.name in used and t.data_type == TensorProto.FLOAT]:
            if is_large(tensor.dims):
                part = int8_rows(numpy_helper.to_array(tensor), tensor.name)
                floats = builder.op("Cast", builder.const(f"{tensor.name}/int8", part.values), to=TensorProto.FLOAT)
                self.graph.initializer.remove(tensor)
                builder.rename(
                    builder.op("Mul", floats, builder.const(f"{tensor.name}/scale", part.scale)), tensor.name
                )

    def _replaced(self, node: onnx.NodeProto) -> bool:
        kind = node.op_type
        if kind == "Gather" and node.input[0] in self.constants:
            table = self.matrix(node.input[0])
            axis = next((helper.get_attribute_value(a) for a in node.attribute if a.name == "axis"), 0)
            if table is not None and axis == 0 and (table.shape == self.table_shape or is_large(table.shape)):
                self.look_up(node, table)
                return True
        weight_KN = self.matrix(node.input[1]) if kind in ("MatMul", "Gemm") else None
        if weight_KN is None:
            return False
        options = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        if options.get("transA") or not options.get("alpha", 1.0) == options.get("beta", 1.0) == 1.0:
            return False
        weight_KN = weight_KN.T if options.get("transB") else weight_KN
        self.product(node, node.input[0], weight_KN, node.input[2] if len(node.input) > 2 else "")
        return True


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove nodes and initializers that no output needs."""
    needed = {value.name for value in graph.output}
    used_nodes = []
    for node in reversed(graph.node):
        if needed.intersection(node.output):
            used_nodes.append(node)
            needed.update(node.input)
            needed.update(name for inner in subgraphs(node) for used in inner.node for name in used.input)
    del graph.node[:]
    graph.node.extend(reversed(used_nodes))
    used = [tensor for tensor in graph.initializer if tensor.name in needed]
    del graph.initializer[:]
    graph.initializer.extend(used)


def write_generic_onnx(
    model: GenericModel, precision: str, target_file: Path, *, max_length: int, target: str, pad_id: int
) -> WrittenProgram:
    """Write `target_file` and its `.data` next to it; see `msdc.export.onnx.write.save_onnx_program`."""
    exported_model = exported(model, max_length)
    graph, uses_microsoft, share = exported_model.graph, False, None
    if precision == "int8":
        rewriter = _Rewriter(graph, tuple(model.tokens.weight.shape), TARGETS[target].microsoft_operators)
        rewriter.run()
        uses_microsoft, share = rewriter.uses_microsoft, rewriter.share()
    del graph.value_info[:], graph.metadata_props[:]
    for node in graph.node:
        # Stack traces of the exporting machine.
        del node.metadata_props[:]
        node.doc_string = ""
    for tensor in graph.initializer:
        if not tensor.raw_data:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor), tensor.name))
    for value in (*graph.input, *graph.output):
        del value.metadata_props[:]
    opsets = [helper.make_opsetid("", OPSET)] + ([helper.make_opsetid(MICROSOFT, 1)] if uses_microsoft else [])
    model_proto: Any = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="msdc")
    model_proto.functions.extend(exported_model.functions)
    return save_onnx_program(
        model_proto,
        target_file,
        share,
        vocabulary=model.vocabulary,
        width=model.width,
        max_length=max_length,
        pad_id=pad_id,
        padded=not model.reads_padding,
    )
