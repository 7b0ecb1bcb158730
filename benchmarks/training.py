"""Training speed: this engine against sentence-transformers' trainer, same model, pairs, batch, loss and precision.

    python benchmarks/training.py --threads 2 --corpus DATA/*/*.en-de.tsv.gz --write docs/results/training-speed.md

The student is the stock 6 x 384 encoder, the loss MSE of both sides to given teacher vectors (multilingual knowledge
distillation), batch 64, longest input 128, AdamW, float32. The engines run in turn, each in its own process, so that
peak memory (VmHWM) is separate; the result holds all repeats. Epochs are timed from the second on: by then our
teacher's vectors come from the cache; sentence-transformers gets its vectors as labels, computed before its clock
starts, as in its own example. One-time work (loading, the first epoch) is excluded and reported separately.
"""

import argparse
import itertools
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from results_page import options_for, run_json, spread, table, write_page

from msdc.machine import peak_mib
from msdc.text.quickstart import PARALLEL
from msdc.text.text_files import iterate_lines

MODEL = "all-MiniLM-L6-v2"
BATCH, MAX_LENGTH, RATE = 64, 128, 2e-5
Times = list[tuple[float, float]]  # wall and processor seconds of each epoch


def read_pairs(paths: list[str], count: int) -> list[list[str]]:
    """`count` pairs drawn from all files; of a table with one language per column, English with every other column."""
    pairs: list[list[str]] = []
    for path in paths:
        rows = [line.split("\t") for _, line in iterate_lines(path)]
        pairs += [[row[0], other] for row in rows[len(rows[0]) > 2 :] for other in row[1:]]
    # The same rows for both sides: shuffled once, long ones out as the engine's default does.
    pairs = [pair for pair in pairs if max(map(len, pair)) <= 250]
    random.Random(1).shuffle(pairs)
    return pairs[:count]


def ours(pairs_file: Path, pairs: list[list[str]], options: argparse.Namespace) -> Times:
    from msdc.distill.catalog import parse_recipe
    from msdc.distill.run import Run

    epochs = options.epochs
    steps = -(-len(pairs) // BATCH) * epochs
    tree = {
        "name": "speed",
        "teacher": MODEL,
        "assistant": None,
        "student": MODEL,
        "corpora": [{"path": str(pairs_file), "languages": ["de"]}],
        "heldout": {"pairs": 2, "share": 1e-9},
        "threads": options.threads,
        "precision": options.precision,
        "cache": str(pairs_file.parent / "teacher-cache"),
        "stages": [{"name": "mkd", "train": "student", "guide": "teacher", "objective": "multilingual_mse",
                    "steps": steps, "batch": BATCH, "max_length": MAX_LENGTH, "learning_rate": RATE,
                    "balance": "proportional", "evaluate_every": steps}],
    }  # fmt: skip
    at: dict[int, tuple[float, float]] = {0: (0.0, 0.0)}

    class Timed(Run):
        def log(self, row: dict[str, Any]) -> None:
            if "steps_per_second" in row:
                at[row["step"]] = (row["seconds"], time.process_time())
            super().log(row)

    with tempfile.TemporaryDirectory() as folder:
        Timed(parse_recipe(tree, "speed"), Path(folder) / "run").run()
    ends = [at[min(at, key=lambda step: abs(step - steps * epoch // epochs))] for epoch in range(epochs + 1)]
    return [(two[0] - one[0], two[1] - one[1]) for one, two in itertools.pairwise(ends)]


def sentence_transformers(pairs_file: Path, pairs: list[list[str]], options: argparse.Namespace) -> Times:
    """The trainer as its multilingual example uses it."""
    import torch
    from datasets import Dataset
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.losses import MSELoss
    from transformers import TrainerCallback

    from msdc import load_encoder
    from msdc.encoders.folder import locate_model

    torch.set_num_threads(options.threads)
    english, others = map(list, zip(*pairs, strict=True))
    labels = load_encoder(MODEL).encode(english)
    data = Dataset.from_dict({"english": english, "non_english": others, "label": labels.tolist()})
    model = SentenceTransformer(str(locate_model(MODEL)), device="cpu")
    model.max_seq_length = MAX_LENGTH
    clock: Times = []

    class Clock(TrainerCallback):
        def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
            clock.append((time.monotonic(), time.process_time()))

        on_epoch_end = on_epoch_begin

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(pairs_file.parent / "st"), num_train_epochs=options.epochs, per_device_train_batch_size=BATCH,
        learning_rate=RATE, warmup_ratio=0.1, save_strategy="no", report_to="none",
        bf16=options.precision == "bfloat16", use_cpu=True, disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=data, loss=MSELoss(model), callbacks=[Clock()]
    ).train()
    return [(two[0] - one[0], two[1] - one[1]) for one, two in zip(clock[::2], clock[1::2], strict=True)]


SIDES: dict[str, Callable[..., Times]] = {"ours": ours, "sentence-transformers": sentence_transformers}


def page_body(options: argparse.Namespace, pairs: int, runs: dict[str, list[dict[str, Any]]]) -> str:
    rows, rates, processor = [], {}, {}
    for side, found in runs.items():
        walls, cpus = zip(*(epoch for run in found for epoch in run["epochs"][1:]), strict=True)
        first = statistics.median(run["epochs"][0][0] for run in found)
        speeds = [2 * pairs / seconds for seconds in walls]
        rates[side], processor[side] = statistics.median(speeds), statistics.median(cpus)
        rows.append((side, f"{statistics.median(walls):.1f}", f"{first:.1f}", f"{processor[side]:.1f}",
                     spread(speeds, 1), f"{max(run['peak_mib'] for run in found):,.0f}"))  # fmt: skip
    header = ("engine", "seconds per epoch", "first epoch", "CPU seconds per epoch", "sentences per second",
              "peak memory, MiB")  # fmt: skip
    text = (
        f"{pairs:,} pairs, batch {BATCH}, longest input {MAX_LENGTH}, {options.precision}, {options.threads} threads; "
        "medians over all epochs but the first, in brackets the lowest and highest.\n\n" + table(header, rows)
    )
    if len(rates) == 2:
        # On a shared machine CPU time says more than wall time.
        one, two = SIDES
        text += (f"\n\nmsdc processes {rates[one] / rates[two]:.2f} times as many sentences per second; per CPU second "
                 f"the ratio is {processor[two] / processor[one]:.2f}.")  # fmt: skip
    return text


def main() -> None:
    parser = options_for(__doc__, "training-speed")
    parser.add_argument("--corpus", nargs="+", default=[str(PARALLEL)], help="tsv or tsv.gz (default: the embedded)")
    parser.add_argument("--pairs", type=int, default=1920)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=tuple(SIDES))
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        file = Path(options.child[1])
        epochs = SIDES[options.child[0]](file, [line.split("\t") for _, line in iterate_lines(file)], options)
        print(json.dumps({"epochs": epochs, "peak_mib": peak_mib()}))
        return
    if options.epochs < 2:
        parser.error("--epochs must be at least 2: the figure is of the second epoch on")
    pairs = read_pairs(options.corpus, options.pairs)
    runs: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "pairs.en-de.tsv"
        file.write_text("".join("\t".join(pair) + "\n" for pair in pairs), encoding="utf-8")
        given = [word for key in ("epochs", "precision", "threads") for word in (f"--{key}", getattr(options, key))]
        for repeat, side in itertools.product(range(options.repeats), options.sides):
            runs[side].append(run_json(__file__, "--child", side, file, *given, threads=options.threads))
            print(f"repeat {repeat + 1}: {side}: {runs[side][-1]}", file=sys.stderr, flush=True)
    print(json.dumps(runs))
    write_page(options.write, "Training speed against sentence-transformers", f"{MODEL} (6 layers, width 384)",
               page_body(options, len(pairs), runs), "torch transformers")  # fmt: skip


if __name__ == "__main__":
    main()
