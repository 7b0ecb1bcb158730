"""Search on questions and paragraphs by vectors, by words and by both, and what an index costs at three sizes.

    python benchmarks/search.py --data DATA --work WORK --write docs/results/search.md

DATA holds `retrieval/NAME/corpus.jsonl`, `queries.jsonl`, `qrels/`. Bytes and times are of indexes of synthetic entries
(15 words each, by Zipf's law) with random vectors, which cost what real ones do. They are kept in WORK/costs.jsonl: a
later call measures only what is missing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from results_page import KeptRows, model_version, options_for, run_json, spread, table, write_page

import msdc
from msdc.bench import evaluate_all
from msdc.machine import peak_mib
from msdc.search.index import open_index

WORDS, ASKED = 15, 40


class RandomVectors:
    """A model whose vectors cost nothing; its tokenizer is msdc-mini's."""

    def __init__(self) -> None:
        model = msdc.load_encoder("msdc-mini")
        self.name, self.width, self.max_length = "random vectors", model.width, model.max_length
        self.tokenizer, self.defaults, self._chance = model.tokenizer, model.defaults, np.random.default_rng(0)

    def fingerprint(self) -> str:
        return "0" * 64

    def encode(self, texts: Any) -> np.ndarray:
        return self._chance.standard_normal((len(texts), self.width), dtype=np.float32)


def costs(entries: int, path: Path) -> dict[str, Any]:
    """Bytes of an index of so many entries, seconds to open it, and milliseconds per search by mode."""
    model: Any = RandomVectors()
    base = peak_mib()
    chance = np.random.default_rng(1)
    vocabulary = [f"w{number}" for number in range(50_000)]
    share = 1 / np.arange(1, len(vocabulary) + 1)
    if not path.exists():
        with open_index(path, model) as index:
            for start in range(0, entries, 10_000):
                rows = chance.choice(len(vocabulary), (min(10_000, entries - start), WORDS), p=share / share.sum())
                index.add({"id": start + n, "text": " ".join(vocabulary[w] for w in row)} for n, row in enumerate(rows))
    index = open_index(path, model)
    first = index.search("w1")
    found: dict[str, Any] = {"entries": entries, "mb": path.stat().st_size / 1e6,
                             "open_s": index.open_s + first.search_ms / 1e3}  # fmt: skip
    for mode in ("words", "vectors", "both"):
        queries = [" ".join(f"w{word}" for word in chance.integers(0, 5000, 6)) for _ in range(ASKED)]
        times = [index.search(query, 10, mode=mode).search_ms for query in queries]
        found[mode] = spread(times, 1)
    return found | {"rise_mib": peak_mib() - base}


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
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(costs(options.child, options.work / f"{options.child}.sqlite")))
        return
    options.work.mkdir(parents=True, exist_ok=True)
    kept, rows = KeptRows(options.work / "costs.jsonl"), []
    for entries in options.entries:
        if not kept.has(entries=entries):
            kept.add(run_json(__file__, "--work", options.work, "--child", entries, threads=1))
        one = next(row for row in kept if row["entries"] == entries)
        modes = [one[mode] for mode in ("words", "vectors", "both")]
        rows.append([f"{entries:,}", f"{one['mb']:,.1f}", f"{one['open_s']:.2f}", f"{one['rise_mib']:,.0f}", *modes])
    head = ("entries", "MB", "open s", "memory rises by MiB", *(f"ms, {m}" for m in ("words", "vectors", "both")))
    body = f"""## What is found

Questions and paragraphs in one language. Words: SQLite's FTS5 (BM25), title and text. Vectors: cosine of the
paragraph's best passage. Both: bm25 + 20 x cosine, as in `msdc search`. The weight of 20 and msdc-mini's vocabulary and
table were chosen on squad-it and squad-es; XQuAD chose nothing. Neither is training text. In brackets: 95 % bootstrap
interval.

{quality(options)}

## What it costs

One thread, {ASKED} queries of six words, median [fastest, slowest], without encoding the query; opening reads and
checks every vector. Above 1 GiB of float32 vectors the int8 vectors are converted at every query.

{table(head, rows)}"""
    write_page(options.write, "Search by words and by meaning", "; ".join(map(model_version, options.models)), body,
               "numpy onnxruntime torch")  # fmt: skip


if __name__ == "__main__":
    main()
