"""A coded token table: every row is a weighted sum of a few rows of a small base table.

row(p) = sum_j weight[p, j] * base[index[p, j]], j = 1 .. k. A token takes k small integers and k weights instead of a
row, so that a vocabulary of whole words costs little more than one of word parts. The base is an `nn.Embedding` of R
rows; `Code` holds the rest. Weights and base are trained; the support (`index`) is fixed.

`fit_code` fits a code to a dense table. Nonzeros are chosen by orthogonal matching pursuit (Pati et al. 1993) and the
base by least squares given the nonzeros (the method of optimal directions, Engan et al. 1999), in turn. Errors of
frequent tokens count more.

Shapes: V vocabulary, R base rows, k nonzeros per token, E width of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from msdc.compress.student.config import check_code, index_bytes
from msdc.errors import InputError

ROUNDS = 4
# Scores of a block of tokens against all base rows: 64 MiB.
BLOCK_NUMBERS = 2**24
# Steps of the conjugate gradients that solve for the base; each round starts where the one before ended.
BASE_STEPS = 12
# Cosine from which two rows of the table count as one where the base starts.
NEARLY_EQUAL = 0.95


def index_type(base_rows: int) -> torch.dtype:
    """The integer type in which indices of a base of `base_rows` rows are stored."""
    return torch.int16 if index_bytes(base_rows) == 2 else torch.int32


class Code(nn.Module):
    """The nonzeros of all tokens: `weight` float [V, k] is trained, `index` int16 or int32 [V, k] is a buffer."""

    index: Tensor

    def __init__(self, vocabulary: int, base_rows: int, nonzeros: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((vocabulary, nonzeros), nonzeros**-0.5))
        index_Vk = torch.empty(vocabulary, nonzeros, dtype=index_type(base_rows))
        # On `meta` these operators import the whole compiler (torch 2.13).
        if not index_Vk.is_meta:
            # Any start that separates tokens: every base row is some token's first nonzero, the others are drawn.
            index_Vk[:, 0] = torch.arange(vocabulary) % base_rows
            index_Vk[:, 1:] = torch.randint(base_rows, (vocabulary, nonzeros - 1))
        self.register_buffer("index", index_Vk)

    def forward(self, ids_BT: Tensor, base: nn.Embedding) -> Tensor:
        """Rows of the tokens `ids_BT`, [B, T, E]."""
        rows_BTkE = base(F.embedding(ids_BT, self.index).long())
        return (rows_BTkE * F.embedding(ids_BT, self.weight).unsqueeze(-1)).sum(-2)

    def rows(self, base_RE: Tensor) -> Tensor:
        """All rows, [V, E], differentiable; never holds k rows per token at once."""
        return CodedRows(base_RE, self.weight.to(base_RE.dtype), self.index).rows()


def prune(index_Vk: Tensor, weight_Vk: Tensor) -> tuple[Tensor, Tensor]:
    """(indices into the base rows that are still used, old indices of these rows, ascending).

    A term of weight 0 uses no row: it gets the index of the token's largest weight. The sums stay the same.
    """
    index_Vk = index_Vk.long()
    strongest_V1 = weight_Vk.abs().argmax(1, keepdim=True)
    used_Vk = torch.where(weight_Vk == 0, index_Vk.gather(1, strongest_V1), index_Vk)
    kept_R, new_Vk = used_Vk.unique(return_inverse=True)
    return new_Vk.to(index_type(len(kept_R))), kept_R


@dataclass(frozen=True)
class CodedRows:
    """Base rows [R, E], weights [V, k] and indices [V, k] (int16 or int32) of a coded table."""

    base_RE: Tensor
    weight_Vk: Tensor
    index_Vk: Tensor

    def rows(self) -> Tensor:
        """The table multiplied out, [V, E]."""
        return F.embedding_bag(self.index_Vk.long(), self.base_RE, per_sample_weights=self.weight_Vk, mode="sum")


def choose_nonzeros(table_VE: Tensor, base_RE: Tensor, nonzeros: int) -> CodedRows:
    """The code of every row over a fixed base: the support by orthogonal matching pursuit, weights by least squares.

    Between stages it chooses the support again: for the current rows, or for another model's, over the trained base.
    """
    (V, E), (R, width) = table_VE.shape, base_RE.shape
    if nonzeros > R or width != E:
        raise InputError(f"{nonzeros} nonzeros cannot be chosen of a base of {R} x {width} for a table of {V} x {E}")
    base_RE = base_RE.detach().float()
    unit_RE = base_RE / base_RE.norm(dim=1, keepdim=True).clamp(min=1e-12)
    block = max(1, BLOCK_NUMBERS // R)
    parts = [_pursue(rows.float(), base_RE, unit_RE, nonzeros) for rows in table_VE.detach().split(block)]
    weight_Vk = torch.cat([weight for weight, _ in parts])
    index_Vk = torch.cat([index for _, index in parts])
    return CodedRows(base_RE, weight_Vk, index_Vk.to(index_type(R)))


def _pursue(rows_NE: Tensor, base_RE: Tensor, unit_RE: Tensor, nonzeros: int) -> tuple[Tensor, Tensor]:
    """Weights and indices [N, k] of a block of rows."""
    left_NE = rows_NE
    chosen_Nj = rows_NE.new_zeros(len(rows_NE), 0, dtype=torch.int64)
    weight_Nj = rows_NE.new_zeros(len(rows_NE), 0)
    # A ridge, because two base rows may be nearly parallel; relative to their size.
    ridge = 1e-6 * float(base_RE.square().sum(1).mean().clamp(min=1e-12))
    for number in range(1, nonzeros + 1):
        score_NR = (left_NE @ unit_RE.T).abs_()
        score_NR.scatter_(1, chosen_Nj, -1.0)
        chosen_Nj = torch.cat([chosen_Nj, score_NR.argmax(1, keepdim=True)], 1)
        picked_NjE = base_RE[chosen_Nj]
        gram_Njj = picked_NjE @ picked_NjE.transpose(1, 2) + ridge * torch.eye(number)
        weight_Nj = torch.linalg.solve(gram_Njj, (picked_NjE @ rows_NE.unsqueeze(2))).squeeze(2)
        left_NE = rows_NE - (weight_Nj.unsqueeze(1) @ picked_NjE).squeeze(1)
    # A row may need fewer nonzeros than it has; none may be undefined.
    weight_Nj = torch.nan_to_num(weight_Nj, nan=0.0, posinf=0.0, neginf=0.0)
    strongest = weight_Nj.abs().argsort(dim=1, descending=True, stable=True)
    return weight_Nj.gather(1, strongest), chosen_Nj.gather(1, strongest)


def _solve_base(table_VE: Tensor, code: CodedRows, frequency_V: Tensor) -> Tensor:
    """Base rows that minimize the weighted squared error for given nonzeros, by conjugate gradients."""
    from scipy import sparse

    V, nonzeros_per_row = code.weight_Vk.shape
    R = len(code.base_RE)
    index_Vk, root_V1 = code.index_Vk.long(), frequency_V.sqrt().unsqueeze(1)
    data = (code.weight_Vk * root_V1).reshape(-1).numpy()
    nonzeros_VR = sparse.csr_matrix(
        (data, (np.repeat(np.arange(V), nonzeros_per_row), index_Vk.reshape(-1).numpy())), shape=(V, R)
    )
    back_RV = nonzeros_VR.T.tocsr()
    ridge = 1e-6 * float(frequency_V.mean())
    base_RE = code.base_RE.numpy()

    def normal(value_RE: np.ndarray) -> np.ndarray:
        return np.asarray(back_RV @ (nonzeros_VR @ value_RE) + ridge * value_RE)

    # The ridge pulls towards the current rows, so that a row with little weight stays where it is.
    left_RE = back_RV @ (table_VE * root_V1).numpy() - normal(base_RE) + ridge * base_RE
    step_RE, size_E = left_RE, (left_RE**2).sum(0)
    for _ in range(BASE_STEPS):
        moved_RE = normal(step_RE)
        alpha_E = size_E / np.maximum((step_RE * moved_RE).sum(0), 1e-30)
        base_RE = base_RE + alpha_E * step_RE
        left_RE = left_RE - alpha_E * moved_RE
        before_E, size_E = size_E, (left_RE**2).sum(0)
        step_RE = left_RE + size_E / np.maximum(before_E, 1e-30) * step_RE
    return torch.from_numpy(base_RE.astype(np.float32))


def _distinct(rows_VE: Tensor, worth_V: Tensor, count: int) -> Tensor:
    """Indices of at most `count` rows of the highest worth, without near repetitions of an earlier one."""
    first = worth_V.argsort(dim=0, descending=True, stable=True)[:count]
    unit_NE = F.normalize(rows_VE[first], dim=1)
    block = max(1, BLOCK_NUMBERS // max(1, len(first)))
    repeats = []
    for start in range(0, len(first), block):
        near_NM = (unit_NE[start : start + block] @ unit_NE.T).abs_() > NEARLY_EQUAL
        earlier_NM = torch.arange(len(first)) < torch.arange(start, start + len(near_NM)).unsqueeze(1)
        repeats.append((near_NM & earlier_NM).any(1))
    return first[~torch.cat(repeats)] if repeats else first


def _start_base(rows_VE: Tensor, weight_V: Tensor, base_rows: int) -> Tensor:
    """Rows of large weight that no earlier one is close to, chosen in a few batches."""
    error_V = weight_V * rows_VE.square().sum(1)
    free_V = torch.ones(len(rows_VE), dtype=torch.bool)
    picked = torch.zeros(0, dtype=torch.int64)
    while len(picked) < base_rows:
        missing_rows = base_rows - len(picked)
        # Half of the missing rows, then half of the rest: later choices see the error that earlier ones leave.
        left_V = torch.where(free_V, error_V, -1.0)
        new = _distinct(rows_VE, left_V, -(-missing_rows // 2))
        picked, free_V[new] = torch.cat([picked, new]), False
        unit_NE = F.normalize(rows_VE[new], dim=1)
        block = max(1, BLOCK_NUMBERS // len(new))
        for start in range(0, len(rows_VE), block):
            part = slice(start, start + block)
            nearest_N = (rows_VE[part] @ unit_NE.T).square_().amax(1)
            left_N = weight_V[part] * (rows_VE[part].square().sum(1) - nearest_N).clamp(min=0)
            error_V[part] = torch.minimum(error_V[part], left_N)
    return rows_VE[picked].clone()


def row_weights(frequency_V: Tensor | None, rows: int) -> Tensor:
    """Weights of a table's rows, float64 [V]: their frequencies, or 1 where none are given."""
    weight_V = torch.ones(rows) if frequency_V is None else frequency_V.detach()
    if weight_V.shape != (rows,) or bool((weight_V < 0).any()) or float(weight_V.sum()) <= 0:
        raise InputError(f"frequencies must be {rows} non-negative numbers that are not all zero")
    return weight_V.double()


def fit_code(
    table_VE: Tensor,
    base_rows: int,
    nonzeros: int,
    frequency_V: Tensor | None = None,
    *,
    rounds: int = ROUNDS,
) -> CodedRows:
    """A code of `base_rows` base rows and `nonzeros` nonzeros per token, fitted to a dense table; deterministic.

    The base starts from rows of large weight that differ, so that the most frequent tokens keep a row of their own.
    """
    check_code(base_rows, nonzeros, len(table_VE))
    weight_V = row_weights(frequency_V, len(table_VE)).float()
    # Frequencies span six orders of magnitude; a token below a hundredth of the mean would not be fitted.
    weight_V = weight_V / weight_V.mean() + 0.01
    rows_VE = table_VE.detach().float()
    code = choose_nonzeros(rows_VE, _start_base(rows_VE, weight_V, base_rows), nonzeros)
    best, least = code, float("inf")
    for _ in range(rounds + 1):
        error_V = weight_V * (code.rows() - rows_VE).square().sum(1)
        if (loss := float(error_V.sum())) < least:
            best, least = code, loss
        base_RE = _solve_base(rows_VE, code, weight_V)
        # An unused base row becomes the row with the largest error.
        used_R = torch.zeros(base_rows, dtype=torch.bool)
        used_R[code.index_Vk.long().unique()] = True
        spare = (~used_R).nonzero().squeeze(1)
        missed = _distinct(rows_VE, error_V, len(spare))
        base_RE[spare[: len(missed)]] = rows_VE[missed]
        code = choose_nonzeros(rows_VE, base_RE, nonzeros)
    return best


def kept_variance(table_VE: Tensor, found_VE: Tensor, frequency_V: Tensor | None = None) -> float:
    """Share of the (weighted) squared norm of a table that an approximation keeps; 1 is exact."""
    weight_V = row_weights(frequency_V, len(table_VE))
    lost = (weight_V * (table_VE - found_VE).double().square().sum(1)).sum()
    return float(1 - lost / (weight_V * table_VE.double().square().sum(1)).sum())
