"""The development sets that benchmarks of vocabularies and of teaching read; nothing is reported on them as a test."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from msdc.bench.accuracy.search import Collection, ranking, read_collection
from msdc.bench.accuracy.sets import flores_code
from msdc.scores import cosine_rows, nearest_accuracy, spearman, unit_rows
from msdc.text.scored_pairs import read_pairs
from msdc.text.text_files import iterate_lines

LANGUAGES = ("en", "de", "es", "fr", "it", "nl", "tr")  # of STSb dev
FLORES = (*LANGUAGES, "ar")
NEWS = ("de", "es", "fr", "it", "tr")  # of the WMT test sets; msdc-mini is taught on FLORES dev
SENTENCES = 400  # of each
SEARCH = ("squad-it", "squad-es")
PARAGRAPHS = 300  # of each


def genres(data: Path) -> list[str]:
    """The kind of text of each row of STSb dev: `main-captions`, `main-forums` or `main-news`."""
    return [line.split("\t")[0] for _, line in iterate_lines(data / "stsb/sts-dev.tsv.gz")]


def flores(data: Path, languages: Iterable[str], split: str = "dev", count: int = SENTENCES) -> dict[str, list[str]]:
    """The first sentences of FLORES by language; line by line translations of each other."""
    files = {code: data / f"flores200/{split}/{flores_code(code)}.{split}.gz" for code in languages}
    return {code: [line.strip() for _, line in iterate_lines(file)][:count] for code, file in files.items()}


def news(data: Path, language: str, count: int = SENTENCES) -> tuple[list[str], list[str]]:
    """Sentences of the WMT test sets, spread over all years: English, and their translations."""
    lines = [line for _, line in iterate_lines(data / f"newstest/newstest.en-{language}.tsv.gz")]
    english, other = zip(*(line.split("\t") for line in lines[:: len(lines) // count][:count]), strict=True)
    return list(english), list(other)


def sentences(text: str) -> list[str]:
    return [part for part in re.split(r"(?<=[.!?])\s+", text) if part]


class Questions:
    """Questions to paragraphs in their own language, a paragraph ranked by its best sentence."""

    def __init__(self, data: Path, name: str, paragraphs: int = PARAGRAPHS) -> None:
        found: Collection = read_collection(data / "retrieval" / name).content
        kept = sorted(found.documents)[:: max(1, len(found.documents) // paragraphs)]
        place = {key: number for number, key in enumerate(kept)}
        asked = [(query, [place[key] for key in grades if key in place]) for query, grades in found.grades.items()]
        self.questions = [found.queries[query] for query, at in asked if at]
        self.grades = [dict.fromkeys(at, 1.0) for _, at in asked if at]
        parts = [sentences(found.documents[key][1]) for key in kept]
        self.sentences = [sentence for one in parts for sentence in one]
        self.starts = np.cumsum([0, *map(len, parts[:-1])])

    def score(self, encode: Callable[[Sequence[str]], np.ndarray]) -> float:
        """MRR@10 x 100."""
        cosine_QN = unit_rows(encode(self.questions)) @ unit_rows(encode(self.sentences)).T
        score_QM = np.maximum.reduceat(cosine_QN, self.starts, axis=1)
        return 100.0 * float(ranking(score_QM, self.grades)["mrr"].mean())


class DevelopmentSets:
    """STSb dev by language and sentences of news (WMT) with their English, read once."""

    def __init__(self, data: Path, languages: Iterable[str] = NEWS, rows: int | None = None) -> None:
        files = {code: data / f"stsb-multi-mt/stsb-{code}-dev.csv.gz" for code in LANGUAGES}
        files |= {"en": data / "stsb/sts-dev.tsv.gz", "tr": data / "stsb-tr/stsb_tr_dev.tsv.gz"}
        pairs = {code: read_pairs(file) for code, file in files.items()}
        self.graded = {code: (one.first[:rows], one.second[:rows]) for code, one in pairs.items()}
        self.gold = {code: one.gold_N[:rows] for code, one in pairs.items()}
        self.news = {code: news(data, code) for code in languages}

    def scores(
        self, encode: Callable[[Sequence[str]], np.ndarray], rows_N: np.ndarray | None = None
    ) -> dict[str, float]:
        """Spearman x 100 within languages, across them (English and another, both directions) and in English.

        Accuracy x 100 on news comes with them, unless `rows_N` picks rows of STSb.
        """
        sides = {code: [encode(side) for side in pair] for code, pair in self.graded.items()}
        rows = slice(None) if rows_N is None else rows_N

        def rank(one: str, two: str) -> float:
            return spearman(cosine_rows(sides[one][0][rows], sides[two][1][rows]), self.gold[one][rows])

        across = [(rank("en", code), rank(code, "en")) for code in LANGUAGES if code != "en"]
        found = {"within": np.mean([rank(code, code) for code in LANGUAGES]), "across": np.mean(across)}
        found["English"] = rank("en", "en")
        if rows_N is None:
            found["news"] = np.mean([nearest_accuracy(*map(encode, sides)) for sides in self.news.values()])
        return {name: float(value) for name, value in found.items()}
