"""`msdc distill RECIPE --dry-run`: what a run would do, and a few steps of every stage on a sample of the text.

The trial is the real pipeline in a temporary folder: the same models, objectives and batch sizes, a small vocabulary, a
few hundred rows of each corpus, TRIAL_STEPS steps per stage. Time and memory are extrapolated from it.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from msdc.distill.catalog import recipe_facts
from msdc.distill.data.corpora import Source, open_corpora
from msdc.distill.data.exclusion import Exclusion, read_exclusion
from msdc.distill.data.stream import weights
from msdc.distill.pipeline import Run
from msdc.distill.preflight import check_recipe, needs_network, stage_corpora
from msdc.distill.recipe import Assistant, Corpus, Recipe, Stage, StudentShape
from msdc.distill.run.folder import RunFolder
from msdc.encoders.encoder import load_encoder
from msdc.machine import peak_mib

TRIAL_STEPS = 4
TRIAL_ROWS = 400
TRIAL_PIECES = 2000
ADAM_BYTES = 16  # float32 weight, gradient and two moments
ROW_BYTES = 500  # a row of the shuffle buffer: two short texts as Python objects


@dataclass
class SourceCount:
    """Rows of one part of a corpus; None where it must be downloaded first."""

    name: str
    language: str
    rows: int | None


@dataclass
class StagePlan:
    """A stage of the run; numbers that could not be found are None."""

    name: str
    steps: int | None
    seconds_per_step: float | None = None
    hours: float | None = None
    minutes_per_10000_steps: float | None = None
    loss_shares: dict[str, float] = field(default_factory=dict)


@dataclass
class DryRun:
    """What `--dry-run` prints; `facts` are those of the resolved recipe."""

    name: str
    facts: dict[str, Any]
    differs: list[str]
    needs_network: list[str]
    sources: list[SourceCount]
    stages: list[StagePlan]
    memory_mib: float | None = None
    hours: float | None = None
    not_tried: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def _count(source: Source) -> int:
    """Usable rows; one that is translated word by word counts per language."""
    return sum(1 for _ in source.read()) * max(1, len(source.corpus.word_by_word))


def _count_all(corpora: tuple[Corpus, ...], without: Exclusion | None) -> tuple[list[Source], list[SourceCount]]:
    sources: list[Source] = []
    counts: list[SourceCount] = []
    for corpus in corpora:
        if needs_network(corpus):
            counts.append(SourceCount(corpus.origin, ", ".join(corpus.languages), None))
            continue
        for source in open_corpora((corpus,), without):
            sources.append(source)
            counts.append(SourceCount(source.name, source.language, _count(source)))
    return sources, counts


def epoch_rows(sources: list[Source], counts: list[int], balance: str, share: float) -> float:
    """About how many rows an epoch has: it ends when every source was read, and small ones repeat until then.

    `share` is the part of the sentences that is trained on.
    """
    if balance == "proportional":
        return share * sum(counts)
    drawn = weights(sources, balance)
    return share * max(rows / draw for rows, draw in zip(counts, drawn, strict=True))


def count_steps(recipe: Recipe, stage: Stage, sources: list[Source], counts: list[SourceCount]) -> int | None:
    """Steps of a stage; None where its text must be downloaded, or batches are cut by tokens."""
    if stage.steps is not None:
        return stage.steps
    rows = [count.rows for count in counts]
    known = [row for row in rows if row is not None]
    if len(known) < len(rows) or stage.batch_tokens is not None:
        return None
    share = (1 - recipe.heldout.share) * (recipe.sample if stage.sample is None else stage.sample)
    return max(1, round(stage.epochs * epoch_rows(sources, known, stage.balance, share) / stage.batch))


def trial_recipe(recipe: Recipe, cache: Path) -> Recipe | None:
    """The recipe at trial size with the corpora of this machine; None where a stage has none."""

    def small(corpora: tuple[Corpus, ...], batch: int) -> tuple[Corpus, ...]:
        here = [corpus for corpus in corpora if not needs_network(corpus)]
        limit = max(TRIAL_ROWS, 2 * batch)
        return tuple(c.model_copy(update={"limit": min(limit, c.limit or limit)}) for c in here)

    largest = max(stage.batch for stage in recipe.stages)
    stages = []
    for stage in recipe.stages:
        corpora = None if stage.corpora is None else small(stage.corpora, stage.batch)
        if corpora == ():
            return None
        short = {"steps": TRIAL_STEPS, "evaluate_every": TRIAL_STEPS, "corpora": corpora, "sample": None}
        stages.append(stage.model_copy(update=short))
    corpora = small(recipe.corpora, largest)
    if not corpora:
        return None
    changes: dict[str, Any] = {
        "corpora": corpora, "stages": tuple(stages), "cache": str(cache), "report": (), "sample": 1.0,
        "heldout": recipe.heldout.model_copy(update={
            "pairs": 10, "share": max(0.05, recipe.heldout.share),
            "graded_pairs": min(20, recipe.heldout.graded_pairs or 20)}),
    }  # fmt: skip
    tiny = {"train": TRIAL_PIECES, "sentences_per_language": TRIAL_ROWS}
    if isinstance(recipe.assistant, Assistant):
        vocabulary = recipe.assistant.vocabulary.model_copy(update=tiny)
        changes["assistant"] = recipe.assistant.model_copy(update={"vocabulary": vocabulary})
    if isinstance(recipe.student, StudentShape):
        shape: dict[str, Any] = {}
        if (plan := recipe.student.scratch) is not None:
            shape["scratch"] = plan.model_copy(update={"vocabulary": plan.vocabulary.model_copy(update=tiny)})
        if recipe.student.base_rows is not None:
            shape["base_rows"] = min(recipe.student.base_rows, TRIAL_PIECES // 2)
        changes["student"] = recipe.student.model_copy(update=shape)
    return recipe.model_copy(update=changes)


def _pieces(recipe: Recipe) -> int | None:
    """Size of the vocabulary that the recipe trains; None where it takes one as it is."""
    if isinstance(recipe.student, StudentShape) and recipe.student.scratch is not None:
        return recipe.student.scratch.vocabulary.train
    return recipe.assistant.vocabulary.train if isinstance(recipe.assistant, Assistant) else None


def _seconds_per_step(rows: list[dict[str, Any]], stage: str) -> float | None:
    times = [row["seconds"] for row in rows if row.get("stage") == stage and "seconds" in row]
    # The first step also computes the guide's outputs of a whole window and warms up.
    return (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else None


def dry_run(recipe: Recipe) -> DryRun:
    """Check, count, and try a few steps of every stage; nothing is downloaded and nothing is left.

    Raises:
        InputError: what a run would refuse.
    """
    absent = check_recipe(recipe, download=False)
    without = read_exclusion(recipe.exclude)
    _, counts = _count_all(recipe.corpora, without)
    result = DryRun(recipe.name, recipe_facts(recipe), list(recipe.differs), absent, counts, [])
    for stage in recipe.stages:
        sources, own = _count_all(stage_corpora(recipe, stage), without)
        result.stages.append(StagePlan(stage.name, count_steps(recipe, stage, sources, own)))
    models = set(absent) - {c.origin for c in _all_corpora(recipe) if needs_network(c)}
    with tempfile.TemporaryDirectory(prefix="msdc-dry-run-") as folder:
        trial = None if models else trial_recipe(recipe, Path(folder) / "guides")
        if trial is None:
            missing = sorted(models) or ["the corpora of a stage"]
            result.not_tried = f"needs network: {', '.join(missing)}"
            return result
        _try(recipe, trial, Path(folder) / "run", result)
    return result


def _all_corpora(recipe: Recipe) -> list[Corpus]:
    return [*recipe.corpora, *(c for stage in recipe.stages for c in stage.corpora or ())]


def _try(recipe: Recipe, trial: Recipe, folder: Path, result: DryRun) -> None:
    """Run the trial and add what it tells."""
    done = Run(trial, folder).run()
    rows = RunFolder(folder).metrics.rows()
    for plan in result.stages:
        numbers = done.stages[plan.name]
        plan.loss_shares = {k.removeprefix("share_"): v for k, v in numbers.items() if k.startswith("share_")}
        plan.seconds_per_step = _seconds_per_step(rows, plan.name)
        if plan.seconds_per_step is not None:
            plan.minutes_per_10000_steps = 10_000 * plan.seconds_per_step / 60
        if plan.steps is not None and plan.seconds_per_step is not None:
            plan.hours = plan.steps * plan.seconds_per_step / 3600
    hours = [plan.hours for plan in result.stages]
    result.hours = None if None in hours else sum(hour for hour in hours if hour is not None)
    module: Any = load_encoder(done.student).module
    pieces, tried = _pieces(recipe), getattr(module, "config", None)
    more = 0
    if pieces is not None and tried is not None:
        assistant = 0 if done.assistant is None else load_encoder(done.assistant).width
        # A code grows by a few numbers per piece, its base by what the trial cannot know.
        widths = [tried.table_width if not getattr(tried, "coded", False) else tried.links, assistant]
        more = (pieces - tried.vocabulary) * sum(widths)
    known = [count.rows for count in result.sources if count.rows is not None]
    buffered = min(recipe.buffer, sum(known) if len(known) == len(result.sources) else recipe.buffer)
    result.memory_mib = peak_mib() + (ADAM_BYTES * max(0, more) + ROW_BYTES * buffered) / 2**20


def to_text(result: DryRun) -> str:
    """For a terminal."""
    lines = [f"recipe {result.name}", *(f"  {key}: {value}" for key, value in result.facts.items())]
    lines += [f"  differs: {text}" for text in result.differs]
    lines.append("sources")
    for source in result.sources:
        shown = "needs network" if source.rows is None else f"{source.rows} rows"
        lines.append(f"  {source.name} [{source.language}]: {shown}")
    lines.append("stages")
    for plan in result.stages:
        steps = "steps unknown" if plan.steps is None else f"{plan.steps} steps"
        speed = ""
        if plan.minutes_per_10000_steps is not None:
            speed = f", {plan.seconds_per_step:.2f} s per step ({plan.minutes_per_10000_steps:.0f} minutes per 10,000)"
        hours = "" if plan.hours is None else f", about {plan.hours:.2f} hours"
        parts = ", ".join(f"{name} {100 * share:.3g} %" for name, share in plan.loss_shares.items())
        lines.append(f"  {plan.name}: {steps}{speed}{hours}{f'; loss: {parts}' if parts else ''}")
    if result.needs_network:
        lines.append(f"needs network: {', '.join(result.needs_network)}")
    if result.not_tried:
        lines.append(f"not tried ({result.not_tried})")
    if result.memory_mib is not None:
        lines.append(f"memory: about {result.memory_mib:.0f} MiB")
    if result.hours is not None:
        lines.append(f"time: about {result.hours:.2f} hours on this machine, without making models and vocabulary")
    return "\n".join(lines)
