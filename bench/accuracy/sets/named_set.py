"""A named data set and its parts, and the data folder that they are read from."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from msdc.bench.accuracy.sets.languages import SHIPPED
from msdc.bench.accuracy.task import Task
from msdc.text.scored_pairs import read_pairs

ENVIRONMENT = "MSDC_DATA"


@dataclass(frozen=True)
class DataFolder:
    """The data folder and the requested languages (None: those of the set, or the eight of the shipped student)."""

    folder: Path | None
    languages: tuple[str, ...] | None = None

    def first(self, *patterns: str) -> Path | None:
        """First file or folder that matches a pattern; patterns are tried in order."""
        found = (path for pattern in patterns for path in self.all(pattern))
        return next(found, None)

    def all(self, *patterns: str) -> list[Path]:
        """Every match of the patterns, in order."""
        if self.folder is None:
            return []
        return [path for pattern in patterns for path in sorted(self.folder.glob(pattern))]

    def codes(self) -> tuple[str, ...]:
        """Two-letter codes to look for."""
        return self.languages or SHIPPED

    def others(self) -> list[str]:
        """Codes of the languages other than English."""
        return [code for code in self.codes() if code != "en"]


@dataclass(frozen=True)
class Part:
    """One data set of a named set. `load` is None where its files are absent; `looked_for` is the pattern tried.

    An `extra` part is scored only when it is named.
    """

    name: str
    load: Callable[[], Any] | None
    looked_for: str = ""
    extra: bool = False


@dataclass(frozen=True)
class NamedSet:
    """Data sets that one task scores under one name; `parts` finds them in a data folder."""

    name: str
    task: Task
    summary: str
    parts: Callable[[DataFolder], Iterator[Part]]


def find_data_folder(folder: str | Path | None, languages: tuple[str, ...] | None = None) -> DataFolder:
    """The given folder, else the one in the environment variable MSDC_DATA, else none."""
    chosen = folder or os.environ.get(ENVIRONMENT) or None
    return DataFolder(Path(chosen) if chosen else None, languages)


def pairs_part(data: DataFolder, name: str, *patterns: str, extra: bool = False) -> Part:
    """A part of scored pairs, read from the first file that matches a pattern."""
    file = data.first(*patterns)
    return Part(name, None if file is None else partial(read_pairs, file, name), patterns[0], extra)
