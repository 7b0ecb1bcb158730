"""What a vector costs: the first one of a process, a thousand lines, and a text at a time, next to other libraries.

    python benchmarks/encode.py --work WORK --peer-python PEER/bin/python --e5 FOLDER --write docs/results/encode.md

Each figure is processor time of a process of its own, on one processor; the ways take turns. PEER has the libraries of
`pip install "sentence-transformers<6" "transformers<5" optimum-onnx model2vec skeletoken`; FOLDER is
multilingual-e5-small as a folder of sentence-transformers. Without them only msdc is measured. Texts are those of the
embedded corpus.
"""

import argparse
import json
import random
import resource
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from results_page import ROOT, model_version, options_for, run_json, spread, table, write_page

import msdc
from msdc.encoders.folder import locate_model
from msdc.export import export
from msdc.scores import cosine_rows
from msdc.text.quickstart import parallel_table

MODEL, TEACHER = "msdc-mini", "all-MiniLM-L6-v2"
CHILD, DISTILL = ROOT / "benchmarks" / "encode_process.py", ROOT / "benchmarks" / "encode_peer.py"
LINES, EACH, FILE_LINES, ROUNDS = 1000, 100, 5000, 5
TASKS = ("first", "lines", "each")


class Way(NamedTuple):
    """A row of the page: its name, the way of encode_process.py, the model, the interpreter."""

    title: str
    way: str
    model: str
    python: str = sys.executable


def corpus_texts(work: Path) -> Path:
    """Short, typical and long texts (about 6, 11 and 110 tokens) and lines of all languages, as a JSON file."""
    rows = parallel_table()[1]
    lines = [text for row in rows for text in row if text]
    random.Random(1).shuffle(lines)
    ordered = sorted(lines, key=len)
    count = len(rows[0])
    long = [" ".join(lines[i * 10 : i * 10 + 10]) for i in range(EACH)]
    texts = {"short": ordered[: EACH * count : count], "typical": lines[:EACH], "long": long, "lines": lines[:LINES]}
    path = work / "texts.json"
    path.write_text(json.dumps(texts, ensure_ascii=False), "utf-8")
    return path


def bundle(work: Path, runtime: str) -> str:
    folder = work / f"{MODEL}-{runtime}"
    if not (folder / "bundle.json").is_file():
        export(MODEL, target="linux", runtime=runtime, precision="int8", output=folder, force=True)
    return str(folder)


def ways(work: Path, peer: str | None, e5: Path | None) -> list[Way]:
    ways_measured = [
        Way(f'`load_encoder("{MODEL}")`, the int8 program', "default", MODEL),
        Way("its float program", "float", MODEL),
        Way("its PyTorch module", "float-torch", MODEL),
        Way("its ONNX bundle", "onnx", bundle(work, "onnx")),
        Way("its ExecuTorch bundle", "executorch", bundle(work, "executorch")),
    ]
    if peer:
        names = {TEACHER: Path(locate_model(TEACHER))} | ({"multilingual-e5-small": e5} if e5 else {})
        run_json(DISTILL, work, *names.values(), python=peer)
        for name, folder in names.items():
            quantized = str(work / f"{folder.name}-onnx")
            ways_measured.append(Way(f"{name}, sentence-transformers", "st-torch", str(folder), peer))
            ways_measured.append(Way(f"{name}, its int8 ONNX export", "st-onnx", quantized, peer))
        ways_measured.append(Way(f"model2vec of {TEACHER}", "model2vec", str(work / "model2vec"), peer))
    return ways_measured


def file_seconds(work: Path, texts: Path) -> float:
    """Processor time of `msdc encode -i FILE -o FILE` for FILE_LINES lines of about 60 tokens."""
    lines = json.loads(texts.read_text("utf-8"))["lines"]
    joined = [" ".join(lines[(i * 5 + j) % LINES] for j in range(5)) for i in range(FILE_LINES)]
    file = work / "lines.txt"
    file.write_text("\n".join(joined) + "\n", "utf-8")
    words: list[str | Path] = [
        sys.executable,
        "-m",
        "msdc.cli",
        "encode",
        "-i",
        file,
        "-o",
        work / "lines.npy",
        "--force",
        "-q",
    ]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(words, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def lowest_cosine(texts: Path) -> float:
    lines = json.loads(texts.read_text("utf-8"))["lines"]
    vectors = [msdc.load_encoder(MODEL, precision=precision).encode(lines) for precision in ("int8", "float")]  # type: ignore[arg-type]
    return float(cosine_rows(*vectors).min())


def ratio(values: list[float], base: list[float]) -> str:
    """Of medians, and the range of the ratios of single rounds."""
    round_ratios = [a / b for a, b in zip(values, base, strict=True)]
    return f"{median(values) / median(base):.2f} [{min(round_ratios):.2f}, {max(round_ratios):.2f}]"


def main() -> None:
    parser = options_for(__doc__, "encode")
    parser.add_argument("--work", type=Path, required=True, help="folder for bundles and exports of peers; kept")
    parser.add_argument("--peer-python", help="python of the peers' environment; without it no peer is measured")
    parser.add_argument("--e5", type=Path, help="multilingual-e5-small as a folder of sentence-transformers")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options: argparse.Namespace = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    texts = corpus_texts(options.work)
    rows = ways(options.work, options.peer_python, options.e5)
    msdc.load_encoder(MODEL)  # its program is kept
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {row.title: {task: [] for task in TASKS} for row in rows}
    for _ in range(options.rounds):
        for task in TASKS:
            for row in rows:
                runs[row.title][task].append(
                    run_json(CHILD, row.way, row.model, texts, task, threads=1, python=row.python)
                )
    seconds = [file_seconds(options.work, texts) for _ in range(options.rounds)]

    def column(row: Way, task: str, key: str) -> list[float]:
        return [run[key] for run in runs[row.title][task]]

    base = rows[0]
    process_table = table(
        ("model", "first line, CPU s", "ratio", "MiB", f"{LINES:,} lines, CPU s", "ratio", "MiB"),
        [(row.title, *(cell for task in ("first", "lines") for cell in (
            spread(column(row, task, "cpu_s")), ratio(column(row, task, "cpu_s"), column(base, task, "cpu_s")),
            f"{max(column(row, task, 'mib')):.0f}"))) for row in rows],
    )  # fmt: skip
    single = table(
        ("model", "short", "typical", "ratio", "long", f"in a list of {LINES:,}", "ratio"),
        [(row.title, *(spread(column(row, "each", key)) for key in ("short", "typical")),
          ratio(column(row, "each", "typical"), column(base, "each", "typical")), spread(column(row, "each", "long")),
          spread(column(row, "each", "list"), 3), ratio(column(row, "each", "list"), column(base, "each", "list")))
         for row in rows],
    )  # fmt: skip
    body = (
        f"Processor time on one processor; median [range] of {options.rounds} processes; ratios to the first row.\n\n"
        f"## The whole process\n\n{process_table}\n\n`msdc encode -i FILE -o FILE.npy`, "
        f"{FILE_LINES:,} lines of 5 sentences: "
        f"{spread(seconds, 1)} CPU s.\n\n## Milliseconds per text, one by one\n\n{single}\n\n"
        f"Lowest cosine of the int8 program to the float model over {LINES:,} lines: {lowest_cosine(texts):.4f}.\n"
    )
    write_page(
        options.write,
        "What a vector costs",
        model_version(MODEL),
        body,
        "onnxruntime executorch torch sentencepiece numpy",
    )


if __name__ == "__main__":
    main()
