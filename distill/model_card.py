"""The model card of a student: description, usage, scores, limits, training data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msdc.distill.recipe import Corpus, Recipe, Stage, StudentShape, model_name
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import hub_name
from msdc.tables import escape_line

# The hub's names of licenses
HUB_LICENSES = ("apache-2.0", "mit", "cc-by-4.0", "cc-by-sa-4.0", "cc-by-2.0", "cc0-1.0", "bsd-3-clause")
TAGS = ["sentence-transformers", "sentence-similarity", "feature-extraction", "msdc", "distillation"]
USE = """```python
import msdc

encoder = msdc.load_encoder("path/to/this/folder")
```"""
USE_STOCK = f"""```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")  # or its id at a hub
```

or, with the smaller weights in the same folder:

{USE}"""
# Below so many steps a student shows that a recipe runs, not what it can reach.
FEW_STEPS = 1000
COLUMNS = ("stage", "trains", "teacher", "objective", "length", "batch", "learning rate", "schedule", "step chosen",
           "held-out MSE", "seconds")  # fmt: skip


def languages_of(recipe: Recipe, read: Sequence[Mapping[str, Any]]) -> list[str]:
    """Languages of a recipe, source first: those it names, then those that were read."""
    named = [code for corpus in recipe.corpora for code in (*corpus.languages, *corpus.word_by_word)]
    return list(
        dict.fromkeys([*(corpus.source for corpus in recipe.corpora), *named, *(part["language"] for part in read)])
    )


def license_of(recipe: Recipe) -> str:
    """The license for the hub's field: that of the recipe's lines if they agree, else `other`."""
    licenses = {next((name for name in HUB_LICENSES if name in text.lower()), "other") for text in recipe.licenses}
    return licenses.pop() if len(licenses) == 1 else "other"


def _metadata(recipe: Recipe, languages: list[str], report: Mapping[str, float], heldout: Mapping[str, float]) -> str:
    """The metadata block that model hubs read: languages, ids, license, scores (model-index)."""
    from huggingface_hub import EvalResult, ModelCardData

    results = [
        EvalResult("sentence-similarity", name, name, "spearman_cosine", round(value, 2),
                   task_name="Semantic similarity", metric_name="Spearman x 100")
        for name, value in report.items()
    ]  # fmt: skip
    results += [
        EvalResult("translation-retrieval", "held-out", "held-out pairs of the training text", "accuracy",
                   round(value, 2), task_name="Nearest translation", dataset_config=code, metric_name="Accuracy, %")
        for code, value in heldout.items()
    ]  # fmt: skip
    hubs = [
        corpus.hub.partition("@")[0] for corpus in recipe.all_corpora if corpus.hub and not Path(corpus.hub).exists()
    ]
    named: Any = {"model_name": recipe.name, "eval_results": results} if results else {}
    return ModelCardData(
        language=languages, license=license_of(recipe), library_name="sentence-transformers", tags=TAGS,
        pipeline_tag="sentence-similarity", base_model=hub_name(model_name(recipe.teacher)),
        datasets=list(dict.fromkeys(hubs)) or None, **named,
    ).to_yaml()  # fmt: skip


def _corpus_line(corpus: Corpus) -> str:
    name = " + ".join(Path(path).name for path in corpus.files or (corpus.path or "",)) or corpus.origin
    languages = ", ".join(corpus.languages)
    return f"* {name} ({corpus.source}{f' with {languages}' if languages else ''})"


def _count(number: float, unit: str) -> str:
    return f"{number:g} {unit}{'' if number == 1 else 's'}"


def _scores(report: Mapping[str, float], last: Mapping[str, float], heldout: Mapping[str, float]) -> list[str]:
    """The table of scores: the files of `report`, development files, held-out pairs by language."""
    rows = [(name, "Spearman x 100", value) for name, value in report.items()]
    rows += [(f"{key.removeprefix('spearman_')} (development)", "Spearman x 100", value)
             for key, value in last.items() if key.startswith("spearman_")]  # fmt: skip
    rows += [(f"held-out pairs, {code}", "nearest translation found, %", value) for code, value in heldout.items()]
    if not rows:
        return []
    table = [f"| {name} | {measure} | {value:.1f} |" for name, measure, value in rows]
    note = "Held-out pairs are of the training text and, like development files, chose the weights: no test sets."
    chosen = ["", note] if len(rows) > len(report) else []
    return ["", "## Scores", "", "| set | measure | score |", "|---|---|---|", *table, *chosen]


def _limits(recipe: Recipe, encoder: Encoder, languages: Sequence[str], tested: bool) -> list[str]:
    """What a user of the model must know."""
    longest = max(corpus.max_characters for corpus in recipe.all_corpora)
    lines = [
        f"Trained on {', '.join(languages)} only. Other languages are not known to work.",
        f"A text is cut after {encoder.max_length} tokens, and training sentences had at most {longest} characters: "
        "split longer texts into passages.",
        "A cosine ranks texts. Which cosine means the same differs by domain and language: set thresholds on yours.",
    ]
    return ["", "## Limits", "", *(f"* {line}" for line in lines)] + (
        [] if tested else ["* No test set was scored. `msdc evaluate` scores this folder."]
    )


def _stage_row(stage: Stage, numbers: Mapping[str, float]) -> str:
    objective = " + ".join(use.label if use.weight == 1 else f"{use.weight:g} {use.label}" for use in stage.objective)
    length = _count(stage.epochs, "epoch") if stage.steps is None else _count(stage.steps, "step")
    table = "" if stage.table_learning_rate is None else f", table {stage.table_learning_rate:g}"
    teachers = stage.teacher or "none"
    teacher = (
        teachers if isinstance(teachers, str) else " + ".join(f"{weight:g} {name}" for name, weight in teachers.items())
    )
    cells = (
        stage.name, stage.train, teacher, objective, length, str(stage.batch),
        f"{stage.learning_rate:g}{table}", stage.schedule, f"{numbers.get('step', 0):.0f}",
        f"{numbers['heldout_mse']:.6f}" if "heldout_mse" in numbers else "", f"{numbers.get('seconds', 0):.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def model_card(
    recipe: Recipe,
    encoder: Encoder,
    results: Mapping[str, Mapping[str, float]],
    seconds: float,
    report: Mapping[str, float],
    read: Sequence[Mapping[str, Any]] = (),
    warnings: Sequence[str] = (),
) -> str:
    """Markdown with the metadata block that model hubs read.

    `results` are the numbers of each stage, `seconds` the time of all of them, `report` Spearman x 100 by file, `read`
    the `about` of each table, `warnings` what the run warned of.
    """
    last = results[recipe.stages[-1].name]
    heldout = {key.removeprefix("accuracy_"): value for key, value in last.items() if key.startswith("accuracy_")}
    config: Any = getattr(encoder.module, "config", None)
    parameters = sum(p.numel() for p in encoder.module.parameters())
    languages = languages_of(recipe, read)
    about = recipe.about or "A multilingual sentence encoder trained with msdc."
    main = "student" if recipe.student is not None else "assistant"
    steps = sum(int(results[stage.name].get("step", 0)) for stage in recipe.stages if stage.train == main)
    warning = f"> **Warning:** trained for {_count(steps, 'step')} only. This model shows that its recipe runs; "
    warning += "its vectors are not fit for use.\n"
    lines = [
        f"---\n{_metadata(recipe, languages, report, heldout).strip()}\n---\n\n# {recipe.name}\n\n{about}\n",
        *([warning] if steps < FEW_STEPS and isinstance(recipe.student, StudentShape | None) else []),
        f"* teacher: `{hub_name(model_name(recipe.teacher)) or Path(model_name(recipe.teacher)).name}`",
        f"* languages: {', '.join(languages)}",
        f"* parameters: {parameters:,}; sentence width {encoder.width}; longest input {encoder.max_length} tokens",
    ]
    if hasattr(config, "unit"):
        table = f"table {config.vocabulary} x {config.table_width}"
        applied = f" applied {config.repeats} times" if config.repeats > 1 else ""
        lines.append(f"* {_count(config.unit, 'layer')}{applied}, {table}")
    time = _count(round(seconds / 60), "minute") if seconds >= 60 else _count(round(seconds), "second")
    lines.append(f"* trained in {time}, seed {recipe.seed}")
    lines += ["", "## Use", "", USE_STOCK if recipe.stock_twin and not getattr(config, "static", False) else USE]
    lines += _scores(report, last, heldout) + _limits(recipe, encoder, languages, bool(report))
    lines += ["", "## Data", "", *dict.fromkeys(map(_corpus_line, recipe.all_corpora))]
    lines += [f"* {source}" for source in recipe.data_sources]
    if read:
        rows, lost = (
            sum(reading["rows"] for reading in read),
            sum(drop["rows"] for reading in read for drop in reading["dropped"]),
        )
        lines.append(f"* {_count(rows, 'row')} in {_count(len(read), 'part')}; {_count(lost, 'row')} dropped")
    if warnings:
        lines += ["", "## Warnings of the training run", "", *(f"* {escape_line(text)}" for text in warnings)]
    if recipe.licenses:
        lines += ["", "## Licenses", "", *[f"* {text}" for text in recipe.licenses]]
    lines += ["", "## Training", "", f"| {' | '.join(COLUMNS)} |", "|---" * len(COLUMNS) + "|"]
    lines += [*(_stage_row(stage, results[stage.name]) for stage in recipe.stages), ""]
    return "\n".join(lines)
