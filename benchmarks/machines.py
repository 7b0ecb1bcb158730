"""Rates of the blocks of docs/guides/machines.md on one machine.

    python benchmarks/machines.py --work WORK --cluster-python CLUSTER/bin/python --write docs/results/machines.md

CLUSTER has `pip install ray pyspark` and the base install of msdc; without it Ray and Spark are left out. Each block
encodes the same sentences in eight parquet files, in a process of its own; its time includes starting.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import pyarrow as pa
import pyarrow.parquet as pq
from results_page import ROOT, model_version, options_for, table, write_page

from msdc.text.quickstart import parallel_table

FILES = 8
BLOCK = re.compile(r"^```(?:python|bash)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def write_shards(folder: Path, count: int) -> None:
    """Sentences of the embedded corpus, each with its number, in FILES files."""
    texts = [text for row in parallel_table()[1] for text in row if text]
    (folder / "shards").mkdir(parents=True)
    for file in range(FILES):
        rows = range(file * count // FILES, (file + 1) * count // FILES)
        columns = {"id": rows, "text": [f"{texts[row % len(texts)]} {row}" for row in rows]}
        pq.write_table(pa.table(columns), folder / f"shards/part-{file}.parquet")


def seconds(folder: Path, commands: list[list[str]], **variables: str) -> float:
    """Of commands that run at the same time; the i-th is task i of an array."""
    # Ray gives its workers a low priority: on a machine with other programs they would wait for those.
    shared = os.environ | {
        "RAY_worker_niceness": "0",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    start = perf_counter()
    running = []
    for number, words in enumerate(commands):
        task = {"SLURM_ARRAY_TASK_ID": str(number), "SLURM_ARRAY_TASK_COUNT": str(len(commands))}
        running.append(
            subprocess.Popen(
                words, cwd=folder, env=shared | task | variables, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL
            )
        )
    codes = [process.wait() for process in running]
    if any(codes):
        raise SystemExit(f"{commands[0][:2]}: exit codes {codes}")
    return perf_counter() - start


def require_rows(folder: Path, count: int) -> None:
    rows = pq.read_table(folder, columns=["id"])["id"].to_pylist()
    if sorted(rows) != list(range(count)):
        raise SystemExit(f"{folder}: {len(rows)} rows, expected {count}")


def main() -> None:
    parser = options_for(__doc__, "machines")
    parser.add_argument("--work", type=Path, required=True, help="a new folder for the files")
    parser.add_argument("--cluster-python", help="python of an environment with ray and pyspark")
    parser.add_argument("--sentences", type=int, default=100_000)
    options = parser.parse_args()
    ray, spark, array, _, _ = BLOCK.findall((ROOT / "docs/guides/machines.md").read_text("utf-8"))
    files = ["msdc", "encode", "msdc-nano", "shards", "--column", "text", "--keep", "id", "-o", "one"]
    ways = [("`msdc encode`, one process", "one", [files]),
            ("SLURM's array, two tasks", "slurm", [["bash", "-eu", "-c", array]] * 2)]  # fmt: skip
    if options.cluster_python:
        ways += [("Ray Data", "ray", [[options.cluster_python, "-c", ray]]),
                 ("Spark, `mapInPandas`", "spark", [[options.cluster_python, "-c", spark]])]  # fmt: skip
    rows = []
    for title, out, commands in ways:
        folder = options.work / out
        write_shards(folder, options.sentences)
        taken = seconds(folder, commands)
        require_rows(folder / out, options.sentences)
        rows.append([title, f"{taken:.0f}", f"{options.sentences / taken:,.0f}"])
        print(rows[-1], flush=True)
    body = f"{options.sentences:,} short sentences; other programs used the machine too.\n\n"
    body += table(["", "seconds", "sentences/s"], rows)
    write_page(options.write, "Beyond one machine, on one", model_version("msdc-nano"), body, "onnxruntime pyarrow")


if __name__ == "__main__":
    main()
