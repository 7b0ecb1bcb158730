"""Encoding many lines: `msdc encode` and the Python API against SentenceTransformer.encode and static embeddings.

    python benchmarks/encode_lines.py --work WORK --write docs/results/encode.md

Every method runs in its own process, on the same texts and cores, one after another; rounds repeat the whole series
(the large file in the first `--large-rounds` only), and a ratio compares two methods of one round. Times are of
encoding after a warm-up; for the command, of the whole command: Python's start, loading the model, encoding, writing.

* msdc-mini: the command and the Python API (float32), its ONNX bundle (int8), and the same model of stock classes in
  SentenceTransformer (float32)
* static: a mean of table rows (all-MiniLM-L6-v2's word embeddings), by sentence-transformers' StaticEmbedding and, if
  model2vec is installed, by its StaticModel (256 dimensions): the cost of a model without layers
"""

import argparse
import contextlib
import importlib.util
import io
import json
import random
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from results_page import model_version, options_for, run_json, spread, table, write_page

import msdc
from msdc.encoders.folder import locate_model
from msdc.machine import peak_mib
from msdc.scores import cosine_rows
from msdc.text.quickstart import parallel_table

TEACHER = "all-MiniLM-L6-v2"
# name -> (model, method as on the page, the one that it is compared with)
METHODS = {
    "mini-command": ("msdc-mini", "`msdc encode -i lines.txt -o lines.npy`", "mini-st"),
    "mini-python": ("msdc-mini", "`msdc.load_encoder(...).encode`", "mini-st"),
    "mini-onnx": ("msdc-mini", "`msdc.load_bundle(...).encode`, ONNX int8", "mini-st"),
    "mini-st": ("msdc-mini", "`SentenceTransformer(...).encode`", "mini-st"),
    "static-st": ("static", "`SentenceTransformer` of a StaticEmbedding", "mini-st"),
    "static-model2vec": ("static", "model2vec's `StaticModel.encode`", "mini-st"),
}
CHECKED = 200  # lines whose vectors are compared


def make_lines(count: int) -> list[str]:
    """`count` different lines: one to three sentences of the embedded corpus, in its languages."""
    _, rows = parallel_table()
    chance, found = random.Random(0), dict[str, None]()
    while len(found) < count:
        language = chance.randrange(len(rows[0]))
        found.setdefault(" ".join(chance.choice(rows)[language] for _ in range(chance.choice((1, 1, 2, 3)))))
    return list(found)


def prepare(work: Path) -> None:
    """Create the models of the comparison in `work`; they are kept there."""
    import torch
    from sentence_transformers import SentenceTransformer

    from msdc.compress.student.io import add_stock_twin
    from msdc.export import export

    if not (work / "twin").is_dir():
        shutil.copytree(locate_model("msdc-mini"), work / "twin")
        add_stock_twin(work / "twin")
    if not (work / "bundle").is_dir():
        export("msdc-mini", target="linux", runtime="onnx", out=work / "bundle")
    if not (work / "static.npy").is_file():
        model = SentenceTransformer(str(locate_model(TEACHER)), device="cpu")
        with torch.no_grad():
            body: Any = model[0]
            np.save(work / "static.npy", body.auto_model.get_input_embeddings().weight.numpy())


def opened(method: str, work: Path) -> Callable[[Sequence[str]], np.ndarray]:
    kind, _, how = method.partition("-")
    if how == "python":
        return msdc.load_encoder("msdc-mini").encode
    if how == "onnx":
        return msdc.load_bundle(work / "bundle", "onnx", 1).encode
    folder = locate_model(TEACHER)
    if method == "static-model2vec":
        from model2vec import StaticModel
        from tokenizers import Tokenizer

        rows_VH = np.load(work / "static.npy")
        _, _, axes = np.linalg.svd(rows_VH - rows_VH.mean(axis=0), full_matrices=False)
        model: Any = StaticModel(rows_VH @ axes[:256].T, Tokenizer.from_file(str(folder / "tokenizer.json")))
        return lambda texts: model.encode(list(texts), use_multiprocessing=False)
    from sentence_transformers import SentenceTransformer

    if method == "static-st":
        from sentence_transformers.sentence_transformer.modules import StaticEmbedding
        from tokenizers import Tokenizer

        words = Tokenizer.from_file(str(folder / "tokenizer.json"))
        table_VH = np.load(work / "static.npy")
        model = SentenceTransformer(modules=[StaticEmbedding(words, embedding_weights=table_VH)], device="cpu")
    else:
        model = SentenceTransformer(str(work / "twin" if kind == "mini" else folder), device="cpu")
    return lambda texts: model.encode(list(texts), show_progress_bar=False)


def child(method: str, count: int, work: Path, started: float) -> dict[str, float]:
    """Encode `count` lines in this process: seconds, seconds to load, peak memory; vectors go to a file."""
    lines_file, out = work / f"lines-{count}.txt", work / f"{method}.npy"
    load = 0.0
    if method.endswith("-command"):
        from msdc.cli import main as msdc_main

        out.unlink(missing_ok=True)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            msdc_main(["encode", "msdc-mini", "-i", str(lines_file), "-o", str(out), "--quiet"])
        seconds = time.monotonic() - started
    else:
        lines = lines_file.read_text(encoding="utf-8").splitlines()
        encode = opened(method, work)
        encode(lines[:64])
        load, begun = time.monotonic() - started, time.perf_counter()
        vectors_ND = encode(lines)
        seconds = time.perf_counter() - begun
        np.save(out, vectors_ND[:CHECKED])
    return {"seconds": seconds, "rate": count / seconds, "load": load, "peak_mib": peak_mib()}


def closeness(method: str, work: Path) -> str:
    """Lowest cosine of the first lines' vectors by a method and the one that it is compared with, of the same model."""
    against = METHODS[method][2]
    if method == against or method.split("-")[0] != against.split("-")[0] or not (work / f"{against}.npy").is_file():
        return ""
    return f"{cosine_rows(*(np.load(work / f'{name}.npy')[:CHECKED] for name in (method, against))).min():.5f}"


def page_body(found: list[dict[str, Any]], options: argparse.Namespace, words: float) -> str:
    small, large = options.counts
    rows = []
    for method in dict.fromkeys(one["method"] for one in found):
        group, title, against = METHODS[method]
        mine = [one for one in found if one["method"] == method]
        big = [one for one in mine if one["count"] == large]
        base = {(one["round"], one["count"]): one["rate"] for one in found if one["method"] == against}
        ratios = [one["rate"] / base[one["round"], one["count"]] for one in mine] if base else []
        peaks = [statistics.median(one["peak_mib"] for one in mine if one["count"] == n) for n in (small, large)]
        load = "included" if method.endswith("-command") else f"{statistics.median(one['load'] for one in big):.1f}"
        rate = f"{statistics.median(one['rate'] for one in big):,.0f}"
        ratio = "1" if method == against else spread(ratios) if ratios else ""
        same = closeness(method, options.work)
        rows.append([group, title, rate, ratio, load, *(f"{peak:,.0f}" for peak in peaks), same])
    header = ("model", "method", "lines/s", "ratio to SentenceTransformer", "start s", f"peak MiB, {small:,} lines",
              f"peak MiB, {large:,} lines", "lowest cosine to it")  # fmt: skip
    return (
        f"{large:,} different lines of {words:.1f} words on average, {options.threads} thread(s), "
        f"{options.rounds} rounds of {small:,} lines, {options.large_rounds} of {large:,}; lines/s of the latter; "
        "medians, and ratios with the lowest and highest round. A ratio compares lines per second with "
        "SentenceTransformer.encode on msdc-mini in the same round. The command is timed from Python's start to the "
        "written file; it streams, so its memory does not grow with the file. The other methods hold all texts and "
        "vectors.\n\n" + table(header, rows)
    )


def main() -> None:
    parser = options_for(__doc__, "encode")
    parser.add_argument("--work", type=Path, help="folder for models and lines; kept")
    parser.add_argument("--counts", type=lambda text: tuple(map(int, text.split(","))), default=(10_000, 100_000))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--large-rounds", type=int, default=1, help="rounds of the larger number of lines (default: 1)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        import torch

        method, count, work, started = options.child
        torch.set_num_threads(options.threads)
        if method == "prepare":
            prepare(Path(work))
            print("null")
        else:
            print(json.dumps(child(method, int(count), Path(work), float(started))))
        return
    if options.work is None or len(options.counts) != 2:
        parser.error("--work is needed, and --counts are two: the lines of a small and of a large file")
    work = options.work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    lines = make_lines(max(options.counts))
    for count in options.counts:
        (work / f"lines-{count}.txt").write_text("\n".join(lines[:count]) + "\n", encoding="utf-8", newline="\n")

    def run(method: str, count: int) -> Any:
        # In a process of its own: this one stays small and holds no model.
        return run_json(__file__, "--threads", options.threads, "--child", method, count, work, repr(time.monotonic()),
                        threads=options.threads)  # fmt: skip

    run("prepare", 0)
    methods = [one for one in METHODS if one != "static-model2vec" or importlib.util.find_spec("model2vec")]
    found: list[dict[str, Any]] = []
    for number in range(options.rounds):
        for count in options.counts if number < options.large_rounds else options.counts[:1]:
            for method in methods:
                found.append(run(method, count) | {"method": method, "count": count, "round": number})
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    write_page(
        options.write, "Encoding many lines", f"{model_version('msdc-mini')}; {model_version(TEACHER)}",
        page_body(found, options, statistics.fmean(len(line.split()) for line in lines)),
        "sentence-transformers model2vec torch onnxruntime transformers tokenizers numpy",
    )  # fmt: skip


if __name__ == "__main__":
    main()
