"""Graded files: which are refused for choosing, which part is read, and what a checkpoint is chosen by."""

import pytest

from msdc.distill.training.validation import chosen_by, read_graded
from msdc.errors import InputError


def write(tmp_path, name, rows=9):
    path = tmp_path / name
    path.write_text("".join(f"{i % 6}\tone {i}\ttwo {i}\n" for i in range(rows)))
    return str(path)


@pytest.mark.parametrize("name", ["sts-test.tsv", "STS2017.en-en.tsv", "STS12.MSRpar.tsv", "STSb.en-de.test.tsv"])
def test_test_sets_may_be_reported_but_never_chosen_by(tmp_path, name):
    path = write(tmp_path, name)
    with pytest.raises(InputError, match="a test set must not choose"):
        read_graded(path)
    assert read_graded(path, choosing=False).name == name.removesuffix(".tsv")


def test_a_limit_takes_pairs_evenly(tmp_path):
    graded = read_graded(write(tmp_path, "sts-dev.tsv", 30), limit=10)
    assert graded.first == [f"one {i}" for i in range(0, 30, 3)]


@pytest.mark.parametrize(("choose", "expected"), [("graded", 60.0), ("heldout", -20.0), ("auto", 55.0)])
def test_what_is_chosen_by(choose, expected):
    assert chosen_by(choose, 4, 0.01, 3.0, 60.0) == pytest.approx(expected)
    assert chosen_by(choose, 4, None, 3.0, None) == 3.0
