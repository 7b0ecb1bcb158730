"""Scored pairs where rows that do not fit are left out instead of being refused."""

import math

import pytest

from msdc.errors import InputError
from msdc.text.quickstart import GRADED_PAIRS
from msdc.text.scored_pairs import read_pairs

ANY = (-math.inf, math.inf)


def test_rows_that_do_not_fit_are_counted_and_the_first_is_named(tmp_path):
    path = tmp_path / "dev.tsv"
    path.write_text("a title\n9\ta\tb\nno score\tc\td\n-3\te\tf\n1\tg\t\n", encoding="utf-8")
    pairs = read_pairs(path, limits=ANY, skip_bad=True)
    assert (pairs.first, pairs.second, pairs.gold_N.tolist(), pairs.lines) == (["a", "e"], ["b", "f"], [9, -3], [2, 4])
    assert pairs.notes == ["2 rows left out; the first: line 3: the score 'no score' is not a number"]
    with pytest.raises(InputError, match="line 1: 1 tab-separated columns without a known layout"):
        read_pairs(path)


def test_graded_pairs_with_and_without_their_header(tmp_path):
    whole = read_pairs(GRADED_PAIRS)
    path = tmp_path / "bare.tsv"
    path.write_text("".join(GRADED_PAIRS.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    bare = read_pairs(path)
    assert (bare.first, bare.second, bare.subsets) == (whole.first, whole.second, whole.subsets)
    assert len(set(whole.subsets)) > 1


@pytest.mark.parametrize("limit", [1, 7, 50, 500])
def test_spread_takes_at_most_the_limit(limit):
    pairs = read_pairs(GRADED_PAIRS)
    some = pairs.spread(limit)
    assert 0 < len(some) <= limit and len(some.subsets) == len(some.lines) == len(some.gold_N) == len(some)
    assert some.first[0] == pairs.first[0]
