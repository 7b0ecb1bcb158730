"""Files that are made from the code: tests compare them, and with MSDC_WRITE=1 (`make generated`) write them."""

import os
from pathlib import Path

WRITES = bool(os.environ.get("MSDC_WRITE"))


def check_generated(path: Path, text: str) -> None:
    """Demand that `path` has `text`; write it before where files are written."""
    if WRITES:
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, f"{path.name} is not that of the code: run make generated"
