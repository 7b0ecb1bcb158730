"""Order, boost, groups and similar entries, by the native index and the Python package's on one file."""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from native_index import NativeIndex, same_hits

from msdc.errors import InputError
from msdc.search.documents import Hit, as_document
from msdc.search.index import Index

WORDS = ("apple", "river", "stone", "naïve", "北京", "car", "light")
Ask = Callable[..., list[Hit]]


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
    """Three deviations above the model's cosines of unrelated sentences; a threshold only hides hits."""
    ask = searched(
        [{"id": f"{n}", "text": f"{WORDS[n % 7]} {n} of {WORDS[n % 5]}", "n": n * 7 % 40} for n in range(40)]
    )
    plain = ask("apple", mode="vectors")
    mean, deviation = (plain[15].cosine + plain[16].cosine) / 2 - 0.03, 0.01
    with closing(sqlite3.connect(ask.engines[0].path)) as db, db:
        db.execute("INSERT OR REPLACE INTO facts VALUES ('cosines', ?)", [json.dumps([mean, deviation])])
    level = mean + 3 * deviation
    for threshold in (None, (plain[25].cosine + plain[26].cosine) / 2, (plain[4].cosine + plain[5].cosine) / 2):
        hits = ask("apple", mode="vectors", order="-n", threshold=threshold)
        not_hidden = [hit for hit in plain if hit.cosine >= (threshold or -1)]
        matching = [hit for hit in not_hidden if hit.cosine >= level]
        in_order = sorted(matching, key=lambda hit: -hit.metadata["n"])
        assert ids(hits) == ids([*in_order, *(hit for hit in not_hidden if hit.cosine < level)])
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


def test_each_value_has_one_hit(searched):
    """Equal values are alike, lists as a whole; an entry without a value is a group."""
    added = {"again": 5.0, "same day": "2031-05-31T02:00+02:00", "lists": ["2031-06-02", "7"]}
    ask = searched(rows_of("größe", VALUES | added), encode=False)
    assert ids(ask("ticket ", group="größe")) == " ".join(VALUES).replace(" text", "")
    last_of_a_group = ask("ticket ", group="größe", order="größe", where={"größe": [5, "2031-05-31"]})
    assert ids(last_of_a_group) == "int early day noon"


@pytest.mark.parametrize("mode", ["words", "vectors", "both"])
def test_top_and_offset_count_groups(searched, mode):
    rows = [{"id": f"{n}", "text": f"mail {n} {'urgent ' * (n % 4)}", "thread": f"t{n % 7}" if n % 9 else None, "n": n}
            for n in range(60)]  # fmt: skip
    ask = searched(rows)
    plain = ask("urgent mail", 60, mode=mode)
    for size, order, where in (
        (1, (), None),
        (3, "-n", None),
        (2, (), {"n": (10, 50)}),
        (99, "thread", {"thread": "t3"}),
    ):
        ranked = ask("urgent mail", 60, mode=mode, order=order, where=where)
        keys = [hit.metadata["thread"] or hit.id for hit in ranked]
        groups = list(dict.fromkeys(keys))
        for offset, top in ((0, 60), (0, 1), (2, 3), (5, 4), (70, 5)):
            counts, expected = Counter(), []
            for hit, key in zip(ranked, keys, strict=True):
                counts[key] += 1
                if key in groups[offset : offset + top] and counts[key] <= size:
                    expected.append(hit.id)
            hits = ask(
                "urgent mail", top, mode=mode, order=order, where=where, group="thread", group_size=size, offset=offset
            )
            assert [hit.id for hit in hits] == expected
    assert len(plain) > 50


def test_a_large_group_hides_no_other(searched):
    """Of 1,300 entries the best 1,250 are of a single thread."""
    rows = [{"id": f"{n}", "text": f"invoice{' and other words' * (n >= 1250)} {n}",
             "thread": "a" if n < 1250 else f"{n % 5}"} for n in range(1300)]  # fmt: skip
    ask = searched(rows, encode=False)
    hits = ask("invoice ", 4, group="thread")
    assert [hit.metadata["thread"] for hit in hits] == ["a", "0", "1", "2"]
    assert len(ask("invoice ", 9, group="thread", group_size=2)) == 12


def test_entries_with_the_same_words_and_removed_ones_are_no_hits_of_a_group(searched):
    rows = [{"id": f"{n}", "text": "the same" if n < 3 else f"the same {n}", "thread": "a"} for n in range(5)]
    ask = searched(rows)
    for index in ask.engines:
        index.remove(["3"])
    assert ids(ask("same ", group="thread", group_size=3)) == "0 4"
    assert ids(ask("same ", group="thread", group_size=3, distinct=False)) == "0 1 2"
    assert ids(ask("same ", group="thread", group_size=3, where={"thread": {"not": "a"}})) == ""


# --- entries that are like one ----------------------------------------------------------------------------------------


def test_the_entries_nearest_to_the_mean_of_an_entry(searched, model):
    """Against the cosines of NumPy, with and without a model; the entry and its copies are no hits."""
    texts = [". ".join(f"{WORDS[(n * part) % 7]} {n} and {WORDS[n % 3]} number {part}" for part in range(1 + n % 4))
             for n in range(40)]  # fmt: skip
    rows = [{"id": f"{n}", "text": text, "n": n, "thread": n % 6} for n, text in enumerate(texts)]
    ask = searched([*rows, {"id": "copy", "text": texts[5].upper(), "n": 50, "thread": 9}])
    python, native = ask.engines
    bare = Index(None, python.path)
    parts = dict[str, list]()
    for key, text, start, end in bare._db.execute(
        "SELECT key, text, start, end FROM passages JOIN documents ON document = documents.id"
    ):
        parts.setdefault(key, []).append(text[start:end])
    vectors = {key: model.encode(texts_of_one) for key, texts_of_one in parts.items()}
    for key in ("5", "7", "13"):
        mean_D = sum(vector_D / np.linalg.norm(vector_D) for vector_D in vectors[key])
        mean_D /= np.linalg.norm(mean_D)
        cosines = {other: max(vector_D @ mean_D / np.linalg.norm(vector_D) for vector_D in vectors_PD)
                   for other, vectors_PD in vectors.items() if other != key}  # fmt: skip
        hits = python.similar(key, 50, distinct=False).hits
        assert {hit.id for hit in hits} == cosines.keys()
        np.testing.assert_allclose([hit.cosine for hit in hits], [cosines[hit.id] for hit in hits], atol=0.02)
        assert [hit.cosine for hit in hits] == sorted((hit.cosine for hit in hits), reverse=True)
        for options in (
            {"distinct": False}, {}, {"where": {"n": (3, 20)}, "offset": 2}, {"group": "thread", "group_size": 2},
            {"threshold": hits[20].cosine}, {"order": "-n"}, {"boost": [({"thread": 3}, 1)]},
        ):  # fmt: skip
            for top in (4, 50):
                expected = python.similar(key, top, **options).hits
                assert same_hits(expected, native.similar(key, top, **options).hits)
                assert same_hits(expected, bare.similar(key, top, **options).hits)
                assert key not in {hit.id for hit in expected}
    assert "copy" in {hit.id for hit in python.similar("5", 50, distinct=False).hits}
    assert "copy" not in {hit.id for hit in python.similar("5", 50).hits}
    bare.close()


def test_an_id_that_is_unknown_or_has_no_vector(searched):
    ask = searched([{"id": "1", "text": "one ticket"}, {"id": "2", "text": "\U00012000\U00012001"}])
    for index in ask.engines:
        index.add([{"id": "3", "text": "another ticket"}])
        assert ids(index.similar("1").hits) == "3"
        index.remove(["3"])
        assert index.similar("1").hits == []
        with pytest.raises(InputError, match="no document '3' in the index"):
            index.similar("3")
        with pytest.raises(InputError, match="document '2' has no vector: the model could not read it"):
            index.similar("2")
        with pytest.raises(InputError, match="`top` 0: must be at least 1"):
            index.similar("1", 0)


def test_an_empty_index_has_no_id(core, tmp_path):
    with Index(None) as python, NativeIndex(core, None, None, tmp_path) as native:
        for index in (python, native):
            with pytest.raises(InputError, match="no document '1' in the index"):
                index.similar("1")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"order": "-x"}, r"no column 'x' to order by \(columns: n\)"),
        ({"order": ["n"] * 4}, "`order` has 4 columns; at most 3"),
        ({"order": 'a"b'}, "a column is a name without a double quote"),
        ({"boost": [({"x": 1}, 1)]}, r"no column 'x' to filter by \(columns: n\)"),
        ({"boost": [({"n": 1}, 1)] * 17}, "16"),
        ({"group": "x"}, r"no column 'x' to group by \(columns: n\)"),
        ({"group": 'a"b'}, "a column is a name without"),
        ({"group_size": 2}, "is for `group` only"),
        ({"group": "n", "group_size": 0}, "`group_size` 0: must be at least 1"),
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
