"""A full disk: one line that names the file, nothing half-written under its final name, what was there stays intact."""

import contextlib
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import audited_work as work
import numpy as np
import pytest
import torch
from audited_work import differences, verb
from full_disk import said, small_disk
from write_events import contents

from msdc.distill import distill
from msdc.distill.teacher_cache import OutputStore

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="limits a forked child; this system has no fork")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder that becomes a small disk; the user's cache is on it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "disk" / "cache"))
    torch.set_num_threads(1)
    return tmp_path / "disk"


def full(work, place, size):
    """What is said, after checking that it is one line with a file of the disk that has a final name."""
    with small_disk(place, size) as limit:
        text = said(work, limit)
    assert text.startswith(f"disk full while writing {place}/") and "\n" not in text, text
    assert text.endswith(": free some space and run again") and ".partial" not in text, text
    return text


def test_distill_on_a_full_disk_goes_on_later(place, tiny_teacher):
    """At a vocabulary, a model folder, a checkpoint; the run is resumed from there when there is space."""
    recipe = work.patience(place, tiny_teacher)
    place.mkdir()
    whole = distill(recipe, place / "run")
    expected = contents(place / "run", lambda name: work._no_clock(Path("run") / name))
    used = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert whole.student.is_dir()
    shutil.rmtree(place)
    named = []
    # What was written stays: the disk grows from one attempt to the next.
    for share in (0.02, 0.2, 0.55, 0.8):
        with small_disk(place, int(used * share)) as limit:
            text = said(lambda: distill(recipe, place / "run", resume=True), limit)
        assert text == "" or text.startswith(f"disk full while writing {place}/"), text
        assert "\n" not in text and ".partial" not in text
        named.append(text.removeprefix(f"disk full while writing {place}/").split(":")[0])
    assert len(set(named)) > 1, named
    distill(recipe, place / "run", resume=True)
    got = contents(place / "run", lambda name: work._no_clock(Path("run") / name))
    assert differences(expected, got) == []


def test_guide_store_on_a_full_disk(place):
    """What was stored before is read as before; what could not be stored is stored later."""
    store = OutputStore(place / "guide", 64)
    keys = np.arange(1, 5001, dtype=np.uint64)
    vectors = np.repeat(keys[:, None] % 1000, 64, axis=1).astype(np.float32)
    store.append(keys[:100], vectors[:100])

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    text = said(lambda: OutputStore(place / "guide", 64).append(keys, vectors), limit)
    assert text.startswith(f"disk full while writing {place / 'guide'}") and text.endswith("and run again")
    again = OutputStore(place / "guide", 64)
    assert again.count == 100
    again.append(keys, vectors)
    np.testing.assert_array_equal(again.read(again.find(keys)), vectors)


def some_lines(place):
    path = place.parent / "lines.txt"
    path.write_text("\n".join(f"line number {number}" for number in range(300)))
    return path


def test_search_on_a_full_disk(place, tiny_student):
    lines = some_lines(place)
    for size in (8192, 16384):
        full(lambda: verb("search", lines, "a query", "-m", tiny_student), place, size)
        assert not [path for path in place.rglob("index.json")]


MAKES = {
    "student": lambda model, out: ("compress", "student", model, "-o", out, "--unit", "1"),
    "quantize": lambda model, out: ("compress", "quantize", model, "-o", out),
    "vocabulary": lambda model, out: ("compress", "vocabulary", model, "-o", out, "--size", "200"),
    "export": lambda model, out: ("export", model, "--target", "linux", "-o", out, "--no-gates"),
}


def in_every_file(name, place, model, shares):
    """Fill the disk at shares of what the verb writes, over a folder of before."""
    out = place / "out"
    place.mkdir(exist_ok=True)
    with contextlib.redirect_stdout(open(os.devnull, "w")):
        verb(*MAKES[name](model, out))
    before = contents(out)
    used = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    for share in shares:
        with small_disk(place, used + int(used * share) + 65536) as limit:
            text = said(lambda: verb(*MAKES[name](model, out), "--force"), limit)
        # Where the limit is one of single files, a large one may pass.
        assert text == "" or text.startswith(f"disk full while writing {out}"), text
        assert "\n" not in text and ".partial" not in text
        assert differences(before, contents(out)) == [], "what was there before is damaged"


@pytest.mark.parametrize("name", ["student"])
def test_what_was_there_stays_on_a_full_disk(name, place, tiny_student):
    in_every_file(name, place, tiny_student, (0.3, 0.7))


@pytest.mark.slow
@pytest.mark.parametrize("name", MAKES)
def test_what_was_there_stays_on_a_full_disk_at_every_file(name, place, tiny_student):
    in_every_file(name, place, tiny_student, [n / 12 for n in range(12)])


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="no /dev/full here")
def test_standard_output_on_a_full_disk(tiny_student):
    with open("/dev/full", "w") as out:
        done = subprocess.run(
            [sys.executable, "-m", "msdc.cli", "encode", str(tiny_student), "a text"], stdout=out,
            stderr=subprocess.PIPE, text=True, timeout=240, check=False,
        )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert done.stderr == "error: disk full while writing standard output: free some space and run again\n"


@pytest.mark.parametrize("suffix", [".html", ".md", ".json"])
def test_report_on_a_full_disk(place, suffix):
    from bench_results import make_file

    from msdc.bench.report.page import build_report, write_report

    report = build_report(make_file())
    target = place / f"report{suffix}"
    place.mkdir()
    target.write_text("of before")

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    text = said(lambda: write_report(report, target, force=True), limit)
    assert text == f"disk full while writing {target}: free some space and run again"
    assert target.read_text() == "of before"
    assert [path.name for path in place.iterdir()] == [target.name]
