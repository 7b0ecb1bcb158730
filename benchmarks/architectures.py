"""The generic way of an export over many architectures: cosine, delegated operators, bytes.

    python benchmarks/architectures.py --write docs/results/architectures.md

Every architecture is a small model with random weights, its reference the untouched transformers model: the page says
what exports, how exactly, and what ExecuTorch runs outside its delegate; bytes are those of these small models. A real
model (--real) goes both ways, canonical and generic; its programs are timed in turn. Rows of an earlier run in --output
are kept, so that an interrupted run can go on.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from results_page import ROOT, add_write_option, table, write_page

sys.path.insert(0, str(ROOT / "tests" / "helpers"))
RUNTIMES, PRECISIONS = ("onnx", "executorch"), ("int8", "fp32")
WAYS = ("canonical", "generic")


def measure(name: str, runtime: str, precision: str, layers: int) -> dict[str, Any]:
    """One program of one architecture against the untouched model."""
    from architectures import architecture_modules, rows

    from msdc.export.generic.model import generic_model, reference_vectors, smooth_generic
    from msdc.export.runtimes import RUNTIMES as RECORDS
    from msdc.scores import cosine_rows

    modules = architecture_modules(name, layers=layers)
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
        "architecture": name, "runtime": runtime, "precision": precision, "layers": layers, "bytes": size,
        "mean_cosine": float(cosines.mean()), "min_cosine": float(cosines.min()),
        "delegated_share": written.delegated_share, "outside": written.outside,
    }  # fmt: skip


def measure_ways(model: str, work: Path, rounds: int) -> list[dict[str, Any]]:
    """One row per way and runtime of a real model: bundles that passed the gates, their programs timed in turn."""
    from artifacts import items_of, measure

    from msdc.export import export

    items, rows = [], []
    for way in WAYS:
        folder = work / way
        _, manifest = export(model, target="linux", runtime="both", precision="int8", out=folder, way=way, force=True)
        for item in items_of(folder, way):
            items.append(item)
            rows.append({"model": model, "way": way, "runtime": item.runtime, "bytes": item.bytes}
                        | manifest.parity[item.runtime].model_dump())  # fmt: skip
    measure(items, rounds, runs=20, cpu=None)
    for row, item in zip(rows, items, strict=True):
        row["rounds"] = item.rounds
    return rows


def ways_report(rows: list[dict[str, Any]]) -> list[str]:
    """The table of the real model; latencies are medians over the rounds, ratios to the canonical way in each round."""
    from artifacts import LENGTHS

    header = ("way", "runtime", "bytes", "mean cosine", "min cosine", "operators delegated",
              *(f"{n} tokens, ms" for n in LENGTHS), *(f"{n} tokens, ratio" for n in LENGTHS))  # fmt: skip
    canonical = {row["runtime"]: row for row in rows if row["way"] == "canonical"}
    cells = []
    for row in rows:
        times = {n: [one[f"p50_{n}"] for one in row["rounds"]] for n in LENGTHS}
        base = canonical[row["runtime"]]["rounds"]
        ratios = {n: [a / one[f"p50_{n}"] for a, one in zip(times[n], base, strict=True)] for n in LENGTHS}
        cells.append((
            row["way"], row["runtime"], f"{row['bytes']:,}", f"{row['mean_cosine']:.5f}", f"{row['min_cosine']:.5f}",
            "-" if row["delegated_share"] is None else f"{100 * row['delegated_share']:.0f} %",
            *(f"{statistics.median(times[n]):.2f}" for n in LENGTHS),
            *(f"{statistics.median(ratios[n]):.2f} [{min(ratios[n]):.2f}..{max(ratios[n]):.2f}]" for n in LENGTHS),
        ))  # fmt: skip
    return [
        "", f"## {rows[0]['model']} both ways", "",
        "The bundles of `msdc export --way canonical` and `--way generic`, int8, gates passed; cosine to the float "
        "model over the golden texts; latency in new native processes in turn, one thread; ratios to the canonical way "
        "in the same round, median, least and largest.",
        "", table(header, cells),
    ]  # fmt: skip


def report(found: list[dict[str, Any]]) -> str:
    """The table, and the names of what is not delegated."""
    header = ("architecture", "runtime", "precision", "mean cosine", "min cosine", "operators delegated", "bytes")
    cells = [
        (r["architecture"], r["runtime"], r["precision"], f"{r['mean_cosine']:.6f}", f"{r['min_cosine']:.6f}",
         "-" if r["delegated_share"] is None else f"{100 * r['delegated_share']:.0f} %", f"{r['bytes']:,}")
        for r in sorted(found, key=lambda r: (r["architecture"], r["runtime"], r["precision"]))
    ]  # fmt: skip
    lines = [
        "Small models with random weights (120 tokens, hidden size 64); cosine to the untouched transformers model. "
        "ONNX Runtime has no delegate.",
        "", table(header, cells), "", "Outside the delegate in ExecuTorch, with counts:", "",
    ]  # fmt: skip
    for r in found:
        if r["outside"]:
            names = ", ".join(f"{operator} {count}" for operator, count in r["outside"].items())
            lines.append(f"* {r['architecture']} {r['precision']}: {names}")
    lines += [
        "",
        "Views and squeezes move no data or little; norms, look-ups and positions run once per layer or less.",
    ]
    return "\n".join(lines)


def main() -> None:
    from architectures import ARCHITECTURES

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=ARCHITECTURES, default=ARCHITECTURES)
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=RUNTIMES)
    parser.add_argument("--precisions", nargs="+", choices=PRECISIONS, default=PRECISIONS)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("-o", "--output", type=Path, help="rows as JSON lines; rows found there are kept")
    parser.add_argument("--real", metavar="MODEL", help="a model to export both ways, e.g. all-MiniLM-L6-v2")
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for its bundles")
    parser.add_argument("--rounds", type=int, default=5, help="timings of each of its programs; default: 5")
    add_write_option(parser, "architectures")
    options = parser.parse_args()
    found: list[dict[str, Any]] = []
    if options.output and options.output.is_file():
        found = [json.loads(line) for line in options.output.read_text(encoding="utf-8").splitlines()]
    done = {(r["architecture"], r["runtime"], r["precision"]) for r in found}
    for precision in options.precisions:
        for runtime in options.runtimes:
            for name in options.only:
                if (name, runtime, precision) in done:
                    continue
                found.append(measure(name, runtime, precision, options.layers))
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
                if options.output:
                    text = "".join(json.dumps(row) + "\n" for row in found)
                    options.output.write_text(text, encoding="utf-8")
    text = report(found)
    if options.real:
        text += "\n" + "\n".join(ways_report(measure_ways(options.real, options.work, options.rounds)))
    if options.write:
        write_page(options.write, "Architectures through the generic way", "small models with random weights", text,
                   libraries=("torch", "transformers", "executorch", "torchao", "onnx", "onnxruntime"))  # fmt: skip
    print(text)


if __name__ == "__main__":
    main()
