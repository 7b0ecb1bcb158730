"""Axes with round ticks, and shapes as SVG in the colors of the page.

There is no plotting library: text stays text, colors are CSS variables and follow the light and dark scheme, and a
figure takes a few kilobytes. User units are CSS pixels at a width of `WIDTH`.
"""

from __future__ import annotations

import html
import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

WIDTH = 400.0
FONT = 12.0
MARGIN = 12.0  # of a drawing that is a file of its own
# Shares of a broken axis: of its lower scale, and of the gap above it.
BELOW, GAP = 0.2, 0.12
SHAPES = ("circle", "square", "triangle", "diamond", "cross", "ring")
POLYGONS = {
    "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
    "triangle": ((0, -1.2), (1.15, 0.9), (-1.15, 0.9)),
    "diamond": ((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0)),
}


@dataclass(frozen=True)
class Style:
    """Name, color variable and marker shape of one artifact, model or curve; color alone never distinguishes two."""

    name: str
    color: str = "c1"
    shape: str = "circle"


@dataclass(frozen=True)
class Figure:
    """An SVG drawing. `alt` describes it in words; `legend` is text below the drawing: styles and their values."""

    title: str
    svg: str
    alt: str
    caption: str = ""
    legend: Sequence[tuple[Style, str]] = ()


@dataclass(frozen=True)
class Axis:
    """A mapping of values to positions, and the ticks to print. A broken axis has a second scale `below` its own."""

    low: float
    high: float
    ticks: tuple[float, ...]
    log: bool = False
    below: Axis | None = None

    def position(self, value: float, start: float, end: float) -> float:
        """Position of `value` between `start` and `end`."""
        low, high = self.low, self.high
        if self.below is not None:
            if value < low:
                return self.below.position(value, start, start + BELOW * (end - start))
            start += (BELOW + GAP) * (end - start)
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(max(value, 1e-12))
        return start + (value - low) / (high - low) * (end - start)

    @property
    def every_tick(self) -> tuple[float, ...]:
        """The ticks of both scales."""
        return (*(self.below.ticks if self.below else ()), *self.ticks)

    def breaks(self, start: float, end: float) -> tuple[float, ...]:
        """Positions of the two marks of a broken axis."""
        return (
            ()
            if self.below is None
            else tuple(start + (BELOW + GAP * fraction) * (end - start) for fraction in (0.35, 0.65))
        )


def _step(span: float, count: int) -> float:
    raw = span / max(count, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * m for m in (1, 2, 2.5, 5, 10) if power * m >= raw * 0.999)


def linear_axis(
    values: Iterable[float], *, zero: bool = False, count: int = 5, pad: float = 0.04, least: float = 0.0
) -> Axis:
    """An axis around `values` spanning at least `least`; `zero` makes it start (or end) at zero."""
    finite_values = [value for value in values if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(finite_values), max(finite_values)
    if zero:
        low, high = min(low, 0.0), max(high, 0.0)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-12):
        # All values are equal: show one unit around them.
        unit = max(abs(high) * 0.1, 1.0)
        low, high = (low - unit, high + unit) if not zero else (low, low + 1.0)
    if high - low < least:
        low, high = (low + high - least) / 2, (low + high + least) / 2
    spread = (high - low) * pad
    low = low if zero and low == 0 else low - spread
    high = high if zero and high == 0 else high + spread
    step = _step(high - low, count)
    first = math.ceil(low / step - 1e-9)
    ticks = tuple(float(f"{k * step:.12g}") for k in range(first, math.floor(high / step + 1e-9) + 1))
    return Axis(low, high, ticks)


def log_axis(values: Iterable[float], pad: float = 0.08) -> Axis:
    """A logarithmic axis around positive `values`; ticks at 1, 2, 5 of each decade, fewer when there are many."""
    positive_values = [value for value in values if value > 0 and math.isfinite(value)] or [1.0, 10.0]
    low, high = math.log10(min(positive_values)), math.log10(max(positive_values))
    spread = max((high - low) * pad, 0.08)
    low, high = 10 ** (low - spread), 10 ** (high + spread)
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    ticks: tuple[float, ...] = ()
    for multiples, every in (((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 1 + (last - first) // 5)):
        decades = [d for d in range(first, last + 1) if d % every == 0]
        ticks = tuple(m * 10.0**d for d in decades for m in multiples if low <= m * 10.0**d <= high)
        if len(ticks) <= 6:
            break
    return Axis(low, high, ticks or (float(f"{min(positive_values):.2g}"),), log=True)


def tick_text(value: float) -> str:
    """Short text of a tick: 20k, 1.5M."""
    if value == 0:
        return "0"
    magnitude = abs(value)
    if magnitude >= 1e6:
        return f"{value / 1e6:g}M"
    if magnitude >= 1e4:
        return f"{value / 1e3:g}k"
    return f"{value:.6g}".replace("-", "−")


def element(tag: str, inside: str = "", *, title: str = "", **attributes: Any) -> str:
    """An SVG element with `title` as its tooltip; of the names of attributes `_` is written as `-`."""
    shown = {name.replace("_", "-"): value if isinstance(value, str) else f"{round(value, 2):.12g}"
             for name, value in attributes.items()}  # fmt: skip
    text = "".join(f' {name}="{html.escape(value)}"' for name, value in shown.items())
    return f"<{tag}{text}>{f'<title>{html.escape(title)}</title>' if title else ''}{inside}</{tag}>"


def _path(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


class Canvas:
    """Shapes in drawing order. `color` is the name of a CSS variable of the page (`c1`, `ink`)."""

    def __init__(self, height: float) -> None:
        self.height = height
        self.parts: list[str] = []

    def _add(self, tag: str, inside: str = "", **attributes: Any) -> None:
        self.parts.append(element(tag, inside, **attributes))

    def line(self, x1: float, y1: float, x2: float, y2: float, color: str = "grid", width: float = 1) -> None:
        """A straight line."""
        self._add("line", x1=x1, y1=y1, x2=x2, y2=y2, style=f"stroke:var(--{color})", stroke_width=width)

    def polyline(self, points: Sequence[tuple[float, float]], color: str) -> None:
        """Connected lines; nothing for fewer than two points."""
        if len(points) > 1:
            self._add("polyline", points=_path(points), fill="none", style=f"stroke:var(--{color})", stroke_width=2,
                      stroke_linejoin="round", stroke_linecap="round")  # fmt: skip

    def area(self, points: Sequence[tuple[float, float]], color: str) -> None:
        """A filled polygon."""
        self._add("polygon", points=_path(points), style=f"fill:var(--{color})", fill_opacity=0.15)

    def rect(self, left_px: float, top_px: float, width: float, height: float, color: str, title: str) -> None:
        """A rectangle with slightly rounded corners; `title` is its tooltip."""
        self._add(
            "rect", x=left_px, y=top_px, width=width, height=height, rx=1.5, style=f"fill:var(--{color})", title=title
        )

    def text(
        self,
        x_px: float,
        baseline_px: float,
        text: str,
        *,
        anchor: str = "start",
        color: str = "ink2",
        weight: float = 400,
    ) -> None:
        """A line of text with its baseline at `baseline_px`."""
        self._add(
            "text",
            html.escape(text),
            x=x_px,
            y=baseline_px,
            text_anchor=anchor,
            font_size=FONT,
            font_weight=weight,
            style=f"fill:var(--{color})",
            **{"class": "over"},
        )

    def marker(self, shape: str, x_px: float, y_px: float, color: str, title: str = "", size: float = 5) -> None:
        """A data point; see `marker` below."""
        self.parts.append(marker(shape, x_px, y_px, color, title, size))

    def svg(self, alt: str, margin: float = 0) -> str:
        """The finished drawing, with a margin; `alt` describes it to readers who cannot see it."""
        size = f"{WIDTH + 2 * margin:g} {self.height + 2 * margin:g}"
        return element("svg", "".join(self.parts), viewBox=f"{-margin:g} {-margin:g} {size}", role="img",
                       aria_label=alt, xmlns="http://www.w3.org/2000/svg")  # fmt: skip


def standalone(figure: Figure, colors: Mapping[str, str]) -> str:
    """A drawing as a file of its own: with its title, its legend, and values of `colors` for the page's variables.

    Programs that draw SVG without a browser know no CSS variables.
    """
    title, caption = textwrap.wrap(figure.title, 52), textwrap.wrap(figure.caption, 66)
    inside = float(re.search(r'viewBox="0 0 [\d.]+ ([\d.]+)"', figure.svg)[1])  # type: ignore[index]
    top = 18.0 * len(title) + 6
    canvas = Canvas(top + inside + 12)
    for number, line in enumerate(title):
        canvas.text(0, 14 + 18 * number, line, color="ink", weight=600)
    for style, value in figure.legend:
        lines = textwrap.wrap(f"{style.name}: {value}".removesuffix(": "), 58) or [""]
        canvas.marker(style.shape, 8, canvas.height + 6, style.color)
        for line in lines:
            canvas.text(20, canvas.height + 10, line, color="ink")
            canvas.height += 18
    for line in caption:
        canvas.text(0, canvas.height + 12, line)
        canvas.height += 18
    canvas.height += 6
    ground = element("rect", x=-MARGIN, y=-MARGIN, width=WIDTH + 2 * MARGIN, height=canvas.height + 2 * MARGIN,
                     style="fill:var(--ground)")  # fmt: skip
    drawn = figure.svg.replace("<svg ", f'<svg y="{top:g}" width="{WIDTH:g}" height="{inside:g}" ', 1)
    look = (
        "svg{font-family:system-ui,sans-serif;overflow:visible}"
        ".over{paint-order:stroke;stroke:var(--ground);stroke-width:3px;stroke-linejoin:round}"
    )
    canvas.parts = [element("style", look), ground, *canvas.parts, drawn]
    return re.sub(r"var\(--(\w+)\)", lambda name: colors[name[1]], canvas.svg(figure.alt, MARGIN))


def marker(shape: str, x_px: float, y_px: float, color: str, title: str = "", size: float = 5) -> str:
    """One marker with a rim in the background color of the page, so that overlapping ones stay distinct."""
    hollow = shape in ("cross", "ring")
    fill, stroke, width = ("ground", color, 2.5) if hollow else (color, "ground", 1.5)
    look: dict[str, Any] = {"style": f"fill:var(--{fill});stroke:var(--{stroke})", "stroke_width": width}
    if shape in POLYGONS:
        points = _path((x_px + size * dx, y_px + size * dy) for dx, dy in POLYGONS[shape])
        return element("polygon", title=title, points=points, **look)
    if shape == "cross":
        path = "".join(
            f"M{x_px - size:.1f} {y_px - d * size:.1f}L{x_px + size:.1f} {y_px + d * size:.1f}" for d in (1, -1)
        )
        return element("path", title=title, d=path, **look)
    return element("circle", title=title, cx=x_px, cy=y_px, r=size, **look)


@dataclass(frozen=True)
class Plot:
    """A canvas with two axes; the four numbers are the edges of the plotting area."""

    canvas: Canvas
    x_axis: Axis
    y_axis: Axis
    left_px: float
    right_px: float
    top_px: float
    bottom_px: float

    def point(self, x_value: float, y_value: float) -> tuple[float, float]:
        """Canvas position of a pair of values."""
        return self.x_axis.position(x_value, self.left_px, self.right_px), self.y_axis.position(
            y_value, self.bottom_px, self.top_px
        )


def plot(
    x_axis: Axis,
    y_axis: Axis,
    x_title: str,
    y_title: str,
    *,
    height: float = 250,
    x_labels: Sequence[str] | None = None,
) -> Plot:
    """An empty plot with grid, ticks and axis titles; the y title is above the plot, where it is horizontal."""
    canvas = Canvas(height)
    widest = max((len(tick_text(tick)) for tick in y_axis.every_tick), default=2)
    frame = Plot(
        canvas, x_axis, y_axis, left_px=12 + 6.6 * widest, right_px=WIDTH - 12, top_px=28, bottom_px=height - 40
    )
    canvas.text(0, 13, y_title)
    for tick_px in y_axis.breaks(frame.bottom_px, frame.top_px):
        canvas.line(frame.left_px - 5, tick_px + 3, frame.left_px + 5, tick_px - 3, "axis", 1.5)
    for tick in y_axis.every_tick:
        tick_px = y_axis.position(tick, frame.bottom_px, frame.top_px)
        canvas.line(frame.left_px, tick_px, frame.right_px, tick_px)
        canvas.text(frame.left_px - 6, tick_px + 4, tick_text(tick), anchor="end")
    labels = list(x_labels) if x_labels is not None else [tick_text(tick) for tick in x_axis.ticks]
    for tick, label in zip(x_axis.ticks, labels, strict=True):
        tick_px = x_axis.position(tick, frame.left_px, frame.right_px)
        canvas.line(tick_px, frame.bottom_px, tick_px, frame.bottom_px + 4, "axis")
        anchor = "end" if tick_px > frame.right_px - 8 and len(label) > 2 else "middle"
        canvas.text(tick_px, frame.bottom_px + 18, label, anchor=anchor)
    canvas.line(frame.left_px, frame.bottom_px, frame.right_px, frame.bottom_px, "axis")
    canvas.text(frame.right_px, height - 4, x_title, anchor="end")
    return frame
