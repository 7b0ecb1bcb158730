"""Rehearsal of training at full size: generated pairs in shards, several processes, two machines, kills.

    python benchmarks/scale.py --pairs 3000000 10000000 --work FOLDER --write docs/results/scale.md

The pairs are in gz, parquet and jsonl shards, one of them torn. A run of `--steps` steps is made by 1, 2 and 4 gloo
processes; by two "machines" (cache folders of their own, at most 256 open files); and by two processes of which one is
killed, resumed by another number of processes. Losses of all are compared with those of one process. Teacher and
student are `--model`; the teacher's vectors are in float32, so that they do not depend on the batch.
"""

import argparse
import gzip
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from results_page import model_version, options_for, table, write_page

FORMATS = ("tsv.gz", "parquet", "jsonl")
MOST_FILES = 256
WORDS = 20_000


def sentences(rng: np.random.Generator, count: int, language: str) -> list[str]:
    """Sentences of 3 to 12 invented words, frequent and rare ones."""
    lengths = rng.integers(3, 13, count)
    words = np.minimum(rng.zipf(1.3, int(lengths.sum())), WORDS)
    texts = [f"{language}{word:x}" for word in words.tolist()]
    ends = np.cumsum(lengths).tolist()
    return [" ".join(texts[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]


def write_corpus(folder: Path, pairs: int, shards: int) -> None:
    """`pairs` pairs in `shards` files of three formats; a gz file in the middle ends in the middle."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "complete").is_file():
        return
    for number in range(shards):
        kind, rng = FORMATS[number % len(FORMATS)], np.random.default_rng(number)
        count = pairs // shards
        english, others = sentences(rng, count, "e"), sentences(rng, count, "d")
        path = folder / f"part-{number:03d}.en-de.{kind}"
        if kind == "parquet":
            pq.write_table(pa.table({"en": english, "de": others}), path)
            continue
        with gzip.open(path, "wt", 1) if kind == "tsv.gz" else open(path, "w", encoding="utf-8") as out:
            for source, target in zip(english, others, strict=True):
                out.write(
                    f"{source}\t{target}\n" if kind == "tsv.gz" else json.dumps({"en": source, "de": target}) + "\n"
                )
    torn = sorted(folder.glob("*.tsv.gz"))[-1]
    os.truncate(torn, torn.stat().st_size // 2)
    (folder / "complete").touch()


def recipe(corpus: Path, model: str, steps: int, batch: int) -> dict[str, Any]:
    """One stage of `steps` steps on the corpus."""
    stage = {"name": "train", "train": "student", "objective": ["multilingual_mse", "multilingual_contrastive"],
             "steps": steps, "batch": batch, "max_length": 32, "learning_rate": 1e-4,
             "evaluate_every": steps}  # fmt: skip
    corpora = [{"path": f"{corpus}/*.{kind}", "languages": ["de"]} for kind in FORMATS]
    return {"name": "scale", "teacher": model, "assistant": None, "student": model, "corpora": corpora,
            "heldout": {"pairs": 20, "share": 0.001}, "threads": 1, "precision": "float32", "stock_twin": False,
            "stages": [stage]}  # fmt: skip


def child(options: argparse.Namespace) -> None:
    """One process of a run: train, and print what it needed."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from msdc.distill import distill
    from msdc.distill.training import trainer
    from msdc.machine import peak_mib

    # CPU seconds of the process: other processes of the machine make them longer by little.
    began, figures = time.process_time(), {"first": 0.0, "files": 0}
    trainer.CHECKPOINT_SECONDS = 0.0  # a checkpoint after every step: a kill loses nothing

    def stepped(*_: Any) -> None:
        figures["first"] = figures["first"] or time.process_time() - began
        if os.path.isdir("/proc/self/fd"):
            figures["files"] = max(figures["files"], len(os.listdir("/proc/self/fd")))

    register_optimizer_step_post_hook(stepped)
    distill(json.loads(Path(options.recipe).read_text()), Path(options.run), options.resume)
    print(json.dumps({**figures, "seconds": time.process_time() - began, "peak_mib": peak_mib()}))


def feed_rate(tree: dict[str, Any], cache: Path) -> dict[str, float]:
    """Pairs per CPU second of the feed with all vectors stored, one epoch (at most a million pairs), and open files."""
    from msdc import load_encoder
    from msdc.distill.catalog import parse_recipe
    from msdc.distill.data.corpora import open_corpora
    from msdc.distill.data.tables import open_source_table
    from msdc.distill.data.text import StageText
    from msdc.distill.teacher.store import VectorStore
    from msdc.distill.training.feed import BatchFeed

    os.environ["XDG_CACHE_HOME"] = str(cache)
    recipe = parse_recipe(tree, "scale")
    encoder = load_encoder(tree["student"])
    text = StageText([open_source_table(source) for source in open_corpora(recipe.corpora)], 1, recipe.heldout)
    store = VectorStore(cache / "rate", encoder.width)
    for table_ in text.tables:
        for keys in np.array_split(table_.keys[:, 0], -(-table_.rows // 65_536)):
            store.write(keys, np.ones((len(keys), encoder.width), np.float32))
    teacher: Any = SimpleNamespace(width=encoder.width, layers=(), stored=store.read, rows=None)
    feed = BatchFeed(recipe.stages[0], text, encoder.tokenizer, 1, teacher)
    batches, pairs, pairs_to_read = feed.batches(), 0, min(10**6, text.order.epoch_rows)
    next(batches)
    began = time.process_time()
    while pairs < pairs_to_read:
        pairs += len(next(batches))
    seconds, files = time.process_time() - began, len(os.listdir("/proc/self/fd"))
    batches.close()
    return {"pairs_per_second": pairs / seconds, "files": files}


def losses(run: Path) -> list[float]:
    """The loss of each logged step."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [row["loss"] for row in rows if "loss" in row and "step" in row]


def train(
    work: Path,
    name: str,
    tree: dict[str, Any],
    world: int,
    *,
    machines: bool = False,
    resume: bool = False,
    kill_at: int | None = None,
) -> list[dict[str, Any]]:
    """A run of `world` processes; what each needed, none if one was killed after `kill_at` steps."""
    file, run = work / "recipe.json", work / name
    file.write_text(json.dumps(tree))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes = []
    for rank in range(world):
        cache = work / (f"cache-{rank % 2}" if machines else "cache")
        process_environment = {
            "RANK": rank,
            "LOCAL_RANK": 0 if machines else rank,
            "WORLD_SIZE": world,
            "MASTER_PORT": port,
        }
        environment = os.environ | {key: str(value) for key, value in process_environment.items()}
        environment |= {"MASTER_ADDR": "127.0.0.1", "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
        words = [sys.executable, __file__, "--child", "--recipe", str(file), "--run", str(run)]
        limit = (lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (MOST_FILES, MOST_FILES))) if machines else None
        processes.append(
            subprocess.Popen(
                [*words, *(["--resume"] if resume else [])], env=environment, preexec_fn=limit,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        )  # fmt: skip
    if kill_at is not None:
        while not (run / "metrics.jsonl").is_file() or len(losses(run)) < kill_at:
            time.sleep(0.05)
            if processes[0].poll() is not None:
                break
        os.kill(processes[-1].pid, signal.SIGKILL)
        # The others learn it from their connection; a scheduler ends them at once.
        time.sleep(1.0)
        for process in processes:
            process.kill()
    outputs = [process.communicate() for process in processes]
    if kill_at is not None:
        return []
    for process, (_, errors) in zip(processes, outputs, strict=True):
        if process.returncode:
            raise SystemExit(f"{name}: a process failed:\n{errors[-2000:]}")
    return [json.loads(output.splitlines()[-1]) for output, _ in outputs]


def disk_bytes(folder: Path) -> int:
    """Bytes that files occupy."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def rehearse(
    work: Path, pairs: int, shards: int, model: str, steps: int, batch: int, worlds: tuple[int, ...], quick: bool
) -> Any:
    """All runs with one corpus: rows of a table, and the largest difference of a loss from that of one process."""
    corpus = work / "corpus"
    write_corpus(corpus, pairs, shards)
    tree = recipe(corpus, model, steps, batch)
    rows: list[Any] = []
    expected: list[Any] = []

    def measured(name: str, world: int, **options: Any) -> None:
        processes = train(work, name, tree, world, **options)
        run_losses = losses(work / name)
        expected.append(run_losses) if not expected else None
        assert len(run_losses) == len(expected[0]) == steps, f"{name}: {len(run_losses)} of {steps} steps are logged"
        difference = max(abs(loss - expected_loss) for loss, expected_loss in zip(run_losses, expected[0], strict=True))
        rows.append(
            {
                "run": name,
                "processes": world,
                "first": max(process["first"] for process in processes),
                "seconds": max(process["seconds"] for process in processes),
                "peak_mib": max(process["peak_mib"] for process in processes),
                "files": max(process["files"] for process in processes),
                "difference": difference,
            }
        )
        print(json.dumps({"pairs": pairs, **rows[-1]}), file=sys.stderr, flush=True)

    measured(f"first run, {worlds[0]}", worlds[0])
    for world in worlds[:-1] if quick else worlds:
        measured(f"text read before, {world}", world)
    measured("two machines", 2, machines=True)
    train(work, "killed", tree, 2, kill_at=max(1, steps // 3))
    if not quick:
        train(work, "killed", tree, 1, resume=True, kill_at=max(2, 2 * steps // 3))
    measured("killed", 1 if quick else 3, resume=True)
    disk = disk_bytes(work / "cache")
    return {"pairs": pairs, "rows": rows, "disk": disk, "corpus": disk_bytes(corpus),
            "feed": feed_rate(tree, work / "cache")}  # fmt: skip


def page(sizes: list[dict[str, Any]], steps: int, batch: int) -> str:
    sections = []
    for size in sizes:
        header = ("", "processes", "CPU seconds of a process to the first step", "CPU seconds",
                  "peak memory of a process, MiB", "open files", "largest difference of a loss")  # fmt: skip
        cells = [
            (row["run"], row["processes"], f"{row['first']:.1f}", f"{row['seconds']:.1f}", f"{row['peak_mib']:,.0f}",
             row["files"], f"{row['difference']:.1e}")
            for row in size["rows"]
        ]  # fmt: skip
        sections.append(
            f"## {size['pairs']:,} pairs\n\n{table(header, cells)}\n\nThe corpus takes {size['corpus'] / 1e6:,.0f} MB, "
            f"the cache of one machine {size['disk'] / 1e6:,.0f} MB. With all vectors stored the feed gives "
            f"{size['feed']['pairs_per_second']:,.0f} pairs per CPU second, with {size['feed']['files']} open files."
        )
    return "\n\n".join([
        f"""{steps} steps of {batch} pairs. "First run" reads and tokenizes all text. "Two machines" are two processes
with a cache folder each and at most {MOST_FILES} open files. "Killed" is begun by two processes, killed (SIGKILL of
one), resumed by one, killed, and resumed by three. A shard is torn in the middle: what is before the damage is used.
Not run: GPUs, NCCL, network file systems, separate machines.""",
        *sections,
    ])  # fmt: skip


def main() -> None:
    parser = options_for(__doc__, "scale")
    parser.add_argument("--pairs", type=int, nargs="+", default=[3_000_000, 10_000_000])
    parser.add_argument("--work", type=Path, default=Path("scale"), help="folder for corpora, caches and runs")
    parser.add_argument("--shards", type=int, default=30)
    parser.add_argument("--model", default="msdc-mini")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--quick", action="store_true", help="fewer runs: the part that the test suite runs")
    for name in ("--recipe", "--run"):
        parser.add_argument(name, help=argparse.SUPPRESS)
    for name in ("--child", "--resume"):
        parser.add_argument(name, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options)
        return
    sizes = [
        rehearse(options.work / str(pairs), pairs, options.shards, options.model, options.steps, options.batch,
                 tuple(options.processes), options.quick)
        for pairs in options.pairs
    ]  # fmt: skip
    print(json.dumps(sizes))
    body = page(sizes, options.steps, options.batch)
    write_page(options.write, "Training at full size", model_version(options.model), body, "torch pyarrow numpy")


if __name__ == "__main__":
    main()
