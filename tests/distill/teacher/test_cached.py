"""The teacher's outputs: computed once, equal to the encoder, exchanged between processes, refused if not finite."""

import numpy as np
import pytest
from torch_processes import forkserver
from training_processes import MANY, one_of_two

from msdc.distill import fill_teacher_cache
from msdc.distill.catalog import parse_recipe
from msdc.distill.run import Run
from msdc.distill.teacher import CachedTeacher, default_cache
from msdc.errors import InputError, MsdcError
from msdc.loading import load_encoder

TEXTS = ["a cat sat", "the dog ran to the house", "a cat sat", "house"]


@pytest.fixture
def teacher(tiny_teacher, tmp_path):
    return CachedTeacher(load_encoder(tiny_teacher), tmp_path / "cache", 20)


def count_calls(teacher, monkeypatch) -> list[list[str]]:
    """The texts of each call of the encoder."""
    calls: list[list[str]] = []
    original = teacher._compute

    def compute(texts, progress):
        calls.append(list(texts))
        return original(texts, progress)

    monkeypatch.setattr(teacher, "_compute", compute)
    return calls


def test_equal_to_the_encoder_and_computed_once(teacher, monkeypatch):
    expected = teacher.encoder.encode(TEXTS)
    calls = count_calls(teacher, monkeypatch)
    vectors = teacher.vectors(TEXTS)
    np.testing.assert_allclose(vectors, expected, atol=1e-3)
    assert calls == [["a cat sat", "the dog ran to the house", "house"]]
    # What is computed is what is read later, to the bit.
    np.testing.assert_array_equal(teacher.vectors(TEXTS[::-1]), vectors[::-1])
    assert calls[1:] == [[]]


def test_without_a_cache_nothing_is_stored(tiny_teacher, tiny_tree, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    recipe = parse_recipe({**tiny_tree, "cache": False}, "tiny")
    assert Run(recipe, tmp_path / "run").cache is None
    teacher = CachedTeacher(load_encoder(tiny_teacher), None, 20, layers=(1,))
    calls = count_calls(teacher, monkeypatch)
    for _ in range(2):
        rows = teacher.rows(TEXTS)
        assert rows.shape == (4, teacher.width + teacher.hidden)
        np.testing.assert_allclose(rows[:, : teacher.width], teacher.encoder.encode(TEXTS), atol=1e-5)
    assert len(calls) == 2
    assert len(calls[1]) == 3
    assert not (tmp_path / "user").exists()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_an_output_that_is_not_finite_is_refused(tiny_teacher, tmp_path, monkeypatch, cache, wrong):
    teacher = CachedTeacher(load_encoder(tiny_teacher), tmp_path / "cache" if cache else None, 20)
    original = teacher._compute

    def compute(texts, progress):
        rows = original(texts, progress)
        rows[[text == "house" for text in texts], -1] = wrong
        return rows

    monkeypatch.setattr(teacher, "_compute", compute)
    with pytest.raises(MsdcError, match="its output for 'house' is not finite"):
        teacher.vectors(TEXTS)
    # Nothing of that call is stored; the others of the text are.
    np.testing.assert_allclose(teacher.vectors(TEXTS[:3]), teacher.encoder.encode(TEXTS[:3]), atol=1e-3)


def test_a_teacher_that_is_not_frozen_is_refused(teacher):
    teacher.encoder.module.train()
    with pytest.raises(InputError, match="not frozen"):
        teacher.vectors(TEXTS)
    teacher.encoder.module.eval().requires_grad_(True)
    with pytest.raises(InputError, match="not frozen"):
        teacher.vectors(TEXTS)


def test_two_machines_without_a_common_folder_have_the_same_outputs(tiny_teacher, tmp_path, monkeypatch):
    processes = [
        forkserver().Process(target=one_of_two, args=(rank, tmp_path, tiny_teacher, tmp_path / "meeting"))
        for rank in (0, 1)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    expected = CachedTeacher(load_encoder(tiny_teacher), None, 20).vectors(MANY)
    for name in ("0-1", "1-1", "0-2", "1-2"):
        np.testing.assert_allclose(np.load(tmp_path / f"{name}.npy"), expected, atol=1e-3)
    np.testing.assert_array_equal(np.load(tmp_path / "0-1.npy"), np.load(tmp_path / "0-2.npy"))
    for rank in (0, 1):  # each machine has all of them afterwards
        alone = CachedTeacher(load_encoder(tiny_teacher), tmp_path / f"machine-{rank}", 20)
        calls = count_calls(alone, monkeypatch)
        np.testing.assert_array_equal(alone.vectors(MANY), np.load(tmp_path / f"{rank}-2.npy"))
        assert calls == [[]]


def test_a_cache_is_filled_before_a_training(tiny_teacher, tmp_path, monkeypatch):
    """By any iterable, in any order, once; a training with these settings computes nothing."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    lines = (text for text in TEXTS)
    assert fill_teacher_cache(tiny_teacher, lines, max_length=20, precision="float32") == 3
    assert fill_teacher_cache(tiny_teacher, TEXTS[::-1], max_length=20, precision="float32") == 0
    assert fill_teacher_cache(tiny_teacher, [], precision="float32") == 0
    teacher = CachedTeacher(load_encoder(tiny_teacher), default_cache(), 20)
    calls = count_calls(teacher, monkeypatch)
    np.testing.assert_allclose(teacher.vectors(TEXTS), teacher.encoder.encode(TEXTS), atol=1e-3)
    assert calls == [[]]
    # What is stored with other settings is apart.
    settings = {"max_length": 20, "precision": "float32", "cache": tmp_path / "mine"}
    assert fill_teacher_cache(tiny_teacher, TEXTS, **settings) == 3
    assert fill_teacher_cache(tiny_teacher, TEXTS, **settings | {"max_length": 4}) == 3
    with pytest.raises(InputError, match="one text; expected an iterable"):
        fill_teacher_cache(tiny_teacher, "a text")
    with pytest.raises(InputError, match="the value at index 1 is not a string"):
        fill_teacher_cache(tiny_teacher, ["a text", None])


def fill_part(folder, cache, part):
    fill_teacher_cache(folder, part, max_length=20, precision="float32", cache=cache)


def test_four_processes_fill_a_cache_without_gaps(tiny_teacher, tmp_path, monkeypatch):
    texts = [f"the cat number {number}" for number in range(600)]
    processes = [
        forkserver().Process(target=fill_part, args=(tiny_teacher, tmp_path, texts[start:][:240]))
        for start in range(0, 480, 120)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 4
    teacher = CachedTeacher(load_encoder(tiny_teacher), tmp_path, 20)
    calls = count_calls(teacher, monkeypatch)
    assert np.isfinite(teacher.vectors(texts)).all()
    assert calls == [[]]
