"""The file of an index and other processes: writers, readers, replaced files, earlier versions, files of others."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

import msdc
from msdc.errors import InputError, ReplacedIndex
from msdc.search.documents import Document
from msdc.search.index import Index

pytestmark = pytest.mark.usefixtures("user_folder")


@pytest.fixture(scope="module")
def model() -> msdc.Encoder:
    return msdc.load_encoder("msdc-mini")


def test_readers_see_what_a_writer_commits_and_a_kill_loses_only_what_was_not(model, tmp_path):
    path = tmp_path / "notes.sqlite"
    reader = msdc.open_index(path, model)
    program = (
        "import sys, msdc\n"
        "index = msdc.open_index(sys.argv[1])\n"
        "index.add([f'text number {i}' for i in range(300)])\n"
        "print('ready', flush=True)\n"
        "with index._transaction() as db:\n"
        "    db.execute('DELETE FROM documents')\n"
        "    print('open', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(path)], stdin=-1, stdout=-1, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        assert len(reader) == 300
        assert reader.search("text number 7", 1).hits[0].text == "text number 7"
        assert writer.stdout.readline() == "open\n"
        assert reader.search("text number 8", 1).hits[0].text == "text number 8"  # a writer blocks no reader
        reader._db.execute("PRAGMA busy_timeout = 100")
        with pytest.raises(InputError, match="another process has held the lock"):
            reader.add(["blocked"])
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    reader.add(["one more"])
    assert len(msdc.open_index(path, model)) == 301


def test_a_search_beside_an_updater_sees_one_state(model, tmp_path):
    path = tmp_path / "notes.sqlite"
    writer, reader = (msdc.open_index(path, model) for _ in range(2))
    states = [[f"{word} number {n}" for n in range(12)] for word in ("apple", "river")]
    writer.add({"id": n, "text": text} for n, text in enumerate(states[0]))
    expected = {text: float(row @ model.encode(["a fruit"])[0]) for state in states
                for text, row in zip(state, model.encode(state), strict=True)}  # fmt: skip
    stop = threading.Event()

    def update():
        while not stop.is_set():
            for state in reversed(states):
                writer.update({"id": n, "text": text} for n, text in enumerate(state))

    updater = threading.Thread(target=update)
    updater.start()
    try:
        answers = [reader.search("a fruit", 12, mode="vectors").hits for _ in range(100)]
        while len({hits[0].text.split()[0] for hits in answers}) < 2 and len(answers) < 5000:
            answers.append(reader.search("a fruit", 12, mode="vectors").hits)
    finally:
        stop.set()
        updater.join()
    for hits in answers:
        assert len(hits) == 12
        assert len({hit.text.split()[0] for hit in hits}) == 1
        assert all(abs(hit.cosine - expected[hit.text]) < 4e-3 for hit in hits)
    assert len({hits[0].text.split()[0] for hits in answers}) == 2  # both were met


def test_an_index_of_an_earlier_version_is_kept_and_has_a_way_out(model, tmp_path):
    path = tmp_path / "old.sqlite"
    with closing(sqlite3.connect(path)) as database:
        database.executescript("""
            CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE documents (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, title TEXT NOT NULL,
              text TEXT NOT NULL, metadata TEXT NOT NULL, crc INTEGER NOT NULL);
            CREATE TABLE passages (id INTEGER PRIMARY KEY, document INTEGER, vector BLOB);
            CREATE VIRTUAL TABLE words USING fts5(title, text, content='documents', content_rowid='id');
            INSERT INTO facts VALUES ('format', '1');
        """)
        document = Document("n1", "The soup needs salt.", "Kitchen", '{"year": 2021}')
        fields = "INSERT INTO documents (key, text, title, metadata, crc) VALUES (?, ?, ?, ?, ?)"
        with database:
            database.execute(fields, (*document, document.crc))
    before = path.read_bytes()
    with pytest.raises(
        InputError, match=r"format 1, this one reads 3\); write its documents to a new one: msdc search"
    ):
        msdc.open_index(path, model)
    with msdc.open_index(path, model, index=tmp_path / "new.sqlite") as new:
        hit = new.search("sopa salada", where={"year": 2021}).hits[0]
    assert (hit.id, hit.title, hit.metadata) == ("n1", "Kitchen", {"year": 2021})
    assert path.read_bytes() == before
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE documents SET text = 'The soup needs sugar.'")
    with pytest.raises(InputError, match=r"damaged one \(document n1\)"):
        msdc.open_index(path, model, index=tmp_path / "other.sqlite")
    assert not (tmp_path / "other.sqlite").exists()


def test_ids_are_given_inside_the_transaction(model, tmp_path):
    path = tmp_path / "notes.sqlite"
    msdc.open_index(path, model).add([{"id": 2**63 - 1, "text": "the last number"}, {"id": 3, "text": "three"}])
    program = (
        "import sys, msdc; i = msdc.open_index(sys.argv[1]); [i.update([f'{sys.argv[2]} {n}']) for n in range(15)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(path), name], stderr=-1) for name in "ab"]
    index = msdc.open_index(path, model)
    threads = [threading.Thread(target=lambda name: [index.add([f"{name} {n}"]) for n in range(10)], args=(name,))
               for name in "cd"]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [process.communicate()[1] for process in running] == [b"", b""]
    assert len(index) == 2 + 2 * 15 + 2 * 10
    assert index.search("three", mode="words").hits[0].id == "3"
    index.update([{"id": "x", "text": "first"}, {"id": "y", "text": "other"}, {"id": "x", "text": "second"}])
    assert [hit.text for hit in index.search("first second", mode="words").hits] == ["second"]
    # A number that another document of the block has as its id is not given.
    small = Index(model)
    small.update(["apple", {"id": "1", "text": "river"}, "stone"])
    assert [small.search(word, mode="words").hits[0].id for word in ("apple", "river", "stone")] == ["2", "1", "3"]
    with pytest.raises(InputError, match="a document 'z' exists already"):
        index.add([{"id": "z", "text": "one"}, {"id": "z", "text": "two"}])


def test_what_is_no_index_is_not_touched(model, tmp_path):
    mine = tmp_path / "thesis.doc"
    mine.write_text("do not lose me")
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    for path in (mine, tmp_path / "other.sqlite"):
        before = path.read_bytes()
        with pytest.raises(InputError, match="exists and is not a search index"):
            Index(model, path)
        assert path.read_bytes() == before


@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_gone_is_noticed(model, tmp_path, how):
    """By the next write and the next search; nothing is written to a file that nobody opens again."""
    path, copy = tmp_path / "notes.sqlite", tmp_path / "copy.sqlite"
    with msdc.open_index(path, model) as index:
        index.add([{"id": "old", "text": "The old note."}])
        index.backup(copy)
    index = msdc.open_index(path, model)
    index.add([{"id": "second", "text": "The second note."}])
    if how == "removed":
        for file in tmp_path.glob("notes.sqlite*"):
            file.unlink()
    else:
        os.replace(copy, path)
    for use in (lambda: index.add(["A third note."]), lambda: index.search("note"), index.compact, index.ids):
        with pytest.raises(ReplacedIndex, match="replaced or removed since it was opened; open it again"):
            use()
    index.close()
    with msdc.open_index(path, model) as again:
        assert again.ids() == ([] if how == "removed" else ["old"])
        again.add(["A third note."])


def test_a_foreign_change_is_not_taken_for_checked(model, tmp_path):
    path = tmp_path / "notes.sqlite"
    with msdc.open_index(path, model) as index:
        index.add([f"Note {number} about the garden." for number in range(200)])
    index = msdc.open_index(path, model)
    index.add(["One more about trains."])
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"Note 77")] ^= 255
    path.write_bytes(raw)
    index.close()
    with pytest.raises(InputError, match="damaged"):
        msdc.open_index(path, model)
