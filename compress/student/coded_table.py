"""A coded token table: every row is a weighted sum of a few rows of a small base table.

row(p) = sum_j weight[p, j] * base[index[p, j]], j = 1 .. k. A piece takes k small integers and k weights in place of a
row, so that a vocabulary of whole words costs little more than one of word parts. The base is an `nn.Embedding` of R
rows; `Code` holds the rest. Weights and base are trained, the support (`index`) stays.

Shapes: V vocabulary, R base rows, k links per piece, E width of a row.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msdc.compress.student.shapes import index_bytes


def index_type(base_rows: int) -> torch.dtype:
    """The integer type in which indices of a base of `base_rows` rows are stored."""
    return torch.int16 if index_bytes(base_rows) == 2 else torch.int32


class Code(nn.Module):
    """The links of all pieces: `weight` float [V, k] is trained, `index` int16 or int32 [V, k] is a buffer."""

    index: Tensor

    def __init__(self, vocabulary: int, base_rows: int, links: int) -> None:
        super().__init__()
        # Any start that tells pieces apart: every base row is some piece's first link, the others are drawn.
        first_V1 = (torch.arange(vocabulary) % base_rows).unsqueeze(1)
        others = torch.randint(base_rows, (vocabulary, links - 1))
        self.weight = nn.Parameter(torch.full((vocabulary, links), links**-0.5))
        self.register_buffer("index", torch.cat([first_V1, others], 1).to(index_type(base_rows)))

    def forward(self, ids_BT: Tensor, base: nn.Embedding) -> Tensor:
        """Rows of the pieces `ids_BT`, [B, T, E]."""
        rows_BTkE = base(F.embedding(ids_BT, self.index).long())
        return (rows_BTkE * F.embedding(ids_BT, self.weight).unsqueeze(-1)).sum(-2)

    def rows(self, base_RE: Tensor) -> Tensor:
        """All rows, [V, E], differentiable; never holds k rows per piece at once."""
        weight_Vk = self.weight.to(base_RE.dtype)
        return F.embedding_bag(self.index.long(), base_RE, per_sample_weights=weight_Vk, mode="sum")


def prune(index_Vk: Tensor, weight_Vk: Tensor) -> tuple[Tensor, Tensor]:
    """(indices into the base rows that are still used, numbers of these rows in the old base, ascending).

    A link of weight 0 uses no row: it points where the piece's strongest link does. The sums stay the same.
    """
    index_Vk = index_Vk.long()
    strongest_V1 = weight_Vk.abs().argmax(1, keepdim=True)
    linked_Vk = torch.where(weight_Vk == 0, index_Vk.gather(1, strongest_V1), index_Vk)
    kept_R, new_Vk = linked_Vk.unique(return_inverse=True)
    return new_Vk.to(index_type(len(kept_R))), kept_R
