"""A recipe run otherwise than once: in several settings, with one table of results, or not at all (a dry run).

Points of a sweep come from `table=5` (all variants of a paper's table), `variant=one,two`, or `KEY=a,b,c` (the keys of
`--set`), or from every combination of several of them. Stages that two points share are trained once
(msdc.distill.run_folder). A sweep that was stopped continues where it stopped. It writes table.json and table.md;
`msdc report SWEEP_FOLDER` draws them.

A dry run tells what a run would do, from a few steps of every stage on a sample of the text: the same models,
objectives and batch sizes, a small vocabulary, in a temporary folder. Time and memory are extrapolated from it.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict

from msdc.distill.catalog import load_recipe, recipe_facts, variants_of
from msdc.distill.data.corpora import Source, open_corpora
from msdc.distill.data.exclusion import Exclusion, read_exclusion
from msdc.distill.data.stream import weights
from msdc.distill.recipe import Assistant, Corpus, Recipe, Stage, StudentShape, parse
from msdc.distill.run_folder import METRICS_FILE, Metrics, read_recipe
from msdc.errors import InputError
from msdc.files import held, read_json, write_json, write_text
from msdc.machine import peak_mib
from msdc.progress import say
from msdc.tables import Column, Table, escape_line, fixed, to_markdown

# What trains is imported where it is used: a report reads tables of sweeps without torch.

TABLE_FILE = "table.json"
NOTE = (
    "mono, cross, avg: Spearman x 100 on the recipe's `report` files; dev: mean on the graded development files; "
    "accuracy: nearest neighbour among held-out pairs. The paper's columns are its own models on its own data and "
    "test sets."
)
PAIR = re.compile(r"(?<![a-z])([a-z]{2})-([a-z]{2})(?![a-z])")


# --- the table of a sweep ---------------------------------------------------------------------------------------------


class _Stored(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class CurvePoint(_Stored):
    """One validation: `x` in steps or epochs of the last stage, `score` on the development data, x 100."""

    x: float
    score: float


class SweepRow(_Stored):
    """One finished point. `row` names its row in the paper's table; `paper` and `ours` are scores by column."""

    label: str
    row: str = ""
    paper: dict[str, float] = {}
    ours: dict[str, float] = {}
    report: dict[str, float] = {}
    seconds: float = 0.0
    unit: Literal["step", "epoch"] = "epoch"
    curve: tuple[CurvePoint, ...] = ()


class SweepTable(_Stored):
    """A whole sweep: one row per point with the paper's figures beside ours, and the curve of its last stage."""

    recipe: str
    sweep: str
    rows: tuple[SweepRow, ...]


def is_sweep(raw: Any) -> bool:
    """Whether parsed JSON looks like the table of a sweep."""
    return isinstance(raw, dict) and "sweep" in raw and "rows" in raw


def read_sweep(raw: Any, where: str) -> SweepTable:
    """The table in parsed JSON; `where` names the file in an error."""
    return parse(SweepTable, raw, f"{where} is not the table of a sweep")


def table_of(sweep: SweepTable) -> Table:
    """One row per point; a column of the paper stands before ours of the same name."""
    published = list(dict.fromkeys(key for row in sweep.rows for key in row.paper))
    measured = list(dict.fromkeys(key for row in sweep.rows for key in row.ours))
    columns = [(key, kind) for key in measured for kind in ("paper", "ours") if kind == "ours" or key in published]
    columns += [(key, "paper") for key in published if key not in measured]
    named = any(row.row for row in sweep.rows)
    rows = []
    for row in sweep.rows:
        figures = {"paper": row.paper, "ours": row.ours}
        cells = [fixed(figures[kind][key], 1) if key in figures[kind] else "" for key, kind in columns]
        rows.append((row.label, *([row.row] if named else []), *cells, fixed(row.seconds, 0)))
    heads = (Column("setting", align="left"), *([Column("the paper's row", align="left")] if named else []))
    numbers = tuple(Column(f"{key}, {kind}") for key, kind in columns)
    return Table(f"{sweep.recipe}, {sweep.sweep}", (*heads, *numbers, Column("seconds")), tuple(rows), NOTE)


# --- a sweep ----------------------------------------------------------------------------------------------------------


def points(
    recipe: str, over: str | Sequence[str], overrides: Sequence[str] = (), data: str | Path | None = None
) -> dict[str, Recipe]:
    """The recipes of a sweep by label: every combination of the values of its axes."""
    axes = [over] if isinstance(over, str) else list(over)
    keys = [axis.partition("=")[0] for axis in axes]
    if twice := next((key for key in keys if key != "variant" and keys.count(key) > 1), None):
        raise InputError(f"--sweep names {twice} twice; give all its values at once: {twice}=VALUE,VALUE")
    found = {}
    for combination in product(*(_axis(recipe, axis) for axis in axes)):
        changes = [value for value in combination if "=" in value]
        name = recipe
        for variant in (value for value in combination if "=" not in value):
            name += f"+{variant}" if ":" in name else f":{variant}"
        found[" ".join(combination)] = load_recipe(name, (*overrides, *changes), data)
    return found


def _axis(recipe: str, over: str) -> list[str]:
    """The points of one axis: names of variants, or changes `KEY=VALUE`."""
    key, _, value = over.partition("=")
    values = [part.strip() for part in value.split(",") if part.strip()]
    if not values:
        raise InputError(f"--sweep {over!r}: expected table=NUMBER, variant=NAME,NAME or KEY=VALUE,VALUE")
    if key == "variant":
        return values
    if key != "table":
        return [f"{key}={one}" for one in values]
    variants = variants_of(recipe)
    if names := [name for name, variant in variants.items() if set(values) & set(variant.tables)]:
        return names
    tables = sorted({table for variant in variants.values() for table in variant.tables})
    raise InputError(f"{recipe} has no variants of table {value}; it has tables {', '.join(tables)}")


def sweep(
    recipe: str,
    over: str | Sequence[str],
    output: str | Path | None = None,
    *,
    overrides: Sequence[str] = (),
    data: str | Path | None = None,
    draw: Callable[[Path], object] | None = None,
) -> Path:
    """Run a recipe at all points, then write table.json and table.md into the sweep's folder; returns it.

    Args:
        recipe: a name or file, as of `distill`.
        over: the points: `table=5`, `variant=one,two`, or `KEY=a,b,c`; of several, every combination.
        output: the folder; None: runs/NAME-sweep.
        overrides: changes of all points, as of `--set`.
        data: the folder that `{data}` in the recipe stands for.
        draw: called with the folder at the end, in the first process only.
    """
    from msdc.distill.run import Run
    from msdc.distill.training import parallel

    recipes = points(recipe, over, overrides, data)
    folder = Path(output) if output is not None else Path("runs") / f"{Path(recipe).stem.replace(':', '-')}-sweep"
    folders = {label: folder / re.sub(r"[^A-Za-z0-9._=+-]", "_", label) for label in recipes}
    parallel.start()
    rank, _ = parallel.rank_and_world()
    with ExitStack() as stack:
        parallel.first(lambda: stack.enter_context(held(folder)))
        for left in folder.glob(".*.partial") if rank == 0 else ():
            left.unlink(missing_ok=True)  # of a process that was killed while it wrote a table
        for number, (label, one) in enumerate(recipes.items()):
            place = folders[label]
            if (place / "result.json").is_file() and read_recipe(place) == one:
                continue
            say(f"sweep {number + 1}/{len(recipes)}: {label}")
            # Any run of the sweep may have trained a stage that this point shares.
            beside = sorted(path.parent for path in folder.glob("*/recipe.yaml") if path.parent != place)
            Run(one, place, (place / "recipe.yaml").is_file(), beside).run()
        if rank == 0:
            rows = tuple(_row(label, recipes[label], folders[label]) for label in recipes)
            axes = over if isinstance(over, str) else " x ".join(over)
            table = SweepTable(recipe=recipe, sweep=axes, rows=rows)
            write_json(folder / TABLE_FILE, table.model_dump(mode="json"))
            shown = table_of(table)
            write_text(folder / "table.md", f"# {escape_line(shown.caption)}\n\n{to_markdown(shown)}\n\n{shown.note}\n")
            if draw is not None:
                draw(folder)
    return folder


def _row(label: str, recipe: Recipe, folder: Path) -> SweepRow:
    """The scores of a finished point, and those of the paper."""
    result = read_json(folder / "result.json")
    last = recipe.stages[-1]
    done, report = result["stages"][last.name], result.get("report", {})
    pairs = {name: pair.groups() for name in report if (pair := PAIR.search(name))}
    scores = {
        "mono": [report[name] for name, (one, two) in pairs.items() if one == two],
        "cross": [report[name] for name, (one, two) in pairs.items() if one != two],
        "avg": list(report.values()),
        "dev": [done["graded"]] if "graded" in done else [],
        "accuracy": [done["heldout_accuracy"]] if "heldout_accuracy" in done else [],
        "mse x 1000": [1000 * done["heldout_mse"]] if "heldout_mse" in done else [],
    }
    metrics = [row for row in Metrics(folder / METRICS_FILE).rows() if row.get("stage") == last.name]
    steps = max((row["step"] for row in metrics if "step" in row), default=1)
    curve = tuple(
        CurvePoint(
            x=row["step"] if last.steps else row["step"] / steps * last.epochs,
            score=row["evaluation"].get("graded", row["evaluation"].get("heldout_accuracy", 0.0)),
        )
        for row in metrics
        if "evaluation" in row
    )
    return SweepRow(
        label=label,
        row=recipe.paper.get("row", ""),
        paper={key: value for key, value in recipe.paper.items() if isinstance(value, (int, float))},
        ours={key: round(float(np.mean(values)), 2) for key, values in scores.items() if values},
        report=report,
        seconds=round(sum(stage.get("seconds", 0.0) for stage in result["stages"].values()), 1),
        unit="step" if last.steps else "epoch",
        curve=curve,
    )


# --- a dry run --------------------------------------------------------------------------------------------------------

TRIAL_STEPS, TRIAL_ROWS, TRIAL_PIECES = 4, 400, 2000
ADAM_BYTES = 16  # float32 weight, gradient and two moments
ROW_BYTES = 500  # a row of the shuffle buffer: two short texts as Python objects
Plan = dict[str, Any]
Counted = list[tuple[Source | None, Plan]]


def dry_run(recipe: Recipe) -> Plan:
    """Check, count, and try a few steps of every stage; nothing is downloaded and nothing is left.

    Returns:
        What `--dry-run --json` prints: the resolved recipe's `facts`, rows of its `sources`, steps, time and shares of
        the loss of its `stages`. None: could not be found; `not_tried` says why nothing was tried.
    """
    from msdc.distill.preflight import check_recipe
    from msdc.distill.run import Run

    absent = check_recipe(recipe, download=False)
    without = read_exclusion(recipe.exclude)
    counted = {text: _count(text, without) for text in {recipe.corpora, *map(recipe.corpora_of, recipe.stages)}}
    unknown: Plan = {"seconds_per_step": None, "hours": None, "minutes_per_10000_steps": None, "loss_shares": {}}
    plan: Plan = {
        "name": recipe.name, "facts": recipe_facts(recipe), "differs": list(recipe.differs), "needs_network": absent,
        "sources": [count for _, count in counted[recipe.corpora]],
        "stages": [
            {"name": one.name, "steps": count_steps(recipe, one, counted[recipe.corpora_of(one)]), **unknown}
            for one in recipe.stages
        ],
        "memory_mib": None, "hours": None, "not_tried": "",
    }  # fmt: skip
    models = sorted(set(absent) - {corpus.origin for corpus in recipe.all_corpora if corpus.is_remote})
    with tempfile.TemporaryDirectory(prefix="msdc-dry-run-") as folder:
        trial = None if models else trial_recipe(recipe, Path(folder) / "guides")
        if trial is None:
            plan["not_tried"] = f"needs network: {', '.join(models or ['the corpora of a stage'])}"
        else:
            _extrapolate(recipe, Run(trial, Path(folder) / "run"), plan)
    return plan


def plan_text(plan: Plan) -> str:
    """A dry run for a terminal."""
    lines = [f"recipe {plan['name']}", *(f"  {key}: {value}" for key, value in plan["facts"].items())]
    lines += [*(f"  differs: {text}" for text in plan["differs"]), "sources"]
    for source in plan["sources"]:
        rows = "needs network" if source["rows"] is None else f"{source['rows']} rows"
        lines.append(f"  {source['name']} [{source['language']}]: {rows}")
    lines.append("stages")
    for stage in plan["stages"]:
        line = f"  {stage['name']}: " + ("steps unknown" if stage["steps"] is None else f"{stage['steps']} steps")
        if stage["seconds_per_step"] is not None:
            per_10000 = f"{stage['minutes_per_10000_steps']:.0f} minutes per 10,000"
            line += f", {stage['seconds_per_step']:.2f} s per step ({per_10000})"
        line += "" if stage["hours"] is None else f", about {stage['hours']:.2f} hours"
        parts = ", ".join(f"{name} {100 * share:.3g} %" for name, share in stage["loss_shares"].items())
        lines.append(f"{line}{f'; loss: {parts}' if parts else ''}")
    lines += [f"needs network: {', '.join(plan['needs_network'])}"] if plan["needs_network"] else []
    lines += [f"not tried ({plan['not_tried']})"] if plan["not_tried"] else []
    lines += [f"memory: about {plan['memory_mib']:.0f} MiB"] if plan["memory_mib"] else []
    if plan["hours"] is not None:
        lines.append(f"time: about {plan['hours']:.2f} hours on this machine, without making models and vocabulary")
    return "\n".join(lines)


def _count(corpora: tuple[Corpus, ...], without: Exclusion | None) -> Counted:
    """Usable rows of every source, None of one to download; one that is translated word by word counts per language."""
    found: Counted = []
    for corpus in corpora:
        if corpus.is_remote:
            found.append((None, {"name": corpus.origin, "language": ", ".join(corpus.languages), "rows": None}))
            continue
        for source in open_corpora((corpus,), without):
            rows = sum(1 for _ in source.read()) * max(1, len(corpus.word_by_word))
            found.append((source, {"name": source.name, "language": source.language, "rows": rows}))
    return found


def count_steps(recipe: Recipe, stage: Stage, counted: Counted) -> int | None:
    """Steps of a stage; None where its text must be downloaded, or batches are cut by tokens."""
    if stage.steps is not None:
        return stage.steps
    sources = [source for source, _ in counted if source is not None]
    if len(sources) < len(counted) or stage.batch_tokens is not None:
        return None
    share = (1 - recipe.heldout.share) * (recipe.sample if stage.sample is None else stage.sample)
    rows = epoch_rows(sources, [count["rows"] for _, count in counted], stage.balance, share)
    return max(1, round(stage.epochs * rows / stage.batch))


def epoch_rows(sources: list[Source], counts: list[int], balance: str, share: float) -> float:
    """About how many rows an epoch has: it ends when every source was read, and small ones repeat until then.

    `share` is the part of the sentences that is trained on.
    """
    if balance == "proportional":
        return share * sum(counts)
    return share * max(rows / draw for rows, draw in zip(counts, weights(sources, balance), strict=True))


def trial_recipe(recipe: Recipe, cache: Path) -> Recipe | None:
    """The recipe at trial size with the corpora of this machine; None where a stage has none."""

    def small(corpora: tuple[Corpus, ...], batch: int) -> tuple[Corpus, ...]:
        limit = max(TRIAL_ROWS, 2 * batch)
        here = [corpus for corpus in corpora if not corpus.is_remote]
        return tuple(c.model_copy(update={"limit": min(limit, c.limit or limit)}) for c in here)

    def few_pieces(model: Any) -> Any:
        tiny = {"train": TRIAL_PIECES, "sentences_per_language": TRIAL_ROWS}
        return model and model.model_copy(update={"vocabulary": model.vocabulary.model_copy(update=tiny)})

    corpora = small(recipe.corpora, max(stage.batch for stage in recipe.stages))
    own = [None if stage.corpora is None else small(stage.corpora, stage.batch) for stage in recipe.stages]
    if not corpora or () in own:
        return None
    short = {"steps": TRIAL_STEPS, "evaluate_every": TRIAL_STEPS, "sample": None}
    graded_pairs = min(20, recipe.heldout.graded_pairs or 20)
    heldout = {"pairs": 10, "share": max(0.05, recipe.heldout.share), "graded_pairs": graded_pairs}
    changes: dict[str, Any] = {
        "corpora": corpora,
        "stages": tuple(
            stage.model_copy(update={**short, "corpora": text}) for stage, text in zip(recipe.stages, own, strict=True)
        ),
        "cache": str(cache), "report": (), "sample": 1.0, "heldout": recipe.heldout.model_copy(update=heldout),
    }  # fmt: skip
    if isinstance(recipe.assistant, Assistant):
        changes["assistant"] = few_pieces(recipe.assistant)
    if isinstance(shape := recipe.student, StudentShape):
        base_rows = None if shape.base_rows is None else min(shape.base_rows, TRIAL_PIECES // 2)
        changes["student"] = shape.model_copy(update={"scratch": few_pieces(shape.scratch), "base_rows": base_rows})
    return recipe.model_copy(update=changes)


def _extrapolate(recipe: Recipe, trial: Any, plan: Plan) -> None:
    """Run the trial and add what it tells."""
    from msdc.encoders.encoder import load_encoder

    done = trial.run()
    rows = trial.folder.metrics.rows()
    for stage in plan["stages"]:
        numbers = done.stages[stage["name"]].items()
        stage["loss_shares"] = {k.removeprefix("share_"): v for k, v in numbers if k.startswith("share_")}
        times = [row["seconds"] for row in rows if row.get("stage") == stage["name"] and "seconds" in row]
        if len(times) > 1:
            # The first step also computes the teacher's outputs of a whole window and warms up.
            seconds = stage["seconds_per_step"] = (times[-1] - times[0]) / (len(times) - 1)
            stage["minutes_per_10000_steps"] = 10_000 * seconds / 60
            stage["hours"] = None if stage["steps"] is None else stage["steps"] * seconds / 3600
    hours = [stage["hours"] for stage in plan["stages"]]
    plan["hours"] = None if None in hours else sum(hours)
    config = getattr(load_encoder(done.student).module, "config", None)
    scratch = recipe.student.scratch if isinstance(recipe.student, StudentShape) else None
    made = scratch or (recipe.assistant if isinstance(recipe.assistant, Assistant) else None)
    more = 0
    if made is not None and made.vocabulary.train is not None and config is not None:
        # A code grows by a few numbers per piece, its base by what the trial cannot know.
        width = config.links if getattr(config, "coded", False) else config.table_width
        assistant = 0 if done.assistant is None else load_encoder(done.assistant).width
        more = max(0, (made.vocabulary.train - config.vocabulary) * (width + assistant))
    counts = [source["rows"] for source in plan["sources"]]
    buffered = recipe.buffer if None in counts else min(recipe.buffer, sum(counts))
    plan["memory_mib"] = peak_mib() + (ADAM_BYTES * more + ROW_BYTES * buffered) / 2**20
