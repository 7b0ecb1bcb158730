"""Documents of `msdc evaluate` as sections of the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msdc.bench.accuracy.blocks import Bars, Points, Text, blocks_of
from msdc.bench.accuracy.blocks import Table as EvaluationTable
from msdc.bench.report.blocks import Column, Figure, LegendEntry, Section, Table
from msdc.bench.report.svg import FONT, SHAPES, WIDTH, Canvas, linear_axis, plot
from msdc.errors import InputError

# Columns whose cells are words; every other one is numbers.
WORDS = ("set", "model", "task", "file", "corpus", "source", "name", "system")


def _table(block: EvaluationTable) -> Table:
    columns = tuple(
        Column(title, align="left" if i == 0 or title.lower() in WORDS else "right")
        for i, title in enumerate(block.columns)
    )
    rows = tuple(tuple(cell.replace("-", "–") if cell == "-" else cell for cell in row) for row in block.rows)
    return Table(block.title, columns, rows, block.caption)


def _scatter(block: Points) -> Figure:
    """Two languages in the plane of the first two principal components."""
    xs = [x for side in block.points.values() for x, _ in side]
    ys = [y for side in block.points.values() for _, y in side]
    frame = plot(linear_axis(xs), linear_axis(ys), "first component", "second component", height=300)
    entries = []
    for i, (language, side) in enumerate(block.points.items()):
        color, shape = f"c{i % 6 + 1}", SHAPES[i % 4]
        for x, y in side:
            frame.canvas.marker(shape, *frame.point(x, y), color, size=2.6)
        entries.append(LegendEntry(color, shape, language, f"{len(side)} sentences"))
    alt = f"{block.title}: {', '.join(f'{len(side)} sentences in {name}' for name, side in block.points.items())}"
    return Figure(block.title, frame.canvas.svg(alt), alt, block.caption, tuple(entries))


def _histogram(block: Bars) -> Figure:
    """One row a bin."""
    row = 20.0
    canvas = Canvas(row * len(block.labels) + 4)
    axis = linear_axis([float(count) for count in block.counts], zero=True, pad=0)
    for i, (label, count) in enumerate(zip(block.labels, block.counts, strict=True)):
        canvas.text(0, i * row + FONT + 2, label, color="ink")
        width = axis.at(count, 0, WIDTH - 180)
        canvas.rect(110, i * row + 3, max(width, 1), 12, "c1", f"{label}: {count}")
        canvas.text(116 + max(width, 1), i * row + FONT + 2, str(count))
    alt = f"{block.title}: " + "; ".join(
        f"{name} {count}" for name, count in zip(block.labels, block.counts, strict=True)
    )
    return Figure(block.title, canvas.svg(alt), alt, block.caption)


def sections(documents: Sequence[dict[str, Any]]) -> list[Section]:
    """One section a document.

    Raises:
        InputError: a document that `msdc evaluate` did not write.
    """
    found = []
    for i, document in enumerate(documents):
        figures: list[Figure] = []
        tables: list[Table] = []
        notes: list[str] = []
        try:
            for block in blocks_of(document):
                if isinstance(block, EvaluationTable):
                    tables.append(_table(block))
                elif isinstance(block, Points):
                    figures.append(_scatter(block))
                elif isinstance(block, Bars):
                    figures.append(_histogram(block))
                elif isinstance(block, Text):
                    notes += [f"{block.title}: {line}" for line in block.lines]
            names = ", ".join(str(record["label"]) for record in document["models"])
        except (KeyError, TypeError, ValueError, AttributeError, StopIteration) as error:
            raise InputError(f"an accuracy document lacks what msdc evaluate writes ({error})") from error
        number = f"-{i + 1}" if len(documents) > 1 else ""
        found.append(
            Section(f"evaluation{number}", f"Evaluation: {names}", "", tuple(figures), tuple(tables), tuple(notes))
        )
    return found
