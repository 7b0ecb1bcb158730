"""Tiny models shared by the tests of compress."""

from pathlib import Path

import pytest
from stock_models import write_stock


@pytest.fixture(scope="session")
def bert_folder(tmp_path_factory) -> Path:
    """A tiny stock BERT sentence encoder."""
    return write_stock(tmp_path_factory.mktemp("stock") / "bert", "bert")
