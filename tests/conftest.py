"""Fixtures shared by all floors."""

import os
import sys
from pathlib import Path

import pytest

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# tiny_models.py makes stock encoders of every family; other floors' tests use it too.
sys.path.insert(0, str(Path(__file__).parent / "compress"))

QUICKSTART = Path(__file__).parent.parent / "msdc" / "data" / "quickstart"


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tests share small machines; one thread each also makes their numbers the same everywhere."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def parallel_tsv() -> Path:
    """The embedded corpus."""
    return QUICKSTART / "parallel.tsv"
