"""Test sets of benchmarks/papers.py: what a finished student is scored on, once, and never chosen by.

Shapes: N items of a set, M candidates of a retrieval pool.
"""

from __future__ import annotations

import functools
import gzip
import unicodedata
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msdc.bench.accuracy.neighbours import gold_ranks
from msdc.encoders.encoder import Encoder
from msdc.scores import cosine_rows, spearman, unit_rows
from msdc.text.scored_pairs import ScoredPairs, read_pairs

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


@dataclass(frozen=True)
class GradedSet:
    """Pairs with gold scores: the answers are cosines, the score Spearman x 100."""

    name: str
    pairs: ScoredPairs

    def __len__(self) -> int:
        return len(self.pairs)

    @property
    def gold_N(self) -> np.ndarray | None:
        """Gold scores."""
        return self.pairs.gold_N

    @property
    def note(self) -> str:
        """What the set is."""
        return f"Spearman x 100, {len(self)} pairs"

    def answers(self, encoder: Encoder) -> np.ndarray:
        """Cosine per pair [N]."""
        texts = list(dict.fromkeys(self.pairs.texts()))
        place = {text: number for number, text in enumerate(texts)}
        vectors_UD = encoder.encode(texts)
        sides = ([place[text] for text in side] for side in (self.pairs.first, self.pairs.second))
        first, second = (vectors_UD[rows] for rows in sides)
        return cosine_rows(first, second)

    def score(self, answers_N: np.ndarray) -> float:
        """Spearman x 100; of a collapsed student zero."""
        return 0.0 if np.ptp(answers_N) == 0 else spearman(answers_N, self.pairs.gold_N)


@dataclass(frozen=True)
class RetrievalSet:
    """Queries, each with one translation among M candidates: the answer is 1 where it is the nearest."""

    name: str
    queries: list[str]
    candidates: list[str]

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def gold_N(self) -> np.ndarray | None:
        """None: the answers are right or wrong by themselves."""
        return None

    @property
    def note(self) -> str:
        """What the set is."""
        return f"P@1, {len(self)} queries, {len(self.candidates)} candidates"

    def answers(self, encoder: Encoder) -> np.ndarray:
        """1 / the number of candidates that share the first place with the right one, else 0 [N]."""
        queries_ND = unit_rows(encoder.encode(self.queries))
        candidates_MD = unit_rows(encoder.encode(self.candidates))
        above_N, level_N = gold_ranks(queries_ND, candidates_MD, np.arange(len(self)), threads=1)
        return np.where(above_N == 0, 1.0 / (1 + level_N), 0.0)

    def score(self, answers_N: np.ndarray) -> float:
        """P@1 x 100."""
        return 100.0 * float(answers_N.mean())


TestSet = GradedSet | RetrievalSet


def plain(text: str) -> str:
    """Letters and digits in lower case: two texts that differ in punctuation only are equal."""
    kept = (c if unicodedata.category(c)[0] in "LMN" else " " for c in unicodedata.normalize("NFKC", text).casefold())
    return " ".join("".join(kept).split())


def read_columns(path: Path) -> list[tuple[str, str]]:
    """The first two columns of a gzipped table."""
    with gzip.open(path, "rt", encoding="utf-8") as handle:
        rows = (line.rstrip("\r\n").split("\t") for line in handle)
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
def _retrieval_rows(data: Path, file: str) -> list[tuple[str, str]]:
    learned = [row for name in LEARNED for row in read_columns(data / name)]
    return unseen_pairs(read_columns(data / file), learned)


@functools.cache
def _read_set(name: str, data: Path) -> TestSet:
    if name in RETRIEVAL:
        file, turned = RETRIEVAL[name]
        rows = _retrieval_rows(data, file)
        rows = [(second, first) for first, second in rows] if turned else rows
        return RetrievalSet(name, [first for first, _ in rows[:QUERIES]], [second for _, second in rows])
    file, limit = GRADED[name]
    pairs = read_pairs(data / file, name, ANY_SCORE, skip_bad=True)
    return GradedSet(name, pairs if limit is None else pairs.spread(limit))


def read_sets(names: tuple[str, ...], data: Path) -> list[TestSet]:
    """The test sets by name, from the data folder."""
    return [_read_set(name, data) for name in names]
