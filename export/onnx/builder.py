"""A small builder of ONNX graphs: named nodes, initializers in the outer graph, external data beside the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Tensors from this size on go to the external data file, which runtimes memory-map.
EXTERNAL_FROM_BYTES = 1024
ALIGNMENT = 64
# Adds the nodes of a branch to its graph; the name of its result.
Branch = Callable[["GraphBuilder"], str]


class GraphBuilder:
    """Collects nodes and initializers. Loop bodies and branches are children that put theirs into the outer graph."""

    def __init__(self, prefix: str = "", parent: GraphBuilder | None = None) -> None:
        self.prefix = prefix
        self.outer: GraphBuilder = parent.outer if parent else self
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = parent.initializers if parent else {}
        self._count = 0

    def const(self, name: str, value: Any) -> str:
        """Add an initializer once under `name`; the same name must mean the same tensor."""
        if name not in self.initializers:
            array = np.ascontiguousarray(value)
            self.initializers[name] = numpy_helper.from_array(array.reshape(np.shape(value)), name)
        return name

    def raw(self, tensor: onnx.TensorProto) -> str:
        """Add a ready-made initializer (types that numpy does not have)."""
        self.initializers.setdefault(tensor.name, tensor)
        return tensor.name

    def op(self, kind: str, *inputs: str, name: str = "", outputs: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node; its output name (or a list of names for several outputs)."""
        self._count += 1
        label = f"{self.prefix}{name or kind.lower()}_{self._count}"
        names = [label] if outputs == 1 else [f"{label}.{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), names, name=label, domain=domain, **attributes))
        return names[0] if outputs == 1 else names

    def choose(self, condition: str, then: Branch, otherwise: Branch, shape: Sequence[str | int | None]) -> str:
        """An If whose branches each compute one float tensor of `shape`."""
        branches = {}
        for key, make in (("then_branch", then), ("else_branch", otherwise)):
            body = GraphBuilder(f"{self.prefix}choice_{self._count}/{key}/", parent=self)
            out = helper.make_tensor_value_info(make(body), TensorProto.FLOAT, list(shape))
            branches[key] = helper.make_graph(body.nodes, key, [], [out])
        return str(self.op("If", condition, name="choice", **branches))

    def rename(self, old: str, new: str) -> str:
        """Give the output `old` of the last node that makes it the name `new` (graph outputs have fixed names)."""
        for node in reversed(self.nodes):
            for index, output in enumerate(node.output):
                if output == old:
                    node.output[index] = new
                    return new
        raise KeyError(old)


def save_external(model: onnx.ModelProto, target: Path, data_name: str) -> None:
    """Write `target` and, beside it, `data_name` with every large initializer at an aligned offset.

    Not written by onnx.save_model: fixed offsets and order make two exports byte-identical.
    """
    offset = 0
    with open(target.parent / data_name, "wb") as data:
        for tensor in model.graph.initializer:
            raw = tensor.raw_data
            if len(raw) < EXTERNAL_FROM_BYTES:
                continue
            padding = -offset % ALIGNMENT
            data.write(b"\0" * padding)
            offset += padding
            data.write(raw)
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in (("location", data_name), ("offset", str(offset)), ("length", str(len(raw)))):
                tensor.external_data.add(key=key, value=value)
            offset += len(raw)
    target.write_bytes(model.SerializeToString(deterministic=True))
