"""The papers' tables at small size: every row is a recipe, and what the page says of the difference of two rows."""

import gzip
import importlib
from types import SimpleNamespace

import numpy as np
import pytest

from msdc.distill.catalog import load_recipe
from msdc.loading import load_encoder

ITEMS = 400


def results(papers, row, right):
    """One result per seed whose first `right[seed]` items are right, shuffled in the same way in every row."""
    order = np.random.default_rng(0).permutation(ITEMS)
    row_results = []
    for seed, count in enumerate(right):
        answers = (order < count).astype(np.float64)
        raw = {"table": "lxs", "row": row, "seed": seed, "scores": {"XSR en-de": 100 * answers.mean()}}
        row_results.append(papers.RowResult(raw, {"XSR en-de": answers}))
    return row_results


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ((300, 310, 305), (200, 190, 195), "separated, above, corrected p < 0.001, as in the paper (+0.4)"),
        ((300, 310, 305), (320, 330, 325), "separated, below, corrected p < 0.001, against the paper (+0.4)"),
        ((200, 202, 199), (200, 200, 200), "not separated, corrected p 0."),
        ((340, 190, 260), (200, 200, 200), "not separated, corrected p 0."),  # sure in its items, not in its seeds
    ],
)
def test_only_a_difference_beyond_its_spread_of_seeds_and_items_is_separated(first, second, message):
    papers, small_tables = importlib.import_module("papers"), importlib.import_module("small_tables")
    measure = small_tables.Measure("XSR en-de", ("XSR en-de",), "xsr")
    first_rows, second_rows = results(papers, "a", first), results(papers, "b", second)
    difference = papers.difference(first_rows, second_rows, measure, {"XSR en-de": None})
    assert difference.mean == pytest.approx(100 * (np.mean(first) - np.mean(second)) / ITEMS)
    assert papers.verdict(difference, difference.p_value, 0.4).startswith(message)
    assert (difference.p_value < 0.05) == (not difference.low <= 0 <= difference.high)
    assert difference.low < difference.mean < difference.high
    assert difference.least > (difference.high - difference.low) / 2


def test_orderings_are_corrected_for_their_number():
    """Holm against the definition: the smallest of k is multiplied by k, the next by k - 1, and none falls again."""
    papers = importlib.import_module("papers")
    assert papers.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert papers.holm([0.9, 0.8]) == [1.0, 1.0]
    assert papers.holm([0.04]) == [0.04]
    # Studies of no difference at all: without a correction a page of twenty orderings claims one of them in most.
    draw = np.random.default_rng(3)
    pages = draw.uniform(size=(2000, 20))
    assert 0.03 < np.mean([min(papers.holm(page)) < 0.05 for page in pages]) < 0.07 < (pages.min(1) < 0.05).mean()


def test_what_is_not_judged_is_not_counted():
    """Orderings of rows on the floor, or of too few seeds, neither claim anything nor correct the others."""
    papers, small_tables = importlib.import_module("papers"), importlib.import_module("small_tables")
    lxs, gold = small_tables.LXS, dict.fromkeys(small_tables.LXS.sets)
    row_results = []
    for row, right in (("ugt-align", (300, 301, 302)), ("ugt", (20, 22, 21)), ("xtr", (4, 5, 6)), ("smlm", (30, 31))):
        for row_result in results(papers, row, right):
            answers = dict.fromkeys(lxs.sets, row_result.answers["XSR en-de"])
            scores = dict.fromkeys(lxs.sets, row_result.raw["scores"]["XSR en-de"])
            row_results.append(papers.RowResult(row_result.raw | {"scores": scores}, answers))
    orderings = papers.orderings(lxs, row_results, gold)
    reasons = {tuple(row.name for row in ordering.rows): ordering.unjudged for ordering in orderings}
    assert not reasons["ugt-align", "ugt"]
    assert reasons["ugt", "xtr"] == "both below 10, not judged"
    assert reasons["ugt", "smlm"] == reasons["xtr", "smlm"] == "too few seeds, not judged"
    (judged,) = (ordering for ordering in orderings if not ordering.unjudged)
    lines = papers.ordering_lines(orderings)["lxs"]
    assert sum("corrected p" in line for line in lines) == 1
    assert len(lines) == len(orderings)
    assert papers.verdict(judged.estimate, judged.estimate.p_value, judged.published) in "".join(lines)


@pytest.mark.parametrize(("by_seed", "by_item"), [(1.0, 0.1), (0.1, 1.0), (0.5, 0.5)])
def test_the_interval_holds_the_true_mean_as_often_as_it_says(by_seed, by_item):
    """Studies drawn from known spreads of five seeds and of 100 items, with noise of each seed on each item."""
    papers = importlib.import_module("papers")
    draw, held, studies = np.random.default_rng(7), 0, 400
    for _ in range(studies):
        seeds_S, items_N = by_seed * draw.normal(size=5), 10 * by_item * draw.normal(size=100)
        values_SN = seeds_S[:, None] + items_N + draw.normal(size=(5, 100))
        picks_RN = draw.integers(0, 100, size=(200, 100))
        estimate = papers._estimate(values_SN.mean(1), [row_N[picks_RN].mean(1) for row_N in values_SN])
        held += estimate.low <= 0 <= estimate.high
    assert 0.91 < held / studies < 0.995


def test_retrieval_without_the_offset_of_a_language():
    """A text that is near every query wins by cosine; subtracting the means finds the answers again."""
    papers = importlib.import_module("papers")
    draw = np.random.default_rng(0)
    base_ND, mean_D = draw.normal(size=(60, 16)), 3.0 * np.eye(16)[0]
    table = {f"q{n}": row + mean_D for n, row in enumerate(base_ND)} | {"hub": mean_D}
    table |= {f"a{n}": row + 0.6 * draw.normal(size=16) for n, row in enumerate(base_ND)}
    store = SimpleNamespace(encode=lambda texts: np.array([table[text] for text in texts], np.float32))
    pairs = papers.Parallel("x", {"q": [f"q{n}" for n in range(60)], "a": [f"a{n}" for n in range(60)]}, [], [])
    queries_ND, candidates_MD = (
        papers.unit_rows(store.encode(side)) for side in (pairs.two_sides()[0], [*pairs.two_sides()[1], "hub"])
    )
    by_cosine = ((queries_ND @ candidates_MD.T).argmax(1) == np.arange(60)).mean()
    assert by_cosine < 0.6 < 0.75 < papers.found_without_offset(store, pairs, ["hub"]).mean()


def test_the_assistant_that_all_seeds_start_from(tmp_path, monkeypatch, parallel_tsv):
    small_tables = importlib.import_module("small_tables")
    monkeypatch.setattr(small_tables, "ASSISTANT", {"train": 400, "sentences_per_language": 300})
    rows = [line.split("\t") for line in parallel_tsv.read_text(encoding="utf-8").splitlines()[1:]]
    (tmp_path / "tatoeba").mkdir()
    for column, code in ((1, "de"), (2, "es")):
        pairs = "".join(f"{row[0]}\t{row[column]}\n" for row in rows)
        (tmp_path / f"tatoeba/tatoeba.en-{code}.tsv.gz").write_bytes(gzip.compress(pairs.encode()))
    folder = small_tables.assistant_folder(tmp_path / "work", tmp_path)
    assert load_encoder(folder).encode(["Ein Hund", "un perro"]).shape == (2, 384)
    assert small_tables.assistant_folder(tmp_path / "work", tmp_path) == folder


def test_language_bias_is_the_pool_minus_the_mean_of_its_sets():
    """Sets that rank alike but whose cosines are offset: each is perfect, the pool is not."""
    papers, small_tables = importlib.import_module("papers"), importlib.import_module("small_tables")
    draw, names = np.random.default_rng(2), ("a", "b")
    gold = {name: draw.uniform(0, 5, 200) for name in names}
    apart = {name: gold[name] / 5 + shift for name, shift in zip(names, (0.0, 0.8), strict=True)}
    measure = small_tables.Measure("bias", names, pooled=True)
    raw = {"table": "t", "row": "r", "seed": 1, "scores": dict.fromkeys(names, 100.0)}
    shifted, unshifted = papers.RowResult(raw, apart), papers.RowResult(raw, gold)
    pool = papers.spearman(np.concatenate(list(apart.values())), np.concatenate(list(gold.values())))
    assert shifted.value(measure, gold) == pytest.approx(pool - 100)
    assert pool < 80
    assert unshifted.value(measure, gold) == pytest.approx(0, abs=1e-9)
    bias_R = shifted.resampled(measure, gold)
    # Both terms are of one resample: the sets are perfect in each, so the spread is the pool's alone.
    assert bias_R.mean() == pytest.approx(pool - 100, abs=1.0)
    assert np.abs(unshifted.resampled(measure, gold)).max() < 1e-6


def test_rows_are_chosen_by_name():
    papers, small_tables = importlib.import_module("papers"), importlib.import_module("small_tables")
    tables = (small_tables.LXS, small_tables.DISTILCSE)
    assert papers.rows_to_train(tables, None)["lxs"] == list(small_tables.LXS.rows)
    chosen = papers.rows_to_train(tables, "ckd,smlm,kd")
    assert {table: [row.name for row in rows] for table, rows in chosen.items()} == {
        "lxs": ["smlm"],
        "distilcse": ["kd", "ckd"],
    }
    with pytest.raises(ValueError, match="no row nothing in lxs, distilcse"):
        papers.rows_to_train(tables, "kd,nothing")


def test_a_page_names_the_rows_that_were_not_trained():
    papers, small_tables = importlib.import_module("papers"), importlib.import_module("small_tables")
    lxs, row_results = small_tables.LXS, []
    for row, right in (("ugt-align-sim", (300, 301, 302)), ("ugt", (100, 101, 99))):
        for row_result in results(papers, row, right):
            answers = dict.fromkeys(lxs.sets, row_result.answers["XSR en-de"])
            scores = dict.fromkeys(lxs.sets, row_result.raw["scores"]["XSR en-de"])
            row_results.append(papers.RowResult(row_result.raw | {"scores": scores, "precision": "bfloat16"}, answers))
    text = papers.page((lxs,), row_results, dict.fromkeys(lxs.sets), dict.fromkeys(lxs.sets, ""))
    assert "Not trained: UGT+align; UGT+sim; XTR; SMLM; MLM; MLM+XTR." in text
    assert text.count("* **") == 1  # the only ordering of two trained rows


def test_every_row_is_a_recipe_and_every_ordering_names_rows():
    small_tables = importlib.import_module("small_tables")
    for table in small_tables.TABLES:
        for row in table.rows:
            if row.model is None:
                assert load_recipe(row.recipe, (), "anywhere").stages
        for first, second, *by in table.orderings:
            assert table.row(first) != table.row(second)
            assert table.measure(*by) in table.measures
    msd = small_tables.MSD
    assert msd.row("single-mse").paper("cross") == 71.1
    assert msd.row("single-mcl").paper("cross") is None
