"""A folder of notes: which files are entries, what is an error, and what is encoded again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import tiny_models as tiny
from click.testing import CliRunner

import msdc
from msdc.commands.search import command
from msdc.errors import InputError
from msdc.progress import warnings_to
from msdc.search import folder as folders

FILES = {
    "car.md": "---\ntags: [travel, home]\nid: 7\n---\n# Parking\n\nThe car is on level *2*.\n",
    "sub/dentist.txt": "Dentist on Monday at nine.\n\nNot *markup*.",
    "sub/cake.HTM": "<title>Baking</title><p>cheese<b>cake</b></p>",
    "work.org": "* TODO Call the bank\n",
    "a.markdown": "---\nmodified: 2020-05-01\n---\nThe soup needs more salt.",
    "title.md": "---\ntitle: Only a title\n---\n",
    "empty.md": "\n",
    "photo.png": "1",
    ".hidden.md": "hidden words",
    ".obsidian/settings.md": "hidden words",
}
ENTRIES = ["a.markdown", "car.md", "sub/cake.HTM", "sub/dentist.txt", "title.md", "work.org"]


pytestmark = pytest.mark.usefixtures("user_folder")


@pytest.fixture
def notes(tmp_path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / "notes" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    os.utime(tmp_path / "notes/car.md", (1_900_000_000, 1_900_000_000))
    return tmp_path / "notes"


@pytest.fixture(scope="module")
def model() -> msdc.Encoder:
    return msdc.load_encoder(tiny.student_folder(3))


def test_files_are_entries_with_text_titles_and_fields(notes, capsys):
    (notes / "sub/loop").symlink_to("..")
    with msdc.open_index(notes, None) as index:
        assert index.ids() == ENTRIES
        car = index.get("car.md")
        assert (car.title, car.text) == ("Parking", "Parking\n\nThe car is on level 2.")
        assert json.loads(car.metadata) == {
            "front_matter_id": 7, "modified": "2030-03-17T17:46:40+00:00", "tags": ["travel", "home"]
        }  # fmt: skip
        assert (index.get("sub/cake.HTM").title, index.get("sub/cake.HTM").text) == ("Baking", "cheesecake")
        assert index.get("sub/dentist.txt").text == FILES["sub/dentist.txt"]
        assert index.get("title.md").text == "Only a title"
        assert [hit.id for hit in index.search("level", where={"tags": "travel"}).hits] == ["car.md"]
        assert [hit.id for hit in index.search("salt", where={"modified": (None, "2020-12-31")}).hits] == ["a.markdown"]
        assert not index.search("hidden").hits
    messages = capsys.readouterr().err
    assert "files of other kinds (1), links to folders (1)" in messages and "without text: empty.md" in messages


def test_a_second_call_encodes_what_changed(notes, model, tmp_path):
    assert msdc.open_index(notes, model).encoded == len(ENTRIES)
    (notes / "car.md").rename(notes / "moved.md")
    os.utime(notes / "work.org", (1, 1))
    assert msdc.open_index(notes, model).encoded == 0
    (notes / "sub/dentist.txt").write_text("Dentist on Friday.", encoding="utf-8")
    (notes / "work.org").unlink()
    with msdc.open_index(notes, model, index=tmp_path / "notes.sqlite") as index:
        assert (index.encoded, len(index)) == (1, len(ENTRIES) - 1)
    with msdc.open_index(tmp_path / "notes.sqlite", model) as index:
        assert index.search("Friday", mode="words").hits[0].id == "sub/dentist.txt"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("b.md", b"caf\xe9", "b.md line 1: not valid UTF-8"), ("b.txt", b"a\0b", "b.txt line 1: a NUL character"),
     ("b.org", b"x" * 101, "b.org: 0 MiB, more than"), ("b.md", b"---\na: .nan\n---\nb", "b.md")],
)  # fmt: skip
def test_a_bad_file_is_one_line_that_names_it(name, content, message, notes, monkeypatch):
    monkeypatch.setattr(folders, "MOST_FILE_BYTES", 100)
    (notes / "sub" / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        msdc.open_index(notes, None)
    assert "\n" not in str(caught.value)


def test_a_broken_link_and_a_pipe_are_errors(notes):
    (notes / "gone.md").symlink_to("nowhere")
    with pytest.raises(InputError, match=r"gone\.md: no such file"):
        msdc.open_index(notes, None)
    (notes / "gone.md").unlink()
    os.mkfifo(notes / "pipe.md")
    with pytest.raises(InputError, match=r"pipe\.md: not a regular file"):
        msdc.open_index(notes, None)


def test_broken_front_matter_is_searched_and_the_warning_names_the_file(notes):
    messages: list[str] = []
    (notes / "broken.md").write_text("---\na: b: unclosed\n---\nBody", encoding="utf-8")
    with warnings_to(messages.append), msdc.open_index(notes, None) as index:
        assert index.search("unclosed").hits[0].id == "broken.md"
    assert len(messages) == 1 and "broken.md: front matter" in messages[0]


def test_the_command_searches_a_folder(notes):
    result = CliRunner().invoke(command, [str(notes), "cheesecake", "--mode", "words", "--json"])
    record = json.loads(result.stdout)
    assert record["lines"] == len(ENTRIES)
    assert [(hit["id"], hit["line"]) for hit in record["queries"][0]["hits"]] == [("sub/cake.HTM", None)]
    for option in ("--column", "--id", "--title"):
        result = CliRunner().invoke(command, [str(notes), "cheesecake", "--mode", "words", option, "2"])
        assert isinstance(result.exception, InputError) and "not for a folder" in str(result.exception)


def test_a_folder_without_notes_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no text to search in"):
        msdc.open_index(tmp_path, None)
