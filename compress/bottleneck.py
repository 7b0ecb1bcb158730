"""The start of the embedding bottleneck: the best low-rank form of a token table, in seconds and in closed form.

Source: eq. 3 of Ding et al. 2022 without position and layer norm is a weighted low-rank problem,
`min sum_v f_v || row_v - narrow_v P ||^2`, whose optimum is the truncated SVD of `diag(sqrt f) table`.

Shapes: V vocabulary, H hidden, E bottleneck.
"""

from __future__ import annotations

import torch
from torch import Tensor

from msdc.errors import InputError


def weighted_svd(table_VH: Tensor, frequency_V: Tensor | None, rank: int) -> tuple[Tensor, Tensor]:
    """Narrow table [V, E] and map [E, H] whose product is the frequency-weighted best rank-E approximation.

    Rows of frequency 0 do not steer the map; they are still projected onto it, which is the best they can get.

    Raises:
        InputError: `rank` is not within 1..H, or the frequencies do not fit the table.
    """
    V, H = table_VH.shape
    if not 1 <= rank <= min(V, H):
        raise InputError(f"a bottleneck of {rank} is not within 1..{min(V, H)} for a table of {V} x {H}")
    table = table_VH.detach().double()
    weight = torch.ones(V, dtype=torch.float64) if frequency_V is None else frequency_V.detach().double()
    if weight.shape != (V,) or bool((weight < 0).any()) or float(weight.sum()) <= 0:
        raise InputError(f"frequencies must be {V} non-negative numbers that are not all zero")
    # The H x H Gram matrix has the same right singular vectors as diag(sqrt f) table, and is small.
    gram_HH = table.T @ (table * weight[:, None])
    _, vectors_HH = torch.linalg.eigh(gram_HH)
    project_EH = vectors_HH[:, -rank:].flip(1).T.contiguous()
    table_VE = table @ project_EH.T
    return table_VE.to(table_VH.dtype), project_EH.to(table_VH.dtype)


def explained_share(table_VH: Tensor, frequency_V: Tensor | None, rank: int) -> float:
    """Share of the table's weighted squared norm that `rank` keeps, 0..1."""
    table_VE, _ = weighted_svd(table_VH, frequency_V, rank)
    weight = torch.ones(len(table_VH)) if frequency_V is None else frequency_V
    kept = (table_VE.double().square().sum(1) * weight.double()).sum()
    return float(kept / (table_VH.double().square().sum(1) * weight.double()).sum())
