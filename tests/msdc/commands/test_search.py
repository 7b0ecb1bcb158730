"""Search over a user's text file with the shipped student."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import msdc
from msdc.commands.search import Index, distinct_lines, search
from msdc.errors import InputError
from msdc.scores import unit_rows

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
def file(tmp_path: Path) -> Path:
    path = tmp_path / "notes.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def test_a_query_in_another_language_finds_the_line(model: msdc.Encoder, file: Path, tmp_path: Path) -> None:
    queries = ["Die Katze schläft auf dem Dach", "la soupe manque de sel", "Çorbanın tuza ihtiyacı var"]
    index, answers = search(file, queries, model, top=2, folder=tmp_path / "index")
    assert [answer.hits[0].line for answer in answers] == [7, 4, 4]
    assert len(index.texts) == 5 and index.encoded == 5
    assert all(answer.encode_ms > 0 for answer in answers)


def test_the_ranking_is_the_exact_one(model: msdc.Encoder, file: Path, tmp_path: Path) -> None:
    index, [answer] = search(file, ["music lessons"], model, top=5, folder=tmp_path / "index")
    cosines = unit_rows(model.encode(index.texts)) @ unit_rows(model.encode(["music lessons"]))[0]
    assert [hit.text for hit in answer.hits] == [index.texts[i] for i in np.argsort(-cosines)]
    assert np.allclose([hit.cosine for hit in answer.hits], np.sort(cosines)[::-1], atol=2e-3)


def test_the_index_stays_and_only_new_lines_are_encoded(model: msdc.Encoder, file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "index"
    before = Index(model, file, folder).search("a pet", 5)
    assert Index(model, file, folder).encoded == 0
    file.write_text("\n".join(["The bridge is closed.", *LINES[2:]]) + "\n", encoding="utf-8")
    changed = Index(model, file, folder)
    assert changed.encoded == 1 and len(changed.texts) == 5
    after = changed.search("a pet", 5)
    assert after.hits[0].text == before.hits[0].text
    assert after.hits[0].cosine == pytest.approx(before.hits[0].cosine, abs=1e-3)


@pytest.mark.parametrize("name", ["index.faiss", "keys.u64", "index.json"])
def test_a_damaged_index_is_made_anew(model: msdc.Encoder, file: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "index"
    Index(model, file, folder)
    data = (folder / name).read_bytes()
    (folder / name).write_bytes(data[: len(data) // 2])
    assert Index(model, file, folder).encoded == 5
    assert Index(model, file, folder).encoded == 0


def test_one_flipped_bit_anywhere_is_made_anew(
    model: msdc.Encoder, file: Path, tmp_path: Path, capsys, record_property
) -> None:
    """In every region of every file: the answer of before, one line, and nothing to say the next time."""
    folder = tmp_path / "index"
    expected = Index(model, file, folder).search("a pet", 5).hits
    saved = {path: path.read_bytes() for path in folder.iterdir()}
    assert {path.name for path in saved} == {"index.faiss", "keys.u64", "index.json"}
    for path, raw in saved.items():
        step = max(1, len(raw) // 9)
        record_property("tries", len(range(0, len(raw), step)))
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
    (folder / "index.json").unlink()
    assert Index(model, file, folder).encoded == 5


def test_bad_input_is_one_line(model: msdc.Encoder, file: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        distinct_lines(tmp_path / "none.txt")
    cases = [("e.txt", b"\n \n", "no line with text"), ("b.txt", b"ok\n\xff\xfe\n", "line 2: not valid UTF-8")]
    for name, data, message in cases:
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError, match=message):
            distinct_lines(tmp_path / name)
    with pytest.raises(InputError, match="a query is empty"):
        search(file, [" "], model)
    strange = tmp_path / "mine"
    strange.mkdir()
    (strange / "thesis.txt").write_text("do not lose me")
    with pytest.raises(InputError, match="is not a search index"):
        Index(model, file, strange)
    assert (strange / "thesis.txt").read_text() == "do not lose me"


def test_the_command(file: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-m", "msdc.cli", "search", str(file)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [*run, "zug in die stadt", "--json", "-k", "1"], capture_output=True, text=True, env=environment
    )
    answer = json.loads(done.stdout)
    assert answer["queries"][0]["hits"][0]["line"] == 1 and answer["encoded"] == 5
    again = subprocess.run([*run, "zug in die stadt"], capture_output=True, text=True, env=environment)
    assert "all from disk" in again.stderr and LINES[0] in again.stdout and " ms to search" in again.stderr
    wrong = subprocess.run([*run[:-1], str(tmp_path / "none"), "x"], capture_output=True, text=True, env=environment)
    assert wrong.returncode == 2 and wrong.stderr.strip() == f"error: {tmp_path / 'none'}: no such file"
