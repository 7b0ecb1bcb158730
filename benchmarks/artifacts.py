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

import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifact_models import (
    PEER,
    PEERS,
    SHIPPED,
    STUDENTS,
    TEACHER,
    TEACHER_PEER,
    make_model,
    make_peer,
    make_student,
)
from results_page import model_version, options_for, spread, table, write_page

from msdc.bench import bench, evaluate
from msdc.compress.quantization.plan import plan_for, weight_bytes_by_dtype
from msdc.compress.student.config import tensor_shapes
from msdc.compress.student.model import StudentConfig
from msdc.export.bundle import load_bundle
from msdc.export.manifest import read_manifest

LENGTHS = (8, 32, 128)
SHAPES = (("minilm-student", "int8"), ("minilm-student", "int8-embed4"), ("minilm-student", "int4-embed4"),
          ("xlmr-student", "int8"))  # fmt: skip
STS = {TEACHER: ("sts17/en-en", "stsb"), SHIPPED: ("sts17/en-en", "sts17/es-es", "stsb", "stsb-multi/de")}
HEADER = ("artifact", "bytes", "load ms", "peak MiB", "anonymous MiB", *map(str, LENGTHS))


@dataclass
class Item:
    """One artifact and the figures of its processes, one entry per round."""

    name: str
    folder: Path
    runtime: Any
    bytes: int
    rounds: list[dict[str, float]] = field(default_factory=list)

    def values(self, key: str) -> list[float]:
        return [one[key] for one in self.rounds]

    def both(self, key: str, least: str = "", digits: int = 1) -> str:
        return f"{statistics.median(self.values(key)):.{digits}f} / {min(self.values(least or key)):.{digits}f}"


def items_of(folder: Path, name: str) -> list[Item]:
    manifest = read_manifest(folder)
    return [Item(name, folder, runtime, manifest.program_bytes(runtime)) for runtime in manifest.runtimes]


def measure(items: Sequence[Item], rounds: int, runs: int, cpu: int | None = None) -> None:
    """Run all items in turn, `rounds` times, each in a new native process."""
    affinity = () if cpu is None else (cpu,)
    for number in range(rounds):
        for item in items:
            (run,) = bench(item.folder, runtime=item.runtime, tasks="none", lengths=LENGTHS, runs=runs, warmup=5,
                           affinity=affinity).results.runs  # fmt: skip
            assert run.memory is not None and run.load is not None
            memory = run.memory.warm
            one = {"load_ms": run.load, "peak_mib": memory.vmhwm_mib, "anon_mib": memory.anon_mib}
            for row in run.latency:
                one |= {f"p50_{row.length}": row.p50, f"min_{row.length}": row.minimum}
            item.rounds.append(one)
            print(f"round {number + 1}: {item.name} {item.runtime} {one}", file=sys.stderr)


def accuracy(folders: dict[str, Path], data: str | None) -> list[str]:
    """Cosines over the golden texts; Spearman of float and artifacts on STS sets, where there is a data folder."""
    parity, sts = [], []
    for name, folder in folders.items():
        for runtime, found in read_manifest(folder).parity.items():
            parity.append((name, runtime, f"{found.mean_cosine:.5f}", f"{found.min_cosine:.5f}"))
        models: list[Any] = [name, *(load_bundle(folder, runtime, threads=1) for runtime in ("executorch", "onnx"))]
        for task in STS[name] if data else ():
            scores = [evaluate(model, task, data=data, resamples=0)["spearman"] for model in models]
            sts.append((name, task, *(round(score, 2) for score in scores)))
    parts = []
    if parity:
        header = ("model", "runtime", "mean", "minimum")
        parts += ["Cosine to the float model over the golden texts:", table(header, parity)]
    if sts:
        parts += ["Spearman x 100:", table(("model", "set", "float", "ExecuTorch", "ONNX"), sts)]
    return parts


def ratios(items: Sequence[Item], peers: dict[str, Item]) -> list[str]:
    rows = []
    for item in (one for one in items if peers and one.name not in peers):
        other = peers[TEACHER_PEER if item.name == SHIPPED else PEER]
        found = [
            spread([a / b for a, b in zip(item.values(key), other.values(key), strict=True)], 3)
            for key in ("peak_mib", "load_ms", *(f"min_{n}" for n in LENGTHS))
        ]
        rows.append((f"{item.name} {item.runtime}", other.name, f"{item.bytes / other.bytes:.4f}", *found))
    header = ("artifact", "peer", "bytes", "peak", "load", *map(str, LENGTHS))
    return ["Ratios to a peer, median of the rounds [minimum, maximum]:", table(header, rows)] if rows else []


def goals(items: Sequence[Item]) -> list[str]:
    """Bytes of the random int8 students beside their weights', and the goal of anonymous memory."""
    lines = []
    for name, shape in STUDENTS.items():
        config = StudentConfig(**shape)
        payload = sum(weight_bytes_by_dtype(config, plan_for(config, "int8")).values())
        layers = [size for key, size in tensor_shapes(config).items() if key.startswith("layers.")]
        unit = sum(size[0] * (size[1] + 4 if len(size) == 2 else 4) for size in layers) / 2**20
        for item in (one for one in items if one.name == f"{name}-int8"):
            anon = statistics.median(item.values("anon_mib"))
            lines.append(f"* {item.name} {item.runtime}: file / payload {item.bytes / payload:.4f}; anonymous "
                         f"{anon:.2f} MiB, goal {1.2 * unit + 4:.2f} (unit {unit:.2f})")  # fmt: skip
    return ["\n".join(lines)] if lines else []


def main() -> None:
    parser = options_for(__doc__, "artifacts")
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for bundles (about 1 GB)")
    parser.add_argument("--peer-python", help="python of the peer's environment; without it no peer is measured")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these artifacts only, e.g. msdc-mini")
    parser.add_argument("--data", help="folder with sts2017, stsb and stsb-multi-mt; none: no STS rows")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=60, help="timed runs per length, process and round")
    parser.add_argument("--cpu", type=int, help="CPU number to stay on")
    options = parser.parse_args()
    work = options.work
    # Exports are checked on one thread too; the measured processes get their threads with the runner's request.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    def wanted(name: str) -> bool:
        return not options.only or name in options.only

    peers = {name: make_peer(work, name, options.peer_python) for name in PEERS if options.peer_python}
    shapes = {f"{name}-{p}": make_student(work, name, p) for name, p in SHAPES if wanted(f"{name}-{p}")}
    real = {name: make_model(work, name, p) for name, p in ((SHIPPED, None), (TEACHER, "int8")) if wanted(name)}
    # Of the teacher only vectors are compared: msdc-mini and its peer stand for that shape.
    timed = peers | shapes | {name: folder for name, folder in real.items() if name == SHIPPED}
    items = [item for name, folder in timed.items() for item in items_of(folder, name)]
    measure(items, options.rounds, options.runs, options.cpu)
    rows = [
        (f"{item.name} {item.runtime}", f"{item.bytes:,}", item.both("load_ms"),
         *(f"{statistics.median(item.values(key)):.1f}" for key in ("peak_mib", "anon_mib")),
         *(item.both(f"p50_{n}", f"min_{n}", 2) for n in LENGTHS))
        for item in items
    ]  # fmt: skip
    parts = [
        "Whole process of the native runner, one thread. Times in milliseconds, median / minimum over all rounds; "
        "latency at 8, 32 and 128 tokens.",
        table(HEADER, rows),
        *ratios(items, {item.name: item for item in items if item.name in peers}),
        *goals(items),
        *accuracy(real, options.data),
    ]
    write_page(options.write, "Exported artifacts: bytes, memory, latency", model_version(SHIPPED), "\n\n".join(parts),
               "torch executorch torchao onnxruntime")  # fmt: skip


if __name__ == "__main__":
    main()
