"""The section of a sweep: the curve of every point's last stage, size against accuracy, and the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msdc.bench.report import charts
from msdc.bench.report.drawing import Figure, Style
from msdc.bench.report.model import ReportSection, numbered_style
from msdc.distill.sweep_table import (
    SweepRow,
    SweepTable,
    by_setting,
    differences_of,
    failures,
    leading,
    mean_and_interval,
    table_of,
)

# Measure of a curve -> its axis, and the bounds of the measure, beyond which no interval is drawn.
MEASURES = {
    "dev": ("Spearman × 100, development files", (-100.0, 100.0)),
    "held-out": ("held-out pairs found, %", (0.0, 100.0)),
}


def sweep_sections(sweeps: Sequence[SweepTable]) -> list[ReportSection]:
    """One section per sweep."""
    sections = []
    for position, sweep in enumerate(sweeps, 1):
        lead = sweep.count
        if failed := sum(bool(row.failed) for row in sweep.rows):
            lead += f", {failed} failed"
        if (best := leading(sweep)) is not None:
            name, mean, half = best
            spread = "" if half is None else f" ± {half:.1f}"
            # Without seeds nothing is known about the interval: the highest of one seed is no finding.
            few = ", one seed each" if half is None else ""
            lead += f"; {name} ends highest ({mean:.1f}{spread}{few})" if name else "; no significant winner"
        key = f"sweep-{position}" if len(sweeps) > 1 else "sweep"
        title = f"Sweep: {sweep.recipe}, {sweep.sweep}"
        table = replace(table_of(sweep), caption=title)  # it repeats the heading, so it is not shown
        tables = [table, *filter(None, [differences_of(sweep)])]
        sections.append(ReportSection(key, title, f"{lead}.", sweep_figures(sweep), tables, failures(sweep)))
    return sections


def sweep_figures(sweep: SweepTable) -> list[Figure]:
    """Curves by measure and unit of the last stage, then size and accuracy by measure: no axis has two of them.

    The points of a setting have one style.
    """
    settings = by_setting(sweep)
    styles = {name: numbered_style(name, i) for i, name in enumerate(settings)}
    curves: dict[tuple[str, str], list[tuple[Style, charts.Points]]] = {}
    sizes: dict[str, list[tuple[Style, list[SweepRow]]]] = {}
    for name, rows in settings.items():
        drawn = [row for row in rows if row.curve]
        for row in drawn:
            points = [(point.x, point.score) for point in row.curve]
            curves.setdefault((row.measure, row.unit), []).append((styles[name], points))
        for measure in dict.fromkeys(row.measure for row in drawn):
            if sized := [row for row in drawn if row.program and row.measure == measure]:
                sizes.setdefault(measure, []).append((styles[name], sized))
    figures = [
        charts.lines("Validations of the last stage", f"{unit}s", MEASURES[measure][0], series, height=280)
        for (measure, unit), series in curves.items()
    ]
    for measure, of_settings in sizes.items():
        dots = []
        for style, rows in of_settings:
            mean, half = mean_and_interval([row.curve[-1].score for row in rows])
            size, span = rows[0].program["bytes"] / 1e6, None if half is None else (mean - half, mean + half)
            text = f"{size:.2f} MB, {mean:.1f}" + ("" if half is None else f" ± {half:.1f}")
            dots.append((style, size, mean, span, text))
        if len({size for _, size, *_ in dots}) > 1:
            what, bounds = MEASURES[measure]
            x_title = "MB of the int8 program, uncompressed"
            figures.append(charts.trade_off("Size and accuracy", x_title, what, dots, bounds))
    return figures
