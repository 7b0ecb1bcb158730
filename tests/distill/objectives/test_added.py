"""An objective is added as CONTRIBUTING says: one function, which a recipe can name and the reference lists."""

import os
import shutil

import pytest
import yaml
from places import ROOT
from programs import python

CODE = '''

@objective()
def cosine_gap(student_BD: Tensor, teacher_BD: Tensor, margin: float = 0.0) -> Tensor:
    """The mean of 1 - cosine beyond a margin."""
    return (1 - F.cosine_similarity(student_BD, teacher_BD) - margin).clamp(min=0).mean()
'''
TRAIN = """
import sys
from test_recipe_page import render
from msdc.distill import distill
assert "|`cosine_gap`|`margin: 0.0`|" in render()
assert distill(sys.argv[1], sys.argv[2]).stages["four"]["share_cosine_gap"] == 1
"""


@pytest.fixture
def tree_with_objective(tmp_path):
    """A checkout's packages, of which `distill` is a copy with the function."""
    package = tmp_path / "checkout" / "msdc"
    package.mkdir(parents=True)
    for path in (ROOT / "msdc").iterdir():
        if path.name != "distill":
            (package / path.name).symlink_to(path.resolve())
    shutil.copytree(ROOT / "distill", package / "distill", ignore=shutil.ignore_patterns("__pycache__"))
    with (package / "distill/objectives/retrieval.py").open("a", encoding="utf-8") as file:
        file.write(CODE)
    return package.parent


def test_a_function_is_enough(tree_with_objective, tiny_tree, tmp_path):
    stage = tiny_tree["stages"][3] | {"objective": "cosine_gap", "steps": 3, "source_share": 1.0}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(tiny_tree | {"stages": [stage]}))
    paths = [tree_with_objective, *(ROOT / "tests" / name for name in ("docs", "helpers"))]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    python(TRAIN, tmp_path / "recipe.yaml", tmp_path / "run", env=environment, cwd=tmp_path)
