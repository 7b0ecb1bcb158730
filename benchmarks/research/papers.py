"""The papers' tables at small size: several seeds per row, an interval on each score, a sentence per ordering.

    PYTHONPATH=benchmarks python benchmarks/research/papers.py --data DATA --write docs/results/lightweight.md --tables lxs   # WORK: runs/papers
    PYTHONPATH=benchmarks python benchmarks/research/papers.py --data DATA --work WORK --tables lxs --seeds 1,2 --write PAGE
    PYTHONPATH=benchmarks python benchmarks/research/papers.py --data DATA --work WORK --tables lxs --rows ugt,smlm   # two rows of the table
    PYTHONPATH=benchmarks python benchmarks/research/papers.py --data DATA --work WORK --no-run --write PAGE      # only write the page

Trains the rows of benchmarks/research/small_tables.py, seed by seed, and appends each to WORK/rows.jsonl, its answers on the
test sets to WORK/answers. Finished rows are not trained again, so a stopped run continues. No test set chooses
anything: checkpoints are chosen on held-out pairs and STSb dev.

The score of a row is the mean over its seeds. Its interval covers seeds and items: the variance of the mean over the
seeds, plus that over bootstrap resamples of the items (the same items for every row and seed), with Student's t at the
degrees of freedom of Satterthwaite. A difference uses the seeds that both rows have; it is separated if its p-value, by
Holm over all orderings of the page that are judged, is below 0.05. With fewer than three seeds, or with both rows below
the table's floor, nothing is claimed.

Shapes: N items or queries, M candidates, D width, R resamples.
"""

import functools
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from results_page import KeptRows, options_for, write_page
from results_page import table as markdown
from scipy.stats import t as student_t
from small_tables import TABLES, Measure, PaperTable, Row

from msdc.bench.accuracy.parallel import Parallel
from msdc.bench.accuracy.retrieval import XSR
from msdc.bench.accuracy.similarity import STS
from msdc.bench.accuracy.statistics import Items, resampled_scores, resampled_spearman
from msdc.bench.accuracy.task import AccuracyTask, Settings
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.distill.catalog import load_recipe
from msdc.distill.recipe import Recipe
from msdc.distill.run import Run
from msdc.encoders.encoder import Encoder
from msdc.errors import MsdcError
from msdc.loading import load_encoder
from msdc.scores import spearman, unit_rows
from msdc.text.scored_pairs import read_pairs
from msdc.text.text_files import iterate_lines

ANY_SCORE = (-np.inf, np.inf)
QUERIES = 2000  # of the paper's sentence retrieval
# name: file below the data folder, and how many of its pairs at most (evenly spread)
GRADED: dict[str, tuple[str, int | None]] = {
    "STS2017 en-en": ("sts2017/STS2017.en-en.tsv", None),
    "STS2017 es-es": ("sts2017/STS2017.es-es.tsv", None),
    "STS2017 es-en": ("sts2017/STS2017.es-en.tsv", None),
    "STSb en-de": ("stsb-crosslingual/STSb.en-de.test.tsv", 690),
    "STSb en-es": ("stsb-crosslingual/STSb.en-es.test.tsv", 690),
    "STSb test": ("stsb/sts-test.tsv.gz", None),
}
# name: whether the mean of each language is subtracted before the cosine
RETRIEVAL = {"XSR en-de": False, "XSR en-de, centred": True}
POOL = "opus-tatoeba-test/opus-tatoeba-test.en-de.tsv.gz"
# Text that the students of the retrieval table learn from, whole files: no query or candidate may be in it.
LEARNED = ("tatoeba/tatoeba.en-de.tsv.gz", "multi30k/multi30k.en-de.tsv.gz")


class TestSet(NamedTuple):
    """A task and what it scores; retrieval has no gold scores, since an answer is right or wrong by itself."""

    name: str
    note: str
    task: AccuracyTask
    content: Any
    gold_N: np.ndarray | None = None
    centred: bool = False

    def score(self, store: CachedEncoder) -> tuple[float, np.ndarray]:
        """Spearman or P@1 x 100, and the answers: cosine of each pair, or 1 where the translation is the nearest."""
        if self.centred:
            right_N = found_without_offset(store, *self.content)
            return 100.0 * float(right_N.mean()), right_N
        outcome = self.task.score(store, self.content, Settings(resamples=0, queries=QUERIES, threads=1))
        assert outcome.items is not None
        return float(outcome.scores[self.task.main]), outcome.items.values_N


def found_without_offset(store: CachedEncoder, pairs: Parallel, others: list[str]) -> np.ndarray:
    """1 where the best candidate is the translation, after subtracting the mean of each side."""
    queries, answers = pairs.two_sides()
    sides = (unit_rows(store.encode(side)) for side in (queries, [*answers, *others]))
    queries_ND, candidates_MD = (unit_rows(side - side.mean(0)) for side in sides)
    return ((queries_ND @ candidates_MD.T).argmax(1) == np.arange(len(queries))).astype(np.float64)


def plain(text: str) -> str:
    """Letters and digits in lower case: two texts that differ in punctuation only are equal."""
    letters = (
        c if unicodedata.category(c)[0] in "LMN" else " " for c in unicodedata.normalize("NFKC", text).casefold()
    )
    return " ".join("".join(letters).split())


def read_columns(path: Path) -> list[tuple[str, str]]:
    rows = (line.split("\t") for _, line in iterate_lines(path))
    return [(row[0], row[1]) for row in rows if len(row) >= 2]


def unseen_pairs(rows: list[tuple[str, str]], learned: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of which no side is in the learned text, each side once, so that every query has one answer."""
    seen_first = {plain(first) for first, _ in learned}
    seen_second = {plain(second) for _, second in learned}
    unseen = []
    for first, second in rows:
        first_plain, second_plain = plain(first), plain(second)
        if first_plain and second_plain and first_plain not in seen_first and second_plain not in seen_second:
            seen_first.add(first_plain)
            seen_second.add(second_plain)
            unseen.append((first, second))
    return unseen


@functools.cache
def read_set(name: str, data: Path) -> TestSet:
    if name in RETRIEVAL:
        learned = [row for part in LEARNED for row in read_columns(data / part)]
        queries, answers = map(list, zip(*unseen_pairs(read_columns(data / POOL), learned), strict=True))
        asked = queries[:QUERIES]
        pairs = Parallel(name, {"query": asked, "answer": answers[:QUERIES]}, list(range(1, len(asked) + 1)), [])
        note = f"P@1, {len(asked)} queries, {len(answers)} candidates"
        return TestSet(name, note, XSR, (pairs, answers[QUERIES:]), None, RETRIEVAL[name])
    file, limit = GRADED[name]
    graded = read_pairs(data / file, name, ANY_SCORE, skip_bad=True)
    graded = graded if limit is None else graded.spread(limit)
    return TestSet(name, f"Spearman x 100, {len(graded)} pairs", STS, graded, graded.gold_N)


RESAMPLES = 1000
SEED = 0
SEEDS = 3  # of an ordering of which anything is claimed: with fewer, their spread is hardly known
LEVEL = 0.05  # of all orderings of a page together
Gold = Mapping[str, np.ndarray | None]


class RowResult(NamedTuple):
    """One line of rows.jsonl, and the row's answers by test set."""

    raw: dict[str, Any]
    answers: dict[str, np.ndarray]

    @property
    def key(self) -> tuple[str, str, int]:
        return self.raw["table"], self.raw["row"], self.raw["seed"]

    def value(self, measure: Measure, gold: Gold) -> float:
        mean = float(np.mean([self.raw["scores"][name] for name in measure.sets]))
        if not measure.pooled:
            return mean
        answers, gold_values = (
            np.concatenate([by_set[name] for name in measure.sets]) for by_set in (self.answers, gold)
        )
        return spearman(answers, gold_values) - mean

    def resampled(self, measure: Measure, gold: Gold) -> np.ndarray:
        if measure.pooled:
            return self._resampled_pool(measure, gold)
        parts = []
        for name in measure.sets:
            gold_N = gold[name]
            items = Items(self.answers[name], gold_N)
            # A student that gives every pair of a resample the same cosine ranks nothing.
            parts.append(np.nan_to_num(resampled_scores([items], RESAMPLES, SEED)[0]))
        return np.mean(parts, axis=0)

    def _resampled_pool(self, measure: Measure, gold: Gold) -> np.ndarray:
        """The pool minus the mean of its sets, both on the same resample of each set."""
        generator, parts, start = np.random.default_rng(SEED), [], 0
        for name in measure.sets:
            wanted_N = gold[name]
            assert wanted_N is not None
            picks_RN = generator.integers(0, len(wanted_N), size=(RESAMPLES, len(wanted_N)))
            parts.append((self.answers[name], wanted_N, picks_RN, picks_RN + start))
            start += len(wanted_N)
        means = np.mean([resampled_spearman(*part[:3]) for part in parts], axis=0)
        values_N, wanted_N, _, picks_RN = (np.concatenate(columns, axis=-1) for columns in zip(*parts, strict=True))
        return np.nan_to_num(resampled_spearman(values_N, wanted_N, picks_RN) - means)


class Estimate(NamedTuple):
    """A number, its interval over seeds and items, its values by seed.

    `least` is what a single such comparison finds with a power of 80 %, `p` the two-sided p-value of zero.
    """

    mean: float
    low: float
    high: float
    by_seed: tuple[float, ...]
    least: float
    p_value: float


def _estimate(values: Sequence[float], resampled: Sequence[np.ndarray]) -> Estimate:
    """Seeds S and items are crossed: the mean's variance is at most s^2 / S of the seeds plus that of resampled items.

    The share of seed by item is in both terms, so the interval is a little too wide. Degrees of freedom: Satterthwaite
    1946, S - 1 for the seeds, those of a normal distribution for the items.
    """
    mean_R = np.mean(resampled, axis=0)
    items, count = float(np.var(mean_R, ddof=1)), len(values)
    seeds = float(np.var(values, ddof=1)) / count if count > 1 else 0.0
    total = items + seeds
    freedom = total**2 / (seeds**2 / (count - 1)) if seeds else np.inf
    error = np.sqrt(total)
    half, power = (float(student_t.ppf(level, freedom)) * error for level in (0.975, 0.8))
    mean = float(np.mean(values))
    p_value = 2 * float(student_t.sf(abs(mean) / error, freedom)) if error else float(mean == 0)
    return Estimate(mean, mean - half, mean + half, tuple(values), half + power, p_value)


def estimate(results: Sequence[RowResult], measure: Measure, gold: Gold) -> Estimate:
    return _estimate(
        [result.value(measure, gold) for result in results], [result.resampled(measure, gold) for result in results]
    )


def difference(
    first: Sequence[RowResult], second: Sequence[RowResult], measure: Measure, gold: Gold
) -> Estimate | None:
    """First minus second on the seeds that both have; None without any."""
    theirs = {result.key[2]: result for result in second}
    pairs = [(result, theirs[result.key[2]]) for result in first if result.key[2] in theirs]
    if not pairs:
        return None
    values = [result.value(measure, gold) - other.value(measure, gold) for result, other in pairs]
    return _estimate(
        values, [result.resampled(measure, gold) - other.resampled(measure, gold) for result, other in pairs]
    )


def holm(values: Sequence[float]) -> list[float]:
    """P-values corrected for their number, in the order given (Holm 1979)."""
    order = np.argsort(values)
    corrected = np.empty(len(values))
    steps = [(len(values) - rank) * values[index] for rank, index in enumerate(order)]
    corrected[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return corrected.tolist()


def verdict(estimate: Estimate, corrected: float, published: float | None) -> str:
    """The verdict on an ordering; `published` is the paper's difference, if it has both rows."""
    p_text = f"corrected p {corrected:.3f}" if corrected >= 0.001 else "corrected p < 0.001"
    if corrected >= LEVEL:
        return f"not separated, {p_text}" + ("" if published is None else f" (the paper: {published:+.1f})")
    sides = ("separated", "above" if estimate.mean > 0 else "below", p_text)
    if not published:
        return ", ".join((*sides, *["equal in the paper"] * (published == 0)))
    return ", ".join(
        (*sides, f"{'as in' if published * estimate.mean > 0 else 'against'} the paper ({published:+.1f})")
    )


class Ordering(NamedTuple):
    """Two rows of a table, their difference by one of its measures, and why nothing is claimed of it."""

    table: PaperTable
    rows: tuple[Row, Row]
    measure: Measure
    estimate: Estimate
    published: float | None
    unjudged: str

    def line(self, corrected: float) -> str:
        first_row, second_row = self.rows
        seeds = ", ".join(f"{value:+.1f}" for value in self.estimate.by_seed)
        verdict_text = self.unjudged or verdict(self.estimate, corrected, self.published)
        power = "" if self.unjudged else f" 80 % power: {self.estimate.least:.1f}."
        by = f" by {self.measure.name}" * (self.measure is not self.table.measures[0])
        return (
            f"* **{first_row.label}** against **{second_row.label}**{by}: {self.estimate.mean:+.1f} "
            f"[{self.estimate.low:+.1f}, {self.estimate.high:+.1f}], by seed {seeds}: {verdict_text}.{power}"
        )


def orderings(table: PaperTable, results: Sequence[RowResult], gold: Gold) -> list[Ordering]:
    """The planned orderings of a table of which both rows were measured."""
    planned = []
    for first, second, *by in table.orderings:
        rows, measure = (table.row(first), table.row(second)), table.measure(*by)
        both = [[result for result in results if result.key[:2] == (table.name, row.name)] for row in rows]
        paper = measure.paper or next(
            (table_measure.paper for table_measure in table.measures if table_measure.paper), ""
        )
        change = difference(both[0], both[1], measure, gold)
        if change is None:
            continue
        mine, theirs = (row.paper(paper) for row in rows)
        unjudged = ""
        if len(change.by_seed) < SEEDS:
            unjudged = "too few seeds, not judged"
        elif (
            max(np.mean([result.value(measure, gold) for result in row_results]) for row_results in both) < table.floor
        ):
            unjudged = f"both below {table.floor:g}, not judged"
        published = None if mine is None or theirs is None else mine - theirs
        planned.append(Ordering(table, rows, measure, change, published, unjudged))
    return planned


def ordering_lines(planned: Sequence[Ordering]) -> dict[str, list[str]]:
    """A line per ordering, by table; p-values are corrected over all that are judged."""
    corrected = iter(holm([ordering.estimate.p_value for ordering in planned if not ordering.unjudged]))
    lines: dict[str, list[str]] = {}
    for ordering in planned:
        lines.setdefault(ordering.table.name, []).append(ordering.line(1.0 if ordering.unjudged else next(corrected)))
    return lines


def _cell(estimate: Estimate) -> str:
    spread = f", {min(estimate.by_seed):.1f} to {max(estimate.by_seed):.1f}" if len(estimate.by_seed) > 1 else ""
    return f"{estimate.mean:.1f} [{estimate.low:.1f}, {estimate.high:.1f}]{spread}"


def _scores(table: PaperTable, by_row: Mapping[str, list[RowResult]], gold: Gold) -> str:
    heads = ["row", "seeds"]
    for measure in table.measures:
        heads += [f"paper: {measure.of}"] * bool(measure.paper) + [measure.name]
    lines = []
    for row in (row for row in table.rows if row.name in by_row):
        cells = [row.label, str(len(by_row[row.name]))]
        for measure in table.measures:
            if measure.paper:
                paper = row.paper(measure.paper)
                cells.append("" if paper is None else f"{paper:g}")
            cells.append(_cell(estimate(by_row[row.name], measure, gold)))
        lines.append(cells)
    return markdown(heads, lines)


def _section(
    table: PaperTable, results: Sequence[RowResult], lines: Sequence[str], gold: Gold, notes: Mapping[str, str]
) -> str:
    by_row: dict[str, list[RowResult]] = {}
    for result in sorted(results, key=lambda result: result.key):
        by_row.setdefault(result.key[1], []).append(result)
    missing = "; ".join(row.label for row in table.rows if row.name not in by_row)
    return "\n\n".join([
        f"## {table.title}",
        table.note,
        _scores(table, by_row, gold) + (f"\n\nNot trained: {missing}." if missing else ""),
        "Scored on: " + "; ".join(f"{name}: {notes[name]}" for name in table.sets) + ".",
        f"### Orderings, by {table.measures[0].name}",
        "\n".join(lines),
    ])  # fmt: skip


def page(tables: Sequence[PaperTable], results: Sequence[RowResult], gold: Gold, notes: Mapping[str, str]) -> str:
    """The page below its header; `notes` describe the test sets."""
    precision = sorted({result.raw["precision"] for result in results if "steps" in result.raw})
    lines = ordering_lines([ordering for table in tables for ordering in orderings(table, results, gold)])
    return "\n\n".join(
        [
            f"Trained in {', '.join(precision)} on one thread. These students are tiny and trained "
            "for at most 3,000 steps: compare orders, not scores; the papers used other data, sizes and test sets.",
            "A cell is the mean over seeds with the 95 % interval over seeds and test items, then the lowest and "
            "highest seed; orderings are corrected by Holm's method over the page. 80 % power: what four of five "
            "such comparisons would find.",
            *(
                _section(
                    table,
                    [result for result in results if result.key[0] == table.name],
                    lines.get(table.name, ()),
                    gold,
                    notes,
                )
                for table in tables
            ),
        ]
    )


def rows_to_train(tables: Sequence[PaperTable], names: str | None) -> dict[str, list[Row]]:
    """The rows of each table that `names`, separated by commas, contains; all without it.

    Raises:
        ValueError: a name is in none of the tables.
    """
    if names is None:
        return {table.name: list(table.rows) for table in tables}
    row_names = names.split(",")
    unknown = set(row_names) - {row.name for table in tables for row in table.rows}
    if unknown:
        raise ValueError(f"no row {', '.join(sorted(unknown))} in {', '.join(table.name for table in tables)}")
    return {table.name: [row for row in table.rows if row.name in row_names] for table in tables}


def train(row: Row, recipe: Recipe, folder: Path, runs: Path) -> tuple[Encoder, dict[str, Any]]:
    """Train a row in `folder`, or continue; stages that a run in `runs` shares are taken from there."""
    others = sorted(path.parent for path in runs.glob("*/recipe.yaml") if path.parent != folder)
    run = Run(recipe, folder, (folder / "recipe.yaml").is_file(), others)
    result = run.run()
    facts = {
        "steps": {stage.name: stage.steps for stage in recipe.stages},
        "precision": run.precision,
    }
    return load_encoder(result.student), facts


def answers_file(work: Path, row: dict[str, Any]) -> Path:
    return work / "answers" / f"{row['table']}-{row['row']}-{row['seed']}.npz"


def run_row(table: PaperTable, row: Row, seed: int, work: Path, data: Path, sets: list[TestSet]) -> dict[str, Any]:
    """Train and score one row with one seed; return its line of rows.jsonl."""
    folder = work / "runs" / f"{table.name}-{seed}"
    facts: dict[str, Any] = {}
    if row.model is not None:
        encoder = load_encoder(row.model(work, data))
    else:
        recipe = load_recipe(row.recipe, row.settings(table, work, data, seed), data)
        encoder, facts = train(row, recipe, folder / row.name, folder)
    store = CachedEncoder(encoder)
    scores_and_answers = {test_set.name: test_set.score(store) for test_set in sets}
    done = {
        "table": table.name,
        "row": row.name,
        "seed": seed,
        "scores": {name: score for name, (score, _) in scores_and_answers.items()},
        **facts,
    }
    file = answers_file(work, done)
    file.parent.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = {name: answers_N.astype(np.float32) for name, (_, answers_N) in scores_and_answers.items()}
    np.savez_compressed(file, **arrays)
    return done


def with_answers(rows: KeptRows, work: Path) -> list[RowResult]:
    """The rows of WORK/rows.jsonl with their answers; of a row that was measured twice, the later one."""
    latest = {(row["table"], row["row"], row["seed"]): row for row in rows}
    results = []
    for row in latest.values():
        with np.load(answers_file(work, row)) as stored:
            results.append(RowResult(row, {name: stored[name].astype(np.float64) for name in stored.files}))
    return results


def main() -> None:
    parser = options_for(__doc__, "papers")
    parser.add_argument("--data", type=Path, required=True, help="data folder (docs/guides/data.md)")
    parser.add_argument("--work", type=Path, default=Path("runs/papers"), help="folder of runs, rows and answers")
    parser.add_argument("--tables", default=",".join(table.name for table in TABLES), help="trained, and on the page")
    parser.add_argument("--rows", help="rows of these tables by name, trained and on the page; default: all")
    parser.add_argument("--seeds", default="1,2,3,4,5", help="default: 1 to 5")
    parser.add_argument("--no-run", action="store_true", help="train nothing, render the page only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored_rows = KeptRows(options.work / "rows.jsonl")
    tables = [table for table in TABLES if table.name in options.tables.split(",")]
    try:
        rows_by_table = rows_to_train(tables, options.rows)
    except ValueError as error:
        parser.error(f"--rows: {error}")
    for seed in () if options.no_run else map(int, options.seeds.split(",")):
        for table in tables:
            for row in (row for row in rows_by_table[table.name] if seed <= row.seeds):
                if stored_rows.has(table=table.name, row=row.name, seed=seed):
                    continue
                print(f"{table.name}, {row.name}, seed {seed}", file=sys.stderr, flush=True)
                sets = [read_set(name, options.data) for name in table.sets]
                try:
                    stored_rows.add(run_row(table, row, seed, options.work, options.data, sets))
                except MsdcError as error:
                    print(f"{table.name}, {row.name}, seed {seed}: {error}", file=sys.stderr, flush=True)
    results = [
        result
        for result in with_answers(stored_rows, options.work)
        if result.key[1] in [row.name for row in rows_by_table.get(result.key[0], ())]
    ]
    measured = [table for table in tables if any(result.key[0] == table.name for result in results)]
    read = {name: read_set(name, options.data) for table in measured for name in table.sets}
    gold = {name: test_set.gold_N for name, test_set in read.items()}
    notes = {name: test_set.note for name, test_set in read.items()}
    title = tables[0].title if len(tables) == 1 else "The papers' tables at small size"
    write_page(options.write, title, "students trained in these runs", page(measured, results, gold, notes),
               "torch transformers")  # fmt: skip


if __name__ == "__main__":
    main()
