"""Does it pay to apply layers twice? Students of a real multilingual teacher of twelve layers, at equal bytes and time.

    python benchmarks/recurrence.py --data DATA --work WORK --e5 FOLDER --write docs/results/recurrence.md
    python benchmarks/recurrence.py --data DATA --work WORK --e5 FOLDER --double --write docs/results/recurrence.md

FOLDER is multilingual-e5-small as a folder of sentence-transformers, as it is or with fewer tokens (`msdc compress
vocabulary`): teacher and assistant. Trains the settings seed by seed and appends each to WORK/rows.jsonl; finished runs
are not trained again, so a stopped run continues. --double gives both sides of the contrast twice the steps.

The plan, written before the first run:

* Students are the teacher's first layers, its token table frozen at full width, and a linear head with a bias that is
  fitted by ridge before the first step. Target: the teacher's own vectors of both sides of Tatoeba pairs (English with
  German, Spanish, Italian, Russian; at most 100 characters, 20,000 pairs each), squared distance (equation 4 of Ding et
  al. 2022). A step has 8 pairs, so 16 sentences; constant rate, average of the weights (0.998), no prompts.
* Learning rate: 1e-4, 3e-4 or 6e-4, the best mean R² of 3x1 and 3x2 after 600 steps (one seed, not used again).
* 3x1 is three stored layers applied once, 3x2 twice, 3x4 four times, 6x1 six stored layers. About equal training time:
  9,600, 4,800, 2,400 and 4,800 steps, three seeds.
* One contrast: 3x2 against 3x1 at equal bytes, at equal steps and at equal time. Equal time: 3x1 at as many steps as
  take the time of 3x2's steps, by the median time per step of both in these runs; between two scored steps its score
  is interpolated by the logarithm of the steps. Judged by the explained variance (R²) of held-out pairs; STSb dev
  within and across languages and retrieval on FLORES dev are reported next to it, since R² and STS can differ.
* If 3x2 is below 3x1 at equal time, both are trained twice as long, once, and the curve is published whichever way.

Shapes: N sentences, D width.
"""

import itertools
import json
import statistics
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from artifacts import LENGTHS, items_of
from artifacts import measure as measure_items
from development import flores_accuracies, stsb_correlations
from results_page import KeptRows, options_for, spread, table, write_page
from safetensors.torch import load_file, save_file
from small_tables import MULTILINGUAL_CODES, STAGE_3, multilingual_corpora

from msdc.compress.loading import load_torch_encoder
from msdc.compress.student.stock import to_student
from msdc.distill.recipe import Recipe, parse
from msdc.distill.run import Run
from msdc.distill.sweep_table import mean_and_interval
from msdc.encoders.encoder import Encoder
from msdc.export import export
from msdc.text.text_files import iterate_lines

GRID = 600  # steps between two scores
RATES = (1e-4, 3e-4, 6e-4)
RATE_SEED = 9
SEEDS = (1, 2, 3)
PAIRS = 500  # of each language of STSb dev, evenly spread
SCORES = {"r2": "R²", "within": "STSb dev within", "across": "STSb dev across", "flores": "FLORES dev retrieval"}


class Setting(NamedTuple):
    """Stored layers, how often they are applied, and the steps that they get."""

    stored: int
    repeats: int
    steps: int

    @property
    def name(self) -> str:
        return f"{self.stored}x{self.repeats}"


SETTINGS = (Setting(3, 1, 9600), Setting(3, 2, 4800), Setting(3, 4, 2400), Setting(6, 1, 4800))
BASE, TWICE = SETTINGS[:2]


def recipe_of(setting: Setting, rate: float, seed: int, e5: Path, data: Path) -> Recipe:
    excluded = [f"{data}/stsb/sts-dev.tsv.gz", f"{data}/stsb-multi-mt/stsb-*-dev.csv.gz"]
    stage = STAGE_3 | {
        "name": "train", "steps": setting.steps, "learning_rate": rate, "freeze": ["embedding"], "evaluate_every": GRID,
    }  # fmt: skip
    student = {"bottleneck": None, "unit": setting.stored, "repeats": setting.repeats, "head": "ridge"}
    tree = {
        "name": "recurrence", "teacher": str(e5), "assistant": "teacher", "student": student,
        "corpora": multilingual_corpora(data), "exclude": excluded, "heldout": {"pairs": 150}, "stages": [stage],
        "seed": seed, "threads": 1,
    }  # fmt: skip
    return parse(Recipe, tree, "the recurrence benchmark")


class CurveRun(Run):
    """A run that copies the trained weights of its validations: a curve is scored when the run is over."""

    def log(self, row: dict[str, Any]) -> None:
        super().log(row)
        if "evaluation" in row:
            (weights,) = self.folder.path.glob("stages/*/checkpoints/best.safetensors")
            trained = {name: value for name, value in load_file(weights).items() if not name.startswith("embedding.")}
            save_file(trained, weights_at(self.folder.path, row["step"]))


def weights_at(folder: Path, step: int) -> Path:
    return folder / f"weights-{step}.safetensors"


def development_scores(encoder: Encoder, data: Path, precision: str) -> dict[str, float]:
    """STSb dev within English, German, Spanish and across them, and FLORES dev both ways, each a mean x 100."""

    def encode(texts: list[str]) -> np.ndarray:
        return np.asarray(encoder.encode(texts, precision=precision))

    stsb = stsb_correlations(encode, data, ("en", "de", "es"), PAIRS)
    return {
        "within": float(np.mean([stsb[code, code] for code in ("en", "de", "es")])),
        "across": float(np.mean([stsb[codes] for codes in (("en", "de"), ("en", "es"), ("de", "es"))])),
        "flores": float(np.mean(list(flores_accuracies(encode, data, MULTILINGUAL_CODES).values()))),
    }


def step_seconds(rows: Sequence[dict[str, Any]]) -> float:
    """The median time of a step between two lines of the log: outside validations and the teacher's pauses."""
    logged = [row for row in rows if "seconds" in row and "step" in row]
    return statistics.median(
        (after["seconds"] - before["seconds"]) / (after["step"] - before["step"])
        for before, after in itertools.pairwise(logged)
        if after["step"] > before["step"]
    )


def train(
    setting: Setting, rate: float, seed: int, e5: Path, data: Path, folder: Path, scored: Collection[int]
) -> list[dict[str, Any]]:
    """Train, or continue, and score the weights of steps that are not `scored`: a row per validation."""
    recipe = recipe_of(setting, rate, seed, e5, data)
    run = CurveRun(recipe, folder, resume=(folder / "recipe.yaml").is_file(), extendable=True)
    result = run.run()
    logged = [json.loads(line) for _, line in iterate_lines(folder / "metrics.jsonl")]
    explained = {row["step"]: row["evaluation"]["explained_variance"] for row in logged if "evaluation" in row}
    encoder = load_torch_encoder(result.student)
    encoder.module = to_student(encoder)
    seconds, doublings = step_seconds(logged), {GRID * 2**power for power in range(20)}
    rows = []
    for step in sorted(explained.keys() - set(scored)):
        scores = {"r2": 100 * explained[step]}
        if step in doublings:
            encoder.module.load_state_dict(load_file(weights_at(folder, step)), strict=False)
            scores |= development_scores(encoder, data, run.precision)
        rows.append({"setting": setting.name, "rate": rate, "seed": seed, "step": step, "step_seconds": seconds,
                     "precision": run.precision, **scores})  # fmt: skip
    return rows


def at_step(rows: Sequence[dict[str, Any]], score: str, step: float) -> float:
    """A score at a step: interpolated by the logarithm of the steps between two that were scored."""
    points = sorted((row["step"], row[score]) for row in rows if score in row)
    steps, values = zip(*points, strict=True)
    return float(np.interp(np.log(step), np.log(steps), values))


def interval(values: Sequence[float]) -> str:
    """Mean and 95 % interval of differences by seed (Student's t), then the seeds."""
    mean, half = mean_and_interval(values)
    assert half is not None, "one seed has no interval"
    seeds = ", ".join(f"{value:+.1f}" for value in values)
    return f"{mean:+.1f} [{mean - half:+.1f}, {mean + half:+.1f}]; {seeds}"


Runs = dict[tuple[str, int], list[dict[str, Any]]]  # rows by setting and seed


def contrast(runs: Runs, first: str, second: str, steps: float, other: float) -> list[str]:
    """Cells of a contrast: the first setting at `steps` minus the second at `other` steps, by every score."""
    return [
        interval(
            [at_step(runs[first, seed], score, steps) - at_step(runs[second, seed], score, other) for seed in SEEDS]
        )
        for score in SCORES
    ]


def seconds_of(runs: Runs, name: str) -> float:
    """Seconds of a step of a setting: the median of its runs."""
    return statistics.median(rows[0]["step_seconds"] for (setting, _), rows in runs.items() if setting == name)


def curves(runs: Runs) -> str:
    """A line per setting and doubling: means over the seeds, lowest and highest."""
    lines = []
    for setting in SETTINGS:
        theirs = [runs[setting.name, seed] for seed in SEEDS]
        for step in sorted({row["step"] for row in theirs[0] if "within" in row}):
            cells = []
            for score in SCORES:
                values = [at_step(rows, score, step) for rows in theirs]
                cells.append(f"{statistics.mean(values):.1f} [{min(values):.1f}, {max(values):.1f}]")
            lines.append((setting.name, f"{step:,}", f"{step * seconds_of(runs, setting.name):,.0f}", *cells))
    return table(("student", "steps", "seconds", *SCORES.values()), lines)


def contrasts(runs: Runs) -> str:
    """The planned contrast at equal steps and equal time, then those of more layers."""
    lines = []

    def last(name: str) -> int:
        return min(max(row["step"] for row in runs[name, seed]) for seed in SEEDS)

    for first in (setting.name for setting in SETTINGS[1:]):
        steps = [step for power in range(20) if (step := GRID * 2**power) <= min(last(first), last(BASE.name))]
        for step in steps if first == TWICE.name else steps[-1:]:
            cells = contrast(runs, first, BASE.name, step, step)
            lines.append((f"{first} against {BASE.name}, equal steps", f"{step:,}", f"{step:,}", *cells))
        ratio = seconds_of(runs, first) / seconds_of(runs, BASE.name)
        step = min(last(first), int(last(BASE.name) / ratio))
        cells = contrast(runs, first, BASE.name, step, step * ratio)
        lines.append((f"{first} against {BASE.name}, equal time", f"{step:,}", f"{step * ratio:,.0f}", *cells))
    return table(("contrast", "its steps", f"steps of {BASE.name}", *SCORES.values()), lines)


def programs(work: Path, rounds: int = 5) -> str:
    """Students of the first seed as int8 programs, timed in turn in new native processes."""
    items = []
    for setting in SETTINGS:
        folder = work / "programs" / setting.name
        student = work / "runs" / f"{setting.name}-{SEEDS[0]}" / "student"
        export(student, target="linux", runtime="onnx", precision="int8", output=folder, force=True)
        items += items_of(folder, setting.name)
    measure_items(items, rounds, 20, LENGTHS)
    base = items[0]
    lines = [
        (
            item.name, f"{item.bytes / 1e6:.1f}", f"{(item.bytes - base.bytes) / 1e6:+.1f}",
            *(spread(item.values(f"p50_{n}")) for n in LENGTHS),
            *(spread([a / b for a, b in zip(item.values(f"p50_{n}"), base.values(f"p50_{n}"), strict=True)])
              for n in LENGTHS),
        )
        for item in items
    ]  # fmt: skip
    header = ("student", "MB", f"to {base.name}", *(f"{n} tokens, ms" for n in LENGTHS),
              *(f"{n} tokens, ratio" for n in LENGTHS))  # fmt: skip
    return table(header, lines)


def rate_scores(rows: Sequence[dict[str, Any]], rate: float) -> list[float]:
    """R² of the two settings of the contrast in the check of a learning rate."""
    keys = [(setting.name, rate, RATE_SEED) for setting in (BASE, TWICE)]
    return [
        at_step([row for row in rows if (row["setting"], row["rate"], row["seed"]) == key], "r2", GRID) for key in keys
    ]


def page(rows: Sequence[dict[str, Any]], program_table: str) -> str:
    runs: Runs = {}
    for row in rows:
        if row["seed"] in SEEDS:
            runs.setdefault((row["setting"], row["seed"]), []).append(row)
    rates = [(f"{rate:g}", *(f"{score:.1f}" for score in rate_scores(rows, rate))) for rate in RATES]
    plan = (__doc__ or "").split("The plan, written before the first run:")[1].split("Shapes:")[0].strip()
    times = ", ".join(f"{setting.name} {1000 * seconds_of(runs, setting.name):.0f}" for setting in SETTINGS)
    return "\n\n".join([
        "## The plan, written before the first run",
        plan,
        "## Curves",
        f"Scores x 100: mean over {len(SEEDS)} seeds, lowest and highest. Trained in {rows[0]['precision']} on one "
        f"thread; milliseconds per step: {times}.",
        curves(runs),
        "## Contrasts",
        "Mean difference over the seeds with the 95 % interval of Student's t, then the seeds.",
        contrasts(runs),
        "## On the device",
        "The int8 ONNX programs, one thread, medians of new native processes in turn; all have the same token table.",
        program_table,
        f"## Learning rate: R² after {GRID} steps",
        table(("rate", BASE.name, TWICE.name), rates),
    ])  # fmt: skip


def main() -> None:
    parser = options_for(__doc__, "recurrence")
    parser.add_argument("--data", type=Path, required=True, help="data folder (docs/guides/data.md)")
    parser.add_argument("--work", type=Path, default=Path("runs/recurrence"), help="folder of runs and rows")
    parser.add_argument(
        "--e5", type=Path, required=True, help="multilingual-e5-small as a folder of sentence-transformers"
    )
    parser.add_argument("--double", action="store_true", help=f"twice the steps of {BASE.name} and {TWICE.name}")
    options = parser.parse_args()
    torch.set_num_threads(1)
    stored = KeptRows(options.work / "rows.jsonl")

    def measure(setting: Setting, rate: float, seed: int, folder: str) -> None:
        if stored.has(setting=setting.name, rate=rate, seed=seed, step=setting.steps):
            return
        print(f"{folder}: {setting.steps} steps", file=sys.stderr, flush=True)
        key = {"setting": setting.name, "rate": rate, "seed": seed}
        scored = [row["step"] for row in stored if key.items() <= row.items()]
        for row in train(setting, rate, seed, options.e5, options.data, options.work / "runs" / folder, scored):
            stored.add(row)

    for rate in RATES:
        for setting in (BASE, TWICE):
            measure(setting._replace(steps=GRID), rate, RATE_SEED, f"{setting.name}-rate-{rate:g}")
    best = max(RATES, key=lambda rate: sum(rate_scores(stored, rate)))
    for seed in SEEDS:
        for setting in SETTINGS:
            measure(setting, best, seed, f"{setting.name}-{seed}")
    if options.double:
        for seed in SEEDS:
            for setting in (BASE, TWICE):
                measure(setting._replace(steps=2 * setting.steps), best, seed, f"{setting.name}-{seed}")
    if options.write:
        text = page(stored, programs(options.work))
        write_page(options.write, "Layers applied twice, with a multilingual teacher of twelve layers",
                   "students trained in these runs", text, "torch transformers onnxruntime")  # fmt: skip


if __name__ == "__main__":
    main()
