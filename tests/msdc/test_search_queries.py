"""What people type into a search box, and what is shown of the entries."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny

import msdc
from msdc.errors import InputError
from msdc.search import hits as hits_of_a_search
from msdc.search.index import Index
from msdc.search.ranking import Connection, WordMatch, rank, run_all

COLLECTIONS = sorted((Path(__file__).parents[2] / "benchmarks" / "collections").glob("*.json"))
NOTES = ["Kubernetes upgrade on Friday", "Photosynthesis in algae", "Geburtstagsgeschenke für Oma",
"Настройки маршрутизатора",
         "grocery list", "The jaguar car accelerates quickly.", "A jaguar slept on a branch.", "Frau Müller rief an",
         "getUserAddress returns null for guests", "Поезд в Москву отправляется в полночь.",
         "محمد يصل مساء الغد"]  # fmt: skip


@pytest.fixture(scope="module")
def model() -> msdc.Encoder:
    return msdc.load_encoder("msdc-mini")


@pytest.fixture(scope="module")
def notes(model):
    return msdc.open_index(NOTES, model)


@pytest.mark.parametrize("file", COLLECTIONS, ids=lambda file: file.stem)
def test_the_default_is_level_with_vectors_in_small_collections(model, file):
    collection = json.loads(file.read_text(encoding="utf-8"))
    index = msdc.open_index(["x"], model)
    index.remove(["1"])
    index.add({"id": str(n), "title": title, "text": text} for n, (title, text) in enumerate(collection["docs"], 1))
    right = {mode: sum(index.search(query, 1, mode=mode).hits[0].id == str(answer) for query, answer in
    collection["queries"])
             for mode in ("both", "vectors")}  # fmt: skip
    assert right["both"] >= right["vectors"] - 1, right


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("kuber", 1), ("photosyn", 2), ("geburtstag", 3), ("маршрут", 4), ("groc", 5), ("jaguar -car", 7),
        ('"slept on a branch"', 7), ("Mueller", 8), ("user address", 9), ("kubernets", 1), ("kubrenetes", 1),
        ("grocrey", 5), ("Moskva", 10), ("Muhammad", 11),
    ],
)  # fmt: skip
def test_words_as_people_type_them(notes, query, first):
    assert [hit.line for hit in notes.search(query, mode="words").hits] == [first]
    assert notes.search(query, 1).hits[0].line == first


def test_names_of_another_alphabet_and_typos_are_a_second_look(model):
    docs = ["Письмо от Марии", "Анна заболела", "Чехов: вишнёвый сад", "Γιώργος θα πληρώσει", "خالد في المطار",
    "Метро закрыто",
            "Мотор шумит", "Omar und Samira", "Meeting with Vladimir", "The bakery closes early.",
            "Звонок Наталье"]  # fmt: skip
    index = msdc.open_index(docs, model)
    for query, line in (("Maria", 1), ("Anna", 2), ("Chekhov", 3), ("Giorgos", 4), ("Khaled", 5), ("metro", 6),
    ("motor", 7),
                        ("عمر", 8), ("Владимир", 9), ("bakrey", 10), ("Natalya", 11)):  # fmt: skip
        assert [hit.line for hit in index.search(query, mode="words").hits] == [line], query
        assert index.search(query, 1).hits[0].line == line, query
    # Not where a word of the query is in an entry, and nothing is invented.
    assert [hit.line for hit in index.search("bakrey closes", mode="words").hits] == [10]
    assert index.search("bakrey closes", mode="words").hits[0].matches == ((11, 17),)
    for query in (
        "kitchen",
        "Zeppelin",
        "xyz",
        "12345",
        "b" * 100_000,
        "я" * 100_000,
    ):  # longer words are not looked at
        assert index.search(query, mode="words").hits == []


def test_the_last_word_is_a_beginning_only_while_it_is_typed(notes):
    assert notes.search("kuber?", mode="words", threshold=None).hits == notes.search("kuber ", mode="words").hits
    exact, longer = msdc.open_index(["card index", "cardboard boxes"], notes.model).search("card", mode="words").hits
    assert (exact.line, longer.line) == (1, 2)
    assert exact.score > longer.score


def test_entries_with_the_quoted_words_come_first_and_excluded_ones_are_no_hits(notes):
    far = ["The red car of my aunt has an apple sticker.", "Red wine, and an apple pie, and a red hat: an apple a day"]
    index = msdc.open_index([*far, "Wash the big red apple before you eat it."], notes.model)
    for query in ('"red apple"', "“red apple”", "„red apple“", "«red apple»"):
        assert index.search(query, 1).hits[0].line == 3
        assert index.search(query, 1, mode="words").hits[0].line == 3
    # Before an entry that has all other words and is nearer by its meaning.
    other = msdc.open_index(["Harbour, ships, coal and grain; apple and red.", "A red apple."], notes.model)
    for mode in ("both", "words"):
        hits = other.search('harbour ships coal grain "red apple"', mode=mode).hits
        assert [hit.line for hit in hits] == [2, 1]
        assert hits[0].score - 100 < hits[1].score
    for mode in ("both", "words", "vectors"):
        assert {hit.line for hit in index.search('apple -"red apple"', mode=mode).hits} == {1, 2}
        assert {hit.line for hit in index.search('apple -"red apple"', mode=mode, syntax="plain").hits} == {1, 2, 3}
    assert index.search("-apple pie", mode="words").hits == []
    assert {hit.line for hit in index.search("-apple", mode="words").hits} == {1, 2, 3}  # nothing else is asked


def test_exact_codes_dates_and_titles_are_first(model):
    versions = [f"{a}.{b}.{c}" for a in (1, 2) for b in range(4) for c in range(4)]
    days = [(date(2031, 1, 1) + timedelta(days=n)).isoformat() for n in range(0, 365, 9)]
    rows = [{"id": key, "text": f"Release {key} fixes bugs."} for key in versions]
    rows += [{"id": key, "text": f"Diary of {key}: nothing special."} for key in days]
    rows += [{"id": "title", "title": "Travel expenses", "text": "Hand in the form before the tenth."},
             {"id": "noise",
             "text": "Travel expenses rose. Travel expenses must fall, and travel expenses are a topic."}]  # fmt: skip
    index = msdc.open_index(["x"], model)
    index.remove(["1"])
    index.add(rows)
    for key in [*versions, *days]:
        assert [index.search(key, 1, mode=mode).hits[0].id for mode in ("both", "words")] == [key, key]
    assert index.search("Travel expenses", 1).hits[0].id == "title"


def test_a_threshold_keeps_exact_matches(model):
    index = msdc.open_index(["Gasket 7741-XR for the coffee machine on the third floor.",
    "საქართველოს დედაქალაქი თბილისია",
                             *(f"Lunch plan number {n}." for n in range(9))], model)  # fmt: skip
    assert [hit.line for hit in index.search("7741-XR", threshold=0.5).hits] == [1]
    assert [hit.line for hit in index.search("თბილისია", threshold=0.5).hits] == [2]
    assert index.search("umbrella", threshold=0.5).hits == []


def test_the_passage_contains_the_code_and_matches_are_marked(model, tmp_path):
    text = " ".join(
        f"The {('valve', 'gasket')[n % 2]} on shelf {n % 7} has the code ZQ-88{n * 7 % 100:02}1." for n in range(40)
    )
    with msdc.open_index(tmp_path / "a.sqlite", model) as index:
        index.add([{"id": "list", "text": text}, "Nothing else."])
        for encoded in (True, False):
            searched = index if encoded else msdc.open_index([text, "Nothing else."], None)
            for number in (3, 20, 38):
                code = f"ZQ-88{number * 7 % 100:02}1"
                for mode in ("both", "words") if encoded else ("words",):
                    hit = searched.search(code, mode=mode).hits[0]
                    assert code in hit.passage
                    assert len(hit.passage) < 400
                    assert code in [text[start:end] for start, end in hit.matches]


@pytest.mark.parametrize(
    ("text", "query", "marked"),
    [
        ("We met O’Brien at Mu\u0308ller’s.", "obrien Mueller", ["O’Brien", "Mu\u0308ller"]),
        ("call getUserAddress() 🙂 now", "user address", ["getUserAddress"]), ("我住在北京，天气", "北京", ["北京"]),
        ("한국어를 배운다", "한국", ["한국"]), ("한국어를".encode().decode(), "한국어", ["한국어"]),
        ("Kubernetes and kubectl", "kub", ["Kubernetes", "kubectl"]), ("كِتَابٌ جميل", "كتاب", ["كِتَابٌ"]),
        ("version 1.3.0 of 3", "1.3.0", ["1.3.0", "3"]), ("Straße", "strasse", ["Straße"]),
        ("The docu-\nments in the o\ufb03ces", "documents office", ["docu-\nments", "o\ufb03ces"]),
        ("the the", "the", ["the", "the"]),
    ],
)  # fmt: skip
def test_matches_are_spans_of_the_text(model, text, query, marked):
    (hit, *_) = msdc.open_index([text, "zzz"], model).search(query, mode="words").hits
    assert [hit.text[start:end] for start, end in hit.matches] == marked


def test_equal_entries_are_one_hit_with_a_count(model):
    same = [
        "The ferry leaves at noon.",
        "the ferry leaves at noon",
        "The  ferry leaves at noon!",
        "THE FERRY LEAVES AT NOON.",
    ]
    index = msdc.open_index(["x"], model)
    index.remove(["1"])
    index.add([{"text": text, "app": number % 2} for number, text in enumerate(same)] + ["The boat departs at twelve."])
    hits = index.search("ferry at noon", 2).hits
    assert [(hit.count, hit.text.lower()[:9]) for hit in hits] == [(4, "the ferry"), (1, "the boat ")]
    assert index.search("ferry at noon", 1, where={"app": 1}).hits[0].count == 2
    assert [hit.count for hit in index.search("ferry at noon", 9, distinct=False).hits] == [1] * 5


def test_pages_agree(model):
    rows = [{"id": str(n), "text": f"{('apple', 'river', 'stone')[n % 3]} number {n % 50}"} for n in range(200)]
    index = msdc.open_index(["x"], model)
    index.remove(["1"])
    index.add(rows)
    for options in ({}, {"mode": "words"}, {"mode": "vectors"}, {"distinct": False}, {"threshold": 0.3}):
        all_hits = index.search("the apple 7", 300, **options).hits
        pages = [
            hit for start in range(0, 300, 7) for hit in index.search("the apple 7", 7, offset=start, **options).hits
        ]
        assert [hit.id for hit in pages] == [hit.id for hit in all_hits]
        assert pages == all_hits


def test_filters_by_absence_and_time(model):
    east, west = timezone(timedelta(hours=9)), timezone(timedelta(hours=-8))
    rows = {
        "open": {"state": "open", "at": datetime(2031, 5, 31, 10)}, "old": {"state": "archived", "at": date(2031, 5,
        1)},
        "none": {}, "null": {"state": None}, "empty": {"state": ""}, "many": {"state": ["archived", "red"]},
        "tokyo": {"at": datetime(2031, 6, 1, 8, tzinfo=east)}, "seattle": {"at": datetime(2031, 5, 31, 20,
        tzinfo=west)},
        "june": {"at": datetime(2031, 6, 1)},
    }  # fmt: skip
    index = msdc.open_index(["x"], model)
    index.remove(["1"])
    index.add({"id": key, "text": "note", **values} for key, values in rows.items())
    absent = {"none", "null", "empty", "tokyo", "seattle", "june"}
    june = datetime(2031, 6, 1, tzinfo=UTC)
    for where, keys in (
        ({"state": None}, absent), ({"state": {"not": None}}, rows.keys() - absent), ({"state": [None, "open"]},
        absent | {"open"}),
        ({"state": {"not": "archived"}}, absent | {"open"}), ({"state": {"not": ["archived", "open", None]}}, set()),
        ({"state": {"not": "open"}, "at": (None, date(2031, 5, 31))}, {"old", "seattle"}),
        ({"at": (date(2031, 5, 1), date(2031, 5, 31))}, {"open", "old", "seattle"}), ({"at": date(2031, 5, 31)},
        {"open", "seattle"}),
        ({"at": (None, june)}, {"open", "old", "tokyo", "june"}), ({"at": (june, None)}, {"seattle", "june"}),
        ({"at": "2031-05-31T23:00Z"}, {"tokyo"}), ({"at": {"not": (None, june)}}, {"none", "null", "empty", "many",
        "seattle"}),
    ):  # fmt: skip
        assert {hit.id for hit in index.search("note", 20, mode="words", where=where, distinct=False).hits} == set(
            keys
        ), where


# --- the life of a file -----------------------------------------------------------------------------------------------


def test_a_copy_of_an_open_index_has_what_was_added(model, tmp_path):
    path, copy, backup = (tmp_path / name for name in ("a.sqlite", "copy.sqlite", "backup.sqlite"))
    with msdc.open_index(path, model) as index:
        index.add(["one", "two"])
        index.add(["three"])
        shutil.copy(path, copy)
        with msdc.open_index(copy, model) as other:
            assert len(other) == 3
        # With a reader in the middle of a search the log stays: the backup has everything.
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM documents").fetchone()
            index.add(["four"])
            index.backup(backup)
        with msdc.open_index(backup, model) as other:
            assert len(other) == 4
        with pytest.raises(InputError, match="exists already"):
            index.backup(backup)


def test_a_file_that_does_not_belong_to_its_log_is_an_error(model, tmp_path):
    path, log = tmp_path / "a.sqlite", tmp_path / "a.sqlite-wal"
    with msdc.open_index(path, model) as index:
        index.add([f"entry {n} of the first kind" for n in range(300)])
        old = path.read_bytes()
        index.remove(map(str, range(1, 200)))
        with closing(sqlite3.connect(path)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM documents").fetchone()
            index.add([f"entry {n} of the second kind" for n in range(300)])
            log_bytes = log.read_bytes()
        new = path.read_bytes()
    assert log_bytes
    for content, message in (
        (b"", "empty next to its write-ahead log a.sqlite-wal"),
        (old, "damaged"),
        (None, "empty next to"),
    ):
        for file in tmp_path.glob("a.sqlite*"):
            file.unlink()
        log.write_bytes(log_bytes)
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(InputError, match=message):
            msdc.open_index(path, model)
        assert log.read_bytes() == log_bytes
    path.write_bytes(new)
    with msdc.open_index(path, model) as index:
        assert len(index) == 401


def test_compact_gives_space_back(model, tmp_path):
    path = tmp_path / "a.sqlite"
    with msdc.open_index(path, model) as index:
        index.add([f"Log entry {n}: pump pressure valve sensor" for n in range(400)])
        full = path.stat().st_size
        index.remove(map(str, range(1, 380)))
        index.compact()
        assert path.stat().st_size < full / 2
        assert index.search("pump valve 399", 1).hits[0].id == "400"
        assert len(index) == 21


def test_of_frequent_words_the_rarest_choose_what_is_scored(monkeypatch):
    """With a limit of eighty occurrences: the best hit and all scores are those without one, in each mode."""
    chance = np.random.default_rng(0)
    vocabulary = [f"term{number}" for number in range(60)]
    share = 1 / np.arange(1, 61)
    rows = chance.choice(60, (400, 8), p=share / share.sum())
    texts = [f"{' '.join(vocabulary[word] for word in row)} number{n}" for n, row in enumerate(rows)]
    texts[0] = "term1 term1 term1 term1"
    texts[7] = "term0 term1 and all of the rest"
    index = Index(msdc.load_encoder(tiny.student_folder(3)))
    index.add({"id": n, "text": text, "part": n % 2} for n, text in enumerate(texts))
    index.add([{"id": "titled", "title": "term3 term4", "text": "Its title is what is looked for."}])
    cases = [
        (query, mode, where) for mode in ("words", "both") for where in (None, {"part": 1})
        for query in ("term0 term1 term30 ", "term1 term2 term9 ", "term0 term50 ", '"term0 term1" ', "term3 term4 ")
    ]  # fmt: skip
    hits_by_limit = []
    for candidates in (1000, 4):
        monkeypatch.setattr(hits_of_a_search, "CANDIDATES", candidates)
        hits_by_limit.append(
            [index.search(query, 4, mode=mode, where=where, distinct=False).hits for query, mode, where in cases]
        )
        # One entry has the rarest word; an old one with a frequent word alone is not scored then.
        first, second = index.search("term1 number9 ", 2, mode="words").hits
        assert (first.id, second.id == "0") == ("9", candidates == 1000)
    for case, every, fewer in zip(cases, *hits_by_limit, strict=True):
        assert len(fewer) == 4
        assert fewer[0] == every[0], case
        words = {hit.id: hit.words for hit in every}
        assert all(words.get(hit.id, hit.words) == hit.words for hit in fewer), case


def test_a_pasted_text_is_looked_for_by_its_rarest_words():
    """Wherever they are in it: 128 words that no entry has, or that many have, may come before them."""
    index = Index(msdc.load_encoder(tiny.student_folder(3)))
    common = [f"common{number}" for number in range(200)]
    index.add({"id": n, "text": " ".join(common) if n < 3 else f"pump number{n}"} for n in range(20))
    index.add([{"id": "long", "text": f"{' '.join(common)} valve"}])
    unknown = " ".join(f"unknown{number}" for number in range(3000))
    assert [hit.id for hit in index.search(f"{unknown} number7 ", mode="words").hits] == ["7"]
    assert index.search(f"{' '.join(common)} valve number7 ", 2, mode="words").hits[0].id == "long"
    assert index.search(f"{unknown} valve ", 2, mode="both").hits[0].id == "long"
    assert not index.search(f"{unknown} ", mode="words").hits


@pytest.mark.parametrize("mode", ["vectors", "both"])
@pytest.mark.parametrize("threshold", [None, 0.3])
def test_the_nearest_are_ranked_as_if_all_were(mode, threshold, monkeypatch):
    """Also with equal, negative and barely different cosines, and far beyond the nearest."""
    chance = np.random.default_rng(3)
    with closing(sqlite3.connect(":memory:", factory=Connection)) as db:
        run_all(db, "schema")
        for spread in (1.0, 1e-6, 0.0):
            cosines = dict(enumerate((0.4 + spread * chance.normal(size=900)).round(7).tolist()))
            cosines |= {number: -0.1 for number in range(900, 950)}
            rows = {int(n): WordMatch(float(chance.integers(9)), 0.5, 0, 0) for n in chance.integers(0, 990, 40)}
            expected = None
            for nearest in (10**6, 100, 7):
                monkeypatch.setattr("msdc.search.ranking.NEAREST", nearest)
                ranked = list(rank(db, cosines, {} if mode == "vectors" else rows, mode, threshold))
                expected = expected or ranked
                assert ranked == expected
            assert len(expected) > 200


def test_a_long_question_without_a_word_of_the_index_is_left_to_the_vectors(model):
    """By words its longest words are compared with those of the index; a short query is corrected in any mode."""
    index = msdc.open_index(["The kubernetes cluster was upgraded.", "Milk and bread."], model)
    for mode in ("words", "both"):
        assert index.search("kubernets ", 1, mode=mode).hits[0].matches
    long = "kubernets qwortz flumph vexxing zyzzyva "
    assert index.search(long, 1, mode="words").hits[0].matches
    assert not any(hit.matches for hit in index.search(long, mode="both").hits)
    assert not index.search(
        "qqqqqq " * 3 + "kubernets abcdefghijklm bcdefghijklmn cdefghijklmno defghijklmnop ", mode="words"
    ).hits


TAGGED = [
    {"id": "a", "text": "apple pie", "tags": ["sweet", "warm"], "year": 2024},
    {"id": "b", "text": "apple juice", "tags": ["sweet", "cold"], "year": 2025},
    {"id": "c", "text": "apple tree", "tags": [], "year": 2026, "or": "gate"},
]


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ({"and": [{"tags": "sweet"}, {"tags": "cold"}]}, "b"),
        ({"or": [{"tags": "warm"}, {"year": (2026, None)}]}, "ac"),
        ({"and": [{"tags": "sweet"}, {"tags": {"not": "cold"}}]}, "a"),
        ({"not": {"tags": "sweet", "year": 2024}}, "bc"),
        ({"not": {"or": [{"tags": "cold"}, {"year": 2026}]}, "year": (2024, None)}, "a"),
        ({"or": [{"and": [{"tags": "cold"}, {"year": 2025}]}, {"tags": None}]}, "bc"),
        ({"or": ["gate", "door"]}, "c"), ({"year": {"not": 2024}}, "bc"), ({"or": [{}]}, "abc"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("mode", ["words", "both"])
def test_filters_are_combined(where, ids, mode, model):
    with Index(model) as index:
        index.add(TAGGED)
        hits = index.search("apple", top=9, mode=mode, where=where).hits
        assert sorted(hit.id for hit in hits) == list(ids)


@pytest.mark.parametrize(
    ("where", "problem"),
    [
        (["tags"], "a filter is a mapping of columns to values, not list"),
        ({"or": [{"tags": "warm"}, "gate"]}, "a filter is a mapping of columns to values, not str"),
        ({"or": [{"tag": "warm"}, {"year": 2026}]}, "no column 'tag' to filter by"),
        ({"xor": [{"year": 2026}]}, "filter 'xor'"),
        ({1: 2}, "filter 1"),
    ],
)
def test_filters_that_cannot_be_read_are_one_line(where, problem, model):
    with Index(model) as index:
        index.add(TAGGED)
        with pytest.raises(InputError, match=problem) as error:
            index.search("apple", where=where)
    assert "\n" not in str(error.value)
    deep = {"year": 2026}
    for _ in range(9):
        deep = {"not": deep}
    with Index(model) as index, pytest.raises(InputError, match="more than 8 levels"):
        index.search("apple", where=deep)


def test_adding_tells_its_progress_and_stops_where_this_raises(model):
    rows, calls = [f"note {number}" for number in range(600)], []

    def stop_at_512(done: int, total: int | None) -> None:
        calls.append((done, total))
        if done == 512:
            raise KeyboardInterrupt

    with Index(model) as index:
        with pytest.raises(KeyboardInterrupt):
            index.add(rows, progress=stop_at_512)
        assert (calls, len(index)) == ([(256, 600), (512, 600)], 512)
        index.update(({"id": str(number), "text": row} for number, row in enumerate(rows, 1)),
                     progress=lambda *numbers: calls.append(numbers))  # fmt: skip
        assert (calls[-1], len(index)) == ((600, None), 600)
