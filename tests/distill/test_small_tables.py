"""The papers' tables at small size: what the page claims of two rows, and what their test sets may hold."""

import importlib

import numpy as np
import places
import pytest

ITEMS = 400


@pytest.fixture
def benchmark(monkeypatch):
    """A module of benchmarks/ by name, which imports its neighbours as scripts do."""
    monkeypatch.syspath_prepend(str(places.ROOT / "benchmarks"))
    return importlib.import_module


def results(small_page, row, seeds, right):
    """Rows of retrieval whose first `right[seed]` items are right, shuffled in the same way in every row."""
    order = np.random.default_rng(0).permutation(ITEMS)
    made = []
    for seed, count in zip(seeds, right, strict=True):
        answers = (order < count).astype(np.float64)
        raw = {"table": "lxs", "row": row, "seed": seed, "scores": {"XSR en-de": 100 * answers.mean()}}
        made.append(small_page.RowResult(raw, {"XSR en-de": answers}))
    return made


def compare(benchmark, first, second):
    small_page = benchmark("small_page")
    measure = benchmark("small_tables").Measure("XSR en-de", ("XSR en-de",), "xsr")
    one, other = (results(small_page, name, range(1, len(r) + 1), r) for name, r in (("a", first), ("b", second)))
    return small_page, small_page.difference(one, other, measure, {"XSR en-de": None})


def test_a_difference_beyond_its_interval_in_every_seed_is_separated(benchmark):
    small_page, found = compare(benchmark, (300, 310), (200, 190))
    assert found.mean == pytest.approx(27.5)
    assert found.low < 27.5 < found.high and found.separated
    assert small_page.verdict(found, 0.4) == "separated, above, as in the paper (+0.4)"
    assert small_page.verdict(found, -0.4) == "separated, above, against the paper (-0.4)"


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ((200, 201), (200, 200), "the interval holds zero"),
        ((320, 190), (200, 200), "the seeds do not agree"),
        ((320,), (200,), "in one seed only"),
    ],
)
def test_anything_less_is_not_separated(benchmark, first, second, why):
    small_page, found = compare(benchmark, first, second)
    said = small_page.verdict(found, 0.4)
    assert "not separated" in said and why in said


def test_every_row_is_a_recipe_and_every_ordering_names_rows(benchmark):
    small_tables = benchmark("small_tables")
    catalog = importlib.import_module("msdc.distill.catalog")
    for table in small_tables.TABLES:
        for row in table.rows:
            if row.model is None:
                assert catalog.load_recipe(row.recipe, (), "anywhere").stages
        for first, second in table.orderings:
            assert table.row(first) != table.row(second)
    msd = small_tables.MSD
    assert msd.row("single-mse").paper("cross") == 71.1 and msd.row("single-mcl").paper("cross") is None
