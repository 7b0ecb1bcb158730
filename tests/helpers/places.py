"""The checkout, and the data folder if there is one."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Read once, before any test sets it to something of its own.
_GIVEN = os.environ.get("MSDC_DATA")


def data_folder() -> Path | None:
    """MSDC_DATA, or `shared/data` beside the checkout; None if neither is a folder."""
    for place in (_GIVEN, ROOT.parent / "shared" / "data"):
        if place and Path(place).is_dir():
            return Path(place)
    return None
