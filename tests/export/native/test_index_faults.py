"""The native index when something happens to it: kills and full disks at every write, processes, sanitizers."""

import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import native_index
import numpy as np
import pytest
import tiny_models as tiny
from native_index import NativeCore, NativeIndex

from msdc.errors import MsdcError
from msdc.search.index import Index

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
WIDTH = 8
Contents = list[tuple[str, str]]
Step = Callable[[NativeIndex], object]
STEPS: list[Step] = [
    lambda index: index.add([{"id": f"n{number}", "text": f"A cat sat on mat {number}."} for number in range(30)]),
    lambda index: index.update([{"id": "n3", "text": "Changed."}, {"id": "new", "text": "A dog. It ran far away."}]),
    lambda index: index.remove(["n1", "n4", "new"]),
    lambda index: index.compact(),
]


@pytest.fixture(scope="module")
def core():
    return NativeCore(native_index.library("pinned"))


@pytest.fixture(scope="module")
def model():
    """A model that needs no program: its vectors are of the texts' checksums."""

    def encode(texts):
        rows = [np.random.default_rng(zlib.crc32(text.encode())).normal(size=WIDTH) for text in texts]
        return np.array(rows, np.float32).reshape(-1, WIDTH)

    return SimpleNamespace(
        encode=encode,
        width=WIDTH,
        max_length=48,
        name="checksums",
        source="5c" * 32,
        tokenizer=tiny.tokenizer(),
        cosines=lambda: None,
    )


@pytest.fixture
def opened(core, model, tmp_path):
    return lambda name="index.sqlite", **options: NativeIndex(
        core, model, tmp_path / name, tmp_path / "bundles", **options
    )


def contents(index: NativeIndex) -> Contents:
    """Ids and texts, once everything was compared with its checksums."""
    index.check()
    return [(key, index.get(key).text) for key in index.ids()]


def states(opened) -> list[Contents]:
    """The contents before and after each step."""
    with opened("steps.sqlite") as index:
        all_states: list[Contents] = [[]]
        for step in STEPS:
            step(index)
            all_states.append(contents(index))
    return all_states


def in_child(work: Callable[[], None]) -> int:
    """The exit code of a child process that does some work."""
    child = os.fork()
    if not child:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_kill_at_every_write(opened, core, tmp_path):
    expected = states(opened)

    def work() -> None:
        core.faults(2, count)
        with opened() as index:
            for step in STEPS:
                step(index)

    killed_states = []
    for count in range(0, 10_000, 3):
        for file in tmp_path.glob("index.sqlite*"):
            file.unlink()
        code = in_child(work)
        with opened() as index:
            killed_states.append(contents(index))
            assert killed_states[-1] in expected, count
            index.update([{"id": "late", "text": "A late cat."}])
            assert contents(index)[-1] == ("late", "A late cat.")
        if code == 0:
            break
        assert code == 9
    assert len(killed_states) > 20
    assert [expected.index(state) for state in killed_states] == sorted(
        expected.index(state) for state in killed_states
    )
    with Index(None, tmp_path / "index.sqlite") as oracle:
        assert oracle.search("late").hits[0].id == "late"


def test_a_full_disk_at_every_write(opened, core, tmp_path):
    expected, statuses = states(opened), set()
    for count in range(0, 10_000, 3):
        for file in tmp_path.glob("index.sqlite*"):
            file.unlink()
        error = None
        with opened() as index:
            core.faults(1, count)
            try:
                for step in STEPS:
                    step(index)
            except MsdcError as failure:
                error = failure
            finally:
                core.faults()
            assert contents(index) in expected
            index.update([{"id": "late", "text": "A late cat."}])
            assert contents(index)[-1] == ("late", "A late cat.")
        if error is None:
            break
        assert "disk full while writing" in str(error), error
        statuses.add(error.status)
    assert count > 60
    assert statuses == {native_index.FULL}


def test_a_file_that_is_full_at_once(opened, core):
    """A search needs no space, and what is there stays."""
    with opened() as index:
        STEPS[0](index)
        core.faults(1, 0)
        try:
            with pytest.raises(MsdcError, match="disk full while writing"):
                index.add(["more"])
            assert len(index.search("cat", 50, mode="words", distinct=False).hits) == 30
            with pytest.raises(MsdcError):
                index.backup(index.path.with_name("copy.sqlite"))
        finally:
            core.faults()
        assert not [*index.path.parent.glob("copy*")]


def test_processes_write_and_read_at_once(opened):
    """Two writers in processes of their own, one of them killed, and a reader here."""

    def write(writer: int) -> None:
        with opened() as index:
            for number in range(12):
                index.add([{"id": f"{writer}-{number}-{part}", "text": f"common {part}"} for part in range(5)])
                if writer == 1 and number == 6:
                    os.kill(os.getpid(), 9)

    with opened() as index:
        index.add([{"id": "first", "text": "common"}])
    children = []  # before a file is open here: SQLite's locks are no child's
    for writer in range(2):
        child = os.fork()
        if not child:
            code = 1
            try:
                write(writer)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    counts = []
    with opened() as index:
        while len(counts) < 400:
            counts.append(len(index.search("common", 1000, mode="words", distinct=False).hits))
            if counts[-1] == 1 + 5 * (12 + 7):
                break
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert codes == [0, -9]
        assert all(count % 5 == 1 for count in counts)
        assert len(contents(index)) == 1 + 5 * (12 + 7)


def test_bits_that_flip(opened, core, model, tmp_path):
    """A wrong bit in a copy: the same documents and hits, or an error of one line."""
    with opened() as index:
        for step in STEPS[:3]:
            step(index)
        expected = contents(index)
        hits = [hit.id for hit in index.search("cat mat", 50, distinct=False).hits]
    content, chance = (tmp_path / "index.sqlite").read_bytes(), np.random.default_rng(1)
    errors = 0
    for _ in range(150):
        damaged = bytearray(content)
        damaged[int(chance.integers(len(content)))] ^= 1 << int(chance.integers(8))
        for name in ("damaged.sqlite", None):
            try:
                if name is None:
                    copy = NativeIndex(core, model, None, tmp_path / "bundles", content=bytes(damaged))
                else:
                    (tmp_path / name).write_bytes(damaged)
                    copy = opened(name)
                with copy:
                    assert contents(copy) == expected
                    assert [hit.id for hit in copy.search("cat mat", 50, distinct=False).hits] == hits
            except MsdcError as error:
                errors += 1
                assert "\n" not in str(error)
        for file in tmp_path.glob("damaged.sqlite*"):
            file.unlink()
    assert errors > 10


@pytest.mark.slow
def test_sanitizers_find_nothing():
    """All of these tests and those of the answers again, with checks of memory and of undefined behaviour."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed: apt-get install g++")
    sanitizers = [
        subprocess.run(["g++", f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    tests = [Path(__file__), Path(__file__).with_name("test_index.py")]
    environment = os.environ | {
        "LD_PRELOAD": " ".join(sanitizers), "MSDC_SANITIZED": "1",
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99", "UBSAN_OPTIONS": "print_stacktrace=1",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=0", "-m", "not slow", *tests],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "runtime error" not in done.stdout + done.stderr
