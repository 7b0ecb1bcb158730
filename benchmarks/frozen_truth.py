"""What a rewrite must not change: hashes of programs, cosines, accuracy, instruction counts, the shape of JSON output.

    python benchmarks/frozen_truth.py --data DATA -o before.json
    python benchmarks/frozen_truth.py --data DATA -o after.json --compare before.json

benchmarks/frozen_truth.json holds the values of one machine (named in it); on another one measure before and after.

Everything goes through the command line and the stable Python interface, so the same script measures both sides of a
rewrite. Hashes and scores repeat exactly on one machine; they may differ between processors and with the number of
threads, so both sides run on the same one; the file's values are of OMP_NUM_THREADS=1. Exit code 1 if a value
changed. Not here: the bit-equality of a resumed run (tests/distill/test_run.py) and
teaching speed (benchmarks/training.py).
"""

import argparse
import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msdc.machine import read_machine

FEW_STEPS = ("train-assistant", "align-bottleneck", "train-student", "contrast")
TEXTS = ("Where is the station?", "Wo ist der Bahnhof?")


def msdc(*arguments: str | Path) -> str:
    """Standard output of one command; its error ends the script."""
    print("msdc", *arguments, file=sys.stderr)
    command = [sys.executable, "-P", "-m", "msdc.cli", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        raise SystemExit(f"msdc {' '.join(map(str, arguments))}: {done.stderr.strip()[-2000:]}")
    return done.stdout


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def hashes(folder: Path) -> dict[str, str]:
    """Of every file that the manifest lists; a missing one is an error."""
    listed = json.loads((folder / "bundle.json").read_text(encoding="utf-8"))["files"]
    return {name: sha256(folder / name) for name in sorted(listed)}


def golden_cosines(bundle: Path, model: str) -> dict[str, list[float]]:
    """Mean and lowest cosine to the float model over the golden texts, for each runtime of the bundle."""
    import msdc as package

    texts = json.loads((bundle / "golden.json").read_text())["texts"]
    float_ND = package.load_encoder(model, precision="float").encode(texts)
    cosines = {}
    for runtime in ("executorch", "onnx"):
        cosine_N = (package.load_bundle(bundle, runtime=runtime).encode(texts) * float_ND).sum(1)
        cosines[runtime] = [round(float(cosine_N.mean()), 6), round(float(cosine_N.min()), 6)]
    return cosines


def shape(value: Any) -> Any:
    """Keys and types of a JSON value, without what differs between runs."""
    if isinstance(value, dict):
        return {key: shape(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def scores(document: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every Spearman and accuracy in the JSON of `msdc evaluate`, by its place."""
    if isinstance(document, dict):
        name = str(document.get("name") or document.get("set") or "")
        for key, value in document.items():
            if key in {"spearman", "accuracy"} and isinstance(value, int | float):
                yield f"{path}/{name}/{key}".strip("/"), round(float(value), 2)
            else:
                yield from scores(value, f"{path}/{name}" if name else path)
    elif isinstance(document, list):
        for value in document:
            yield from scores(value, path)


def measure(work: Path, data: Path, emulator: bool) -> dict[str, Any]:
    mini, teacher = work / "mini", "all-MiniLM-L6-v2"
    outputs: dict[str, str] = {"export": msdc("export", "msdc-mini", "--target", "linux", "-o", mini, "--json")}
    truth: dict[str, Any] = {"programs": {"msdc-mini": hashes(mini)}, "cosines": {"msdc-mini": None}}
    truth["cosines"]["msdc-mini"] = golden_cosines(mini, "msdc-mini")
    for way in ("canonical", "generic"):
        bundle = work / way
        msdc("export", teacher, "--target", "linux", "--exporter", way, "-o", bundle)
        truth["programs"][f"{teacher} {way}"] = hashes(bundle)
        truth["cosines"][f"{teacher} {way}"] = golden_cosines(bundle, teacher)

    few = [part for stage in FEW_STEPS for part in ("--set", f"stages.{stage}.steps=4")]
    msdc("quickstart", "-o", work / "quick", "--runs", "5", *few)
    truth["programs"]["quickstart, 4 steps per stage"] = hashes(work / "quick" / "bundle")
    truth["quickstart student"] = sha256(work / "quick" / "student" / "model.safetensors")

    for name in ("executorch", "onnx"):
        tasks = ("--tasks", "sts17,stsb-dev,tatoeba", "--data", data, "--resamples", "0", "--languages", "en,de,es")
        outputs["evaluate"] = msdc("evaluate", mini, "--runtime", name, *tasks, "--json")
        truth.setdefault("scores", {})[name] = dict(scores(json.loads(outputs["evaluate"])))
    if emulator:
        device = ("--device", "emulator:a76", "--runs", "2", "--warmup", "1", "--json", "-")
        outputs["bench emulator"] = msdc("bench", mini, "--lengths", "8,32", *device)
        truth["million instructions"] = instructions(json.loads(outputs["bench emulator"]))

    texts = work / "texts.tsv"
    texts.write_text("\n".join("\t".join(TEXTS) for _ in range(8)) + "\n", encoding="utf-8")
    outputs["bench host"] = msdc("bench", mini, "--runs", "5", "--lengths", "8", "--json", "-")
    outputs["corpus"] = msdc("corpus", texts, "--languages", "de", "--json")
    outputs["distill"] = msdc("distill", "quickstart", "--dry-run", "--json")
    outputs["compress plan"] = msdc("compress", "plan", "--shape", "xlmr-base", "--bottleneck", "128", "--json")
    outputs["compress student"] = msdc("compress", "student", teacher, "-o", work / "cut", "--unit", "3", "--json")
    small = work / "small"
    outputs["compress vocabulary"] = msdc(
        "compress", "vocabulary", "msdc-mini", "-o", small, "--languages", "de", "--json"
    )
    outputs["compress quantize"] = msdc("compress", "quantize", work / "cut", "-o", work / "int8", "--json")
    outputs["encode"] = msdc("encode", "msdc-mini", *TEXTS, "--json")
    outputs["compare"] = msdc("compare", "msdc-mini", *TEXTS, "--json")
    outputs["search"] = msdc("search", texts, "Bahnhof", "--json", "--index", work / "index")
    outputs["inspect"] = msdc("inspect", mini / "model.onnx", "--json")
    outputs["inspect pte"] = msdc("inspect", mini / "model.pte", "--json")
    truth["compare"] = json.loads(outputs["compare"])
    truth["small"] = sha256(small / "model.safetensors")
    truth["int8"] = sha256(work / "int8" / "model.safetensors")
    truth["json"] = {verb: shape(json.loads(text)) for verb, text in outputs.items()}
    truth["machine"] = read_machine().cpu
    return truth


def instructions(result: dict[str, Any]) -> dict[str, float]:
    """Fewest millions of instructions per inference, by runtime and length; the emulated clock wavers below that."""
    return {
        f"{run['artifact']['runtime']} {row['length']}": round(min(row["samples"]) / 1e6, 1)
        for run in result["runs"]
        for row in run["latency"]
    }


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            if key not in before or key not in after:
                yield f"{path}/{key}: only {'after' if key in after else 'before'}"
            else:
                yield from differences(before[key], after[key], f"{path}/{key}")
    elif before != after:
        yield f"{path}: {json.dumps(before)[:120]} -> {json.dumps(after)[:120]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder with the evaluation sets")
    parser.add_argument("--no-emulator", action="store_true", help="leave the emulated Cortex-A76 out")
    parser.add_argument("--compare", type=Path, help="an earlier output; exit code 1 if anything differs")
    parser.add_argument("-o", "--output", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        truth = measure(Path(work), arguments.data, emulator=not arguments.no_emulator)
    arguments.output.write_text(json.dumps(truth, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if arguments.compare:
        lines = list(differences(json.loads(arguments.compare.read_text(encoding="utf-8")), truth))
        print("\n".join(lines) or "nothing changed")
        raise SystemExit(bool(lines))


if __name__ == "__main__":
    main()
