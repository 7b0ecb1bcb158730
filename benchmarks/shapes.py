"""Shapes of msdc-mini by instructions on the target's processor and by scores on development sets.

    msdc distill msdc-mini --data DATA -o RUN
    python benchmarks/shapes.py --data DATA --run RUN --sets SETS --work WORK --write docs/results/shapes.md

Every shape is cut from the run's untaught models and taught by the recipe, cut short, for each seed. Taught students
and rows are kept in WORK: a later call goes on with what is missing. Cortex-A76 is emulated, as in
target_instructions.py.
"""

import functools
import shutil
from pathlib import Path

import numpy as np
import torch
from development_sets import LANGUAGES, SEARCH, DevelopmentSets, Questions
from results_page import KeptRows, options_for, table, write_page
from target_instructions import LENGTHS, measure, shortened

from msdc import load_encoder
from msdc.compress.student.cut import shrink
from msdc.compress.student.io import save_student
from msdc.compress.student.model import Student
from msdc.distill.catalog import load_recipe
from msdc.distill.recipe import Recipe
from msdc.distill.run import Run
from msdc.export import export

ROWS = 500  # of STSb dev
SHAPES = ("as msdc-mini", "ReLU in place of GELU", "768 of 1,536 in the middle", "two layers: 0 and 5")
PARTS = ("within", "across", "English", "news", *SEARCH)


def untaught(shape: str, run: Path) -> Student:
    """The student of a shape, cut from the run's own untaught models."""
    student: Student = load_encoder(run / "student-start").module
    weights = dict(student.state_dict())
    if shape == SHAPES[3]:
        wide: Student = load_encoder(run / "assistant-start").module
        return shrink(wide, layers=[0, 5], repeats=1, bottleneck=student.config.bottleneck, frequency_V=None)
    if shape == SHAPES[2]:
        for layer in range(student.config.unit):
            up, bias, down = (f"layers.{layer}.{name}" for name in ("up.weight", "up.bias", "down.weight"))
            # The numbers that can move the output most: by the norms of what comes in and of what goes out.
            strength_I = weights[up].norm(dim=1) * weights[down].norm(dim=0)
            kept = strength_I.topk(768).indices.sort().values
            weights |= {up: weights[up][kept], bias: weights[bias][kept], down: weights[down][:, kept].contiguous()}
    update = {SHAPES[1]: {"activation": "relu"}, SHAPES[2]: {"intermediate": 768}}.get(shape, {})
    changed = Student(student.config.model_copy(update=update))
    changed.load_state_dict(weights)
    return changed


def teach(shape: str, seed: int, steps: int, recipe: Recipe, run: Path, folder: Path) -> None:
    """Teach the shape in `folder`; the taught student is `folder`/student."""
    (stage,) = recipe.stages
    stage = stage.model_copy(update={"steps": steps, "evaluate_every": steps})
    name = folder.name
    recipe = recipe.model_copy(update={"stages": (stage,), "name": name, "seed": seed, "threads": 1, "buffer": 120_000})
    start = folder.with_name(f"{name}-start")
    save_student(untaught(shape, run), load_encoder(run / "student-start").tokenizer, start)
    shutil.rmtree(folder, ignore_errors=True)
    going = Run(recipe, folder)
    going.prepare()
    for role, source in (("assistant", run / "assistant-start"), ("student", start)):
        target = going.folder.untrained(role)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(source, target)
    with going.open:
        going.run_stage(0, stage)
    shutil.copytree(going.folder.stage(0, stage).model, folder.with_name(f"{name}-student"))
    shutil.rmtree(folder)
    shutil.rmtree(start)


def report(rows: KeptRows, counts: KeptRows, steps: int) -> str:
    seeds = sorted({row["seed"] for row in rows})
    by = {(row["shape"], row["seed"]): row for row in rows}
    base = {row["name"]: row for row in counts if row["runtime"] == "executorch"}
    lines, gaps = [], []
    for shape in SHAPES:
        count, first = base[shape], base[SHAPES[0]]
        shares = [f"{count[str(n)] / 1e6:.1f} ({count[str(n)] / first[str(n)]:.2f})" for n in LENGTHS]
        values = {part: np.array([by[shape, seed][part] for seed in seeds]) for part in PARTS}
        lines.append((shape, f"{count['bytes']:,}", *shares, *(f"{values[part].mean():.1f}" for part in PARTS)))
        if shape != SHAPES[0]:
            away = {part: values[part] - [by[SHAPES[0], seed][part] for seed in seeds] for part in PARTS}
            gaps.append((shape, *(f"{a.mean():+.1f} [{a.min():+.1f}, {a.max():+.1f}]" for a in away.values())))
    tokens = [f"{n} tokens" for n in LENGTHS]
    return "\n\n".join((
        f"msdc-mini's recipe, {steps} of its 4,000 steps, seeds {', '.join(map(str, seeds))} (order of the text, "
        "held-out pairs; the untaught models are one run's). Million instructions of the ExecuTorch program on an "
        "emulated Cortex-A76, in brackets the share of the first row's. Scores of the taught float weights on "
        f"development sets: the first {ROWS} pairs of STSb dev, Spearman x 100, within {len(LANGUAGES)} languages, "
        "across English and each other, in English; news: share of WMT sentences whose nearest neighbour is their "
        "translation; squad-it, squad-es: MRR@10 x 100 of questions to 300 paragraphs by their best sentence.",
        table(("shape", "bytes", *tokens, *PARTS), lines),
        "Differences to the first row, seed by seed: mean [lowest, highest].",
        table(("shape", *PARTS), gaps),
    ))  # fmt: skip


def main() -> None:
    parser = options_for(__doc__, "shapes")
    parser.add_argument("--data", type=Path, required=True, help="the data folder that the recipe reads")
    parser.add_argument("--sets", type=Path, required=True, help="the data folder of the development sets")
    parser.add_argument("--run", type=Path, required=True, help="a run of msdc-mini's recipe: its untaught models")
    parser.add_argument("--work", type=Path, required=True, help="students and rows are kept here")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    recipe, work = load_recipe("msdc-mini", data=options.data), options.work
    rows, counts = KeptRows(work / "rows.jsonl"), KeptRows(work / "counts.jsonl")
    sets = functools.cache(lambda: DevelopmentSets(options.sets, rows=ROWS))
    questions = functools.cache(lambda name: Questions(options.sets, name))
    for seed in options.seeds:
        for number, shape in enumerate(SHAPES):
            student = work / f"shape-{number}-{seed}-student"
            if not student.is_dir():
                teach(shape, seed, options.steps, recipe, options.run, work / f"shape-{number}-{seed}")
            if not rows.has(shape=shape, seed=seed):
                encode = load_encoder(student).encode
                found = sets().scores(lambda texts, encode=encode: encode(list(texts)))
                found |= {
                    name: questions(name).score(lambda texts, encode=encode: encode(list(texts))) for name in SEARCH
                }
                rows.add({"shape": shape, "seed": seed, **found})
    for number, shape in enumerate(SHAPES):
        bundle = work / f"shape-{number}"
        if not bundle.is_dir():
            student = work / f"shape-{number}-{options.seeds[0]}-student"
            export(student, target="linux", runtime="executorch", precision="int8-embed4", out=bundle)
        if not counts.has(name=shape):
            measure(shape, shortened(bundle), counts)
    write_page(options.write, "Shapes of msdc-mini by instructions and scores", "students of msdc-mini's recipe",
               report(rows, counts, options.steps), "torch executorch torchao")  # fmt: skip


if __name__ == "__main__":
    main()
