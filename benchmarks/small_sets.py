"""Test sets of benchmarks/papers.py: what a finished student is scored on, once, and never chosen by."""

import functools
import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from msdc.bench.accuracy.parallel import Parallel
from msdc.bench.accuracy.retrieval import RETRIEVAL as RETRIEVAL_TASK
from msdc.bench.accuracy.similarity import STS
from msdc.bench.accuracy.task import Settings, Task
from msdc.bench.accuracy.vectors import VectorStore
from msdc.text.scored_pairs import read_pairs
from msdc.text.text_files import iterate_lines

ANY_SCORE = (-np.inf, np.inf)
QUERIES = 2000  # of the paper's sentence retrieval
# name: file below the data folder, and how many of its pairs at most (evenly spread)
GRADED: dict[str, tuple[str, int | None]] = {
    "STS2017 en-en": ("sts2017/STS2017.en-en.tsv", None),
    "STS2017 es-es": ("sts2017/STS2017.es-es.tsv", None),
    "STS2017 es-en": ("sts2017/STS2017.es-en.tsv", None),
    "STSb en-de": ("stsb-crosslingual/STSb.en-de.test.tsv", 690),
    "STSb en-es": ("stsb-crosslingual/STSb.en-es.test.tsv", 690),
    "STSb test": ("stsb/sts-test.tsv.gz", None),
}
RETRIEVAL = {"XSR en-de": ("opus-tatoeba-test/opus-tatoeba-test.en-de.tsv.gz", False),
             "XSR de-en": ("opus-tatoeba-test/opus-tatoeba-test.en-de.tsv.gz", True)}  # fmt: skip
# Text that the students of the retrieval table learn from, whole files: no query or candidate may be in it.
LEARNED = ("tatoeba/tatoeba.en-de.tsv.gz", "multi30k/multi30k.en-de.tsv.gz")


class TestSet(NamedTuple):
    """A task and what it scores; retrieval has no gold scores, since an answer is right or wrong by itself."""

    name: str
    note: str
    task: Task
    content: Any
    gold_N: np.ndarray | None = None

    def score(self, store: VectorStore) -> tuple[float, np.ndarray]:
        """Spearman or P@1 x 100, and the answers: cosine of each pair, or 1 where the translation is the nearest."""
        found = self.task.score(store, self.content, Settings(resamples=0, queries=QUERIES, threads=1))
        assert found.items is not None
        return float(found.scores[self.task.main]), found.items.values_N


def plain(text: str) -> str:
    """Letters and digits in lower case: two texts that differ in punctuation only are equal."""
    kept = (c if unicodedata.category(c)[0] in "LMN" else " " for c in unicodedata.normalize("NFKC", text).casefold())
    return " ".join("".join(kept).split())


def read_columns(path: Path) -> list[tuple[str, str]]:
    """The first two columns of a table."""
    rows = (line.split("\t") for _, line in iterate_lines(path))
    return [(row[0], row[1]) for row in rows if len(row) >= 2]


def unseen_pairs(rows: list[tuple[str, str]], learned: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs of which no side is in the learned text, each side once, so that every query has one answer."""
    seen_first = {plain(first) for first, _ in learned}
    seen_second = {plain(second) for _, second in learned}
    kept = []
    for first, second in rows:
        one, other = plain(first), plain(second)
        if one and other and one not in seen_first and other not in seen_second:
            seen_first.add(one)
            seen_second.add(other)
            kept.append((first, second))
    return kept


@functools.cache
def read_set(name: str, data: Path) -> TestSet:
    """A test set by name, from the data folder."""
    if name in RETRIEVAL:
        file, turned = RETRIEVAL[name]
        learned = [row for part in LEARNED for row in read_columns(data / part)]
        queries, answers = map(list, zip(*unseen_pairs(read_columns(data / file), learned), strict=True))
        if turned:
            queries, answers = answers, queries
        asked = queries[:QUERIES]
        pairs = Parallel(name, {"query": asked, "answer": answers[:QUERIES]}, list(range(1, len(asked) + 1)), [])
        note = f"P@1, {len(asked)} queries, {len(answers)} candidates"
        return TestSet(name, note, RETRIEVAL_TASK, (pairs, answers[QUERIES:]))
    file, limit = GRADED[name]
    pairs = read_pairs(data / file, name, ANY_SCORE, skip_bad=True)
    pairs = pairs if limit is None else pairs.spread(limit)
    return TestSet(name, f"Spearman x 100, {len(pairs)} pairs", STS, pairs, pairs.gold_N)
