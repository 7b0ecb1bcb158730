"""Search by vectors, by words and by both: paragraphs across languages, small collections, codes.

    python benchmarks/search.py --data DATA --write docs/results/search.md

Small collections are those of benchmarks/collections: notes, help pages, products and messages of 26 to 40 entries,
written for this project, with everyday questions that share few words with their answers. DATA holds
`retrieval/NAME/corpus.jsonl`, `queries.jsonl`, `qrels/`. The sets `xquad-LANGUAGE` have the same ids: the
questions in one language are asked of the paragraphs in another. `--sections` measures a part and prints it. Questions
to paragraphs of one language: benchmarks/models.py. What an index costs: benchmarks/search_costs.py.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import numpy as np
from results_page import model_version, options_for, table, write_page

import msdc
from msdc.bench.accuracy.search import (
    Collection,
    MatchedWords,
    ranking,
    read_collection,
    relevance_scores,
    vector_scores,
)
from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.vectors import CachedEncoder
from msdc.commands.models import shipped_models
from msdc.encoders.joined import JOIN
from msdc.loading import open_model
from msdc.search.ranking import Mode
from msdc.search.words import index_words

COLLECTIONS = Path(__file__).parent / "collections"
JOINED = f"msdc-mini{JOIN}msdc-search"  # for notes and paragraphs in one index
MODES: tuple[Mode, ...] = ("vectors", "words", "both")
LANGUAGES = ("en", "de", "es", "tr", "ar")
POOLS = ("the nine that chose the ranking", "the three that chose nothing")
UNUSED = ("help-pt", "mixed-travel", "notes-fr")


def across(options: argparse.Namespace) -> str:
    """MRR@10 of XQuAD's questions in each language among its paragraphs in each language."""
    collections: dict[str, Collection] = {
        language: read_collection(options.data / "retrieval" / f"xquad-{language}").content for language in LANGUAGES
    }
    first = collections[LANGUAGES[0]]
    stores = {name: CachedEncoder(open_model(name)) for name in options.models}
    cells: dict[tuple[str, str, str], list[str]] = {}
    widest = 0.0
    for asking, asked in collections.items():
        for answering in collections.values():
            if asked.grades != first.grades or list(answering.documents) != list(first.documents):
                raise SystemExit(f"xquad-{asking} and xquad-{LANGUAGES[0]} differ in their ids")
            row_of_document = {key: row for row, key in enumerate(answering.documents)}
            grades = [
                {row_of_document[document]: grade for document, grade in asked.grades[key].items()}
                for key in asked.queries
            ]
            documents, queries = list(answering.documents.values()), list(asked.queries.values())
            words = MatchedWords(documents, queries)
            scores: dict[tuple[str, Mode], np.ndarray] = {}
            for name, store in stores.items():
                cosine_QM, _ = vector_scores(store, documents, queries)
                scores[name, "vectors"] = cosine_QM
                scores[name, "both"] = words.scores("both", cosine_QM, store.cosines())
                scores["any", "words"] = words.scores("words", cosine_QM)
            for (name, mode), score_QM in scores.items():
                items = Items(ranking(score_QM, grades)["mrr"])
                low, high = interval(items) or (0.0, 0.0)
                widest = max(widest, (high - low) / 2)
                cells.setdefault((name, mode, asking), []).append(f"{100 * items.values_N.mean():.1f}")
    rows = [
        [*key, *cells[key]] for mode in MODES for name in ("any", *stores) for key in cells if key[:2] == (name, mode)
    ]
    return f"""## Across languages

MRR@10 on XQuAD: rows are the language of the question, columns that of the paragraphs. The paragraphs' titles are
English. No 95 % bootstrap interval is wider than ± {widest:.1f}. XQuAD shares its articles with squad-it and squad-es,
which chose the ranking's constants.

{table(("model", "ranked by", "question", *LANGUAGES), rows)}"""


def _scores(store: CachedEncoder, documents: list[tuple[str, str]], queries: list[str]) -> dict[Mode, np.ndarray]:
    """The scores by mode of every document for every query, [Q, M]."""
    vectors_QM, _ = vector_scores(store, documents, queries)
    return {"vectors": vectors_QM, **relevance_scores(documents, queries, vectors_QM, store.cosines())}


def _ranks(scores: dict[Mode, np.ndarray], answers: list[int]) -> dict[Mode, dict[str, np.ndarray]]:
    """The measures of `ranking` by mode."""
    return {mode: ranking(score_QM, [{answer: 1.0} for answer in answers]) for mode, score_QM in scores.items()}


def _cells(ranks: dict[Mode, dict[str, np.ndarray]]) -> list[str]:
    """First hits and MRR@10 by mode."""
    return [f"{ranks[mode]['acc1'].sum():.0f} ({100 * ranks[mode]['mrr'].mean():.1f})" for mode in MODES]


def small(options: argparse.Namespace) -> str:
    """First hits of everyday questions in small collections, those that chose the ranking and the others apart."""
    pools = []
    for model in options.models:
        store = CachedEncoder(open_model(model))
        ranks_by_pool: dict[str, list[dict[Mode, dict[str, np.ndarray]]]] = {title: [] for title in POOLS}
        for file in sorted(COLLECTIONS.glob("*.json")):
            collection = json.loads(file.read_text(encoding="utf-8"))
            documents, queries = (
                [tuple(row) for row in collection["docs"]],
                [query for query, _ in collection["queries"]],
            )
            ranks = _ranks(_scores(store, documents, queries), [answer - 1 for _, answer in collection["queries"]])
            ranks_by_pool[POOLS[file.stem in UNUSED]].append(ranks)
        for title, parts in ranks_by_pool.items():
            joined = {
                mode: {name: np.concatenate([part[mode][name] for part in parts]) for name in ("acc1", "mrr")}
                for mode in MODES
            }
            pools.append([title, model, str(len(joined["both"]["mrr"])), *_cells(joined)])
    return f"""## Small collections

Questions whose answer is the first hit, MRR@10 in brackets. Nine collections were used to choose the ranking; help-pt,
mixed-travel and notes-fr were not.

{table(("collections", "model", "questions", *MODES), pools)}"""


def exact_sets() -> dict[str, tuple[list[tuple[str, str]], list[tuple[str, int]]]]:
    """Documents, and queries with the row of their answer: versions, dates, codes, titles, beginnings of words."""
    versions = [f"{major}.{minor}.{patch}" for major in (1, 2, 3) for minor in range(5) for patch in range(4)]
    days = [(date(2031, 1, 1) + timedelta(days=number)).isoformat() for number in range(365)]
    codes = [f"{'KQXZ'[number % 4]}{'RTLM'[number // 4 % 4]}-{1000 + 37 * number % 9000}" for number in range(200)]
    entries = [entry for file in sorted(COLLECTIONS.glob("*.json"))
               for entry in json.loads(file.read_text(encoding="utf-8"))["docs"]]  # fmt: skip
    texts = list(dict.fromkeys(text for _, text in entries))
    titles = [*dict.fromkeys(" ".join(text.split()[:3]) for text in texts)][:60]
    others = [
        (f"Minutes {number}", f"{title}? {title}! We spoke about it: {title}.") for number, title in enumerate(titles)
    ]
    # Beginnings of four letters of words that only one entry has.
    words: dict[str, set[int]] = {}
    for row, text in enumerate(texts):
        for word in index_words(text).split():
            words.setdefault(word[:4], set()).add(row)
    beginnings = [(start, row) for start, rows in sorted(words.items()) if len(start) == 4 and len(rows) == 1
                  for row in rows if start.isalpha()]  # fmt: skip
    return {
        "versions": ([("", f"Release {release} fixes some bugs.") for release in versions], [*zip(versions, range(60),
        strict=True)]),
        "dates": ([("", f"Diary of {day}: nothing special happened.") for day in days], [*zip(days, range(365),
        strict=True)]),
        "codes": ([("", f"Part {code} is in stock.") for code in codes], [*zip(codes, range(200), strict=True)]),
        "titles": (
            [(title, "See the page of the project.") for title in titles] + others, [*zip(titles, range(60),
            strict=True)]
        ),
        "beginnings": ([("", text) for text in texts], beginnings[::5]),
    }  # fmt: skip


def exact(options: argparse.Namespace) -> str:
    """First hits of codes, dates, titles and first letters of words."""
    rows = []
    for model in options.models:
        store = CachedEncoder(open_model(model))
        for name, (documents, asked) in exact_sets().items():
            ranks = _ranks(_scores(store, documents, [query for query, _ in asked]), [answer for _, answer in asked])
            rows.append([name, model, str(len(documents)), str(len(asked)), *_cells(ranks)])
    return f"""## Codes, dates, titles, beginnings of words

One version, ISO date, part code or title of an entry is typed, or the first four letters of a word that only one entry
has (of the small collections together). First hits, MRR@10 in brackets.

{table(("typed", "model", "entries", "queries", *MODES), rows)}"""


def relevant(options: argparse.Namespace) -> str:
    """Right first hits that the default threshold keeps, and questions without an answer that get no hit."""
    files = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(COLLECTIONS.glob("*.json"))]
    rows, folder = [], tempfile.TemporaryDirectory()
    for model in options.models:
        encoder = open_model(model)
        above, right_hits, silent, questions = 0, 0, 0, 0
        for file in files:
            index = msdc.open_index(Path(folder.name) / f"{model}-{file['name']}.sqlite", encoder)
            index.add(
                {"id": number, "title": title, "text": text} for number, (title, text) in enumerate(file["docs"], 1)
            )
            least = index.relevant_cosine
            for other in files:
                for query, answer in other["queries"]:
                    hits = index.search(query, 1, least).hits
                    if other is file:
                        is_right = [hit.id for hit in index.search(query, 1).hits] == [str(answer)]
                        right_hits, above = right_hits + is_right, above + bool(is_right and hits)
                    elif other["name"].split("-")[0] != file["name"].split("-")[0]:  # of another subject
                        silent, questions = silent + (not hits), questions + 1
        rows.append(
            [
                model,
                f"{least:.3f}",
                f"{100 * above / right_hits:.0f} % of {right_hits}",
                f"{100 * silent / questions:.0f} % of {questions}",
            ]
        )
    return f"""## Nothing relevant

The threshold of `relevant_cosine`, which was chosen by the nine collections, in all {len(files)}: of the right first
hits those that stay, and of questions to a collection of another subject those that get no hit.

{table(("model", "cosine", "right first hits kept", "no hit where there is no answer"), rows)}"""


SECTIONS: dict[str, Callable[[argparse.Namespace], str]] = {
    "across": across, "small": small, "exact": exact, "relevant": relevant,
}  # fmt: skip


def main() -> None:
    parser = options_for(__doc__, "search")
    parser.add_argument("--data", type=Path, help="folder with retrieval/")
    parser.add_argument("--models", nargs="+", default=[*(model.name for model in shipped_models()), JOINED])
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=[*SECTIONS])
    options = parser.parse_args()
    parts = dict.fromkeys(part for name in options.models for part in name.split(JOIN))
    body = """As `msdc search` ranks, by the same statements. Words: SQLite's FTS5 (BM25) x coverage of the query,
+ 4 where every word matches. Vectors: cosine of the best passage. Both: the sum, with 1.84
for each standard deviation of the model's cosines above their mean.

""" + "\n\n".join(SECTIONS[name](options) for name in options.sections)
    write_page(options.write, "Search by words and by meaning", "; ".join(map(model_version, parts)), body,
               "numpy onnxruntime torch")  # fmt: skip


if __name__ == "__main__":
    main()
