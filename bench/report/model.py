"""The parts of a report before it is written: sections of tables, figures and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msdc.bench.accuracy.document import Document
from msdc.bench.result import BenchFile
from msdc.tables import Table


@dataclass(frozen=True)
class Style:
    """Name, color variable and marker shape of one run or model; color alone never tells two apart."""

    name: str
    color: str
    shape: str


@dataclass(frozen=True)
class Figure:
    """An SVG drawing. `alt` describes it in words; `legend` is text below the drawing: styles and their values."""

    title: str
    svg: str
    alt: str
    caption: str = ""
    legend: Sequence[tuple[Style, str]] = ()


@dataclass(frozen=True)
class Section:
    """One section of the report; `lead` states its main finding in one sentence, generated from the numbers.

    Figures stand above the tables unless `tables_first`.
    """

    id: str
    title: str
    lead: str = ""
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    tables_first: bool = False


@dataclass(frozen=True)
class Tile:
    """A key figure at the top of the report; `state` colors a verdict."""

    label: str
    value: str
    detail: str = ""
    state: Literal["", "good", "bad"] = ""


@dataclass(frozen=True)
class Report:
    """The whole report. Without `created` (a date and time) no date is shown. `warnings` stand below the title;
    `missed` has one line per target that is not met; `source` is what the report was made from.
    """

    title: str
    subtitle: str
    created: str = ""
    tiles: Sequence[Tile] = ()
    sections: Sequence[Section] = ()
    warnings: Sequence[str] = ()
    missed: Sequence[str] = ()
    source: BenchFile | Document | None = None
