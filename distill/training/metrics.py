"""metrics.jsonl, one JSON object per line: a run that was killed and resumed leaves the rows of one that was not."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msdc.errors import InputError
from msdc.files import disk_errors, regular_size, write_text

FILE_NAME = "metrics.jsonl"
# A hundred rows per stage and a few validations: megabytes at most.
MAX_BYTES = 256 * 1024 * 1024
# Columns of time and memory, which no two runs share.
CLOCKS = ("seconds", "steps_per_second", "minutes_per_10000_steps", "peak_mib")


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Metrics:
    """The metrics of one run folder."""

    path: Path

    def rows(self) -> list[dict[str, Any]]:
        """All rows; a last line that was not written to its end (a killed run, or one that still runs) is skipped.

        Raises:
            InputError: no such file, or a line that is not a JSON object; the message has its number.
        """
        if (size := regular_size(self.path)) > MAX_BYTES:
            raise InputError(f"{self.path}: {size} bytes, more than the metrics of any run")
        found = []
        for number, line in enumerate(self.path.read_bytes().split(b"\n")[:-1], 1):
            try:
                row = json.loads(line)
                if not isinstance(row, dict):
                    raise ValueError("not an object")
            except (ValueError, RecursionError) as error:
                raise InputError(f"{self.path}, line {number}: not a metrics row ({type(error).__name__})") from error
            found.append(row)
        return found

    def last_step(self, stage: str) -> int:
        """The last step that a stage has logged; 0 without any.

        Raises:
            InputError: see `rows`.
        """
        rows = self.rows() if self.path.is_file() else []
        return max((int(row.get("step", 0)) for row in rows if row.get("stage") == stage), default=0)

    def append(self, row: dict[str, Any]) -> None:
        """Add one row, by one write."""
        with disk_errors(self.path), open(self.path, "ab") as handle:
            handle.write(_line(row).encode())
            handle.flush()
            # What a checkpoint follows on is on the disk before the checkpoint is.
            os.fsync(handle.fileno())

    def mend(self) -> None:
        """Cut off a last line that was not written to its end, so that the next row begins a line."""
        if self.path.is_file() and (raw := self.path.read_bytes()) and not raw.endswith(b"\n"):
            write_text(self.path, raw[: raw.rfind(b"\n") + 1].decode("utf-8", "replace"))

    def replace(self, drop: Callable[[dict[str, Any]], bool], add: Sequence[dict[str, Any]] = ()) -> None:
        """Remove the rows for which `drop` is true and add others, in one replacement of the file.

        Raises:
            InputError: see `rows`.
        """
        old = self.rows() if self.path.is_file() else []
        kept = [row for row in old if not drop(row)]
        if len(kept) < len(old) or add:
            write_text(self.path, "".join(_line(row) for row in [*kept, *add]))

    def rewind(self, stage: str, step: int) -> None:
        """Forget what a stage has logged after `step`: it continues from there, and says it again.

        Raises:
            InputError: see `rows`.
        """
        self.replace(lambda row: row.get("stage") == stage and ("done" in row or row.get("step", 0) > step))
