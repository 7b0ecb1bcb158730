"""The parts of a report before it is written: sections of tables, figures and notes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from msdc.tables import Table


@dataclass(frozen=True)
class LegendEntry:
    """One line of a legend: color variable, marker shape, name, and an optional value."""

    color: str
    shape: str
    name: str
    value: str = ""


@dataclass(frozen=True)
class Figure:
    """An SVG drawing. `alt` describes it in words; `legend` is text below the drawing, not inside it."""

    title: str
    svg: str
    alt: str
    caption: str = ""
    legend: tuple[LegendEntry, ...] = ()


@dataclass(frozen=True)
class Section:
    """One section of the report; `lead` states its main finding in one sentence, generated from the numbers.

    Figures stand above the tables unless `tables_first`.
    """

    id: str
    title: str
    lead: str = ""
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()
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
    `missed` has one line per target that is not met.
    """

    title: str
    subtitle: str
    created: str = ""
    tiles: tuple[Tile, ...] = ()
    sections: tuple[Section, ...] = ()
    warnings: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
