"""Folders and files are whole or absent, for several writers and after kills, with the user's umask."""

import os
import pwd
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from refusals import one_line

from msdc import files
from msdc.errors import InputError, MsdcError


def write(stage, mark: str) -> None:
    for name in ("one", "two", "three"):
        (stage / name).write_text(mark)


def is_complete(folder) -> bool:
    return len({(folder / name).read_text() for name in ("one", "two", "three")}) == 1


def test_many_writers_of_one_folder(tmp_path):
    target, errors = tmp_path / "model", []

    def writer(mark: str) -> None:
        for _ in range(25):
            try:
                with files.staged_folder(target, force=True) as stage:
                    write(stage, mark)
                    time.sleep(0.001)
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=writer, args=(mark,)) for mark in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert is_complete(target)
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_without_force_the_second_writer_is_refused(tmp_path):
    with pytest.raises(InputError, match="exists already"):  # noqa: SIM117
        with files.staged_folder(tmp_path / "model") as late:
            write(late, "late")
            with files.staged_folder(tmp_path / "model") as early:
                write(early, "early")
    assert (tmp_path / "model/one").read_text() == "early"


def test_left_over_folders_are_removed_after_a_day(tmp_path):
    target = tmp_path / "model"
    old, young = tmp_path / ".model.0000000a.partial", tmp_path / ".model.0000000b.partial"
    foreign = tmp_path / ".other.0000000a.partial"
    for folder in (old, young, foreign):
        folder.mkdir()
        (folder / "file").write_text("x")
    for folder in (old, foreign):
        for path in (*folder.rglob("*"), folder):
            os.utime(path, (0, 0))
    # A kill between two renames left only the hidden copy: it comes back, and is what --force would replace.
    hidden = tmp_path / ".model.0000000c.old"
    hidden.mkdir()
    write(hidden, "kept")
    with pytest.raises(InputError, match="exists already"), files.staged_folder(target):
        pass
    assert (target / "one").read_text() == "kept"
    assert not old.exists()
    assert not hidden.exists()
    assert young.exists()
    assert foreign.exists()


@pytest.mark.parametrize("mask", [0o077, 0o027, 0o002])
def test_umask(tmp_path, mask):
    before = os.umask(mask)
    try:
        files.write_text(tmp_path / "text", "x")
        with files.staged_folder(tmp_path / "model") as stage:
            (stage / "one").touch(0o600)
    finally:
        os.umask(before)
    assert (tmp_path / "text").stat().st_mode & 0o777 == 0o666 & ~mask
    assert (tmp_path / "model/one").stat().st_mode & 0o777 == 0o600 | 0o444 & ~mask
    assert (tmp_path / "model").stat().st_mode & 0o777 == 0o777 & ~mask


def test_a_lock_keeps_other_processes_out(tmp_path):
    code = (
        "import sys, time; from msdc.files import locked\n"
        "with locked(sys.argv[1]):\n"
        "    with open(sys.argv[2], 'a') as log: print('in', file=log)\n"
        "    time.sleep(0.2)\n"
        "    with open(sys.argv[2], 'a') as log: print('out', file=log)\n"
    )
    log = tmp_path / "log"
    with files.locked(tmp_path / "new" / "lock"):
        words = [sys.executable, "-c", code, str(tmp_path / "new" / "lock"), str(log)]
        started = [subprocess.Popen(words) for _ in range(3)]
        time.sleep(0.5)
        assert not log.exists()
    assert [process.wait(120) for process in started] == [0, 0, 0]
    assert log.read_text().split() == ["in", "out"] * 3


def test_a_folder_is_held_by_one_also_while_it_comes_and_goes(tmp_path):
    """Of many who ask at once for a folder that is not there one has it; the others hear of somebody who had it."""
    folder, inside, counts, refusals = tmp_path / "new" / "run", [], [], []

    def ask() -> None:
        for _ in range(150):
            try:
                with files.held(folder), files.held(folder):
                    inside.append(1)
                    counts.append(len(inside))
                    inside.pop()
            except Exception as error:
                refusals.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(counts) == {1}
    assert len(counts) + len(refusals) == 600
    assert {type(error) for error in refusals} <= {InputError}
    assert all("in use by" in str(error) for error in refusals)
    assert {path.name for path in tmp_path.rglob("*")} <= {"new", "run", files.LOCK_FILE}


MODELS = [
    "msdc-mini", "all-MiniLM-L6-v2", "模型甲", "模型乙", "Модель", "модель", "a b", "a-b", "a_b", "a.b", "A-b", "a  b",
    "a/b", "名", "-", "..", "", " a", "é", "e\u0301", "🙂", "a\nb", "\udc80",
]  # fmt: skip


def test_plain_names_differ_as_names_do():
    names = [files.plain_name(name) for name in MODELS]
    assert len(set(names)) == len(MODELS)
    assert names[:2] == MODELS[:2], "what can be a folder's name is kept"
    for name in names:
        assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*", name), name


def test_what_operating_systems_leave(tmp_path):
    system_files = [".DS_Store", "._model.onnx", "Thumbs.db", "thumbs.db", "desktop.ini", "Desktop.ini", ".directory",
            "__MACOSX/._a.tsv", "__MACOSX/a.tsv", "ehthumbs.db"]  # fmt: skip
    user_files = ["a.tsv", ".hidden", "thumbs.tsv", "Thumbs.db.tsv", "sub/b.tsv", "_.tsv"]
    for name in (*system_files, *user_files):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    remaining = files.without_system_files(path for path in tmp_path.rglob("*") if path.is_file())
    assert remaining == sorted(tmp_path / name for name in user_files)


def test_a_folder_with_what_operating_systems_leave_is_empty(tmp_path):
    target = tmp_path / "model"
    target.mkdir()
    (target / ".DS_Store").write_text("x")
    files.refuse_existing(target, True, ("config.json",))
    (target / "mine.txt").write_text("x")
    with pytest.raises(InputError, match="not a folder with"):
        files.refuse_existing(target, True, ("config.json",))


@pytest.mark.parametrize("home", [None, "", "relative"])
def test_no_home_folder(home, tmp_path, monkeypatch):
    """An empty or relative HOME is as good as none: the folder that the system knows, else one line."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False) if home is None else monkeypatch.setenv("HOME", home)
    if home != "relative":
        assert files.user_cache() == Path(pwd.getpwuid(os.getuid()).pw_dir) / ".cache" / "msdc"
    # A container may run with the number of a user that nobody knows.
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    line = one_line(files.user_cache)
    assert line == "this user has no home folder for the cache: set XDG_CACHE_HOME to a folder that you may write"


@pytest.mark.parametrize("kind", ["a file", "a folder of the kernel"])
def test_a_cache_that_cannot_be_written_names_the_setting(kind, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("x")
    home = tmp_path / "file" if kind == "a file" else Path("/proc/1")
    if not home.exists():
        pytest.skip("no such folder on this system")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    hint = "; to keep the cache elsewhere, set XDG_CACHE_HOME to a folder that you may write"
    for attempt in (lambda path: files.write_text(path, "x"), lambda path: files.staged_folder(path).__enter__(),
                    lambda path: files.locked(path).__enter__()):  # fmt: skip
        line = one_line(lambda attempt=attempt: attempt(files.user_cache() / "kind" / "name"))
        assert line.startswith(f"cannot write {home}/.cache/msdc/kind/name: ")
        assert line.endswith(hint)
    with pytest.raises(MsdcError) as other:
        files.write_text(tmp_path / "file" / "mine", "x")
    assert hint not in str(other.value), "not a file of the cache"


def test_a_missing_file_of_a_writer_is_not_the_target(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing"), files.atomic_path(tmp_path / "out"):
        (tmp_path / "nothing").read_bytes()


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert files.user_cache() == tmp_path / ".cache" / "msdc"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert files.user_cache() == tmp_path / "own" / "msdc"


def test_a_file_and_its_folder_are_on_the_disk_before_a_write_returns(tmp_path, monkeypatch):
    """The content before the rename, the folder after it: a power cut leaves the old file or the new one."""
    events = []
    monkeypatch.setattr(files, "_fsync", lambda path: events.append(("fsync", path.is_dir(), path.parent == tmp_path)))
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (events.append(("rename",)), replace(*paths)))
    files.write_text(tmp_path / "one.txt", "text")
    assert events == [("fsync", False, True), ("rename",), ("fsync", True, False)]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_json_is_read_in_the_encoding_of_its_mark(tmp_path, encoding):
    """PowerShell writes UTF-16, Notepad a mark before UTF-8."""
    (tmp_path / "a.json").write_bytes('{"name": "Müllers Händy \U0001f4f1"}'.encode(encoding))
    assert files.read_json(tmp_path / "a.json") == {"name": "Müllers Händy \U0001f4f1"}
    (tmp_path / "a.json").write_bytes('{"name": 1}'.encode(encoding)[:-1] + b"\xff")
    with pytest.raises(InputError, match="not valid JSON"):
        files.read_json(tmp_path / "a.json")
