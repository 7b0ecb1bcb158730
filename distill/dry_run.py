"""Dry runs: a recipe checked, its rows and steps counted; nothing is trained, downloaded or written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from msdc.distill.catalog import recipe_facts
from msdc.distill.data.checks import repeated
from msdc.distill.data.corpora import TextSource, is_here, open_corpora
from msdc.distill.data.exclusion import Exclusion, read_exclusion
from msdc.distill.data.tables import stored_about, tables_folder
from msdc.distill.data.text import Order, table_shares
from msdc.distill.recipe import Corpus, Recipe, StagePlan
from msdc.text.tabular import JSON_LINES, suffix_of
from msdc.text.text_files import unpacked

COUNTED_ROWS = 100_000  # rows to read of all sources together; longer files are estimated by their lines
LINES = (".tsv", ".txt", ".csv", *JSON_LINES)
BLOCK = 2**20  # bytes
Plan = dict[str, Any]


def dry_run(recipe: Recipe) -> Plan:
    """Check a recipe, and count its rows and steps; nothing is trained, downloaded or written.

    Returns:
        The resolved recipe's `facts`, the rows of its `sources` (of long files that no run has read estimated, before
        `exclude`) with what was dropped, the steps of its `stages`, and what it `needs`, without which other values are
        None (unknown).
    """
    from msdc.distill.preflight import check_recipe

    needs = check_recipe(recipe, download=False)
    excluded = read_exclusion(recipe.exclude)
    counted = {text: _count(recipe, text, excluded) for text in recipe.texts}
    return {
        "name": recipe.name, "facts": recipe_facts(recipe), "differs": list(recipe.differs), "needs": needs,
        "sources": counted[recipe.corpora],
        "stages": [_stage(plan, counted[plan.corpora]) for plan in recipe.plans],
    }  # fmt: skip


def plan_text(plan: Plan) -> str:
    """A dry run as text."""
    if "failed" in plan:
        return f"cannot be trained: {plan['failed']}"
    lines = [f"recipe {plan['name']}", *(f"  {key}: {value}" for key, value in plan["facts"].items())]
    lines += [*(f"  differs: {text}" for text in plan["differs"]), "sources"]
    for source in plan["sources"]:
        rows = "not here" if source["rows"] is None else f"{source['rows']} rows"
        lines.append(f"  {source['name']} [{source['language']}]: {rows}")
        lines += [f"    dropped {drop['rows']}: {drop['why']}" for drop in source["dropped"]]
    lines.append("stages")
    for stage in plan["stages"]:
        steps = "steps unknown" if stage["steps"] is None else f"{stage['steps']} steps"
        lines += [f"  {stage['name']}: {steps}", *(f"    warning: {line}" for line in stage["warnings"])]
    return "\n".join([*lines, *(f"needs {name}" for name in plan["needs"])])


def _count(recipe: Recipe, corpora: tuple[Corpus, ...], excluded: Exclusion | None) -> list[Plan]:
    """Usable rows of every source (all languages of word_by_word together); None for one that is not here."""
    plans: list[Plan] = []
    here = [corpus for corpus in corpora if is_here(corpus)]
    most = COUNTED_ROWS // max(1, sum(len(open_corpora((corpus,), languages=recipe.languages)) for corpus in here))
    for corpus in corpora:
        if corpus not in here:
            plans.append({"name": corpus.origin, "language": ", ".join(corpus.languages), "rows": None, "dropped": [],
                          "weight": corpus.weight})  # fmt: skip
            continue
        for source in open_corpora((corpus,), excluded, recipe.languages):
            about = stored_about(source, tables_folder(recipe))
            rows = _rows(source, most) if about is None else about["rows"]
            dropped = source.drops() if about is None else about["dropped"]
            rows *= max(1, len(corpus.word_by_word))
            plans.append({"name": source.name, "language": source.language, "rows": rows, "dropped": dropped,
                          "weight": corpus.weight})  # fmt: skip
    return plans


def _rows(source: TextSource, most: int) -> int:
    """Usable rows of a source; estimated by lines for a text file with more than `most`."""
    rows = source.read()
    taken = sum(1 for _ in islice(rows, most))
    path = Path(source.name.split(" + ")[0])
    if taken < most or suffix_of(path) not in LINES or not path.is_file():
        return taken + sum(1 for _ in rows)
    usable = taken / (taken + sum(drop["rows"] for drop in source.drops()))
    with open(path, "rb") as raw, unpacked(raw) as text:
        lines = sum(block.count(b"\n") for block in iter(partial(text.read, BLOCK), b""))
    return min(round(lines * usable), source.corpus.limit or lines)


def _stage(plan: StagePlan, counted: Sequence[Plan]) -> Plan:
    """The steps of a stage, and the parts that it reads many times."""
    stage, steps, warnings = plan.stage, count_steps(plan, counted), list[str]()
    rows = [count["rows"] for count in counted]
    if steps is not None and rows and None not in rows:
        languages = [count["language"] for count in counted]
        share = _trained_share(plan, counted)
        rows = [round(share * count) for count in rows]
        shares = table_shares([count["weight"] for count in counted], languages, rows, stage.balance)
        names = [Path(count["name"]).name for count in counted]
        warnings = repeated(stage, Order(rows, 0, shares), names, languages, steps)
    return {"name": stage.name, "steps": steps, "warnings": warnings}


def _trained_share(plan: StagePlan, counted: Sequence[Plan]) -> float:
    """The share of all rows that is sampled and not held out."""
    languages: Counter[str] = Counter()
    for count in counted:
        languages[count["language"]] += count["rows"]
    return (1 - plan.heldout.enough(languages).share) * plan.sample


def count_steps(plan: StagePlan, counted: Sequence[Plan]) -> int | None:
    """About how many steps a stage has; None if its text must be downloaded, or batches are cut by tokens."""
    stage = plan.stage
    if stage.steps is not None:
        return stage.steps
    rows = [count["rows"] for count in counted]
    if None in rows or stage.batch_tokens is not None:
        return None
    # An epoch has as many rows as all sources together, whatever the balance.
    return max(1, round(stage.epochs * _trained_share(plan, counted) * sum(rows) / stage.batch))
