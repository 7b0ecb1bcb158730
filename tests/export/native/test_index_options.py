"""Order and boost of a search, by the native index and the Python package's on one file."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from typing import Any

import native_index
import pytest
import tiny_models as tiny
from native_index import NativeCore, NativeIndex, same_hits

import msdc
from msdc.errors import InputError
from msdc.search.documents import Hit, as_document
from msdc.search.index import Index

WORDS = ("apple", "river", "stone", "naïve", "北京", "car", "light")
Ask = Callable[..., list[Hit]]


@pytest.fixture(scope="module")
def core():
    return NativeCore(native_index.library("system"))


@pytest.fixture(scope="module")
def model():
    return msdc.load_encoder(tiny.student_folder(3))


@pytest.fixture
def searched(core, model, tmp_path):
    """A function that writes rows and gives a search by both engines, whose hits are compared."""
    opened: list[Any] = []

    def write(rows: list[dict], encode: bool = True) -> Ask:
        path = tmp_path / f"{len(opened)}.sqlite"
        with Index(model, path) as index:
            index._put([as_document(row, "") for row in rows], rows, False, encode=encode)
        engines = [Index(model, path), NativeIndex(core, model, path, tmp_path / "bundles", check=encode)]
        opened.extend(engines)

        def ask(query: str, top: int = 50, **options: Any) -> list[Hit]:
            expected, hits = (index.search(query, top, **{"mode": "words", **options}).hits for index in engines)
            assert same_hits(expected, hits)
            return expected

        ask.engines = engines
        return ask

    yield write
    for index in opened:
        index.close()


def ids(hits: list[Hit]) -> str:
    return " ".join(hit.id for hit in hits)


def rows_of(column: str, values: dict[str, object], text: str = "a ticket") -> list[dict]:
    """Entries with different texts; a value of ... is absent."""
    return [{"id": key, "text": f"{text} {key}", **({} if value is ... else {column: value})}
            for key, value in values.items()]  # fmt: skip


VALUES = {
    "int": 5, "text": "5.0", "minus": "-3", "yes": True, "no": False, "none": None, "blank": "", "absent": ...,
    "day": "2031-05-31", "early": "2031-05-31T00:30+02:00", "noon": "2031-05-31T12:00Z", "broken": "2031-19-39",
    "list": ["2031-06-02", 7], "empty": [], "z": "z", "umlaut": "ä", "upper": "A", "large": 1e12, "code": "0123",
}  # fmt: skip


def test_values_of_all_kinds_in_order(searched):
    """Numbers before texts, times as instants, no value last in both directions; equal ones by score."""
    ask = searched(rows_of("größe", VALUES), encode=False)
    missing = "none blank absent empty"
    ascending = "minus no yes int text list large code early day noon broken upper z umlaut"
    assert ids(ask("ticket ", order="größe")) == f"{ascending} {missing}"
    descending = "umlaut z upper broken list noon day early code large int text yes no minus"
    assert ids(ask("ticket ", order=["-größe"])) == f"{descending} {missing}"
    assert ids(ask("ticket ")) == " ".join(VALUES)
    assert ids(ask("ticket ", 3, offset=2, order="größe")) == "yes int text"


def test_hits_that_match_are_in_order_and_others_follow_by_score(searched):
    rows = [
        {"id": "long", "text": "the red car and a much longer text about something else", "day": "2031-01-03"},
        {"id": "red", "text": "red", "day": "2031-01-09"},
        {"id": "apart", "text": "car, red", "day": "2031-01-01"},
        {"id": "car", "text": "a car of blue", "day": "2031-01-08"},
        {"id": "title", "title": "red car", "text": "What it costs.", "day": "2031-01-02"},
    ]
    ask = searched(rows)
    assert ids(ask("red car ", order="-day")) == "long title apart red car"
    assert ids(ask('"red car" ', order="day")) == "title long apart red car"
    assert ids(ask("red car -costs ", order="-day")) == "long apart red car"
    assert ids(ask("red wheel ", order="-day")) == ids(ask("red wheel "))  # nothing matches


def test_hits_match_by_their_cosine(searched):
    """Of the threshold, or three deviations above the model's cosines of unrelated sentences."""
    ask = searched(
        [{"id": f"{n}", "text": f"{WORDS[n % 7]} {n} of {WORDS[n % 5]}", "n": n * 7 % 40} for n in range(40)]
    )
    plain = ask("apple", mode="vectors")
    mean, deviation = (plain[15].cosine + plain[16].cosine) / 2 - 0.03, 0.01
    with closing(sqlite3.connect(ask.engines[0].path)) as db, db:
        db.execute("INSERT OR REPLACE INTO facts VALUES ('cosines', ?)", [json.dumps([mean, deviation])])
    for threshold in (None, (plain[25].cosine + plain[26].cosine) / 2):
        level = mean + 3 * deviation if threshold is None else threshold
        hits = ask("apple", mode="vectors", order="-n", threshold=threshold)
        matching = [hit for hit in plain if hit.cosine >= level]
        in_order = sorted(matching, key=lambda hit: -hit.metadata["n"])
        others = [hit for hit in plain if hit.cosine < level] if threshold is None else []
        assert 1 < len(matching) < 40
        assert ids(hits) == ids([*in_order, *others])
        hits = ask("apple 7", mode="both", order="-n", threshold=threshold)
        count = sum(hit.cosine >= level for hit in hits) + sum(hit.cosine < level and hit.id == "7" for hit in hits)
        numbers = [hit.metadata["n"] for hit in hits[:count]]
        assert numbers == sorted(numbers, reverse=True)


def test_every_entry_with_the_words_is_in_order(searched):
    """More than are ranked together otherwise: the newest of 1,200 is the first."""
    count = 1200
    ask = searched(
        [{"id": str(n), "text": f"invoice{' paid' * (n % 3)} {n}", "n": n} for n in range(count)], encode=False
    )
    assert ids(ask("invoice ", 5, order="-n")) == " ".join(map(str, range(count - 1, count - 6, -1)))
    assert ids(ask("invoice ", 3, order="-n", offset=1100)) == "99 98 97"
    assert ids(ask("invoice ", 2, order="-n", where={"n": (None, 40)})) == "40 39"


def test_several_columns(searched):
    rows = [{"id": f"{n}", "text": f"ticket {n}", "pinned": n in (4, 7), "n": n // 2} for n in range(8)]
    ask = searched(rows, encode=False)
    assert ids(ask("ticket ", order="-pinned")) == "4 7 0 1 2 3 5 6"
    assert ids(ask("ticket ", order=["-pinned", "-n"])) == "7 4 6 5 2 3 0 1"
    assert ids(ask("ticket ", order=["pinned", "-n"], where={"n": (0, 2)})) == "5 2 3 0 1 4"


def test_boost_adds_to_the_score(searched):
    rows = [{"id": f"{n}", "text": f"ticket {'word ' * n}", "n": n, "tags": ["a", str(n)]} for n in range(5)]
    ask = searched(rows)
    for mode in ("words", "vectors", "both"):
        plain = {hit.id: hit for hit in ask("ticket ", mode=mode, distinct=False)}
        boost = [({"n": (3, None)}, 2), ({"tags": "4"}, 0.5), ({"or": [{"n": 0}, {"not": {"tags": "a"}}]}, -1.5)]
        boosted = ask("ticket ", mode=mode, boost=boost, distinct=False)
        added = {"3": 2, "4": 2.5, "0": -1.5}
        for hit in boosted:
            assert hit.score == pytest.approx(plain[hit.id].score + added.get(hit.id, 0), abs=2e-4)
            assert (hit.cosine, hit.words) == (plain[hit.id].cosine, plain[hit.id].words)
        assert [hit.score for hit in boosted] == sorted((hit.score for hit in boosted), reverse=True)
    # No hit that was none before, and an order is by score where its columns are equal.
    assert ids(ask("none", boost=[({"n": 3}, 100)])) == ""
    assert ids(ask("ticket ", order="-tags", boost=[({"n": 3}, 100)])).startswith("3 ")


def test_boosted_entries_beyond_the_nearest_are_ranked(searched):
    """Entries without a word are ranked by their cosine, the nearest first; a boosted one is among them."""
    ask = searched([{"id": f"{n}", "text": f"entry number {n} of many", "n": n} for n in range(300)])
    last = ask("fire", 300, mode="both")[-1].id
    assert ask("fire", 1, mode="both", boost=[({"n": int(last)}, 1000)])[0].id == last
    assert ids(ask("fire", 300, mode="both", boost=[({"n": (0, None)}, 1)])) == ids(ask("fire", 300, mode="both"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": "-x"}, r"no column 'x' to order by \(columns: n\)"),
        ({"order": ["n"] * 4}, "`order` has 4 columns; at most 3"),
        ({"order": 'a"b'}, "a column is a name without a double quote"),
        ({"boost": [({"x": 1}, 1)]}, r"no column 'x' to filter by \(columns: n\)"),
        ({"boost": [({"n": 1}, 1)] * 17}, "16"),
    ],
)
def test_wrong_options(searched, options, words):
    ask = searched([{"id": "1", "text": "one ticket", "n": 1}], encode=False)
    for index in ask.engines:
        with pytest.raises(InputError, match=words):
            index.search("ticket", mode="words", **options)


@pytest.mark.parametrize(
    "options",
    [{"order": [1]}, {"boost": [{"n": 1}]}, {"boost": [({}, 1)]}, {"boost": [({"n": 1}, "1")]}, {"boost": {"n": 1}},
     {"boost": [({"n": 1}, float("nan"))]}, {"boost": [({"n": 1}, True)]}, {"order": 5}],
)  # fmt: skip
def test_options_that_python_refuses(options):
    with Index(None) as index, pytest.raises(InputError):
        index.search("ticket", mode="words", **options)
