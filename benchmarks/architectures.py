"""The generic exporter over many architectures: cosine, delegated operators, bytes.

    python benchmarks/architectures.py --write docs/results/architectures.md

Every architecture is a small model with random weights, its reference the unchanged transformers model: the page lists
what exports, how exactly, and the share of operators in ExecuTorch's delegate; bytes are those of these small models. A
real model (--real) is exported by both exporters, canonical and generic, and its programs are timed in turn. Rows of an
earlier run in --output are kept, so an interrupted run continues.
"""

import itertools
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from artifacts import LENGTHS, items_of
from artifacts import measure as measure_items
from results_page import ROOT, KeptRows, options_for, spread, table, write_page

from msdc.export import export
from msdc.export.generic.model import generic_model, reference_vectors, smooth_generic
from msdc.export.manifest import read_manifest
from msdc.export.runtimes import RUNTIMES as RECORDS
from msdc.scores import cosine_rows

RUNTIMES, PRECISIONS = ("onnx", "executorch"), ("int8", "fp32")


def share(value: float | None) -> str:
    """Operators in the delegate; ONNX Runtime has none."""
    return "-" if value is None else f"{100 * value:.0f} %"


def measure(name: str, runtime: str, precision: str) -> dict[str, Any]:
    from architectures import architecture_modules, rows

    modules = architecture_modules(name)
    reference = reference_vectors(modules, rows())
    model = generic_model(modules, name)
    if precision == "int8":
        model = smooth_generic(model, rows())
    with tempfile.TemporaryDirectory() as place:
        written = RECORDS[runtime].write(
            Path(place), model, precision, max_length=64, target="linux", style="forward", pad_id=0
        )
        cosines = cosine_rows(reference, written.runner.run(rows()))
        size = sum(file.stat().st_size for file in Path(place).iterdir())
    return {
        "architecture": name, "runtime": runtime, "precision": precision, "bytes": size,
        "mean_cosine": float(cosines.mean()), "min_cosine": float(cosines.min()),
        "delegated_share": written.delegated_share,
    }  # fmt: skip


def both_ways(model: str, work: Path, rounds: int) -> list[str]:
    """A real model's bundles, which passed the gates, their programs timed in turn.

    Latencies are medians over the rounds, ratios to the canonical exporter in each round.
    """
    ways = ("canonical", "generic")
    for way in ways:
        export(model, target="linux", runtime="both", precision="int8", out=work / way, exporter=way, force=True)
    items = [item for way in ways for item in items_of(work / way, way)]
    measure_items(items, rounds, 20, LENGTHS)
    canonical = {item.runtime: item for item in items if item.name == "canonical"}
    cells = []
    for item in items:
        parity = read_manifest(item.folder).parity[item.runtime]
        times = {n: item.values(f"p50_{n}") for n in LENGTHS}
        base = {n: canonical[item.runtime].values(f"p50_{n}") for n in LENGTHS}
        cells.append((
            item.name, item.runtime, f"{item.bytes:,}", f"{parity.mean_cosine:.5f}", f"{parity.min_cosine:.5f}",
            share(parity.delegated_share), *(f"{statistics.median(times[n]):.2f}" for n in LENGTHS),
            *(spread([a / b for a, b in zip(times[n], base[n], strict=True)]) for n in LENGTHS),
        ))  # fmt: skip
    header = ("exporter", "runtime", "bytes", "mean cosine", "min cosine", "operators delegated",
              *(f"{n} tokens, ms" for n in LENGTHS), *(f"{n} tokens, ratio" for n in LENGTHS))  # fmt: skip
    return [
        f"## {model} by both exporters",
        "Bundles of the canonical and the generic exporter, int8, gates passed; cosine to the float model over the "
        "golden texts; latency in new native processes in turn, one thread; ratios to the canonical exporter in the "
        "same round: median, lowest and highest.",
        table(header, cells),
    ]


def report(found: list[dict[str, Any]]) -> list[str]:
    header = ("architecture", "runtime", "precision", "mean cosine", "min cosine", "operators delegated", "bytes")
    cells = [
        (r["architecture"], r["runtime"], r["precision"], f"{r['mean_cosine']:.6f}", f"{r['min_cosine']:.6f}",
         share(r["delegated_share"]), f"{r['bytes']:,}")
        for r in sorted(found, key=lambda r: (r["architecture"], r["runtime"], r["precision"]))
    ]  # fmt: skip
    return [
        "Small models with random weights (120 tokens, hidden size 64); cosine to the unchanged transformers model. "
        "ONNX Runtime has no delegate. Outside ExecuTorch's delegate run views and squeezes, which move little or no "
        "data, and norms, look-ups and positions, once per layer or less.",
        table(header, cells),
    ]


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from architectures import ARCHITECTURES

    parser = options_for(__doc__, "architectures")
    parser.add_argument("--only", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("-o", "--output", type=Path, help="rows as JSON lines; rows found there are kept")
    parser.add_argument("--real", metavar="MODEL", help="a model to export by both exporters, e.g. all-MiniLM-L6-v2")
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for its bundles")
    parser.add_argument("--rounds", type=int, default=5, help="timings of each of its programs; default: 5")
    options = parser.parse_args()
    found = KeptRows(options.output)
    for precision, runtime, name in itertools.product(PRECISIONS, RUNTIMES, options.only):
        if not found.has(architecture=name, runtime=runtime, precision=precision):
            found.add(measure(name, runtime, precision))
    parts = report(found) + (both_ways(options.real, options.work, options.rounds) if options.real else [])
    write_page(options.write, "Architectures through the generic exporter", "small models with random weights",
               "\n\n".join(parts), "torch transformers executorch torchao onnx onnxruntime")  # fmt: skip


if __name__ == "__main__":
    main()
