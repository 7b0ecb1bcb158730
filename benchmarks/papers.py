"""The papers' tables at small size: several seeds per row, an interval on each number, a sentence per ordering.

    python benchmarks/papers.py --data DATA --write docs/results/papers.md           # WORK: runs/papers
    python benchmarks/papers.py --data DATA --work WORK --tables lxs --seeds 1,2 --write PAGE
    python benchmarks/papers.py --data DATA --work WORK --no-run --write PAGE      # the page from the rows at hand

Trains the rows of benchmarks/small_tables.py, seed by seed, and appends each to WORK/rows.jsonl with its answers on the
test sets beside it; rows that are there are not trained again, so a stopped run continues. No test set chooses
anything: checkpoints are chosen on held-out pairs and STSb dev. The page is rendered from what WORK holds.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_page import add_write_option, code_version, write_page
from small_page import RowResult, page
from small_sets import TestSet, read_sets
from small_tables import TABLES, Row, Table

from msdc.distill.catalog import load_recipe
from msdc.distill.recipe import Recipe, Stage
from msdc.distill.run import Run
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.errors import MsdcError
from msdc.files import read_json, write_json

BENCH_THREADS = 1


class TimedRun(Run):
    """A run that records the processor time of each stage it trains; a busy machine's clock says little."""

    def run_stage(self, number: int, stage: Stage) -> dict[str, float]:
        """As `Run.run_stage`; a stage that is already there keeps its recorded time."""
        folder = self.folder.stage(number, stage)
        if folder.done() is not None:
            return super().run_stage(number, stage)
        began = time.process_time()
        done = super().run_stage(number, stage)
        write_json(folder.path / "cpu.json", {"seconds": round(time.process_time() - began, 1)})
        return done


def stage_times(run: Run) -> dict[str, float]:
    """Processor seconds of each stage by name."""
    files = {stage.name: run.folder.stage(n, stage).path / "cpu.json" for n, stage in enumerate(run.recipe.stages)}
    return {name: float(read_json(file)["seconds"]) for name, file in files.items() if file.is_file()}


def train(row: Row, recipe: Recipe, folder: Path, beside: Path) -> tuple[Encoder, dict[str, Any]]:
    """Train a row in `folder`, or continue; stages that a run in `beside` shares are taken from there."""
    others = sorted(path.parent for path in beside.glob("*/recipe.yaml") if path.parent != folder)
    run = TimedRun(recipe, folder, (folder / "recipe.yaml").is_file(), others)
    result = run.run()
    last = result.stages[recipe.stages[-1].name]
    facts = {
        "steps": {stage.name: stage.steps for stage in recipe.stages},
        "pairs": sum((stage.steps or 0) * stage.batch for stage in recipe.stages),
        "cpu_seconds": stage_times(run),
        "shares": {key.removeprefix("share_"): value for key, value in last.items() if key.startswith("share_")},
        "precision": run.precision,
        "dev": last.get("graded", last.get("heldout_accuracy")),
    }
    return load_encoder(result.student), facts


def score(encoder: Encoder, sets: list[TestSet], file: Path) -> dict[str, float]:
    """Scores x 100 on each test set; the answers per item go to `file` for intervals."""
    answers = {one.name: one.answers(encoder) for one in sets}
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **{name: values_N.astype(np.float32) for name, values_N in answers.items()})
    return {one.name: one.score(answers[one.name]) for one in sets}


def run_row(table: Table, row: Row, seed: int, work: Path, data: Path, sets: list[TestSet]) -> dict[str, Any]:
    """Train and score one row with one seed; what rows.jsonl holds of it."""
    began, cpu = time.monotonic(), time.process_time()
    folder = work / "runs" / f"{table.name}-{seed}"
    if row.model is not None:
        encoder, facts = load_encoder(row.model(work, data)), {}
    else:
        recipe = load_recipe(row.recipe, row.settings(table, work, data, seed), data)
        encoder, facts = train(row, recipe, folder / row.name, folder)
    scores = score(encoder, sets, work / "answers" / f"{table.name}-{row.name}-{seed}.npz")
    return {
        "table": table.name,
        "row": row.name,
        "seed": seed,
        "scores": scores,
        "items": {one.name: len(one) for one in sets},
        "notes": {one.name: one.note for one in sets},
        "minutes": round((time.monotonic() - began) / 60, 1),
        "cpu_minutes": round((time.process_time() - cpu) / 60, 2),
        "code": code_version(),
        **facts,
    }


def read_rows(work: Path) -> list[RowResult]:
    """The rows of WORK/rows.jsonl with their answers; of a row that was measured twice, the later one."""
    file = work / "rows.jsonl"
    found: dict[tuple[str, str, int], RowResult] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        raw = json.loads(line)
        with np.load(work / "answers" / f"{raw['table']}-{raw['row']}-{raw['seed']}.npz") as stored:
            answers = {name: stored[name].astype(np.float64) for name in stored.files}
        found[raw["table"], raw["row"], raw["seed"]] = RowResult(raw, answers)
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="data folder (docs/guides/data.md)")
    parser.add_argument("--work", type=Path, default=Path("runs/papers"), help="folder of runs, rows and answers")
    parser.add_argument("--tables", default=",".join(table.name for table in TABLES), help="default: all")
    parser.add_argument("--rows", help="names of rows of benchmarks/small_tables.py; default: all")
    parser.add_argument("--seeds", default="1,2,3", help="default: 1,2,3")
    parser.add_argument("--no-run", action="store_true", help="train nothing, render the page only")
    add_write_option(parser, "papers")
    options = parser.parse_args()
    wanted = options.tables.split(",")
    chosen = None if options.rows is None else options.rows.split(",")
    torch.set_num_threads(BENCH_THREADS)
    options.work.mkdir(parents=True, exist_ok=True)
    done = {one.key for one in read_rows(options.work)}
    for seed in () if options.no_run else [int(part) for part in options.seeds.split(",")]:
        for table in (table for table in TABLES if table.name in wanted):
            rows = [row for row in table.rows if (table.name, row.name, seed) not in done and row.wants(seed)]
            rows = [row for row in rows if chosen is None or row.name in chosen]
            sets = read_sets(table.sets, options.data) if rows else []
            for row in rows:
                print(f"{table.name}, {row.name}, seed {seed}", file=sys.stderr, flush=True)
                try:
                    result = run_row(table, row, seed, options.work, options.data, sets)
                except MsdcError as error:
                    print(f"{table.name}, {row.name}, seed {seed}: {error}", file=sys.stderr, flush=True)
                    continue
                with open(options.work / "rows.jsonl", "a", encoding="utf-8") as handle:
                    handle.write(json.dumps(result, ensure_ascii=False) + "\n")
    results = read_rows(options.work)
    measured = [table for table in TABLES if any(one.key[0] == table.name for one in results)]
    gold = {one.name: one.gold_N for table in measured for one in read_sets(table.sets, options.data)}
    text = page(measured, results, gold)
    if options.write:
        write_page(options.write, "The papers' tables at small size", "students taught in these runs", text,
                   libraries=("torch", "transformers"))  # fmt: skip
    else:
        print(text)


if __name__ == "__main__":
    main()
