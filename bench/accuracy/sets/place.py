"""Where named data sets are looked for, and what a named set is made of."""

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
class Place:
    """The data folder and the languages asked for (None: what a set has, or the shipped student's eight)."""

    folder: Path | None
    languages: tuple[str, ...] | None = None

    def first(self, *patterns: str) -> Path | None:
        """First file or folder that a pattern finds."""
        found = (path for pattern in patterns for path in self.all(pattern))
        return next(found, None)

    def all(self, *patterns: str) -> list[Path]:
        """Everything that the patterns find, in order."""
        if self.folder is None:
            return []
        return [path for pattern in patterns for path in sorted(self.folder.glob(pattern))]

    def codes(self) -> tuple[str, ...]:
        return self.languages or SHIPPED

    def others(self) -> list[str]:
        """Languages besides English."""
        return [code for code in self.codes() if code != "en"]


@dataclass(frozen=True)
class Part:
    """One data set of a named set; `load` is None where its files are absent (then `looked_for` says which).

    An `extra` part is only scored when it is named.
    """

    name: str
    load: Callable[[], Any] | None
    looked_for: str = ""
    extra: bool = False


@dataclass(frozen=True)
class NamedSet:
    """Parts that one task scores under one name."""

    name: str
    task: Task
    summary: str
    parts: Callable[[Place], Iterator[Part]]


def data_place(folder: str | Path | None, languages: tuple[str, ...] | None = None) -> Place:
    """The folder given, or the one of the environment variable MSDC_DATA, or none."""
    chosen = folder or os.environ.get(ENVIRONMENT) or None
    return Place(Path(chosen) if chosen else None, languages)


def pairs_part(place: Place, name: str, *patterns: str, extra: bool = False) -> Part:
    """Scored pairs from the first file that a pattern finds."""
    file = place.first(*patterns)
    return Part(name, None if file is None else partial(read_pairs, file, name), patterns[0], extra)
