"""Word alignment against IBM Model 1 in plain loops."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from scipy import sparse

from msdc.distill import vocabulary_transfer
from msdc.distill.vocabulary_transfer import align, of_one_kind, with_spelling

P, W = 12, 9


def sentences(seed: int, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Sentence pairs in which new word p mostly stands for old word p % W."""
    generator = np.random.default_rng(seed)
    old = [sorted(set(generator.integers(0, W, generator.integers(1, 6)).tolist())) for _ in range(count)]
    new = [
        sorted({int(w + W * (generator.random() < 0.3)) % P for w in row if generator.random() < 0.9}) for row in old
    ]
    return new, old


def model_1(new, old, rounds, null, faint):
    """The same in loops: both directions from the same start, their geometric mean over a piece's sentences."""
    count, seen_new, seen_old = defaultdict(float), defaultdict(float), defaultdict(float)
    for n_row, o_row in zip(new, old, strict=True):
        for n in n_row:
            seen_new[n] += 1
            for o in o_row:
                count[n, o] += 1
        for o in o_row:
            seen_old[o] += 1
    start = {(n, o): c * c / (seen_new[n] * seen_old[o]) for (n, o), c in count.items()}
    best_new = {n: max(v for (m, _), v in start.items() if m == n) for n in seen_new if any(k[0] == n for k in start)}
    best_old = {o: max(v for (_, m), v in start.items() if m == o) for o in seen_old if any(k[1] == o for k in start)}
    start = {(n, o): v for (n, o), v in start.items() if v >= faint * best_new[n] or v >= faint * best_old[o]}

    def expected(by_old: bool) -> dict[tuple[int, int], float]:
        table, found = dict(start), dict(start)
        for _ in range(rounds):
            found = defaultdict(float)
            for n_row, o_row in zip(new, old, strict=True):
                for one in o_row if by_old else n_row:
                    links = [(n, one) for n in n_row] if by_old else [(one, o) for o in o_row]
                    links = [link for link in links if link in table]
                    total = sum(table[link] + null * 1e-3 for link in links)
                    for link in links:
                        found[link] += (table[link] + null * 1e-3) / total
            sums = defaultdict(float)
            for (n, o), value in found.items():
                sums[n if by_old else o] += value
            table = {(n, o): value / sums[n if by_old else o] for (n, o), value in found.items()}
        return found

    first, second = expected(True), expected(False)
    return {link: (first[link] * second[link]) ** 0.5 / seen_new[link[0]] for link in start}


@pytest.mark.parametrize("faint", [0.0, 0.02, 0.3])
@pytest.mark.parametrize("chunk", [7, 1000])
def test_alignment_is_model_1_over_the_candidates(monkeypatch, faint, chunk):
    monkeypatch.setattr(vocabulary_transfer, "FAINT", faint)
    new, old = sentences(3, 60)
    found = align(new, old, P, W, rounds=3, chunk=chunk, null=0.02).todense()
    wanted = np.zeros((P, W))
    for (n, o), value in model_1(new, old, 3, 0.02, faint).items():
        wanted[n, o] = value
    np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=1e-9)


def test_words_without_a_counterpart():
    found = align([[0], [], [2]], [[], [1], [0]], P, W)
    assert found.nnz == 1 and found[2, 0] > 0
    assert align([[0]], [[]], P, W).nnz == 0


def test_words_link_with_words_and_marks_with_marks():
    score = sparse.csr_matrix(np.array([[0.5, 0.4, 0.1], [0.2, 0.7, 0.1], [0.1, 0.1, 0.8], [0.3, 0.3, 0.4]]))
    left = of_one_kind(score, ["haus", ".", "7", None], ["house", "!", "17"]).toarray()
    assert left.tolist() == [[0.5, 0, 0], [0, 0.7, 0], [0, 0, 0.8], [0, 0, 0]]


def test_the_spelling_counts_as_half_a_sentence():
    weights = sparse.csr_matrix(np.array([[1.0, 0, 0], [0, 0, 0], [0, 1.0, 0]]))
    mixed = with_spelling(weights, np.array([4.5, 0, 9.0]), {0: [1, 2], 1: [2]}, worth=0.5).toarray()
    assert mixed == pytest.approx(np.array([[0.9, 0.05, 0.05], [0, 0, 1.0], [0, 1.0, 0]]))
    assert with_spelling(weights, np.ones(3), {}).toarray() == pytest.approx(weights.toarray())
