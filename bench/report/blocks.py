"""What a report is made of before it is a page: sections of tables, figures and notes; and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Align = Literal["left", "right"]


@dataclass(frozen=True)
class Column:
    """`unit` stands in the header, so that cells are bare numbers."""

    title: str
    unit: str = ""
    align: Align = "right"


@dataclass(frozen=True)
class Table:
    """Rows of text, already formatted; the first column heads its row."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class LegendEntry:
    """One line of a legend: colour class, marker shape, name, and perhaps a value."""

    color: str
    shape: str
    name: str
    value: str = ""


@dataclass(frozen=True)
class Figure:
    """An SVG drawing. `alt` says in words what it shows; `legend` is text beside it, not inside."""

    title: str
    svg: str
    alt: str
    caption: str = ""
    legend: tuple[LegendEntry, ...] = ()


@dataclass(frozen=True)
class Section:
    """One part of the report; `lead` is its finding in a sentence, made from the numbers."""

    id: str
    title: str
    lead: str = ""
    figures: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tile:
    """A key figure at the top."""

    label: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Report:
    """The whole."""

    title: str
    subtitle: str
    created: str
    tiles: tuple[Tile, ...] = ()
    sections: tuple[Section, ...] = field(default=())


def number(value: float | None, digits: int = 3) -> str:
    """`digits` significant digits without exponent; a dash where there is no value."""
    if value is None:
        return "–"
    if value == 0:
        return "0"
    magnitude = abs(value)
    decimals = 0
    while decimals < 8 and magnitude * 10**decimals < 10 ** (digits - 1) - 0.5:
        decimals += 1
    return minus(f"{value:,.{decimals}f}")


def aligned(values: Sequence[float | None], digits: int = 3, most: int = 4) -> list[str]:
    """A column whose points stand under each other: as many decimals as its smallest value needs for `digits`."""
    magnitudes = [abs(value) for value in values if value]
    decimals = 0
    if magnitudes:
        decimals = min(max(digits - 1 - math.floor(math.log10(min(magnitudes))), 0), most)
    return [fixed(value, decimals) for value in values]


def fixed(value: float | None, decimals: int) -> str:
    """A column of these aligns at the point."""
    return "–" if value is None else minus(f"{value:,.{decimals}f}")


def minus(text: str) -> str:
    """The sign that is as wide as a plus."""
    return text.replace("-", "−")


def megabytes(count: float | None) -> str:
    """Bytes in MB (10^6), two decimals: what stores and download limits count."""
    return "–" if count is None else f"{count / 1e6:,.2f}"


def millions(count: float | None) -> str:
    return "–" if count is None else f"{count / 1e6:,.2f}"


def percent(value: float | None, decimals: int = 1) -> str:
    """A ratio as a signed percentage."""
    return "–" if value is None else minus(f"{100 * value:+.{decimals}f} %")


def joined(items: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1] if items else ""
