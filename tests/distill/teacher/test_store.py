"""The store of vectors against a plain dictionary, through kills, damage, full disks and other writers."""

import errno
import multiprocessing
import os
import resource
import shutil
import signal
import tempfile
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from msdc.distill.teacher import store as module
from msdc.distill.teacher.store import VectorStore, as_stored
from msdc.errors import MsdcError

WIDTH = 5
POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="limits and kills a forked child; this system has no fork")


def vectors_of(keys: np.ndarray, width: int = WIDTH) -> np.ndarray:
    """The vector of a key: what every writer writes for it. Key 0 is stored as 1."""
    vectors = [np.random.default_rng(max(1, int(key))).standard_normal(width) for key in keys]
    return np.array(vectors, np.float32).reshape(len(keys), width)


def arrays(*keys: int) -> np.ndarray:
    return np.array(keys, np.uint64)


def missing(store: VectorStore, keys: np.ndarray) -> np.ndarray:
    """The keys whose vector is missing; all others must be right to the bit."""
    vectors = store.read(keys)
    gone = np.isnan(vectors).any(1)
    np.testing.assert_array_equal(vectors[~gone], as_stored(vectors_of(keys))[~gone])
    assert np.isnan(vectors[gone]).all()
    return keys[gone]


def write(store: VectorStore, keys: np.ndarray) -> None:
    store.write(keys, vectors_of(keys))


def test_what_is_written_is_read_in_any_order_and_often(tmp_path):
    store, keys = VectorStore(tmp_path / "s", WIDTH), np.random.default_rng(1).integers(1, 2**64, 3000, np.uint64)
    assert len(missing(store, keys)) == 3000
    write(store, keys[::-1])
    write(store, keys[:10].repeat(3))
    asked = np.concatenate([keys[::-7], keys[:50].repeat(2)])
    assert len(missing(VectorStore(tmp_path / "s", WIDTH), asked)) == 0
    assert len(missing(store, arrays(0, 5))) == 2
    assert store.read(arrays()).shape == (0, WIDTH)
    write(store, arrays(0))
    assert len(missing(store, arrays(0))) == 0
    np.testing.assert_allclose(store.read(keys), vectors_of(keys), rtol=6e-4, atol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1e-8, 1e5, 1e30, 3e38])
def test_values_of_any_size_are_kept_and_others_refused(tmp_path, size):
    store = VectorStore(tmp_path / "s", 3)
    value = np.array([[1.0, -0.25, 0.001]], np.float32) * np.float32(size)
    store.write(arrays(7), value)
    np.testing.assert_allclose(store.read(arrays(7)), value, rtol=6e-4)
    for wrong in (np.nan, np.inf, -np.inf):
        with pytest.raises(ValueError, match="not finite"):
            store.write(arrays(8, 9), np.array([[1.0, 2, 3], [1.0, wrong, 3]]))
    assert np.isnan(store.read(arrays(8, 9))).all()


def test_a_store_that_grows_is_indexed_in_few_parts(tmp_path):
    store, other = VectorStore(tmp_path / "s", WIDTH), VectorStore(tmp_path / "s", WIDTH)
    keys = np.random.default_rng(2).integers(1, 2**64, 2500, np.uint64)
    for part in np.array_split(keys, 100):
        write(store, part)
        assert len(missing(other, part)) == 0
    assert len(missing(other, keys)) == 0
    assert max(len(store._index.parts), len(other._index.parts)) <= 12
    # Nothing is stored twice.
    write(other, keys)
    assert (tmp_path / "s" / "keys").stat().st_size == 8 * 2500
    assert (tmp_path / "s" / "vectors").stat().st_size == 2500 * store.record


def test_a_store_that_is_removed_or_replaced_while_it_is_open(tmp_path):
    store, keys = VectorStore(tmp_path / "s", WIDTH), arrays(*range(1, 100))
    write(store, keys)
    shutil.rmtree(tmp_path / "s")
    assert len(missing(store, keys)) == 99
    write(VectorStore(tmp_path / "s", WIDTH), keys[::-1])
    assert len(missing(store, keys)) == 0
    shutil.rmtree(tmp_path / "s")
    write(store, keys[5:])
    assert missing(VectorStore(tmp_path / "s", WIDTH), keys).tolist() == keys[:5].tolist()


def test_no_descriptor_stays_open(tmp_path):
    fds = Path("/proc/self/fd")
    if not fds.is_dir():
        pytest.skip("counts the descriptors in /proc")
    before = len(list(fds.iterdir()))
    stores = [VectorStore(tmp_path / str(number), WIDTH) for number in range(50)]
    for store in stores:
        write(store, arrays(1, 2, 3))
        store.read(arrays(1, 2, 3))
    assert len(list(fds.iterdir())) == before


@POSIX
def test_without_a_free_descriptor_it_is_an_error_and_nothing_is_lost(tmp_path):
    store = VectorStore(tmp_path / "s", WIDTH)
    keys = arrays(*range(1, 200))
    write(store, keys)
    before = {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()}
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 200), hard))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        with pytest.raises((MsdcError, OSError), match="Too many open files"):
            store.read(keys)
        with pytest.raises((MsdcError, OSError), match="Too many open files"):
            write(store, arrays(500))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for number in taken:
            os.close(number)
    assert {path.name: path.read_bytes() for path in (tmp_path / "s").iterdir()} == before
    assert len(missing(store, keys)) == 0


def test_a_bad_sector_costs_its_vectors(tmp_path, monkeypatch):
    store = VectorStore(tmp_path / "s", WIDTH)
    keys = np.random.default_rng(4).integers(1, 2**64, 50, np.uint64)
    write(store, keys)
    original = module._read_at

    def read_at(file, view, position):
        if str(file.name).endswith("vectors") and position > 25 * store.record:
            raise OSError(errno.EIO, "Input/output error")
        original(file, view, position)

    monkeypatch.setattr(module, "_read_at", read_at)
    gone = [key for key in keys if len(missing(store, arrays(key)))]
    monkeypatch.undo()
    assert len(gone) == 24
    assert len(missing(store, keys)) == 0


def test_every_flipped_bit_costs_one_vector_at_most(tmp_path, capsys):
    keys = np.random.default_rng(5).integers(1, 2**64, 12, np.uint64)
    write(VectorStore(tmp_path / "s", WIDTH), keys)
    for kind, size in (("vectors", 8 + 2 * WIDTH), ("keys", 8)):
        path = tmp_path / "s" / kind
        raw = path.read_bytes()
        places = [start for start in range(0, len(raw), size) if any(raw[start : start + size])]
        assert len(places) == 12
        for start in places:
            for position in range(start, start + size, 3):
                damaged = bytearray(raw)
                damaged[position] ^= 1 << position % 8
                path.write_bytes(damaged)
                store = VectorStore(tmp_path / "s", WIDTH)
                capsys.readouterr()
                gone = missing(store, keys)
                assert len(gone) == 1
                assert ("1 damaged vectors are computed again" in capsys.readouterr().err) == (kind == "vectors")
                write(store, gone)
                assert len(missing(VectorStore(tmp_path / "s", WIDTH), keys)) == 0
        path.write_bytes(raw)


# --- several processes ------------------------------------------------------------------------------------------------


def writer(folder, number, keys, ready):
    store = VectorStore(folder, WIDTH)
    ready.wait()
    for part in np.array_split(np.random.default_rng(number).permutation(keys), 30):
        write(store, part)
        assert len(missing(store, part)) == 0


@POSIX
@pytest.mark.parametrize("common", [False, True])
@pytest.mark.parametrize("kill", [False, True])
def test_writers_leave_no_gap_and_no_wrong_vector(tmp_path, kill, common):
    """Of the same keys and of their own; those that are killed lose what they had not written."""
    context, folder = multiprocessing.get_context("fork"), tmp_path / "s"
    keys = np.random.default_rng(6).integers(1, 2**64, 4000, np.uint64)
    parts = [keys] * 4 if common else np.array_split(keys, 4)
    ready = context.Event()
    processes = [context.Process(target=writer, args=(folder, n, part, ready)) for n, part in enumerate(parts)]
    for process in processes:
        process.start()
    ready.set()
    if kill:
        while not (folder / "keys").exists() or not (folder / "keys").stat().st_size:
            os.sched_yield() if hasattr(os, "sched_yield") else None
        for process in processes[1:]:
            process.kill()
    for process in processes:
        process.join()
    assert processes[0].exitcode == 0
    assert {process.exitcode for process in processes} <= {0, -signal.SIGKILL}
    assert len(missing(VectorStore(folder, WIDTH), parts[0] if kill else keys)) == 0
    write(VectorStore(folder, WIDTH), keys)
    assert len(missing(VectorStore(folder, WIDTH), keys)) == 0
    assert (folder / "keys").stat().st_size == 8 * len(keys)


def test_threads_share_a_store(tmp_path):
    store = VectorStore(tmp_path / "s", WIDTH)
    keys, failures = np.random.default_rng(7).integers(1, 2**64, 1000, np.uint64), []

    def work(number):
        try:
            writer(tmp_path / "s", number, keys, threading.Barrier(1))
            for part in np.array_split(keys, 20):
                write(store, part)
                assert len(missing(store, part)) == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert (tmp_path / "s" / "keys").stat().st_size == 8 * len(keys)


# --- any history ------------------------------------------------------------------------------------------------------


class StoreMachine(RuleBasedStateMachine):
    """A store, opened twice, against a dictionary of what was written and not damaged since.

    A vector that is read is the right one. A vector is missing only after damage to the files, or if its writer was
    killed.
    """

    keys = Bundle("keys")

    def __init__(self):
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "s"
        self.stores = [VectorStore(self.folder, WIDTH), VectorStore(self.folder, WIDTH)]
        self.stored: set[int] = set()
        self.attempted: set[int] = set()

    def teardown(self):
        self.temporary.cleanup()

    @rule(target=keys, start=st.integers(0, 2**64 - 1), count=st.integers(1, 90), step=st.sampled_from([1, 64, 2**48]))
    def some_keys(self, start, count, step):
        return tuple((start + n * step) % 2**64 for n in range(count))

    @rule(which=st.integers(0, 1), chosen_keys=keys)
    def write(self, which, chosen_keys):
        write(self.stores[which], arrays(*chosen_keys))
        self.stored |= set(chosen_keys)
        self.attempted |= set(chosen_keys)

    @rule(which=st.integers(0, 1), chosen_keys=keys)
    def read(self, which, chosen_keys):
        gone = missing(self.stores[which], arrays(*chosen_keys))
        assert not set(gone.tolist()) & self.stored

    @rule(chosen_keys=keys, call=st.integers(1, 3), share=st.floats(0, 1))
    def interrupted_while_it_writes(self, chosen_keys, call, share):
        """The process ends, or the disk is full, inside one of its writes: what was stored before is still there."""
        calls, original = [0], module._write

        def torn(path, positions, items):
            calls[0] += 1
            if calls[0] == call and len(positions):
                content = items.tobytes()[: int(share * items.size)]
                complete = len(content) // items.shape[1]
                original(path, positions[:complete], items[:complete])
                if rest := content[complete * items.shape[1] :]:
                    with open(path, "r+b" if path.exists() else "w+b") as file:
                        file.seek(int(positions[complete]) * items.shape[1])
                        file.write(rest)
                raise KeyboardInterrupt
            original(path, positions, items)

        module._write = torn
        try:
            write(VectorStore(self.folder, WIDTH), arrays(*chosen_keys))
            self.stored |= set(chosen_keys)
        except KeyboardInterrupt:
            pass
        finally:
            module._write = original
        self.attempted |= set(chosen_keys)

    @precondition(lambda self: self.stored)
    @rule(kind=st.sampled_from(["keys", "vectors"]), data=st.data())
    def damage(self, kind, data):
        path = self.folder / kind
        raw = bytearray(path.read_bytes()) if path.exists() else bytearray()
        how = data.draw(st.sampled_from(["flip", "truncate", "empty", "remove"]))
        if how == "flip" and raw:
            raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(raw if how == "flip" else raw[: len(raw) // 2 if how == "truncate" else 0])
        if how == "remove":
            path.unlink()
        if kind == "keys":  # a process that has read them notices nothing; another that opens the store does
            self.stores = [VectorStore(self.folder, WIDTH), VectorStore(self.folder, WIDTH)]
        self.stored = set()

    @invariant()
    def all_that_is_read_is_right(self):
        attempted = arrays(*sorted(self.attempted))
        if len(attempted):
            for store in (VectorStore(self.folder, WIDTH), self.stores[0]):
                gone = missing(store, attempted)
                assert not set(gone.tolist()) & self.stored


StoreMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
test_any_history = StoreMachine.TestCase
