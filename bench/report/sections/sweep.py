"""A sweep of recipes: the curve of every point's last stage, and its table with the paper's figures."""

from __future__ import annotations

from collections.abc import Sequence

from msdc.bench.report.charts import curves
from msdc.bench.report.data import RUN_COLORS, Style
from msdc.bench.report.drawing import SHAPES
from msdc.bench.report.model import Figure, Section
from msdc.distill.runs.sweep_table import SweepTable, table_of


def convergence(sweep: SweepTable) -> Figure:
    """Score on the development files (held-out accuracy where there are none) over the last stage of each point."""
    styles = [
        Style(row.label, RUN_COLORS[i % len(RUN_COLORS)], SHAPES[(i + i // len(RUN_COLORS)) % 4])
        for i, row in enumerate(sweep.rows)
    ]
    units = sorted({row.unit for row in sweep.rows})
    rows = [(style, [(p.x, p.score) for p in row.curve]) for style, row in zip(styles, sweep.rows, strict=True)]
    title = f"{sweep.recipe}, {sweep.sweep}"
    return curves(title, f"{' / '.join(units)} of the last stage", "score on development data", rows)


def sections(sweeps: Sequence[SweepTable]) -> list[Section]:
    """One section per sweep."""
    found = []
    for i, sweep in enumerate(sweeps):
        best = max(((row.curve[-1].score, row.label) for row in sweep.rows if row.curve), default=None)
        lead = f"{len(sweep.rows)} points" + (f"; {best[1]} ends highest ({best[0]:.1f})." if best else ".")
        key = f"sweep-{i + 1}" if len(sweeps) > 1 else "sweep"
        found.append(
            Section(key, f"Sweep: {sweep.recipe}, {sweep.sweep}", lead, (convergence(sweep),), (table_of(sweep),))
        )
    return found
