"""Fit a coded table to a dense one: base rows, and for every piece the few of them whose weighted sum is nearest.

Links are chosen by orthogonal matching pursuit (Pati et al. 1993) and the base by least squares given the links (the
method of optimal directions, Engan et al. 1999), in turn. Errors of frequent pieces count more. The frequency-weighted
mean of all rows needs no links: it is the same for every token and moves into the positions (`fit_student`).

Shapes: V pieces, R base rows, k links per piece, E width of a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from msdc.compress.student.coded_table import index_type
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.shapes import CODE, INDEX, POSITION, TABLE, index_bytes
from msdc.compress.student.to_transformers import decode
from msdc.errors import InputError

ROUNDS = 4
# Scores of a block of pieces against all base rows are held at once: 64 MiB.
BLOCK_NUMBERS = 2**24
# Steps of the conjugate gradients that solve for the base; each round starts where the one before ended.
BASE_STEPS = 12
# Cosine from which two rows of the table count as one where the base starts.
NEARLY_EQUAL = 0.95


@dataclass(frozen=True)
class CodedRows:
    """Base rows [R, E], weights [V, k] and indices [V, k] (int16 or int32) of a coded table."""

    base_RE: Tensor
    weight_Vk: Tensor
    index_Vk: Tensor

    def rows(self) -> Tensor:
        """The table multiplied out, [V, E]."""
        return torch.nn.functional.embedding_bag(
            self.index_Vk.long(), self.base_RE, per_sample_weights=self.weight_Vk, mode="sum"
        )


def choose_links(table_VE: Tensor, base_RE: Tensor, links: int) -> CodedRows:
    """The code of every row over a fixed base: the support by orthogonal matching pursuit, weights by least squares.

    Between stages it chooses the support anew: rows as they are now, or another model's, over the trained base.

    Raises:
        InputError: more links than base rows, or rows of another width.
    """
    (V, E), (R, width) = table_VE.shape, base_RE.shape
    if links > R or width != E:
        raise InputError(f"{links} links cannot be chosen of a base of {R} x {width} for a table of {V} x {E}")
    base_RE = base_RE.detach().float()
    unit_RE = base_RE / base_RE.norm(dim=1, keepdim=True).clamp(min=1e-12)
    block = max(1, BLOCK_NUMBERS // R)
    parts = [_pursue(rows.float(), base_RE, unit_RE, links) for rows in table_VE.detach().split(block)]
    weight_Vk = torch.cat([weight for weight, _ in parts])
    index_Vk = torch.cat([index for _, index in parts])
    return CodedRows(base_RE, weight_Vk, index_Vk.to(index_type(R)))


def _pursue(rows_NE: Tensor, base_RE: Tensor, unit_RE: Tensor, links: int) -> tuple[Tensor, Tensor]:
    """Weights and indices [N, k] of a block of rows."""
    left_NE = rows_NE
    chosen_Nj = rows_NE.new_zeros(len(rows_NE), 0, dtype=torch.int64)
    weight_Nj = rows_NE.new_zeros(len(rows_NE), 0)
    # A ridge, because two base rows may be nearly parallel; relative to their size.
    ridge = 1e-6 * float(base_RE.square().sum(1).mean().clamp(min=1e-12))
    for number in range(1, links + 1):
        score_NR = (left_NE @ unit_RE.T).abs_()
        score_NR.scatter_(1, chosen_Nj, -1.0)
        chosen_Nj = torch.cat([chosen_Nj, score_NR.argmax(1, keepdim=True)], 1)
        picked_NjE = base_RE[chosen_Nj]
        gram_Njj = picked_NjE @ picked_NjE.transpose(1, 2) + ridge * torch.eye(number)
        weight_Nj = torch.linalg.solve(gram_Njj, (picked_NjE @ rows_NE.unsqueeze(2))).squeeze(2)
        left_NE = rows_NE - (weight_Nj.unsqueeze(1) @ picked_NjE).squeeze(1)
    # A row may need fewer links than it has; nothing of it may be undefined.
    weight_Nj = torch.nan_to_num(weight_Nj, nan=0.0, posinf=0.0, neginf=0.0)
    strongest = weight_Nj.abs().argsort(dim=1, descending=True, stable=True)
    return weight_Nj.gather(1, strongest), chosen_Nj.gather(1, strongest)


def _solve_base(table_VE: Tensor, code: CodedRows, frequency_V: Tensor) -> Tensor:
    """Base rows that minimize the weighted squared error for given links: conjugate gradients, all columns at once."""
    V, k = code.weight_Vk.shape
    R = len(code.base_RE)
    index_Vk, root_V1 = code.index_Vk.long(), frequency_V.sqrt().unsqueeze(1)
    data = (code.weight_Vk * root_V1).reshape(-1).numpy()
    links_VR = sparse.csr_matrix((data, (np.repeat(np.arange(V), k), index_Vk.reshape(-1).numpy())), shape=(V, R))
    back_RV = links_VR.T.tocsr()
    ridge = 1e-6 * float(frequency_V.mean())
    base_RE = code.base_RE.numpy()

    def normal(value_RE: np.ndarray) -> np.ndarray:
        return np.asarray(back_RV @ (links_VR @ value_RE) + ridge * value_RE)

    # The ridge pulls towards the rows as they are, so that a row which hardly matters does not wander off.
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
    """Numbers of at most `count` rows of the highest worth, without those that nearly repeat an earlier one."""
    first = worth_V.argsort(dim=0, descending=True, stable=True)[:count]
    unit_NE = torch.nn.functional.normalize(rows_VE[first], dim=1)
    block = max(1, BLOCK_NUMBERS // max(1, len(first)))
    repeats = []
    for start in range(0, len(first), block):
        near_NM = (unit_NE[start : start + block] @ unit_NE.T).abs_() > NEARLY_EQUAL
        earlier_NM = torch.arange(len(first)) < torch.arange(start, start + len(near_NM)).unsqueeze(1)
        repeats.append((near_NM & earlier_NM).any(1))
    return first[~torch.cat(repeats)] if repeats else first


def _start_base(rows_VE: Tensor, weight_V: Tensor, base_rows: int) -> Tensor:
    """Rows of the table that weigh much and that none before is near to, chosen in a few batches."""
    error_V = weight_V * rows_VE.square().sum(1)
    free_V = torch.ones(len(rows_VE), dtype=torch.bool)
    picked = torch.zeros(0, dtype=torch.int64)
    while len(picked) < base_rows:
        wanted = base_rows - len(picked)
        # Half of what is wanted, then half of the rest: later ones are chosen knowing what the earlier ones miss.
        left_V = torch.where(free_V, error_V, -1.0)
        new = _distinct(rows_VE, left_V, -(-wanted // 2))
        picked, free_V[new] = torch.cat([picked, new]), False
        unit_NE = torch.nn.functional.normalize(rows_VE[new], dim=1)
        block = max(1, BLOCK_NUMBERS // len(new))
        for start in range(0, len(rows_VE), block):
            part = slice(start, start + block)
            nearest_N = (rows_VE[part] @ unit_NE.T).square_().amax(1)
            left_N = weight_V[part] * (rows_VE[part].square().sum(1) - nearest_N).clamp(min=0)
            error_V[part] = torch.minimum(error_V[part], left_N)
    return rows_VE[picked].clone()


def fit_code(
    table_VE: Tensor,
    base_rows: int,
    links: int,
    frequency_V: Tensor | None = None,
    *,
    rounds: int = ROUNDS,
) -> CodedRows:
    """A code of `base_rows` base rows and `links` links per piece, fitted to a dense table; deterministic.

    The base starts from rows that weigh much and differ, so that the most frequent pieces keep a row of their own.

    Raises:
        InputError: a base that is no smaller than the table, links outside 2 to 5, or frequencies that do not fit.
    """
    V = len(table_VE)
    if not 2 <= links <= 5:
        raise InputError(f"{links} links: a coded row is a sum of 2 to 5 base rows")
    if not links <= base_rows < V:
        raise InputError(f"a base of {base_rows} rows is not within {links} to {V - 1}, below the table's {V}")
    weight_V = torch.ones(V) if frequency_V is None else frequency_V.float()
    if weight_V.shape != (V,) or bool((weight_V < 0).any()) or float(weight_V.sum()) <= 0:
        raise InputError(f"frequencies must be {V} non-negative numbers that are not all zero")
    # Frequencies span six orders of magnitude; below a hundredth of the mean a piece would not be fitted at all.
    weight_V = weight_V / weight_V.mean() + 0.01
    rows_VE = table_VE.detach().float()
    code = choose_links(rows_VE, _start_base(rows_VE, weight_V, base_rows), links)
    best, least = code, float("inf")
    for _ in range(rounds + 1):
        error_V = weight_V * (code.rows() - rows_VE).square().sum(1)
        if (loss := float(error_V.sum())) < least:
            best, least = code, loss
        base_RE = _solve_base(rows_VE, code, weight_V)
        # A base row that no piece uses becomes the row that is missed most.
        used_R = torch.zeros(base_rows, dtype=torch.bool)
        used_R[code.index_Vk.long().unique()] = True
        spare = (~used_R).nonzero().squeeze(1)
        missed = _distinct(rows_VE, error_V, len(spare))
        base_RE[spare[: len(missed)]] = rows_VE[missed]
        code = choose_links(rows_VE, base_RE, links)
    return best


def kept_variance(table_VE: Tensor, found_VE: Tensor, frequency_V: Tensor | None = None) -> float:
    """Share of the (weighted) squared norm of a table that an approximation keeps; 1 is exact."""
    weight_V = torch.ones(len(table_VE)) if frequency_V is None else frequency_V
    lost = (weight_V.double() * (table_VE - found_VE).double().square().sum(1)).sum()
    return float(1 - lost / (weight_V.double() * table_VE.double().square().sum(1)).sum())


@torch.no_grad()
def fit_student(
    student: Student, base_rows: int, links: int, frequency_V: Tensor | None = None, *, rounds: int = ROUNDS
) -> tuple[Student, float]:
    """`student` with its table coded, and the kept share of the (weighted) variance of the rows around their mean.

    A code that `student` has already is fitted anew.

    Raises:
        InputError: as `fit_code`.
    """
    plain = decode(student)
    config = plain.config
    state = dict(plain.state_dict())
    table_VE = state[TABLE].float()
    weight_V = torch.ones(len(table_VE)) if frequency_V is None else frequency_V.float()
    mean_E = (weight_V / weight_V.sum()) @ table_VE
    code = fit_code(table_VE - mean_E, base_rows, links, frequency_V, rounds=rounds)
    kept = kept_variance(table_VE - mean_E, code.rows(), frequency_V)
    project = plain.embedding.project if config.place == "word" else None
    # Every token has a position: what all rows share is added there, behind the map where it comes first.
    state[POSITION] = state[POSITION] + (mean_E if project is None else project.weight @ mean_E)
    state |= {TABLE: code.base_RE, CODE: code.weight_Vk, INDEX: code.index_Vk}
    with torch.device("meta"):
        coded = Student(StudentConfig(**{**config.model_dump(), "base_rows": base_rows, "links": links}))
    coded.load_state_dict(state, assign=True)
    return coded.eval(), kept


def code_bytes(vocabulary: int, base_rows: int, links: int, width: int) -> int:
    """Bytes of a coded table at int8: base rows with a scale each, weights, indices."""
    return base_rows * (width + 4) + vocabulary * links * (1 + index_bytes(base_rows))
