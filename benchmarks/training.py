"""Training speed: this engine against sentence-transformers' trainer on each text, and what each part contributes.

    python benchmarks/training.py --threads 1 --write docs/results/training-speed.md \\
        --corpus short:768 DATA/tatoeba.en-de.tsv.gz --corpus mixed:768 DATA/*.en-de.tsv.gz

The student is the stock 6 x 384 encoder, the loss MSE of both sides to given teacher vectors (multilingual knowledge
distillation), batch 64, longest input 128, AdamW, float32. The engines, and ours with one part switched off at a time,
run in turn, each in its own process. A hook after each optimizer step is the clock of all: one step to warm up, then
whole epochs. Our teacher's vectors are cached before the first step; sentence-transformers gets them as labels, as in
its own example.
"""

import argparse
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results_page import options_for, run_json, spread, table, write_page

from msdc.machine import peak_mib
from msdc.text.quickstart import PARALLEL
from msdc.text.text_files import iterate_lines

MODEL = "all-MiniLM-L6-v2"
BATCH, MAX_LENGTH, RATE = 64, 128, 2e-5
BEGAN = time.monotonic()


def read_pairs(paths: list[str], count: int) -> list[list[str]]:
    """`count` pairs drawn from all files; of a table with one language per column, English with every other column."""
    pairs: list[list[str]] = []
    for path in paths:
        rows = [line.split("\t") for _, line in iterate_lines(path)]
        pairs += [[row[0], other] for row in rows[len(rows[0]) > 2 :] for other in row[1:]]
    # The same rows for both engines: shuffled once, without long ones, which our default leaves out.
    pairs = [pair for pair in pairs if max(map(len, pair)) <= 250]
    random.Random(1).shuffle(pairs)
    if len(pairs) < count:
        raise SystemExit(f"{len(pairs)} pairs of at most 250 characters in {' '.join(paths)}: {count} wanted")
    return pairs[:count]


def ours(folder: Path, pairs: list[list[str]], steps: int, options: argparse.Namespace, side: str) -> None:
    """This engine, with the part switched off that `side` names."""
    import numpy as np

    from msdc import load_encoder
    from msdc.distill.catalog import parse_recipe
    from msdc.distill.run import Run
    from msdc.distill.tasks import sentence
    from msdc.distill.teacher import CachedTeacher
    from msdc.distill.training import feed as batches

    file = folder / "pairs.en-de.tsv"
    file.write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
    stage = {"name": "mkd", "train": "student", "teacher": "teacher", "objective": "multilingual_mse", "steps": steps,
             "batch": BATCH, "max_length": MAX_LENGTH, "learning_rate": RATE, "balance": "proportional",
             "evaluate_every": steps, "freeze": ["embedding.table"] if side == "table frozen" else []}  # fmt: skip
    tree = {
        "name": "speed", "teacher": MODEL, "assistant": None, "student": MODEL,
        "corpora": [{"path": str(file), "languages": ["de"]}], "heldout": {"pairs": 2, "share": 1e-9},
        "threads": options.threads, "precision": "float32", "stages": [stage],
        "cache": False if side == "no cache" else str(folder / "teacher"),
    }  # fmt: skip
    run = Run(parse_recipe(tree, "speed"), folder / "run")
    if run.cache is not None:
        CachedTeacher(load_encoder(MODEL), run.cache, MAX_LENGTH, run.precision).vectors([pair[0] for pair in pairs])
    unchecked: Any = batches, sentence
    feed, task = unchecked
    if side == "no grouping":
        feed.cut = lambda sizes, batch, _, rng: np.split(rng.permutation(len(sizes)), range(batch, len(sizes), batch))
        task.encode_sides = lambda student, sides, _=None: [student(*side_inputs) for side_inputs in sides]
    run.run()


def sentence_transformers(folder: Path, pairs: list[list[str]], steps: int, options: argparse.Namespace) -> None:
    """The trainer as its multilingual example uses it."""
    import torch
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers import SentenceTransformerTrainingArguments as Arguments
    from sentence_transformers.sentence_transformer import losses

    from msdc import load_encoder
    from msdc.encoders.folder import locate_model

    torch.set_num_threads(options.threads)
    english, others = map(list, zip(*pairs, strict=True))
    labels = load_encoder(MODEL).encode(english)
    data = Dataset.from_dict({"english": english, "non_english": others, "label": labels.tolist()})
    model = SentenceTransformer(str(locate_model(MODEL)), device="cuda" if torch.cuda.is_available() else "cpu")
    model.max_seq_length = MAX_LENGTH
    arguments = Arguments(
        output_dir=str(folder), max_steps=steps, per_device_train_batch_size=BATCH, learning_rate=RATE,
        warmup_ratio=0.1, save_strategy="no", report_to="none", use_cpu=not torch.cuda.is_available(),
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    SentenceTransformerTrainer(model=model, args=arguments, train_dataset=data, loss=losses.MSELoss(model)).train()


ENGINES = ("ours", "sentence-transformers")
SIDES = {
    "ours": "batches of near length, encoded in groups of near length over both sides; fused AdamW over all weights; "
            "the teacher's vectors from the cache",
    "sentence-transformers": "its trainer with its defaults: random batches, each side padded to its longest, fused "
                             "AdamW; it is given the teacher's vectors as labels",
    "no grouping": "ours; batches cut in random order, sides padded to their longest (`cut`, `encode_sides` replaced)",
    "no cache": "ours; the teacher encodes the English side in every epoch (`cache: false`)",
    "table frozen": "ours; the token table is not trained (`freeze: [embedding.table]`), the most that updating only "
                    "the touched rows could save; neither engine does that, since it is another optimizer",
}  # fmt: skip


def measure(side: str, pairs: list[list[str]], options: argparse.Namespace) -> dict[str, Any]:
    """Seconds per epoch, tokens per pair, seconds of start and warm-up, memory."""
    from torch import nn
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import register_optimizer_step_post_hook

    timed = -(-len(pairs) // BATCH) * options.epochs
    steps = 1 + timed
    tokens, marks = [0, 0], []

    def stepped(*_: Any) -> None:
        marks.append((time.monotonic(), time.process_time(), *tokens))

    def count(module: nn.Module, inputs: Any) -> None:
        # The token table of either engine, as the student reads it; [PAD] is token 0.
        if isinstance(module, nn.Embedding) and module.training and module.num_embeddings > 10_000:
            tokens[0] += inputs[0].numel()
            tokens[1] += int(inputs[0].count_nonzero())

    register_optimizer_step_post_hook(stepped)
    register_module_forward_pre_hook(count)
    with tempfile.TemporaryDirectory() as name:
        if side == "sentence-transformers":
            sentence_transformers(Path(name), pairs, steps, options)
        else:
            ours(Path(name), pairs, steps, options, side)
    wall, cpu, computed, real = (
        (end - start) / options.epochs for start, end in zip(marks[0], marks[timed], strict=True)
    )
    return {"wall": wall, "cpu": cpu, "computed": computed / len(pairs), "real": real / len(pairs),
            "once": marks[0][0] - BEGAN, "peak_mib": peak_mib()}  # fmt: skip


def text_section(text: str, count: int, runs: dict[str, list[dict[str, Any]]]) -> str:
    """Seconds of every side on one text, and ratios repeat by repeat."""

    def cells(side: str) -> tuple[str, ...]:
        own_runs = runs[side]
        seconds = [spread([run[clock] for run in own_runs], 1) for clock in ("wall", "cpu")]
        ratios = [
            spread([run[clock] / reference[clock] for run, reference in zip(own_runs, runs["ours"], strict=False)])
            for clock in ("wall", "cpu")
        ]
        rate = 2 * count / statistics.median(run["wall"] for run in own_runs)
        return (side, *seconds, *ratios, f"{own_runs[0]['computed']:.1f}", f"{rate:.0f}",
                f"{statistics.median(run['once'] for run in own_runs):.0f}",
                f"{own_runs[-1]['peak_mib']:,.0f}")  # fmt: skip

    header = ("", "seconds per epoch", "CPU seconds", "times ours", "times ours, CPU", "tokens computed per pair",
              "sentences per second", "start and first step, seconds", "peak memory, MiB")  # fmt: skip
    return (f"## {text}: {count:,} pairs\n\n{table(header, map(cells, runs))}\n\nWithout any padding a pair has "
            f"{runs['ours'][0]['real']:.1f} tokens, both sides together.")  # fmt: skip


def page_body(options: argparse.Namespace, counts: dict[str, int], runs: dict[str, Any]) -> str:
    return "\n\n".join([
        f"Batch {BATCH}, longest input {MAX_LENGTH}, float32, threads: {options.threads}, dropout as the "
        "model has it (our recipes train without: `student.dropout: 0`); medians over the repeats, in brackets the "
        "lowest and highest; ratios repeat by repeat. Each part is switched off alone: a ratio above 1 is what that "
        "part saves.",
        "\n".join(f"* **{side}**: {SIDES[side]}." for side in options.sides),
        *(text_section(text, counts[text], runs[text]) for text in runs),
    ])  # fmt: skip


def main() -> None:
    parser = options_for(__doc__, "training-speed")
    parser.add_argument("--corpus", nargs="+", action="append", metavar=("NAME:PAIRS", "FILE"),
                        help="a text: tsv or tsv.gz files; repeat for another (default: the embedded)")  # fmt: skip
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--part-repeats", type=int, default=3, help="of ours with a part switched off")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--parts", nargs="*", choices=tuple(SIDES)[2:], default=tuple(SIDES)[2:])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        side, file = options.child
        print(json.dumps(measure(side, json.loads(Path(file).read_text("utf-8")), options)))
        return
    options.sides = (*ENGINES, *options.parts)
    texts = {}
    for name, *files in options.corpus or [["embedded:512", str(PARALLEL)]]:
        text, _, count = name.partition(":")
        if not (files and count.isdigit()):
            parser.error(f"--corpus {name}: expected NAME:PAIRS and files")
        texts[text] = read_pairs(files, int(count))
    runs: dict[str, Any] = {text: {side: [] for side in options.sides} for text in texts}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pairs.json"
        child_options = [word for key in ("epochs", "threads") for word in (f"--{key}", getattr(options, key))]
        for repeat, text, side in itertools.product(range(options.repeats), texts, options.sides):
            if repeat >= options.part_repeats and side not in ENGINES:
                continue
            file.write_text(json.dumps(texts[text]), encoding="utf-8")
            runs[text][side].append(run_json(__file__, "--child", side, file, *child_options, threads=options.threads))
            print(f"repeat {repeat + 1}, {text}: {side}: {runs[text][side][-1]}", file=sys.stderr, flush=True)
    print(json.dumps(runs))
    write_page(options.write, "Training speed against sentence-transformers", f"{MODEL} (6 layers, width 384)",
               page_body(options, {text: len(pairs) for text, pairs in texts.items()}, runs),
               "torch transformers sentence-transformers")  # fmt: skip


if __name__ == "__main__":
    main()
