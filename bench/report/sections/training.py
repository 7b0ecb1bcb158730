"""The training stages: loss curves, and the validation of the checkpoint that each stage kept."""

from __future__ import annotations

from msdc.bench.report.charts import loss_curve
from msdc.bench.report.data import ReportData
from msdc.bench.report.model import Section
from msdc.tables import Column, Table, fixed, number


def section(data: ReportData) -> Section | None:
    """One loss curve per stage in training order, and a table; None without a run."""
    if data.training is None or not data.training.stages:
        return None
    figures, rows = [], []
    for stage in data.training.stages:
        if stage.losses:
            figures.append(loss_curve(stage.name, stage.losses))
        figures += [
            loss_curve(stage.name, curve, what)
            for what, curve in stage.validation_curves().items()
            if data.training.running and len(curve) > 1
        ]
        chosen = stage.chosen()
        numbers = chosen[1] if chosen else {}
        graded = [value for key, value in numbers.items() if key.startswith("spearman_")]
        rows.append((
            stage.name,
            str(stage.steps),
            number(stage.losses[0][1]) if stage.losses else "–",
            number(stage.losses[-1][1]) if stage.losses else "–",
            str(chosen[0]) if chosen else "–",
            number(numbers.get("heldout_mse")),
            fixed(numbers.get("heldout_accuracy"), 1),
            fixed(sum(graded) / len(graded), 1) if graded else "–",
            ", ".join(f"{name} {100 * share:.3g} %" for name, share in stage.shares.items()) or "–",
            fixed(stage.seconds, 0),
        ))  # fmt: skip
    columns = (
        Column("Stage", align="left"), Column("Steps"), Column("First loss"), Column("Last loss"),
        Column("Chosen step"), Column("Held-out MSE"), Column("Held-out accuracy", "%"),
        Column("Development Spearman", "× 100"), Column("Shares of the loss", align="left"), Column("Time", "s"),
    )  # fmt: skip
    note = (
        "Held-out figures are those of the checkpoint that was kept, on parallel sentences left out of training, "
        "not on a test set. Losses of different stages are different quantities."
    )
    total = sum(stage.seconds for stage in data.training.stages)
    count = len(data.training.stages)
    lead = f"{count} stage{'s' if count != 1 else ''}, {total / 60:.1f} minutes of training."
    if data.training.running:
        lead += " The run is not finished: these are the figures up to now."
    return Section(
        "training", "Training loss by stage", lead, tuple(figures), (Table("Stages", columns, tuple(rows), note),)
    )
