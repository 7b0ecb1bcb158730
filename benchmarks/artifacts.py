"""Bytes, memory, load time and latency of our artifacts and of sentence-transformers' int8 export.

    python benchmarks/artifacts.py --peer-python PEER/bin/python [--data DATA] --write docs/results/artifacts.md

Everything runs in the native C++ runner (no Python in the measured process, files mapped, one thread), each artifact
in a new process, in rounds over all artifacts, so that other load on the machine affects all of them alike. A ratio is
taken within a round; the table gives the median over the rounds and, in brackets, the minimum and maximum. Bundles are
made once and kept in --work.

The peer is exported by sentence-transformers itself, whose exporter needs a separate environment:

    python -m venv PEER && PEER/bin/pip install "sentence-transformers[onnx]==5.1.2" "transformers<5"

To be comparable it gets mean pooling appended to its graph (the library pools outside) and the same runner. Without
--peer-python only our artifacts are measured; --only limits the run to the named ones (`--only msdc-mini` takes about
two minutes).

Shapes other than msdc-mini and all-MiniLM-L6-v2 have random weights: speed, bytes and memory do not depend on them.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifact_models import (
    PEER,
    SHIPPED,
    STUDENTS,
    TEACHER,
    TEACHER_PEER,
    make_model,
    make_peer,
    make_random,
)
from results_page import add_write_option, model_version, write_page

MIB = 1024 * 1024
LENGTHS = (8, 32, 128)
STS = {TEACHER: ("sts17/en-en", "stsb"), SHIPPED: ("sts17/en-en", "sts17/es-es", "stsb", "stsb-multi/de")}


@dataclass
class Item:
    """One artifact and the figures of its processes, one entry per round."""

    name: str
    folder: Path
    runtime: Any
    bytes: int
    rounds: list[dict[str, Any]] = field(default_factory=list)

    def values(self, key: str) -> list[float]:
        """One figure per round."""
        return [one[key] for one in self.rounds]


def items_of(folder: Path, name: str) -> list[Item]:
    """Each program of a bundle."""
    from msdc.export.manifest import read_manifest

    manifest = read_manifest(folder)
    return [Item(name, folder, runtime, manifest.program_bytes(runtime)) for runtime in manifest.runtimes]


def measure(items: Sequence[Item], rounds: int, runs: int, cpu: int | None) -> None:
    """Run all items in turn, `rounds` times, each in a new native process."""
    from msdc.bench.devices.host import HostDevice
    from msdc.bench.measure import BenchSettings

    affinity = () if cpu is None else (cpu,)
    for number in range(rounds):
        for item in items:
            settings = BenchSettings(lengths=LENGTHS, runs=runs, warmup=5, runtimes=(item.runtime,), affinity=affinity)
            (run,) = HostDevice().run(item.folder, settings)
            assert run.memory is not None
            one: dict[str, Any] = {
                "load_ms": run.load,
                "peak_mib": run.memory.warm.vmhwm_mib,
                "anon_mib": run.memory.warm.anon_mib,
                "anon_start_mib": run.memory.start.anon_mib,
            }
            for row in run.latency:
                one[f"p50_{row.length}"], one[f"min_{row.length}"] = row.p50, row.minimum
            item.rounds.append(one)
            print(f"round {number + 1}: {item.name} {item.runtime} {one}", file=sys.stderr)


def ratio(item: Item, peer: Item, key: str) -> str:
    """Median over the rounds of item / peer, with minimum and maximum."""
    found = [a / b for a, b in zip(item.values(key), peer.values(key), strict=True)]
    return f"{statistics.median(found):.3f} [{min(found):.3f}..{max(found):.3f}]"


def gemm_gops(work: Path) -> float:
    """Rate of XNNPACK's int8 product at the student's widths (up and down, 128 tokens), 1e9 operations per second."""
    code = (
        "import sys, time, torch\nfrom torch import nn\ntorch.set_num_threads(1)\n"
        "from torchao.quantization import quantize_, Int8DynamicActivationIntxWeightConfig\n"
        "from torchao.quantization.granularity import PerAxis\n"
        "from executorch.exir import to_edge_transform_and_lower\n"
        "from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner\n"
        "from executorch.runtime import Runtime\n"
        "from msdc.export.executorch.program import set_executorch_threads\n"
        "set_executorch_threads(1)\n"
        "m = nn.Sequential(*[nn.Linear(384, 1536) if i % 2 == 0 else nn.Linear(1536, 384) for i in range(8)]).eval()\n"
        "quantize_(m, Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int8, weight_granularity=PerAxis(0)))\n"
        "x = torch.randn(128, 384)\n"
        "p = to_edge_transform_and_lower(torch.export.export(m, (x,)), partitioner=[XnnpackPartitioner()])\n"
        "open(sys.argv[1], 'wb').write(p.to_executorch().buffer)\n"
        "f = Runtime.get().load_program(sys.argv[1]).load_method('forward')\n"
        "times = []\n"
        "for _ in range(60):\n"
        "    start = time.perf_counter(); f.execute([x]); times.append(time.perf_counter() - start)\n"
        "print(2 * 8 * 128 * 384 * 1536 / min(times) / 1e9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(work / "gemm.pte")], capture_output=True, text=True, check=True
    )
    return float(done.stdout.strip().splitlines()[-1])


def accuracy(folders: dict[str, Path], data: str | None) -> list[dict[str, Any]]:
    """Parity on the golden texts, and Spearman of float and artifact on STS sets that `data` holds."""
    from msdc.bench.accuracy import evaluate
    from msdc.bench.accuracy.vectors import VectorStore
    from msdc.encoders.encoder import load_encoder
    from msdc.export.bundle import load_bundle

    rows = []
    for name, folder in folders.items():
        bundles = {runtime: load_bundle(folder, runtime, threads=1) for runtime in ("executorch", "onnx")}
        parity = next(iter(bundles.values())).manifest.parity
        for runtime, found in parity.items():
            rows.append({"model": name, "runtime": runtime, "mean": found.mean_cosine, "min": found.min_cosine})
        if data is None:
            continue
        stores = {"float": VectorStore(load_encoder(name)), **{key: VectorStore(b) for key, b in bundles.items()}}
        for task in STS[name]:
            line: dict[str, Any] = {"model": name, "task": task}
            for key, store in stores.items():
                line[key] = round(evaluate(store, task, data=data, resamples=0)["spearman"], 2)
            rows.append(line)
    return rows


def report(items: list[Item], peers: dict[str, Item], gops: float | None, scores: list[dict[str, Any]]) -> str:
    """The tables of measured figures, as Markdown. `gops` is None when no random shape was measured."""
    from msdc.compress.quantization.plan import plan_for, weight_bytes_by_dtype
    from msdc.compress.size import macs_per_token
    from msdc.compress.student.config import tensor_shapes
    from msdc.compress.student.model import StudentConfig

    lines = [
        "Whole process of the native runner, one thread. Times in milliseconds, median / minimum over all rounds; "
        "latency at 8, 32 and 128 tokens.",
        "",
        "| artifact | bytes | load ms | peak MiB | anonymous MiB | 8 | 32 | 128 |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def both(item: Item, length: int) -> str:
        middle = statistics.median(item.values(f"p50_{length}"))
        return f"{middle:.2f} / {min(item.values(f'min_{length}')):.2f}"

    for item in items:
        load, anon = item.values("load_ms"), item.values("anon_mib")
        cells = [f"{item.name} {item.runtime}", f"{item.bytes:,}", f"{statistics.median(load):.1f} / {min(load):.1f}"]
        cells += [f"{statistics.median(item.values('peak_mib')):.1f}", f"{statistics.median(anon):.1f}"]
        lines.append("| " + " | ".join([*cells, *(both(item, n) for n in LENGTHS)]) + " |")
    if peers:
        lines += ["", "Ratios to a peer, median of the rounds [minimum..maximum]:", ""]
        lines += ["| artifact | peer | bytes | peak | load | 8 | 32 | 128 |", "|---|---|---|---|---|---|---|---|"]
    for item in items if peers else ():
        other = peers[TEACHER_PEER if item.name == SHIPPED else PEER]
        if item in peers.values() or not item.rounds:
            continue
        cells = [f"{item.name} {item.runtime}", other.name, f"{item.bytes / other.bytes:.4f}"]
        cells += [ratio(item, other, key) for key in ("peak_mib", "load_ms", *(f"min_{n}" for n in LENGTHS))]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for name, shape in STUDENTS.items():
        config = StudentConfig(**shape)
        plan = plan_for(config, "int8")
        payload = sum(weight_bytes_by_dtype(config, plan).values())
        layers = {key: size for key, size in tensor_shapes(config).items() if key.startswith("layers.")}
        unit = sum(size[0] * (size[1] + 4 if len(size) == 2 else 4) for size in layers.values()) / MIB
        for item in (one for one in items if one.name == f"{name}-int8"):
            words = [f"* {item.name} {item.runtime}: file / payload {item.bytes / payload:.4f}"]
            if item.rounds and gops:
                anon = statistics.median(item.values("anon_mib"))
                words.append(f"anonymous {anon:.2f} MiB, goal {1.2 * unit + 4:.2f} (unit {unit:.2f})")
                floor = 2e3 * 32 * macs_per_token(config, 32) / (gops * 1e9)
                found = min(item.values("min_32"))
                words.append(f"length 32 {found:.2f} ms, floor {floor:.2f} at {gops:.0f} GOPS, {found / floor:.2f} x")
            lines.append("; ".join(words))
    lines.append("")
    parity = [row for row in scores if "task" not in row]
    if parity:
        lines += ["Cosine to the float model over the golden texts:", ""]
        lines += ["| model | runtime | mean | minimum |", "|---|---|---|---|"]
        lines += [f"| {row['model']} | {row['runtime']} | {row['mean']:.5f} | {row['min']:.5f} |" for row in parity]
    spearman = [row for row in scores if "task" in row]
    if spearman:
        lines += ["", "Spearman x 100:", "", "| model | set | float | ExecuTorch | ONNX |", "|---|---|---|---|---|"]
        lines += [
            f"| {row['model']} | {row['task']} | {row['float']} | {row['executorch']} | {row['onnx']} |"
            for row in spearman
        ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for bundles (about 1 GB)")
    parser.add_argument("--peer-python", help="python of the peer's environment; without it no peer is measured")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these artifacts only, e.g. msdc-mini")
    parser.add_argument("--data", help="folder with sts2017, stsb and stsb-multi-mt; none: no STS rows")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=60, help="timed runs per length, process and round")
    parser.add_argument("--cpu", type=int, help="CPU number to stay on")
    parser.add_argument("--make-only", action="store_true", help="make the bundles and stop")
    parser.add_argument("-o", "--output", type=Path, help="all figures as JSON")
    add_write_option(parser, "artifacts")
    options = parser.parse_args()
    work = options.work
    work.mkdir(parents=True, exist_ok=True)
    # Exports are checked on one thread too; the measured processes get their threads with the runner's request.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    def wanted(name: str) -> bool:
        return not options.only or name in options.only

    peers: dict[str, Path] = {}
    if options.peer_python:
        peers[PEER] = make_peer(work, PEER, "minilm-l12", options.peer_python, 250_002)
        peers[TEACHER_PEER] = make_peer(work, TEACHER_PEER, TEACHER, options.peer_python, 30_522)
    shapes = [("minilm-student", p) for p in ("int8", "int8-embed4", "int4-embed4")] + [("xlmr-student", "int8")]
    folders = {f"{name}-{p}": make_random(work, name, p) for name, p in shapes if wanted(f"{name}-{p}")}
    real = {name: make_model(work, name, p) for name, p in ((SHIPPED, None), (TEACHER, "int8")) if wanted(name)}
    if options.make_only:
        return
    # The teacher's tokenizer is WordPiece, which the native runner does not read; only its vectors are compared.
    timed = peers | folders | {name: folder for name, folder in real.items() if name == SHIPPED}
    items = [item for name, folder in timed.items() for item in items_of(folder, name)]
    measure(items, options.rounds, options.runs, options.cpu)
    gops = gemm_gops(work) if folders else None
    by_name = {name: next(item for item in items if item.name == name) for name in peers}
    scores = accuracy(real, options.data)
    text = report(items, by_name, gops, scores)
    if options.output:
        rounds = [{"name": i.name, "runtime": i.runtime, "bytes": i.bytes, "rounds": i.rounds} for i in items]
        value = {"gemm_gops": gops, "scores": scores, "table": text, "items": rounds}
        options.output.write_text(json.dumps(value, indent=2), encoding="utf-8")
    if options.write:
        write_page(options.write, "Exported artifacts: bytes, memory, latency", model_version(SHIPPED), text,
                   libraries=("torch", "executorch", "torchao", "onnxruntime"))  # fmt: skip
    print(text)


if __name__ == "__main__":
    main()
