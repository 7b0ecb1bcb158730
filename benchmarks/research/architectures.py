"""The generic exporter over every text encoder of transformers: cosine, delegated operators, bytes, refusals.

    PYTHONPATH=benchmarks python benchmarks/research/architectures.py --write docs/results/architectures.md

Every architecture is a small model with random weights, its reference the unchanged transformers model, text by text.
The page lists what exports, how exactly, and what is refused and why. A real
model (--real) is exported by both exporters, canonical and generic, and its programs are timed in turn. Rows of an
earlier run in --output are kept, so an interrupted run continues.
"""

import collections
import itertools
import re
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal

import numpy as np
from artifacts import LENGTHS, items_of
from artifacts import measure as measure_items
from results_page import ROOT, KeptRows, options_for, spread, table, write_page

from msdc.compress.student.stock import FAMILIES
from msdc.errors import MsdcError, first_line
from msdc.export import export
from msdc.export.generic.model import generic_model, reference_vectors, smooth_generic
from msdc.export.generic.programs import write_generic_executorch, write_generic_onnx
from msdc.export.golden import MIN_LOW_BIT_SHARE, thresholds_for
from msdc.export.manifest import read_manifest
from msdc.scores import cosine_rows

RUNTIMES, PRECISIONS = ("onnx", "executorch"), ("int8", "fp32")


def share(value: float | None) -> str:
    """Operators in the delegate; ONNX Runtime has none."""
    return "-" if value is None else f"{100 * value:.0f} %"


def measure(name: str, runtime: str, precision: str) -> dict[str, Any]:
    from architectures import architecture_modules, rows  # type: ignore[attr-defined]  # of tests/helpers

    row: dict[str, Any] = {"architecture": name, "runtime": runtime, "precision": precision}
    modules = architecture_modules(name)
    try:
        reference = reference_vectors(modules, rows())
        model = generic_model(modules, name)
    except Exception as error:
        return row | {"refused": f"transformers cannot run it on a short text: {first_line(error)}"}
    if precision == "int8":
        model = smooth_generic(model, rows())
    with tempfile.TemporaryDirectory() as work_folder:
        try:
            folder = Path(work_folder)
            if runtime == "onnx":
                written = write_generic_onnx(
                    model, precision, folder / "model.onnx", max_length=64, target="linux", pad_id=0
                )
            else:
                written = write_generic_executorch(model, precision, folder / "model.pte", max_length=64)
            cosines = cosine_rows(reference, np.concatenate([written.runner.run([row]) for row in rows()]))
        except MsdcError as error:
            return row | {"refused": str(error)}
        size = sum(file.stat().st_size for file in Path(work_folder).iterdir())
    return row | {
        "bytes": size, "mean_cosine": float(cosines.mean()), "min_cosine": float(cosines.min()),
        "delegated_share": written.delegated_share, "low_bit_share": written.low_bit_share,
    }  # fmt: skip


def short_of(row: dict[str, Any]) -> str:
    """The gates that a program does not pass, in words; empty if it passes."""
    thresholds = thresholds_for({row["precision"]}, normalized=False)
    shortfalls = [
        f"{what.replace('_', ' ')} {row[what]:.4f}"
        for what in ("mean_cosine", "min_cosine")
        if row[what] < getattr(thresholds, what)
    ]
    if (low := row["low_bit_share"]) is not None and low < MIN_LOW_BIT_SHARE:
        shortfalls.append(f"{100 * low:.0f} % of weight bytes in 8 bits")
    return ", ".join(shortfalls)


def both_ways(model: str, work: Path, rounds: int) -> list[str]:
    """A real model's bundles, which passed the gates, their programs timed in turn.

    Latencies are medians over the rounds, ratios to the canonical exporter in each round.
    """
    ways: tuple[Literal["canonical", "generic"], ...] = ("canonical", "generic")
    for way in ways:
        export(model, target="linux", runtime="both", precision="int8", output=work / way, exporter=way, force=True)
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


def report(measured: list[dict[str, Any]]) -> list[str]:
    """The architectures by the runtimes that take them, then what is refused or fails, and why."""
    rows = {(r["architecture"], r["runtime"], r["precision"]): r for r in measured}
    names = sorted({name for name, *_ in rows})
    groups, problems = collections.defaultdict(list), collections.defaultdict(list)
    for name in names:
        written = {
            runtime_name: row for runtime_name in RUNTIMES if "refused" not in (row := rows[name, runtime_name, "int8"])
        }
        lowest = f" {min(row['min_cosine'] for row in written.values()):.5f}" if written else ""
        groups[" and ".join(written) or "none"].append(name + lowest + "*" * any(map(short_of, written.values())))
        for runtime in RUNTIMES:
            reasons = [reason_of(rows[name, runtime, precision]) for precision in PRECISIONS]
            for reason in filter(None, dict.fromkeys(reasons)):
                problems[reason].append(f"{name} ({runtime}{'' if reasons[0] == reasons[1] else ' int8'})")
    plain = min(row["min_cosine"] for row in measured if row["precision"] == "fp32" and "refused" not in row)
    parts = [
        "Small models with random weights (120 tokens, hidden size 64), all through the generic exporter. The lowest "
        "cosine to the unchanged transformers model, text by text, in int8; * fails at a gate of the export. In fp32 "
        f"the lowest of all is {plain:.6f}. `msdc export` chooses the canonical exporter for "
        f"{', '.join(name for name in names if name in FAMILIES)}.",
        table(("runtimes", "architectures"), [(kind, ", ".join(named)) for kind, named in groups.items()]),
    ]
    if problems:
        listed = [(reason, ", ".join(where)) for reason, where in problems.items()]
        parts += ["## Refused, or failing at a gate", table(("reason", "architectures"), listed)]
    return parts


def reason_of(row: dict[str, Any]) -> str:
    """Why a program is refused or fails, without what the table says or every message repeats; empty where neither."""
    reason = str(row["refused"]) if "refused" in row else short_of(row)
    reason = re.sub(r"^(ONNX Runtime|ExecuTorch) (cannot|failed to) run (\S+ models|the model): ", "", reason)
    return re.sub(r"^the written ONNX model is not valid: \S+: |; use the model in Python.*", "", reason)


def main() -> None:
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from architectures import EVERY  # type: ignore[attr-defined]  # of tests/helpers

    parser = options_for(__doc__, "architectures")
    parser.add_argument("--only", nargs="+", choices=EVERY, default=EVERY)
    parser.add_argument("-o", "--output", type=Path, help="rows as JSON lines; rows found there are kept")
    parser.add_argument("--real", metavar="MODEL", help="a model to export by both exporters, e.g. all-MiniLM-L6-v2")
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for its bundles")
    parser.add_argument("--rounds", type=int, default=5, help="timings of each of its programs; default: 5")
    options = parser.parse_args()
    measured = KeptRows(options.output)
    for precision, runtime, name in itertools.product(PRECISIONS, RUNTIMES, options.only):
        if not measured.has(architecture=name, runtime=runtime, precision=precision):
            measured.add(measure(name, runtime, precision))
    parts = report(measured) + (both_ways(options.real, options.work, options.rounds) if options.real else [])
    write_page(options.write, "Architectures through the generic exporter", "small models with random weights",
               "\n\n".join(parts), "torch transformers executorch torchao onnx onnxruntime")  # fmt: skip


if __name__ == "__main__":
    main()
