"""Tables as Markdown and as aligned text, and the number formats of their cells."""

from typing import NamedTuple

from msdc.tables import (
    Column,
    Field,
    Table,
    aligned,
    draw,
    fixed,
    joined,
    number,
    percent,
    signed,
    text_field,
    to_markdown,
    to_text,
)

TABLE = Table(
    "Sizes", (Column("Name", align="left"), Column("Bytes", "MB")), (("a|b", "9.40"), ("longer\nname", "12.00"))
)


def test_numbers_signs_and_missing_values_as_people_read_them():
    assert [number(v) for v in (None, 0, 0.01234, 1.234, 12.34, 123.4, 1234.5, -2.5)] == [
        "–", "0", "0.0123", "1.23", "12.3", "123", "1,234", "−2.50",
    ]  # fmt: skip
    assert format(130.0, aligned([1.5, 12.0, None, 130.0])) == "130.00"
    assert format(0.5, aligned([None, 0.0])) == "0"

    assert [fixed(v, 1) for v in (None, -1.25, 12345.6)] == ["–", "−1.2", "12,345.6"]
    assert [signed(v, 2) for v in (None, 1.0, -0.5)] == ["–", "+1.00", "−0.50"]
    assert percent(-0.123) == "−12.3 %"
    assert percent(None) == "–"
    assert [joined(items) for items in ([], ["a"], ["a", "b"], ["a", "b", "c"])] == ["", "a", "a and b", "a, b and c"]


def test_markdown_is_escaped_and_text_aligned():
    assert to_markdown(TABLE).splitlines() == [
        "| Name | Bytes (MB) |", "|:---|---:|", "| a\\|b | 9.40 |", "| longer name | 12.00 |",
    ]  # fmt: skip

    table = Table("Sizes", TABLE.columns, (("a", "9.40"), ("longer", "12.00")))
    assert to_text(table).splitlines() == [
        "Sizes", "  Name    Bytes [MB]", "  a             9.40", "  longer       12.00",
    ]  # fmt: skip
    # A line end in a cell does not tear the table, and nothing controls the terminal.
    torn = Table("", TABLE.columns, (("a\nb\x1b[31m", "1"),))
    assert to_text(torn).splitlines() == ["  Name      Bytes [MB]", "  a b\ufffd[31m           1"]


def test_a_table_fits_a_terminal():
    row = ("name of a row", "1", "a verdict of many words that goes on and on", "2")
    columns = (Column("What", align="left"), Column("Time", "ms"), Column("Verdict", align="left"), Column("Bytes"))
    table = Table("Caption", columns, [row])
    assert to_text(table, 60).splitlines() == [
        "Caption",
        "  What           Time  Verdict",
        "                 [ms]",
        "  name of a row     1  a verdict of many words that goes on",
        "                       and on",
        "  (more columns with --wide: Bytes)",
    ]
    assert to_text(table, 200) == to_text(table)
    assert to_text(table, 10).splitlines()[-1] == "  Bytes)"
    assert "Verdict" not in to_text(table, 10).splitlines()[1]


class Measured(NamedTuple):
    name: str
    device: str
    change: float | None
    peak: float | None = None


FIELDS = [
    text_field("Name", lambda row: row.name),
    text_field("Device", lambda row: row.device, varies=True),
    Field("Change", lambda row: row.change, ",.1f", "%"),
    Field("Peak", lambda row: row.peak, lambda value: f"about {value:g}", "MiB"),
]
NOTE = "Change: of the median. Device: where it was measured. Peak: of the process."


def test_typed_rows_are_drawn_in_their_order_with_a_dash_for_none():
    rows = [Measured("b-1", "x", -1.25), Measured("a", "y", None, 3.0)]
    table = draw("Caption", FIELDS, rows, NOTE, marked=lambda row: row.peak is not None)
    assert table == Table(
        "Caption",
        [Column("Name", align="left"), Column("Device", align="left"), Column("Change", "%"), Column("Peak", "MiB")],
        [("b-1", "x", "−1.2", "–"), ("a", "y", "–", "about 3")],
        NOTE,
        [1],
    )


def test_a_field_without_values_is_left_out_with_its_sentence():
    rows = [Measured("a", "x", 0.0), Measured("a", "x", 12345.0)]
    table = draw("Caption", FIELDS, rows, NOTE)
    assert [column.title for column in table.columns] == ["Name", "Change"]
    assert table.rows == [("a", "0.0"), ("a", "12,345.0")]
    assert table.note == "Change: of the median."
    assert len(draw("Caption", FIELDS, []).columns) == 4, "nothing is known of no rows"
