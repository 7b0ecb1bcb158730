"""Capture what C++ libraries print on standard error; the last line goes into error messages."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

_LOCK = threading.RLock()
_MAX_KEPT = 64 * 1024


@dataclass
class Captured:
    """What was written to standard error while it was captured."""

    text: str = ""

    def last_line(self) -> str:
        """The last line that says something; empty when nothing was written."""
        lines = [line.strip() for line in self.text.splitlines() if line.strip()]
        return lines[-1] if lines else ""


@contextlib.contextmanager
def quiet() -> Iterator[Captured]:
    """Send file descriptor 2 (C++ logs included) to a temporary file, and silence Python's warnings.

    The text is readable in the yielded object after the block, also when the block raised.
    """
    import logging

    captured = Captured()
    with _LOCK, tempfile.TemporaryFile() as sink:
        sys.stderr.flush()
        kept = os.dup(2)
        level = logging.root.manager.disable
        try:
            os.dup2(sink.fileno(), 2)
            logging.disable(logging.WARNING)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield captured
        finally:
            logging.disable(level)
            sys.stderr.flush()
            os.dup2(kept, 2)
            os.close(kept)
            sink.seek(0, os.SEEK_END)
            sink.seek(max(0, sink.tell() - _MAX_KEPT))
            captured.text = sink.read().decode("utf-8", "replace")
