"""Bytes, memory, load time and latency of our artifacts, sentence-transformers' int8 export and LiteRT.

    python benchmarks/artifacts.py --peer-python PEER/bin/python --litert-python LITERT/bin/python [--data DATA] \
        --write docs/results/artifacts.md

Everything runs in the native C++ runner (no Python in the measured process, files mapped, one thread), each artifact
in a new process, in rounds over all artifacts, so that other load on the machine affects all of them alike. A ratio is
taken within a round. Bundles are created once and kept in --work.

The peer is sentence-transformers' own export, which needs a separate environment:

    python -m venv PEER && PEER/bin/pip install "sentence-transformers[onnx]==5.1.2" "transformers<5"

It gets mean pooling appended to its graph (the library pools outside) and the same runner. LiteRT's program needs a
third environment (benchmarks/artifact_litert.py) and has a signature per length: a row is padded to the next. Without
--peer-python and --litert-python only our artifacts are measured; `--only msdc-mini` takes about two minutes.
`--without-amx` shows what AMX is worth: LiteRT's XNNPACK has kernels for it, that of ExecuTorch's package has none.
"""

import ctypes
import os
import statistics
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifact_models import LITERT, SHIPPED, TEACHER, TEACHER_PEER, litert_runner, make_litert, make_model, make_peer
from results_page import model_version, options_for, spread, table, write_page

from msdc.bench import bench, evaluate
from msdc.export.bundle import load_bundle
from msdc.export.manifest import read_manifest
from msdc.loading import load_encoder
from msdc.text.quickstart import golden_lines

LENGTHS = (8, 32, 128)
STS = {TEACHER: ("sts17/en-en", "stsb"), SHIPPED: ("sts17/en-en", "sts17/es-es", "stsb", "stsb-multi/de")}
HEADER = ("artifact", "bytes", "load ms", "peak MiB", "anonymous MiB", *map(str, LENGTHS), "mix")
KEYS = (*LENGTHS, "mix")
# artifact -> its peers
PEERS_OF = {SHIPPED: (TEACHER_PEER,), TEACHER: (TEACHER_PEER, *LITERT)}


@dataclass
class Item:
    """One artifact and the figures of its processes, one entry per round."""

    name: str
    folder: Path
    runtime: Any
    bytes: int
    runner: Path | None = None
    rounds: list[dict[str, float]] = field(default_factory=list)

    def values(self, key: str) -> list[float]:
        return [figures[key] for figures in self.rounds]

    def both(self, key: str, least: str = "", digits: int = 1) -> str:
        return f"{statistics.median(self.values(key)):.{digits}f} / {min(self.values(least or key)):.{digits}f}"


def items_of(folder: Path, name: str, runner: Path | None = None) -> list[Item]:
    manifest = read_manifest(folder)
    return [Item(name, folder, runtime, manifest.program_bytes(runtime), runner) for runtime in manifest.runtimes]


def measure(items: Sequence[Item], rounds: int, runs: int, mix: Sequence[int]) -> None:
    """Run all items in turn, `rounds` times, each in a new native process; `mix` are lengths whose mean is a column."""
    for number in range(rounds):
        for item in items:
            (run,) = bench(item.folder, runtime=item.runtime, tasks="none", lengths=(*LENGTHS, *mix), runs=runs,
                           warmup=5, runner=item.runner).results.runs  # fmt: skip
            assert run.memory is not None and run.load is not None and run.parity is not None
            memory, rows = run.memory.warm, {row.length: row for row in run.latency}
            figures = {"load_ms": run.load, "peak_mib": memory.vmhwm_mib, "anon_mib": memory.anon_mib}
            for length in LENGTHS:
                figures |= {f"p50_{length}": rows[length].p50, f"min_{length}": rows[length].minimum}
            figures |= {"p50_mix": statistics.mean(rows[n].p50 for n in mix),
                    "min_mix": statistics.mean(rows[n].minimum for n in mix),
                    "cosine": run.parity.float_mean_cosine or 0, "least": run.parity.float_min_cosine or 0}  # fmt: skip
            item.rounds.append(figures)
            print(f"round {number + 1}: {item.name} {item.runtime} {figures}", file=sys.stderr)


def accuracy(folders: dict[str, Path], data: str | None, parity: list[tuple[str, ...]]) -> list[str]:
    """Cosines over the golden texts, with the rows in `parity`; Spearman on STS sets if there is data."""
    sts = []
    for name, folder in folders.items():
        for runtime, cosines in read_manifest(folder).parity.items():
            parity.append((name, runtime, f"{cosines.mean_cosine:.5f}", f"{cosines.min_cosine:.5f}"))
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


def ratios(items: Sequence[Item]) -> list[str]:
    rows = []
    by_name = {item.name: item for item in items}
    for item in (candidate for candidate in items if candidate.name in PEERS_OF):
        for other in (by_name[name] for name in PEERS_OF[item.name] if name in by_name):
            ratio_cells = [
                spread([a / b for a, b in zip(item.values(key), other.values(key), strict=True)], 3)
                for key in ("peak_mib", "load_ms", *(f"min_{n}" for n in KEYS))
            ]
            rows.append((f"{item.name} {item.runtime}", other.name, f"{item.bytes / other.bytes:.4f}", *ratio_cells))
    header = ("artifact", "peer", "bytes", "peak", "load", *map(str, KEYS))
    return ["Ratios to a peer, median of the rounds [minimum, maximum]:", table(header, rows)] if rows else []


def refuse_amx() -> None:
    """Let this process, and those it starts, compute as on a processor without AMX: the system call by which they ask
    Linux for its registers (arch_prctl, ARCH_REQ_XCOMP_PERM) fails from now on."""
    load, equal, answer = 0x20, 0x15, 0x06  # BPF: a word of the call's record, a comparison, the verdict
    steps = (
        (load, 0, 0, 0), (equal, 0, 3, 158),  # its number
        (load, 0, 0, 16), (equal, 0, 1, 0x1023),  # its first argument
        (answer, 0, 0, 0x50001), (answer, 0, 0, 0x7FFF0000),  # EPERM, allowed
    )  # fmt: skip
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) or libc.prctl(22, 2, program, 0, 0):  # PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP
        raise OSError(ctypes.get_errno(), "seccomp")


def main() -> None:
    parser = options_for(__doc__, "artifacts")
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for bundles (about 1 GB)")
    parser.add_argument("--peer-python", help="python of the peer's environment; without it no peer is measured")
    parser.add_argument("--litert-python", help="python of LiteRT's environment; without it LiteRT is not measured")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="measure these artifacts only, e.g. msdc-mini")
    parser.add_argument("--data", help="folder with sts2017, stsb and stsb-multi-mt; none: no STS rows")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--runs", type=int, default=60, help="timed runs per length, process and round")
    parser.add_argument("--without-amx", action="store_true", help="no process may use AMX (Linux, x86)")
    options = parser.parse_args()
    work = options.work
    if options.without_amx:
        refuse_amx()
    # Exports are checked on one thread too; the measured processes get their threads with the runner's request.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    def is_selected(name: str) -> bool:
        return not options.only or name in options.only

    real = {name: make_model(work, name, p) for name, p in ((SHIPPED, None), (TEACHER, "int8")) if is_selected(name)}
    items = [item for name, folder in real.items() for item in items_of(folder, name)]
    if options.peer_python and is_selected(TEACHER_PEER):
        items += items_of(make_peer(work, TEACHER_PEER, options.peer_python), TEACHER_PEER)
    if options.litert_python:
        runner = litert_runner(work, options.litert_python)
        for name in filter(is_selected, LITERT):
            items += items_of(make_litert(work, name, options.litert_python), name, runner)
    mix = [len(row) for row in load_encoder(TEACHER).tokenizer.encode(golden_lines(), LENGTHS[-1])]
    measure(items, options.rounds, options.runs, mix)
    rows = [
        (f"{item.name} {'litert' if item.runner else item.runtime}", f"{item.bytes:,}", item.both("load_ms"),
         *(f"{statistics.median(item.values(key)):.1f}" for key in ("peak_mib", "anon_mib")),
         *(item.both(f"p50_{n}", f"min_{n}", 2) for n in KEYS))
        for item in items
    ]  # fmt: skip
    cosines = [(item.name, "litert", *(f"{item.values(key)[0]:.5f}" for key in ("cosine", "least")))
               for item in items if item.runner]  # fmt: skip
    parts = [
        "Whole process of the native runner, one thread. Times in milliseconds, median / minimum over all rounds; "
        "latency at 8, 32 and 128 tokens, and the mean over the lengths of the golden sentences (mix: "
        f"{statistics.mean(mix):.1f} tokens on average under the teacher's tokenizer).",
        table(HEADER, rows),
        *ratios(items),
        *accuracy(real, options.data, cosines),
    ]
    write_page(options.write, "Exported artifacts: bytes, memory, latency", model_version(SHIPPED), "\n\n".join(parts),
               "torch executorch torchao onnxruntime")  # fmt: skip


if __name__ == "__main__":
    main()
