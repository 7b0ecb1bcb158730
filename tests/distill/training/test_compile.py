"""`compile: true` changes how the student's layers are computed, not what they learn."""

from __future__ import annotations

import shutil

import pytest
import torch
from safetensors.torch import load_file

from msdc.distill import distill
from msdc.errors import InputError


@pytest.fixture
def tree(tiny_recipe_tree) -> dict:
    # One layer and one objective: what is compiled costs most of the time.
    student = tiny_recipe_tree["student"] | {"dropout": 0.0, "repeats": 1}
    stage = tiny_recipe_tree["stages"][3] | {"steps": 4, "objective": "multilingual_mse", "source_share": 1.0}
    return tiny_recipe_tree | {"student": student, "stages": [stage]}


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler on a CPU")
def test_a_compiled_student_learns_the_same(tree, tmp_path):
    """The errors are those of a few steps of Adam, which divides by the size of the gradient."""
    compiled: list[bool] = []
    true_compile = torch.nn.Module.compile

    def noted(self, *args, **kwargs):
        compiled.append(True)
        return true_compile(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.nn.Module, "compile", noted)
        plain = distill(tree, tmp_path / "plain")
        assert not compiled
        other = distill(tree | {"compile": True}, tmp_path / "compiled")
        assert compiled
    start = load_file(tmp_path / "plain" / "student-start" / "model.safetensors")
    expected, got = load_file(plain.student / "model.safetensors"), load_file(other.student / "model.safetensors")
    assert any(not torch.equal(expected[name], start[name]) for name in expected)
    for name in expected:
        torch.testing.assert_close(got[name], expected[name], rtol=1e-3, atol=1e-4, msg=name)


def test_without_a_compiler_it_says_so(tree, tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(InputError, match=r"compile: true needs a C\+\+ compiler"):
        distill(tree | {"compile": True}, tmp_path / "run")
