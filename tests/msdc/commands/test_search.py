"""Search over a user's text file with the shipped student."""

import gzip
import json
import threading
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import msdc
from msdc.commands.search import Index, _seal, command, distinct_lines, nearest
from msdc.errors import InputError

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


def test_a_query_in_another_language_finds_the_line(model, file, tmp_path):
    queries = ["Die Katze schläft auf dem Dach", "la soupe manque de sel", "Çorbanın tuza ihtiyacı var"]
    index = Index(model, file, tmp_path / "index")
    answers = [index.search(query, 2) for query in queries]
    assert [answer.hits[0].line for answer in answers] == [7, 4, 4]
    assert len(index.texts) == 5 and index.encoded == 5
    assert all(answer.encode_ms > 0 for answer in answers)


def test_the_index_stays_and_only_new_lines_are_encoded(model, file, tmp_path):
    folder = tmp_path / "index"
    before = Index(model, file, folder).search("a pet", 5)
    assert Index(model, file, folder).encoded == 0
    file.write_text("\n".join(["The bridge is closed.", *LINES[2:]]) + "\n", encoding="utf-8")
    changed = Index(model, file, folder)
    assert changed.encoded == 1 and len(changed.texts) == 5
    after = changed.search("a pet", 5)
    assert after.hits[0].text == before.hits[0].text
    assert after.hits[0].cosine == pytest.approx(before.hits[0].cosine, abs=1e-3)


def test_one_flipped_bit_anywhere_is_made_anew(model, file, tmp_path, capsys):
    """In every region of every file: the answer of before, one line, and nothing to say the next time."""
    folder = tmp_path / "index"
    expected = Index(model, file, folder).search("a pet", 5).hits
    saved = {path: path.read_bytes() for path in folder.iterdir()}
    assert {path.name for path in saved} == {"vectors.f16", "keys.u64", "index.json"}
    for path, raw in saved.items():
        step = max(1, len(raw) // 5)
        for place in range(0, len(raw), step):
            for other, content in saved.items():
                other.write_bytes(content)
            damaged = bytearray(raw)
            damaged[place] ^= 1 << (place // step) % 8
            path.write_bytes(damaged)
            capsys.readouterr()
            assert Index(model, file, folder).search("a pet", 5).hits == expected, (path.name, place)
            said = capsys.readouterr().err
            assert said.count("\n") == 1 and "the index is damaged" in said, (path.name, place, said)
            assert Index(model, file, folder).encoded == 0
            assert capsys.readouterr().err == ""
        path.write_bytes(raw[: len(raw) // 2])
        assert Index(model, file, folder).encoded == 5
    (folder / "index.json").unlink()
    assert Index(model, file, folder).encoded == 5


def test_lines_in_an_unknown_script_are_named_and_not_found(model, file, tmp_path, capsys):
    """All of them had nearly one vector, which a query of one word was often nearest to."""
    unknown = ["אני גר בירושלים", "ילדים משחקים בגן.", "妹妹在窗边喂一只小鸟。", "👩‍🔬 👍"]
    known = [*LINES[2:5], "Żółta łódka płynie przez jezioro", "Price: 5 € (לחם) for two loaves of bread"]
    file.write_text("\n".join([*unknown, *known]) + "\n", encoding="utf-8")
    index = Index(model, file, tmp_path / "index")
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "4 of 9 lines" in said and "(line 1, 2, 3, 4)" in said
    for query in ("violon", "zzz", "5"):
        assert sorted(hit.text for hit in index.search(query, 9).hits) == sorted(known)
    again = Index(model, file, tmp_path / "index")
    assert (again.encoded, again.unread, capsys.readouterr().err) == (0, 4, "")
    assert [hit.text for hit in again.search("violon", 1).hits] == [LINES[2]]
    assert again.search(unknown[0]).hits == [] and "does not know" in capsys.readouterr().err
    file.write_text("\n".join(unknown) + "\n", encoding="utf-8")
    assert again.search("violon").hits == [] and again.unread == 4


def test_an_index_that_others_replace_is_read_whole(model, file, tmp_path, capsys):
    """Two indexes, of the same lines in another order, take turns in one folder, as beside an updater."""
    folder, turned = tmp_path / "index", tmp_path / "turned.txt"
    turned.write_text("\n".join(reversed(LINES)) + "\n", encoding="utf-8")
    reader, other = Index(model, file, folder), Index(model, turned, tmp_path / "other")
    (vectors_ND, keys_N), (turned_ND, turned_N) = reader._stored(), other._stored()
    expected = {key: row.tobytes() for key, row in zip(keys_N.tolist(), vectors_ND, strict=True)}
    stop = threading.Event()

    def replace():
        while not stop.is_set():
            reader._write(turned_ND, turned_N)
            reader._write(vectors_ND, keys_N)

    capsys.readouterr()
    updater = threading.Thread(target=replace)
    updater.start()
    try:
        read = [found for _ in range(500) if (found := reader._stored()) is not None]
    finally:
        stop.set()
        updater.join()
    assert len({tuple(found[1].tolist()) for found in read}) == 2  # both were met
    for found_ND, found_N in read:
        assert {key: row.tobytes() for key, row in zip(found_N.tolist(), found_ND, strict=True)} == expected
    assert capsys.readouterr().err == ""


def test_an_index_of_an_earlier_format_is_made_anew(model, file, tmp_path, capsys):
    folder = tmp_path / "index"
    Index(model, file, folder)
    head = json.loads((folder / "index.json").read_text())
    del head["format"], head["seal"]
    (folder / "index.json").write_text(json.dumps({**head, "seal": _seal(head)}))
    assert Index(model, file, folder).encoded == 5 and "earlier version" in capsys.readouterr().err


def test_bad_input_is_one_line(model, file, tmp_path):
    with pytest.raises(InputError, match="no such file"):
        distinct_lines(tmp_path / "none.txt")
    cases = [("e.txt", b"\n \n", "no line with text"), ("b.txt", b"ok\n\xff\xfe\n", "line 2: not valid UTF-8")]
    for name, data, message in cases:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=message):
            distinct_lines(tmp_path / name)
    done = CliRunner().invoke(command, [str(file), " "])
    assert isinstance(done.exception, InputError) and "a query is empty" in str(done.exception)
    strange = tmp_path / "mine"
    strange.mkdir()
    (strange / "thesis.txt").write_text("do not lose me")
    with pytest.raises(InputError, match="is not a search index"):
        Index(model, file, strange)
    assert (strange / "thesis.txt").read_text() == "do not lose me"


def test_a_changed_file_is_read_again_by_the_next_search(model, file, tmp_path):
    index = Index(model, file, tmp_path / "index")
    assert index.search("a violinist", 1).hits[0].text == "My sister plays the violin."
    file.write_text("\n".join([*LINES, "A man with a cello and a violin."]) + "\n", encoding="utf-8")
    assert "A man with a cello and a violin." in [hit.text for hit in index.search("a violinist", 2).hits]
    assert index.encoded == 1 and len(index) == 6
    file.write_text("Only this.\n", encoding="utf-8")
    assert [hit.text for hit in index.search("a violinist").hits] == ["Only this."]


def test_the_python_interface(model, file, tmp_path):
    index = msdc.open_index(file, model, folder=tmp_path / "index")
    assert repr(index) == f"Index('{file}', 5 texts, model='msdc-mini', width=384)"
    found = index.search("la soupe manque de sel", top=3, threshold=0.3)
    assert found.hits[0].line == 4 and all(hit.cosine >= 0.3 for hit in found.hits) and len(found.hits) < 3
    memory = msdc.open_index(["The soup needs salt.", "A cat.", ""])
    assert [hit.text for hit in memory.search("Katze", 1).hits] == ["A cat."] and len(memory) == 2
    for wrong in (lambda: memory.search(" "), lambda: memory.search("x", 0), lambda: msdc.open_index([" "])):
        with pytest.raises(InputError):
            wrong()


def test_columns_gzip_and_a_threshold_on_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "notes.csv.gz"
    path.write_bytes(gzip.compress(b'id,note\n1,"The soup, again, needs salt."\n2,The cat sleeps.\n'))
    words = [str(path), "sopa salada", "--column", "note", "--json"]
    done = CliRunner().invoke(command, [*words, "--threshold", "0.3"])
    (answer,) = json.loads(done.stdout)["queries"]
    assert [(hit["line"], hit["text"]) for hit in answer["hits"]] == [(2, "The soup, again, needs salt.")]
    again = CliRunner().invoke(command, [*words[:-1], "--threshold", "0.99"])
    assert "all from disk" in again.stderr and " ms to search" in again.stderr and "soup" not in again.stdout


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("top", [1, 7, 700, 701])
def test_nearest_is_a_whole_sort(dtype: type, top: int):
    """Against sorting every product; equal ones in the order of the lines."""
    generator = np.random.default_rng(3)
    vectors_ND = generator.integers(-3, 4, (701, 8)).astype(dtype)  # many ties, no rounding
    query_D = generator.integers(-3, 4, 8).astype(np.float32)
    whole_N = vectors_ND.astype(np.float64) @ query_D
    wanted = sorted(range(701), key=lambda row: (-whole_N[row], row))[:top]
    cosines, rows = nearest(vectors_ND, query_D, top)
    assert cosines.tolist() == whole_N[wanted].tolist()
    # Of equal products at the end of the list any may be taken.
    last = whole_N[wanted[-1]]
    assert [row for row in rows if whole_N[row] > last] == [row for row in wanted if whole_N[row] > last]
