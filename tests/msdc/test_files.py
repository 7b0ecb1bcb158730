"""Folders and files are whole or absent, for several writers and after kills, with the user's umask."""

import os
import subprocess
import sys
import threading
import time

import pytest

from msdc import files
from msdc.errors import InputError


def write(stage, mark: str) -> None:
    for name in ("one", "two", "three"):
        (stage / name).write_text(mark)


def whole(folder) -> bool:
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
    assert whole(target)
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
    folder, inside, counts, said = tmp_path / "new" / "run", [], [], []

    def ask() -> None:
        for _ in range(150):
            try:
                with files.held(folder), files.held(folder):
                    inside.append(1)
                    counts.append(len(inside))
                    inside.pop()
            except Exception as error:
                said.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(counts) == {1}
    assert len(counts) + len(said) == 600
    assert {type(error) for error in said} <= {InputError}
    assert all("in use by" in str(error) for error in said)
    assert {path.name for path in tmp_path.rglob("*")} <= {"new", "run", files.LOCK_FILE}


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert files.user_cache() == tmp_path / ".cache" / "msdc"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "own"))
    assert files.user_cache() == tmp_path / "own" / "msdc"
