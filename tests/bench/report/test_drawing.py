"""Axes hold what they are given, ticks are round, drawings are well-formed and carry no stranger's markup."""

import itertools
import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msdc.bench.report import charts
from msdc.bench.report.charts import APART, focus, score_axis, side_by_side
from msdc.bench.report.drawing import Style, linear_axis, log_axis

numbers = st.floats(-1e9, 1e9, allow_nan=False)


@given(st.lists(numbers, min_size=1, max_size=20), st.booleans())
def test_a_linear_axis_holds_its_values_and_round_ticks(values, zero):
    axis = linear_axis(values, zero=zero)
    assert axis.low <= min(values)
    assert axis.high >= max(values)
    assert axis.ticks
    assert all(axis.low - 1e-6 * abs(axis.low) <= t <= axis.high + 1e-6 * abs(axis.high) for t in axis.ticks)
    if zero:
        assert axis.low <= 0 <= axis.high
    if len(axis.ticks) > 1:
        step = axis.ticks[1] - axis.ticks[0]
        mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
        assert min(abs(mantissa - m) for m in (1, 2, 2.5, 5, 10)) < 0.01


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=20))
def test_a_log_axis_holds_its_values(values):
    axis = log_axis(values)
    assert axis.low < min(values)
    assert axis.high > max(values)
    assert 1 <= len(axis.ticks) <= 12
    assert axis.position(axis.low, 0, 100) == pytest.approx(0)
    assert axis.position(axis.high, 0, 100) == pytest.approx(100)


@given(st.lists(st.tuples(st.floats(0, 99), st.floats(0, 99)), min_size=1, max_size=12))
def test_no_marker_covers_another_and_none_leaves_its_height(points):
    placed = side_by_side(points, 100.0)
    assert all(math.dist(a, b) >= APART for a, b in itertools.combinations(placed, 2))
    assert [y for _, y in placed] == [y for _, y in points]
    assert all(x <= 100 for x, _ in placed)
    assert placed[0] == points[0]


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 9)), min_size=1, max_size=12))
def test_a_score_axis_holds_every_score_and_interval_in_order(pairs):
    rows = [(value, (value - half, value + half)) for value, half in pairs]
    axis = score_axis(rows)
    values = sorted(v for value, span in rows for v in (value, *span))
    places = [axis.position(value, 0, 100) for value in values]
    assert places == sorted(places)
    assert places[0] >= -1e-9
    assert places[-1] <= 100 + 1e-9
    assert all(0 <= axis.position(tick, 0, 100) <= 100 for tick in axis.every_tick)
    assert bool(axis.breaks(0, 100)) == (axis.below is not None)


EVIL = 'x"><script>alert(1)</script>&'


STYLES = [Style(EVIL, "c1", "square"), Style("b", "c2", "ring")]
FIGURES = [
    charts.bars(EVIL, [(STYLES[0], 5.0, EVIL)]),
    charts.dots(EVIL, [(STYLES[0], 70.0, (60.0, 80.0), "70"), (STYLES[1], 71.0, None, "71")], EVIL),
    charts.dots("t", [(STYLES[0], 10.0, (5.0, 20.0), "slower"), (STYLES[1], -9.0, (-20.0, 10.0), "noise")], "",
                percent=True),
    charts.trade_off("t", EVIL, EVIL, [(Style(EVIL, "c1", "diamond"), 5.0, 70.0, (60.0, 80.0), EVIL)]),
    charts.lines("t", "tokens", "ms", [(STYLES[0], [(8, 1.0), (128, 90.0)])], upper=[[(8, 2.0), (128, 99.0)]],
                 log_x=True, x_labels={8: "8", 128: "128"}, zero=True),
    charts.lines(EVIL, "step", "loss", [(Style(EVIL), [(1, 0.5)])], marks=False),
    charts.scatter("t", [(STYLES[0], [(0.0, 1.0)]), (STYLES[1], [(2.0, -1.0)])]),
]  # fmt: skip


def test_what_lies_far_below_does_not_flatten_the_others():
    assert focus([74.8, 26.0, 74.3, 74.4]) == 74.3
    assert focus([70.0]) == 70.0
    assert focus([75.0, 68.0, 60.0]) == 60.0
    rows = [(STYLES[1], 74.0, (73.0, 75.0), "74"), (STYLES[0], 26.0, None, "26.0")]
    figure = charts.dots("t", rows, "")
    # Both scales have ticks, and two marks show the break.
    assert all(f">{text}</text>" in figure.svg for text in ("26.0", "72", "25"))
    assert ">40</text>" not in figure.svg
    rows = [(STYLES[1], 1.0, 74.0, None, "a"), (STYLES[0], 2.0, 26.0, None, "b"), (STYLES[0], 2.01, 26.0, None, "c")]
    figure = charts.trade_off("t", "MB", "score", rows)
    assert figure.svg.count("<title>") == 3
    assert "side by side" in figure.caption
    assert "side by side" not in charts.trade_off("t", "MB", "score", rows[:2]).caption


def test_rows_of_one_label_have_it_once_and_their_styles_in_the_legend():
    rows = [(style, value, None, str(value)) for value in (70.0, 80.0) for style in STYLES[:2]]
    figure = charts.dots("t", rows, "", labels=["one set", "one set", "other set", "other set"])
    assert figure.svg.count(">one set</text>") == figure.svg.count(">other set</text>") == 1
    assert [style for style, _ in figure.legend] == STYLES[:2]
    assert f"other set, {STYLES[1].name} 80.0" in figure.alt
    alone = charts.dots("t", rows[::2], "", labels=["one set", "other set"])
    assert not alone.legend
    assert alone.alt == "t: one set 70.0; other set 80.0"


def test_an_axis_is_logarithmic_where_lines_lie_far_apart():
    near, far = ([(STYLES[0], [(1, 1.0)]), (STYLES[1], [(1, top)])] for top in (9.0, 900.0))
    assert "logarithmic" not in charts.lines("t", "x", "ms", near, zero=True).svg
    assert "logarithmic" in charts.lines("t", "x", "ms", far, zero=True).svg


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.title[:8])
def test_drawings_are_well_formed_and_escape_names(figure):
    root = ElementTree.fromstring(figure.svg)
    assert root.get("role") == "img"
    assert root.get("aria-label") == figure.alt
    assert "<script" not in figure.svg
    names = {element.tag.split("}")[-1] for element in root.iter()}
    assert names <= {"svg", "line", "polyline", "polygon", "path", "rect", "circle", "text", "title"}
    for element in root.iter():
        for key in ("x", "y", "x1", "x2", "y1", "y2", "cx", "cy"):
            assert math.isfinite(float(element.get(key, 0)))
