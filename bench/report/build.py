"""From results to a report."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from msdc.bench.accuracy.document import Document, as_documents
from msdc.bench.compare import Comparison, compare_results
from msdc.bench.report.data import ReportData, Twin
from msdc.bench.report.inputs import TrainingLog, read_inputs, read_training
from msdc.bench.report.model import Report, Section
from msdc.bench.report.noise import warnings
from msdc.bench.report.sections import (
    accuracy,
    comparison,
    devices,
    evaluation,
    growth,
    method,
    overview,
    performance,
    recurrence,
    sweep,
    training,
    verdicts,
)
from msdc.bench.report.targets import Target, judge, missed
from msdc.bench.report.write import check_output, section_to_html, to_html, to_markdown
from msdc.bench.result import BenchFile
from msdc.distill.runs.sweep_table import SweepTable
from msdc.errors import InputError
from msdc.files import write_json, write_text
from msdc.tables import joined


def _training(run_folder: Path, twin: Twin | None) -> TrainingLog:
    """The stages of a run, and those that its twin trained otherwise than by taking them over."""
    own = read_training(run_folder)
    if twin is None:
        return own
    known = {(stage.name, tuple(stage.losses)) for stage in own.stages}
    other = [stage for stage in read_training(twin.folder).stages if (stage.name, tuple(stage.losses)) not in known]
    return TrainingLog((*own.stages, *(replace(stage, name=f"{stage.name} ({twin.name})") for stage in other)))


def build_report(
    results: BenchFile,
    *,
    created: str | None = None,
    title: str | None = None,
    run_folder: Path | None = None,
    before: BenchFile | None = None,
    with_peers: bool = False,
    evaluations: Sequence[Document] = (),
    sweeps: Sequence[SweepTable] = (),
    twin: Twin | None = None,
    targets: Sequence[Target] = (),
) -> Report:
    """A report of `results`, with the training run in `run_folder`, a comparison with `before`, documents of `msdc
    evaluate`, and sweeps when given. `twin` is the reported student with a recurring unit: the report compares the two.
    `targets` are judged at the top.

    Raises:
        InputError: nothing to report, targets without a run, a bad run folder, or nothing in common with `before`.
    """
    if targets and not results.runs:
        raise InputError("targets are for measured artifacts, and the result files hold no run")
    if not (results.runs or results.models or evaluations or sweeps or run_folder is not None):
        raise InputError("the result files hold no run and no model: nothing to report")
    comparisons: tuple[Comparison, ...] = tuple(compare_results(before, results)) if before is not None else ()
    names = [run.artifact.bundle for run in results.runs] or [model.name for model in results.models]
    names = names or ([run_folder.resolve().name] if run_folder is not None and not evaluations and not sweeps else [])
    names = names or [evaluation.subject(document) for document in evaluations] or [one.recipe for one in sweeps]
    data = ReportData(
        results=results,
        title=title or joined(list(dict.fromkeys(names))),
        training=_training(run_folder, twin) if run_folder is not None else None,
        comparisons=comparisons,
        twin=twin,
    )
    outcomes = judge(data, targets)
    found = (
        verdicts.section(data, outcomes, evaluations),
        overview.artifacts(data),
        growth.section(data),
        devices.section(data),
        accuracy.section(data),
        accuracy.trade(data),
        recurrence.section(data),
        *evaluation.sections(evaluations),
        comparison.section(data),
        performance.latency(data),
        performance.samples(data),
        performance.counted(data),
        performance.memory(data),
        overview.parameters(data),
        training.section(data),
        *sweep.sections(sweeps),
        accuracy.peers() if with_peers else None,
        method.section(data),
    )
    names = list(dict.fromkeys(run.device.name for run in results.runs))
    only_run = run_folder is not None and not (results.models or evaluations or sweeps)
    subtitle = "Training" if only_run else "Size and accuracy"
    return Report(
        title=data.title,
        subtitle=f"Size, accuracy and latency on {joined(names)}" if names else subtitle,
        created=created or datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        warnings=warnings(data),
        missed=tuple(missed(outcomes)),
        tiles=(*verdicts.tiles(outcomes), *overview.tiles(data)),
        sections=tuple(section for section in found if section is not None),
    )


def evaluation_report(document: Document) -> Report:
    """The report of one `msdc evaluate`. It has no date, so the same document gives the same file."""
    return Report("Accuracy", evaluation.subject(document), sections=tuple(evaluation.parts(document)))


def write_evaluation(document: Document, target: Path, force: bool = False) -> Path:
    """Write a document as JSON, Markdown or a page, by the suffix of `target`; returns `target`.

    Raises:
        InputError: see `msdc.bench.report.write.check_output`.
    """
    check_output(target, force)
    if target.suffix == ".json":
        write_json(target, document.as_json())
    else:
        report = evaluation_report(document)
        write_text(target, to_html(report) if target.suffix == ".html" else to_markdown(report))
    return target


def report_section(results: Any) -> str:
    """A `<section class="accuracy">` with tables and figures to put into another page; all text is escaped.

    `results` is a document of `msdc evaluate --json`, a list of them, or results of `msdc.bench.accuracy.evaluate`.

    Raises:
        InputError: none of these.
    """
    own = evaluation.sections(as_documents(results))
    return section_to_html(
        Section(
            "accuracy",
            "Accuracy",
            figures=tuple(figure for section in own for figure in section.figures),
            tables=tuple(table for section in own for table in section.tables),
            notes=tuple(note for section in own for note in section.notes),
            tables_first=True,
        ),
        "accuracy",
    )


def sweep_page(folder: Path) -> Path:
    """Write the report.html of the sweep in `folder`: its curves and its table; returns that path.

    Raises:
        InputError: no sweep in `folder`.
    """
    page = folder / "report.html"
    write_text(page, to_html(build_report(BenchFile(), sweeps=read_inputs([folder]).sweeps)))
    return page
