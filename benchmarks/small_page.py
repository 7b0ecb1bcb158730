"""The page of benchmarks/papers.py: means over seeds with intervals, and what can be said of each ordering.

The score of a row is the mean over its seeds. Its interval is a bootstrap over the items of the test sets (the same
items for every row, seed and set of equal size); the seeds' least and largest score stand beside it. A difference is
taken on the seeds that both rows have. It counts as separated only if its interval leaves out zero and every seed has
the sign of the mean; with one seed nothing is separated.

Shapes: N items, R resamples.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from results_page import table as markdown
from small_tables import Measure, Table

from msdc.bench.accuracy.statistics import Items, percentiles, resampled_scores

RESAMPLES = 1000
SEED = 0
Gold = Mapping[str, np.ndarray | None]


class RowResult(NamedTuple):
    """One line of rows.jsonl, and the row's answers by test set."""

    raw: dict[str, Any]
    answers: dict[str, np.ndarray]

    @property
    def key(self) -> tuple[str, str, int]:
        """Table, row and seed."""
        return self.raw["table"], self.raw["row"], self.raw["seed"]

    def value(self, measure: Measure) -> float:
        """The score, x 100."""
        return float(np.mean([self.raw["scores"][name] for name in measure.sets]))

    def resampled(self, measure: Measure, gold: Gold) -> np.ndarray:
        """The score on every resample of the items [R]."""
        parts = []
        for name in measure.sets:
            gold_N = gold[name]
            items = Items(self.answers[name], gold_N)
            # A student that gives every pair of a resample the same cosine ranks nothing.
            parts.append(np.nan_to_num(resampled_scores([items], RESAMPLES, SEED)[0]))
        return np.mean(parts, axis=0)


class Estimate(NamedTuple):
    """A number with its interval over items and its values by seed."""

    mean: float
    low: float
    high: float
    by_seed: tuple[float, ...]

    @property
    def separated(self) -> bool:
        """Whether the sign of a difference is sure: outside the interval, in every seed, and not from one alone."""
        same = all(value > 0 for value in self.by_seed) or all(value < 0 for value in self.by_seed)
        return len(self.by_seed) > 1 and same and (self.low > 0 or self.high < 0)


def _estimate(values: Sequence[float], resampled: Sequence[np.ndarray]) -> Estimate:
    bounds = percentiles(np.mean(resampled, axis=0))
    assert bounds is not None
    return Estimate(float(np.mean(values)), *bounds, tuple(values))


def estimate(results: Sequence[RowResult], measure: Measure, gold: Gold) -> Estimate:
    """A row's score."""
    return _estimate([one.value(measure) for one in results], [one.resampled(measure, gold) for one in results])


def difference(
    first: Sequence[RowResult], second: Sequence[RowResult], measure: Measure, gold: Gold
) -> Estimate | None:
    """First minus second on the seeds that both have; None without any."""
    theirs = {one.key[2]: one for one in second}
    pairs = [(one, theirs[one.key[2]]) for one in first if one.key[2] in theirs]
    if not pairs:
        return None
    values = [one.value(measure) - other.value(measure) for one, other in pairs]
    return _estimate(values, [one.resampled(measure, gold) - other.resampled(measure, gold) for one, other in pairs])


def verdict(found: Estimate, published: float | None) -> str:
    """What can be said of an ordering; `published` is the paper's difference, where it has both rows."""
    inside = found.low <= 0 <= found.high
    side = "above" if found.mean > 0 else "below"
    if len(found.by_seed) < 2 and not inside:
        return f"{side} beyond the interval of the items, but in one seed only: not separated"
    if not found.separated:
        why = "the interval holds zero" if inside else "the seeds do not agree"
        return f"not separated, {why}" + ("" if published is None else f" (the paper: {published:+.1f})")
    if not published:
        return f"separated, {side}; " + ("equal in the paper" if published == 0 else "the paper has no such pair")
    return f"separated, {side}, {'as in' if published * found.mean > 0 else 'against'} the paper ({published:+.1f})"


def _cell(found: Estimate) -> str:
    spread = f", {min(found.by_seed):.1f} to {max(found.by_seed):.1f}" if len(found.by_seed) > 1 else ""
    return f"{found.mean:.1f} [{found.low:.1f}, {found.high:.1f}]{spread}"


def _scores(table: Table, by_row: Mapping[str, list[RowResult]], gold: Gold) -> str:
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


def _costs(table: Table, by_row: Mapping[str, list[RowResult]]) -> str:
    lines = []
    for row in table.rows:
        raws = [one.raw for one in by_row.get(row.name, ()) if "steps" in one.raw]
        if not raws:
            continue
        steps, last = raws[0]["steps"], list(raws[0]["steps"])[-1]
        cpu = [raw["cpu_seconds"][last] for raw in raws if last in raw["cpu_seconds"]]
        shares = {name: 100 * np.mean([raw["shares"][name] for raw in raws]) for name in raws[0]["shares"]}
        lines.append([
            row.label, " + ".join(map(str, steps.values())), f"{raws[0]['pairs']:,}",
            f"{np.mean(cpu):.0f}" if cpu else "-", f"{np.mean([raw['cpu_minutes'] for raw in raws]):.1f}",
            ", ".join(f"{name} {share:.1f} %" for name, share in shares.items()),
        ])  # fmt: skip
    heads = ["row", "steps by stage", "pairs seen", "CPU s, last stage", "CPU min, row", "loss shares, last stage"]
    return markdown(heads, lines)


def _orderings(table: Table, by_row: Mapping[str, list[RowResult]], gold: Gold) -> str:
    paper = next(measure.paper for measure in table.measures if measure.paper)
    lines = []
    for rows in (tuple(map(table.row, pair)) for pair in table.orderings):
        found = difference(*(by_row.get(row.name, ()) for row in rows), table.measures[0], gold)
        if found is not None:
            mine, theirs = (row.paper(paper) for row in rows)
            published = None if mine is None or theirs is None else mine - theirs
            seeds = ", ".join(f"{value:+.1f}" for value in found.by_seed)
            lines.append(
                f"* **{rows[0].label}** against **{rows[1].label}**: {found.mean:+.1f} [{found.low:+.1f}, "
                f"{found.high:+.1f}], by seed {seeds}: {verdict(found, published)}."
            )
    return "\n".join(lines)


def _section(table: Table, results: Sequence[RowResult], gold: Gold) -> str:
    by_row: dict[str, list[RowResult]] = {}
    for one in sorted(results, key=lambda one: one.key):
        by_row.setdefault(one.key[1], []).append(one)
    notes = results[0].raw["notes"]
    absent = [row.label for row in table.rows if row.name not in by_row]
    return "\n\n".join([
        f"## {table.title}",
        table.note,
        _scores(table, by_row, gold),
        "Test sets: " + "; ".join(f"{name}: {notes[name]}" for name in table.sets) + ".",
        f"### Orderings, by {table.measures[0].name}",
        _orderings(table, by_row, gold),
        *([f"Not measured: {', '.join(absent)}."] if absent else []),
        "### Cost",
        _costs(table, by_row),
    ])  # fmt: skip


def page(tables: Sequence[Table], results: Sequence[RowResult], gold: Gold) -> str:
    """The page below its header, of the tables of which there are rows."""
    code = sorted({one.raw["code"].partition(", with")[0] for one in results})
    precision = sorted({one.raw["precision"] for one in results if "steps" in one.raw})
    minutes, cpu = (sum(one.raw[key] for one in results) for key in ("minutes", "cpu_minutes"))
    return "\n\n".join([
        f"{len(results)} rows, trained by {'; '.join(code)} in {', '.join(precision)} on one thread: {cpu:.0f} minutes "
        f"of processor time, {minutes:.0f} by the clock of a busy machine. The smallest of students after a few "
        "hundred steps: compare orders, not the papers' figures, which are of other data, sizes and test sets.",
        "A cell is the mean over seeds, in brackets the 95 % bootstrap interval over the test items, then the least "
        "and the largest score of a seed. An ordering is called separated only if the interval of the paired "
        "difference leaves out zero and every seed has the same sign; otherwise nothing is claimed. Test sets were "
        "scored once per finished student and chose nothing; checkpoints were chosen on held-out pairs and STSb dev.",
        *(_section(table, [one for one in results if one.key[0] == table.name], gold) for table in tables),
    ])  # fmt: skip
