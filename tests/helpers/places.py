"""The checkout, and the data folder if there is one."""

import gzip
import itertools
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Read once, before any test sets it to something of its own.
_GIVEN = os.environ.get("MSDC_DATA")


def data_folder() -> Path | None:
    """MSDC_DATA, or `shared/data` beside the checkout; None if neither is a folder."""
    for folder in (_GIVEN, ROOT.parent / "shared" / "data"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    return None


def flores(lines: int | None = None) -> list[str]:
    """The first sentences of each language of FLORES-200; skips the test where it is not there."""
    files = sorted(((data_folder() or Path("/nonexistent")) / "flores200" / "dev").glob("*.gz"))
    if not files:
        pytest.skip("../shared/data/flores200 is not here")
    texts = []
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") as rows:
            texts += [row.rstrip("\n") for row in itertools.islice(rows, lines)]
    return texts
