"""The store of vectors against a plain dictionary, through kills, damage, full disks and other writers."""

import errno
import multiprocessing
import os
import resource
import signal
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from msdc.distill.teacher import store as module
from msdc.distill.teacher.store import BUCKET, FIRST, VectorStore, as_stored
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


def test_a_full_level_goes_on_in_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FIRST", 4 * BUCKET)
    store = VectorStore(tmp_path / "s", WIDTH)
    keys = np.random.default_rng(2).integers(1, 2**64, 2500, np.uint64)
    for part in np.array_split(keys, 40):
        write(store, part)
    assert len(missing(store, keys)) == 0
    levels = sorted(int(path.stem) for path in (tmp_path / "s").glob("*.keys"))
    assert levels == [0, 1, 2, 3]
    # A level is nearly full when the next one begins.
    for level in levels[:-1]:
        used = np.count_nonzero(np.frombuffer((tmp_path / "s" / f"{level}.keys").read_bytes(), "<u8"))
        assert used > 0.7 * (4 * BUCKET << level)


def test_a_key_whose_slot_another_writer_took_gets_another_slot(tmp_path, monkeypatch):
    store, other = VectorStore(tmp_path / "s", WIDTH), VectorStore(tmp_path / "s", WIDTH)
    # One bucket and one preferred slot (`key >> 48`), so that the second writer takes what the first has chosen.
    first, second = arrays(BUCKET * (FIRST // BUCKET)), arrays(2 * BUCKET * (FIRST // BUCKET))
    write_rows, races = module._write, []

    def write_after_the_other(file, rows, content):
        write_rows(file, rows, content)
        if file.name.endswith("keys") and not races:
            races.append(rows)
            monkeypatch.setattr(module, "_write", write_rows)
            file.write_bytes(b"")  # the other one read the bucket before this key was written
            write(other, second)

    monkeypatch.setattr(module, "_write", write_after_the_other)
    write(store, first)
    assert races
    assert len(missing(VectorStore(tmp_path / "s", WIDTH), np.concatenate([first, second]))) == 0


def test_room_that_is_reserved_is_one_level(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "FIRST", 4 * BUCKET)
    store = VectorStore(tmp_path / "s", WIDTH)
    store.reserve(3000)
    keys = np.random.default_rng(3).integers(1, 2**64, 3000, np.uint64)
    write(store, keys)
    store.reserve(10)
    assert len(missing(store, keys)) == 0
    assert store._levels() == [4, 0]
    assert not (tmp_path / "s" / "0.keys").stat().st_size


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
        if str(file.name).endswith(".vectors") and position > FIRST // 2 * store.record:
            raise OSError(errno.EIO, "Input/output error")
        original(file, view, position)

    monkeypatch.setattr(module, "_read_at", read_at)
    gone = missing(store, keys)
    monkeypatch.undo()
    assert 5 < len(gone) < 45
    assert len(missing(store, keys)) == 0


def test_every_flipped_bit_costs_one_vector_at_most(tmp_path, capsys):
    keys = np.random.default_rng(5).integers(1, 2**64, 12, np.uint64)
    write(VectorStore(tmp_path / "s", WIDTH), keys)
    for kind, size in (("vectors", 8 + 2 * WIDTH), ("keys", 8)):
        path = tmp_path / "s" / f"0.{kind}"
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
        missing(store, part)


@POSIX
@pytest.mark.parametrize("kill", [False, True])
def test_writers_of_the_same_keys_never_leave_a_wrong_vector(tmp_path, kill):
    context = multiprocessing.get_context("fork")
    keys = np.random.default_rng(6).integers(1, 2**64, 1500, np.uint64)
    ready = context.Event()
    folder = tmp_path / "s"
    processes = [context.Process(target=writer, args=(folder, number, keys, ready)) for number in range(3)]
    for process in processes:
        process.start()
    ready.set()
    if kill:
        while not folder.is_dir() or not any(path.stat().st_size for path in folder.iterdir()):
            os.sched_yield() if hasattr(os, "sched_yield") else None
        for process in processes:
            process.kill()
    for process in processes:
        process.join()
    assert {process.exitcode for process in processes} <= {0, -signal.SIGKILL}
    store = VectorStore(folder, WIDTH)
    gone = missing(store, keys)
    if not kill:
        assert len(gone) <= 15
    write(store, gone)
    assert len(missing(VectorStore(folder, WIDTH), keys)) == 0


# --- any history ------------------------------------------------------------------------------------------------------


class StoreMachine(RuleBasedStateMachine):
    """A store of tiny levels, opened twice, against a dictionary of what was written and not damaged since.

    The model promises one direction: a vector that is read is the right one. A vector is missing only after damage.
    """

    keys = Bundle("keys")

    def __init__(self):
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = Path(self.temporary.name) / "s"
        self.first = module.FIRST
        module.FIRST = BUCKET
        self.stores = [VectorStore(self.folder, WIDTH), VectorStore(self.folder, WIDTH)]
        self.stored: set[int] = set()
        self.attempted: set[int] = set()

    def teardown(self):
        module.FIRST = self.first
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

    @rule(chosen_keys=keys, call=st.integers(1, 6))
    def killed_while_it_writes(self, chosen_keys, call):
        """The process ends at one of its calls of the system: what is complete until then stays."""
        calls = [0]
        original = module._write

        def killed(path, places, items):
            calls[0] += 1
            if calls[0] == call:
                half = len(places) // 2
                original(path, places[:half], items[:half])
                if half < len(places):  # torn inside an item
                    with open(path, "r+b") as file:
                        file.seek(int(places[half]) * items.shape[1])
                        file.write(items[half].tobytes()[: items.shape[1] // 2])
                raise KeyboardInterrupt
            original(path, places, items)

        module._write = killed
        try:
            write(VectorStore(self.folder, WIDTH), arrays(*chosen_keys))
            self.stored |= set(chosen_keys)
        except KeyboardInterrupt:
            self.stored -= set(chosen_keys)  # a torn record may be one that was there
        finally:
            module._write = original
        self.attempted |= set(chosen_keys)

    @rule(chosen_keys=keys, free_items=st.integers(0, 40))
    def full_disk(self, chosen_keys, free_items):
        room = [free_items]
        original = module._write

        def full(path, places, items):
            if room[0] < len(places):
                original(path, places[: room[0]], items[: room[0]])
                room[0] = 0
                raise OSError(errno.ENOSPC, "No space left on device")
            room[0] -= len(places)
            original(path, places, items)

        module._write = full
        try:
            write(VectorStore(self.folder, WIDTH), arrays(*chosen_keys))
            self.stored |= set(chosen_keys)
        except MsdcError as error:
            assert str(error).startswith("disk full while writing")
        finally:
            module._write = original
        self.attempted |= set(chosen_keys)

    @precondition(lambda self: self.attempted)
    @rule(kind=st.sampled_from(["keys", "vectors"]), data=st.data())
    def damage(self, kind, data):
        files = [path for path in sorted(self.folder.glob(f"*.{kind}")) if path.stat().st_size]
        if files:
            path = data.draw(st.sampled_from(files))
            raw = bytearray(path.read_bytes())
            how = data.draw(st.sampled_from(["flip", "truncate", "empty", "remove"]))
            if how == "flip":
                raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
            path.write_bytes(raw if how == "flip" else raw[: len(raw) // 2 if how == "truncate" else 0])
            if how == "remove":
                path.unlink()
            self.stored = set()

    @rule(count=st.integers(1, 300))
    def reserve(self, count):
        self.stores[0].reserve(count)

    @invariant()
    def all_that_is_read_is_right(self):
        attempted = arrays(*sorted(self.attempted))
        if len(attempted):
            gone = missing(VectorStore(self.folder, WIDTH), attempted)
            assert not set(gone.tolist()) & self.stored


StoreMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=15, deadline=None)
test_any_history = StoreMachine.TestCase
