"""Executed instructions per inference on an emulated Cortex-A76: our int8 programs and sentence-transformers' export.

    python benchmarks/target_instructions.py --peer-python PEER/bin/python --litert-python LITERT/bin/python \
        --write docs/results/target_instructions.md

The emulated processor counts the instructions of the native runner on the target's instruction set. Counts repeat
exactly; they are not a phone's time. One thread, no Python in the measured process; memory is that of the process
inside the emulated machine.

The peers run in the same runner: sentence-transformers' own int8 ONNX export (dynamic quantization, configuration
arm64) with mean pooling appended to its graph (environment: benchmarks/artifacts.py), and LiteRT (environment:
benchmarks/artifact_litert.py). Token ids do not change the count: random shapes and the ONNX peer get a small stand-in
for their tokenizer and a few golden texts. Bundles are kept in --work, rows in --output: only programs that changed
must be measured again.
"""

import shutil
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from artifact_models import (
    LITERT,
    PEER,
    PEERS,
    SHIPPED,
    TEACHER,
    TEACHER_PEER,
    litert_runner,
    make_litert,
    make_model,
    make_peer,
    make_student,
)
from results_page import KeptRows, model_version, options_for, table, write_page

from msdc.bench.devices.base import open_jobs
from msdc.bench.devices.emulator import EmulatorMachine, run_emulated
from msdc.bench.devices.emulator_image import create_image
from msdc.bench.options import BenchSettings
from msdc.bench.toolchain.build import build_runner
from msdc.export.golden import read_golden, write_golden
from msdc.export.manifest import list_files, read_manifest, write_manifest
from msdc.export.schema import RuntimeName
from msdc.loading import load_encoder
from msdc.text.quickstart import golden_lines

LENGTHS = (8, 32, 128)
# The peer of the largest shape holds more than the emulator's usual 256 MiB.
MEMORY_MIB, DISK_MIB = 1024, 768
GOLDEN_TEXTS = 4
# Builds of the native core, by macro: XNNPACK's int8 kernels where KleidiAI's take more instructions, and ExecuTorch's
# layer norm instead of the core's.
BUILDS = {", XNNPACK's kernels": "MSDC_XNNPACK_KERNELS", ", its own layer norm": "MSDC_LIBRARY_LAYER_NORM"}
# bundle, peer, and the goals: at most this share of the peer's instructions at each length, and over the mix
BEST, THREE = list(LITERT)[:2]
GOALS = ((TEACHER, BEST, 1.0, 0.85), (TEACHER, THREE, 1.0, 0.85), (TEACHER, TEACHER_PEER, 1.0, None),
         ("minilm-student", PEER, 1.0, None), (SHIPPED, TEACHER_PEER, 0.5, None))  # fmt: skip
LEGEND = (
    f"`{PEER}` has the shape of Multilingual-MiniLM-L12-H384 (250,002 tokens); `minilm-student` is the same shape with "
    "bottleneck 128 and 3 layers applied 4 times. Both have random weights. Peers in ONNX Runtime do not normalise in "
    "their graph; msdc-mini is compared with its teacher. XNNPACK's kernels: a core built with "
    "-DMSDC_XNNPACK_KERNELS=ON; ExecuTorch's prebuilt library uses KleidiAI's (docs/guides/mobile.md). Its own layer "
    "norm: built with -DMSDC_LIBRARY_LAYER_NORM=ON, as in apps that run programs with ExecuTorch's published Android "
    "or Apple library; the other rows use the native core's. Whether fewer instructions take less time has to be "
    "measured on a phone.\n\nThe mix is the mean over the lengths of the golden sentences ({texts}, {mean:.1f} tokens "
    "on average under the teacher's tokenizer). Cosines to the float model are mean and lowest over the golden "
    f"texts.\n\n`peer-litert`: {TEACHER} by litert-torch, with attention written out, mean pooling and normalisation "
    "inside, recipe `dynamic_wi8_afp32`. Shapes are fixed: a signature per length (16: every 8 tokens to 128; 3: 8, "
    "32, 128), all sharing the stored weights; a row is padded to the next. Tuned for LiteRT: exact lengths, shared "
    "weights, one thread, aligned input memory; its cache of packed weights is off. Tuned for ours: smoothing of "
    "activations, calibrated on sentences, and in the marked rows XNNPACK's kernels, which "
    "LiteRT's published library does not offer."
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


def measure(name: str, bundle: Path, rows: KeptRows, mix: Sequence[int] = (), runner: Path | None = None) -> None:
    """Every program with the stock runner (or `runner`, whose engine is LiteRT); that of ExecuTorch in all BUILDS.

    With lengths of a `mix`, also the mean count over them and the cosines to the float model over the golden texts.
    """
    programs: list[tuple[RuntimeName, str]] = [(runtime, "") for runtime in read_manifest(bundle).runtimes]
    programs += [("executorch", build) for build in BUILDS if ("executorch", "") in programs]
    for program, build in programs:
        runtime = "litert" if runner else program + build
        if rows.has(name=name, runtime=runtime):
            continue
        program_runner = build_runner(program, "aarch64", defines=(BUILDS[build],)).program.parent if build else runner
        asked = BenchSettings(
            tasks=(), lengths=LENGTHS, runs=3, warmup=1, timeout_s=3000, runner=program_runner, runtime=program
        )
        with EmulatorMachine(create_image(), "a76", memory_mib=MEMORY_MIB, disk_mib=DISK_MIB) as machine:
            (run,) = run_emulated(machine, "a76", open_jobs(bundle, asked))
            assert run.memory is not None and run.parity is not None
            memory = run.memory.warm
            row: dict[str, Any] = {"name": name, "runtime": runtime, "bytes": run.artifact.bytes,
                   "load": run.load, "peak_mib": memory.vmhwm_mib, "anon_mib": memory.anon_mib,
                   **{str(timing.length): timing.minimum for timing in run.latency}}  # fmt: skip
            if mix:
                row["cosines"] = [run.parity.float_mean_cosine, run.parity.float_min_cosine]
                # In a process of its own: a runtime that reuses memory counts otherwise after other lengths.
                mixed = asked.model_copy(update={"lengths": tuple(sorted({*mix})), "runs": 1})
                (run,) = run_emulated(machine, "a76", open_jobs(bundle, mixed))
                counts = {timing.length: timing.minimum for timing in run.latency}
                row["mix"] = statistics.mean(counts[n] for n in mix)
        rows.add(row)


def report(rows: Sequence[dict[str, Any]], mix: Sequence[int]) -> str:
    tokens, keys = [f"{n} tokens" for n in LENGTHS] + ["mix"], [*map(str, LENGTHS), "mix"]

    def millions(row: dict[str, Any], key: str, digits: int = 1) -> str:
        return f"{row[key] / 1e6:,.{digits}f}" if key in row else ""

    cells = [
        (r["name"], r["runtime"], f"{r['bytes']:,}", *(millions(r, key) for key in keys), millions(r, "load", 0),
         f"{r['peak_mib']:.1f}", f"{r['anon_mib']:.1f}", " / ".join(f"{c:.4f}" for c in r.get("cosines", ())))
        for r in rows
    ]  # fmt: skip
    header = ("artifact", "runtime", "bytes", *tokens, "load", "peak MiB", "anonymous MiB", "cosines")
    parts = ["Executed instructions per inference and to load, in millions:", table(header, cells)]
    by_name = {row["name"]: row for row in rows}
    ratios = []
    for name, peer, goal, mixed in GOALS:
        for row in (measured for measured in rows if measured["name"] == name and peer in by_name):
            other = by_name[peer]
            shares = [row[key] / other[key] if key in row and key in other else None for key in keys]
            limits = [*(goal for _ in LENGTHS), mixed]
            met = all(s <= most for s, most in zip(shares, limits, strict=True) if s is not None and most is not None)
            goal_text = f"{goal:g}" + (f", mix {mixed:g}" if mixed else "")
            ratios.append((name, row["runtime"], peer, *(f"{s:.3f}" if s else "" for s in shares),
                           f"{row['bytes'] / other['bytes']:.3f}", goal_text, "yes" if met else "no"))  # fmt: skip
    if ratios:
        header = ("artifact", "runtime", "peer", *tokens, "bytes", "goal, at most", "met")
        parts += ["Instructions as a share of the peer's:", table(header, ratios)]
    return "\n\n".join([*parts, LEGEND.format(texts=len(mix), mean=statistics.mean(mix))])


def main() -> None:
    parser = options_for(__doc__, "target_instructions")
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for bundles (about 1 GB)")
    parser.add_argument("--peer-python", help="python of the peer's environment; without it no peer is measured")
    parser.add_argument("--litert-python", help="python of LiteRT's environment; without it LiteRT is not measured")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these artifacts only")
    parser.add_argument("-o", "--output", type=Path, help="all figures as JSON lines; rows found there are kept")
    options = parser.parse_args()
    work, rows = options.work, KeptRows(options.output)
    mix = [len(row) for row in load_encoder(TEACHER).tokenizer.encode(golden_lines(), LENGTHS[-1])]
    peers = [*(LITERT if options.litert_python else ()), *(reversed(PEERS) if options.peer_python else ())]
    names = [SHIPPED, TEACHER, "minilm-student", *peers]
    for name in names:
        if options.only and name not in options.only:
            continue
        if name in LITERT:
            python = options.litert_python
            measure(name, make_litert(work, name, python), rows, mix, litert_runner(work, python, "aarch64"))
        elif name == TEACHER:
            measure(name, make_model(work, name, "int8"), rows, mix)
        elif name in PEERS:
            measure(name, shortened(make_peer(work, name, options.peer_python, "arm64")), rows)
        else:
            bundle = make_model(work, name, None) if name == SHIPPED else make_student(work, name, "int8")
            measure(name, shortened(bundle), rows)
    position_of_name = {name: position for position, name in enumerate(names)}
    text = report(sorted(rows, key=lambda row: (position_of_name.get(row["name"], len(names)), row["runtime"])), mix)
    write_page(options.write, "Instructions on the target's processor",
               f"{model_version(TEACHER)}; {model_version(SHIPPED)}; the MiniLM shape with random weights", text,
               "torch executorch torchao onnxruntime")  # fmt: skip


if __name__ == "__main__":
    main()
