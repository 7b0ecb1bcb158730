"""The figures of a report, each drawn from plain numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msdc.bench.report.drawing import FONT, SHAPES, WIDTH, Axis, Canvas, linear_axis, log_axis, plot, tick_text
from msdc.bench.report.model import Figure, Style
from msdc.bench.result import percentile
from msdc.scores import pareto
from msdc.tables import fixed, minus, number

ROW = 34.0
MAX_DOTS = 600
# A score axis shows at least this many points, so that rounding does not look like a large drop.
SCORE_SPAN = 5.0


def bars(title: str, rows: Sequence[tuple[Style, float, str]], caption: str = "") -> Figure:
    """One bar per row with its name above it, so that long names fit a phone; rows are (style, value, its text)."""
    canvas = Canvas(ROW * len(rows) + 6)
    axis = linear_axis([value for _, value, _ in rows], zero=True, pad=0)
    for i, (style, value, shown) in enumerate(rows):
        top = i * ROW
        canvas.text(0, top + FONT, style.name, color="ink")
        width = max(axis.at(value, 0, WIDTH - 80), 2)
        canvas.rect(0, top + FONT + 5, width, 9, style.color, f"{style.name}: {shown}")
        canvas.text(width + 6, top + FONT + 14, shown, color="ink")
    alt = f"{title}: " + "; ".join(f"{style.name} {shown}" for style, _, shown in rows)
    return Figure(title, canvas.svg(alt), alt, caption)


def _row_grid(
    rows: int, axis: Axis, left: float, right: float, label: Callable[[float], str] = tick_text, zero: str = "grid",
    inside: bool = False,
) -> Canvas:  # fmt: skip
    """A canvas of `rows` with grid and ticks; `zero` is the color of the line at 0, `inside` keeps labels in."""
    canvas = Canvas(ROW * rows + 26)
    for tick in axis.ticks:
        x, main = axis.at(tick, left, right), tick == 0 and zero != "grid"
        canvas.line(x, 4, x, canvas.height - 22, zero if main else "grid", 1.5 if main else 1)
        anchor = "start" if inside and tick == 0 else "end" if inside and x > right - 20 else "middle"
        canvas.text(x, canvas.height - 6, label(tick), anchor=anchor)
    return canvas


def score_dots(title: str, rows: Sequence[tuple[Style, float, tuple[float, float] | None]]) -> Figure:
    """Scores as dots with their intervals, one row per model with its name above; rows are (style, score, interval)."""
    values = [v for _, value, span in rows for v in (value, *(span or ()))]
    axis = linear_axis(values, count=4, least=SCORE_SPAN)
    right = WIDTH - 60
    canvas = _row_grid(len(rows), axis, 0.0, right)
    for i, (style, value, span) in enumerate(rows):
        y = i * ROW + 24
        canvas.text(0.0, y - 10, style.name, color="ink")
        if span is not None:
            canvas.line(axis.at(span[0], 0.0, right), y, axis.at(span[1], 0.0, right), y, style.color, 2)
        shown = f"{value:.1f}" + (f" (95 % of resamples: {span[0]:.1f} to {span[1]:.1f})" if span else "")
        canvas.marker(style.shape, axis.at(value, 0.0, right), y, style.color, f"{style.name}: {shown}")
        canvas.text(WIDTH, y + 4, fixed(value, 1), anchor="end", color="ink", bold=True)
    alt = f"Spearman x 100 on {title}: " + "; ".join(f"{style.name} {value:.1f}" for style, value, _ in rows)
    return Figure(title, canvas.svg(alt), alt, "Spearman × 100; lines: 95 % bootstrap interval over pairs.")


def pareto_line(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points (cost, gain) on the Pareto line, by rising cost; of equal points the first."""
    front = pareto([(cost, -gain) for cost, gain in points])
    first: dict[tuple[float, float], int] = {}
    for i, point in enumerate(points):
        if front[i]:
            first.setdefault(point, i)
    return [first[point] for point in sorted(first)]


def trade_off(title: str, x_title: str, rows: Sequence[tuple[Style, float, float, str]], *, log: bool) -> Figure:
    """Cost against accuracy with the Pareto line; rows are (style, cost, accuracy, text for the legend)."""
    costs, gains = [row[1] for row in rows], [row[2] for row in rows]
    x = log_axis(costs) if log else linear_axis(costs, zero=True)
    frame = plot(
        x, linear_axis(gains, pad=0.15, least=SCORE_SPAN), x_title, "Spearman × 100, mean of the sets", height=260
    )
    best = pareto_line(list(zip(costs, gains, strict=True)))
    # Steps instead of slopes: nothing is known to be reachable between two points.
    steps: list[tuple[float, float]] = []
    for previous, i in zip([None, *best[:-1]], best, strict=True):
        if previous is not None:
            steps.append(frame.point(costs[i], gains[previous]))
        steps.append(frame.point(costs[i], gains[i]))
    if best:
        steps.append((frame.right, frame.point(costs[best[-1]], gains[best[-1]])[1]))
    frame.canvas.polyline(steps, "axis", 1.5, "5 4")
    for style, cost, gain, value in rows:
        frame.canvas.marker(style.shape, *frame.point(cost, gain), style.color, f"{style.name}: {value}", 6)
    named = [rows[i][0].name for i in best]
    alt = f"{title}. Pareto line through {', '.join(named)}. " + "; ".join(f"{s.name}: {v}" for s, _, _, v in rows)
    return Figure(title, frame.canvas.svg(alt), alt, "Dashed: the Pareto line.", [(s, v) for s, _, _, v in rows])


def latency_lines(rows: Sequence[tuple[Style, Sequence[tuple[int, float, float]]]], unit: str, title: str) -> Figure:
    """Median by length with a band up to p90; rows are (style, [(length, p50, p90)])."""
    lengths = sorted({length for _, series in rows for length, _, _ in series})
    x = log_axis([float(length) for length in lengths])
    x = Axis(x.low, x.high, tuple(float(length) for length in lengths), True)
    y = linear_axis([v for _, series in rows for _, p50, p90 in series for v in (p50, p90)], zero=True)
    frame = plot(x, y, "tokens", unit, x_labels=[str(length) for length in lengths])
    for style, series in rows:
        upper = [frame.point(length, p90) for length, _, p90 in series]
        lower = [frame.point(length, p50) for length, p50, _ in series]
        if len(series) > 1:
            frame.canvas.area([*upper, *reversed(lower)], style.color)
        frame.canvas.polyline(lower, style.color)
        for length, p50, p90 in series:
            text = f"{style.name}, {length} tokens: p50 {number(p50)}, p90 {number(p90)} {unit}"
            frame.canvas.marker(style.shape, *frame.point(length, p50), style.color, text, 4.5)
    values = [(style, " / ".join(number(p50) for _, p50, _ in series)) for style, series in rows]
    alt = f"{title} at {', '.join(map(str, lengths))} tokens. " + "; ".join(f"{s.name}: {v} {unit}" for s, v in values)
    return Figure(title, frame.canvas.svg(alt), alt, "Line: median; band: up to p90.", values)


def samples_over_time(title: str, unit: str, rows: Sequence[tuple[Style, Sequence[float]]]) -> Figure:
    """Every sample in measuring order; far outliers are drawn at the upper edge and counted."""
    ordered = [sorted(samples) for _, samples in rows]
    ceiling = max(s[min(len(s) - 1, int(len(s) * 0.98))] for s in ordered) * 1.25
    top = min(ceiling, max(s[-1] for s in ordered))
    count = max(len(samples) for _, samples in rows)
    y = linear_axis([0, top], zero=True)
    frame = plot(linear_axis([0, count], zero=True, pad=0), y, "run number", unit, height=200)
    above = 0
    for style, samples in rows:
        stride = -(-len(samples) // MAX_DOTS)
        inside: list[tuple[float, float]] = []
        over: list[tuple[float, float]] = []
        for i in range(0, len(samples), stride):
            # Thinning keeps the slowest run of each stretch, so that no peak is hidden.
            value = max(samples[i : i + stride])
            (inside if value <= y.high else over).append(frame.point(i, y.clamp(value)))
        frame.canvas.dots(inside, style.color)
        frame.canvas.dots(over, style.color, 2.2, 1)
        above += sum(sample > y.high for sample in samples)
    medians = [(style, f"p50 {number(percentile(samples, 50))} {unit}") for style, samples in rows]
    caption = f"{above} sample{'s' if above != 1 else ''} above the scale, drawn at its edge." if above else ""
    alt = f"Samples over time, {title}. " + "; ".join(
        f"{s.name}: {v}, {len(o)} runs" for (s, v), o in zip(medians, ordered, strict=True)
    )
    return Figure(title, frame.canvas.svg(alt), alt, caption, medians)


def stacked_memory(style: Style, phases: Sequence[tuple[str, float, float, float]], axis: Axis) -> Figure:
    """Anonymous and file-backed memory by phase; phases are (name, anon, file, peak) in MiB."""
    right = WIDTH - 8
    canvas = _row_grid(len(phases), axis, 0, right, inside=True)
    for i, (name, anon, file, peak) in enumerate(phases):
        top = i * ROW + 2
        canvas.text(
            0, top + FONT, f"{name}: {anon:.0f} anonymous + {file:.0f} file-backed, peak {peak:.0f}", color="ink"
        )
        start, middle, end = (axis.at(v, 0, right) for v in (0, anon, anon + file))
        canvas.rect(start, top + FONT + 5, middle - start, 10, style.color, f"anonymous {anon:.1f} MiB")
        canvas.rect(middle, top + FONT + 5, end - middle, 10, style.color, f"file-backed {file:.1f} MiB", 0.4)
        x = axis.at(peak, 0, right)
        canvas.line(x, top + FONT + 2, x, top + FONT + 18, "ink", 2)
    alt = f"Memory of {style.name}: " + "; ".join(
        f"{name}: anonymous {anon:.1f}, file-backed {file:.1f}, peak {peak:.1f} MiB"
        for name, anon, file, peak in phases
    )
    return Figure(style.name, canvas.svg(alt), alt, "MiB. Solid: anonymous; pale: file-backed; tick: peak.")


def loss_curve(name: str, losses: Sequence[tuple[int, float]], what: str = "loss") -> Figure:
    """Loss, or what is named, by step; logarithmic where it changes much."""
    steps, values = [float(s) for s, _ in losses], [v for _, v in losses]
    wide = min(values) > 0 and max(values) / min(values) > 8
    y = log_axis(values) if wide else linear_axis(values, pad=0.1)
    frame = plot(
        linear_axis([0.0, *steps], zero=True, pad=0), y, "step", what + (", logarithmic" if wide else ""), height=190
    )
    frame.canvas.polyline([frame.point(s, v) for s, v in zip(steps, values, strict=True)], "c1")
    if len(losses) == 1:
        frame.canvas.marker("circle", *frame.point(steps[0], values[0]), "c1")
    span = f"{number(values[0])} at step {losses[0][0]} to {number(values[-1])} at step {losses[-1][0]}"
    alt = f"{'Training loss' if what == 'loss' else what.capitalize()} of stage {name}: {span}"
    return Figure(name if what == "loss" else f"{name}: {what}", frame.canvas.svg(alt), alt, f"From {span}.")


def change_intervals(title: str, rows: Sequence[tuple[str, float, tuple[float, float], str]]) -> Figure:
    """Relative changes with their intervals; rows are (what, change, interval, verdict)."""
    bounds = [100 * v for _, change, span, _ in rows for v in (change, *span)]
    axis = linear_axis([*bounds, -2.0, 2.0], count=4)
    right = WIDTH - 70
    canvas = _row_grid(len(rows), axis, 6, right, lambda tick: minus(f"{tick:+g} %") if tick else "0", "axis")
    for i, (what, change, span, verdict) in enumerate(rows):
        y = i * ROW + 24
        color = {"faster": "good", "slower": "bad"}.get(verdict, "m1")
        canvas.text(6, y - 10, what, color="ink")
        canvas.line(axis.at(100 * span[0], 6, right), y, axis.at(100 * span[1], 6, right), y, color, 2)
        shown = f"{what}: {100 * change:+.1f} % ({100 * span[0]:+.1f} to {100 * span[1]:+.1f}), {verdict}"
        canvas.marker("circle", axis.at(100 * change, 6, right), y, color, shown)
        canvas.text(WIDTH, y + 4, verdict, anchor="end", color="ink", bold=verdict != "noise")
    alt = f"{title}: " + "; ".join(f"{what} {100 * change:+.1f} %, {verdict}" for what, change, _, verdict in rows)
    return Figure(title, canvas.svg(alt), alt, "Change of the median; lines: 95 % block-bootstrap interval.")


def curves(
    title: str, x_title: str, y_title: str, rows: Sequence[tuple[Style, Sequence[tuple[float, float]]]]
) -> Figure:
    """Several curves with their points; rows are (style, [(x, y)]). The legend states each curve's last value."""
    known = [(style, points) for style, points in rows if points]
    xs = [x for _, points in known for x, _ in points]
    ys = [y for _, points in known for _, y in points]
    frame = plot(linear_axis([0.0, *xs], zero=True, pad=0), linear_axis(ys, pad=0.1), x_title, y_title, height=280)
    for style, points in known:
        placed = [frame.point(x, y) for x, y in points]
        frame.canvas.polyline(placed, style.color)
        for (x, y), at in zip(points, placed, strict=True):
            text = f"{style.name}, {x_title} {number(x)}: {number(y)}"
            frame.canvas.marker(style.shape, *at, style.color, text, 3.5)
    last = [(style, number(points[-1][1])) for style, points in known]
    alt = f"{title}. At the end: " + "; ".join(f"{style.name} {value}" for style, value in last)
    return Figure(title, frame.canvas.svg(alt), alt, legend=last)


def scatter(title: str, groups: Mapping[str, Sequence[tuple[float, float]]], caption: str = "") -> Figure:
    """Points of several groups (languages) in the plane of their first two principal components."""
    xs = [x for side in groups.values() for x, _ in side]
    ys = [y for side in groups.values() for _, y in side]
    frame = plot(linear_axis(xs), linear_axis(ys), "first component", "second component", height=300)
    entries = []
    for i, (name, side) in enumerate(groups.items()):
        color, shape = f"c{i % 6 + 1}", SHAPES[i % 4]
        for x, y in side:
            frame.canvas.marker(shape, *frame.point(x, y), color, size=2.6)
        entries.append((Style(name, color, shape), f"{len(side)} sentences"))
    alt = f"{title}: " + ", ".join(f"{len(side)} sentences in {name}" for name, side in groups.items())
    return Figure(title, frame.canvas.svg(alt), alt, caption, entries)


def histogram(title: str, labels: Sequence[str], counts: Sequence[int], caption: str = "") -> Figure:
    """One row per bin."""
    row, total = 20.0, sum(counts) or 1
    canvas = Canvas(row * len(labels) + 4)
    axis = linear_axis([float(count) for count in counts], zero=True, pad=0)
    for i, (label, count) in enumerate(zip(labels, counts, strict=True)):
        canvas.text(0, i * row + FONT + 2, label, color="ink")
        width = axis.at(count, 0, WIDTH - 220)
        shown = f"{count} ({100 * count / total:.1f} %)" if count else "0"
        canvas.rect(110, i * row + 3, max(width, 1), 12, "c1", f"{label}: {shown}")
        canvas.text(116 + max(width, 1), i * row + FONT + 2, shown)
    alt = f"{title}: " + "; ".join(f"{name} {count}" for name, count in zip(labels, counts, strict=True))
    return Figure(title, canvas.svg(alt), alt, caption)
