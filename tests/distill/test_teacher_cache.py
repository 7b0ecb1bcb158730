"""The teacher store: computed once, equal to the encoder, whole after any accident."""

import shutil

import numpy as np
import pytest

from msdc.distill.teacher_cache import CachedTeacher, OutputStore
from msdc.encoders.encoder import load_encoder
from msdc.errors import InputError, MsdcError
from msdc.text.tokenizer import text_key

TEXTS = ["a cat sat", "the dog ran to the house", "a cat sat", "house"]


@pytest.fixture
def teacher(tiny_teacher, tmp_path):
    return CachedTeacher(load_encoder(tiny_teacher), tmp_path / "cache", 20)


def test_equal_to_the_encoder_and_computed_once(teacher, monkeypatch):
    expected = teacher.encoder.encode(TEXTS)
    np.testing.assert_allclose(teacher.vectors(TEXTS), expected, atol=1e-3)
    assert teacher.store.count == 3
    calls = []
    monkeypatch.setattr(teacher.encoder, "encode", lambda texts, **_: calls.append(texts))
    np.testing.assert_allclose(teacher.vectors(TEXTS[::-1]), expected[::-1], atol=1e-3)
    assert calls == []


@pytest.fixture(scope="module")
def filled(tiny_teacher, tmp_path_factory):
    """A store of three blocks (the encoder is opened once), and what it answers."""
    folder = tmp_path_factory.mktemp("filled")
    teacher = CachedTeacher(load_encoder(tiny_teacher), folder, 20)
    texts = [f"{name} and the number {number}" for number, name in enumerate(["one", "two", "three"] * 4)]
    for part in (texts[:5], texts[5:9], texts[9:]):
        teacher.vectors(part)
    return folder, texts, teacher.vectors(texts), teacher


def reopened(teacher, folder):
    """The same teacher over the store in another folder: a new process, without loading the encoder again."""
    teacher.store = OutputStore(folder / teacher.store.folder.name, teacher.store.width)
    return teacher


def test_one_flipped_bit_anywhere_is_made_anew(filled, tmp_path, capsys):
    """In every region of a part: the same numbers as before, one line, and nothing to say the next time."""
    source, texts, expected, teacher = filled
    part = sorted(source.rglob("*.part"))[1]
    raw = part.read_bytes()
    for place in range(0, len(raw), 29):
        folder = tmp_path / f"{place}"
        shutil.copytree(source, folder)
        damaged = bytearray(raw)
        damaged[place] ^= 1 << place % 8
        next(folder.rglob(part.name)).write_bytes(damaged)
        capsys.readouterr()
        np.testing.assert_array_equal(reopened(teacher, folder).vectors(texts), expected)
        assert capsys.readouterr().err.count("damaged; its rows are computed again\n") == 1, place
        again = reopened(teacher, folder)
        np.testing.assert_array_equal(again.vectors(texts), expected)
        assert capsys.readouterr().err == "" and again.store.count == len(texts), place
        shutil.rmtree(folder)


@pytest.mark.parametrize("left", [0, 20, 45, 0.5, 0.99])
def test_a_truncated_part_is_made_anew(filled, tmp_path, left):
    source, texts, expected, teacher = filled
    shutil.copytree(source, tmp_path / "store")
    path = next((tmp_path / "store").rglob("*.part"))
    path.write_bytes(path.read_bytes()[: left if isinstance(left, int) else int(path.stat().st_size * left)])
    np.testing.assert_array_equal(reopened(teacher, tmp_path / "store").vectors(texts), expected)
    np.testing.assert_array_equal(reopened(teacher, tmp_path / "store").vectors(texts), expected)


def test_many_rows_lie_in_parts_that_are_checked_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("msdc.distill.teacher_cache.PART_ROWS", 8)
    store = OutputStore(tmp_path / "s", 2)
    keys = np.arange(100, 130, dtype=np.uint64)
    store.append(keys, np.repeat(keys[:, None], 2, 1).astype(np.float32))
    assert len(list((tmp_path / "s").glob("*.part"))) == 4
    again = OutputStore(tmp_path / "s", 2)
    np.testing.assert_array_equal(again.read(again.find(keys[::-1]))[:, 1], keys[::-1].astype(np.float32))
    assert OutputStore(tmp_path / "s", 3).count == 0, "another width is another store"


def test_a_key_written_twice_is_stored_once(tmp_path):
    store, other = OutputStore(tmp_path / "s", 4), OutputStore(tmp_path / "s", 4)
    keys = np.array([text_key("x"), text_key("y")], dtype=np.uint64)
    store.append(keys, np.ones((2, 4)))
    other.append(keys[:1], np.zeros((1, 4)))
    assert other.count == 2
    np.testing.assert_array_equal(other.read(other.find(keys)), np.ones((2, 4)))


def test_a_share_that_another_machine_computed_elsewhere_is_an_error(teacher, monkeypatch):
    """The second of two processes whose cache folders differ: the rows of the first are nowhere."""
    monkeypatch.setattr("msdc.distill.training.parallel.rank_and_world", lambda: (1, 2))
    monkeypatch.setattr("msdc.distill.training.parallel.barrier", lambda: None)
    with pytest.raises(MsdcError, match=r"2 teacher outputs are missing .* all machines must see one folder"):
        teacher.outputs(TEXTS[1:], shared=True)
    # Its own share is stored; without the others all are computed here.
    assert teacher.store.count == 1
    assert len(teacher.vectors(TEXTS)) == len(TEXTS)


def test_a_teacher_that_is_not_frozen_is_refused(teacher):
    teacher.encoder.module.train()
    with pytest.raises(InputError, match="not frozen"):
        teacher.vectors(TEXTS)
    teacher.encoder.module.eval().requires_grad_(True)
    with pytest.raises(InputError, match="not frozen"):
        teacher.vectors(TEXTS)


def test_a_big_store_answers_as_a_small_one(tmp_path, monkeypatch):
    """Keys that wait unsorted, keys in the index, and what another process appended meanwhile."""
    monkeypatch.setattr("msdc.distill.teacher_cache.RECENT", 5)
    store, other = OutputStore(tmp_path / "s", 2), OutputStore(tmp_path / "s", 2)
    rng = np.random.default_rng(1)
    keys = rng.permutation(200).astype(np.uint64)
    for number, part in enumerate(np.split(keys, 50)):
        (store, other)[number % 2].append(part, np.repeat(part[:, None], 2, 1).astype(np.float32))
    store.reload()
    assert store.count == 200 and len(store._sorted) > 100
    np.testing.assert_array_equal(store.read(store.find(keys))[:, 0], keys.astype(np.float32))
    assert (store.find(np.array([777, 888], dtype=np.uint64)) == -1).all()
