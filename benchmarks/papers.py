"""The papers' tables at small size: several seeds per row, an interval on each number, a sentence per ordering.

    python benchmarks/papers.py --data DATA --write docs/results/papers.md           # WORK: runs/papers
    python benchmarks/papers.py --data DATA --work WORK --tables lxs --seeds 1,2 --write PAGE
    python benchmarks/papers.py --data DATA --work WORK --no-run --write PAGE      # the page from the rows at hand

Trains the rows of benchmarks/small_tables.py, seed by seed, and appends each to WORK/rows.jsonl with its answers on the
test sets beside it; rows that are there are not trained again, so a stopped run continues. No test set chooses
anything: checkpoints are chosen on held-out pairs and STSb dev. The page is rendered from what WORK holds.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_page import KeptRows, code_version, options_for, write_page
from small_page import RowResult, page
from small_sets import TestSet, read_set
from small_tables import TABLES, Row, Table

from msdc.bench.accuracy.vectors import VectorStore
from msdc.distill.catalog import load_recipe
from msdc.distill.recipe import Recipe, Stage
from msdc.distill.run import Run
from msdc.encoders.encoder import Encoder, load_encoder
from msdc.errors import MsdcError
from msdc.files import read_json, write_json


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


def train(row: Row, recipe: Recipe, folder: Path, beside: Path) -> tuple[Encoder, dict[str, Any]]:
    """Train a row in `folder`, or continue; stages that a run in `beside` shares are taken from there."""
    others = sorted(path.parent for path in beside.glob("*/recipe.yaml") if path.parent != folder)
    run = TimedRun(recipe, folder, (folder / "recipe.yaml").is_file(), others)
    result = run.run()
    files = {stage.name: run.folder.stage(n, stage).path / "cpu.json" for n, stage in enumerate(recipe.stages)}
    last = result.stages[recipe.stages[-1].name]
    facts = {
        "steps": {stage.name: stage.steps for stage in recipe.stages},
        "pairs": sum((stage.steps or 0) * stage.batch for stage in recipe.stages),
        "cpu_seconds": {name: float(read_json(file)["seconds"]) for name, file in files.items() if file.is_file()},
        "shares": {key.removeprefix("share_"): value for key, value in last.items() if key.startswith("share_")},
        "precision": run.precision,
        "dev": last.get("graded", last.get("heldout_accuracy")),
    }
    return load_encoder(result.student), facts


def answers_file(work: Path, row: dict[str, Any]) -> Path:
    """Where a row's answers on the test sets are, for intervals."""
    return work / "answers" / f"{row['table']}-{row['row']}-{row['seed']}.npz"


def run_row(table: Table, row: Row, seed: int, work: Path, data: Path, sets: list[TestSet]) -> dict[str, Any]:
    """Train and score one row with one seed; what rows.jsonl holds of it."""
    began, cpu = time.monotonic(), time.process_time()
    folder = work / "runs" / f"{table.name}-{seed}"
    if row.model is not None:
        encoder, facts = load_encoder(row.model(work, data)), {}
    else:
        recipe = load_recipe(row.recipe, row.settings(table, work, data, seed), data)
        encoder, facts = train(row, recipe, folder / row.name, folder)
    store = VectorStore(encoder)
    found = {one.name: one.score(store) for one in sets}
    done = {
        "table": table.name,
        "row": row.name,
        "seed": seed,
        "scores": {name: score for name, (score, _) in found.items()},
        "notes": {one.name: one.note for one in sets},
        "minutes": round((time.monotonic() - began) / 60, 1),
        "cpu_minutes": round((time.process_time() - cpu) / 60, 2),
        "code": code_version(),
        **facts,
    }
    file = answers_file(work, done)
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **{name: answers_N.astype(np.float32) for name, (_, answers_N) in found.items()})
    return done


def with_answers(rows: KeptRows, work: Path) -> list[RowResult]:
    """The rows of WORK/rows.jsonl with their answers; of a row that was measured twice, the later one."""
    found = {(row["table"], row["row"], row["seed"]): row for row in rows}
    results = []
    for row in found.values():
        with np.load(answers_file(work, row)) as stored:
            results.append(RowResult(row, {name: stored[name].astype(np.float64) for name in stored.files}))
    return results


def main() -> None:
    parser = options_for(__doc__, "papers")
    parser.add_argument("--data", type=Path, required=True, help="data folder (docs/guides/data.md)")
    parser.add_argument("--work", type=Path, default=Path("runs/papers"), help="folder of runs, rows and answers")
    parser.add_argument("--tables", default=",".join(table.name for table in TABLES), help="default: all")
    parser.add_argument("--seeds", default="1,2,3", help="default: 1,2,3")
    parser.add_argument("--no-run", action="store_true", help="train nothing, render the page only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    kept = KeptRows(options.work / "rows.jsonl")
    for seed in () if options.no_run else map(int, options.seeds.split(",")):
        for table in (table for table in TABLES if table.name in options.tables.split(",")):
            for row in (row for row in table.rows if seed <= row.seeds):
                if kept.has(table=table.name, row=row.name, seed=seed):
                    continue
                print(f"{table.name}, {row.name}, seed {seed}", file=sys.stderr, flush=True)
                sets = [read_set(name, options.data) for name in table.sets]
                try:
                    kept.add(run_row(table, row, seed, options.work, options.data, sets))
                except MsdcError as error:
                    print(f"{table.name}, {row.name}, seed {seed}: {error}", file=sys.stderr, flush=True)
    results = with_answers(kept, options.work)
    measured = [table for table in TABLES if any(one.key[0] == table.name for one in results)]
    gold = {name: read_set(name, options.data).gold_N for table in measured for name in table.sets}
    write_page(options.write, "The papers' tables at small size", "students taught in these runs",
               page(measured, results, gold), "torch transformers")  # fmt: skip


if __name__ == "__main__":
    main()
