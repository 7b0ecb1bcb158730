"""A full disk: one line that names the file, nothing half-written under its final name, what was there stays intact."""

import contextlib
import os
import resource
import shutil
import subprocess
import sys
import traceback
from pathlib import Path

import numpy as np
import pytest
import torch
from bench_results import make_file
from write_events import contents, differences, no_clock, recipe_tree, verb

from msdc.bench.report.page import build_report, write_report
from msdc.distill import distill
from msdc.distill.teacher.store import VectorStore
from msdc.errors import MsdcError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="limits a forked child; this system has no fork")


def limit_files(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


@contextlib.contextmanager
def small_disk(folder, size):
    """Make `folder` a tmpfs of `size` bytes where this user may mount one; gives the limit of a child where not.

    What is in the folder moves to the disk, which must have room for it, and back.
    """
    folder.mkdir(parents=True, exist_ok=True)
    backup = folder.with_name(folder.name + ".kept")
    shutil.copytree(folder, backup, symlinks=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(folder)]
    mounted = os.geteuid() == 0 and subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        if mounted:
            shutil.copytree(backup, folder, symlinks=True, dirs_exist_ok=True)
        yield (lambda: None) if mounted else (lambda: limit_files(size))
    finally:
        shutil.rmtree(backup)
        if mounted:
            shutil.copytree(folder, backup, symlinks=True)
            subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)
            shutil.rmtree(folder)
            backup.rename(folder)


def outcome_of(work, limit) -> str:
    """What `work` says in a forked child under a limit: "" (done), the text of an `MsdcError`, or a traceback."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        text = ""
        try:
            # Captured output may be a file, which the limit would concern.
            null = os.open(os.devnull, os.O_WRONLY)
            for stream in (1, 2):
                os.dup2(null, stream)
            limit()
            work()
        except MsdcError as error:
            text = str(error)
        except BaseException:
            text = traceback.format_exc()
        finally:
            os.write(writing, text.encode())
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read().decode()
    assert os.waitpid(child, 0)[1] == 0
    assert "\n" not in text and ".partial" not in text, text
    return text


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """The folder that becomes a small disk; the user's cache is on it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "disk" / "cache"))
    torch.set_num_threads(1)
    return tmp_path / "disk"


def test_distill_on_a_full_disk_goes_on_later(disk, tiny_teacher):
    """At a vocabulary, a model folder, a checkpoint; the run is resumed from there when there is space."""
    recipe = recipe_tree(disk, tiny_teacher)
    disk.mkdir()
    distill(recipe, disk / "run")
    expected = contents(disk, no_clock)
    used = sum(path.stat().st_size for path in disk.rglob("*") if path.is_file())
    shutil.rmtree(disk)
    named = set()
    # What was written stays: the disk grows from one attempt to the next.
    for share in (0.02, 0.2, 0.55, 0.8):
        with small_disk(disk, int(used * share)) as limit:
            text = outcome_of(lambda: distill(recipe, disk / "run", resume=True), limit)
        assert text == "" or text.startswith(f"disk full while writing {disk}/"), text
        named.add(text.split(":")[0])
    assert len(named) > 1, named
    distill(recipe, disk / "run", resume=True)
    assert differences(expected, contents(disk, no_clock)) == []


def test_teacher_cache_on_a_full_disk(disk):
    """What was stored before is read as before; what could not be stored is stored later."""
    store = VectorStore(disk / "teacher", 64)
    keys = np.arange(1, 5001, dtype=np.uint64)
    vectors = np.repeat(keys[:, None] % 1000, 64, axis=1).astype(np.float32)
    store.write(keys[:100], vectors[:100])
    text = outcome_of(lambda: VectorStore(disk / "teacher", 64).write(keys, vectors), lambda: limit_files(100_000))
    assert text.startswith(f"disk full while writing {disk / 'teacher'}")
    assert text.endswith("and run again")
    again = VectorStore(disk / "teacher", 64)
    np.testing.assert_array_equal(again.read(keys[:100]), vectors[:100])
    assert np.isnan(again.read(keys[-1:])).all()
    again.write(keys, vectors)
    np.testing.assert_array_equal(again.read(keys), vectors)


def test_search_on_a_full_disk(disk, tiny_student):
    lines = disk.parent / "lines.txt"
    lines.write_text("\n".join(f"line number {number}" for number in range(300)))
    with small_disk(disk, 8192) as limit:
        text = outcome_of(lambda: verb("search", lines, "a query", "-m", tiny_student), limit)
    assert text.startswith(f"disk full while writing {disk}/")
    assert text.endswith(": free some space and run again")
    assert len(list(disk.rglob("*.sqlite"))) <= 1  # an empty index, which the next search fills


def test_what_was_there_stays_on_a_full_disk(disk, tiny_student):
    out = disk / "out"
    disk.mkdir()
    words = ("compress", "student", tiny_student, "-o", out, "--unit", "1")
    verb(*words)
    before = contents(out)
    used = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    for share in (0.3, 0.7):
        with small_disk(disk, used + int(used * share) + 65536) as limit:
            text = outcome_of(lambda: verb(*words, "--force"), limit)
        # Where the limit is one of single files, a large one may pass.
        assert text == "" or text.startswith(f"disk full while writing {out}"), text
        assert differences(before, contents(out)) == [], "what was there before is damaged"


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
def test_standard_output_on_a_full_disk(tiny_student):
    with open("/dev/full", "w") as out:
        command = [sys.executable, "-m", "msdc.cli", "encode", str(tiny_student), "a text"]
        done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=240, check=False)
    assert done.returncode == 1, done.stderr
    assert done.stderr == "error: disk full while writing standard output: free some space and run again\n"


def test_report_on_a_full_disk(disk):
    report, target = build_report(make_file()), disk / "report.html"
    disk.mkdir()
    target.write_text("of before")
    text = outcome_of(lambda: write_report(report, target, force=True), lambda: limit_files(2048))
    assert text == f"disk full while writing {target}: free some space and run again"
    assert target.read_text() == "of before"
    assert [path.name for path in disk.iterdir()] == [target.name]
