"""Attention and masks in operators that both runtimes have, registered with transformers under the name "msdc".

Stock attention decomposes into a safe softmax (eq, any, where) on portable kernels of ExecuTorch. Here: product, scale,
additive float mask, softmax, product. At batch 1 everything is three-dimensional, which XNNPACK delegates.

Shapes: B batch, T tokens, N heads, K heads of keys and values, d width of a head.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

NAME = "msdc"
NEGATIVE = -1e9


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_bias: Tensor | None = None,
    softcap: float | None = None,
    **unused: Any,
) -> tuple[Tensor, None]:
    """Attention of query [B, N, T, d] over key and value [B, K, T, d]: [B, T, N, d], and no weights.

    `attention_mask` is additive, [B or 1, 1, T or 1, T]; `position_bias` is added to the scores, [1, N, T, T].
    """
    del module, dropout, unused
    B, N, _, d = query.shape
    K = key.shape[1]
    scale = d**-0.5 if scaling is None else scaling
    query = query * scale if scale != 1.0 else query
    # A symbolic batch is no int.
    if isinstance(B, int) and B == 1:
        query, key, value = query.squeeze(0), key.squeeze(0), value.squeeze(0)
        if K != N:
            # A stack has known strides: a reshape would make torch.export guess them from the example.
            key, value = (torch.stack([x] * (N // K), dim=1).view(N, -1, d) for x in (key, value))
        scores = torch.bmm(query, key.transpose(1, 2))
        for extra in (position_bias, attention_mask):
            scores = scores if extra is None else scores + extra.squeeze(0)
        if softcap is not None:
            scores = torch.tanh(scores / softcap) * softcap
        return torch.bmm(scores.softmax(-1), value).permute(1, 0, 2).contiguous().unsqueeze(0), None
    if K != N:
        key, value = (x.repeat_interleave(N // K, dim=1) for x in (key, value))
    scores = torch.matmul(query, key.transpose(2, 3))
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    for extra in (position_bias, attention_mask):
        scores = scores if extra is None else scores + extra
    return torch.matmul(scores.softmax(-1), value).transpose(1, 2).contiguous(), None


def mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    *,
    mask_function: Any,
    attention_mask: Tensor | None = None,
    allow_is_bidirectional_skip: bool = False,
    **options: Any,
) -> Tensor | None:
    """The additive float mask that transformers asks for, [B, 1, T, T]; None where nothing is masked."""
    from transformers.masking_utils import sdpa_mask

    if attention_mask is None and allow_is_bidirectional_skip and not options.get("local_size"):
        return None
    options = {key: options[key] for key in ("q_offset", "kv_offset", "device", "use_vmap") if key in options}
    allowed = sdpa_mask(
        batch_size, q_length, kv_length, mask_function=mask_function, attention_mask=attention_mask,
        allow_is_causal_skip=False, allow_is_bidirectional_skip=False, **options,
    )  # fmt: skip
    assert allowed is not None
    return (1.0 - allowed.to(torch.float32)) * NEGATIVE


def register() -> None:
    """Make `attn_implementation="msdc"` known to transformers."""
    from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    ALL_ATTENTION_FUNCTIONS.register(NAME, attention)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, mask)
