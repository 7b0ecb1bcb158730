"""Quantization-aware distillation as a stage of a recipe: what is trained is what quantization then stores."""

import numpy as np
import pytest

from msdc.compress.quantization.rounding import is_prepared
from msdc.compress.student.io import load_student
from msdc.distill import distill
from msdc.distill.catalog import parse_recipe
from msdc.errors import MsdcError


def with_stage(tree: dict, precision: str) -> dict:
    first = {**tree["stages"][0], "steps": 2}
    last = {**tree["stages"][3], "name": "qat", "steps": 4, "objective": "multilingual_mse", "quantize": precision}
    return tree | {"stages": [first, last]}


def test_stage_trains_with_rounding_and_leaves_float_weights(tiny_recipe_tree, tmp_path):
    recipe = parse_recipe(with_stage(tiny_recipe_tree, "int8"), "tiny")
    distill(recipe, tmp_path / "run")
    student = load_student(tmp_path / "run" / "student")
    assert not is_prepared(student) and not student.stored_scales
    weight_RC = student.layers[0].up.weight.detach().numpy()
    # Float numbers, which another precision can still be made of: far more values than 255 steps a row.
    assert all(len(np.unique(row)) == weight_RC.shape[1] for row in weight_RC)


def test_a_precision_that_does_not_fit_is_said_in_one_line(tiny_recipe_tree, tmp_path):
    recipe = parse_recipe(with_stage(tiny_recipe_tree, "int4-embed4"), "tiny")
    with pytest.raises(MsdcError, match="int4 group of 32") as caught:
        distill(recipe, tmp_path / "run")
    assert "\n" not in str(caught.value)
