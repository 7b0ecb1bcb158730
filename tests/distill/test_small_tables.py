"""The papers' tables at small size: what the page claims of two rows, and what their test sets may hold."""

import gzip
import importlib
import json

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


def test_rows_without_a_common_seed_are_not_compared(benchmark):
    small_page = benchmark("small_page")
    measure = benchmark("small_tables").Measure("XSR en-de", ("XSR en-de",))
    one, other = results(small_page, "a", [1], [10]), results(small_page, "b", [2], [20])
    assert small_page.difference(one, other, measure, {"XSR en-de": None}) is None


PAIRS = [(f"The {word} sleeps.", f"Der {word} schläft.") for word in ("dog", "cat", "bird", "horse", "mouse")]


def write_rows(work, sets):
    """Two LXS rows with two seeds each, as a run leaves them."""
    (work / "answers").mkdir(parents=True)
    lines = []
    for row, right in (("ugt", 1), ("ugt-sim", 4)):
        for seed in (1, 2):
            answers = {name: (np.arange(len(PAIRS)) < right).astype(np.float32) for name in sets}
            np.savez(work / "answers" / f"lxs-{row}-{seed}.npz", **answers)
            scores = {name: 100 * float(values.mean()) for name, values in answers.items()}
            facts = {"steps": {"teach": 300}, "pairs": 38400, "cpu_seconds": {"teach": 30.0}, "precision": "float32",
                     "shares": {"unified_generative": 1.0}, "minutes": 1.0, "cpu_minutes": 0.5,
                     "code": "msdc"}  # fmt: skip
            notes = dict.fromkeys(sets, "P@1")
            lines.append({"table": "lxs", "row": row, "seed": seed, "scores": scores, "notes": notes, **facts})
    (work / "rows.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_page_names_what_was_not_measured_and_quotes_the_papers_own_rows_only(
    benchmark, tmp_path, monkeypatch, capsys
):
    papers, small_sets, small_tables = (benchmark(name) for name in ("papers", "small_sets", "small_tables"))
    for name in (*small_sets.LEARNED, small_sets.RETRIEVAL["XSR en-de"][0]):
        file = tmp_path / "data" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        rows = [("Hello.", "Hallo.")] if name in small_sets.LEARNED else [("Hello!", "Hallo!"), *PAIRS]
        with gzip.open(file, "wt", encoding="utf-8") as handle:
            handle.write("".join(f"{first}\t{second}\n" for first, second in rows))
    write_rows(tmp_path / "work", small_tables.LXS.sets)
    arguments = ["--data", str(tmp_path / "data"), "--work", str(tmp_path / "work"), "--no-run"]
    monkeypatch.setattr("sys.argv", ["papers.py", *arguments])
    papers.main()
    text = capsys.readouterr().out
    assert "| UGT (SMLM+XTR) | 2 | 89.8 | 20.0 [" in text
    assert "| UGT+sim | 2 |  | 80.0 [" in text, "the paper has no such row"
    assert "**UGT+sim** against **UGT (SMLM+XTR)**: +60.0" in text
    assert "; the paper has no such pair" in text
    assert "Not measured: UGT+align, UGT+align+sim, XTR" in text
    assert "## MSD" not in text


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


def test_settings_of_absent_stages_are_left_out(benchmark, tmp_path):
    small_tables = benchmark("small_tables")
    row = small_tables.Row("one", "one", "msd:small+single-random", {"stages.contrast.steps": 7})
    settings = {"stages.teach-student.steps": 5, "stages.contrast.steps": 6}
    table = small_tables.Table("t", "t", "", (), (row,), (), lambda work, data: settings)
    chosen = row.settings(table, tmp_path, tmp_path, 3)
    assert chosen == ("stages.contrast.steps=7", "seed=3", "threads=1")


def test_no_pair_of_the_retrieval_pool_is_in_the_training_text(benchmark):
    learned = [("A dog runs.", "Ein Hund rennt."), ("Good night!", "Gute Nacht!")]
    rows = [("a dog runs", "Der Hund läuft."), ("Sleep well.", "gute nacht"), ("Hello there.", "Guten Tag."),
            ("Hello there!", "Hallo."), ("A cat.", "Guten Tag!"), ("A cat.", "Eine Katze.")]  # fmt: skip
    assert benchmark("small_sets").unseen_pairs(rows, learned) == [
        ("Hello there.", "Guten Tag."),
        ("A cat.", "Eine Katze."),
    ]


def test_a_query_counts_as_found_only_if_its_translation_is_the_nearest(benchmark):
    class Vectors:
        def encode(self, texts):
            known = {"q1": (1, 0), "q2": (0, 1), "q3": (1, 1), "a": (1, 0.1), "b": (0.2, 1), "c": (1, 0)}
            return np.array([known[text] for text in texts], dtype=np.float32)

    pool = benchmark("small_sets").RetrievalSet("pool", ["q1", "q2"], ["a", "b", "c"])
    assert pool.answers(Vectors()).tolist() == [0.0, 1.0]
    assert pool.score(pool.answers(Vectors())) == 50.0
