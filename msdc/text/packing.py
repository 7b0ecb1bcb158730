"""Batches of texts of similar length under a token budget, which needs almost no padding.

Shapes: B batch, T tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


def pack_by_length(lengths: Sequence[int] | np.ndarray, batch_tokens: int, max_batch: int = 4096) -> list[np.ndarray]:
    """Indices grouped so that (rows x longest row) stays within `batch_tokens`; longest first.

    Longest first, so that an out-of-memory error is raised by the first batch and the estimated time left shrinks.
    """
    lengths = np.asarray(lengths)
    order = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        rows = int(min(max_batch, max(1, batch_tokens // max(1, int(lengths[order[start]])))))
        batches.append(order[start : start + rows])
        start += rows
    return batches


def pad(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[Tensor, Tensor]:
    """ids_BT (int64) and mask_BT (bool, true on real tokens) of ragged rows."""
    import torch

    lengths = np.fromiter((len(row) for row in rows), dtype=np.int64, count=len(rows))
    T = int(lengths.max()) if len(rows) else 0
    mask_BT = np.arange(T)[None, :] < lengths[:, None]
    ids_BT = np.full((len(rows), T), pad_id, dtype=np.int64)
    ids_BT[mask_BT] = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows]) if len(rows) else []
    return torch.from_numpy(ids_BT), torch.from_numpy(mask_BT)
