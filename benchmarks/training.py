"""Training speed: this engine against sentence-transformers' trainer, same model, pairs, batch, loss and precision.

    python benchmarks/training.py --threads 2 --corpus DATA/*/*.en-de.tsv.gz --write docs/results/training-speed.md

The student is the stock 6 x 384 encoder, the loss MSE of both sides to given teacher vectors (multilingual knowledge
distillation), batch 64, longest input 128, AdamW, float32. The engines run in turn, each in its own process, so that
peak memory (VmHWM) is separate; the result holds all repeats. Epochs are timed from the second on: by then our guide
vectors come from the cache; sentence-transformers gets its vectors as labels, computed before its clock starts, as in
its own example. One-time work (loading, the first epoch) is excluded and reported separately.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results_page import add_write_option, table, write_page

MODEL = "all-MiniLM-L6-v2"
BATCH, MAX_LENGTH, RATE = 64, 128, 2e-5


def read_pairs(paths: list[str], count: int) -> list[tuple[str, str]]:
    """`count` pairs drawn from all files; of a table with one language per column, English with every other column."""
    pairs: list[tuple[str, str]] = []
    for path in paths:
        data = gzip.decompress(Path(path).read_bytes()) if path.endswith(".gz") else Path(path).read_bytes()
        rows = [line.split("\t") for line in data.decode().rstrip("\n").split("\n")]
        pairs += [(row[0], other) for row in rows[len(rows[0]) > 2 :] for other in row[1:]]
    # The same rows for both sides: shuffled once, long ones out as the engine's default does.
    pairs = [pair for pair in pairs if max(map(len, pair)) <= 250]
    random.Random(1).shuffle(pairs)
    return pairs[:count]


def read_lines(path: Path) -> list[list[str]]:
    """The pairs that both sides train on."""
    return [line.split("\t") for line in path.read_text(encoding="utf-8").rstrip("\n").split("\n")]


def peak_mib() -> float:
    """Peak memory (VmHWM) of this process."""
    status = Path("/proc/self/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM"))) / 1024


def numbers(pairs: int, first_s: float, later: list[tuple[float, float]]) -> dict[str, Any]:
    """The result of one engine: wall and processor seconds of each epoch but the first, peak memory."""
    walls, processors = [wall for wall, _ in later], [cpu for _, cpu in later]
    return {"pairs": pairs, "first_epoch_s": first_s, "epoch_s": walls, "epoch_cpu_s": processors,
            "vmhwm_mib": peak_mib()}  # fmt: skip


def ours(pairs_file: Path, work: Path, epochs: int, precision: str, threads: int) -> dict[str, Any]:
    """The pipeline of `msdc distill`; times from its metrics."""
    from msdc.distill.catalog import parse_recipe
    from msdc.distill.run import Run

    pairs = len(read_lines(pairs_file))
    steps = -(-pairs // BATCH) * epochs
    tree = {
        "name": "speed",
        "teacher": MODEL,
        "assistant": None,
        "student": MODEL,
        "corpora": [{"path": str(pairs_file), "languages": ["de"]}],
        "heldout": {"pairs": 2, "share": 1e-9},
        "threads": threads,
        "precision": precision,
        "cache": str(work / "guides"),
        "stages": [{"name": "mkd", "train": "student", "guide": "teacher", "objective": "multilingual_mse",
                    "steps": steps, "batch": BATCH, "max_length": MAX_LENGTH, "learning_rate": RATE,
                    "balance": "proportional", "evaluate_every": steps}],
    }  # fmt: skip
    at: dict[int, tuple[float, float]] = {}

    class Timed(Run):
        def log(self, row: dict[str, Any]) -> None:
            if "steps_per_second" in row:
                at[row["step"]] = (row["seconds"], time.process_time())
            super().log(row)

    Timed(parse_recipe(tree, "speed"), work / f"run-{os.getpid()}").run()
    ends = [at[min(at, key=lambda step: abs(step - steps * (epoch + 1) // epochs))] for epoch in range(epochs)]
    later = [(two[0] - one[0], two[1] - one[1]) for one, two in itertools.pairwise(ends)]
    return numbers(pairs, ends[0][0], later)


def sentence_transformers(pairs_file: Path, work: Path, epochs: int, precision: str, threads: int) -> dict[str, Any]:
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

    from msdc.encoders.encoder import load_encoder
    from msdc.encoders.folder import locate_model

    torch.set_num_threads(threads)
    pairs = read_lines(pairs_file)
    labels = load_encoder(MODEL).encode([one for one, _ in pairs])
    data = Dataset.from_dict(
        {"english": [one for one, _ in pairs], "non_english": [two for _, two in pairs], "label": labels.tolist()}
    )
    model = SentenceTransformer(str(locate_model(MODEL)), device="cpu")
    model.max_seq_length = MAX_LENGTH
    times: list[tuple[float, float]] = []

    class Clock(TrainerCallback):
        def on_epoch_begin(self, *args: Any, **kwargs: Any) -> None:
            times.append((time.monotonic(), time.process_time()))

        def on_epoch_end(self, *args: Any, **kwargs: Any) -> None:
            times.append((time.monotonic(), time.process_time()))

    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(work / "st"), num_train_epochs=epochs, per_device_train_batch_size=BATCH, learning_rate=RATE,
        warmup_ratio=0.1, save_strategy="no", report_to="none", bf16=precision == "bfloat16", use_cpu=True,
        disable_tqdm=True, logging_strategy="no",
    )  # fmt: skip
    SentenceTransformerTrainer(
        model=model, args=arguments, train_dataset=data, loss=MSELoss(model), callbacks=[Clock()]
    ).train()
    seconds = [(two[0] - one[0], two[1] - one[1]) for one, two in zip(times[::2], times[1::2], strict=True)]
    return numbers(len(pairs), seconds[0][0], seconds[1:])


SIDES = {"ours": ours, "sentence-transformers": sentence_transformers}


def summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Medians over all later epochs of all repeats, and the range of the rate; both sides of a pair are sentences."""
    rates = [2 * run["pairs"] / seconds for run in runs for seconds in run["epoch_s"]]
    return {
        "sentences_per_s": statistics.median(rates), "lowest": min(rates), "highest": max(rates),
        **{key: statistics.median(value for run in runs for value in run[key]) for key in ("epoch_s", "epoch_cpu_s")},
        "first_epoch_s": statistics.median(run["first_epoch_s"] for run in runs),
        "vmhwm_mib": max(run["vmhwm_mib"] for run in runs),
    }  # fmt: skip


def page_body(report: dict[str, Any]) -> str:
    """What was run, one row per engine, the ratio."""
    header = ("engine", "seconds per epoch", "first epoch", "CPU seconds per epoch", "sentences per second",
              "peak memory, MiB")  # fmt: skip
    rows = [
        (side, *(f"{found[key]:.1f}" for key in ("epoch_s", "first_epoch_s", "epoch_cpu_s")),
         f"{found['sentences_per_s']:.1f} [{found['lowest']:.1f}, {found['highest']:.1f}]",
         f"{found['vmhwm_mib']:,.0f}")
        for side, found in report["sides"].items()
    ]  # fmt: skip
    ratio = ""
    if "times_as_fast" in report:
        ratio = (f"\n\nmsdc processes {report['times_as_fast']:.2f} times as many sentences per second; per CPU second "
                 f"the ratio is {report['times_less_processor_time']:.2f}.")  # fmt: skip
    return (
        f"{report['pairs']:,} pairs, batch {BATCH}, longest input {MAX_LENGTH}, {report['precision']}, "
        f"{report['threads']} threads; medians over all epochs but the first, in brackets the lowest and highest.\n\n"
        + table(header, rows) + ratio
    )  # fmt: skip


def main() -> None:
    embedded = Path(__file__).resolve().parents[1] / "msdc" / "data" / "quickstart" / "parallel.tsv"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", nargs="+", default=[str(embedded)], help="tsv or tsv.gz (default: the embedded)")
    parser.add_argument("--pairs", type=int, default=1920)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--sides", nargs="+", choices=tuple(SIDES), default=tuple(SIDES))
    parser.add_argument("-o", "--output", type=Path)
    add_write_option(parser, "training-speed")
    parser.add_argument("--side", choices=tuple(SIDES), help=argparse.SUPPRESS)
    parser.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.side:
        given = (options.work / "pairs.en-de.tsv", options.work, options.epochs, options.precision, options.threads)
        (options.work / "side.json").write_text(json.dumps(SIDES[options.side](*given)))
        return
    if options.epochs < 2:
        parser.error("--epochs must be at least 2: the figure is of the second epoch on")
    pairs = read_pairs(options.corpus, options.pairs)
    results: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "pairs.en-de.tsv").write_text("".join(f"{one}\t{two}\n" for one, two in pairs), encoding="utf-8")
        environment = os.environ | {"OMP_NUM_THREADS": str(options.threads), "TOKENIZERS_PARALLELISM": "false"}
        for repeat in range(options.repeats):
            for side in options.sides:
                command = [sys.executable, __file__, "--side", side, "--work", folder, "--epochs", str(options.epochs),
                           "--precision", options.precision, "--threads", str(options.threads)]  # fmt: skip
                subprocess.run(command, check=True, env=environment)
                results[side].append(json.loads((work / "side.json").read_text()))
                print(f"repeat {repeat + 1}: {side}: {results[side][-1]}", file=sys.stderr, flush=True)
    import torch

    report: dict[str, Any] = {
        "precision": options.precision, "threads": options.threads, "pairs": len(pairs), "torch": torch.__version__,
        "sides": {side: summary(runs) | {"repeats": runs} for side, runs in results.items()},
    }  # fmt: skip
    if len(results) == 2:
        one, two = (report["sides"][side]["sentences_per_s"] for side in SIDES)
        report["times_as_fast"] = one / two
        # On a shared machine CPU time says more than wall time.
        report["times_less_processor_time"] = (
            report["sides"]["sentence-transformers"]["epoch_cpu_s"] / report["sides"]["ours"]["epoch_cpu_s"]
        )
        report["load_average"] = os.getloadavg()[0]
    text = json.dumps(report, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")
    if options.write:
        write_page(options.write, "Training speed against sentence-transformers", f"{MODEL} (6 layers, width 384)",
                   page_body(report), libraries=("torch", "transformers"))  # fmt: skip


if __name__ == "__main__":
    main()
