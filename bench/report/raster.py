"""Figures as a PNG, for places that show no SVG. The drawing is that of the page: its SVG, in its light colors.

Only the elements that `msdc.bench.report.drawing` writes are known. Text is set in Pillow's built-in font, which has
ASCII letters only; other characters are replaced by their nearest letters.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from msdc.bench.report.drawing import FONT, WIDTH, marker
from msdc.bench.report.model import Figure

SCALE = 3  # pixels per CSS pixel
FINE = 2  # shapes are drawn finer by this factor, then reduced, because Pillow's lines have hard edges
MARGIN = 16.0
LINE = 18.0
CSS = Path(__file__).resolve().parent / "page.css"
SIGNS = str.maketrans({"−": "-", "–": "-", "×": "x", "·": ".", "’": "'", "…": "..."})

Point = tuple[float, float]


def _colors() -> dict[str, str]:
    """The color variables of the light scheme, the first block of the page's style."""
    block = CSS.read_text(encoding="utf-8").split("}", 1)[0]
    return dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))


def _ascii(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text.translate(SIGNS)).encode("ascii", "ignore").decode()
    return plain or "?" * bool(text)


class Sheet:
    """A white sheet that SVG drawings and lines of text are placed on; positions are CSS pixels."""

    def __init__(self, width: float, height: float) -> None:
        from PIL import Image, ImageDraw

        self.colors = _colors()
        self.zoom = SCALE * FINE
        size = (round(width * self.zoom), round(height * self.zoom))
        self.image = Image.new("RGB", size, self.colors["ground"])
        self.draw = ImageDraw.Draw(self.image, "RGBA")
        self.offset = (0.0, 0.0)

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", color: str = "ink2", size: float = FONT
    ) -> None:
        """A line of text with its baseline at `y`."""
        from PIL import ImageFont

        font = ImageFont.load_default(size * self.zoom)
        side = {"start": "l", "middle": "m", "end": "r"}[anchor]
        rim: dict[str, Any] = {"stroke_width": self.zoom, "stroke_fill": self.colors["ground"]}
        self.draw.text(self._at(x, y), _ascii(text), fill=self.colors[color], font=font, anchor=f"{side}s", **rim)

    def svg(self, text: str, x: float, y: float) -> None:
        """A drawing with its upper left corner at `x`, `y`."""
        self.offset = (x, y)
        for element in ElementTree.fromstring(text):
            self._shape(element)
        self.offset = (0.0, 0.0)

    def _at(self, x: float, y: float) -> Point:
        return (x + self.offset[0]) * self.zoom, (y + self.offset[1]) * self.zoom

    def _paint(self, element: ElementTree.Element, kind: str) -> tuple[int, ...] | None:
        """Color and opacity of `fill` or `stroke`, None where it is not painted."""
        found = re.search(rf"\b{kind}:var\(--(\w+)\)", element.get("style", ""))
        if found is None:
            return None
        code, alpha = self.colors[found[1]], float(element.get(f"{kind}-opacity", 1))
        return (*(int(code[i : i + 2], 16) for i in (1, 3, 5)), round(255 * alpha))

    def _shape(self, element: ElementTree.Element) -> None:
        def number(key: str) -> float:
            return float(element.get(key, 0))

        tag = element.tag.rsplit("}", 1)[-1]
        fill, stroke = self._paint(element, "fill"), self._paint(element, "stroke")
        width = max(round(float(element.get("stroke-width", 1)) * self.zoom), 1)
        body: dict[str, Any] = {"fill": fill, "outline": stroke, "width": width if stroke else 0}
        if tag == "text":
            color = re.search(r"--(\w+)", element.get("style", ""))
            style: dict[str, Any] = {"anchor": element.get("text-anchor", "start"), "size": number("font-size")}
            self.text(number("x"), number("y"), element.text or "", color=color[1] if color else "ink", **style)
        elif tag == "line":
            self._line([(number("x1"), number("y1")), (number("x2"), number("y2"))], stroke, width, element)
        elif tag in ("polyline", "polygon"):
            points = [(float(x), float(y)) for x, y in (p.split(",") for p in element.get("points", "").split())]
            if tag == "polyline":
                self._line(points, stroke, width, element)
            else:
                self.draw.polygon([self._at(*p) for p in points], **body)
        elif tag == "rect":
            x, y = number("x"), number("y")
            box = (*self._at(x, y), *self._at(x + number("width"), y + number("height")))
            self.draw.rectangle(box, **body)
        elif tag == "circle":
            x, y, r = number("cx"), number("cy"), number("r")
            self.draw.ellipse((*self._at(x - r, y - r), *self._at(x + r, y + r)), **body)
        elif tag == "path":
            self._path(element.get("d", ""), stroke, width)

    def _line(self, points: Sequence[Point], color: Any, width: int, element: ElementTree.Element) -> None:
        placed = [self._at(*point) for point in points]
        dashes = [float(value) * self.zoom for value in element.get("stroke-dasharray", "").split()]
        if not dashes:
            self.draw.line(placed, fill=color, width=width, joint="curve")
            return
        for (x1, y1), (x2, y2) in pairwise(placed):
            length, at = ((x2 - x1) ** 2 + (y2 - y1) ** 2) ** 0.5, 0.0
            while at < length:
                a, b = at / length, min(at + dashes[0], length) / length
                ends = (x1 + a * (x2 - x1), y1 + a * (y2 - y1), x1 + b * (x2 - x1), y1 + b * (y2 - y1))
                self.draw.line(ends, fill=color, width=width)
                at += sum(dashes)

    def _path(self, path: str, color: Any, width: int) -> None:
        """Strokes `Mx yLx y`, and dots `Mx yh0`, a dot being a round stroke of no length."""
        for part in path.split("M")[1:]:
            ends = [tuple(map(float, point.split())) for point in part.replace("h0", "").split("L")]
            if len(ends) == 1:
                (x, y), r = self._at(*ends[0]), width / 2
                self.draw.ellipse((x - r, y - r, x + r, y + r), fill=color)
            else:
                self.draw.line([self._at(*end) for end in ends], fill=color, width=width)

    def save(self, target: Path) -> None:
        """Write the sheet as PNG."""
        self.image.reduce(FINE).quantize(128).save(target, format="PNG", optimize=True)


def write_png(figures: Sequence[Figure], target: Path) -> None:
    """The figures below each other, each with its title, legend and caption."""
    heights = []
    for figure in figures:
        drawn = float(ElementTree.fromstring(figure.svg).get("viewBox", "").split()[3])
        heights.append(drawn + LINE * (2 + len(figure.legend) + bool(figure.caption)) + MARGIN)
    sheet = Sheet(WIDTH + 2 * MARGIN, sum(heights) + MARGIN)
    top = MARGIN
    for figure, height in zip(figures, heights, strict=True):
        sheet.text(MARGIN, top + FONT, figure.title, color="ink", size=FONT + 2)
        sheet.svg(figure.svg, MARGIN, top + 1.5 * LINE)
        lines = [f"{entry.name}  {entry.value}" for entry in figure.legend]
        y = top + height - LINE * (len(lines) + bool(figure.caption)) - MARGIN + FONT
        for entry, line in zip(figure.legend, lines, strict=True):
            sheet.svg(f"<svg>{marker(entry.shape, MARGIN + 6, y - 4, entry.color, size=4)}</svg>", 0, 0)
            sheet.text(MARGIN + 18, y, line, color="ink")
            y += LINE
        if figure.caption:
            sheet.text(MARGIN, y, figure.caption)
        top += height
    sheet.save(target)
