"""The embedded corpus: complete, well formed, and without overlap between training and test texts."""

import gzip
import re
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from msdc.text.quickstart import FOLDER

LANGUAGES = ["en", "de", "es", "fr", "it", "nl", "tr", "ar"]
QUESTION_MARKS = ("?", "؟")
SHARED = Path(__file__).resolve().parents[4] / "shared" / "data"


def lines(name: str) -> list[str]:
    """Lines end at \\n only; `splitlines` breaks at other characters too."""
    text = (FOLDER / name).read_bytes().decode("utf-8")
    assert text.endswith("\n")
    return text[:-1].split("\n")


def rows(name: str) -> list[list[str]]:
    return [line.split("\t") for line in lines(name)[1:]]


PARALLEL, GRADED, GOLDEN = rows("parallel.tsv"), rows("graded_pairs.tsv"), lines("golden_texts.txt")


def same(sentence: str) -> str:
    """Normal form: letters and digits, without case and punctuation."""
    return "".join(c for c in unicodedata.normalize("NFKD", sentence).casefold() if c.isalnum())


def test_both_tables_are_complete():
    assert lines("parallel.tsv")[0].split("\t") == LANGUAGES
    assert len(PARALLEL) >= 300
    assert {len(row) for row in PARALLEL} == {len(LANGUAGES)}
    assert lines("graded_pairs.tsv")[0].split("\t") == ["score", "language_1", "language_2", "sentence_1", "sentence_2"]
    assert len(GRADED) >= 60
    assert {len(row) for row in GRADED} == {5}
    scores = [float(row[0]) for row in GRADED]
    # Ranks need variety: no score belongs to more than a quarter of the pairs.
    assert (min(scores), max(scores)) == (0, 5)
    assert max(Counter(scores).values()) <= len(scores) / 4
    assert {row[1] for row in GRADED} <= set(LANGUAGES)
    pairs_of = Counter(row[2] for row in GRADED)
    assert pairs_of.keys() == set(LANGUAGES)
    assert all(number >= 10 for number in pairs_of.values())


def test_every_sentence_is_clean():
    named = [(language, cell) for row in PARALLEL for language, cell in zip(LANGUAGES, row, strict=True)]
    for language, sentence in named + [(row[1], row[3]) for row in GRADED] + [(row[2], row[4]) for row in GRADED]:
        assert sentence and sentence == " ".join(sentence.split(" ")).strip() and "  " not in sentence, sentence
        assert unicodedata.is_normalized("NFC", sentence), sentence
        assert not any(unicodedata.category(c) in ("Cc", "Cf", "Co", "Cn") for c in sentence), sentence
        assert sentence.endswith((".", "!", *QUESTION_MARKS)), sentence
        letters = [c for c in sentence if c.isalpha()]
        assert sum("ARABIC" in unicodedata.name(c) for c in letters) == (len(letters) if language == "ar" else 0)
        if language == "fr":
            assert not re.search(r"\S[?!]", sentence), f"French sets a space before the mark: {sentence}"
        if language == "es":
            assert sentence.endswith("?") == ("¿" in sentence), sentence


def test_translations_agree_in_what_can_be_counted():
    """Translations keep question marks and digits, and have a plausible length."""
    for english, *others in PARALLEL:
        for cell in others:
            assert cell.endswith(QUESTION_MARKS) == english.endswith("?"), (english, cell)
            assert re.findall(r"\d+", cell) == re.findall(r"\d+", english), (english, cell)
            assert 0.4 < len(cell) / len(english) < 2.2 and same(cell) != same(english), (english, cell)


@pytest.mark.parametrize("column", range(len(LANGUAGES)), ids=LANGUAGES)
def test_no_sentence_twice(column):
    assert max(Counter(same(row[column]) for row in PARALLEL).values()) == 1


def test_what_is_tested_is_not_taught():
    taught = {same(cell) for row in PARALLEL for cell in row}
    pairs = [frozenset((same(row[3]), same(row[4]))) for row in GRADED]
    assert len(set(pairs)) == len(pairs)
    assert all(len(pair) == 2 for pair in pairs)
    assert not taught & set().union(*pairs)
    assert not taught & {same(text) for text in GOLDEN if same(text)}


def test_golden_texts():
    assert len(GOLDEN) >= 60
    assert len(set(GOLDEN)) == len(GOLDEN)
    assert all(text.strip() for text in GOLDEN)
    # Many scripts, and some texts that every normalizer changes.
    scripts = {unicodedata.name(c, "").split(" ")[0] for text in GOLDEN for c in text if c.isalpha()}
    assert {"LATIN", "CYRILLIC", "GREEK", "ARABIC", "HEBREW", "DEVANAGARI", "THAI", "CJK", "HANGUL"} <= scripts
    # Words that name a form of a letter, not a script.
    assert len(scripts - {"", "HALFWIDTH", "FULLWIDTH", "MODIFIER", "MATHEMATICAL", "CARON"}) >= 40
    assert any(not unicodedata.is_normalized("NFC", text) for text in GOLDEN)
    assert any(ord(c) > 0xFFFF for text in GOLDEN for c in text)
    assert max(map(len, GOLDEN)) > 100


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.is_dir(), reason="../shared/data is absent")
def test_written_for_this_project():
    """No sentence is a line or a cell of a data set used for training or testing."""
    ours = {cell for row in PARALLEL for cell in row} | {cell for row in GRADED for cell in row[3:]}
    hits_by_file = {}
    for path in (path for path in SHARED.rglob("*") if path.is_file()):
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", errors="replace") as handle:
            if hits := {cell for line in handle for cell in line.rstrip("\r\n").split("\t") if cell in ours}:
                hits_by_file[path.name] = hits
    assert hits_by_file == {}
