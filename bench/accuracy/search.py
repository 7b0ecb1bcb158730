"""Evaluation of search: questions against the paragraphs that answer them, by words, by vectors and by both.

Ranked by the statements of `msdc search` (msdc.search.ranking): words are SQLite's FTS5, which every phone has; a
paragraph's vector score is the cosine of its best passage.

Shapes: Q questions, M documents, N passages, D width.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from msdc.bench.accuracy.statistics import Items, interval
from msdc.bench.accuracy.task import AccuracyTask, Outcome, Settings, TaskData
from msdc.bench.accuracy.vectors import CachedEncoder, TruncatedVectors
from msdc.encoders.encoder import SentenceEncoder
from msdc.errors import InputError
from msdc.files import without_system_files
from msdc.scores import unit_rows
from msdc.search.ranking import (
    Connection,
    Mode,
    WordMatch,
    add_document,
    match_words,
    rank,
    read_plan,
    run_all,
    sql,
)
from msdc.search.words import parse_query
from msdc.text.passages import passage_texts
from msdc.text.tabular import is_number
from msdc.text.text_files import Lines, read_lines

TOP = 10
WORDS_PER_PASSAGE = 64  # where a model has no tokenizer of ours
QRELS = ("test.tsv", "dev.tsv")


class Collection(NamedTuple):
    """Documents by id (title, text), questions by id, and for each question the grades of its documents."""

    documents: dict[str, tuple[str, str]]
    queries: dict[str, str]
    grades: dict[str, dict[str, float]]


def _data(name: str, collection: Collection, sources: list[Lines]) -> TaskData:
    answered = {key: text for key, text in collection.queries.items() if collection.grades.get(key)}
    if not answered or not collection.documents:
        raise InputError(f"{name}: no question has a document that answers it")
    missing = [
        key for key in answered for document_key in collection.grades[key] if document_key not in collection.documents
    ]
    if missing:
        raise InputError(f"{name}: question {missing[0]!r} is answered by a document that is not in the corpus")
    others = [text for _, text in collection.documents.values()]
    answerable = collection._replace(queries=answered)
    return TaskData(name, answerable, list(answered.values()), others, [source.source for source in sources])


def read_collection(path: str | Path) -> TaskData:
    """A folder as BEIR has them (`corpus.jsonl`, `queries.jsonl`, `qrels/test.tsv`; plain or gzip), or SQuAD's JSON."""
    path = Path(path)
    if not path.is_dir():
        return _read_squad(path)

    def find(name: str) -> Lines:
        there = [file for file in (path / name, path / f"{name}.gz") if file.is_file()]
        if not there:
            raise InputError(
                f"{path}: no {name}; a folder of a retrieval set has corpus.jsonl, queries.jsonl and qrels/"
            )
        return read_lines(there[0])

    def rows(lines: Lines) -> list[dict[str, Any]]:
        records = []
        for number, line in enumerate(lines.lines, 1):
            try:
                row = json.loads(line)
                records.append({"_id": str(row["_id"]), "title": str(row.get("title") or ""), "text": str(row["text"])})
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise lines.error(number, "expected a JSON object with _id and text") from error
        return records

    corpus, asked = find("corpus.jsonl"), find("queries.jsonl")
    listed = [file for name in QRELS if (file := path / "qrels" / name).is_file()]
    listed += without_system_files((path / "qrels").glob("*.tsv"))
    if not listed:
        raise InputError(f"{path}: no qrels/*.tsv")
    judged = read_lines(listed[0])
    grades: dict[str, dict[str, float]] = {}
    for number, line in enumerate(judged.lines, 1):
        if number == 1 and not is_number(line.rpartition("\t")[2]):
            continue  # the header that BEIR writes
        try:
            query, document, grade = line.split("\t")
            if float(grade) > 0:
                grades.setdefault(query, {})[document] = float(grade)
        except ValueError as error:
            raise judged.error(number, "expected query-id, corpus-id and score, separated by tabs") from error
    documents = {row["_id"]: (row["title"], row["text"]) for row in rows(corpus)}
    queries = {row["_id"]: row["text"] for row in rows(asked)}
    return _data(path.name, Collection(documents, queries, grades), [corpus, asked, judged])


def _read_squad(path: Path) -> TaskData:
    lines = read_lines(path)
    documents: dict[str, tuple[str, str]] = {}
    queries: dict[str, str] = {}
    grades: dict[str, dict[str, float]] = {}
    try:
        for article in json.loads("\n".join(lines.lines))["data"]:
            for paragraph in article["paragraphs"]:
                key = str(len(documents))
                documents[key] = str(article.get("title", "")).replace("_", " "), str(paragraph["context"])
                for question in paragraph["qas"]:
                    if not question.get("is_impossible"):
                        queries[str(question["id"])] = str(question["question"])
                        grades[str(question["id"])] = {key: 1.0}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: neither a folder of a retrieval set nor SQuAD's JSON") from error
    return _data(path.name.split(".")[0], Collection(documents, queries, grades), [lines])


class MatchedWords:
    """Documents (title, text) and queries whose words are matched once, to be ranked with several models' vectors."""

    def __init__(self, documents: Sequence[tuple[str, str]], queries: Sequence[str]) -> None:
        self._database = sqlite3.connect(":memory:", factory=Connection)
        run_all(self._database, "schema")
        for number, (title, text) in enumerate(documents, 1):
            add_document(self._database, str(number), text, title, "{}", crc=0)
        plans = [read_plan(self._database, parse_query(query)) for query in queries]
        self._matches: dict[Mode, list[dict[int, WordMatch]]] = {"words": [], "both": []}
        for plan in plans:
            matches, used = match_words(self._database, plan, None, len(documents), len(documents))
            self._matches["words"].append(matches)
            # The two differ where similar words were looked for, which a query with a vector does less often.
            if used is not plan:
                matches, _ = match_words(self._database, plan, None, len(documents), len(documents), has_vector=True)
            self._matches["both"].append(matches)

    def close(self) -> None:
        """Free the memory of the words."""
        self._database.close()

    def scores(self, mode: Mode, cosine_QM: np.ndarray, cosines: tuple[float, float] | None = None) -> np.ndarray:
        """The score of every document for every query by which a search ranks, [Q, M].

        A document without a word of the query has 0 by words. `cosines` are the mean and deviation of the model's
        cosines (`SentenceEncoder.cosines`), None for those of msdc-mini.
        """
        score_QM = np.zeros(cosine_QM.shape)
        with self._database as database:
            database.execute("DELETE FROM facts WHERE name = 'cosines'")
            fact = None if cosines is None else json.dumps(cosines)
            database.execute(sql("add_facts"), (None, None, None, fact))
            for number, matches in enumerate(self._matches[mode]):
                by_document = {} if mode == "words" else dict(enumerate(cosine_QM[number].tolist(), 1))
                for row, score, *_ in rank(database, by_document, matches, mode):
                    score_QM[number, row - 1] = score
        return score_QM


def relevance_scores(
    documents: Sequence[tuple[str, str]],
    queries: Sequence[str],
    cosine_QM: np.ndarray,
    cosines: tuple[float, float] | None = None,
) -> dict[Mode, np.ndarray]:
    """`MatchedWords.scores` in the modes of words and of both."""
    modes: tuple[Mode, ...] = ("words", "both")
    with closing(MatchedWords(documents, queries)) as matched:
        return {mode: matched.scores(mode, cosine_QM, cosines) for mode in modes}


def vector_scores(
    store: CachedEncoder,
    documents: Sequence[tuple[str, str]],
    queries: Sequence[str],
    index: CachedEncoder | None = None,
) -> tuple[np.ndarray, int]:
    """Cosine of every document's best passage for every question, [Q, M], and the number of passages N.

    The passages are those of `index` and have its vectors; None: those of `store`.
    """
    index = store if index is None else index  # an empty store is false
    if isinstance(store.model, TruncatedVectors) and index.width > store.width:
        index = CachedEncoder(TruncatedVectors(index, store.width))
    count: Callable[[Sequence[str]], list[int]] = lambda texts: [len(text.split()) for text in texts]  # noqa: E731
    most = WORDS_PER_PASSAGE
    if isinstance(index.model, SentenceEncoder):
        count, most = index.model.token_counter()
    parts_by_document = passage_texts(documents, count, most)
    parts = [(number, text) for number, document_parts in enumerate(parts_by_document) for _, _, text in document_parts]
    passages_ND = unit_rows(index.encode([text for _, text in parts]))
    owner_N = np.array([d for d, _ in parts])
    queries_QD = unit_rows(store.encode(list(queries)))
    if passages_ND.shape[1] != queries_QD.shape[1]:
        raise InputError(
            f"`documents`: {index.name} has {passages_ND.shape[1]} dimensions, {store.name} {queries_QD.shape[1]}; a "
            "student of `head: teacher` has those of its teacher"
        )
    filled, starts = np.unique(owner_N, return_index=True)
    score_QM = np.full((len(queries), len(documents)), -1.0, np.float32)
    for start in range(0, len(queries), 256):
        cosine_QN = queries_QD[start : start + 256] @ passages_ND.T
        score_QM[start : start + 256, filled] = np.maximum.reduceat(cosine_QN, starts, axis=1)
    return score_QM, len(parts)


def ranking(score_QM: np.ndarray, grades: Sequence[dict[int, float]]) -> dict[str, np.ndarray]:
    """Of each question, [Q]: accuracy at 1 and 5, reciprocal rank and nDCG at 10.

    Of documents with equal scores the relevant ones come last: a constant score earns nothing.
    """
    sums = {name: np.zeros(len(grades)) for name in ("acc1", "acc5", "mrr", "ndcg")}
    discount = 1 / np.log2(np.arange(2, TOP + 2))
    for number, (score_M, graded) in enumerate(zip(score_QM, grades, strict=True)):
        relevant = np.array(list(graded))
        grade = np.array([graded[row] for row in relevant.tolist()])
        others = np.delete(score_M, relevant)
        order = np.argsort(-score_M[relevant], kind="stable")
        ranks = np.array([(others >= score_M[relevant[position]]).sum() for position in order]) + np.arange(
            1, len(order) + 1
        )
        sums["acc1"][number], sums["acc5"][number] = ranks[0] <= 1, ranks[0] <= 5
        sums["mrr"][number] = 1 / ranks[0] if ranks[0] <= TOP else 0.0
        gains = (grade[order] * np.append(discount, 0.0)[np.minimum(ranks, TOP + 1) - 1]).sum()
        ideal = float((np.sort(grade)[::-1][:TOP] * discount[: len(grade)]).sum())
        sums["ndcg"][number] = gains / ideal
    return sums


def score_retrieval(store: CachedEncoder, data: Collection, settings: Settings) -> Outcome:
    """MRR@10 (the headline), accuracy at 1 and 5, nDCG@10, all x 100: of vectors, and also of words and of both.

    Of more than `settings.queries` questions an even spread is asked.
    """
    step = max(1, -(-len(data.queries) // settings.queries))
    keys = list(data.queries)[::step]
    documents, row_of_key = list(data.documents.values()), {key: row for row, key in enumerate(data.documents)}
    grades = [
        {row_of_key[key_of_document]: grade for key_of_document, grade in data.grades[key].items()} for key in keys
    ]
    queries = [data.queries[key] for key in keys]
    vectors_QM, count = vector_scores(store, documents, queries, settings.index)
    relevance = relevance_scores(documents, queries, vectors_QM, store.cosines())

    def summary(score_QM: np.ndarray) -> tuple[dict[str, Any], Items]:
        measures = ranking(score_QM, grades)
        items = Items(measures["mrr"])
        means = {name: 100.0 * float(values.mean()) for name, values in measures.items()}
        return {**means, "interval": interval(items, settings.resamples, settings.seed)}, items

    scores, items = summary(vectors_QM)
    scores |= {mode: summary(score_QM)[0] for mode, score_QM in relevance.items()}
    return Outcome(scores | {"pairs": len(queries), "documents": len(documents), "passages": count}, items)


SEARCH = AccuracyTask(
    "retrieval", "Questions to paragraphs: MRR@10 of vectors, of words (BM25) and of both", "mrr",
    read_collection, score_retrieval,
)  # fmt: skip
