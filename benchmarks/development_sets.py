"""The development sets that benchmarks of vocabularies and of teaching read; nothing is reported on them as a test."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

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
