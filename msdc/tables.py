"""Tables of text and the format of their numbers, shared by every command that writes one.

`draw` makes a `Table` of text from typed rows; the unit is in the column's head. `to_markdown` and `to_text` write a
table; `msdc.bench.report` writes the HTML page of a report.
"""

from __future__ import annotations

import math
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from msdc.errors import printable

Align = Literal["left", "right"]
RowT = TypeVar("RowT")
NONE = "–"
WRAPPED = 30  # a last column of words is wrapped, but not narrower


@dataclass(frozen=True)
class Column:
    """Head of a column; with `unit` there, cells are bare numbers."""

    title: str
    unit: str = ""
    align: Align = "right"


@dataclass(frozen=True)
class Table:
    """Rows of formatted text; the first column names its row. `marked` rows (by index) are emphasized in HTML."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[str]]
    note: str = ""
    marked: Sequence[int] = ()


@dataclass(frozen=True)
class Field(Generic[RowT]):
    """A column of typed rows: its value in a row, and how a value is written, a function or the format of a number
    (",.1f"). None is a dash. A field that `varies` is left out where all rows have the same.
    """

    title: str
    value: Callable[[RowT], Any]
    form: str | Callable[[Any], str] = str
    unit: str = ""
    align: Align = "right"
    varies: bool = False

    def text(self, value: Any) -> str:
        """The cell of `value`."""
        if value is None:
            return NONE
        return minus(format(value, self.form)) if isinstance(self.form, str) else self.form(value)


def text_field(title: str, value: Callable[[RowT], str | None], *, varies: bool = False) -> Field[RowT]:
    """A field of words, as the first of a table always is."""
    return Field(title, value, align="left", varies=varies)


def draw(
    caption: str,
    fields: Sequence[Field[RowT]],
    rows: Sequence[RowT],
    note: str = "",
    marked: Callable[[RowT], bool] = lambda _: False,
) -> Table:
    """`rows` as text, in their order. Fields without a value in any row are left out, but for the first, and with them
    the sentences of the note about them, which begin with "Title: ".
    """

    def is_shown(field: Field[RowT], value: Any, first: Any) -> bool:
        return value is not None and not (field.varies and value == first)

    values = [[field.value(row) for row in rows] for field in fields]
    shown = [
        (field, column)
        for field, column in zip(fields, values, strict=True)
        if field is fields[0] or not rows or any(is_shown(field, value, column[0]) for value in column)
    ]
    gone = {field.title for field in fields} - {field.title for field, _ in shown}
    sentences = [part for part in note.removesuffix(".").split(". ") if part.partition(": ")[0] not in gone]
    return Table(
        caption,
        [Column(field.title, field.unit, field.align) for field, _ in shown],
        list(zip(*([field.text(value) for value in column] for field, column in shown), strict=True)),
        ". ".join(sentences) + "." * bool(sentences and note),
        [index for index, row in enumerate(rows) if marked(row)],
    )


def escape_line(text: str) -> str:
    """`text` as one line of Markdown without HTML, links, images and blocks of its own.

    Entities are never markup in Markdown; brackets and signs that are no markup stay readable.
    """
    line = " ".join(printable(text).split()).replace("\\", "&#92;")
    line = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line)
    line = re.sub(r"\](?=[(\[:])", "&#93;", line)
    # The start of a heading, a quotation, a list, a fence, a table or a rule.
    return re.sub(r"^(\d{1,9}(?=[.)])|(?=[#>+*=~`|-]))", r"\1\\", line)


def escape_cell(text: str) -> str:
    """`text` as the content of one Markdown cell; see `escape_line`."""
    line = escape_line(text)
    # A cell is no block: its first characters have no meaning.
    return re.sub(r"^(\d*)\\", r"\1", line).replace("|", "\\|")


def to_markdown(table: Table) -> str:
    """The table without its caption and note."""
    heads = [c.title + (f" ({c.unit})" if c.unit else "") for c in table.columns]
    lines = ["| " + " | ".join(map(escape_cell, heads)) + " |"]
    lines.append("|" + "|".join(":---" if c.align == "left" else "---:" for c in table.columns) + "|")
    lines += ["| " + " | ".join(map(escape_cell, row)) + " |" for row in table.rows]
    return "\n".join(lines)


_LATEX = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "$": r"\$",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "×": r"$\times$", "−": "$-$", "–": "--", "·": r"$\cdot$", "°": r"\textdegree{}",
    # At the start of a row these would be arguments of the line end before it.
    "[": "{[}", "*": "{*}",
})  # fmt: skip
LATEX_WRAPPED = 40  # characters of a cell of words, beyond which its column is wrapped


def escape_latex(text: str) -> str:
    """`text` as one line of LaTeX in text mode."""
    return " ".join(printable(text).split()).translate(_LATEX)


def to_latex(table: Table) -> str:
    """The table as a `tabular` with the rules of booktabs; its caption and note are comments."""
    kinds = []
    for number, column in enumerate(table.columns):
        words = "l" if max((len(row[number]) for row in table.rows), default=0) <= LATEX_WRAPPED else "p{6cm}"
        kinds.append(words if column.align == "left" else "r")
    heads = [c.title + (f" ({c.unit})" if c.unit else "") for c in table.columns]
    rows = [" & ".join(map(escape_latex, row)) + r" \\" for row in (heads, *table.rows)]
    about = [" ".join(printable(text).split()) for text in (table.caption, table.note) if text]
    lines = [*(f"% {text}" for text in about), r"% In the preamble: \usepackage{booktabs}",
             rf"\begin{{tabular}}{{{''.join(kinds)}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule",
             r"\end{tabular}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def terminal_width() -> int:
    """Columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def filled(text: str, width: int | None, indent: str = "") -> str:
    """`text` in lines of at most `width` characters, broken at spaces only; in one line if `width` is None."""
    if width is None:
        return indent + text
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False,
                         break_on_hyphens=False)  # fmt: skip


def to_text(table: Table, width: int | None = None, hidden_note: str = "more columns with --wide") -> str:
    """The caption and the table with aligned columns, for a terminal; a cell is one line.

    With `width` it has its first columns, as many as fit and at least two; words of the last one are wrapped. A last
    line lists the hidden columns, after `hidden_note`.
    """
    heads = [c.title + (f" [{c.unit}]" if c.unit else "") for c in table.columns]
    rows = [[" ".join(printable(cell).split()) for cell in row] for row in (heads, *table.rows)]
    if width is not None and sum(max(map(len, column)) + 2 for column in zip(*rows, strict=True)) > width:
        # Units below their titles make columns of short numbers narrower.
        units = [f"[{c.unit}]" if c.unit else "" for c in table.columns]
        rows[:1] = [[printable(c.title) for c in table.columns], *([units] if any(units) else [])]
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    is_left, room = [column.align == "left" for column in table.columns], [*widths]
    if width is not None:

        def needed(count: int) -> int:
            last = min(widths[count - 1], WRAPPED) if is_left[count - 1] else widths[count - 1]
            return sum(widths[: count - 1]) + 2 * count + last

        count = len(heads)
        while count > 2 and needed(count) > width:
            count -= 1
        room = widths[:count]
        if is_left[count - 1]:
            room[-1] = min(room[-1], max(WRAPPED, width - sum(room[:-1]) - 2 * count))
    lines = [filled(table.caption, width)] if table.caption else []
    for row in rows:
        *cells, last = (cell.ljust(size) if words else cell.rjust(size)
                        for cell, size, words in zip(row, room, is_left, strict=False))  # fmt: skip
        parts = textwrap.wrap(last, room[-1], break_on_hyphens=False) if is_left[len(room) - 1] else [last]
        before = "".join(f"  {cell}" for cell in cells)
        lines += [f"{before if i == 0 else ' ' * len(before)}  {part}".rstrip() for i, part in enumerate(parts or [""])]
    if hidden := heads[len(room) :]:
        lines.append(filled(f"({hidden_note}: {', '.join(hidden)})", width, "  "))
    return "\n".join(lines)


def minus(text: str) -> str:
    """`text` with minus signs as wide as a plus."""
    return text.replace("-", "−")


def fixed(value: float | None, decimals: int) -> str:
    """`value` with `decimals` places, so that a column aligns at the point; a dash for None."""
    return NONE if value is None else minus(f"{value:,.{decimals}f}")


def signed(value: float | None, decimals: int) -> str:
    """A difference: `fixed` with a plus or minus sign."""
    return NONE if value is None else minus(f"{value:+,.{decimals}f}")


def number(value: float | None, digits: int = 3) -> str:
    """`value` with `digits` significant digits and no exponent; a dash for None."""
    if value is None:
        return NONE
    if value == 0:
        return "0"
    magnitude = abs(value)
    decimals = 0
    while decimals < 8 and magnitude * 10**decimals < 10 ** (digits - 1) - 0.5:
        decimals += 1
    return fixed(value, decimals)


def aligned(values: Iterable[float | None], digits: int = 3, most: int = 4) -> str:
    """The format of numbers whose points are aligned: with the decimals that the smallest needs for `digits`, at most
    `most`.
    """
    magnitudes = [abs(value) for value in values if value]
    decimals = 0
    if magnitudes:
        decimals = min(max(digits - 1 - math.floor(math.log10(min(magnitudes))), 0), most)
    return f",.{decimals}f"


def megabytes(count: float | None) -> str:
    """Bytes in MB (10^6) with two decimals, the unit of app stores and download limits."""
    return millions(count)


def millions(count: float | None, decimals: int = 2) -> str:
    """A count in millions."""
    return NONE if count is None else fixed(count / 1e6, decimals)


def percent(value: float | None, decimals: int = 1) -> str:
    """A ratio as a signed percentage."""
    return NONE if value is None else f"{signed(100 * value, decimals)} %"


def joined(items: Sequence[str]) -> str:
    """ "a", "a and b", "a, b and c"; empty text for no item."""
    if len(items) < 2:
        return "".join(items)
    return ", ".join(items[:-1]) + " and " + items[-1]
