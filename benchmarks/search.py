"""Search on questions and paragraphs by vectors, by words and by both, and what an index costs at three sizes.

    python benchmarks/search.py --data DATA --work WORK --write docs/results/search.md

DATA holds `retrieval/NAME/corpus.jsonl`, `queries.jsonl`, `qrels/`. Bytes and times are of indexes of synthetic entries
(15 words each, by Zipf's law) with random vectors, which cost what real ones do, next to FAISS and sqlite-vec on the
same vectors where these are installed. They are kept in WORK/costs.jsonl: a later call measures only what is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from results_page import KeptRows, model_version, options_for, run_json, spread, table, write_page

import msdc
from msdc.bench import evaluate_all
from msdc.machine import peak_mib
from msdc.search.cache import Passage
from msdc.search.documents import Document
from msdc.search.index import Index, open_index

WORDS, ASKED = 15, 40


class RandomVectors:
    """A model whose vectors cost nothing; its tokenizer is msdc-mini's."""

    def __init__(self) -> None:
        model = msdc.load_encoder("msdc-mini")
        self.name, self.width, self.max_length = "random vectors", model.width, model.max_length
        self.tokenizer, self.defaults, self._chance = model.tokenizer, model.defaults, np.random.default_rng(0)
        self.source = "0" * 64

    def fingerprint(self) -> str:
        return self.source

    def encode(self, texts: Any) -> np.ndarray:
        return self._chance.standard_normal((len(texts), self.width), dtype=np.float32)


def build(entries: int, path: Path, model: Any) -> None:
    """An index of synthetic entries, one passage each, and its vectors as PATH.npy for other libraries."""
    chance = np.random.default_rng(1)
    vocabulary = [f"w{number}" for number in range(50_000)]
    share = 1 / np.arange(1, len(vocabulary) + 1)
    vectors_ND = np.lib.format.open_memmap(path.with_suffix(".npy"), "w+", np.int8, (entries, model.width))
    with Index(model, path) as index:
        for start in range(0, entries, 10_000):
            words = chance.choice(len(vocabulary), (min(10_000, entries - start), WORDS), p=share / share.sum())
            texts = [" ".join(vocabulary[word] for word in row) for row in words]
            drawn_BD = model.encode(texts)
            codes_BD = np.rint(drawn_BD * (127 / np.abs(drawn_BD).max(1, keepdims=True))).astype(np.int8)
            scales_B = 1 / np.linalg.norm(codes_BD.astype(np.float32), axis=1)
            vectors_ND[start : start + len(texts)] = codes_BD
            passages = [[Passage(0, len(text), float(scale), codes.tobytes())]
                        for text, scale, codes in zip(texts, scales_B, codes_BD, strict=True)]  # fmt: skip
            documents = [Document(str(start + n), text) for n, text in enumerate(texts)]
            with index._transaction() as db:
                index._create(db)
                index._insert(db, documents, passages, replace=False)
    vectors_ND.flush()


def costs(entries: int, path: Path) -> dict[str, Any]:
    """Bytes of an index of so many entries, seconds to open it, and milliseconds per search by mode."""
    model: Any = RandomVectors()
    chance = np.random.default_rng(2)
    if not path.exists():
        build(entries, path, model)
    base = peak_mib()
    index = open_index(path, model)
    first = index.search("w1")
    found: dict[str, Any] = {"library": "msdc", "entries": entries, "mb": path.stat().st_size / 1e6,
                             "open_s": index.open_s + first.search_ms / 1e3}  # fmt: skip
    for mode in ("words", "vectors", "both"):
        queries = [" ".join(f"w{word}" for word in chance.integers(0, 5000, 6)) for _ in range(ASKED)]
        times = [index.search(query, 10, mode=mode).search_ms for query in queries]
        found[mode] = spread(times, 1)
    return found | {"rise_mib": peak_mib() - base}


def peer(library: str, entries: int, path: Path) -> dict[str, Any]:
    """The same of another library's exact search in 8-bit vectors."""
    vectors_ND = np.load(path.with_suffix(".npy"), mmap_mode="r")
    width = vectors_ND.shape[1]
    queries_QD = np.random.default_rng(3).standard_normal((ASKED, width), dtype=np.float32)
    file = path.with_suffix(f".{library}")
    ask: Callable[[np.ndarray], Any]
    if library == "faiss":
        import faiss

        faiss.omp_set_num_threads(1)
        if not file.exists():
            flat = faiss.IndexScalarQuantizer(width, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
            flat.train(np.asarray(vectors_ND[:50_000], np.float32))
            for start in range(0, entries, 10_000):
                flat.add(np.asarray(vectors_ND[start : start + 10_000], np.float32))
            faiss.write_index(flat, str(file))
        del vectors_ND
        base, began = peak_mib(), time.perf_counter()
        loaded = faiss.read_index(str(file))
        ask = lambda query_D: loaded.search(query_D[None], 10)  # noqa: E731
    else:
        import sqlite_vec

        base, began = peak_mib(), time.perf_counter()
        db = sqlite3.connect(file)
        db.enable_load_extension(True)
        sqlite_vec.load(db)
        if db.execute("SELECT 1 FROM sqlite_master").fetchone() is None:
            db.execute(f"CREATE VIRTUAL TABLE v USING vec0(vector int8[{width}] distance_metric=cosine)")
            with db:
                db.executemany("INSERT INTO v (rowid, vector) VALUES (?, vec_int8(?))",
                               ((row + 1, codes.tobytes()) for row, codes in enumerate(vectors_ND)))  # fmt: skip
            base, began = peak_mib(), time.perf_counter()

        def ask(query_D: np.ndarray) -> Any:
            codes = np.rint(query_D * (127 / np.abs(query_D).max())).astype(np.int8).tobytes()
            return db.execute("SELECT rowid FROM v WHERE vector MATCH vec_int8(?) AND k = 10", (codes,)).fetchall()

    ask(queries_QD[0])
    opened, times = time.perf_counter() - began, []
    for query_D in queries_QD:
        start = time.perf_counter()
        ask(query_D)
        times.append(1e3 * (time.perf_counter() - start))
    return {"library": library, "entries": entries, "mb": file.stat().st_size / 1e6, "open_s": opened, "words": "",
            "vectors": spread(times, 1), "both": "", "rise_mib": peak_mib() - base}  # fmt: skip


def quality(options: argparse.Namespace) -> str:
    """The table of every set and model."""
    rows = []
    for model in options.models:
        document = evaluate_all(model, options.set, data=options.data).as_json()
        for one in document["results"]:
            for mode, score in (("vectors", one), ("words", one["words"]), ("both", one["both"])):
                low, high = score["interval"]
                rows.append([
                    one["name"].removeprefix("retrieval/"), one["model"], mode, f"{score['acc1']:.1f}",
                    f"{score['acc5']:.1f}", f"{score['mrr']:.1f} [{low:.1f}, {high:.1f}]", f"{score['ndcg']:.1f}",
                ])  # fmt: skip
    return table(("set", "model", "ranked by", "acc@1", "acc@5", "MRR@10", "nDCG@10"), rows)


def main() -> None:
    parser = options_for(__doc__, "search")
    parser.add_argument("--data", type=Path, help="folder with retrieval/")
    parser.add_argument("--work", type=Path, help="folder for the synthetic indexes; kept")
    parser.add_argument("--models", nargs="+", default=["msdc-mini"])
    parser.add_argument("--set", nargs="+", default=["retrieval"], help="such as retrieval/squad-it (default: all)")
    parser.add_argument("--entries", nargs="+", type=int, default=[1_000, 100_000, 1_000_000], help="sizes of indexes")
    parser.add_argument("--library", default="msdc", help=argparse.SUPPRESS)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        path = options.work / f"{options.child}.sqlite"
        own = options.library == "msdc"
        print(json.dumps(costs(options.child, path) if own else peer(options.library, options.child, path)))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    kept, rows = KeptRows(options.work / "costs.jsonl"), []
    # Not every Python's sqlite3 loads extensions.
    others = ("faiss", "sqlite_vec") if hasattr(sqlite3.Connection, "enable_load_extension") else ("faiss",)
    libraries = ["msdc", *(name for name in others if importlib.util.find_spec(name))]
    for entries, library in itertools.product(options.entries, libraries):
        if not kept.has(entries=entries, library=library):
            words = ("--work", options.work, "--child", entries, "--library", library)
            kept.add(run_json(__file__, *words, threads=1))
        one = next(row for row in kept if (row["entries"], row["library"]) == (entries, library))
        modes = [one[mode] for mode in ("words", "vectors", "both")]
        rows.append(
            [f"{entries:,}", library, f"{one['mb']:,.1f}", f"{one['open_s']:.2f}", f"{one['rise_mib']:,.0f}", *modes]
        )
    head = ("entries", "library", "MB", "open s", "memory rises by MiB",
            *(f"ms, {m}" for m in ("words", "vectors", "both")))  # fmt: skip
    body = f"""## What is found

Questions and paragraphs in one language. Words: SQLite's FTS5 (BM25), title and text. Vectors: cosine of the
paragraph's best passage. Both: bm25 + 20 x cosine, as in `msdc search`. The weight of 20 and msdc-mini's vocabulary and
table were chosen on squad-it and squad-es; XQuAD chose nothing. Neither is training text. In brackets: 95 % bootstrap
interval.

{quality(options)}

## What it costs

One thread, {ASKED} queries of six words, median [fastest, slowest], without encoding the query; opening reads and
checks every row. Above 1 GiB of float32 vectors the int8 vectors are converted at every query. The other libraries
search the same 8-bit vectors exactly.

{table(head, rows)}"""
    write_page(options.write, "Search by words and by meaning", "; ".join(map(model_version, options.models)), body,
               "numpy onnxruntime torch")  # fmt: skip


if __name__ == "__main__":
    main()
