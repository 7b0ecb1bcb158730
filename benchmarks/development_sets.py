"""The development sets that benchmarks of vocabularies and of teaching read; nothing is reported on them as a test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from msdc.scores import cosine_rows, nearest_accuracy, spearman
from msdc.text.scored_pairs import ScoredPairs, read_pairs
from msdc.text.text_files import iterate_lines

LANGUAGES = ("en", "de", "es", "fr", "it", "nl", "tr")  # of STSb dev
FLORES = {
    "en": "eng_Latn", "de": "deu_Latn", "es": "spa_Latn", "fr": "fra_Latn", "it": "ita_Latn", "nl": "nld_Latn",
    "tr": "tur_Latn", "ar": "arb_Arab",
}  # fmt: skip
SENTENCES = 400  # of FLORES dev


def graded_pairs(data: Path) -> dict[str, ScoredPairs]:
    """STSb dev by language; the same rows in the same order."""
    files = {code: data / f"stsb-multi-mt/stsb-{code}-dev.csv.gz" for code in LANGUAGES}
    files |= {"en": data / "stsb/sts-dev.tsv.gz", "tr": data / "stsb-tr/stsb_tr_dev.tsv.gz"}
    return {code: read_pairs(file) for code, file in files.items()}


def genres(data: Path) -> list[str]:
    """The kind of text of each row of STSb dev: `main-captions`, `main-forums` or `main-news`."""
    return [line.split("\t")[0] for _, line in iterate_lines(data / "stsb/sts-dev.tsv.gz")]


def flores(data: Path, languages: Iterable[str]) -> dict[str, list[str]]:
    """The first sentences of FLORES dev by language; line by line translations of each other."""
    files = {code: data / f"flores200/dev/{FLORES[code]}.dev.gz" for code in languages}
    return {code: [line for _, line in iterate_lines(file)][:SENTENCES] for code, file in files.items()}


class DevelopmentSets:
    """STSb dev by language and FLORES dev, read once; `languages` of FLORES are compared with English."""

    def __init__(self, data: Path, languages: Iterable[str] = tuple(FLORES), rows: int | None = None) -> None:
        self.graded = {code: (pairs.first[:rows], pairs.second[:rows]) for code, pairs in graded_pairs(data).items()}
        self.gold = {code: pairs.gold_N[:rows] for code, pairs in graded_pairs(data).items()}
        self.flores = flores(data, dict.fromkeys(("en", *languages)))

    def scores(
        self, encode: Callable[[Sequence[str]], np.ndarray], rows_N: np.ndarray | None = None
    ) -> dict[str, float]:
        """Spearman x 100 within languages, across them (English and another, both directions) and in English.

        Accuracy x 100 on FLORES dev comes with them, unless `rows_N` picks rows of STSb.
        """
        sides = {code: [encode(side) for side in pair] for code, pair in self.graded.items()}
        rows = slice(None) if rows_N is None else rows_N

        def rank(one: str, two: str) -> float:
            return spearman(cosine_rows(sides[one][0][rows], sides[two][1][rows]), self.gold[one][rows])

        across = [(rank("en", code), rank(code, "en")) for code in LANGUAGES if code != "en"]
        found = {"within": np.mean([rank(code, code) for code in LANGUAGES]), "across": np.mean(across)}
        found["English"] = rank("en", "en")
        if rows_N is None:
            vectors = {code: encode(texts) for code, texts in self.flores.items()}
            others = [code for code in self.flores if code != "en"]
            found["flores"] = np.mean([nearest_accuracy(vectors["en"], vectors[code]) for code in others])
        return {name: float(value) for name, value in found.items()}
