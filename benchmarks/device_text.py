"""all-MiniLM-L6-v2 from text on an emulated Cortex-A76, both engines: token ids, vectors, STS2017 on device vectors.

    python benchmarks/device_text.py --data DATA --write docs/results/device_text.md

The WordPiece tokenizer and the engine run in the native runner on the emulated phone. Token ids must be equal to
Python's, vectors are compared with the export's golden vectors, and the pairs of STS2017 en-en are encoded there; the
other score is of the same bundle in Python on this machine.
"""

from pathlib import Path

from artifact_models import TEACHER, make_model
from results_page import model_version, options_for, table, write_page

from msdc import load_bundle
from msdc.bench import bench, evaluate

TASK = "sts17/en-en"
HEADER = ("runtime", "golden texts", "ids equal", "mean cosine", "min cosine", "STS2017 en-en pairs",
          "Spearman on the device", "Spearman in Python")  # fmt: skip


def main() -> None:
    parser = options_for(__doc__, "device_text")
    parser.add_argument("--data", type=Path, help="folder of the data sets; default: MSDC_DATA")
    parser.add_argument("--work", type=Path, default=Path("artifacts-work"), help="folder for the bundle")
    options = parser.parse_args()
    bundle = make_model(options.work, TEACHER, "int8", "android")
    done = bench(bundle, device="emulator:a76", tasks=TASK, data=options.data, lengths=(8,), runs=1, warmup=0,
                 timeout_s=7200)  # fmt: skip
    cells = []
    for run in done.results.runs:
        assert run.parity is not None
        golden, (accuracy,), runtime = run.parity, run.accuracy, run.artifact.runtime
        here = evaluate(load_bundle(bundle, runtime=runtime), TASK, data=options.data, resamples=0)["spearman"]
        cells.append((
            runtime, golden.texts, "yes" if golden.ids_equal else f"{len(golden.ids_differ)} differ",
            f"{golden.mean_cosine:.6f}", f"{golden.min_cosine:.6f}", accuracy.pairs, f"{accuracy.spearman:.2f}",
            f"{here:.2f}",
        ))  # fmt: skip
    name = done.results.runs[0].device.name
    text = f"On {name}; cosine to the export's own golden vectors.\n\n{table(HEADER, cells)}"
    write_page(options.write, "From text to vector on the emulated phone", model_version(TEACHER), text,
               "torch executorch onnxruntime tokenizers")  # fmt: skip


if __name__ == "__main__":
    main()
