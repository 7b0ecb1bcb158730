"""Search by words and by meaning: an index file, a text file that an index follows, texts in memory."""

from __future__ import annotations

import gzip
import json
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import msdc
from msdc.commands.search import command
from msdc.errors import InputError
from msdc.search import index as indexes
from msdc.search.index import Index
from msdc.search.passages import match_expression, passages, sentence_spans

LINES = [
    "The train to the city leaves at nine.",
    "",
    "My sister plays the violin.",
    "The soup needs more salt.",
    "The dentist moved my appointment to Tuesday.",
    "The soup needs more salt.",
    "The cat sleeps on the warm roof.",
]


@pytest.fixture(scope="module")
def model() -> msdc.Encoder:
    return msdc.load_encoder("msdc-mini")


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def opened(model, file, tmp_path):
    """Opens the index that follows the file."""
    return lambda: msdc.open_index(file, model, index=tmp_path / "index.sqlite")


# --- passages and words -----------------------------------------------------------------------------------------------


def test_passages_cover_a_text_and_fit(model):
    text = "Dr. No came. He left! \n\n A heading\nThen " + "a very long sentence goes on " * 60 + ". Ende."
    tokens = lambda texts: [len(row) - 2 for row in model.tokenizer.encode(texts, 10**6)]  # noqa: E731
    (found,) = passages([text], tokens, 40)
    assert all(count <= 40 for count in tokens([text[a:b] for a, b in found]))
    assert "".join(text[a:b] for a, b in found).split() and found == sorted(found)
    covered = "".join("".join(text[a:b].split()) for a, b in found)
    assert covered == "".join(text.split())
    # Without blanks too, and nothing from nothing.
    (runs,) = passages(["妹" * 300], lambda texts: [len(t) for t in texts], 64)
    assert [b - a for a, b in runs] and max(b - a for a, b in runs) <= 64 and sum(b - a for a, b in runs) == 300
    assert passages(["", " \n "], tokens, 40) == [[], []]
    spans = sentence_spans("One. «Two!» Three")
    assert ["One. «Two!» Three"[a:b] for a, b in spans] == ["One.", "«Two!", "Three"]


def test_a_query_is_no_syntax_of_the_word_index():
    assert match_expression('a "b" OR (c* NEAR', "unicode61") == '"a" OR "b" OR "OR" OR "c" OR "NEAR"'
    assert match_expression("?!", "unicode61") == "" and match_expression("東京都 ab", "trigram") == '"東京都"'


# --- an index file ----------------------------------------------------------------------------------------------------


def test_documents_are_added_updated_removed_and_filtered(model, tmp_path):
    path = tmp_path / "notes.sqlite"
    index = msdc.open_index(path, model)
    assert len(index) == 0 and index.search("a car").hits == []
    rows = [
        {"id": "n1", "text": "The car is on level 2.", "folder": "travel", "year": 2021, "done": True},
        {"id": "n2", "text": "La réunion commence à neuf heures.", "title": "Bureau", "folder": "work", "year": 2024},
    ]
    assert index.add(rows) == 2 and index.add(["Der Bahnhof ist geschlossen."]) == 1
    assert [hit.id for hit in index.search("Wo ist das Auto?", 1).hits] == ["n1"]
    found = index.search("die Besprechung im Büro", 1).hits[0]
    assert (found.id, found.title, found.metadata) == ("n2", "Bureau", {"folder": "work", "year": 2024})
    for where, ids in (
        ({"folder": "work"}, {"n2"}), ({"folder": ["work", "travel"]}, {"n1", "n2"}), ({"year": (2022, None)}, {"n2"}),
        ({"year": (None, 2022), "folder": "travel"}, {"n1"}), ({"done": True}, {"n1"}), ({"none": 1}, set()),
        ({'x") OR 1 --': 1}, set()),
    ):  # fmt: skip
        for mode in ("both", "vectors"):
            assert {hit.id for hit in index.search("Auto réunion car", mode=mode, where=where).hits} == ids, where
    with pytest.raises(InputError, match="of this id already exists; use update"):
        index.add([{"id": "n3", "text": "new"}, {"id": "n1", "text": "x"}])
    assert len(index) == 3
    index.update([{"id": "n1", "text": "Bananas are yellow."}])
    assert index.remove(["3", "none"]) == 1 and len(index) == 2
    assert [hit.id for hit in index.search("car level", mode="words").hits] == []
    assert index.search("fruit", 1).hits[0].text == "Bananas are yellow."
    index.close()
    again = msdc.open_index(path, model)
    assert again.search("fruit", 1).hits[0].id == "n1" and again.encoded == 0


def test_a_long_document_is_found_by_its_end_and_shows_the_place(model):
    text = "The harbour was busy that year. " * 40 + "A zebra sneezed in the library."
    index = msdc.open_index([text, "A quiet day without news."], model)
    hit = index.search("ein Zebra niest in der Bibliothek", 1).hits[0]
    assert hit.line == 1 and hit.passage == text[hit.start : hit.end] and "zebra" in hit.passage
    assert hit.cosine > 0.5


def test_words_find_what_the_model_does_not_know(model, capsys):
    index = msdc.open_index(["אני גר בירושלים", *LINES[2:4], "Part number XK-4711-B is out of stock."], model)
    assert index.unread == 1
    assert index.search("XK-4711-B", 1).hits[0].line == 4
    assert index.search("בירושלים", 1).hits[0].line == 1 and "does not know" in capsys.readouterr().err
    assert index.search("בירושלים", mode="vectors").hits == []
    with pytest.raises(InputError, match="`mode` 'all' is unknown"):
        index.search("x", mode="all")  # type: ignore[arg-type]


def test_int8_vectors_lose_less_than_their_rounding(model):
    texts = [line for line in LINES if line]
    index = msdc.open_index(texts, model)
    vectors_ND = model.encode([*texts, "a pet"])
    cosines = vectors_ND[:-1] @ vectors_ND[-1]
    for hit in index.search("a pet", 9, mode="vectors").hits:
        assert hit.cosine == pytest.approx(float(cosines[hit.line - 1]), abs=4e-3)


def test_large_indexes_are_ranked_alike(model, monkeypatch):
    """Without float copies in memory, and with more documents than candidates of either kind."""
    texts = [f"{word} number {i}" for i in range(60) for word in ("apple", "river")] + LINES[2:4]
    plain = [(hit.id, hit.cosine) for hit in msdc.open_index(texts, model).search("the apple 7", 9).hits]
    monkeypatch.setattr(indexes, "MOST_FLOAT_BYTES", 0)
    monkeypatch.setattr(indexes, "ROWS", 7)
    monkeypatch.setattr(indexes, "CANDIDATES", 40)
    found = [(hit.id, hit.cosine) for hit in msdc.open_index(texts, model).search("the apple 7", 9).hits]
    assert [key for key, _ in found] == [key for key, _ in plain]
    assert np.allclose([c for _, c in found], [c for _, c in plain], atol=1e-4)


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
        assert len(reader) == 300 and reader.search("text number 7", 1).hits[0].text == "text number 7"
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
        found = [reader.search("a fruit", 12, mode="vectors").hits for _ in range(100)]
        while len({hits[0].text.split()[0] for hits in found}) < 2 and len(found) < 5000:
            found.append(reader.search("a fruit", 12, mode="vectors").hits)
    finally:
        stop.set()
        updater.join()
    for hits in found:
        assert len(hits) == 12 and len({hit.text.split()[0] for hit in hits}) == 1
        assert all(abs(hit.cosine - expected[hit.text]) < 4e-3 for hit in hits)
    assert len({hits[0].text.split()[0] for hits in found}) == 2  # both were met


# --- a file that is followed ------------------------------------------------------------------------------------------


def test_a_query_in_another_language_finds_the_line(opened):
    index = opened()
    queries = ["Die Katze schläft auf dem Dach", "la soupe manque de sel", "Çorbanın tuza ihtiyacı var"]
    answers = [index.search(query, 2) for query in queries]
    assert [answer.hits[0].line for answer in answers] == [7, 4, 4]
    # Equal lines are all kept, with their numbers.
    assert [hit.line for hit in answers[1].hits] == [4, 6]
    assert len(index) == 6 and index.encoded == 6 and all(answer.encode_ms > 0 for answer in answers)
    assert repr(index) == f"Index('{index.file}', 6 texts, model='msdc-mini', width=384)"


def test_only_new_lines_are_encoded_and_numbers_follow(opened, file):
    before = opened().search("a pet", 1).hits[0]
    assert opened().encoded == 0
    file.write_text("\n".join(["The bridge is closed.", *LINES]) + "\n", encoding="utf-8")
    changed = opened()
    after = changed.search("a pet", 1).hits[0]
    assert changed.encoded == 1 and (after.text, after.line) == (before.text, before.line + 1)
    assert after.cosine == pytest.approx(before.cosine, abs=1e-3)
    # By the next search too, without opening it again.
    file.write_text("\n".join([*LINES[:4], "A man with a cello."]) + "\n", encoding="utf-8")
    assert changed.search("ein Cellist", 1).hits[0].line == 5 and changed.encoded == 1 and len(changed) == 4
    file.write_text("\n \n", encoding="utf-8")
    with pytest.raises(InputError, match="no line contains text"):
        changed.search("x")


def test_a_damaged_index_is_made_anew_or_says_so(opened, model, tmp_path, capsys):
    expected = opened().search("a pet", 5).hits
    path = tmp_path / "index.sqlite"
    for statement in (
        "UPDATE passages SET vector = zeroblob(384) WHERE id = 2",
        "UPDATE documents SET text = 'A pet, a pet.' WHERE id = 3",
        "UPDATE facts SET value = '0' WHERE name = 'format'",
        "UPDATE facts SET value = 'another' WHERE name = 'model'",
    ):
        with sqlite3.connect(path) as database:
            database.execute(statement)
        database.close()
        capsys.readouterr()
        assert opened().search("a pet", 5).hits == expected, statement
        message = capsys.readouterr().err
        assert message.count("\n") == 1 and "the index is rebuilt" in message, message
        assert opened().encoded == 0
    with sqlite3.connect(path) as database:
        database.execute("UPDATE facts SET value = 'another' WHERE name = 'model'")
    database.close()
    with pytest.raises(InputError, match="made with another msdc-mini"):
        msdc.open_index(path, model)
    with msdc.open_index(tmp_path / "whole.sqlite", model) as whole:
        whole.add(LINES[2:5])
    raw = (tmp_path / "whole.sqlite").read_bytes()
    for size in (1000, 4100, len(raw) // 2, len(raw) - 4096):
        (tmp_path / "cut.sqlite").write_bytes(raw[:size])
        with pytest.raises(InputError, match="damaged"):
            msdc.open_index(tmp_path / "cut.sqlite", model)


def test_what_is_no_index_is_not_touched(model, file, tmp_path):
    mine = tmp_path / "thesis.doc"
    mine.write_text("do not lose me")
    with sqlite3.connect(tmp_path / "other.sqlite") as other:
        other.execute("CREATE TABLE mine (x)")
    other.close()
    for path in (mine, tmp_path / "other.sqlite"):
        before = path.read_bytes()
        with pytest.raises(InputError, match="exists and is not a search index"):
            Index(model, path, file=file)
        assert path.read_bytes() == before


def test_texts_in_memory_and_bad_input(model, tmp_path):
    memory = msdc.open_index(["The soup needs salt.", "", "A cat."], model)
    assert [hit.line for hit in memory.search("Katze", 1).hits] == [3] and len(memory) == 2
    found = memory.search("la soupe manque de sel", top=3, threshold=0.3)
    assert [hit.line for hit in found.hits] == [1]
    (tmp_path / "b.txt").write_bytes(b"ok\n\xff\xfe\n")
    (tmp_path / "e.txt").write_bytes(b"\n \n")
    for call, message in (
        (lambda: memory.search(" "), "a query is empty"),
        (lambda: memory.search("x", 0), "must be at least 1"),
        (lambda: memory.add([{"text": " "}]), "document '4' has no text"),
        (lambda: memory.add([{"id": 1, "text": 5}]), "must be strings"),
        (lambda: msdc.open_index([" "], model), "no text to search in"),
        (lambda: msdc.open_index(["x"], model, column="a"), "are for files"),
        (lambda: msdc.open_index(tmp_path / "none.txt", model), "no such file"),
        (lambda: msdc.open_index(tmp_path / "b.txt", model), "line 2: not valid UTF-8"),
        (lambda: msdc.open_index(tmp_path / "e.txt", model), "no line contains text"),
    ):
        with pytest.raises(InputError, match=message):
            call()


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_searches_tables_and_indexes(model, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "notes.csv.gz"
    rows = b'id,lang,rating,note\n1,en,5,"The soup,\nagain, needs salt."\n2,en,2,The cat sleeps.\n3,de,4,Die Suppe.\n'
    path.write_bytes(gzip.compress(rows))
    words = [str(path), "sopa salada", "--column", "note"]
    done = CliRunner().invoke(command, [*words, "--threshold", "0.3", "--where", "lang=en", "--json"])
    (answer,) = json.loads(done.stdout)["queries"]
    assert [(hit["line"], hit["metadata"]["rating"]) for hit in answer["hits"]] == [(2, "5")]
    ranged = CliRunner().invoke(command, [*words, "--where", "rating=3..4"])
    assert "all from disk" in ranged.stderr and " ms to search" in ranged.stderr and "soup" not in ranged.stdout
    shown = CliRunner().invoke(command, [*words, "-k", "2", "--mode", "vectors"]).stdout
    assert "The soup, again, needs salt." in shown  # a line break inside a cell does not tear the table
    for bad, message in (
        (["--where", "lang"], "expected COLUMN=VALUE"),
        (["--where", "rating=a..b"], "must be numbers"),
    ):
        assert message in str(CliRunner().invoke(command, [*words, *bad]).exception)
    with msdc.open_index(tmp_path / "own.sqlite", model) as index:
        index.add([{"id": "a", "text": "The soup needs salt.", "title": "Kitchen"}])
    done = CliRunner().invoke(command, [str(tmp_path / "own.sqlite"), "Suppe"])
    assert done.exit_code == 0 and "  Kitchen: The soup needs salt.\n" in done.stdout
    assert " loaded in " in done.stderr
    empty = CliRunner().invoke(command, [str(path), " "])
    assert isinstance(empty.exception, InputError) and "a query is empty" in str(empty.exception)
