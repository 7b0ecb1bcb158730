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

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artifact_models import PEER, PEERS, SHIPPED, TEACHER, TEACHER_PEER, make_model, make_peer, make_student
from results_page import KeptRows, code_version, options_for, table, write_page

from msdc.bench.devices.adb import run_remote
from msdc.bench.devices.base import open_jobs
from msdc.bench.devices.emulator import EmulatorMachine, emulated
from msdc.bench.devices.emulator_image import create_image
from msdc.bench.measure import BenchSettings
from msdc.bench.toolchain.build import build_runner
from msdc.export.golden import read_golden, write_golden
from msdc.export.manifest import list_files, read_manifest, write_manifest

LENGTHS = (8, 32, 128)
# The peer of the largest shape holds more than the emulator's usual 256 MiB.
MEMORY_MIB, DISK_MIB = 1024, 768
GOLDEN_TEXTS = 4
# The macro of the native core that takes XNNPACK's int8 kernels where KleidiAI's take more instructions
KERNELS, OWN_KERNELS = "MSDC_XNNPACK_KERNELS", ", XNNPACK's kernels"
# bundle -> peer, and the goal: at most this share of the peer's instructions
GOALS = {TEACHER: (TEACHER_PEER, 1.0), "minilm-student": (PEER, 1.0), SHIPPED: (TEACHER_PEER, 0.5)}
LEGEND = (
    f"`{PEER}` is the shape of Multilingual-MiniLM-L12-H384 (250,002 pieces) and `minilm-student` the same shape "
    "with bottleneck 128 and 3 layers applied 4 times, both with random weights. Peers have no normalisation in "
    "their graph; msdc-mini is compared with the model it was taught by. XNNPACK's kernels: a core built with "
    "-DMSDC_XNNPACK_KERNELS=ON; the prebuilt library of ExecuTorch takes KleidiAI's (docs/guides/mobile.md). A phone "
    "has to confirm that fewer instructions are less time."
)


def shortened(bundle: Path) -> Path:
    """A copy of a bundle with a few short golden texts."""
    out = bundle.with_name(f"{bundle.name}-short")
    if not out.is_dir():
        shutil.copytree(bundle, out)
        golden = read_golden(out)
        few = [i for i, row in enumerate(golden["ids"]) if 4 <= len(row) <= 24][:GOLDEN_TEXTS]
        vectors = {name: sentence_ND[few] for name, sentence_ND in golden["vectors"].items()}
        write_golden(out, [golden["texts"][i] for i in few], [golden["ids"][i] for i in few], vectors)
        write_manifest(out, read_manifest(bundle).model_copy(update={"files": list_files(out)}))
    return out


def measure(name: str, bundle: Path, rows: KeptRows) -> None:
    """Every program with the stock runner; that of ExecuTorch also with one built for XNNPACK's own kernels."""
    settings = BenchSettings(lengths=LENGTHS, runs=3, warmup=1, timeout_s=3000)
    ways = [("", open_jobs(bundle, settings))]
    if "executorch" in read_manifest(bundle).runtimes:
        own = build_runner("executorch", "aarch64", defines=(KERNELS,)).program.parent
        only = settings.model_copy(update={"runner": own, "runtimes": ("executorch",)})
        ways.append((OWN_KERNELS, open_jobs(bundle, only)))
    for way, jobs in ways:
        with EmulatorMachine(create_image(), "a76", memory_mib=MEMORY_MIB, disk_mib=DISK_MIB) as machine:
            for run in run_remote(emulated(machine, "a76", ()), jobs):
                assert run.memory is not None
                row = {"name": name, "code": code_version(), "runtime": run.artifact.runtime + way,
                       "bytes": run.artifact.bytes, "peak_mib": run.memory.warm.vmhwm_mib,
                       "anon_mib": run.memory.warm.anon_mib}  # fmt: skip
                rows.add(row | {str(timing.length): timing.minimum for timing in run.latency})


def report(rows: Sequence[dict[str, Any]]) -> str:
    tokens = [f"{n} tokens" for n in LENGTHS]
    cells = [
        (r["name"], r["runtime"], f"{r['bytes']:,}", *(f"{r[str(n)] / 1e6:,.1f}" for n in LENGTHS),
         f"{r['peak_mib']:.1f}", f"{r['anon_mib']:.1f}")
        for r in rows
    ]  # fmt: skip
    header = ("artifact", "runtime", "bytes", *tokens, "peak MiB", "anonymous MiB")
    parts = ["Executed instructions per inference, in millions:", table(header, cells)]
    by_name = {row["name"]: row for row in rows}
    ratios = []
    for row in rows:
        peer, goal = GOALS.get(row["name"], ("", 0.0))
        if other := by_name.get(peer):
            shares = [row[str(n)] / other[str(n)] for n in LENGTHS]
            met = "yes" if all(share < goal or share == goal < 1 for share in shares) else "no"
            size = f"{row['bytes'] / other['bytes']:.3f}"
            ratios.append((row["name"], row["runtime"], peer, *(f"{s:.2f}" for s in shares), size, f"< {goal:g}", met))
    if ratios:
        header = ("artifact", "runtime", "peer", *tokens, "bytes", "goal", "met")
        parts += ["Instructions as a share of the peer's:", table(header, ratios)]
    by_code: dict[str, list[str]] = {}
    for row in rows:
        by_code.setdefault(row["code"], []).append(f"{row['name']} ({row['runtime']})")
    if len(by_code) > 1:
        # A program that did not change since an earlier run has the same counts.
        parts.append("\n".join(f"* Measured with {code}: {', '.join(names)}" for code, names in by_code.items()))
    return "\n\n".join([*parts, LEGEND])


def main() -> None:
    parser = options_for(__doc__, "target_instructions")
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for bundles (about 1 GB)")
    parser.add_argument("--peer-python", help="python of the peer's environment; without it no peer is measured")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these artifacts only")
    parser.add_argument("-o", "--output", type=Path, help="all figures as JSON lines; rows found there are kept")
    options = parser.parse_args()
    work, rows = options.work, KeptRows(options.output)
    names = [SHIPPED, TEACHER, "minilm-student", *(reversed(PEERS) if options.peer_python else ())]
    for name in names:
        if rows.has(name=name) or (options.only and name not in options.only):
            continue
        if name in PEERS:
            bundle = make_peer(work, name, options.peer_python, "arm64")
        else:
            bundle = make_model(work, name, None) if name == SHIPPED else make_student(work, name, "int8")
        measure(name, shortened(bundle), rows)
    known = {name: place for place, name in enumerate(names)}
    text = report(sorted(rows, key=lambda row: (known.get(row["name"], len(names)), row["runtime"])))
    write_page(options.write, "Instructions on the target's processor",
               "all-MiniLM-L6-v2, msdc-mini, and the MiniLM shape with random weights", text,
               "torch executorch torchao onnxruntime")  # fmt: skip


if __name__ == "__main__":
    main()
