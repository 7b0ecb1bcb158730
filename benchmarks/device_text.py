"""all-MiniLM-L6-v2 from text on an emulated Cortex-A76, both engines: token ids, vectors, STS2017 on device vectors.

    python benchmarks/device_text.py --data DATA --write docs/results/device_text.md

The WordPiece tokenizer and the engine run in the native runner on the emulated phone. Token ids must be equal to
Python's, vectors are compared with the export's own golden vectors, and the pairs of STS2017 en-en are embedded there;
the score beside is that of the same bundle in Python on this machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from results_page import add_write_option, model_version, table, write_page

from msdc.bench.devices.emulator import EmulatorDevice
from msdc.bench.measure import BenchSettings, collect
from msdc.bench.result import DeviceRun
from msdc.export.bundle import load_bundle

MODEL, TASK = "all-MiniLM-L6-v2", "sts17/en-en"


def make_bundle(work: Path) -> Path:
    """The Android bundle of the model with both programs; made once."""
    from msdc.export import export

    out = work / f"{MODEL}-android"
    if not out.is_dir():
        export(MODEL, target="android", runtime="both", precision="int8", out=out)
    return out


def report(runs: list[DeviceRun], scores: dict[str, float]) -> str:
    """The table; `scores` are those of Python by runtime."""
    cells = []
    for run in runs:
        assert run.parity is not None
        golden, (accuracy,) = run.parity, run.accuracy
        cells.append((
            run.artifact.runtime, golden.texts, "yes" if golden.ids_equal else f"{len(golden.ids_differ)} differ",
            f"{golden.mean_cosine:.6f}", f"{golden.min_cosine:.6f}", accuracy.pairs,
            f"{accuracy.spearman:.2f}", f"{scores[run.artifact.runtime]:.2f}",
        ))  # fmt: skip
    header = ("runtime", "golden texts", "ids equal", "mean cosine", "min cosine", "STS2017 en-en pairs",
              "Spearman on the device", "Spearman in Python")  # fmt: skip
    return f"On {runs[0].device.name}; cosine to the export's own golden vectors.\n\n{table(header, cells)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the data sets; default: MSDC_DATA")
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for the bundle")
    add_write_option(parser, "device_text")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    bundle = make_bundle(options.work)
    settings = BenchSettings(lengths=(8,), runs=1, warmup=0, tasks=(TASK,), data=options.data, timeout_s=7200)
    tasks, runs, scores = collect(settings), EmulatorDevice("a76").run(bundle, settings), {}
    for run in runs:
        (accuracy,) = tasks.score(load_bundle(bundle, runtime=run.artifact.runtime))
        assert accuracy.spearman is not None
        scores[run.artifact.runtime] = accuracy.spearman
    text = report(runs, scores)
    if options.write:
        write_page(options.write, "From text to vector on the emulated phone", model_version(MODEL), text,
                   libraries=("torch", "executorch", "onnxruntime", "tokenizers"))  # fmt: skip
    print(text)


if __name__ == "__main__":
    main()
