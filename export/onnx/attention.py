"""Attention in standard operators, or in fewer instructions where Microsoft's may be used.

Microsoft's MultiHeadAttention is not used: its parts (copies of the heads, mask, bias) cost more than the same in
operators of their own, on Arm and on x86 (at 128 tokens 7.7 million instructions on a Cortex-A76 against 6.3).

Shapes: B batch, T tokens, H hidden, N heads, d head width.
"""

from __future__ import annotations

from dataclasses import dataclass

from onnx import TensorProto

from msdc.export.onnx.builder import GraphBuilder
from msdc.export.onnx.linear import MICROSOFT, Weights

NEGATIVE = -1e9


@dataclass(frozen=True)
class Mask:
    """What is added to the scores, [B, 1, 1, T], and whether there is nothing to add (bool scalar; empty: unknown)."""

    bias: str
    all_real: str = ""


def make_mask(g: GraphBuilder, weights: Weights, mask_BT: str) -> Mask:
    """The mask as attention takes it, from 1 on real tokens and 0 on padding."""
    padding = g.op("Sub", g.const("one", weights.float32(1.0)), mask_BT)
    gap = g.op("Mul", padding, g.const("negative", weights.float32(NEGATIVE)))
    bias = g.op("Unsqueeze", gap, g.const("axes_1_2", [1, 2]), name="attention_bias")
    if not weights.microsoft:
        return Mask(bias)
    return Mask(bias, g.op("Cast", g.op("ReduceMin", mask_BT, keepdims=0), name="all_real", to=TensorProto.BOOL))


def attention(g: GraphBuilder, weights: Weights, qkv: list[str], mask: Mask) -> str:
    """Attention of [B, T, H] queries (already scaled), keys and values: [B, T, H]."""
    return (_transposed if weights.microsoft else _standard)(g, weights, qkv, mask)


def _standard(g: GraphBuilder, weights: Weights, qkv: list[str], mask: Mask) -> str:
    config = weights.config
    shape_in = g.const("split_heads", [0, 0, config.heads, config.hidden // config.heads])
    shape_out = g.const("join_heads", [0, 0, config.hidden])
    query, key, value = qkv
    query_BNTd = g.op("Transpose", g.op("Reshape", query, shape_in), perm=[0, 2, 1, 3])
    key_BNdT = g.op("Transpose", g.op("Reshape", key, shape_in), perm=[0, 2, 3, 1])
    value_BNTd = g.op("Transpose", g.op("Reshape", value, shape_in), perm=[0, 2, 1, 3])
    scores_BNTT = g.op("Add", g.op("MatMul", query_BNTd, key_BNdT), mask.bias)
    context_BNTd = g.op("MatMul", g.op("Softmax", scores_BNTT, axis=-1), value_BNTd)
    return str(g.op("Reshape", g.op("Transpose", context_BNTd, perm=[0, 2, 1, 3]), shape_out))


def _transposed(g: GraphBuilder, weights: Weights, qkv: list[str], mask: Mask) -> str:
    """Heads are split after a plain transpose, [B, T, H] to [B, H, T], and the products take their sides transposed:
    swapping the axes of tokens and heads would take three times as long. A batch without padding adds no mask.
    """
    config = weights.config
    weights.uses_microsoft = True
    shape_in = g.const("split_rows", [0, config.heads, config.hidden // config.heads, -1])
    shape_out = g.const("join_rows", [0, config.hidden, -1])
    query_BNdT, key_BNdT, value_BNdT = [
        g.op("Reshape", g.op("Transpose", part_BTH, perm=[0, 2, 1]), shape_in) for part_BTH in qkv
    ]
    scores_BNTT = g.op("FusedMatMul", query_BNdT, key_BNdT, domain=MICROSOFT, transA=1)

    def real(branch: GraphBuilder) -> str:
        return str(branch.op("Softmax", scores_BNTT, axis=-1))

    def padded(branch: GraphBuilder) -> str:
        return str(branch.op("Softmax", branch.op("Add", scores_BNTT, mask.bias), axis=-1))

    weight_BNTT = g.choose(mask.all_real, real, padded, ["batch", config.heads, "length", "length"])
    context_BNdT = g.op("FusedMatMul", value_BNdT, weight_BNTT, name="attention", domain=MICROSOFT, transB=1)
    return str(g.op("Transpose", g.op("Reshape", context_BNdT, shape_out), perm=[0, 2, 1]))
