"""Nearest neighbours by cosine, and the margin scores of bitext mining.

Shapes: N queries, M candidates, D width, K neighbours, B rows of a block, C mined candidate pairs. Every search is
exact and works in blocks: memory is the two tables, the N x K results and one block.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from msdc.errors import InputError, MsdcError
from msdc.progress import track

# numbers of one block of similarities (256 MiB)
BLOCK_NUMBERS = 64_000_000


@contextlib.contextmanager
def _threads(count: int | None) -> Iterator[None]:
    """Torch on `count` threads, without gradients; None leaves the number unchanged."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        with torch.inference_mode():
            yield
    finally:
        torch.set_num_threads(before)


def nearest(queries_ND: np.ndarray, candidates_MD: np.ndarray, *, threads: int | None = None) -> np.ndarray:
    """The candidate of highest inner product for each query, int64 [N]; of equal ones the first."""
    import torch

    queries, candidates_DM = torch.from_numpy(queries_ND), torch.from_numpy(candidates_MD).T
    with _threads(threads):
        blocks = queries.split(max(1, BLOCK_NUMBERS // len(candidates_MD)))
        return torch.cat([(block @ candidates_DM).argmax(1) for block in blocks]).numpy()


def both_ways(
    source_ND: np.ndarray, target_MD: np.ndarray, k: int, *, threads: int | None = None, progress: bool = False
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Nearest neighbours in both directions from one product: (similarity [N, K], index [N, K], [M, K], [M, K]).

    Two searches would compute every inner product twice. Here each block of rows is multiplied once: its rows give the
    neighbours of the sources, and only columns whose best entry exceeds the target's current K-th are searched for the
    targets. In block t that is a share of about K / t, so the second direction costs little.
    """
    import torch

    if not len(target_MD) or not len(source_ND) or source_ND.shape[1] != target_MD.shape[1]:
        raise InputError(f"a search needs a query, a candidate and one width; got {source_ND.shape}, {target_MD.shape}")
    count, others = len(source_ND), len(target_MD)
    k_row, k_column = min(k, others), min(k, count)
    step = max(k_column, min(count, BLOCK_NUMBERS // others))
    source, target_DM = torch.from_numpy(source_ND), torch.from_numpy(target_MD).T
    row_values, row_index = torch.empty(count, k_row), torch.empty(count, k_row, dtype=torch.int64)
    best_MK = torch.full((others, k_column), -torch.inf)
    best_index_MK = torch.zeros(others, k_column, dtype=torch.int64)
    block = torch.empty(step, others)
    with _threads(threads):
        starts = range(0, count, step)
        for start in track(starts, "search both ways", enabled=progress and len(starts) > 1):
            rows = slice(start, min(start + step, count))
            similarity_BM = torch.mm(source[rows], target_DM, out=block[: rows.stop - rows.start])
            torch.topk(similarity_BM, k_row, dim=1, out=(row_values[rows], row_index[rows]))
            better = torch.nonzero(similarity_BM.amax(0) > best_MK[:, -1]).squeeze(1)
            if len(better):
                best = similarity_BM[:, better].T.topk(min(k_column, len(similarity_BM)), dim=1)
                values = torch.cat([best_MK[better], best.values], dim=1)
                index = torch.cat([best_index_MK[better], best.indices + start], dim=1)
                best_MK[better], order = values.topk(k_column, dim=1)
                best_index_MK[better] = index.gather(1, order)
    return row_values.numpy(), row_index.numpy(), best_MK.numpy(), best_index_MK.numpy()


def gold_ranks(
    queries_ND: np.ndarray, candidates_MD: np.ndarray, gold: Sequence[Sequence[int]], *, threads: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """For each query, how many candidates are more similar than its best gold one, and how many others equally similar.

    Args:
        queries_ND, candidates_MD: rows of length 1.
        gold: of each query the rows of its gold candidates, at least one.
    """
    import torch

    queries, candidates_DM = torch.from_numpy(queries_ND), torch.from_numpy(candidates_MD).T
    above_N, level_N = np.zeros(len(queries_ND), np.int64), np.zeros(len(queries_ND), np.int64)
    step = max(1, BLOCK_NUMBERS // 4 // len(candidates_MD))
    with _threads(threads):
        for start in range(0, len(queries_ND), step):
            similarity_BM = (queries[start : start + step] @ candidates_DM).numpy()
            # one row at a time: numpy counts a boolean vector many times faster than along an axis
            for row, similarity_M in enumerate(similarity_BM, start=start):
                gold_G = similarity_M[list(gold[row])]
                best = gold_G.max()
                above_N[row] = np.count_nonzero(similarity_M > best)
                level_N[row] = np.count_nonzero(similarity_M == best) - np.count_nonzero(gold_G == best)
    return above_N, level_N


# kind -> (similarity s, mean m of both sides' neighbours) -> score: MKD section 4.2 (Artetxe and Schwenk 2019)
MARGINS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "ratio": lambda s, m: s / m, "distance": lambda s, m: s - m, "absolute": lambda s, m: s
}  # fmt: skip


def mine(
    source_ND: np.ndarray,
    target_MD: np.ndarray,
    *,
    k: int = 4,
    kind: str = "ratio",
    threads: int | None = None,
    progress: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Margin-scored translation candidates from k nearest neighbours both ways (rows of length 1 expected).

    Candidates are the best target by margin of each source and the best source of each target. Best score first, a pair
    is kept while neither of its sides is taken; pairs found from both sides count once. Returns source rows [C], target
    rows [C] and scores [C].
    """
    if kind not in MARGINS:
        raise InputError(f"unknown margin {kind!r}; known margins: {', '.join(MARGINS)}")
    forward_NK, forward_index_NK, back_MK, back_index_MK = both_ways(
        source_ND, target_MD, k, threads=threads, progress=progress
    )
    if np.ptp(forward_NK) < 1e-6 and np.ptp(back_MK) < 1e-6:
        raise MsdcError("every sentence has the same vector: there are no nearest neighbours to mine")
    forward_mean_N, back_mean_M = forward_NK.mean(1), back_MK.mean(1)

    def best(similarity: np.ndarray, index: np.ndarray, own_mean: np.ndarray, other_mean: np.ndarray):  # type: ignore[no-untyped-def]
        scores = MARGINS[kind](similarity, (own_mean[:, None] + other_mean[index]) / 2)
        pick = scores.argmax(1)
        rows = np.arange(len(scores))
        return index[rows, pick], scores[rows, pick]

    target_N, forward_score_N = best(forward_NK, forward_index_NK, forward_mean_N, back_mean_M)
    source_M, back_score_M = best(back_MK, back_index_MK, back_mean_M, forward_mean_N)
    source = np.concatenate([np.arange(len(source_ND)), source_M])
    target = np.concatenate([target_N, np.arange(len(target_MD))])
    score = np.concatenate([forward_score_N, back_score_M])
    taken_source, taken_target, keep = bytearray(len(source_ND)), bytearray(len(target_MD)), []
    order = np.argsort(-score, kind="stable")
    for position, source_row, target_row in zip(
        order.tolist(), source[order].tolist(), target[order].tolist(), strict=True
    ):
        if not taken_source[source_row] and not taken_target[target_row]:
            taken_source[source_row] = taken_target[target_row] = 1
            keep.append(position)
    return source[keep], target[keep], score[keep]
