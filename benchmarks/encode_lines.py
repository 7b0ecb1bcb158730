"""Encoding many lines: `msdc encode` and the Python API beside SentenceTransformer.encode and static embeddings.

    python benchmarks/encode_lines.py --work WORK --write docs/results/encode.md

Every way runs in a process of its own, on the same texts and cores, one after another; rounds repeat the whole series
(the many lines in the first `--large-rounds` only), and a ratio compares two ways of one series. Times are those of
encoding after a warm-up; for the command they are those of the whole command, with Python's start, the model's loading
and the file.

* msdc-mini: the command and the Python API (float32), its ONNX bundle (int8), and the equal model of stock classes in
  SentenceTransformer (float32)
* all-MiniLM-L6-v2: the command and the Python API, and SentenceTransformer
* static: a mean of a table's rows (all-MiniLM-L6-v2's word embeddings), by sentence-transformers' StaticEmbedding and,
  where model2vec is installed, by its StaticModel (256 numbers); what a model costs without layers
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from results_page import add_write_option, model_version, table, write_page

TEACHER = "all-MiniLM-L6-v2"
# way -> (group, what it is, the way that it is compared with)
WAYS = {
    "mini-command": ("msdc-mini", "`msdc encode -i lines.txt -o lines.npy`", "mini-st"),
    "mini-python": ("msdc-mini", "`msdc.load_encoder(...).encode`", "mini-st"),
    "mini-onnx": ("msdc-mini", "`msdc.load_bundle(...).encode`, ONNX int8", "mini-st"),
    "mini-st": ("msdc-mini", "`SentenceTransformer(...).encode`", "mini-st"),
    "teacher-command": (TEACHER, "`msdc encode -i lines.txt -o lines.npy`", "teacher-st"),
    "teacher-python": (TEACHER, "`msdc.load_encoder(...).encode`", "teacher-st"),
    "teacher-st": (TEACHER, "`SentenceTransformer(...).encode`", "teacher-st"),
    "static-st": ("static", "`SentenceTransformer` of a StaticEmbedding", "mini-st"),
    "static-model2vec": ("static", "model2vec's `StaticModel.encode`", "mini-st"),
}
CHECKED = 200  # lines whose vectors are compared


def make_lines(count: int, seed: int, source: Path | None) -> list[str]:
    """`count` different lines: those of a file, or one to three sentences of the embedded corpus, in its languages."""
    if source is not None:
        from msdc.text.text_files import iterate_lines

        given = [line for _, line in iterate_lines(source) if line.strip()]
        lines = list(dict.fromkeys(given))[:count]
        if len(lines) < count:
            raise SystemExit(f"{source}: {len(lines)} different lines, {count} are needed")
        return lines
    from msdc.text.quickstart import parallel_table

    _, rows = parallel_table()
    chance, found = random.Random(seed), dict[str, None]()
    while len(found) < count:
        language = chance.randrange(len(rows[0]))
        found.setdefault(" ".join(chance.choice(rows)[language] for _ in range(chance.choice((1, 1, 2, 3)))))
    return list(found)


def prepare(work: Path) -> None:
    """Models that are made for the comparison, in `work`; kept there."""
    import torch
    from sentence_transformers import SentenceTransformer

    from msdc.compress.student.io import add_stock_twin
    from msdc.encoders.folder import locate_model
    from msdc.export import export

    if not (work / "twin").is_dir():
        shutil.copytree(locate_model("msdc-mini"), work / "twin")
        add_stock_twin(work / "twin")
    if not (work / "bundle").is_dir():
        export("msdc-mini", target="linux", runtime="onnx", out=work / "bundle")
    if not (work / "static.npy").is_file():
        model = SentenceTransformer(str(locate_model(TEACHER)), device="cpu")
        with torch.no_grad():
            np.save(work / "static.npy", model[0].auto_model.get_input_embeddings().weight.numpy())


def opened(way: str, work: Path) -> Callable[[Sequence[str]], np.ndarray]:
    """The encoding function of a way, its model loaded."""
    import msdc
    from msdc.encoders.folder import locate_model

    kind, _, how = way.partition("-")
    name = "msdc-mini" if kind == "mini" else TEACHER
    if how == "python":
        return msdc.load_encoder(name).encode
    if how == "onnx":
        return msdc.load_bundle(work / "bundle", "onnx", 1).encode
    folder = locate_model(TEACHER)
    if way == "static-model2vec":
        from model2vec import StaticModel
        from tokenizers import Tokenizer

        rows_VH = np.load(work / "static.npy")
        _, _, axes = np.linalg.svd(rows_VH - rows_VH.mean(axis=0), full_matrices=False)
        model: Any = StaticModel(rows_VH @ axes[:256].T, Tokenizer.from_file(str(folder / "tokenizer.json")))
        return lambda texts: model.encode(list(texts), use_multiprocessing=False)
    from sentence_transformers import SentenceTransformer

    if way == "static-st":
        from sentence_transformers.sentence_transformer.modules import StaticEmbedding
        from tokenizers import Tokenizer

        words = Tokenizer.from_file(str(folder / "tokenizer.json"))
        table_VH = np.load(work / "static.npy")
        model = SentenceTransformer(modules=[StaticEmbedding(words, embedding_weights=table_VH)], device="cpu")
    else:
        model = SentenceTransformer(str(work / "twin" if kind == "mini" else folder), device="cpu")
    return lambda texts: model.encode(list(texts), show_progress_bar=False)


def child(arguments: argparse.Namespace) -> None:
    """One way on one number of lines, in this process; prints seconds, peak memory and where the vectors are."""
    import torch

    from msdc.machine import peak_mib

    torch.set_num_threads(arguments.threads)
    way, out = arguments.child, arguments.work / f"{arguments.child}.npy"
    lines_file = arguments.work / f"lines-{arguments.count}.txt"
    if way.endswith("-command"):
        from msdc.cli import main as msdc_main

        out.unlink(missing_ok=True)
        name = "msdc-mini" if way.startswith("mini") else TEACHER
        words = ["encode", name, "-i", str(lines_file), "-o", str(out), "--quiet"]
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            msdc_main(words)
        seconds = time.time() - arguments.started
        load = 0.0
    else:
        lines = lines_file.read_text(encoding="utf-8").splitlines()
        encode = opened(way, arguments.work)
        encode(lines[:64])
        load = time.time() - arguments.started
        begun = time.perf_counter()
        vectors_ND = encode(lines)
        seconds = time.perf_counter() - begun
        np.save(out, vectors_ND[:CHECKED])
    print(json.dumps({"seconds": seconds, "load": load, "peak_mib": peak_mib()}))


def measure(way: str, count: int, arguments: argparse.Namespace) -> dict[str, float]:
    """Run `child` in a fresh process on the given cores."""
    environment = dict(os.environ) | dict.fromkeys(
        ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), str(arguments.threads)
    )
    command = [sys.executable, __file__, "--child", way, "--count", str(count), "--work", str(arguments.work)]
    command += ["--threads", str(arguments.threads), "--started", repr(time.time())]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode:
        raise SystemExit(f"{way} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def closeness(way: str, other: str, work: Path) -> float:
    """Lowest cosine of the first lines' vectors by two ways of one model."""
    one, two = (np.load(work / f"{name}.npy")[:CHECKED].astype(np.float64) for name in (way, other))
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(two, axis=1)
    return float(((one * two).sum(axis=1) / norms).min())


def spread(values: Sequence[float], digits: int = 2) -> str:
    return f"{statistics.median(values):.{digits}f} [{min(values):.{digits}f}, {max(values):.{digits}f}]"


def page_body(found: list[dict[str, Any]], arguments: argparse.Namespace, words: float) -> str:
    """What was run, and the table."""
    small, large = arguments.counts
    rows = []
    for way, (group, title, against) in WAYS.items():
        mine = [one for one in found if one["way"] == way]
        if not mine:
            continue
        big = [one for one in mine if one["count"] == large]
        base = {(one["round"], one["count"]): one["rate"] for one in found if one["way"] == against}
        ratios = [one["rate"] / base[one["round"], one["count"]] for one in mine]
        peaks = [statistics.median(one["peak_mib"] for one in mine if one["count"] == n) for n in (small, large)]
        same = "" if against.split("-")[0] != way.split("-")[0] or way == against else f"{big[-1]['cosine']:.5f}"
        load = "in the time" if way.endswith("-command") else f"{statistics.median(o['load'] for o in big):.1f}"
        rate = f"{statistics.median(one['rate'] for one in big):,.0f}"
        ratio = "1" if way == against else spread(ratios)
        rows.append([group, title, rate, ratio, load, *(f"{peak:,.0f}" for peak in peaks), same])
    header = ("model", "way", "lines/s", "ratio to SentenceTransformer", "start s", f"peak MiB, {small:,} lines",
              f"peak MiB, {large:,} lines", "lowest cosine to it")  # fmt: skip
    return (
        f"{large:,} different lines of {words:.1f} words on average, {arguments.threads} thread(s), "
        f"{arguments.rounds} rounds of {small:,} lines, {arguments.large_rounds} of {large:,}; lines/s of the latter; "
        "medians, and ratios with the lowest and highest round. A ratio compares lines per second with "
        "SentenceTransformer.encode on the same model (static: on msdc-mini) in the same round. The "
        "command's time is that of the whole command, from Python's start to the written file; it streams, so that "
        "its memory does not grow with the file. The other ways hold all texts and vectors.\n\n" + table(header, rows)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for models and lines; kept")
    parser.add_argument("--counts", type=lambda text: tuple(map(int, text.split(","))), default=(10_000, 100_000))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large-rounds", type=int, default=1, help="rounds of the larger number of lines (default: 1)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--texts", type=Path, help="a file of lines; default: made of the embedded corpus")
    parser.add_argument("--ways", type=lambda text: text.split(","), help=f"some of {', '.join(WAYS)}")
    add_write_option(parser, "encode")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--started", type=float, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    if arguments.child:
        child(arguments)
        return
    if len(arguments.counts) != 2:
        raise SystemExit("--counts: two numbers of lines, for the memory of a small and a large file")
    arguments.work.mkdir(parents=True, exist_ok=True)
    lines = make_lines(max(arguments.counts), arguments.seed, arguments.texts)
    for count in arguments.counts:
        text = "\n".join(lines[:count]) + "\n"
        (arguments.work / f"lines-{count}.txt").write_text(text, encoding="utf-8", newline="\n")
    # In a process of its own: this one stays small and holds no library.
    code = f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]; import encode_lines, pathlib; "
    code += f"encode_lines.prepare(pathlib.Path({str(arguments.work)!r}))"
    subprocess.run([sys.executable, "-c", code], check=True)
    ways = [way for way in WAYS if arguments.ways is None or way in arguments.ways]
    if importlib.util.find_spec("model2vec") is None:
        ways = [way for way in ways if way != "static-model2vec"]
    found: list[dict[str, Any]] = []
    for number in range(arguments.rounds):
        for count in arguments.counts if number < arguments.large_rounds else arguments.counts[:1]:
            for way in ways:
                one = measure(way, count, arguments) | {"way": way, "count": count, "round": number}
                one["rate"] = count / one["seconds"]
                found.append(one)
                rate, peak = f"{one['rate']:9,.0f} lines/s", f"{one['peak_mib']:7,.0f} MiB"
                print(f"{number} {count:>7} {way:18} {rate} {peak}", flush=True)
            for one in found[-len(ways) :]:
                against = WAYS[one["way"]][2]
                if one["way"].split("-")[0] == against.split("-")[0] and against in ways:
                    one["cosine"] = closeness(one["way"], against, arguments.work)
    body = page_body(found, arguments, statistics.fmean(len(line.split()) for line in lines))
    print(body)
    if arguments.write:
        libraries = (
            "sentence-transformers",
            "model2vec",
            "torch",
            "onnxruntime",
            "transformers",
            "tokenizers",
            "numpy",
        )
        write_page(
            arguments.write, "Encoding many lines", f"{model_version('msdc-mini')}; {model_version(TEACHER)}", body,
            libraries=libraries,
        )  # fmt: skip


if __name__ == "__main__":
    main()
