"""What goes into XNNPACK's delegates: all that ExecuTorch's partitioner takes, and slices of tensors of free length.

ExecuTorch 1.5 leaves a slice outside where any size of its tensor is free. XNNPACK takes the whole of an axis for size
0, also of one whose size is known only at the call.
"""

from __future__ import annotations

from typing import Any

import executorch.backends.xnnpack.operators  # noqa: F401  (registers the visitors of all operators)
from executorch.backends.xnnpack.operators import node_visitor
from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS
from executorch.backends.xnnpack.partition.config.generic_node_configs import SliceCopyConfig
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

_STOCK: Any = node_visitor._node_visitor_dict["aten.slice_copy.Tensor"]


def _sizes(node: Any) -> list[Any]:
    """Sizes of a tensor, None for a free one."""
    return [size if isinstance(size, int) else None for size in node.meta["val"].shape]


class FreeSlice(SliceCopyConfig):  # type: ignore[misc]
    """Slices with step 1 of an axis of fixed size, whatever the other axes are."""

    def check_constraints(self, node: Any, ep: Any) -> bool:
        """Whether the delegate takes the slice `node`."""
        if None not in _sizes(node.args[0]):
            return bool(super().check_constraints(node, ep))
        axis = node.args[1] if len(node.args) > 1 else 0
        fixed = _sizes(node.args[0])[axis] and _sizes(node)[axis]
        return bool(fixed and node.args[4:] in ((), (1,)) and self.check_common_constraints(node, ep))


class FreeSliceVisitor(_STOCK):  # type: ignore[misc]
    """Writes a slice into a delegate's graph."""

    def define_node(self, node: Any, xnn_graph: Any, vals_to_ids: Any, debug_handle: int) -> None:
        """As ExecuTorch's own, with size 0 for free axes."""
        super().define_node(node, xnn_graph, vals_to_ids, debug_handle)
        sizes = _sizes(node)
        if None in sizes:
            xnn_graph.xnodes[-1].xnode_union.sizes = [size or 0 for size in sizes]


node_visitor.register_node_visitor(FreeSliceVisitor)


def partitioner_of() -> Any:
    """A partitioner of one method."""
    return XnnpackPartitioner([FreeSlice if c is SliceCopyConfig else c for c in ALL_PARTITIONER_CONFIGS])
