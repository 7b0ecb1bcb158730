"""Intervals and tests: against scipy, against all permutations, and for the rate of false alarms."""

import itertools

import numpy as np
import pytest
from scipy import stats

from msdc.bench.accuracy.statistics import Items, interval, paired_test, resampled_ranks, resampled_scores


def correlated(count: int, strength: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    gold = generator.integers(0, 26, size=count) / 5.0
    return strength * gold + generator.standard_normal(count), gold


def test_resampled_ranks_and_scores_are_scipys():
    generator = np.random.default_rng(0)
    values, gold = generator.standard_normal(30), generator.integers(0, 9, size=30).astype(float)
    picks = generator.integers(0, 30, size=(20, 30))
    for scores in (values, gold):
        assert np.array_equal(resampled_ranks(scores, picks), stats.rankdata(scores[picks], axis=-1))
    same = np.random.default_rng(7).integers(0, 30, size=(20, 30))
    expected = [100 * stats.spearmanr(values[pick], gold[pick]).statistic for pick in same]
    resampled = resampled_scores([Items(values, gold)], 20, 7)[0]
    assert np.allclose(resampled, expected, atol=1e-9)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(3)
    inside = 0
    for trial in range(200):
        right = (generator.random(150) < 0.7).astype(float)
        low, high = interval(Items(right), resamples=300, seed=trial)
        inside += low <= 70.0 <= high
    assert 180 <= inside <= 200


def test_interval_has_the_width_of_95_percent():
    """That of the normal distribution, for the mean of many items; one of 90 % is a sixth narrower."""
    values = np.random.default_rng(8).standard_normal(400)
    low, high = interval(Items(values), resamples=5000, seed=0)
    half = 100 * stats.norm.ppf(0.975) * values.std() / 400**0.5
    assert (low, high) == pytest.approx((100 * values.mean() - half, 100 * values.mean() + half), abs=0.06 * half)


def test_resamples_that_are_drawn_a_few_at_a_time_are_the_same(monkeypatch):
    """Of 80 items, three resamples at a time: neither their number nor a result depends on the memory."""
    items, other = Items(*correlated(80, 1.0, seed=4)), Items(correlated(80, 0.5, seed=5)[0], correlated(80, 1.0, 4)[1])
    together = resampled_scores([items, other], 50, 7), paired_test(items, other, 50, 7)
    monkeypatch.setattr("msdc.bench.accuracy.statistics.CHUNK_NUMBERS", 240)
    scores, test = resampled_scores([items, other], 50, 7), paired_test(items, other, 50, 7)
    assert scores.shape == (2, 50)
    assert np.array_equal(scores, together[0])
    assert test == together[1]
    assert test.p_value < 1


def test_seed_decides_and_nothing_else():
    items = Items(*correlated(80, 1.0, seed=4))
    assert interval(items, 200, seed=7) == interval(items, 200, seed=7)
    assert interval(items, 200, seed=7) != interval(items, 200, seed=8)
    assert interval(items, 0) is None
    assert interval(Items(np.ones(2)), 100) is None


def test_permutation_p_equals_all_permutations():
    first = np.array([1, 1, 1, 0, 1, 1, 0, 1, 1, 1], dtype=float)
    second = np.array([0, 1, 0, 0, 1, 0, 0, 1, 0, 1], dtype=float)
    observed = abs((first - second).mean())
    every = [abs((first - second) @ np.array(signs)) / 10 for signs in itertools.product((1, -1), repeat=10)]
    exact = np.mean([value >= observed - 1e-12 for value in every])
    result = paired_test(Items(first), Items(second), resamples=20_000, seed=0)
    assert result.p_value == pytest.approx(exact, abs=0.01)
    assert result.difference == pytest.approx(100 * (first - second).mean())


def test_false_alarms_are_as_rare_as_promised():
    alarms = 0
    for trial in range(150):
        generator = np.random.default_rng(trial)
        gold = generator.standard_normal(60)
        signal = gold + generator.standard_normal(60)
        first, second = signal + 0.5 * generator.standard_normal(60), signal + 0.5 * generator.standard_normal(60)
        alarms += paired_test(Items(first, gold), Items(second, gold), 200, trial).p_value < 0.05
    assert alarms <= 16


def test_a_real_difference_is_found_and_signed():
    generator = np.random.default_rng(5)
    gold = generator.standard_normal(300)
    good, bad = gold + 0.3 * generator.standard_normal(300), gold + 1.5 * generator.standard_normal(300)
    result = paired_test(Items(good, gold), Items(bad, gold), 500, 0)
    expected = 100 * (stats.spearmanr(good, gold).statistic - stats.spearmanr(bad, gold).statistic)
    assert result.difference == pytest.approx(expected, abs=1e-9)
    assert result.p_value < 0.01
    assert 0 < result.low < result.difference < result.high
    back = paired_test(Items(bad, gold), Items(good, gold), 500, 0)
    assert back.difference == pytest.approx(-expected)
    assert back.high < 0


def test_equal_models_do_not_differ_and_share_resamples():
    items = Items(*correlated(50, 1.0, seed=6))
    result = paired_test(items, items, 100, 0)
    assert (result.difference, result.low, result.high, result.p_value) == (0.0, 0.0, 0.0, 1.0)
    assert np.array_equal(*resampled_scores([items, items], 50, 0))


def test_other_items_are_refused():
    predicted, gold = correlated(20, 1.0, seed=7)
    items = Items(predicted, gold)
    for other in (Items(predicted), Items(predicted[:-1], gold[:-1]), Items(predicted, gold + 1)):
        with pytest.raises(ValueError, match="same"):
            paired_test(items, other, 10)


def test_the_permutation_draws_other_numbers_than_the_bootstrap(monkeypatch):
    """With one seed for both, interval and p would depend on each other by chance."""
    seeds = []
    generator = np.random.default_rng
    monkeypatch.setattr(np.random, "default_rng", lambda seed: (seeds.append(seed), generator(seed))[1])
    values = generator(1).normal(size=(2, 30))
    paired_test(Items(values[0]), Items(values[1]), 50, 7)
    assert len(seeds) == 2
    assert seeds[0] != seeds[1]
