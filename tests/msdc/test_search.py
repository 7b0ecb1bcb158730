"""Search by words and by meaning: an index file, a text file that an index follows, texts in memory."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import msdc
from msdc.commands.search import command
from msdc.errors import InputError, MsdcError
from msdc.search import blocks, vectors
from msdc.search import hits as hits_of_a_search
from msdc.search import index as indexes
from msdc.search.documents import as_document
from msdc.search.index import Index
from msdc.text.passages import passages, sentence_spans

pytestmark = pytest.mark.usefixtures("user_folder")

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


# --- passages and words -----------------------------------------------------------------------------------------------


def test_passages_cover_a_text_and_fit(model):
    text = "Dr. No came. He left! \n\n A heading\nThen " + "a very long sentence goes on " * 60 + ". Ende."
    tokens = lambda texts: [len(row) - 2 for row in model.tokenizer.encode(texts, 10**6)]  # noqa: E731
    (passage_spans,) = passages([text], tokens, 40)
    assert all(count <= 40 for count in tokens([text[a:b] for a, b in passage_spans]))
    assert "".join(text[a:b] for a, b in passage_spans).split()
    assert passage_spans == sorted(passage_spans)
    covered = "".join("".join(text[a:b].split()) for a, b in passage_spans)
    assert covered == "".join(text.split())
    # Without blanks too, and nothing from nothing.
    (runs,) = passages(["妹" * 300], lambda texts: [len(t) for t in texts], 64)
    assert [b - a for a, b in runs]
    assert max(b - a for a, b in runs) <= 64
    assert sum(b - a for a, b in runs) == 300
    assert passages(["", " \n "], tokens, 40) == [[], []]
    spans = sentence_spans("One. «Two!» Three")
    assert ["One. «Two!» Three"[a:b] for a, b in spans] == ["One.", "«Two!", "Three"]


def test_long_runs_of_blanks_and_marks_take_no_time(model):
    """Minutes before: a search for the end of a run began at each of its characters."""
    counted = [0]

    def count(texts):
        counted[0] += sum(map(len, texts))
        return [len(text.split()) for text in texts]

    for text in ("a" + " " * 10**6 + "b", "a" + "\u00a0" * 10**6 + "b", "a." + "\"'" * 10**5, " \n" * 10**5 + "x"):
        (passage_spans,) = passages([text], count, 8)
        assert "".join(text[a:b] for a, b in passage_spans).split() == text.split(), text[:9]
    assert counted[0] < 10**7


def test_words_are_found_however_they_are_spelled(model):
    texts = [
        "Eine naïve Lösung, ganz nai\u0308v", "IĞDIR'DA KAR YAĞIYOR", "Die STRASSE ist lang", "كِتَابٌ جَدِيدٌ",
        "جمـــيل جدا", "Der Park\u00adplatz ist voll", "我住在北京，天气很好。", "东京的夏天很热。",
        "मुझे यह किताब पसंद है", "कल तब कब बात कट बस कम तक", "🔴 pay the rent", "🟢 water the plants",
        "Łódź, ul. Piotrkowska ١٢٣", 'a "quoted" OR (c* NEAR d)',
    ]  # fmt: skip
    asked = {
        "nai\u0308ve": [1], "NAÏV": [1], "ığdır": [2], "Igdir": [2], "Straße": [3], "كتاب": [4], "جميل": [5],
        "parkplatz": [6],
        "北京": [7], "东京": [8], "夏": [8], "किताब": [9], "🔴": [11], "lodz": [13], "123": [13], "near OR*": [14],
        "(": [], '"': [], "क": [],
    }  # fmt: skip
    index = msdc.open_index(texts, model)
    for query, lines in asked.items():
        hits = index.search(query, mode="words").hits
        assert [hit.line for hit in hits] == lines, query
        assert all(hit.text == texts[hit.line - 1] for hit in hits)  # as it was written
    index.remove([7, 11])
    assert not index.search("北京 🔴", mode="words").hits


# --- an index file ----------------------------------------------------------------------------------------------------


def test_documents_are_added_updated_removed_and_filtered(model, tmp_path):
    path = tmp_path / "notes.sqlite"
    index = msdc.open_index(path, model)
    assert len(index) == 0
    assert index.search("a car").hits == []
    rows = [
        {"id": "n1", "text": "The car is on level 2.", "folder": "travel", "year": 2021, "done": True},
        {"id": "n2", "text": "La réunion commence à neuf heures.", "title": "Bureau", "folder": "work", "year": 2024},
    ]
    assert index.add(rows) == 2
    assert index.add(["Der Bahnhof ist geschlossen."]) == 1
    assert [hit.id for hit in index.search("Wo ist das Auto?", 1).hits] == ["n1"]
    top_hit = index.search("die Besprechung im Büro", 1).hits[0]
    assert (top_hit.id, top_hit.title, top_hit.metadata) == ("n2", "Bureau", {"folder": "work", "year": 2024})
    for where, ids in (
        ({"folder": "work"}, {"n2"}), ({"folder": ["work", "travel"]}, {"n1", "n2"}), ({"year": (2022, None)}, {"n2"}),
        ({"year": (None, 2022), "folder": "travel"}, {"n1"}), ({"done": True}, {"n1"}), ({"folder": "none"}, set()),
    ):  # fmt: skip
        for mode in ("both", "vectors"):
            assert {hit.id for hit in index.search("Auto réunion car", mode=mode, where=where).hits} == ids, where
    with pytest.raises(InputError, match="a document 'n1' exists already; use update"):
        index.add([{"id": "n3", "text": "new"}, {"id": "n1", "text": "x"}])
    assert len(index) == 3
    index.update([{"id": "n1", "text": "Bananas are yellow."}])
    assert index.remove(["3", "none"]) == 1
    assert len(index) == 2
    assert [hit.id for hit in index.search("car level", mode="words").hits] == []
    assert index.search("fruit", 1).hits[0].text == "Bananas are yellow."
    index.close()
    again = msdc.open_index(path, model)
    assert again.search("fruit", 1).hits[0].id == "n1"
    assert again.encoded == 0


def test_a_long_document_is_found_by_its_end_and_shows_the_place(model):
    text = "The harbour was busy that year. " * 40 + "A zebra sneezed in the library."
    index = msdc.open_index([text, "A quiet day without news."], model)
    hit = index.search("ein Zebra niest in der Bibliothek", 1).hits[0]
    assert hit.line == 1
    assert hit.passage == text[hit.start : hit.end]
    assert "zebra" in hit.passage
    assert hit.cosine > 0.5


def test_words_find_what_the_model_does_not_know(model, capsys):
    index = msdc.open_index(["אני גר בירושלים", *LINES[2:4], "Part number XK-4711-B is out of stock."], model)
    assert index.unread == 1
    assert index.search("XK-4711-B", 1).hits[0].line == 4
    assert index.search("בירושלים", 1).hits[0].line == 1
    assert "does not know" in capsys.readouterr().err
    assert index.search("בירושלים", mode="vectors").hits == []
    with pytest.raises(InputError, match="`mode` 'all' is unknown"):
        index.search("x", mode="all")  # type: ignore[arg-type]


def test_int8_vectors_lose_less_than_their_rounding(model):
    texts = [line for line in LINES if line]
    index = msdc.open_index(texts, model)
    vectors_ND = model.encode([*texts, "a pet"])
    cosines = vectors_ND[:-1] @ vectors_ND[-1]
    hits = index.search("a pet", 9, mode="vectors", distinct=False).hits
    assert len(hits) == len(texts)
    for hit in hits:
        assert hit.cosine == pytest.approx(float(cosines[hit.line - 1]), abs=4e-3)


def test_large_indexes_are_ranked_alike(model, monkeypatch):
    """In many blocks, a few at a time, and with more documents than candidates of either kind."""
    texts = [f"{word} number {i}" for i in range(60) for word in ("apple", "river")] + LINES[2:4]
    plain = [(hit.id, hit.cosine) for hit in msdc.open_index(texts, model).search("the apple 7", 9).hits]
    monkeypatch.setattr(blocks, "MOST", 7)
    monkeypatch.setattr(vectors, "ROWS", 9)
    monkeypatch.setattr(hits_of_a_search, "CANDIDATES", 40)
    ranking = [(hit.id, hit.cosine) for hit in msdc.open_index(texts, model).search("the apple 7", 9).hits]
    assert [key for key, _ in ranking] == [key for key, _ in plain]
    assert np.allclose([c for _, c in ranking], [c for _, c in plain], atol=1e-4)


def test_more_hits_than_candidates_are_all_hits(model, monkeypatch):
    texts = [f"{word} number {i}" for i in range(30) for word in ("apple", "river")]
    index = msdc.open_index(texts, model)
    expected_ids = [hit.id for hit in index.search("the apple 7", 60, mode="vectors").hits]
    assert len(expected_ids) == 60
    monkeypatch.setattr(hits_of_a_search, "CANDIDATES", 3)
    for top in (3, 4, 13, 60):
        assert [hit.id for hit in index.search("the apple 7", top, mode="vectors").hits] == expected_ids[:top]


# --- files and what is kept of them -----------------------------------------------------------------------------------


def test_a_query_in_another_language_finds_the_line(model, file):
    index = msdc.open_index(file, model)
    queries = ["Die Katze schläft auf dem Dach", "la soupe manque de sel", "Çorbanın tuza ihtiyacı var"]
    answers = [index.search(query, 2) for query in queries]
    assert [answer.hits[0].line for answer in answers] == [7, 4, 4]
    # Equal lines are one hit, or each with its number.
    assert [hit.count for hit in answers[1].hits] == [2, 1]
    assert [hit.line for hit in index.search(queries[1], 2, distinct=False).hits] == [4, 6]
    assert len(index) == 6
    assert index.encoded == 6
    assert all(answer.encode_ms > 0 for answer in answers)


def test_only_new_lines_are_encoded_whatever_file_they_are_in(model, file, tmp_path, user_folder):
    before = msdc.open_index(file, model).search("a pet", 1).hits[0]
    assert msdc.open_index(file, model).encoded == 0
    other = tmp_path / "other.txt"
    other.write_text("\n".join(["The bridge is closed.", *LINES]) + "\n", encoding="utf-8")
    changed = msdc.open_index(other, model)
    after = changed.search("a pet", 1).hits[0]
    assert changed.encoded == 1
    assert (after.text, after.line) == (before.text, before.line + 1)
    assert after.cosine == before.cosine
    (cache_file,) = user_folder.glob("*.sqlite")
    assert cache_file.stat().st_mode & 0o777 == 0o600
    assert b"violin" not in cache_file.read_bytes()
    # A file that cannot be read is an error each time, not the answer of before.
    other.write_bytes(b"ok\n\xff\xfe\n")
    for _ in range(2):
        with pytest.raises(InputError, match="line 2: not valid UTF-8"):
            msdc.open_index(other, model)


def test_an_interrupted_index_goes_on_where_it_stopped(model, file, tmp_path, monkeypatch):
    encode, calls = model.encode, []

    def interrupted(texts):
        calls.append(len(texts))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return encode(texts)

    monkeypatch.setattr(indexes, "BLOCK", 2)
    monkeypatch.setattr(model, "encode", interrupted)
    target = tmp_path / "out.sqlite"
    with pytest.raises(KeyboardInterrupt):
        msdc.open_index(file, model, index=target)
    assert not target.exists()
    index = msdc.open_index(file, model, index=target)
    assert len(index) == 6
    assert index.encoded == 1
    saved_index = msdc.open_index(tmp_path / "own.sqlite", model)
    saved_index.add({"id": n, "text": text} for n, text in enumerate(LINES[2:6]))
    before = saved_index.encoded
    saved_index.update([{"id": 1, "text": LINES[3], "new": 1}, {"id": 9, "text": "Something new."}])
    assert saved_index.encoded == before + 1
    assert saved_index.search("salt", where={"new": 1}).hits[0].id == "1"


def test_a_damaged_cache_is_replaced_by_several_processes_at_once(model, file, user_folder):
    expected = msdc.open_index(file, model).search("a pet", 5).hits
    (cache_file,) = user_folder.glob("*.sqlite")
    with sqlite3.connect(cache_file) as database:
        database.execute("UPDATE vectors SET vector = zeroblob(12) WHERE rowid = 2")
    database.close()
    program = "import sys, msdc; print(msdc.open_index(sys.argv[1]).search('a pet', 5).hits[0].id)"
    running = [subprocess.Popen([sys.executable, "-c", program, str(file)], stdout=-1, stderr=-1) for _ in range(3)]
    assert [process.communicate()[0] for process in running] == [b"7\n"] * 3
    cache_file.write_bytes(cache_file.read_bytes()[:5000])
    again = msdc.open_index(file, model)
    assert again.search("a pet", 5).hits == expected
    assert msdc.open_index(file, model).encoded == 0


def test_a_search_never_writes_to_an_index_and_no_error_deletes_it(model, file, tmp_path):
    index_path = tmp_path / "own.sqlite"
    with msdc.open_index(index_path, model) as index:
        index.add([f"document {n}" for n in range(20)])
    before = index_path.read_bytes()
    run = lambda *words: CliRunner().invoke(command, [str(word) for word in words])  # noqa: E731
    refused = run(file, "line", "--index", index_path)
    assert "exists already" in str(refused.exception)
    assert index_path.read_bytes() == before
    assert run(index_path, "document 3").exit_code == 0
    assert index_path.read_bytes() == before
    assert [path.name for path in tmp_path.glob("own*")] == ["own.sqlite"]
    with closing(sqlite3.connect(index_path)) as database, database:
        database.execute("UPDATE facts SET value = 'another' WHERE name IN ('model', 'source')")
    changed = index_path.read_bytes()
    assert "made with another version of msdc-mini" in str(run(index_path, "document").exception)
    assert index_path.read_bytes() == changed
    with pytest.raises(InputError, match="made with another version of msdc-mini"):
        msdc.open_index(index_path, model)
    # The way out: the documents in a new index, with this model.
    with msdc.open_index(index_path, model, index=tmp_path / "new.sqlite") as new:
        assert len(new) == 20
        assert new.search("document 7", 1).hits[0].id == "8"
    mine = tmp_path / "thesis.doc"
    mine.write_text("do not lose me")
    assert "is not a search index" in str(run(file, "line", "--index", mine, "--force").exception)
    assert mine.read_text() == "do not lose me"
    assert run(file, "--index", index_path, "--force").exit_code == 0  # no query is needed to write an index
    assert len(msdc.open_index(index_path, model)) == 6
    assert "name a QUERY, or --index FILE" in str(run(file).exception)


def test_a_damaged_index_is_an_error(model, tmp_path):
    path = tmp_path / "whole.sqlite"
    with msdc.open_index(path, model) as intact_index:
        intact_index.add([{"id": f"n{n}", "text": line, "n": n} for n, line in enumerate(LINES[2:5])])
    raw = path.read_bytes()
    for statement in (
        "UPDATE blocks SET vectors = zeroblob(length(vectors))",
        "UPDATE blocks SET scales = zeroblob(length(scales))",
        "UPDATE passages SET block = NULL WHERE id = 2",
        "DELETE FROM blocks",
        "UPDATE passages SET block = 7",
        "UPDATE passages SET document = 1 WHERE id = 2",
        "UPDATE passages SET end = end - 1 WHERE id = 2",
        "DELETE FROM passages WHERE id = 2",
        "DROP TRIGGER kept; UPDATE documents SET text = 'A pet, a pet.' WHERE id = 3",
        """DROP TRIGGER kept; UPDATE documents SET metadata = '{"n": 9}' WHERE id = 3""",
        "DROP TRIGGER kept; UPDATE documents SET key = 'n9' WHERE id = 3",
        "UPDATE words_content SET c1 = 'a pet' WHERE id = 3",
        "UPDATE words_data SET block = zeroblob(length(block)) WHERE id > 10",
        "DELETE FROM words_docsize WHERE id = 2",
        "DELETE FROM words WHERE rowid = 2",
    ):
        path.write_bytes(raw)
        with closing(sqlite3.connect(path)) as database:
            database.executescript(statement)
        try:
            with msdc.open_index(path, model) as index:
                index.search("a pet")
        except InputError as error:
            assert "damaged" in str(error), statement
        else:
            pytest.fail(statement)
    path.write_bytes(raw)
    with closing(sqlite3.connect(path)) as database:
        for statement in (
            "UPDATE blocks SET crc = 'x'", "UPDATE blocks SET vectors = NULL", "UPDATE passages SET start = end",
            "UPDATE blocks SET scales = zeroblob(7)", "UPDATE passages SET block = 'x'", "INSERT INTO passages "
            "(document, start, end, crc) VALUES (1, 0, 1000, 0)", "UPDATE documents SET title = 'x'",
            "INSERT INTO documents (key, title, text, metadata, crc) VALUES ('a', '', 'b', '{\"x\": NaN}', 0)",
        ):  # fmt: skip
            with pytest.raises(sqlite3.IntegrityError):
                database.execute(statement)
    for size in (1000, 4100, len(raw) // 2, len(raw) - 4096):
        path.write_bytes(raw[:size])
        with pytest.raises(InputError, match="damaged"):
            msdc.open_index(path, model)
        assert path.stat().st_size == size


def test_a_folder_that_cannot_be_written_is_searched(model, tmp_path):
    path = tmp_path / "shipped" / "notes.sqlite"
    with msdc.open_index(path, model) as index:
        index.add(LINES[2:5])
    path.chmod(0o444)
    path.parent.chmod(0o555)
    root = os.geteuid() == 0
    tmp_path.chmod(0o755)
    for folder in [*tmp_path.parents][:3] if root else []:
        folder.chmod(folder.stat().st_mode | 0o055)
    if root:
        os.seteuid(65534)
    try:
        with msdc.open_index(path, model) as index:
            assert index.search("salt", 1).hits[0].id == "2"
            with pytest.raises(MsdcError, match=r"cannot write .*read-only"):
                index.add(["more"])
            with pytest.raises(MsdcError, match=r"cannot write .*read-only"):
                index.remove(["1"])
    finally:
        if root:
            os.seteuid(0)
        path.parent.chmod(0o755)
    assert [entry.name for entry in path.parent.iterdir()] == ["notes.sqlite"]


def test_values_that_json_cannot_hold(model):
    numpy_row = {"id": "n", "text": "numbers", "stars": np.int64(4), "share": np.float32(0.5), "day": date(2024, 5, 1)}
    index = msdc.open_index(["The soup."], model)
    index.add([numpy_row, {"text": "none", "stars": float("nan")}], missing="null")
    assert index.search("numbers", where={"stars": 4.0, "day": (date(2024, 1, 1), None)}).hits[0].id == "n"
    with pytest.raises(InputError, match="row 2: 'stars' is nan, which JSON cannot hold"):
        index.add(["fine", {"text": "none", "stars": float("nan")}])
    half = "cut \ud83d"
    for call in (
        lambda: index.add([half]), lambda: index.add([{"id": half, "text": "x"}]), lambda: index.remove([half]),
        lambda: index.add([{"text": "x", "note": half}]), lambda: index.add([{"text": "x", half: 1}]),
        lambda: index.add([{"text": "x", "title": half}]), lambda: index.search(half),
        lambda: msdc.open_index([half], model),
        lambda: index.search("x", where={"note": half}), lambda: index.search("x", where={half: 1}),
    ):  # fmt: skip
        with pytest.raises(InputError, match="half of a surrogate pair"):
            call()


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ({"n": 4}, "abcd"), ({"n": "4"}, "abcd"), ({"n": "4.0"}, "abcd"), ({"n": "04"}, "e"), ({"n": 5}, "f"),
        ({"n": [5, "04"]}, "ef"), ({"n": (3, 4.5)}, "abcd"), ({"n": ("2024-01-01", "2024-12-31")}, "g"),
        ({"n": ("2024", "2025")}, "g"), ({"n": (3, None)}, "abcdf"), ({"n": True}, "fh"), ({"n": "true"}, "h"),
        ({"n": -2.5}, "i"), ({"n": (None, 0)}, "i"), ({"n": "12345678901234567891"}, ""), ({"n": "unknown"}, "j"),
        ({"n": 4, "author": "Smith, John"}, "a"), ({"n": (3, None), "author": ["Smith, John", "Lee"]}, "ab"),
        ({"n": [(None, 0), (5, 5)]}, "fi"),
    ],
)  # fmt: skip
def test_filters(model, where, ids):
    values = {"a": 4, "b": 4.0, "c": "4", "d": "4.0", "e": "04", "f": [1, 5], "g": "2024-03-01", "h": True, "i": "-2.5",
              "j": "unknown", "k": None, "l": "12345678901234567890"}  # fmt: skip
    index = Index(model)
    authors = {"a": "Smith, John", "b": "Lee", "c": "Smith"}
    rows = [{"id": key, "text": f"soup {key}", "n": value, "author": authors.get(key)} for key, value in values.items()]
    index._put([as_document(row, "") for row in rows], rows, False, encode=False)
    assert "".join(sorted(hit.id for hit in index.search("soup", 20, mode="words", where=where).hits)) == ids


def test_words_alone_load_no_model(tmp_path, file):
    def load():
        raise AssertionError("loaded")

    index = msdc.open_index(["The soup needs salt.", "A cat."], None)
    (hit,) = index.search("SOUP", mode="words").hits
    assert hit.cosine is None
    assert hit.score == pytest.approx(hit.words + 4)
    program = "import sys\nfrom msdc.cli import main\ntry:\n main(sys.argv[1:])\n"
    program += "finally:\n print({'torch', 'onnxruntime'} & set(sys.modules))"
    words = [sys.executable, "-c", program, "search", str(file), "soup"]
    done = subprocess.run([*words, "--mode", "words"], capture_output=True, text=True, check=True)
    assert "The soup needs more salt." in done.stdout
    assert done.stdout.endswith("set()\n")
    # A student of ours needs no torch.
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.endswith("{'onnxruntime'}\n")


def test_texts_in_memory_and_bad_input(model, tmp_path):
    memory = msdc.open_index(["The soup needs salt.", "", "A cat."], model)
    assert [hit.line for hit in memory.search("Katze", 1).hits] == [3]
    assert len(memory) == 2
    answer = memory.search("la soupe manque de sel", top=3, threshold=0.3)
    assert [hit.line for hit in answer.hits] == [1]
    (tmp_path / "b.txt").write_bytes(b"ok\n\xff\xfe\n")
    (tmp_path / "e.txt").write_bytes(b"\n \n")
    for call, message in (
        (lambda: memory.search(" "), "a query is empty"),
        (lambda: memory.search("x", 0), "must be at least 1"),
        (lambda: memory.add([{"text": " "}]), "row 1 has no text"),
        (lambda: memory.add([{"id": 1, "text": 5}]), "must be strings"),
        (lambda: msdc.open_index([" "], model), "no text to search in"),
        (lambda: msdc.open_index(["x"], model, column="a"), "not for texts in memory"),
        (lambda: msdc.open_index(tmp_path / "i.sqlite", model, id_column="a"), "not for an index"),
        (lambda: msdc.open_index(tmp_path / "none.txt", model), "no such file"),
        (lambda: msdc.open_index(tmp_path / "b.txt", model), "line 2: not valid UTF-8"),
        (lambda: msdc.open_index(tmp_path / "e.txt", model), "no text to search in"),
        (lambda: memory.search("x", where={"nope": 1}), "no column 'nope' to filter by"),
        (lambda: memory.search("x", where={"a": {}}), "expected {'not': value}"),
        (lambda: memory.search("x", where={"a": {"not": ("b",)}}), "expected a text, a number"),
        (lambda: memory.search("x", where={"a": []}), "an empty list matches nothing"),
        (lambda: memory.search("x", offset=-1), "`offset` -1: must be at least 0"),
        (lambda: memory.search("x", syntax="sql"), "`syntax` 'sql' is unknown; known: operators, plain"),
    ):
        with pytest.raises(InputError, match=message):
            call()


# --- the command ------------------------------------------------------------------------------------------------------


def test_the_command_searches_tables_and_indexes(model, tmp_path):
    path = tmp_path / "notes.csv.gz"
    rows = b'id,lang,rating,note\n1,en,5,"The soup,\nagain, needs salt."\n2,en,2,The cat sleeps.\n3,de,4,Die Suppe.\n'
    path.write_bytes(gzip.compress(rows))
    words = [str(path), "sopa salada", "--column", "note"]
    done = CliRunner().invoke(command, [*words, "--threshold", "0.3", "--where", "lang=en", "--json"])
    (answer,) = json.loads(done.stdout)["queries"]
    assert [(hit["line"], hit["metadata"]["rating"]) for hit in answer["hits"]] == [(2, "5")]
    ranged = CliRunner().invoke(command, [*words, "--where", "rating=3..4"])
    assert "none to encode" in ranged.stderr
    assert " ms to search" in ranged.stderr
    assert "soup" not in ranged.stdout
    shown = CliRunner().invoke(command, [*words, "-k", "2", "--mode", "vectors"]).stdout
    assert "The soup, again, needs salt." in shown  # a line break inside a cell does not tear the table
    thread = [str(path), "the ", "--column", "note", "--mode", "words", "--json"]
    for options, lines in (
        (["--order", "rating"], [4, 2]),
        (["--order", "-lang", "--order", "-rating"], [2, 4]),
        (["--order", "rating", "--group", "lang"], [4]),
    ):
        (answer,) = json.loads(CliRunner().invoke(command, [*thread, *options]).stdout)["queries"]
        assert [hit["line"] for hit in answer["hits"]] == lines
    for bad, message in (
        (["--where", "lang"], "expected COLUMN=VALUE"),
        (["--order", "-nope"], "no column 'nope' to order by (columns: id, lang, rating)"),
        (["--group", "nope"], "no column 'nope' to group by (columns: id, lang, rating)"),
        (["--where", "ratng=3"], "no column 'ratng' to filter by (columns: id, lang, rating)"),
        (["--id", "nope"], "`id_column` 'nope' is not another column"),
    ):
        assert message in str(CliRunner().invoke(command, [*words, *bad]).exception)
    with msdc.open_index(tmp_path / "own.sqlite", model) as index:
        index.add([{"id": "a", "text": "The soup needs salt.", "title": "Kitchen"}])
    done = CliRunner().invoke(command, [str(tmp_path / "own.sqlite"), "Suppe"])
    assert done.exit_code == 0
    assert "  Kitchen: The soup needs salt.\n" in done.stdout
    assert " loaded in " in done.stderr
    empty = CliRunner().invoke(command, [str(path), " "])
    assert isinstance(empty.exception, InputError)
    assert "a query is empty" in str(empty.exception)


def test_one_value_is_never_taken_apart(model):
    index = msdc.open_index([f"note {number}" for number in range(1, 20)], model)
    assert index.remove("12") == 1
    assert index.remove(11) == 1
    assert index.add("hi you") == 1
    assert index.update({"id": "1", "text": "other"}) == 1
    assert index.get(1).text == "other"
    assert len(index) == 18
    assert {index.get(key).text for key in index.ids()} >= {"hi you", "other", "note 2"}
    for use in (index.add, index.update, index.remove):
        for value in (b"12", None, pd.DataFrame({"text": ["a"]})):
            with pytest.raises(InputError, match=r"expected one or several, not|its items are columns|whose items are"):
                use(value)
    assert len(index) == 18
