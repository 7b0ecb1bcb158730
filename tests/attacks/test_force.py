"""--force replaces what msdc has written, and nothing else: no folder of photos, no device, no link's other end."""

import os
import stat
from pathlib import Path

import pytest
import tiny_models as tiny
from bench_results import make_file
from refusals import one_line
from write_events import contents, verb

from msdc.errors import InputError
from msdc.files import staged_folder, write_json

EXPORT = ("--target", "linux", "--runtime", "onnx", "--no-gates")
# A quick verb for each kind of folder.
FOLDERS = {
    "student": lambda model, out: ("compress", "student", model, "-o", out, "--unit", "1"),
    "bundle": lambda model, out: ("export", model, *EXPORT, "-o", out),
}


def refused(*words) -> str:
    text = one_line(lambda: verb(*words))
    with pytest.raises(InputError):
        verb(*words)
    return text


@pytest.mark.parametrize("kind", FOLDERS)
def test_what_is_not_ours_is_not_replaced(kind, tiny_student, tmp_path, monkeypatch):
    photos, other = tmp_path / "photos", tmp_path / "other"
    photos.mkdir()
    (photos / "cat.jpg").write_text("x")
    # Names that many folders have, one alone.
    (photos / "config.json").write_text("{}")
    (tmp_path / "notes.txt").write_text("x")
    words = FOLDERS[kind]
    # A folder of ours, of another kind.
    verb(*FOLDERS["student" if kind == "bundle" else "bundle"](tiny_student, other))
    (tmp_path / "run").mkdir()
    for name in ("recipe.yaml", "environment.json", "result.json"):
        (tmp_path / "run" / name).write_text("{}")
    before = contents(tmp_path)
    for target in ("photos", "notes.txt", "other", "run"):
        assert "it is not replaced; choose another path" in refused(*words(tiny_student, tmp_path / target), "--force")
    monkeypatch.chdir(photos)
    for target in (".", "..", "../photos", "/", str(tmp_path)):
        assert "not replaced" in refused(*words(tiny_student, target), "--force")
        assert "exists already" in refused(*words(tiny_student, target))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    assert "the working directory is not replaced" in refused(*words(tiny_student, "."), "--force")
    for target, why in (
        (tmp_path / "notes.txt" / "out", "a part of this path is a file"),
        ("x" * 300, "name too long"),
    ):
        assert why in one_line(lambda target=target: verb(*words(tiny_student, target)))
    assert contents(tmp_path) == before
    # Hidden ones too: no stage is left.
    assert {path.name for path in tmp_path.iterdir()} == {"photos", "notes.txt", "other", "run", "empty"}


@pytest.mark.parametrize("kind", FOLDERS)
def test_an_empty_folder_and_one_of_ours_are_replaced(kind, tiny_student, tmp_path, monkeypatch):
    """Also through a link, which stays: the folder that it leads to is replaced."""
    (tmp_path / "disk").mkdir()
    monkeypatch.chdir(tmp_path)
    os.symlink("disk/out", "out")
    words = FOLDERS[kind](tiny_student, "out")
    verb(*words)  # where the link leads there is nothing yet
    first = contents(tmp_path / "disk" / "out")
    (tmp_path / "disk" / "out" / "added.txt").write_text("x")
    verb(*words, "--force")
    assert contents(tmp_path / "disk" / "out") == first
    assert os.readlink("out") == "disk/out"
    (tmp_path / "empty").mkdir()
    verb(*FOLDERS[kind](tiny_student, "empty"), "--force")
    assert contents(tmp_path / "empty").keys() == first.keys()
    assert sorted(os.listdir()) == ["disk", "empty", "out"]
    assert os.listdir("disk") == ["out"]


def test_a_folder_that_becomes_somebody_elses_meanwhile(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    with pytest.raises(InputError, match="it is not replaced"), staged_folder(target, True, ("mark",)) as stage:
        (stage / "mark").touch()
        (target / "cat.jpg").touch()
    assert os.listdir(tmp_path) == ["model"]
    assert os.listdir(target) == ["cat.jpg"]


def test_files_replace_regular_files_only(tiny_student, tmp_path):
    results = tmp_path / "results.json"
    write_json(results, make_file().model_dump(mode="json"))
    folder, pipe = tmp_path / "photos.json", tmp_path / "pipe.json"
    folder.mkdir()
    os.mkfifo(pipe)
    device = tmp_path / "device.jsonl"
    device.symlink_to("/dev/null")
    for words in (
        ("encode", tiny_student, "a text", "-o", device),
        ("report", results, "-o", pipe),
        ("evaluate", tiny_student, "-t", "graded-pairs", "-o", pipe),
        ("bench", tiny.bundle("fp32", "onnx"), "--device", "python", "--json", folder),
    ):
        assert "not a regular file, it is not replaced" in refused(*words, "--force"), words
    assert folder.is_dir()
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert Path(device).is_char_device()
