"""The native index against the Python package's: the same documents, hits, spans, counts and errors."""

import ctypes
import json
import math
import os
import random
import re
import shutil
import sqlite3
import threading
from contextlib import closing

import hostile_inputs
import native_index
import numpy as np
import phone_search
import pytest
import tiny_models as tiny
from native_index import NativeIndex, same_hits

import msdc
from msdc.errors import InputError, MsdcError, OtherModel
from msdc.search.index import Index

WORDS = [
    *("apple", "river", "stone", "naïve", "北京", "Müller", "E-4711", "getUserAddress", "the", "of", "Wi-Fi", "café"),
    *("한국어", "O'Brien", "v1.2"),
]


@pytest.fixture
def opened(core, model, tmp_path):
    """A function that opens a file in the test's folder, or one in memory; all are closed at the end."""
    indexes = []

    def open_index(name: str | None = "native.sqlite", *, by: object = "model", **options: object) -> NativeIndex:
        path = None if name is None else tmp_path / name
        indexes.append(NativeIndex(core, model if by == "model" else by, path, tmp_path / "bundles", **options))
        return indexes[-1]

    yield open_index
    for index in indexes:
        index.close()


def random_documents(count: int) -> list[dict]:
    chance = random.Random(count)
    documents = []
    for number in range(count):
        text = ". ".join(" ".join(chance.choices(WORDS, k=chance.randint(1, 30))) for _ in range(chance.randint(1, 4)))
        row = {"text": f"{text}.", "year": chance.randint(2000, 2010), "lang": chance.choice(["de", "en", None])}
        day = chance.choice([None, "", 5, "5.0", "2031-05-31", "2031-05-31T01:00+02:00", ["2031-06-01", "x"], "ä"])
        row |= {"größe": day} if chance.random() < 0.9 else {}
        if chance.random() < 0.5:
            row["title"] = " ".join(chance.choices(WORDS, k=2))
        if chance.random() < 0.7:
            row["id"] = f"d{number}"
        documents.append(row)
    return documents


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["native", "python"])
def test_what_the_index_has_is_not_encoded_again(opened, model, tmp_path, monkeypatch, engine):
    """Notes that move to other ids, a sentence that is appended, a passage that stands in another document."""
    encoded: list[str] = []
    encode = model.encode
    monkeypatch.setattr(model, "encode", lambda texts: encoded.extend(texts) or encode(texts))
    index = opened() if engine == "native" else Index(model, tmp_path / "python.sqlite")
    notes = [
        {"id": f"in/{n}", "title": "Café", "text": f"Note {n} says that the {n}. car is red. 🚗"} for n in range(30)
    ]
    log = " ".join(f"Line {n} says that valve {n} was closed and its seal was looked at, 東京 {n}." for n in range(20))
    index.add([*notes, {"id": "log", "text": log}])
    encoded.clear()
    index.update([{**note, "id": note["id"].replace("in", "out"), "read": True} for note in notes])
    index.remove([note["id"] for note in notes])
    assert encoded == []
    index.update([{"id": "log", "text": f"{log} One more line of this log was added today."}])
    assert encoded == ["One more line of this log was added today."]
    encoded.clear()
    index.update([{"id": "log", "title": "Other", "text": log}])  # the title is part of each passage
    assert len(encoded) >= 20
    assert all(text.startswith("Other. ") for text in encoded)
    fresh = Index(model)
    fresh.add([*({**note, "id": note["id"].replace("in", "out")} for note in notes),
               {"id": "log", "title": "Other", "text": log}])  # fmt: skip
    cosines = [
        {hit.id: hit.cosine for hit in opened_index.search("a red car", 40, mode="vectors").hits}
        for opened_index in (index, fresh)
    ]
    assert cosines[0] == pytest.approx(cosines[1], abs=1e-4)


@pytest.mark.parametrize("engine", ["native", "python"])
def test_similar_words_are_those_of_the_documents_that_a_filter_leaves(opened, model, tmp_path, engine):
    """One user's words do not hide the correction of another user's typing error."""
    index = opened() if engine == "native" else Index(model, tmp_path / "python.sqlite")
    near = [{"id": f"b{letter}", "text": f"kubernets{letter}", "user": "b"} for letter in "abcdefghijklmnopq"]
    index.add([{"id": "a", "text": "The kubernetes cluster was upgraded.", "user": "a"}, *near])
    for mode in ("words", "both"):
        hits = index.search("kubernets ", mode=mode, where={"user": "a"}).hits
        assert [hit.id for hit in hits] == ["a"]
        assert hits[0].matches
    assert index.search("kubernets ", 1, mode="words", where={"user": "b"}).hits[0].id.startswith("b")


def test_documents_and_answers_of_a_phone(opened, model, tmp_path):
    """Every query in every way it is asked for, on an index that each engine wrote."""
    native, oracle = opened(), Index(model, tmp_path / "python.sqlite")
    assert native.add(phone_search.DOCUMENTS) == oracle.add(phone_search.DOCUMENTS)
    assert phone_search.contents(native.path) == phone_search.contents(oracle.path)
    exchanged = opened("python.sqlite")
    for question in phone_search.QUERIES:
        expected = phone_search.answer(oracle, *question)
        for index in (native, exchanged):
            assert same_hits(expected, phone_search.answer(index, *question)), question
    assert [native.ids(), native.unread, len(native)] == [oracle.ids(), oracle.unread, len(oracle)]
    assert native.relevant_cosine == oracle.relevant_cosine
    for key in ("d5", "none"):
        assert native.get(key) == oracle.get(key)
    oracle.close()


def test_random_documents_and_queries(opened, model, tmp_path):
    documents = random_documents(700)
    native, oracle = opened(), Index(model, tmp_path / "python.sqlite")
    for index in (native, oracle):
        index.add(documents)
        index.update([{"id": f"d{number}", "text": f"Changed {number}."} for number in range(0, 700, 50)])
        index.remove([f"d{number}" for number in range(0, 700, 9)])
    assert phone_search.contents(native.path) == phone_search.contents(oracle.path)
    chance = random.Random(1)
    for number in range(120):
        query = " ".join(chance.choices(WORDS, k=chance.randint(1, 4)))
        options = {
            "mode": ("words", "vectors", "both")[number % 3],
            "where": chance.choice([
                None, {"year": (2003, 2007)}, {"lang": ["de", "fr"]}, {"lang": {"not": "de"}},
                {"or": [{"lang": "de"}, {"and": [{"year": (2003, 2007)}, {"lang": "fr"}]}], "not": {"year": 2005}},
            ]),
            "offset": chance.choice([0, 0, 7]), "distinct": chance.random() < 0.7,
            "threshold": chance.choice([None, None, 0.3]),
            "order": chance.choice([(), (), "year", ["-größe"], ["größe", "-year"], ["-lang", "größe", "year"]]),
            "boost": chance.choice([(), [({"year": (2005, None)}, 3), ({"not": {"lang": "de"}}, -1.5)],
                                    [({"größe": "ä"}, 0.25)]]),
            "group": (group := chance.choice([None, None, "year", "größe", "lang"])),
            "group_size": 1 if group is None else chance.choice([1, 2]),
        }  # fmt: skip
        expected, hits = (index.search(query, 8, **options).hits for index in (oracle, native))
        assert same_hits(expected, hits), (query, options)
    oracle.close()


def test_offsets_in_utf16(opened):
    index = opened(None)
    index.add(["\U0001f600 smile. Emoji before the \U0001f697 ticket!"])
    raw = json.dumps({"query": "ticket", "mode": "words"}).encode()
    (hit,) = index.search_json(raw, ctypes.c_size_t(len(raw)))
    raw = json.dumps({"query": "ticket", "mode": "words", "offsets": "utf16"}).encode()
    (wide,) = index.search_json(raw, ctypes.c_size_t(len(raw)))

    def utf16_length(end: int) -> int:
        return len(hit["text"][:end].encode("utf-16-le")) // 2

    assert [wide["start"], wide["end"]] == [utf16_length(hit["start"]), utf16_length(hit["end"])]
    assert wide["matches"] == [[*map(utf16_length, span)] for span in hit["matches"]]
    assert wide["matches"] != hit["matches"]


def test_hostile_texts(opened, model, tmp_path):
    native, oracle = opened(), Index(model, tmp_path / "python.sqlite")
    for index in (native, oracle):
        index.add(hostile_inputs.DOCUMENTS)
    assert phone_search.contents(native.path) == phone_search.contents(oracle.path)
    for name in ("NULs inside", "controls", "directions", "cases", "code", "letters of Hangul"):
        expected, hits = (index.search(hostile_inputs.TEXTS[name], 9).hits for index in (oracle, native))
        assert same_hits(expected, hits), name
    oracle.close()


def test_an_index_in_memory_without_a_model_and_from_bytes(opened, model, tmp_path):
    native, oracle = opened(None, by=None), Index(None)
    rows = [{"id": str(number), "text": text} for number, text in enumerate(("word " * 90, "A cat. A dog ran."), 1)]
    native.add(rows)
    oracle._put([msdc.search.index.as_document(row, "") for row in rows], rows, False, encode=False)
    for query in ("word", "dog"):
        assert same_hits(oracle.search(query).hits, native.search(query).hits)
    with Index(model, tmp_path / "python.sqlite") as written:
        written.add(phone_search.DOCUMENTS)
        expected = written.search("the ticket", 9).hits
    content = (tmp_path / "python.sqlite").read_bytes()
    copy = opened(None, content=content)
    assert same_hits(expected, copy.search("the ticket", 9).hits)
    copy.add(["a ticket more"])
    assert len(copy) == len(phone_search.DOCUMENTS) + 1
    again = opened(None, content=copy.content())
    assert again.ids() == copy.ids()
    assert same_hits(copy.search("the ticket", 9).hits, again.search("the ticket", 9).hits)
    assert opened(None).content() == b""
    with pytest.raises(InputError, match="copy it with a backup"):
        opened("python.sqlite").content()
    assert (tmp_path / "python.sqlite").read_bytes() == content
    with pytest.raises(InputError, match="the bytes are no search index"):
        opened(None, content=b"x" * 4096)
    with pytest.raises(InputError, match="damaged"):
        opened(None, content=content[: len(content) // 2])


# --- writing ----------------------------------------------------------------------------------------------------------


def test_an_unchanged_text_is_not_encoded_again(opened):
    index = opened()
    index.add([{"id": str(number), "text": f"A cat sat on mat {number}."} for number in range(3)])
    assert index.encoded == 3
    index.update([{"id": "1", "text": "A cat sat on mat 1.", "n": 1}, {"id": "2", "text": "Another."}])
    assert index.encoded == 4
    assert json.loads(index.get("1").metadata) == {"n": 1}
    index.update([{"id": "3", "text": "first"}, {"id": "3", "text": "second"}])
    assert [index.get("3").text, len(index)] == ["second", 4]


def test_a_batch_is_written_or_not(opened, model):
    index = opened()
    index.add([{"id": "a", "text": "first"}])
    rows = [{"id": "b", "text": "second"}, {"id": "a", "text": "again"}]
    with pytest.raises(InputError, match="a document 'a' exists already; use update"):
        index.add(rows)
    with pytest.raises(InputError, match="not a JSON object"):
        index.write(index.batch([{"text": "x", "metadata": "[1]"}]), model.encode(["x"]))
    for vectors_ND, words in (
        (np.zeros((0, model.width)), "0 vectors for 1 texts"), (np.zeros((1, 7)), "vectors of 7 numbers"),
        (np.full((1, model.width), math.nan), "holds NaN or infinity"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            index.write(index.batch([{"text": "second"}]), vectors_ND)
    assert index.ids() == ["a"]
    with pytest.raises(InputError, match="257 documents in a batch; at most 256"):
        index.batch([{"text": "x"}] * 257)
    # A zero vector: the document is found by its words.
    index.write(index.batch([{"text": "second"}]), np.zeros((1, model.width)))
    assert index.unread == 1


def test_data_has_no_vectors_as_in_python(opened, model, tmp_path):
    chance, texts = random.Random(7), []
    for number in range(120):
        parts = [
            "".join(chance.choices(signs, k=chance.choice([10, 39, 40, 41, 120, 199, 200, 201, 900])))
            for signs in chance.choices(["abcXYZ019+/=", "abcd", "0123456789abcdef", "a1(){};,", "äö1", "a1:/.?"], k=3)
        ]
        texts.append(f"Note {number}. {' '.join(parts)}\n{chance.choice(['', 'https://', 'The end.'])}{parts[0]}")
    native, oracle = opened(), Index(model, tmp_path / "oracle.sqlite")
    for index in (native, oracle):
        index.add([{"id": str(number), "text": text} for number, text in enumerate(texts)])
    assert phone_search.contents(native.path) == phone_search.contents(oracle.path)
    oracle.close()


def test_two_writers_and_a_reader_at_once(opened):
    """Three handles in three threads: every document is there at the end, and a search sees whole blocks."""
    opened().add(["common first"])
    indexes, counts = [opened() for _ in range(3)], []

    def write(index: NativeIndex) -> None:
        for number in range(8):
            index.add([f"common {number} {part}" for part in range(5)])

    writers = [threading.Thread(target=write, args=(index,)) for index in indexes[:2]]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        counts.append(len(indexes[2].search("common", 1000, mode="words", distinct=False).hits))
    for writer in writers:
        writer.join()
    assert all(count % 5 == 1 for count in counts)
    assert counts == sorted(counts)
    assert [len(index) for index in indexes] == [81] * 3


# --- another model ----------------------------------------------------------------------------------------------------


def test_an_index_of_another_model(opened, tmp_path):
    index, other = opened(), msdc.load_encoder(tiny.student_folder(4))
    texts = [f"A cat sat on mat {number}." for number in range(20)]
    index.add([*texts, "The dog ran."])
    before = index.path.read_bytes()
    with pytest.raises(OtherModel, match=r"made with another tiny-student, not with this tiny-student-4; open it"):
        opened(by=other)
    assert index.path.read_bytes() == before
    words = opened(by=None)
    assert words.search("dog").hits[0].id == "21"
    for use in (lambda: words.search("dog", mode="vectors"), lambda: words.add(["text"])):
        with pytest.raises(InputError, match="opened without a model, which only words need not"):
            use()
    index.core.set_block(8)
    calls = []
    try:
        assert words.rebuild(other, lambda *numbers: calls.append(numbers)) == 21
        assert words.rebuild(other) == 0
    finally:
        index.core.set_block(native_index.BLOCK)
    assert calls == [(8, 21), (16, 21), (21, 21)]
    for use in (lambda: index.search("dog", mode="vectors"), lambda: index.add(["text"])):
        with pytest.raises(OtherModel, match="made with another"):
            use()
    assert index.search("dog", mode="words").hits[0].id == "21"
    with Index(other, index.path) as oracle, Index(other, tmp_path / "fresh.sqlite") as fresh:
        fresh.add([*texts, "The dog ran."])
        for query in ("cat", "dog ran"):
            expected = fresh.search(query, mode="vectors").hits
            assert same_hits(expected, oracle.search(query, mode="vectors").hits)
            assert same_hits(expected, words.search(query, mode="vectors").hits)


def test_a_rebuild_that_another_takes_over_stops(opened, model):
    index = opened(by=None)
    with Index(model, index.path) as written:
        written.add(["A cat."])
    batch = ctypes.c_void_p()
    other, third = (msdc.load_encoder(tiny.student_folder(seed)) for seed in (4, 5))
    index.core.call("index_rebuild", index.handle, index._reader(other), ctypes.byref(batch))
    opened(by=None).rebuild(third)
    with pytest.raises(OtherModel, match="another process rebuilds it with another model"):
        index.write(batch, index.encode_texts(batch, other))


# --- files ------------------------------------------------------------------------------------------------------------


def test_damage_is_an_error_of_one_line(opened, model, tmp_path, core):
    assets, data = tmp_path / "assets", tmp_path / "data"
    assets.mkdir()
    phone_search.write_data(model, data, assets)
    for name in ("other-model", "broken", "scaled", "lost", "changed", "no-words", "words-gone"):
        words = (data / f"{name}.txt").read_text()
        with pytest.raises(MsdcError, match=re.escape(words)) as error:
            opened(str(data / f"{name}.sqlite")).search("level")
        assert error.value.status == (native_index.OTHER_MODEL if name == "other-model" else native_index.DAMAGED)
        if name in ("broken", "scaled"):
            index = opened(str(data / f"{name}.sqlite"), check=False)
            assert index.search("level", mode="words").hits
            for use in (lambda index=index: index.search("level"), index.check):
                with pytest.raises(InputError, match=words):
                    use()


def test_what_is_no_index_is_not_touched(opened, tmp_path):
    for content, words in (
        (b"text", "exists and is not a search index"), (b"SQLite format 3\0" + b"\0" * 50, r"damaged \(66 bytes\)"),
        (b"SQLite format 3\0" + b"\xff" * 5000, "damaged"),
    ):  # fmt: skip
        (tmp_path / "other.sqlite").write_bytes(content)
        with pytest.raises(InputError, match=words):
            opened("other.sqlite")
        assert (tmp_path / "other.sqlite").read_bytes() == content
    (tmp_path / "gone.sqlite-wal").write_text("log")
    with pytest.raises(InputError, match=r"empty next to its write-ahead log gone.sqlite-wal; put back"):
        opened("gone.sqlite")
    with closing(sqlite3.connect(tmp_path / "table.sqlite")) as db:
        db.execute("CREATE TABLE notes (text)")
    with pytest.raises(InputError, match="exists and is not a search index"):
        opened("table.sqlite")
    with closing(sqlite3.connect(tmp_path / "version.sqlite")) as db:
        db.executescript("CREATE TABLE facts (name, value); INSERT INTO facts VALUES ('format', '2')")
    with pytest.raises(InputError, match=r"another version of msdc \(format 2, this one reads 3\)") as error:
        opened("version.sqlite")
    assert error.value.status == native_index.UNSUPPORTED


def test_a_log_of_another_state_is_not_moved_into_the_file(opened, tmp_path):
    index = opened()
    index.add(["one"])
    index.add(["with a log from here on"])
    former = index.path.read_bytes()
    with closing(sqlite3.connect(index.path)) as reader:
        reader.execute("BEGIN").execute("SELECT * FROM facts").fetchall()  # keeps the log
        index.add([f"two {number}" for number in range(40)])
        log = (tmp_path / "native.sqlite-wal").read_bytes()
    assert log
    (tmp_path / "mixed.sqlite").write_bytes(former[:4096] + b"\xff" * (len(former) - 4096))
    (tmp_path / "mixed.sqlite-wal").write_bytes(log)
    before = (tmp_path / "mixed.sqlite").read_bytes()
    with pytest.raises(InputError, match="damaged"):
        opened("mixed.sqlite").search("two")
    assert (tmp_path / "mixed.sqlite").read_bytes() == before


def test_backup_and_compact(opened, tmp_path):
    index = opened()
    rows = [{"id": f"x{number}", "text": f"a text that is removed again: {number} " * 50} for number in range(200)]
    index.add([*rows, "what stays"])
    index.remove([row["id"] for row in rows])
    assert not (tmp_path / "native.sqlite-wal").exists() or not (tmp_path / "native.sqlite-wal").stat().st_size
    size = index.path.stat().st_size
    index.backup(tmp_path / "copy.sqlite")
    with pytest.raises(InputError, match=r"copy\.sqlite exists already"):
        index.backup(tmp_path / "copy.sqlite")
    assert opened("copy.sqlite").search("stays").hits
    assert (tmp_path / "copy.sqlite").stat().st_size < size / 2
    index.compact()
    assert index.path.stat().st_size < size / 2
    opened(None).backup(tmp_path / "empty.sqlite")
    assert (tmp_path / "empty.sqlite").read_bytes() == b""
    assert not [*tmp_path.glob("*.partial")]


def test_files_that_are_only_read(opened, tmp_path):
    opened("read.sqlite").add(["one ticket"])
    index = opened("read.sqlite", read_only=True)
    assert index.search("ticket").hits
    for use in (lambda: index.add(["two"]), lambda: index.remove(["1"]), index.compact):
        with pytest.raises(MsdcError, match=r"cannot write .*read.sqlite: read-only") as error:
            use()
        assert error.value.status == native_index.READ_ONLY
    index.backup(tmp_path / "copy.sqlite")
    with pytest.raises(InputError, match=r"none\.sqlite is missing"):
        opened("none.sqlite", read_only=True)


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_is_read(core, model, tmp_path):
    """In a child process without root's rights; the file is a copy in memory there."""
    folder = tmp_path / "closed"
    folder.mkdir()
    with NativeIndex(core, model, folder / "read.sqlite", tmp_path / "bundles") as index:
        index.add(["one ticket"])
    (folder / "read.sqlite").chmod(0o444)
    folder.chmod(0o555)
    child = os.fork()
    if not child:
        code = 1
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            with NativeIndex(core, None, folder / "read.sqlite", tmp_path / "bundles") as index:
                if index.search("ticket").hits:
                    code = 2
                    index.remove(["1"])
        except MsdcError as error:
            code = 0 if error.status == native_index.READ_ONLY else 3
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    folder.chmod(0o755)
    assert os.waitstatus_to_exitcode(status) == 0


def test_a_replaced_file_is_not_written(opened, tmp_path):
    index = opened()
    index.add(["one ticket"])
    index.path.rename(tmp_path / "moved.sqlite")
    for use in (lambda: index.add(["two"]), lambda: index.search("ticket"), lambda: index.remove(["1"]), index.compact):
        with pytest.raises(MsdcError, match="replaced or removed since it was opened; open it again") as error:
            use()
        assert error.value.status == native_index.REPLACED
    assert opened("moved.sqlite").ids() == ["1"]


def test_a_lock_that_another_process_holds(opened):
    index = opened(lock_ms=1000)
    index.add(["one ticket"])
    with closing(sqlite3.connect(index.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MsdcError, match="another process has held the lock for 1 s") as error:
            index.add(["two"])
        assert error.value.status == native_index.LOCKED
        assert index.search("ticket").hits
        opened().check()
    assert index.add(["two"]) == 1


def test_interrupt_ends_a_statement(opened):
    index, stopped = opened(), threading.Event()
    index.add([f"word{number} word" for number in range(300)])

    def interrupt() -> None:
        while not stopped.wait(0.0005):
            index.core.functions.msdc_index_interrupt(index.handle)

    thread = threading.Thread(target=interrupt)
    thread.start()
    statuses = set()
    try:
        for _ in range(200):
            try:
                index.search("wrod", 300, mode="words")
            except MsdcError as error:
                statuses.add(error.status)
                break
    finally:
        stopped.set()
        thread.join()
    assert statuses <= {native_index.CANCELLED}
    assert index.search("word", mode="words").hits


# --- what callers pass ------------------------------------------------------------------------------------------------


def test_bad_requests_are_named(opened):
    index = opened()
    index.add([{"text": "one ticket", "n": 1}])
    for request, words in (
        ({"query": " "}, "a query is empty"), ({}, 'no "query"'), ({"query": 1}, "search.query: not a string"),
        ({"query": "x", "top": 0}, "`top` 0: must be at least 1"), ({"query": "x", "offset": -1}, "`offset` -1: must"),
        ({"query": "x", "top": 1.5}, "`top`: expected a whole number"), ({"query": "x", "topp": 1}, "no option 'topp'"),
        ({"query": "x", "mode": "all"}, "`mode` 'all' is unknown; known: words, vectors, both"),
        ({"query": "x", "where": "{}"}, "where: not a list"), ({"query": "x", "where": "[[1,[1],0]]"}, "not a string"),
        ({"query": "x", "where": '[["n",[],0]]'}, "filter 'n': an empty list matches nothing"),
        ({"query": "x", "where": '[{"xor":[[]]}]'}, "where: no operator 'xor'"),
        ({"query": "x", "where": '[{"or":[3]}]'}, "where.or: not a list"),
        ({"query": "x", "where": "[" + '{"not":[[' * 9 + "]]}" * 9 + "]"}, "where: more than 8 levels"),
        ({"query": "x", "where": '[["a\\"b",[1],0]]'}, "a column is a name without a double quote"),
        ({"query": "x", "where": '[["n",[[null,null]],0]]'}, "filter 'n': expected a text"),
        ({"query": "x", "where": '[["n",["a\\u0000"],0]]'}, "filter 'n': a value with a NUL character"),
        ({"query": "x", "where": '[["n",[1]]]'}, "a condition has a column, alternatives"),
        ({"like": "1", "query": "x"}, "`like` is in place of `query`, `mode` and `syntax`"),
        ({"like": 1}, "not a string"),
        ({"like": "x"}, "no document 'x' in the index"),
        ({"query": "x", "order": "n"}, "search.order: not a list"), ({"query": "x", "order": [1]}, "not a string"),
        ({"query": "x", "order": ["n", "-n", "n", "n"]}, "`order` has 4 columns; at most 3"),
        ({"query": "x", "order": ['a"b']}, "order 'a\"b': a column is a name without a double quote or NUL"),
        ({"query": "x", "order": ["n", "-m"]}, r"no column 'm' to order by \(columns: n\)"),
        ({"query": "x", "boost": [['[["n",[1],0]]']]}, "`boost`: expected a pair of a filter and a number"),
        ({"query": "x", "boost": [["[]", 1]]}, "`boost`: a filter without conditions"),
        ({"query": "x", "boost": [['[["n",[1],0]]', "1"]]}, "not a number"),
        ({"query": "x", "boost": [['[["n",[1],0]]', 1]] * 17}, "`boost` has 17 pairs; at most 16"),
        ({"query": "x", "group": "m"}, r"no column 'm' to group by \(columns: n\)"),
        ({"query": "x", "group": 'a"b'}, "group 'a\"b': a column is a name"),
        ({"query": "x", "group": 1}, "not a string"),
        ({"query": "x", "group": "n", "group_size": 0}, "`group_size` 0: must be at least 1"),
        ({"query": "x", "group_size": 2}, "`group_size` is for `group` only"),
        ({"query": "one", "boost": [['[["m",[1],0]]', 1]]}, r"no column 'm' to filter by \(columns: n\)"),
        ({"query": "x", "where": '[["m",[1],0]]'}, r"no column 'm' to filter by \(columns: n\)"),
    ):  # fmt: skip
        raw = json.dumps(request).encode()
        with pytest.raises(InputError, match=words) as error:
            index.search_json(raw, ctypes.c_size_t(len(raw)))
        assert error.value.status == native_index.BAD_ARGUMENT
    for rows, words in (
        ({}, "documents: not a list"), ([{"id": "a"}], 'no "text"'), ([{"text": " \u3000"}], "row 1 has no text"),
        ([{"text": "x"}, {"id": "k", "text": ""}], "document 'k' has no text"), ([{"text": 1}], "not a string"),
        ([{"id": "", "text": "x"}], "row 1: an empty id"), ([{"id": "a\0b", "text": "x"}], "NUL character"),
        ([{"text": "x", "metadata": "{\0}"}], "metadata has a NUL character"),
        ([{"text": "x", "metadata": {}}], "not a string"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            index.batch(rows)
    with pytest.raises(InputError, match="an empty id, or one with a NUL"):
        index.remove([""])


def fuzz(index: NativeIndex, rounds: int) -> None:
    """Mutated JSON: an answer or an error of one line, and the index is what it was."""
    chance, before = random.Random(rounds), index.ids()
    seeds = [
        json.dumps([{"id": "f1", "text": "a fuzzed text", "title": "t", "metadata": '{"n": 1}'}]).encode(),
        json.dumps({"query": 'one "ticket" -x', "top": 3, "where": '[["n",[1,[null,2],null],1]]', "offset": 1,
                    "threshold": 0.1, "distinct": False, "syntax": "operators", "order": ["-n"],
                    "boost": [['[["n",[1],0]]', 2]], "group": "n", "group_size": 2}).encode(),
        json.dumps(["a", "b"]).encode(),
    ]  # fmt: skip
    parts = [
        b'"',
        b"\\",
        b"\\ud800",
        b"\xff",
        b"\0",
        b"[" * 99,
        b"{",
        b"}",
        b"1e999",
        b"null",
        b",",
        b"\xf0\x9f",
        b"-0",
    ]
    for number in range(rounds):
        raw = bytearray(seeds[number % 3])
        for _ in range(chance.randint(1, 4)):
            start = chance.randrange(len(raw) + 1)
            raw[start : start + chance.choice([0, 0, 1, 5])] = chance.choice(
                [*parts, bytes([chance.randrange(256)]), raw[: chance.randrange(9)]]
            )
        content = bytes(raw)
        try:
            if number % 3 == 0:
                index.core.functions.msdc_index_batch_close(index.batch(content))
            elif number % 3 == 1:
                index.search_json(content, ctypes.c_size_t(len(content)))
            else:
                index.core.call("index_remove", index.handle, content, ctypes.c_size_t(len(content)),
                                ctypes.byref(ctypes.c_int64()))  # fmt: skip
        except MsdcError as error:
            assert "\n" not in str(error)
            assert error.status in (native_index.BAD_ARGUMENT, native_index.UNSUPPORTED), error
    assert index.ids() == before


def test_mutated_json(opened):
    index = opened()
    index.add([{"id": "t", "text": "one ticket", "n": 1}])
    fuzz(index, 1500)
