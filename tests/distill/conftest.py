"""The tiny recipe under the name the tests of teaching use."""

import pytest


@pytest.fixture
def tiny_tree(tiny_recipe_tree) -> dict:
    return tiny_recipe_tree
