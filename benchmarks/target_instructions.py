"""Executed instructions per inference on an emulated Cortex-A76: our int8 programs and sentence-transformers' export.

    python benchmarks/target_instructions.py --peer-python PEER/bin/python --write docs/results/target_instructions.md

The emulated processor counts the instructions of the native runner: figures repeat exactly, and say what the programs
do on the target's instruction set instead of on this machine's. They are not a phone's time. One thread, no Python in
the measured process, memory is that of the process inside the emulated machine.

The peer is sentence-transformers' own int8 ONNX export (dynamic quantization, configuration arm64), with mean pooling
appended to its graph, in ONNX Runtime in the same runner; its environment is made as benchmarks/artifacts.py says.
Token ids do not change the count of instructions, so every model gets a small stand-in for its tokenizer; the golden
texts are cut to a few, because the emulator is slow. Bundles are kept in --work, rows of an earlier run in --output:
counts repeat exactly, so only programs that changed must be measured again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path
from typing import Any

from artifact_models import (
    PEER,
    SHIPPED,
    TEACHER,
    TEACHER_PEER,
    make_model,
    make_peer,
    make_random,
    tokenizer_file,
)
from results_page import add_write_option, code_version, table, write_page

LENGTHS = (8, 32, 128)
# The peer of the largest shape holds more than the emulator's usual 256 MiB.
MEMORY_MIB, DISK_MIB = 1024, 768
GOLDEN_TEXTS = 4
# (bundle, peer, goal: at most this share of the peer's instructions)
PAIRS = (
    ("all-MiniLM-L6-v2", TEACHER_PEER, 1.0),
    ("minilm-student", PEER, 1.0),
    ("msdc-mini", TEACHER_PEER, 0.5),
)


def teacher_bundle(work: Path) -> Path:
    """The real all-MiniLM-L6-v2 the canonical way, both runtimes, with the stand-in tokenizer."""
    from msdc.compress.student.stock import to_student
    from msdc.encoders.encoder import load_encoder
    from msdc.export.exporters import BundleOptions, write_bundle
    from msdc.text.tokenizer import PieceTokenizer

    out = work / f"{TEACHER}-stand-in"
    if not out.is_dir():
        student = to_student(load_encoder(TEACHER))
        options = BundleOptions(precision="int8", runtimes=("executorch", "onnx"), gates=False)
        write_bundle(student, PieceTokenizer(tokenizer_file(work)), out, name=TEACHER, options=options, say=print)
    return out


def shortened(bundle: Path) -> Path:
    """A copy of a bundle with a few short golden texts."""
    from msdc.export.golden import read_golden, write_golden
    from msdc.export.manifest import list_files, read_manifest, write_manifest

    out = bundle.with_name(f"{bundle.name}-short")
    if not out.is_dir():
        shutil.copytree(bundle, out)
        golden = read_golden(out)
        few = [i for i, row in enumerate(golden["ids"]) if 4 <= len(row) <= 24][:GOLDEN_TEXTS]
        vectors = {name: sentence_ND[few] for name, sentence_ND in golden["vectors"].items()}
        write_golden(out, [golden["texts"][i] for i in few], [golden["ids"][i] for i in few], vectors)
        manifest = read_manifest(bundle)
        write_manifest(out, manifest.model_copy(update={"files": list_files(out)}))
    return out


def measure(name: str, bundle: Path) -> list[dict[str, Any]]:
    """Every program of a bundle on the emulated machine."""
    from msdc.bench.devices.adb import run_remote
    from msdc.bench.devices.base import open_jobs
    from msdc.bench.devices.emulator import EmulatorMachine, emulated
    from msdc.bench.devices.emulator_image import create_image
    from msdc.bench.measure import BenchSettings

    settings = BenchSettings(lengths=LENGTHS, runs=3, warmup=1, timeout_s=3000)
    jobs = open_jobs(bundle, settings)
    found = []
    with EmulatorMachine(create_image(), "a76", memory_mib=MEMORY_MIB, disk_mib=DISK_MIB) as machine:
        for run in run_remote(emulated(machine, "a76", ()), jobs):
            assert run.memory is not None and run.parity is not None
            row: dict[str, Any] = {
                "name": name,
                "code": code_version(),
                "runtime": run.artifact.runtime,
                "bytes": run.artifact.bytes,
                "peak_mib": run.memory.warm.vmhwm_mib,
                "anon_mib": run.memory.warm.anon_mib,
                "min_cosine": run.parity.min_cosine,
            }
            row |= {str(timing.length): timing.minimum for timing in run.latency}
            found.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
    return found


def report(rows: list[dict[str, Any]]) -> str:
    """Counts and memory, then the ratios to the peers."""
    header = ("artifact", "runtime", "bytes", *(f"{n} tokens" for n in LENGTHS), "peak MiB", "anonymous MiB")
    cells = [
        (r["name"], r["runtime"], f"{r['bytes']:,}", *(f"{r[str(n)] / 1e6:,.1f}" for n in LENGTHS),
         f"{r['peak_mib']:.1f}", f"{r['anon_mib']:.1f}")
        for r in rows
    ]  # fmt: skip
    lines = ["Executed instructions per inference, in millions:", "", table(header, cells), ""]
    by_name = {row["name"]: row for row in rows}
    ratios = []
    for name, peer, goal in PAIRS:
        if peer not in by_name:
            continue
        other = by_name[peer]
        for row in (r for r in rows if r["name"] == name):
            shares = [row[str(n)] / other[str(n)] for n in LENGTHS]
            met = "yes" if all(share < goal or share == goal < 1 for share in shares) else "no"
            size = f"{row['bytes'] / other['bytes']:.3f}"
            ratios.append((name, row["runtime"], peer, *(f"{s:.2f}" for s in shares), size, f"< {goal:g}", met))
    if ratios:
        header = ("artifact", "runtime", "peer", *(f"{n} tokens" for n in LENGTHS), "bytes", "goal", "met")
        lines += ["Instructions as a share of the peer's:", "", table(header, ratios), ""]
    by_code: dict[str, list[str]] = {}
    for row in rows:
        by_code.setdefault(row["code"], []).append(f"{row['name']} ({row['runtime']})")
    if len(by_code) > 1:
        # A program that did not change since an earlier run has the same counts.
        lines += [*(f"* Measured with {code}: {', '.join(names)}" for code, names in by_code.items()), ""]
    lines.append(
        f"`{PEER}` is the shape of Multilingual-MiniLM-L12-H384 (250,002 pieces) and `minilm-student` the same shape "
        "with bottleneck 128 and 3 layers applied 4 times, both with random weights. Peers have no normalisation in "
        "their graph; msdc-mini is compared with the model it was taught by."
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for bundles (about 1 GB)")
    parser.add_argument("--peer-python", help="python of the peer's environment; without it no peer is measured")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these artifacts only")
    parser.add_argument("-o", "--output", type=Path, help="all figures as JSON lines; rows found there are kept")
    add_write_option(parser, "target_instructions")
    options = parser.parse_args()
    work: Path = options.work
    work.mkdir(parents=True, exist_ok=True)
    bundles = {
        SHIPPED: lambda: make_model(work, SHIPPED, None),
        TEACHER: lambda: teacher_bundle(work),
        "minilm-student": lambda: make_random(work, "minilm-student", "int8"),
    }
    if options.peer_python:
        python = options.peer_python
        bundles[TEACHER_PEER] = lambda: make_peer(work, TEACHER_PEER, TEACHER, python, 30_522, "arm64")
        bundles[PEER] = lambda: make_peer(work, PEER, "minilm-l12", python, 250_002, "arm64")
    rows: list[dict[str, Any]] = []
    if options.output and options.output.is_file():
        rows = [json.loads(line) for line in options.output.read_text(encoding="utf-8").splitlines()]
    for name, make in bundles.items():
        if any(row["name"] == name for row in rows) or (options.only and name not in options.only):
            continue
        rows += measure(name, shortened(make()))
        if options.output:
            options.output.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    places = {name: place for place, name in enumerate(bundles)}
    text = report(sorted(rows, key=lambda row: (places.get(row["name"], len(places)), row["runtime"])))
    if options.write:
        write_page(options.write, "Instructions on the target's processor",
                   "all-MiniLM-L6-v2, msdc-mini, and the MiniLM shape with random weights", text,
                   libraries=("torch", "executorch", "torchao", "onnxruntime"))  # fmt: skip
    print(text)


if __name__ == "__main__":
    main()
