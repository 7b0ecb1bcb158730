"""The page of benchmarks/papers.py: means over seeds with intervals, and what can be said of each ordering.

The score of a row is the mean over its seeds. Its interval is a bootstrap over the items of the test sets (the same
items for every row, seed and set of equal size); the seeds' least and largest score stand beside it. A difference is
taken on the seeds that both rows have. It counts as separated only if its interval leaves out zero and every seed has
the sign of the mean; with one seed nothing is separated.

Shapes: N items, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from results_page import table as markdown
from small_tables import Measure, Table

from msdc.bench.accuracy.statistics import Items, percentiles, resampled_scores

RESAMPLES = 1000
SEED = 0
Gold = Mapping[str, np.ndarray | None]


@dataclass(frozen=True)
class RowResult:
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
            items = Items("mean" if gold_N is None else "correlation", self.answers[name], gold_N)
            # A student that gives every pair of a resample the same cosine ranks nothing.
            parts.append(np.nan_to_num(resampled_scores([items], RESAMPLES, SEED)[0]))
        return np.mean(parts, axis=0)


@dataclass(frozen=True)
class Estimate:
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
    if len(found.by_seed) < 2 and not inside:
        side = "above" if found.mean > 0 else "below"
        return f"{side} beyond the interval of the items, but in one seed only: not separated"
    if not found.separated:
        why = "the interval holds zero" if inside else "the seeds do not agree"
        paper = "" if published is None else f" (the paper: {published:+.1f})"
        return f"not separated, {why}{paper}"
    side = "above" if found.mean > 0 else "below"
    if published is None:
        return f"separated, {side}; the paper has no such pair"
    if published == 0:
        return f"separated, {side}; equal in the paper"
    if (published > 0) == (found.mean > 0):
        return f"separated, {side}, as in the paper ({published:+.1f})"
    return f"separated, {side}, against the paper ({published:+.1f})"


def _cell(found: Estimate) -> str:
    spread = f", {min(found.by_seed):.1f} to {max(found.by_seed):.1f}" if len(found.by_seed) > 1 else ""
    return f"{found.mean:.1f} [{found.low:.1f}, {found.high:.1f}]{spread}"


def _published(table: Table, first: str, second: str) -> float | None:
    key = next(measure.paper for measure in table.measures if measure.paper)
    mine, theirs = (table.row(name).paper(key) for name in (first, second))
    return None if mine is None or theirs is None else mine - theirs


def _mean_of(results: Sequence[RowResult], value: Any) -> float:
    return float(np.mean([value(one.raw) for one in results]))


def _scores(table: Table, by_row: Mapping[str, list[RowResult]], gold: Gold) -> str:
    heads = ["row", "seeds"]
    for measure in table.measures:
        heads += [f"paper: {measure.of}"] * bool(measure.paper) + [measure.name]
    lines = []
    for row in table.rows:
        if row.name not in by_row:
            continue
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
        results = [one for one in by_row.get(row.name, ()) if "steps" in one.raw]
        if results:
            raw = results[0].raw
            last = list(raw["steps"])[-1]
            cpu = [one.raw["cpu_seconds"][last] for one in results if last in one.raw["cpu_seconds"]]
            shares = ", ".join(
                f"{name} {100 * _mean_of(results, lambda r, name=name: r['shares'][name]):.1f} %"
                for name in raw["shares"]
            )
            steps = " + ".join(str(count) for count in raw["steps"].values())
            lines.append([
                row.label, steps, f"{raw['pairs']:,}", f"{np.mean(cpu):.0f}" if cpu else "-",
                f"{_mean_of(results, lambda r: r['cpu_minutes']):.1f}", shares,
            ])  # fmt: skip
    heads = ["row", "steps by stage", "pairs seen", "CPU s, last stage", "CPU min, row", "loss shares, last stage"]
    return markdown(heads, lines)


def _section(table: Table, results: Sequence[RowResult], gold: Gold) -> str:
    by_row: dict[str, list[RowResult]] = {}
    for one in sorted(results, key=lambda one: one.key):
        by_row.setdefault(one.key[1], []).append(one)
    notes = results[0].raw["notes"]
    main = table.measures[0]
    lines = [f"## {table.title}", "", table.note, "", _scores(table, by_row, gold), ""]
    lines.append("Test sets: " + "; ".join(f"{name}: {notes[name]}" for name in table.sets) + ".")
    lines += ["", f"### Orderings, by {main.name}", ""]
    for first, second in table.orderings:
        found = difference(by_row.get(first, ()), by_row.get(second, ()), main, gold)
        if found is not None:
            seeds = ", ".join(f"{value:+.1f}" for value in found.by_seed)
            lines.append(
                f"* **{table.row(first).label}** against **{table.row(second).label}**: {found.mean:+.1f} "
                f"[{found.low:+.1f}, {found.high:+.1f}], by seed {seeds}: "
                f"{verdict(found, _published(table, first, second))}."
            )
    absent = [row.label for row in table.rows if row.name not in by_row]
    if absent:
        lines += ["", f"Not measured: {', '.join(absent)}."]
    lines += ["", "### Cost", "", _costs(table, by_row), ""]
    return "\n".join(lines)


def page(tables: Sequence[Table], results: Sequence[RowResult], gold: Gold) -> str:
    """The page below its header, of the tables of which there are rows."""
    trained = [one for one in results if "steps" in one.raw]
    code = sorted({one.raw["code"].partition(", with")[0] for one in results})
    precision = sorted({one.raw["precision"] for one in trained})
    minutes = sum(one.raw["minutes"] for one in results)
    cpu = sum(one.raw["cpu_minutes"] for one in results)
    lines = [
        f"{len(results)} rows, trained by {'; '.join(code)} in {', '.join(precision)} on one thread: {cpu:.0f} minutes "
        f"of processor time, {minutes:.0f} by the clock of a busy machine. The smallest of students after a few "
        "hundred steps: compare orders, not the papers' figures, which are of other data, sizes and test sets.",
        "",
        "A cell is the mean over seeds, in brackets the 95 % bootstrap interval over the test items, then the least "
        "and the largest score of a seed. An ordering is called separated only if the interval of the paired "
        "difference leaves out zero and every seed has the same sign; otherwise nothing is claimed. Test sets were "
        "scored once per finished student and chose nothing; checkpoints were chosen on held-out pairs and STSb dev.",
        "",
    ]
    for table in tables:
        mine = [one for one in results if one.key[0] == table.name]
        if mine:
            lines.append(_section(table, mine, gold))
    return "\n".join(lines)
