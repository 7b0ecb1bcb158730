"""The guide store: computed once, equal to the encoder, whole after any accident."""

import numpy as np
import pytest

from msdc.distill.guide import Guide, GuideStore
from msdc.encoders.encoder import load_encoder
from msdc.errors import InputError
from msdc.text.tokenizer import text_key

TEXTS = ["a cat sat", "the dog ran to the house", "a cat sat", "house"]


@pytest.fixture
def guide(tiny_teacher, tmp_path):
    return Guide(load_encoder(tiny_teacher), tmp_path / "cache", 20)


def test_equal_to_the_encoder_and_computed_once(guide, monkeypatch):
    expected = guide.encoder.encode(TEXTS)
    np.testing.assert_allclose(guide.vectors(TEXTS), expected, atol=1e-3)
    assert guide.store.count == 3
    calls = []
    monkeypatch.setattr(guide.encoder, "encode", lambda texts, **_: calls.append(texts))
    np.testing.assert_allclose(guide.vectors(TEXTS[::-1]), expected[::-1], atol=1e-3)
    assert calls == []


def test_another_process_reads_what_the_first_wrote(guide, tiny_teacher, tmp_path):
    first = guide.vectors(TEXTS)
    other = Guide(load_encoder(tiny_teacher), tmp_path / "cache", 20)
    assert other.store.count == 3
    np.testing.assert_array_equal(other.vectors(TEXTS), first)


@pytest.mark.parametrize("torn", ["keys.u64", "vectors.f16"])
def test_a_torn_tail_is_ignored_and_repaired(guide, tiny_teacher, tmp_path, torn):
    first = guide.vectors(TEXTS)
    path = guide.store.folder / torn
    path.write_bytes(path.read_bytes()[:-3])
    again = Guide(load_encoder(tiny_teacher), tmp_path / "cache", 20)
    assert again.store.count == 2
    np.testing.assert_allclose(again.vectors(TEXTS), first, atol=1e-3)
    assert again.store.count == 3


def test_a_key_written_twice_is_stored_once(tmp_path):
    store, other = GuideStore(tmp_path / "s", 4), GuideStore(tmp_path / "s", 4)
    keys = np.array([text_key("x"), text_key("y")], dtype=np.uint64)
    store.append(keys, np.ones((2, 4)))
    other.append(keys[:1], np.zeros((1, 4)))
    assert other.count == 2
    np.testing.assert_array_equal(other.read(other.find(keys)), np.ones((2, 4)))


def test_a_guide_that_is_not_frozen_is_refused(guide):
    guide.encoder.module.train()
    with pytest.raises(InputError, match="not frozen"):
        guide.vectors(TEXTS)
    guide.encoder.module.eval().requires_grad_(True)
    with pytest.raises(InputError, match="not frozen"):
        guide.vectors(TEXTS)


def test_a_big_store_answers_as_a_small_one(tmp_path, monkeypatch):
    """Keys that wait unsorted, keys in the index, and what another process appended meanwhile."""
    monkeypatch.setattr("msdc.distill.guide.RECENT", 5)
    store, other = GuideStore(tmp_path / "s", 2), GuideStore(tmp_path / "s", 2)
    rng = np.random.default_rng(1)
    keys = rng.permutation(200).astype(np.uint64)
    for number, part in enumerate(np.split(keys, 50)):
        (store, other)[number % 2].append(part, np.repeat(part[:, None], 2, 1).astype(np.float32))
    store.reload()
    assert store.count == 200 and len(store._sorted) > 100
    np.testing.assert_array_equal(store.read(store.find(keys))[:, 0], keys.astype(np.float32))
    assert (store.find(np.array([777, 888], dtype=np.uint64)) == -1).all()
