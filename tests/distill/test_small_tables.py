"""The papers' tables at small size: every row is a recipe, and what the page says of the difference of two rows."""

import importlib

import numpy as np
import pytest

from msdc.distill.catalog import load_recipe

ITEMS = 400


def results(papers, row, right):
    """One result per seed whose first `right[seed]` items are right, shuffled in the same way in every row."""
    order = np.random.default_rng(0).permutation(ITEMS)
    made = []
    for seed, count in enumerate(right):
        answers = (order < count).astype(np.float64)
        raw = {"table": "lxs", "row": row, "seed": seed, "scores": {"XSR en-de": 100 * answers.mean()}}
        made.append(papers.RowResult(raw, {"XSR en-de": answers}))
    return made


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ((300, 310), (200, 190), "separated, above, as in the paper (+0.4)"),
        ((200, 201), (200, 200), "the interval holds zero"),
        ((320, 190), (200, 200), "the seeds do not agree"),
        ((320,), (200,), "in one seed only"),
    ],
)
def test_only_a_difference_beyond_its_interval_in_every_seed_is_separated(first, second, said):
    papers, small_tables = importlib.import_module("papers"), importlib.import_module("small_tables")
    measure = small_tables.Measure("XSR en-de", ("XSR en-de",), "xsr")
    one, other = results(papers, "a", first), results(papers, "b", second)
    found = papers.difference(one, other, measure, {"XSR en-de": None})
    assert found.mean == pytest.approx(100 * (np.mean(first) - np.mean(second)) / ITEMS)
    assert said in papers.verdict(found, 0.4) and found.separated == said.startswith("separated")
    assert found.low < found.mean < found.high


def test_every_row_is_a_recipe_and_every_ordering_names_rows():
    small_tables = importlib.import_module("small_tables")
    for table in small_tables.TABLES:
        for row in table.rows:
            if row.model is None:
                assert load_recipe(row.recipe, (), "anywhere").stages
        for first, second in table.orderings:
            assert table.row(first) != table.row(second)
    msd = small_tables.MSD
    assert msd.row("single-mse").paper("cross") == 71.1 and msd.row("single-mcl").paper("cross") is None
