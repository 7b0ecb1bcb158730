"""The sections about earlier results: what changed since the last of them, and medians by date."""

from __future__ import annotations

import math
from typing import NamedTuple

from msdc.bench.compare import Comparison, Difference, Unmatched, not_compared
from msdc.bench.report import charts
from msdc.bench.report.drawing import Style
from msdc.bench.report.model import (
    ReportData,
    ReportSection,
    Shown,
    artifact_names,
    fields_of,
    label_device,
    numbered_style,
)
from msdc.bench.report.recommendation import rise_mib
from msdc.bench.result import DeviceRun, moments
from msdc.tables import Field, draw, fixed, megabytes, millions, number, percent, signed, text_field


class _Compared(NamedTuple):
    """A figure in both results, or one that is not compared, and the verdict on it."""

    figure: Difference | Unmatched
    verdict: str

    @property
    def difference(self) -> Difference | None:
        """What is said of the change; None where nothing is compared, and of the same program's timings."""
        is_same = self.verdict == "same program"
        return self.figure if isinstance(self.figure, Difference) and not is_same else None

    @property
    def change(self) -> str | None:
        """The change in per cent, of scores in points; None where it is not known."""
        if (item := self.difference) is None or (math.isnan(item.change) and item.unit != "x100"):
            return None
        if item.unit == "x100":
            return f"{signed(item.change, 2)} points"
        return percent(item.change, 2 if item.unit == "instructions" else 1)

    def value(self, value: float | None) -> str | None:
        """`value` with the unit of the figure; None where it is not known."""
        unit = self.figure.unit
        if value is None or math.isnan(value):
            return None
        if unit in ("bytes", "instructions"):
            return f"{megabytes(value)} MB" if unit == "bytes" else f"{millions(value, 3)} M instructions"
        return fixed(value, 2) if unit == "x100" else f"{number(value)} {unit}"


def _compared(device_comparison: Comparison) -> list[_Compared]:
    """The figures of both results, then those of one."""
    rows = []
    for item in device_comparison.differences:
        verdict = device_comparison.verdict(item)
        if item.unit == "x100" and verdict != "same":
            verdict = "see msdc evaluate --against"
        rows.append(_Compared(item, verdict))
    return rows + [_Compared(item, item.why) for item in device_comparison.unmatched]


def comparison(data: ReportData) -> ReportSection | None:
    """Differences to an earlier result, their intervals, and whether they exceed noise."""
    if not data.comparisons:
        return None
    # The last columns are those that a narrow terminal may hide.
    fields: list[Field[_Compared]] = [
        text_field("Figure", lambda row: row.figure.what),
        Field("Change", lambda row: row.change),
        text_field("Verdict", lambda row: row.verdict),
        Field("Before", lambda row: row.value(row.figure.old)),
        Field("Now", lambda row: row.value(row.figure.new)),
        Field("Fastest tenth", lambda row: row.difference and row.difference.fastest, percent),
    ]

    def interval(title: str) -> Field[_Compared]:
        return Field(title, lambda row: row.difference and row.difference.interval,
                     lambda bounds: " to ".join(map(percent, bounds)))  # fmt: skip

    figures, tables, notes = [], [], []
    colors = {"faster": "good", "slower": "bad"}
    shared = [device_comparison for device_comparison in data.comparisons if not device_comparison.missing]
    for device_comparison in shared:
        last = interval("Earlier runs (99 %)" if device_comparison.past else "95 % interval")
        tables.append(draw(device_comparison.title, [*fields, last], _compared(device_comparison)))
        spans = [
            (
                Style(item.what, colors.get(device_comparison.verdict(item), "m1")),
                100 * item.change,
                (100 * item.interval[0], 100 * item.interval[1]),
                device_comparison.verdict(item).partition(" (")[0],
            )
            for item in device_comparison.differences
            if item.interval is not None and not device_comparison.same_program
        ]
        if spans:
            caption = "Change of the median; lines: 95 % block-bootstrap interval."
            if device_comparison.past:
                caption = (
                    f"Change from the mean of {device_comparison.past} earlier runs; lines: the prediction interval."
                )
            figures.append(charts.dots(device_comparison.where, spans, caption, percent=True))
        notes += [f"{device_comparison.where}: {note}." for note in device_comparison.notes]
    alone = [device_comparison for device_comparison in data.comparisons if device_comparison.missing]
    if alone:
        places: list[Field[Comparison]] = [
            text_field("Artifact and device", lambda row: row.where),
            text_field("Where", lambda row: row.missing),
        ]
        tables.append(draw("In one result only, not compared", places, alone))
    same = all(device_comparison.same_program for device_comparison in shared)
    if any(device_comparison.past for device_comparison in shared):
        notes.append(
            "Earlier runs (99 %): prediction interval of one more run, by Student's t of the logarithms of their "
            "medians. A value inside it is noise."
        )
    if not same and not all(device_comparison.past for device_comparison in shared):
        notes.append(
            "95 % interval: bootstrap over blocks of consecutive samples. A timing changed when its median and its "
            "fastest tenth moved beyond their intervals; a gate looks at the smaller of both changes. A slower machine "
            "looks like a slower artifact: measure both in one session."
        )
    verdicts = [
        device_comparison.verdict(item)
        for device_comparison in data.comparisons
        for item in device_comparison.differences
        if item.unit != "bytes"
    ]
    changed, unclear = (sum(verdict.startswith(words) for verdict in verdicts)
                        for words in (("faster", "slower"), "not decided"))  # fmt: skip
    lead = f"{changed} timing{'s' if changed != 1 else ''} changed, {verdicts.count('noise')} within noise"
    lead += f", {unclear} not decided." if unclear else "."
    if same:
        lead = "The same program in both results: what differs is the machine's."
    if not shared:
        lead = "The two results share no device, runtime and thread count: nothing is compared."
    elif missing := len(not_compared(data.comparisons)):
        lead += f" Not compared: {missing}, which only one of the results holds."
    return ReportSection("comparison", "Comparison with an earlier result", lead, figures, tables, notes, open=True)


def history(data: ReportData) -> ReportSection | None:
    """Medians by date of what was measured more than once, here or in earlier results; one panel per device."""
    every = sorted((run for file in (*data.earlier, data.results) for run in file.runs), key=lambda run: run.created)
    series: dict[str, dict[str, list[DeviceRun]]] = {}
    for run, name in zip(every, artifact_names(every), strict=True):
        series.setdefault(label_device(run, every), {}).setdefault(name, []).append(run)
    series = {
        device_label: {name: runs for name, runs in named.items() if len(runs) > 1}
        for device_label, named in series.items()
    }
    dates = sorted({run.created for named in series.values() for runs in named.values() for run in runs})
    if not dates or data.length is None:
        return None
    rows: list[Shown] = []
    figures = []
    dated = dict(zip(dates, moments(dates), strict=True))
    labels = {0.0: dates[0][:10], len(dates) - 1.0: dates[-1][:10]}
    for device_label, named in series.items():
        drawn: list[tuple[Style, charts.Points]] = []
        unit = "ms"
        for index, (name, runs) in enumerate(named.items()):
            unit, scale = ("ms", 1.0) if runs[0].clock == "wall" else ("million instructions", 1e6)
            timed_runs = [(run, value / scale) for run in runs if (value := data.latency(run)) is not None]
            style = numbered_style(name, index)
            drawn.append((style, [(float(dates.index(run.created)), value) for run, value in timed_runs]))
            rows += [Shown(run, style, device_label) for run, _ in timed_runs]
        if any(points for _, points in drawn):
            what = f"median at {data.length} tokens, {unit}"
            figures.append(charts.lines(device_label, "date", what, drawn, x_labels=labels, zero=True, height=230))
    fields: list[Field[Shown]] = [
        *fields_of(lambda row: row),
        text_field("Measured", lambda row: dated[row.run.created]),
        Field(f"Median at {data.length} tokens", lambda row: data.time(row.run)),
        Field("Mean Spearman", lambda row: data.mean(row.run.accuracy), ",.1f", "× 100"),
        Field("Program", lambda row: row.run.artifact.bytes, megabytes, "MB"),
        Field("Memory rise", lambda row: rise_mib(row.run), ",.1f", "MiB"),
        text_field("sha256", lambda row: row.run.artifact.sha256[:8]),
    ]
    lead = f"{len(dates)} measurements from {dates[0][:10]} to {dates[-1][:10]}."
    return ReportSection("history", "History", lead, figures, [draw("By date", fields, rows)])
