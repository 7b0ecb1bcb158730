"""The words of the search index: golden cases, the table, SQLite."""

import sqlite3
import sys
import unicodedata

import pytest
import word_table
from words import CASES

from msdc.search.words import TABLE, TOKENIZE, index_words, match_expression


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden_cases(case):
    assert index_words(case["text"]) == case["words"]
    assert match_expression(case["text"]) == case["query"]
    assert index_words(case["words"]).split() or not case["words"]


def test_table_is_what_its_script_writes():
    text = TABLE.read_text(encoding="ascii")
    if (version := f"unicode {unicodedata.unidata_version}") not in text.splitlines()[0]:
        pytest.skip(f"this Python has {version}, the table {text.splitlines()[0]}")
    assert word_table.table() == text


def test_spelling_of_a_text_does_not_matter():
    for text in ("Ἀθῆναι Ǖber naïve", "ガギグ パピプ", "한국어 각각", "कख़ ज़रूरत", "ที่นี่", "كِتَابٌ أحمد"):
        found = {index_words(unicodedata.normalize(form, text)) for form in ("NFC", "NFD", "NFKC", "NFKD")}
        assert len(found) == 1, found
    for text in ("grüße ﬀ ŉ ᾳ ΐ ǰ", "σάς", "ꭰ", "ǆ"):
        found = {index_words(spelled) for spelled in (text, text.upper(), text.title(), text.upper().lower())}
        assert len({one.replace("αι", "α") for one in found}) == 1, found


def test_sqlite_splits_the_words_at_blanks_only():
    with sqlite3.connect(":memory:") as db:
        db.execute(f"CREATE VIRTUAL TABLE words USING fts5(text, tokenize='{TOKENIZE}')")
        db.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(words, row)")
        text = " ".join(map(chr, [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]))
        stored = index_words(text)
        db.execute("INSERT INTO words VALUES (?)", (stored,))
        assert {term for (term,) in db.execute("SELECT term FROM terms")} == set(stored.split(" "))
        for case in CASES:
            if case["query"]:
                db.execute("DELETE FROM words")
                db.execute("INSERT INTO words VALUES (?)", (case["words"],))
                for part in case["query"].split(" OR "):
                    assert db.execute("SELECT count(*) FROM words WHERE words MATCH ?", (part,)).fetchone() == (1,), (
                        part
                    )


def test_every_letter_of_a_script_without_blanks_is_found():
    with sqlite3.connect(":memory:") as db:
        db.execute(f"CREATE VIRTUAL TABLE words USING fts5(text, tokenize='{TOKENIZE}')")
        texts = ["我住在北京", "东京的夏天很热", "图书馆明天关门"]
        db.executemany("INSERT INTO words VALUES (?)", [(index_words(text),) for text in texts])
        for start in range(5):
            for end in range(start + 1, 6):
                found = db.execute("SELECT rowid FROM words WHERE words MATCH ? ORDER BY rank",
                                   (match_expression(texts[0][start:end]),)).fetchall()  # fmt: skip
                assert found[0] == (1,)
                assert texts[0][start:end] == "京" or found == [(1,)]


def test_half_surrogates_and_long_runs():
    assert index_words("a\ud83d b\udc00c") == "a b c"
    assert match_expression("\ud83d") == ""
    for run in ("a", "\u0e38\u0e48", "ᄒ\u1161ᆫ", "\u0301", " ", "京", "🇩", "ab c"):
        short, long = (index_words(run * count) for count in (1000, 100_000))
        assert len(long) <= 101 * max(len(short), 1)
