"""What a search index costs at three sizes, next to FAISS, usearch and sqlite-vec on the same vectors.

    pip install faiss-cpu usearch sqlite-vec apsw
    python benchmarks/search_costs.py --work WORK --write docs/results/search-costs.md

Bytes, seconds, memory and milliseconds of indexes of synthetic entries (15 words each, by Zipf's law) with random
vectors, which cost what real ones do. A library that is not installed is left out. Rows are kept in WORK/costs.jsonl: a
later call measures only what is missing, so that `--libraries` and `--entries` measure a part.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from results_page import KeptRows, model_version, options_for, run_json, spread, table, write_page

import msdc
from msdc.loading import open_index
from msdc.machine import peak_mib
from msdc.search.blocks import Passage
from msdc.search.documents import Document
from msdc.search.index import Index

WORDS, ASKED, TOP = 15, 40, 10
Ask = Callable[[np.ndarray], Any]


class RandomVectors:
    """A model whose vectors cost nothing; its tokenizer is msdc-mini's."""

    def __init__(self) -> None:
        model = msdc.load_encoder("msdc-mini")
        self.name, self.width, self.max_length = "random vectors", model.width, model.max_length
        self.tokenizer, self.defaults, self._chance = model.tokenizer, model.defaults, np.random.default_rng(0)
        self.token_counter = model.token_counter
        self.source = "0" * 64

    def fingerprint(self) -> str:
        return self.source

    def cosines(self) -> tuple[float, float]:
        return 0.0, self.width**-0.5

    def encode(self, texts: Any) -> np.ndarray:
        return self._chance.standard_normal((len(texts), self.width), dtype=np.float32)


def rounded(vectors_BD: np.ndarray) -> np.ndarray:
    """Vectors in 8 bits."""
    return np.rint(vectors_BD * (127 / np.abs(vectors_BD).max(1, keepdims=True))).astype(np.int8)


def build(entries: int, path: Path) -> None:
    """An index of synthetic entries, one passage each, and its vectors as PATH.npy for other libraries."""
    model: Any = RandomVectors()
    chance = np.random.default_rng(1)
    vocabulary = [f"w{number}" for number in range(50_000)]
    share = 1 / np.arange(1, len(vocabulary) + 1)
    vectors_ND = np.lib.format.open_memmap(path.with_suffix(".npy"), "w+", np.int8, (entries, model.width))
    with Index(model, path) as index:
        for start in range(0, entries, 10_000):
            words = chance.choice(len(vocabulary), (min(10_000, entries - start), WORDS), p=share / share.sum())
            texts = [" ".join(vocabulary[word] for word in row) for row in words]
            codes_BD = rounded(model.encode(texts))
            scales_B = 1 / np.linalg.norm(codes_BD.astype(np.float32), axis=1)
            vectors_ND[start : start + len(texts)] = codes_BD
            passages = [[Passage(0, len(text), float(scale), codes.tobytes())]
                        for text, scale, codes in zip(texts, scales_B, codes_BD, strict=True)]  # fmt: skip
            index._write([Document(str(start + n), text) for n, text in enumerate(texts)], passages, replace=False)
    vectors_ND.flush()


def measure_msdc(path: Path) -> dict[str, Any]:
    """Bytes of an index, seconds to its first answer and to check it, milliseconds per search by mode."""
    model: Any = RandomVectors()
    chance = np.random.default_rng(2)
    base = peak_mib()
    index = open_index(path, model)
    first = index.search("w4000 w3000")
    costs: dict[str, Any] = {"mb": path.stat().st_size / 1e6, "open_s": index.open_s + first.search_ms / 1e3}
    for mode in ("words", "vectors", "both"):
        queries = [" ".join(f"w{word}" for word in chance.integers(0, 5000, 6)) for _ in range(ASKED)]
        times = [index.search(query, TOP, mode=mode).search_ms for query in queries]
        costs[mode] = spread(times, 1)
    frequent = [
        " ".join(f"w{word}" for word in chance.choice(20, 6, replace=False) + 1) + " " for _ in range(ASKED // 4)
    ]
    costs["frequent"] = spread([index.search(query, TOP).search_ms for query in frequent], 1)
    costs["rise_mib"], began = peak_mib() - base, time.perf_counter()
    index.check()
    return costs | {"check_s": time.perf_counter() - began}


def faiss_file(vectors_ND: np.ndarray, file: Path) -> None:
    import faiss

    flat = faiss.IndexScalarQuantizer(vectors_ND.shape[1], faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT)
    flat.train(np.asarray(vectors_ND[:50_000], np.float32))
    for start in range(0, len(vectors_ND), 10_000):
        flat.add(np.asarray(vectors_ND[start : start + 10_000], np.float32))
    faiss.write_index(flat, str(file))


def faiss_search(file: Path) -> Ask:
    import faiss

    faiss.omp_set_num_threads(1)
    loaded = faiss.read_index(str(file))
    return lambda query_D: loaded.search(query_D[None], TOP)


def usearch_file(vectors_ND: np.ndarray, file: Path) -> None:
    with file.open("wb") as handle:  # its exact search takes an array
        np.save(handle, vectors_ND)


def usearch_search(file: Path) -> Ask:
    from usearch.index import MetricKind, search

    vectors_ND = np.load(file)
    return lambda query_D: search(vectors_ND, rounded(query_D[None])[0], TOP, MetricKind.Cos, exact=True, threads=1)


def sqlite_vec_connection(file: Path) -> Any:
    import apsw
    import sqlite_vec

    db = apsw.Connection(str(file))  # not every Python's sqlite3 loads extensions
    db.enable_load_extension(True)
    db.load_extension(sqlite_vec.loadable_path())
    return db


def sqlite_vec_file(vectors_ND: np.ndarray, file: Path) -> None:
    db = sqlite_vec_connection(file)
    with db:
        db.execute(f"CREATE VIRTUAL TABLE v USING vec0(vector int8[{vectors_ND.shape[1]}] distance_metric=cosine)")
        db.executemany("INSERT INTO v (rowid, vector) VALUES (?, vec_int8(?))",
                       ((row + 1, codes.tobytes()) for row, codes in enumerate(vectors_ND)))  # fmt: skip
    db.close()


def sqlite_vec_search(file: Path) -> Ask:
    db = sqlite_vec_connection(file)
    statement = f"SELECT rowid FROM v WHERE vector MATCH vec_int8(?) AND k = {TOP}"
    return lambda query_D: list(db.execute(statement, (rounded(query_D[None]).tobytes(),)))


# Of each other library the packages it needs, what writes its file, and what opens it.
OTHERS: dict[str, tuple[str, Callable[[np.ndarray, Path], None], Callable[[Path], Ask]]] = {
    "faiss": ("faiss", faiss_file, faiss_search),
    "usearch": ("usearch", usearch_file, usearch_search),
    "sqlite-vec": ("sqlite_vec apsw", sqlite_vec_file, sqlite_vec_search),
}


def other(library: str, file: Path) -> dict[str, Any]:
    """The same of another library's exact search in 8-bit vectors."""
    queries_QD = np.random.default_rng(3).standard_normal((ASKED, RandomVectors().width), dtype=np.float32)
    base, began = peak_mib(), time.perf_counter()
    ask = OTHERS[library][2](file)
    ask(queries_QD[0])
    opened, times = time.perf_counter() - began, []
    for query_D in queries_QD:
        start = time.perf_counter()
        ask(query_D)
        times.append(1e3 * (time.perf_counter() - start))
    return {"mb": file.stat().st_size / 1e6, "open_s": opened, "vectors": spread(times, 1),
            "rise_mib": peak_mib() - base}  # fmt: skip


def child(step: str, library: str, entries: int, path: Path) -> dict[str, Any]:
    """Write the file of a library unless it is there, or measure it: each in a process of its own."""
    file = path if library == "msdc" else path.with_suffix(f".{library}")
    if step == "measure":
        return measure_msdc(file) if library == "msdc" else other(library, file)
    if not file.exists() and library == "msdc":
        build(entries, file)
    elif not file.exists():
        OTHERS[library][1](np.load(path.with_suffix(".npy"), mmap_mode="r"), file)
    return {}


def main() -> None:
    parser = options_for(__doc__, "search-costs")
    parser.add_argument("--work", type=Path, required=True, help="folder for the synthetic indexes; kept")
    parser.add_argument("--entries", nargs="+", type=int, default=[1_000, 100_000, 1_000_000], help="sizes of indexes")
    parser.add_argument("--libraries", nargs="+", choices=["msdc", *OTHERS], default=["msdc", *OTHERS])
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        step, library, entries = options.child
        print(json.dumps(child(step, library, int(entries), options.work / f"{entries}.sqlite")))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    stored_rows, rows = KeptRows(options.work / "costs.jsonl"), []
    installed = [
        library_name
        for library_name in options.libraries
        if all(importlib.util.find_spec(name) for name in OTHERS.get(library_name, ("",))[0].split())
    ]
    for entries in options.entries:
        for library in installed:
            if not stored_rows.has(entries=entries, library=library):
                for needed in dict.fromkeys(("msdc", library)):
                    run_json(__file__, "--work", options.work, "--child", "prepare", needed, entries, threads=1)
                measured = run_json(__file__, "--work", options.work, "--child", "measure", library, entries, threads=1)
                stored_rows.add({"library": library, "entries": entries, **measured})
            stored = next(row for row in stored_rows if (row["entries"], row["library"]) == (entries, library))
            modes = [stored.get(mode, "none") for mode in ("words", "vectors", "both", "frequent")]
            check = f"{stored['check_s']:.2f}" if "check_s" in stored else "none"
            rows.append([f"{entries:,}", library, f"{stored['mb']:,.1f}", f"{stored['open_s']:.2f}", check,
                         f"{stored['rise_mib']:,.0f}", *modes])  # fmt: skip
    head = ("entries", "library", "MB", "first answer s", "full check s", "memory rises by MiB",
            *(f"ms, {mode}" for mode in ("words", "vectors", "both", "both, frequent words")))  # fmt: skip
    body = f"""One thread, {ASKED} queries of six words, median [fastest, slowest], without encoding the query.
Frequent words: six of the twenty most frequent.
First answer: from opening the file, whose vectors are read and compared with their checksums. A full check follows a
change by another program.
The other libraries search the same 8-bit vectors exactly, and have no words.

{table(head, rows)}"""
    write_page(options.write, "What a search index costs", model_version("msdc-mini"), body,
               "numpy faiss-cpu usearch sqlite-vec apsw")  # fmt: skip


if __name__ == "__main__":
    main()
