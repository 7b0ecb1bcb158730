"""The words of the search index: golden cases, the table, SQLite."""

import sqlite3
import sys
import unicodedata

import pytest
import word_table
from words import CASES, plan_of

from msdc.search import words as search_words
from msdc.search.words import TABLE, index_words, terms_of


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_golden_cases(case):
    assert index_words(case["text"]) == case["words"]
    plan = plan_of(case["text"])
    assert {name: plan[name] for name in case["query"]} == case["query"]
    assert index_words(case["words"]).split() or not case["words"]


def test_table_is_what_its_script_writes():
    text = TABLE.read_text(encoding="utf-8")
    if (version := f"unicode {unicodedata.unidata_version}") not in text.splitlines()[0]:
        pytest.skip(f"this Python has {version}, the table {text.splitlines()[0]}")
    assert word_table.table() == text


def test_spelling_of_a_text_does_not_matter():
    for text in ("Ἀθῆναι Ǖber naïve", "ガギグ パピプ", "한국어 각각", "कख़ ज़रूरत", "ที่นี่", "كِتَابٌ أحمد"):
        indexed = {index_words(unicodedata.normalize(form, text)) for form in ("NFC", "NFD", "NFKC", "NFKD")}
        assert len(indexed) == 1, indexed
    for text in ("grüße ﬀ ŉ ᾳ ΐ ǰ", "σάς", "ꭰ", "ǆ"):
        indexed = {index_words(spelled) for spelled in (text, text.upper(), text.title(), text.upper().lower())}
        assert len({words.replace("αι", "α") for words in indexed}) == 1, indexed


def test_sqlite_splits_the_words_at_blanks_only():
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='ascii')")
        db.execute("CREATE VIRTUAL TABLE terms USING fts5vocab(words, row)")
        text = " ".join(map(chr, [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]))
        stored = index_words(text)
        db.execute("INSERT INTO words VALUES (?)", (stored,))
        assert {term for (term,) in db.execute("SELECT term FROM terms")} == set(stored.split(" "))
        for case in CASES:
            db.execute("DELETE FROM words")
            db.execute("INSERT INTO words VALUES (?)", (case["words"],))
            for _, form, _ in plan_of(case["text"], "plain")["words"]:
                assert db.execute("SELECT count(*) FROM words WHERE words MATCH ?", (form,)).fetchone() == (1,), form


def matching(texts: list[str], query: str) -> list[str]:
    """The texts in which every word of a query matches in some form."""
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE VIRTUAL TABLE words USING fts5(text, tokenize='ascii')")
        db.executemany("INSERT INTO words VALUES (?)", [(index_words(text),) for text in texts])
        forms: dict[int, list[str]] = {}
        for number, form, _ in plan_of(query)["words"]:
            forms.setdefault(number, []).append(form)
        rows = [{row for form in group for (row,) in db.execute("SELECT rowid FROM words WHERE words MATCH ?", (form,))}
                for group in forms.values()]  # fmt: skip
    return [text for row, text in enumerate(texts, 1) if rows and all(row in group for group in rows)]


def test_every_letter_of_a_script_without_blanks_is_found():
    texts = ["我住在北京", "东京的夏天很热", "图书馆明天关门"]
    for start in range(5):
        for end in range(start + 1, 6):
            part = texts[0][start:end]
            assert matching(texts, part) == (texts[:2] if part == "京" else texts[:1])


@pytest.mark.parametrize(
    ("text", "queries"),
    [
        ("Frau Müller kommt", ["muller", "Mueller", "MÜLLER", "mu\u0308ller"]), ("Frau Mueller kommt", ["Müller"]),
        ("O'Brien called", ["O'Brien", "obrien", "O’Brien", "brien"]), ("Søren og Åse", ["Soeren", "soren", "Aase",
        "ase"]),
        ("the Wi-Fi password", ["wifi", "Wi-Fi", "wi fi"]), ("my email", ["email"]), ("an e‑mail", ["email", "e-mail"]),
        ("getUserAddress returns null", ["user address", "getuseraddress", "getUserAddress", "get_user_address"]),
        ("HTTPRequestParser", ["request parser", "httprequestparser"]), ("load_user_address", ["user address"]),
        ("an iphone", ["iPhone", "IPHONE", "iph"]), ("مدرسة جديدة", ["مدرسه", "جديدة"]), ("کتاب علی", ["كتاب", "علي"]),
        ("Kubernetes", ["kub", "kuber", "kubernetes"]), ("ticket ZQ-8801", ["ZQ-88", "ZQ-8801", "zq8801", "zq88"]),
        ("call (045) 123-4567 now", ["0451234567", "045-1234567", "045 123 4567", "0451234", "045 1234", "1234567"]),
        ("call 0451234567 now", ["(045) 123-4567", "045/1234567", "045 123", "045 1234567"]),
        ("DE12 3456 7890 1234", ["DE12345678901234", "de12-3456-7890-1234", "DE123456"]),
        ("at 045-1234567 046-2345678 047-3456789 048-4567890", ["0462345678", "046 2345678"]),
        ("on a docu-\nment of", ["document", "docum", "docu"]), ("a well-\nknown one", ["well-known", "well known"]),
        ("a well-docu\xad\r\n mented o\ufb03ce", ["documented", "well-documented", "office"]),  # an ffi ligature
        ("a Mül-\n\nler or Bü\ufffecher by u\x02ser", ["Müller", "mueller", "Buecher", "user"]),  # of PDFium
        ("for 1,234,567 dollars", ["1234567", "1 234 567", "1'234'567"]), ("covid-19", ["covid19", "COVID-19"]),
    ],
)  # fmt: skip
def test_other_spellings_match(text, queries):
    for query in queries:
        assert matching([text, "nothing of this kind"], query) == [text], query


def test_operators_and_plain_text():
    plan = plan_of('"red apple" pie -"green tea" -tea')
    assert (plan["text"], plan["quoted"], plan["without"]) == ("red apple pie", ['"red apple"'], '"green tea" OR "tea"')
    plain = plan_of('"red apple" pie -tea', "plain")
    assert (plain["text"], plain["quoted"], plain["without"]) == ('"red apple" pie -tea', [], None)
    for text in (
        "-5 degrees",
        "ls -l",
        "--all",
        "A - B",
        "Vor- und Nachteile",
        '27" or 32" screen',
        'an "open quote',
        "-only",
    ):
        plan = plan_of(text)
        assert (plan["text"], plan["quoted"], plan["without"]) == (text, [], None)
        assert plan["words"]


def test_a_long_query_is_read_once():
    for quotes in ("« ", "“ ", '" a'):  # minutes before: every quote looked for its end in all that follows
        assert plan_of(quotes * 50_000)["without"] is None
    words = [f"word{number}" for number in range(1000)]
    assert [form for _, form, _ in plan_of(" ".join(words))["words"]] == [
        *(f'"{word}"' for word in words[:-1]),
        '"word999"',
        '"word999"*',
    ]
    assert plan_of(" ".join(words))["same"] == ""
    assert len(plan_of("我住在北京天气很好" * 200 + "".join(map(chr, range(0x4E00, 0x5000))))["words"]) == 9 + 1 + 511


def test_half_surrogates_and_long_runs():
    assert index_words("a\ud83d b\udc00c") == "a b c"
    assert plan_of("\ud83d")["words"] == []
    for run in ("a", "\u0e38\u0e48", "ᄒ\u1161ᆫ", "\u0301", " ", "京", "🇩", "ab c"):
        short, long = (index_words(run * count) for count in (1000, 100_000))
        assert len(long) <= 101 * max(len(short), 1)
        assert len(plan_of(run * 20_000)["words"]) <= 256


@pytest.mark.parametrize("unit", ["« ", "-« ", '" ', "„ « ", '-" „ ', "-a « ", "« ‿ "])
@pytest.mark.parametrize("end", ["»", "» ", '»x"', "“»1"])
def test_a_query_is_read_once_however_often_it_opens_a_quote(unit, end, monkeypatch):
    """The characters that are read for words grow as the query does."""
    costs = []
    for count in (250, 2000):
        lengths = list[int]()
        monkeypatch.setattr(
            search_words, "terms_of", lambda text, into=lengths: into.append(len(text)) or terms_of(text)
        )
        search_words._segments(unit * count + end)
        costs.append(sum(lengths))
    assert costs[1] <= 10 * costs[0] + 100
