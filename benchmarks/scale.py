"""Training on ten million generated pairs: resident memory and time to the first step.

    python benchmarks/scale.py --pairs 10000000 --steps 200 --write docs/results/scale.md

Generates the pairs (all different), runs `msdc distill` on them in its own process and samples it: VmHWM, anonymous
memory (mapped files excluded), seconds from launch to the first finished step (imports, models, held-out rows, a full
shuffle buffer of a million pairs, the first guide vectors), seconds per step after it. Fails when memory reaches 2 GiB
or start-up 30 s. With --guide-rows N the guide store first receives N vectors of other sentences, as after a long run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from results_page import add_write_option, table, write_page

LIMIT_MIB, LIMIT_START_S = 2048.0, 30.0
TEACHER = "all-MiniLM-L6-v2"


def generate(path: Path, pairs: int) -> None:
    """Pairs of 3 to 8 of 40,000 invented words; a leading number makes each pair unique."""
    generator = random.Random(1)
    syllables = [a + b for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "an", "er")]
    words = ["".join(generator.choices(syllables, k=generator.randint(1, 2))) for _ in range(40_000)]
    texts = [" ".join(generator.choices(words, k=3 + number % 6)) for number in range(100_003)]
    with open(path, "w", encoding="utf-8") as handle:
        for first in range(0, pairs, 100_000):
            handle.writelines(
                f"{number} {texts[number % 100_003]}\t{number} {texts[-(number % 99_991)]}\n"
                for number in range(first, min(pairs, first + 100_000))
            )


def fill_store(cache: Path, rows: int) -> None:
    """A guide store that already holds `rows` vectors of other sentences."""
    import numpy as np

    from msdc.distill.teacher_cache import CachedTeacher
    from msdc.encoders.encoder import load_encoder

    store = CachedTeacher(load_encoder(TEACHER), cache, 64).store
    generator = np.random.default_rng(1)
    for first in range(0, rows, 100_000):
        keys = generator.integers(0, 2**63, min(100_000, rows - first), dtype=np.uint64)
        store.append(keys, np.zeros((len(keys), store.width), np.float16))


def status(pid: int) -> dict[str, float]:
    """VmHWM and anonymous memory of a process, MiB; empty after it ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmHWM", "RssAnon"))}
    return {name: int(value) / 1024 for name, value in fields.items()}


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watch(recipe: Path, run_folder: Path, threads: int) -> dict[str, Any]:
    """Run the command and measure it."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, "-m", "msdc.cli", "--debug", "distill", str(recipe), "-o", str(run_folder)]
    began = time.monotonic()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    metrics = run_folder / "metrics.jsonl"
    first = first_cpu = peak = anonymous = 0.0
    while process.poll() is None:
        now = status(process.pid)
        peak, anonymous = max(peak, now.get("VmHWM", 0.0)), max(anonymous, now.get("RssAnon", 0.0))
        if not first and metrics.is_file() and metrics.stat().st_size:
            first, first_cpu = time.monotonic() - began, cpu_seconds(process.pid)
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"msdc distill failed with {process.returncode}")
    rows = [row for row in map(json.loads, metrics.read_text().splitlines()) if "steps_per_second" in row]
    span = rows[-1]["step"] - rows[0]["step"]
    return {
        "first_step_s": first,
        "first_step_cpu_s": first_cpu,
        "wall_s": time.monotonic() - began,
        "seconds_per_step": (rows[-1]["seconds"] - rows[0]["seconds"]) / max(1, span),
        "vmhwm_mib": peak,
        "anonymous_mib": anonymous,
    }


def page_body(report: dict[str, Any]) -> str:
    """What was run and the table of the results page."""
    header = ("peak memory (VmHWM), MiB", "anonymous, MiB", "first step finished after, s",
              "CPU time until then, s", "seconds per step")  # fmt: skip
    row = (f"{report['vmhwm_mib']:,.0f}", f"{report['anonymous_mib']:,.0f}", f"{report['first_step_s']:.1f}",
           f"{report['first_step_cpu_s']:.1f}", f"{report['seconds_per_step']:.2f}")  # fmt: skip
    return (
        f"{report['pairs']:,} generated pairs ({report['corpus_mib']:,.0f} MiB), {report['steps']} steps of "
        f"{report['batch']} pairs, {report['threads']} threads, float32. Limits: {LIMIT_MIB:,.0f} MiB, "
        f"{LIMIT_START_S:.0f} s to the first step.\n\n" + table(header, [row])
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--guide-rows", type=int, default=0)
    parser.add_argument("-o", "--output", type=Path)
    add_write_option(parser, "scale")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        corpus = work / "generated.en-de.tsv"
        generate(corpus, options.pairs)
        if options.guide_rows:
            fill_store(work / "guides", options.guide_rows)
        recipe = {
            "name": "scale",
            "teacher": TEACHER,
            "assistant": TEACHER,
            "student": {"bottleneck": 128, "layers": [0, 4, 5], "repeats": 1, "max_length": 64},
            "corpora": [{"path": str(corpus)}],
            "heldout": {"pairs": 50},
            "threads": options.threads,
            "precision": "float32",
            "cache": str(work / "guides"),
            "stages": [{"name": "teach", "guide": "teacher", "objective": "multilingual_mse", "max_length": 64,
                        "steps": options.steps, "batch": options.batch, "evaluate_every": options.steps}],
        }  # fmt: skip
        # JSON is YAML.
        (work / "recipe.yaml").write_text(json.dumps(recipe), encoding="utf-8")
        report = {"pairs": options.pairs, "corpus_mib": corpus.stat().st_size / 2**20, "steps": options.steps,
                  "batch": options.batch, "guide_rows": options.guide_rows, "threads": options.threads}  # fmt: skip
        report |= watch(work / "recipe.yaml", work / "run", options.threads)
    # On a shared machine CPU time is the better measure of start-up.
    report["load_average"] = os.getloadavg()[0]
    report["within_limits"] = report["vmhwm_mib"] < LIMIT_MIB and report["first_step_s"] < LIMIT_START_S
    text = json.dumps(report, indent=2)
    print(text)
    if options.output:
        options.output.write_text(text + "\n", encoding="utf-8")
    if options.write:
        write_page(options.write, f"Teaching from {options.pairs:,} pairs", f"teacher and assistant {TEACHER}, student "
                   "cut from it (layers 0 4 5, bottleneck 128)", page_body(report),
                   libraries=("torch", "transformers"))  # fmt: skip
    if not report["within_limits"]:
        raise SystemExit(f"over the limits: {LIMIT_MIB:.0f} MiB, {LIMIT_START_S:.0f} s to the first step")


if __name__ == "__main__":
    main()
