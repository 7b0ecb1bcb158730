"""Search on questions and paragraphs by vectors, by words and by both, in one language and across languages.

    python benchmarks/search.py --data DATA --write docs/results/search.md

DATA holds `retrieval/NAME/corpus.jsonl`, `queries.jsonl`, `qrels/`. The sets `xquad-LANGUAGE` have the same ids: the
questions in one language are asked of the paragraphs in another. `--sections` measures a part and prints it. What an
index costs: benchmarks/search_costs.py.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from results_page import model_version, options_for, table, write_page

import msdc
from msdc.bench import evaluate_all
from msdc.bench.accuracy.search import Collection, ranking, read_collection, vector_scores, word_scores
from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.vectors import VectorStore
from msdc.search.passages import WEIGHT

LANGUAGES = ("en", "de", "es", "tr", "ar")


def sets(options: argparse.Namespace) -> str:
    """The scores of every set and model."""
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
    return f"""## In one language

The weight of 20 and msdc-mini's vocabulary and table were chosen on squad-it and squad-es; XQuAD chose nothing. Neither
is training text. In brackets: 95 % bootstrap interval.

{table(("set", "model", "ranked by", "acc@1", "acc@5", "MRR@10", "nDCG@10"), rows)}"""


def across(options: argparse.Namespace) -> str:
    """MRR@10 of XQuAD's questions in each language among its paragraphs in each language."""
    found: dict[str, Collection] = {
        language: read_collection(options.data / "retrieval" / f"xquad-{language}").content for language in LANGUAGES
    }
    first = found[LANGUAGES[0]]
    cells: dict[tuple[str, str, str], list[str]] = {}
    widest = 0.0
    for model in options.models:
        store = VectorStore(msdc.load_encoder(model))
        for asking, asked in found.items():
            for answering in found.values():
                if asked.grades != first.grades or list(answering.documents) != list(first.documents):
                    raise SystemExit(f"xquad-{asking} and xquad-{LANGUAGES[0]} differ in their ids")
                place = {key: row for row, key in enumerate(answering.documents)}
                grades = [{place[one]: grade for one, grade in asked.grades[key].items()} for key in asked.queries]
                documents, queries = list(answering.documents.values()), list(asked.queries.values())
                vectors_QM, _ = vector_scores(store, documents, queries)
                words_QM = word_scores(documents, queries)
                scores = {"vectors": vectors_QM, "words": words_QM, "both": words_QM + WEIGHT * vectors_QM}
                for mode, score_QM in scores.items():
                    items = Items(ranking(score_QM, grades)["mrr"])
                    low, high = interval(items) or (0.0, 0.0)
                    widest = max(widest, (high - low) / 2)
                    cells.setdefault((model, mode, asking), []).append(f"{100 * items.values_N.mean():.1f}")
    rows = [[*key, *cells[key]] for mode in ("vectors", "words", "both") for key in cells if key[1] == mode]
    return f"""## Across languages

MRR@10 on XQuAD: rows are the language of the question, columns that of the paragraphs. The paragraphs' titles are
English. No 95 % bootstrap interval is wider than ± {widest:.1f}.

{table(("model", "ranked by", "question", *LANGUAGES), rows)}"""


SECTIONS: dict[str, Callable[[argparse.Namespace], str]] = {"sets": sets, "across": across}


def main() -> None:
    parser = options_for(__doc__, "search")
    parser.add_argument("--data", type=Path, help="folder with retrieval/")
    parser.add_argument("--models", nargs="+", default=["msdc-mini"])
    parser.add_argument("--set", nargs="+", default=["retrieval"], help="such as retrieval/squad-it (default: all)")
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=[*SECTIONS])
    options = parser.parse_args()
    body = """Words: SQLite's FTS5 (BM25), title and text. Vectors: cosine of the paragraph's best passage.
Both: bm25 + 20 x cosine, as in `msdc search`.

""" + "\n\n".join(SECTIONS[name](options) for name in options.sections)
    write_page(options.write, "Search by words and by meaning", "; ".join(map(model_version, options.models)), body,
               "numpy onnxruntime torch")  # fmt: skip


if __name__ == "__main__":
    main()
