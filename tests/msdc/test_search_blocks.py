"""Blocks of vectors, and which files are checked when they are opened."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing

import numpy as np
import pytest
import tiny_models as tiny
from click.testing import CliRunner

import msdc
from msdc.commands.search import command
from msdc.errors import InputError
from msdc.search import blocks, file, vectors
from msdc.search.blocks import Passage, add_passages, read_blocks, remove_documents
from msdc.search.index import Index
from msdc.search.ranking import Connection, add_document, run_all, sql
from msdc.search.vectors import PassageVectors

WIDTH = 4


pytestmark = pytest.mark.usefixtures("user_folder")


@pytest.fixture(scope="module")
def model():
    return msdc.load_encoder(tiny.student_folder(3))


@pytest.fixture
def path(model, tmp_path):
    target = tmp_path / "notes.sqlite"
    with Index(model, target) as index:
        index.add([{"id": f"n{n}", "text": f"A cat sat on mat {n}."} for n in range(40)])
    return target


@pytest.fixture
def checks(monkeypatch):
    """For each full check that follows an entry."""
    checked = []
    monkeypatch.setattr(file, "check_passages", lambda db: checked.append(blocks.check_passages(db)))
    return checked


# --- blocks -----------------------------------------------------------------------------------------------------------


def passage(number: int) -> Passage:
    return Passage(0, 1, 0.5, bytes([number % 100 + 1] * WIDTH))


@pytest.mark.parametrize(("most", "spare"), [(1, 8), (3, 1), (3, 8), (256, 8)])
def test_blocks_are_those_of_a_list(monkeypatch, most, spare):
    """Added and removed at random: in memory as in a plain list, each block full but for removed ones."""
    monkeypatch.setattr(blocks, "MOST", most)
    monkeypatch.setattr(vectors, "SPARE", spare)
    chance, expected, read = np.random.default_rng(most), list[tuple[int, int, bytes]](), PassageVectors()
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=Connection)) as db:
        db.execute("PRAGMA foreign_keys = ON")
        run_all(db, "schema")
        number = 0
        for _ in range(30):
            written = []
            for _ in range(chance.integers(0, 7)):
                row = add_document(db, str(number), "text", "", "{}", 0)
                parts = [passage(number + n) for n in range(chance.integers(1, 4))]
                written += [(row, part if chance.random() < 0.9 else Passage(0, 1, None, None)) for part in parts]
                number += 1
            before = db.execute("SELECT max(seq) FROM sqlite_sequence WHERE name = 'passages'").fetchone()[0] or 0
            add_passages(db, written)
            for passage_row, (row, part) in enumerate(written, before + 1):
                expected += [(passage_row, row, part.vector)] if part.vector else []
            keys = [str(key) for key in chance.integers(0, number + 1, chance.integers(0, 5))]
            keys_json = json.dumps(keys)
            selected = db.execute(
                "SELECT id FROM documents WHERE key IN (SELECT value FROM json_each(?))", (keys_json,)
            )
            rows = {row for (row,) in selected}
            assert remove_documents(db, keys_json) == len(rows)
            expected = [entry for entry in expected if entry[1] not in rows]
            stored = read_blocks(db, "blocks")
            assert all(0 < len(block.passages_N) <= most for block in stored)
            assert [entry for block in stored for entry in zip(
                block.passages_N.tolist(), block.documents_N.tolist(), (row.tobytes() for row in block.codes_ND),
                strict=True)] == expected  # fmt: skip
            assert {block for (block,) in db.execute("SELECT block FROM passages WHERE block IS NOT NULL")} == {
                block.row for block in stored
            }
            read.refresh(db)
            read.compare(np.ones(WIDTH, np.float32))
            best = {
                row: max(0.5 * sum(code) for _, document, code in expected if document == row) for _, row, _ in expected
            }
            assert read.nearest(10**6, None) == pytest.approx(best)
            opened = PassageVectors()
            opened.refresh(db)
            for row in best:
                np.testing.assert_array_equal(read.mean_of(row), opened.mean_of(row))
            assert not db.execute("SELECT * FROM blocks WHERE id NOT IN (SELECT block FROM passages)").fetchall()


def test_only_changed_blocks_are_read_again(model, path, monkeypatch):
    monkeypatch.setattr(blocks, "MOST", 10)
    with Index(model, path) as index:
        index.rebuild(msdc.load_encoder(tiny.student_folder(4)))  # in blocks of ten
        index.search("cat", mode="vectors")
        index.remove(["n15"])
        index.add(["A late cat."])
        read = []
        monkeypatch.setattr(
            vectors, "read_blocks", lambda *arguments: read.append(arguments[2]) or read_blocks(*arguments)
        )
        index.search("cat", mode="vectors")
        assert index._db.execute("SELECT count(*) FROM blocks").fetchone() == (5,)
    assert read == [2, 5]


def test_a_write_moves_no_vectors(model, path):
    with Index(model, path) as index:
        index.search("cat", mode="vectors")
        codes = index._vectors._all_codes
        index.remove(["n15", "n39"])
        index.add(["A late cat."])
        hits = index.search("cat", 100, mode="vectors").hits
        assert index._vectors._all_codes is codes
    with Index(model, path) as index:
        assert [hit.id for hit in hits] == [hit.id for hit in index.search("cat", 100, mode="vectors").hits]
        assert len(index) == len(hits) == 39


def test_the_signs_find_the_nearest():
    """In groups of similar vectors, after removed and added ones, with one to three passages in a document."""
    chance = np.random.default_rng(0)
    centers = chance.standard_normal((100, 96))

    def passages(documents):
        for document in documents:
            for _ in range(document % 3 + 1):
                vector = (chance.integers(-10, 10, 96) + 20 * centers[document % 100]).astype(np.int8)
                scale = float(1 / np.linalg.norm(vector.astype(np.float32)))
                yield document, Passage(0, 1, scale, vector.tobytes())

    signs, exact = PassageVectors(), PassageVectors()
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=Connection)) as db:
        run_all(db, "schema")
        for document in range(1, 1001):
            assert add_document(db, str(document), "text", "", "{}", 0) == document
        add_passages(db, passages(range(1, 901)))
        hits = 0
        for step in range(3):
            for read in (signs, exact):
                read.refresh(db)
            for center in centers[:40]:
                query_D = (center / np.linalg.norm(center)).astype(np.float32)
                signs.compare(query_D)
                exact.compare(query_D)
                expected = exact.nearest(5, range(1, 1001))  # a filtered search compares all
                nearest = signs.nearest(10, None)
                hits += len(expected.keys() & nearest.keys())
                assert nearest == pytest.approx(exact.of(nearest))
                assert signs._cosine_N is None
            if step == 0:
                remove_documents(db, json.dumps([str(key) for key in range(100, 900, 7)]))
            elif step == 1:
                add_passages(db, passages(range(901, 1001)))
    assert hits >= 0.99 * 3 * 40 * 5


@pytest.mark.parametrize("count", [0, 1, 127, 128, 129, 300])
def test_documents_are_counted_without_reading_them(tmp_path, count):
    """The number at which FTS5's record takes another byte, also after removals and in a copy."""
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=Connection)) as db:
        run_all(db, "schema")
        for number in range(count + 2):
            add_document(db, str(number), "text", "", "{}", 0)
        assert remove_documents(db, '["0", "1"]') == 2
        db.execute("VACUUM INTO ?", (str(tmp_path / "copy.sqlite"),))
        with closing(sqlite3.connect(tmp_path / "copy.sqlite", factory=Connection)) as copy:
            assert [database.execute(sql("count")).fetchone() for database in (db, copy)] == [(count,)] * 2


# --- the full check ---------------------------------------------------------------------------------------------------


def test_a_file_is_checked_once(model, path, checks, tmp_path, monkeypatch):
    for _ in range(2):
        with Index(model, path) as index:
            assert index.search("mat 7", 1).hits[0].id == "n7"
    assert len(checks) == 0  # this user wrote it
    with Index(model, path) as index:
        index.update([{"id": "n7", "text": "Another text."}])
    Index(model, path).close()
    assert len(checks) == 0
    monkeypatch.setattr("msdc.search.verified.RECENT_NS", 0)
    copy, times = tmp_path / "copy.sqlite", path.stat()
    shutil.copy(path, copy)
    for change in (
        lambda: shutil.copy(copy, path),
        lambda: os.utime(path, (1, 1)),
        lambda: path.write_bytes(path.read_bytes()),
        lambda: os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns)),  # as a copy that keeps its times
    ):
        change()
        before = len(checks)
        for _ in range(2):
            Index(model, path).close()
        assert len(checks) == before + 1
    with Index(model, path) as index:
        index.check()
    assert len(checks) == 5
    result = CliRunner().invoke(command, [str(path), "cat", "--mode", "words", "--check"])
    assert result.exit_code == 0
    assert len(checks) == 6


def test_a_file_that_is_opened_without_its_check_stays_unchecked(model, path, checks, tmp_path, monkeypatch):
    monkeypatch.setattr("msdc.search.verified.RECENT_NS", 0)
    copy = tmp_path / "copy.sqlite"
    shutil.copy(path, copy)
    with msdc.open_index(copy, model, check=False) as index:
        assert index.search("mat 7", 1).hits[0].id == "n7"
        index.add([{"id": "new", "text": "Another text."}])
    assert len(checks) == 0
    result = CliRunner().invoke(command, [str(copy), "cat", "--mode", "words", "--no-check"])
    assert result.exit_code == 0
    assert len(checks) == 0
    with Index(model, copy, check=False) as index:
        index.check()
        index.remove(["new"])
    with Index(model, copy) as index:  # checked, and changed since by its index alone
        assert len(index) == 40
    assert len(checks) == 1
    shutil.copy(path, copy)
    Index(model, copy).close()
    assert len(checks) == 2


def test_a_file_that_changed_a_moment_ago_is_checked_again(model, path, checks):
    path.write_bytes(path.read_bytes())
    for _ in range(2):
        Index(model, path).close()
    assert len(checks) == 2


def test_a_killed_writer_leaves_a_file_to_check(model, path, checks):
    program = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[3])\n"
        "import msdc; index = msdc.open_index(sys.argv[1], msdc.load_encoder(sys.argv[2])); index.add(['late'])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path), str(tiny.student_folder(3)), os.getcwd()])
    with Index(model, path) as index:
        assert len(index) == 41
    assert checks


@pytest.mark.parametrize(
    ("statement", "ids", "message"),
    [
        ("UPDATE blocks SET vectors = zeroblob(length(vectors))", None, "the vectors of block 1"),
        ("UPDATE passages SET end = end - 1 WHERE document = 8", "n7", "a passage of document n7"),
        ("DROP TRIGGER kept; UPDATE documents SET text = 'x' WHERE id = 8", "n7", "document n7"),
    ],
)
def test_what_is_read_without_a_full_check_is_compared(model, path, statement, ids, message):
    """A disk that returns other bytes: neither sizes nor times tell. The error makes the next opening check."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript(statement)
    with Index(model, path, check=False) as index:
        assert index.search("mat 9", 1, mode="words").hits[0].id == "n9"
        with pytest.raises(InputError, match=f"damaged \\({message}"):
            index.search("mat 7", 1)
    with pytest.raises(InputError, match="damaged"):
        Index(model, path)


def test_without_a_cache_every_opening_checks(model, path, checks, monkeypatch):
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "relative")
    for _ in range(2):
        Index(model, path).close()
    assert len(checks) == 2
