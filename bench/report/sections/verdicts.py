"""Targets: pass or fail of every run, with float models as baselines, and the tiles at the top of the report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msdc.bench.accuracy.document import Document
from msdc.bench.report.data import ReportData
from msdc.bench.report.model import Section, Tile
from msdc.bench.report.targets import Outcome, Target, Verdict, accuracy_of
from msdc.bench.result import Accuracy, ModelScores
from msdc.tables import NONE, Column, Table

STATES: dict[Verdict, Literal["", "good", "bad"]] = {"pass": "good", "fail": "bad", "not measured": ""}
ROLES = {"student": "float model", "teacher": "teacher", "assistant": "assistant"}


def tiles(outcomes: Sequence[Outcome]) -> tuple[Tile, ...]:
    """One per target: pass, fail or not measured, and the run that decides."""
    found = []
    for outcome in outcomes:
        worst, target = outcome.worst(), outcome.target
        detail = f"{target.show(worst.value)}, {worst.style.name}" if worst is not None else ""
        if worst is not None and worst.noisy:
            detail += " (noisy)"
        found.append(Tile(target.title, outcome.verdict, detail, STATES[outcome.verdict]))
    return tuple(found)


def _baseline(target: Target, model: ModelScores, data: ReportData) -> str:
    value: float | None = None
    if target.figure == "size":
        value = model.bytes
    elif target.figure == "accuracy":
        value = accuracy_of(model, data, target.at)
    return NONE if value is None else target.show(value)


def _evaluated(document: Document) -> list[tuple[str, ModelScores]]:
    """The float models of a document, with the scores that runs may also have."""
    found = []
    for model in document.models:
        scores = tuple(
            Accuracy(task=score.task, name=score.name, spearman=score.value)
            for score in document.results
            if score.model == model.label and score.main == "spearman"
        )
        if model.kind == "float" and scores:
            named = ModelScores(role="other", name=model.label, parameters=0, bytes=model.bytes, accuracy=scores)
            found.append((f"float: {model.label}", named))
    return found


def _baselines(data: ReportData, targets: Sequence[Target], evaluations: Sequence[Document]) -> list[tuple[str, ...]]:
    """Rows of the float model and the teacher; float weights by the number of parameters where no model is known."""
    models = [(f"{ROLES[m.role]}: {m.name}", m) for m, _ in data.models() if m.role in ROLES]
    models += [one for document in evaluations for one in _evaluated(document)]
    rows = [(name, "baseline", *(_baseline(target, model, data) for target in targets)) for name, model in models]
    if not any(model.role == "student" for model, _ in data.models()):
        counts = {r.artifact.bundle: r.artifact.parameters for r in data.results.runs if r.artifact.parameters}
        for name, count in counts.items():
            cells = (target.show(4 * count) if target.figure == "size" else NONE for target in targets)
            rows.append((f"{name} in float32", "baseline", *cells))
    return rows


def section(data: ReportData, outcomes: Sequence[Outcome], evaluations: Sequence[Document] = ()) -> Section | None:
    """One row per run, one column per target, rows of baselines; None without targets."""
    if not outcomes:
        return None
    rows = []
    met = 0
    for i, (_, style) in enumerate(data.everything()):
        judged = [outcome.runs[i] for outcome in outcomes]
        verdicts = {one.verdict for one in judged}
        verdict = "fail" if "fail" in verdicts else "pass" if verdicts == {"pass"} else "incomplete"
        met += verdict == "pass"
        cells = []
        for outcome, one in zip(outcomes, judged, strict=True):
            noisy = ", noisy" if one.noisy else ""
            known = one.value is not None
            cells.append(f"{one.verdict}, {outcome.target.show(one.value)}{noisy}" if known else one.verdict)
        rows.append((style.name, verdict, *cells))
    targets = [outcome.target for outcome in outcomes]
    columns = (
        Column("Artifact", align="left"), Column("Verdict", align="left"),
        *(Column(target.what[:1].upper() + target.what[1:], target.bound, align="left") for target in targets),
    )  # fmt: skip
    notes = [
        "A target is met when every run that was measured keeps it. Latency is the median in time; counted "
        "instructions are not judged. Memory is the peak of the native runner's process, or the PSS of a browser's "
        "renderer; runs from Python include the interpreter and are not judged."
    ]
    if any(one.noisy for outcome in outcomes for one in outcome.runs):
        notes.append("Noisy: the samples spread so far that the median may be too high; measure again.")
    count = len(data.results.runs)
    lead = f"{met} of {count} run{'s' if count != 1 else ''} meet{'s' if met == 1 else ''} all targets."
    table = Table("Targets", columns, tuple([*rows, *_baselines(data, targets, evaluations)]))
    return Section("targets", "Targets", lead, (), (table,), tuple(notes))
