"""What a resolved recipe trains, as plain facts: for the table of the papers' rows, `--dry-run`, and tests.

A fact is a number or a short text under a dotted name: `teacher`, `student.unit`, `stages.teach.epochs`.
"""

from __future__ import annotations

from typing import Any

from msdc.distill.recipe import Assistant, Corpus, NamedModel, ObjectiveUse, Recipe, Stage, StudentShape

Facts = dict[str, Any]


def objective_text(uses: tuple[ObjectiveUse, ...]) -> str:
    """The loss of a stage, such as `unified_generative + 2 sentence_alignment(reduction=mean)`."""
    parts = []
    for use in uses:
        options = ", ".join(f"{key}={value}" for key, value in use.options.items())
        weight = "" if use.weight == 1 else f"{use.weight:g} "
        parts.append(f"{weight}{use.name}{f'({options})' if options else ''}")
    return " + ".join(parts)


def corpus_name(corpus: Corpus) -> str:
    """What a corpus is called: its OPUS or hub name, or its path."""
    return corpus.opus or corpus.hub or corpus.path or " + ".join(corpus.files or ())


def languages_of(corpora: tuple[Corpus, ...]) -> list[str]:
    """Target languages of some corpora, sorted."""
    return sorted({code for corpus in corpora for code in corpus.languages})


def warmup_text(stage: Stage) -> str:
    """`10000 steps`, or a share of the steps such as `0.1`."""
    return f"{stage.warmup_ratio:g}" if stage.warmup_steps is None else f"{stage.warmup_steps} steps"


def _model(model: Any) -> Facts:
    if isinstance(model, NamedModel):
        return {"": model.model, ".pooling": model.pooling or "mean", ".head": model.head or "none"}
    if isinstance(model, StudentShape) and model.scratch is not None:
        plan = model.scratch
        return {
            "": "random weights", ".layers": plan.layers, ".hidden": plan.hidden, ".heads": plan.heads,
            ".intermediate": plan.intermediate, ".vocabulary": plan.vocabulary.train, ".dropout": model.dropout,
            ".max_length": model.max_length,
        }  # fmt: skip
    if isinstance(model, StudentShape):
        return {
            "": "cut from the assistant", ".bottleneck": model.bottleneck, ".place": model.place, ".unit": model.unit,
            ".layers": model.layers, ".repeats": model.repeats, ".max_length": model.max_length,
        }  # fmt: skip
    if isinstance(model, Assistant):
        return {"": f"{model.body} with {model.vocabulary.train} pieces ({model.rows})"}
    return {"": model}


def stage_facts(recipe: Recipe, stage: Stage) -> Facts:
    """What one stage trains, by its keys."""
    corpora = recipe.corpora if stage.corpora is None else stage.corpora
    return {
        "train": stage.train,
        "guide": stage.guide,
        "objective": objective_text(stage.objective),
        "start": stage.start,
        "corpora": [corpus_name(corpus) for corpus in corpora],
        "languages": languages_of(corpora),
        "epochs": f"{stage.steps} steps" if stage.steps is not None else stage.epochs,
        "batch": stage.batch,
        "balance": stage.balance,
        "max_length": stage.max_length,
        "learning_rate": stage.learning_rate,
        "warmup": warmup_text(stage),
        "weight_decay": stage.weight_decay,
        "choose": stage.choose,
        "evaluate_every": stage.evaluate_every,
        "patience": stage.patience,
    }


def recipe_facts(recipe: Recipe) -> Facts:
    """All facts of a recipe by dotted name."""
    facts: Facts = {}
    for role in ("teacher", "assistant", "student"):
        facts |= {f"{role}{key}": value for key, value in _model(getattr(recipe, role)).items()}
    facts["heldout.pairs"] = recipe.heldout.pairs
    facts["heldout.graded"] = [path.rsplit("/", 1)[-1] for path in recipe.heldout.graded]
    if recipe.exclude:
        facts["exclude"] = [path.rsplit("/", 1)[-1] for path in recipe.exclude]
    facts["stages"] = [stage.name for stage in recipe.stages]
    for stage in recipe.stages:
        facts |= {f"stages.{stage.name}.{key}": value for key, value in stage_facts(recipe, stage).items()}
    return facts
