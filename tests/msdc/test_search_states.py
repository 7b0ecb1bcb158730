"""The index against a plain dictionary."""

import os

import index_states
import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")


def test_500_steps():
    index_states.run(index_states.States, 10)


@pytest.mark.slow
def test_20_000_steps():
    index_states.run(index_states.States, 400)
