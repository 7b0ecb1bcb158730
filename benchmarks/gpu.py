"""On a machine with a GPU, in a few minutes: gradients equal to the CPU's, training speed, and a recipe's run.

    python benchmarks/gpu.py -o OUT                                    # gradients, then speed
    python benchmarks/gpu.py -o OUT --run RECIPE --data DATA --minutes 6   # and as long a run, its student in OUT

OUT/gpu.json has the figures. Each part is a process of its own: one that fails or takes too long is reported, and the
others go on. Without a GPU the parts run on the CPU, which tries the script itself.

* gradients: loss and gradient of every objective of a stage, in double precision, on both devices; the largest
  difference relative to the gradient's norm.
* speed: pairs per second of this engine and of sentence-transformers' trainer (benchmarks/training.py, one epoch).
* run: `msdc distill RECIPE --hours`; with --resume it continues the run of an earlier call.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from results_page import ROOT

TOLERANCE = 1e-9  # in double precision
PAIRS = 4096  # of the speed's corpus


def gradients(name: str, folder: Path, device: torch.device) -> tuple[float, list[torch.Tensor]]:
    """The loss of one step of a stage and the gradients of all parameters, on a device."""
    from training_processes import make  # type: ignore[import-not-found]  # of tests/helpers

    task, feed = make(name, folder)
    batch = feed.batch(0)
    for key, value in vars(batch).items():
        if isinstance(value, torch.Tensor):
            setattr(batch, key, value.to(device))
        elif isinstance(value, tuple):
            setattr(batch, key, tuple(tensor.to(device) for tensor in value))
    task.to(device)
    task.teacher.encoder.module.to(device)
    torch.manual_seed(5)
    loss = task(batch)["loss"]
    loss.backward()
    parameters = [p for p in task.parameters() if p.requires_grad]
    return float(loss.detach()), [torch.zeros_like(p).cpu() if p.grad is None else p.grad.cpu() for p in parameters]


def compare_gradients(device: torch.device) -> dict[str, Any]:
    """Of every kind of stage: the relative differences of loss and gradient between the CPU and `device`."""
    sys.path.insert(0, str(ROOT / "tests" / "helpers"))
    from training_processes import STAGES, make

    differences: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        make("mse", Path(folder))  # writes the tiny models, which draws random numbers
        for name in STAGES:
            results = [gradients(name, Path(folder) / f"{name}-{kind}", kind) for kind in (torch.device("cpu"), device)]
            (loss, expected), (other, compared) = results
            norm = sum(float(gradient.square().sum()) for gradient in expected) ** 0.5
            error = sum(float((a - b).square().sum()) for a, b in zip(expected, compared, strict=True)) ** 0.5
            differences[name] = [abs(loss - other) / max(abs(loss), 1e-12), error / max(norm, 1e-12)]
    worst = max(max(pair) for pair in differences.values())
    return {"device": str(device), "stages": differences, "worst": worst, "passed": worst < TOLERANCE}


def part(words: list[str], seconds: float) -> dict[str, Any]:
    """A part as a process of its own: its last line as JSON, or why there is none."""
    began = time.monotonic()
    try:
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return {"error": f"longer than {seconds:.0f} s"}
    lines = done.stdout.strip().splitlines()
    result: dict[str, Any] = {"seconds": round(time.monotonic() - began, 1)}
    if done.returncode:
        return {**result, "error": done.stderr.strip()[-1500:]}
    try:
        return {**result, "result": json.loads(lines[-1])}
    except (IndexError, ValueError):
        return {**result, "output": lines[-3:]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder of the figures and of the run")
    parser.add_argument("--run", metavar="RECIPE", help="a recipe to train")
    parser.add_argument("--data", help="{data} of the recipe")
    parser.add_argument("--minutes", type=float, default=6.0, help="of the run")
    parser.add_argument("--resume", action="store_true", help="continue the run in OUT")
    parser.add_argument("--pairs", type=int, default=PAIRS, help="of the speed's corpus")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if options.child:
        print(json.dumps(compare_gradients(device)))
        return
    options.output.mkdir(parents=True, exist_ok=True)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "no GPU"
    report: dict[str, Any] = {"device": name, "torch": torch.__version__}

    def note(key: str, value: dict[str, Any]) -> None:
        report[key] = value
        (options.output / "gpu.json").write_text(json.dumps(report, indent=1), encoding="utf-8")
        print(f"{key}: {json.dumps(value)[:2000]}", flush=True)

    note("gradients", part([__file__, "-o", str(options.output), "--child"], 180))
    training = [str(ROOT / "benchmarks" / "training.py"), "--repeats", "1", "--parts", "--threads", "4"]
    if options.data:
        training += ["--corpus", f"tatoeba:{options.pairs}", f"{options.data}/tatoeba/tatoeba.en-de.tsv.gz"]
    note("speed", part(training, 180))
    if options.run:
        words = ["-m", "msdc.cli", "distill", options.run, "-o", str(options.output / "run"), "-q",
                 "--hours", str(options.minutes / 60), *(["--data", options.data] if options.data else []),
                 *(["--resume"] if options.resume else [])]  # fmt: skip
        note("run", part(words, 60 * options.minutes + 240))


if __name__ == "__main__":
    main()
