"""`near_pairs` finds the pairs that all cosines at once give, whatever the block."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import msdc
from msdc.errors import InputError, MsdcError


@given(
    rows=st.lists(st.tuples(*[st.integers(-3, 3)] * 3), max_size=30),
    cosine=st.sampled_from([-0.9, -0.35, 0.05, 0.55, 0.85, 1.0]),
    block=st.integers(1, 40),
)
def test_as_all_cosines_at_once(rows, cosine, block):
    """Small whole numbers, so that rows are equal, opposite, parallel and zero; no cosine of two is at an edge."""
    vectors_ND = np.array(rows, dtype=np.float64).reshape(len(rows), 3)
    pairs_P2, cosines_P = msdc.near_pairs(vectors_ND, cosine, block=block)
    norms_N = np.array([np.sqrt(row @ row) for row in vectors_ND])
    expected = {}
    for pair in itertools.combinations(range(len(rows)), 2):
        product = np.prod(vectors_ND[list(pair)], axis=0).sum() / (norms_N[list(pair)].prod() or 1.0)
        if product >= cosine - 1e-9:
            expected[pair] = product
    assert {tuple(pair) for pair in pairs_P2.tolist()} == set(expected)
    assert len(pairs_P2) == len(expected)
    assert cosines_P == pytest.approx([expected[tuple(pair)] for pair in pairs_P2.tolist()], abs=1e-5)
    assert (np.diff(cosines_P) <= 0).all()


@pytest.mark.parametrize(
    ("vectors", "cosine", "block", "message"),
    [
        (np.zeros(4), 0.5, 8, r"expected floats \[N, D\], got float64 \[4\]"),
        (np.zeros((2, 2), np.int8), 0.5, 8, "got int8"),
        (["a", "b"], 0.5, 8, "expected floats"),
        (np.zeros((2, 2)), 1.5, 8, "at most 1, got 1.5"),
        (np.zeros((2, 2)), float("nan"), 8, "got nan"),
        (np.zeros((2, 2)), 0.5, 0, "at least 1 row, got 0"),
    ],
)
def test_wrong_arguments(vectors, cosine, block, message):
    with pytest.raises(InputError, match=message):
        msdc.near_pairs(vectors, cosine, block=block)


def test_a_vector_with_nan_is_an_error():
    with pytest.raises(MsdcError, match="text 2 holds NaN"):
        msdc.near_pairs(np.array([[1.0, 0.0], [np.nan, 1.0]]), 0.5)
