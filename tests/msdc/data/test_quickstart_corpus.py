"""The embedded corpus: complete, well formed, and without overlap between training and test texts."""

from __future__ import annotations

import gzip
import re
import unicodedata
from collections import Counter
from pathlib import Path

import places
import pytest

from msdc.files import PACKAGE

FOLDER = PACKAGE / "data" / "quickstart"
SHARED = places.data_folder() or Path("/nonexistent")
LANGUAGES = ["en", "de", "es", "fr", "it", "nl", "tr", "ar"]
QUESTION_MARKS = ("?", "؟")


def lines(name: str) -> list[str]:
    """Lines end at \\n only; `splitlines` breaks at other characters too."""
    text = (FOLDER / name).read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def parallel() -> list[list[str]]:
    return [line.split("\t") for line in lines("parallel.tsv")[1:]]


def graded() -> list[list[str]]:
    return [line.split("\t") for line in lines("graded_pairs.tsv")[1:]]


def same(sentence: str) -> str:
    """Normal form: letters and digits, without case and punctuation."""
    return "".join(c for c in unicodedata.normalize("NFKD", sentence).casefold() if c.isalnum())


def test_parallel_is_complete() -> None:
    assert lines("parallel.tsv")[0].split("\t") == LANGUAGES
    assert len(parallel()) >= 300
    assert {len(row) for row in parallel()} == {len(LANGUAGES)}


def test_graded_pairs_are_complete() -> None:
    assert lines("graded_pairs.tsv")[0].split("\t") == ["score", "language_1", "language_2", "sentence_1", "sentence_2"]
    assert len(graded()) >= 60
    scores = []
    for score, first, second, *sentences in graded():
        scores.append(float(score))
        assert first in LANGUAGES
        assert second in LANGUAGES
        assert len(sentences) == 2
    assert min(scores) == 0
    assert max(scores) == 5
    # Ranks need variety: no score belongs to more than a quarter of the pairs.
    assert max(Counter(scores).values()) <= len(scores) / 4
    pairs_of = Counter(row[2] for row in graded())
    assert all(pairs_of[language] >= 10 for language in LANGUAGES)


def cells() -> list[tuple[str, str]]:
    named = [(language, cell) for row in parallel() for language, cell in zip(LANGUAGES, row, strict=True)]
    return named + [(row[1], row[3]) for row in graded()] + [(row[2], row[4]) for row in graded()]


def test_every_sentence_is_clean() -> None:
    for language, sentence in cells():
        assert sentence == sentence.strip(), sentence
        assert sentence
        assert "  " not in sentence, sentence
        assert unicodedata.is_normalized("NFC", sentence), sentence
        assert not any(unicodedata.category(c) in ("Cc", "Cf", "Co", "Cn") for c in sentence), sentence
        assert sentence.endswith((".", "!", *QUESTION_MARKS)), sentence
        arabic = sum("ARABIC" in unicodedata.name(c) for c in sentence if c.isalpha())
        letters = sum(c.isalpha() for c in sentence)
        assert arabic == (letters if language == "ar" else 0), sentence
        if language == "fr":
            assert not re.search(r"\S[?!]", sentence), f"French sets a space before the mark: {sentence}"
        if language == "es":
            assert sentence.endswith("?") == ("¿" in sentence), sentence


def test_translations_agree_in_what_can_be_counted() -> None:
    """Translations keep question marks and digits, and have a plausible length."""
    for row in parallel():
        english = row[0]
        for language, cell in zip(LANGUAGES[1:], row[1:], strict=True):
            assert cell.endswith(QUESTION_MARKS) == english.endswith("?"), (english, cell)
            assert re.findall(r"\d+", cell) == re.findall(r"\d+", english), (english, cell)
            assert 0.4 < len(cell) / len(english) < 2.2, (english, cell)
            assert same(cell) != same(english), (language, cell)


@pytest.mark.parametrize("column", range(len(LANGUAGES)), ids=LANGUAGES)
def test_no_sentence_twice(column: int) -> None:
    counts = Counter(same(row[column]) for row in parallel())
    assert [sentence for sentence, count in counts.items() if count > 1] == []


def test_no_graded_pair_twice() -> None:
    counts = Counter(frozenset((same(row[3]), same(row[4]))) for row in graded())
    assert max(counts.values()) == 1
    assert all(len(pair) == 2 for pair in counts)


def test_what_is_tested_is_not_taught() -> None:
    taught = {same(cell) for row in parallel() for cell in row}
    tested = {same(sentence) for row in graded() for sentence in row[3:]}
    assert taught & tested == set()


def test_golden_texts() -> None:
    golden = lines("golden_texts.txt")
    assert len(golden) >= 60
    assert len(set(golden)) == len(golden)
    assert all(text.strip() for text in golden)
    # Many scripts, and some texts that every normalizer changes.
    scripts = {unicodedata.name(c, "").split(" ")[0] for text in golden for c in text if c.isalpha()}
    assert {"LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "DEVANAGARI", "THAI", "CJK", "HANGUL"} <= scripts
    # Words that name a form of a letter, not a script.
    forms = {"", "HALFWIDTH", "FULLWIDTH", "MODIFIER", "MATHEMATICAL", "CARON"}
    assert len(scripts - forms) >= 40
    assert any(not unicodedata.is_normalized("NFC", text) for text in golden)
    assert any(ord(c) > 0xFFFF for text in golden for c in text)
    assert max(len(text) for text in golden) > 100
    taught = {same(cell) for row in parallel() for cell in row}
    assert not taught & {same(text) for text in golden if same(text)}


@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is absent")
def test_written_for_this_project() -> None:
    """No sentence is a line or a cell of a data set used for training or testing."""
    ours = {cell for _, cell in cells()}
    found: dict[str, set[str]] = {}
    for path in sorted(SHARED.rglob("*")):
        if not path.is_file():
            continue
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", errors="replace") as handle:
            hits = {cell for line in handle for cell in line.rstrip("\r\n").split("\t") if cell in ours}
        if hits:
            found[path.name] = hits
    assert found == {}
