"""The figures of a report, each drawn from plain numbers: lines, bars, dots with intervals, points, samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from msdc.bench.report.drawing import (
    FONT,
    WIDTH,
    Axis,
    Canvas,
    Figure,
    Style,
    linear_axis,
    log_axis,
    plot,
    tick_text,
)
from msdc.tables import fixed, minus, number

LABEL, ROW = 20.0, 18.0  # heights in a chart of dots: of a label, and of each of its dots
# A score axis shows at least this many points, so that rounding does not look like a large drop.
SCORE_SPAN = 5.0
# A score this far below all others, and farther than twice their span, does not stretch the axis.
OUTLYING = 10.0
# Markers are at least this far from each other.
APART = 13.0

Points = Sequence[tuple[float, float]]


def _listed(pairs: Sequence[tuple[Style, str]]) -> str:
    return "; ".join(f"{style.name} {text}".strip() for style, text in pairs)


def _axis(values: Sequence[float], widest: float, *, zero: bool = False, pad: float = 0.1) -> Axis:
    """Logarithmic where the largest of positive values is over `widest` times the smallest."""
    wide = min(values) > 0 and max(values) > widest * min(values)
    return log_axis(values) if wide else linear_axis(values, zero=zero, pad=pad)


def lines(
    title: str, x_title: str, y_title: str, rows: Sequence[tuple[Style, Points]], *,
    upper: Sequence[Points] = (), log_x: bool = False, x_labels: dict[float, str] | None = None, zero: bool = False,
    marks: bool = True, height: float = 250, caption: str = "",
) -> Figure:  # fmt: skip
    """Several curves; `upper` is the upper edge of a band above each. The legend states each curve's last value.

    Curves of one style (seeds of one setting) have one entry in the legend. The y axis is logarithmic where the curves
    lie far apart. `x_labels` are the ticks, by their value.
    """
    nonempty_rows = [(style, points) for style, points in rows if points]
    xs = [x for _, points in nonempty_rows for x, _ in points]
    ys = [y for points in (*(points for _, points in nonempty_rows), *upper) for _, y in points]
    x_axis = log_axis(xs) if log_x else linear_axis(xs if x_labels else [0.0, *xs], zero=not x_labels, pad=0.04)
    if x_labels is not None:
        x_axis = Axis(x_axis.low, x_axis.high, tuple(x_labels), x_axis.log)
    y_axis = _axis(ys, 50 if zero else 8, zero=zero)
    named = y_title + (", logarithmic" if y_axis.log else "")
    frame = plot(
        x_axis, y_axis, x_title, named, height=height, x_labels=None if x_labels is None else list(x_labels.values())
    )
    for index, (style, points) in enumerate(nonempty_rows):
        placed = [frame.point(*point) for point in points]
        if upper and len(points) > 1:
            frame.canvas.area([*(frame.point(*point) for point in upper[index]), *reversed(placed)], style.color)
        frame.canvas.polyline(placed, style.color)
        for (x_value, value), position in zip(points, placed, strict=True):
            if marks or len(points) == 1:
                label = (x_labels or {}).get(x_value, number(x_value))
                text = f"{style.name}, {x_title} {label}: {number(value)}"
                frame.canvas.marker(style.shape, *position, style.color, text, 4)
    shown = []
    for style in dict.fromkeys(style for style, _ in nonempty_rows):
        curves = [points for curve_style, points in nonempty_rows if curve_style == style]
        ends = ", ".join(number(points[-1][1]) for points in curves)
        (points, *others) = curves
        if others:
            text = f"{len(curves)} curves, which end at {ends}"
        elif len(points) < 6:
            text = " / ".join(number(y) for _, y in points)
        else:
            text = f"{number(points[0][1])} to {ends}"
        shown.append((style, text))
    alt = f"{title}, {y_title} by {x_title}: {_listed(shown)}"
    return Figure(title, frame.canvas.svg(alt), alt, caption, shown)


def bars(title: str, rows: Sequence[tuple[Style, float, str]]) -> Figure:
    """One bar per row with its name above it, so that long names fit a phone."""
    canvas = Canvas(ROW * len(rows) + 6)
    axis = linear_axis([value for _, value, _ in rows], zero=True, pad=0)
    for row, (style, value, shown) in enumerate(rows):
        top, right = row * ROW, axis.position(value, 0, WIDTH - 150)
        canvas.text(0, top + FONT, style.name, color="ink")
        canvas.rect(0, top + FONT + 5, max(right, 1), 9, style.color, f"{style.name}: {number(value)}")
        canvas.text(right + 6, top + FONT + 14, shown, color="ink")
    alt = f"{title}: " + _listed([(style, shown) for style, _, shown in rows])
    return Figure(title, canvas.svg(alt), alt)


def focus(values: Sequence[float]) -> float:
    """The lowest value that the upper scale of an axis shows: those far below all others do not stretch it."""
    ordered = sorted(values, reverse=True)
    for above, below in itertools.pairwise(ordered):
        if above - below > max(OUTLYING, 2 * (ordered[0] - above)):
            return above
    return ordered[-1]


Interval = tuple[float, float]
Dot = tuple[Style, float, Interval | None, str]


def score_axis(rows: Sequence[tuple[float, Interval | None]], count: int = 5) -> Axis:
    """An axis of scores and their intervals; scores far below the others are on a second scale, below a break."""
    least = focus([value for value, _ in rows])
    upper, lower = ([v for value, span in rows if (value >= least) is above for v in (value, *(span or ()))]
                    for above in (True, False))  # fmt: skip
    axis = linear_axis(upper, count=count, pad=0.1, least=SCORE_SPAN)
    below = linear_axis(lower, count=2, pad=0.1, least=SCORE_SPAN) if lower else None
    if below is not None and below.high >= axis.low:
        return linear_axis([*upper, *lower], count=count, pad=0.1)
    return replace(axis, below=below)


def _within(axis: Axis, bounds: Interval) -> Axis:
    """The axis without ticks beyond the bounds of the measure."""
    below = None if axis.below is None else _within(axis.below, bounds)
    return replace(axis, ticks=tuple(tick for tick in axis.ticks if bounds[0] <= tick <= bounds[1]), below=below)


def dots(
    title: str, rows: Sequence[Dot], caption: str, *, percent: bool = False, labels: Sequence[str] | None = None
) -> Figure:
    """Values with their intervals, one row each: (style, value, interval, text). `percent`: changes, around zero.

    `labels`: what each row is about; consecutive rows with the same label have it once, and their styles are in the
    legend. None: the names of the styles.
    """
    inside = [v for _, value, span, _ in rows for v in (value, *(span or ()))]
    axis = linear_axis([*inside, -2.0, 2.0], count=4) if percent else score_axis([row[1:3] for row in rows], 4)
    left_px, right_px = 6.0, WIDTH - 70
    labelled = [
        (label, [row for _, row in group])
        for label, group in itertools.groupby(
            zip(labels or [row[0].name for row in rows], rows, strict=True), key=lambda pair: pair[0]
        )
    ]
    canvas = Canvas(LABEL * len(labelled) + ROW * len(rows) + 26)
    for tick in axis.every_tick:
        tick_px, zero = axis.position(tick, left_px, right_px), percent and tick == 0
        canvas.line(tick_px, 4, tick_px, canvas.height - 22, "axis" if zero else "grid", 1.5 if zero else 1)
        label = minus(f"{tick:+g} %") if percent and tick else tick_text(tick)
        canvas.text(tick_px, canvas.height - 6, label, anchor="middle")
    for tick_px in axis.breaks(left_px, right_px):
        canvas.line(tick_px - 3, canvas.height - 17, tick_px + 3, canvas.height - 27, "axis", 1.5)
    styles = list(dict.fromkeys(row[0] for row in rows))
    several = labels is not None and len(styles) > 1
    top_px, described = 0.0, []
    for label, group in labelled:
        canvas.text(left_px, top_px + 16, label, color="ink")
        top_px += LABEL
        for style, value, span, text in group:
            center_px, about = top_px + ROW / 2, f"{label}, {style.name}" if several else label
            if span is not None:
                start_px, end_px = (axis.position(bound, left_px, right_px) for bound in span)
                canvas.line(start_px, center_px, end_px, center_px, style.color, 2)
            bounds = f" ({fixed(span[0], 1)} to {fixed(span[1], 1)})" if span else ""
            tooltip = f"{about}: {fixed(value, 1)}{bounds}"
            canvas.marker(style.shape, axis.position(value, left_px, right_px), center_px, style.color, tooltip)
            canvas.text(WIDTH, center_px + 4, text, anchor="end", color="ink", weight=600)
            top_px += ROW
            described.append((replace(style, name=about), text))
    alt = f"{title}: " + _listed(described)
    return Figure(title, canvas.svg(alt), alt, caption, [(style, "") for style in styles] if several else ())


def side_by_side(points: Points, right: float) -> list[tuple[float, float]]:
    """The positions of markers, moved sideways where they would cover one placed before; none beyond `right`."""
    placed: list[tuple[float, float]] = []
    for x_px, y_px in points:
        steps = (x_px + step * sign for step in itertools.count(0, APART) for sign in (1, -1))
        placed.append(
            next(
                (candidate_px, y_px)
                for candidate_px in steps
                if candidate_px <= right
                and all(math.hypot(candidate_px - other, y_px - height) >= APART for other, height in placed)
            )
        )
    return placed


def trade_off(
    title: str, x_title: str, y_title: str, rows: Sequence[tuple[Style, float, float, Interval | None, str]],
    bounds: Interval = (-math.inf, math.inf),
) -> Figure:  # fmt: skip
    """Cost against accuracy with intervals; rows are (style, cost, accuracy, interval, text for the legend).

    `bounds` are those of the measure: the line of an interval ends there, with an arrow.
    """
    spans = [None if row[3] is None else (max(row[3][0], bounds[0]), min(row[3][1], bounds[1])) for row in rows]
    cut = any(span is not None and span != row[3] for span, row in zip(spans, rows, strict=True))
    x_axis = _axis([row[1] for row in rows], 8, zero=True)
    y_axis = _within(score_axis([(row[2], span) for row, span in zip(rows, spans, strict=True)]), bounds)
    frame = plot(x_axis, y_axis, x_title + (", logarithmic" if x_axis.log else ""), y_title, height=260)
    exact = [frame.point(cost, gain) for _, cost, gain, _, _ in rows]
    placed = side_by_side(exact, frame.right_px)
    for (style, _, _, full_interval, _), span, (x_px, y_px) in zip(rows, spans, placed, strict=True):
        if span is not None and full_interval is not None:
            low, high = (frame.point(1, value)[1] for value in span)
            frame.canvas.line(x_px, low, x_px, high, style.color, 1.5)
            # A marker at the bound does not cover the arrow.
            ends = (
                (max(low, y_px + 14), -5, span[0] > full_interval[0]),
                (min(high, y_px - 14), 5, span[1] < full_interval[1]),
            )
            for end, shaft, is_cut in ends:
                for side in (-4, 0, 4) if is_cut else ():
                    frame.canvas.line(x_px + side, end + shaft, x_px, end, style.color, 1.5)
    for (style, *_, value), position in zip(rows, placed, strict=True):
        frame.canvas.marker(style.shape, *position, style.color, f"{style.name}: {value}", 6)
    legend = [(style, text) for style, *_, text in rows]
    caption = ["Up and to the left is better."]
    caption += ["Lines: 95 % interval."] if any(row[3] for row in rows) else []
    caption += ["An arrow: the interval reaches beyond the bounds of the measure."] if cut else []
    caption += ["Markers that coincide are side by side."] if placed != exact else []
    alt = f"{title}. {_listed(legend)}"
    return Figure(title, frame.canvas.svg(alt), alt, " ".join(caption), legend)


def scatter(title: str, groups: Sequence[tuple[Style, Points]], caption: str = "") -> Figure:
    """Points of several groups (languages) in the plane of their first two principal components."""
    x_axis, y_axis = (linear_axis([point[i] for _, side in groups for point in side]) for i in (0, 1))
    frame = plot(x_axis, y_axis, "first component", "second component", height=300)
    for style, side in groups:
        for point in side:
            frame.canvas.marker(style.shape, *frame.point(*point), style.color, size=2.6)
    legend = [(style, f"{len(side)} sentences") for style, side in groups]
    alt = f"{title}: {_listed(legend)}"
    return Figure(title, frame.canvas.svg(alt), alt, caption, legend)
