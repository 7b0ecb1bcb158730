"""Checks of a recipe before a run: objectives, models, lengths, corpora, graded files.

A run calls `check_recipe` before it creates its folder, so that a mistake costs no time and leaves no folder. `msdc
distill --dry-run` calls it without downloading anything.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from msdc.compress.loading import find_model
from msdc.compress.student.config import StudentConfig, tensor_shapes
from msdc.compress.student.model import Student
from msdc.compress.student.plan import plan_for
from msdc.distill.assistant import named_positions
from msdc.distill.data import Row
from msdc.distill.data.checks import (
    SAMPLED,
    language_warnings,
    overlap_warning,
    texts_by_language,
    vocabulary_warnings,
)
from msdc.distill.data.columns import fits, is_language
from msdc.distill.data.corpora import TextSource, is_here, open_corpora, unread
from msdc.distill.data.exclusion import excluded_files, read_exclusion
from msdc.distill.data.graded import read_graded
from msdc.distill.objectives import find_objective
from msdc.distill.recipe import (
    TEACHER,
    Assistant,
    NamedModel,
    Recipe,
    Scratch,
    Stage,
    StagePlan,
    StudentShape,
    corpus_label,
    is_external,
    is_table,
    model_name,
)
from msdc.distill.tasks import task_kind
from msdc.distill.tasks.sentence import SCORES, TASK_OPTIONS, compares_targets
from msdc.distill.teacher import open_external
from msdc.distill.training.trainer import check_frozen, check_warmup
from msdc.encoders.folder import Layout, find_offline, read_layout
from msdc.errors import InputError
from msdc.limits import LAYERS
from msdc.machine import core_count
from msdc.progress import warn
from msdc.text.scored_pairs import ScoredPairs
from msdc.text.tokenizer import load_tokenizer

MULTILINGUAL = "paraphrase-multilingual-MiniLM-L12-v2"  # 50 languages


def check_recipe(recipe: Recipe, download: bool = True, text: bool = True) -> list[str]:
    """Check everything that can be wrong with a recipe; returns what must be downloaded or provided before a run.

    With `download`, named models and corpora are downloaded. Without `text` the corpora are not opened.
    """
    for plan in recipe.plans:
        _check_stage(plan)
    absent = [f"{name} (network)" for name in _check_models(recipe, download)]
    _check_recipe_settings(recipe)
    graded = [("heldout.graded", read_graded(path)) for path in recipe.heldout.graded]
    graded += [("report", read_graded(path, choosing=False)) for path in recipe.report]
    excluded_files(recipe.exclude)
    excluded = read_exclusion(recipe.exclude) if download and text else None
    samples: list[tuple[TextSource, list[Row]]] = []
    for corpus in dict.fromkeys(recipe.all_corpora) if text else ():
        if not download and not is_here(corpus):
            absent.append(f"{corpus.origin}{f': {corpus.manual_download}' if corpus.manual_download else ' (network)'}")
            continue
        sources = open_corpora((corpus,), excluded, recipe.languages)
        for line in unread(corpus, sources):
            warn(line)
        for source in sources:
            with closing(source.read()) as rows:
                samples.append((source, list(islice(rows, SAMPLED))))  # an error if no row is usable
    if text and all(map(is_here, recipe.all_corpora)):
        require_languages(recipe, [source for source, _ in samples])
    _check_samples(recipe, samples, graded)
    if recipe.cache:
        cache = Path(recipe.cache).expanduser()
        existing = next(path for path in (cache, *cache.parents) if path.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise InputError(f"cache: {recipe.cache}: {existing} is not a writable folder")
    return absent


def _check_recipe_settings(recipe: Recipe) -> None:
    """Warn of settings of the recipe and of its corpora that have no effect."""
    cores = core_count()
    for unused, problem in (
        (recipe.heldout.graded_pairs is not None and not recipe.heldout.graded,
         "heldout.graded_pairs has no effect without heldout.graded"),
        ((recipe.threads or 0) > cores, f"threads: {recipe.threads}: this machine grants {cores}, and more are slower"),
        (any(len(plan.corpora) == 1 and plan.corpora[0].weight != 1 for plan in recipe.plans),
         "weight has no effect on the only corpus of a stage"),
        *((bool(c.languages) and set(c.languages) != {c.source} and c.files is None
           and c.kind in ("text", "triples", "nli", "nli-pairs"),
           f"{corpus_label(c.model_dump())}: languages has no effect with kind: {c.kind}: `source` is its language")
          for c in dict.fromkeys(recipe.all_corpora)),
    ):  # fmt: skip
        if unused:
            warn(problem)


def require_languages(recipe: Recipe, sources: Sequence[TextSource]) -> None:
    """Refuse a language of the recipe that no source has."""
    have = {code for source in sources for code in (source.language, source.corpus.source)}
    if missing := [code for code in recipe.languages if code not in have]:
        raise InputError(f"languages: no corpus has text in {', '.join(missing)}; they have {', '.join(sorted(have))}")


def _check_samples(
    recipe: Recipe, samples: Sequence[tuple[TextSource, list[Row]]], graded: Sequence[tuple[str, ScoredPairs]]
) -> None:
    """Warn of what is probably wrong with the text, by the first rows of each part; refuse what no model can read."""
    texts = {source.name: texts_by_language(rows, source.corpus.source) for source, rows in samples}
    for name, by_language in texts.items():
        for line in language_warnings(name, by_language):
            warn(line)
    sampled = {
        text.lower()
        for by_language in texts.values()
        for texts_of_side in by_language.values()
        for text in texts_of_side
    }
    for use, pairs in graded:
        for line in overlap_warning(pairs, use, sampled, f"the first {SAMPLED} rows of a part"):
            warn(line)
    lines: dict[str, None] = {}  # stages that train the same model say the same
    for plan in recipe.plans:
        role = plan.stage.role
        models = {f"the teacher {model_name(model)}": model_name(model) for model in plan.teachers.values()}
        learner = getattr(recipe, role)
        # Tokens that a student is given are trained first; the run checks it then.
        extended = isinstance(learner, NamedModel) and learner.vocabulary is not None
        if isinstance(learner, (NamedModel, str)) and learner != TEACHER and not extended:
            models[role] = model_name(learner)
        targets = compares_targets(plan)
        for who, model in models.items():
            if is_external(model) or (folder := _find_model(model, False)) is None:
                continue
            tokenizer = load_tokenizer(folder)
            for source, _ in samples:
                if source.corpus in plan.corpora:
                    by_language = texts[source.name]
                    if who != role and not targets:
                        by_language = {code: v for code, v in by_language.items() if code == source.corpus.source}
                    lines |= dict.fromkeys(
                        vocabulary_warnings(source.name, by_language, tokenizer, who, refuse=who == role)
                    )
    for line in lines:
        warn(line)


# --- stages -----------------------------------------------------------------------------------------------------------


def _example(name: str) -> Tensor:
    """A small example of an objective's input, shaped by the suffix of its name."""
    sizes = {"B": 3, "K": 4, "P": 2, "T": 5, "L": 2, "H": 4, "D": 4, "V": 6, "M": 3, "C": 3, "F": 12, "N": 3, "J": 4}
    suffix = name.rsplit("_", 1)[-1]
    shape = [sizes[letter] for letter in suffix]
    if "mask_" in name:
        return torch.ones(shape)
    if suffix in ("B", "BT", "M"):
        return torch.zeros(shape, dtype=torch.long)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def _check_stage(plan: StagePlan) -> None:
    """Check the objectives with their options (on a tiny example) and what they need from the stage."""
    stage, kinds, scored = plan.stage, plan.kinds, {bool(corpus.scores) for corpus in plan.corpora}
    if len(scored) > 1 or (stage.mined_negatives is not None and scored == {True}):
        raise InputError(
            f"stage {stage.name}: scores: set them for each of its corpora or none, and do not set mined_negatives"
        )
    for use in stage.objective:
        try:
            objective = find_objective(use.name, fresh=True)
            options = {key: value for key, value in use.options.items() if key not in TASK_OPTIONS}
            objective({name: _example(name) for name in objective.inputs}, **options)
        except (TypeError, ValueError, InputError) as error:
            where = "" if isinstance(error, InputError) else f"{use.label}: "
            raise InputError(f"stage {stage.name}: {where}{error}") from error
    task_kind(stage).check(plan)
    if stage.steps is not None:
        check_warmup(stage, stage.steps)
    used = any(
        SCORES in (*objective.inputs, *objective.optional)
        for objective in (find_objective(use.name) for use in stage.objective)
    )
    graded = plan.heldout.graded or "scored" in kinds
    problems = {
        "source_share has no effect: its text has one side": stage.source_share < 1 and kinds == {"text"},
        "its objectives do not use the scores of its corpora": scored == {True} and not used,
        "choose: retrieval has no effect without pairs": stage.choose == "retrieval" and kinds <= {"text", "scored"},
        "choose: graded has no effect without heldout.graded": stage.choose == "graded" and not graded,
    }
    for problem in (*stage.ineffective(), *(problem for problem, applies in problems.items() if applies)):
        warn(f"stage {stage.name}: {problem}")
    _check_frozen(stage)
    if stage.quantize is not None:
        tiny = StudentConfig(vocabulary=8, hidden=64, heads=2, intermediate=64, unit=1, positions=4)
        plan_for(Student(tiny), stage.quantize)


def _check_frozen(stage: Stage) -> None:
    """Refuse names in `freeze` that no student has; a run checks them against its own."""
    sizes: dict[str, Any] = {"vocabulary": 8, "hidden": 64, "heads": 2, "intermediate": 64, "positions": 4}
    shapes = (
        StudentConfig(**sizes, unit=LAYERS, dense=64), StudentConfig(**sizes, unit=0, base_rows=4, nonzeros=2),
        StudentConfig(**sizes, unit=1, bottleneck=8, place="embedding"),
    )  # fmt: skip
    names = dict.fromkeys(name for shape in shapes for name in tensor_shapes(shape))
    try:
        check_frozen(stage, list(names))
    except InputError as error:
        short = "embedding, layers.NUMBER (from 0), dense"
        raise InputError(f"{str(error).partition('; they begin')[0]}; they begin with {short}") from error


# --- models -----------------------------------------------------------------------------------------------------------


def _find_model(name: str, download: bool) -> Path | None:
    """The folder of a model; without `download`, None for a hub model that is not on this machine."""
    if download or name.count("/") != 1 or name.startswith((".", "/", "~")) or Path(name).exists():
        return find_model(name)
    return find_offline(name)


def card_languages(folder: Path) -> set[str]:
    """The languages that a model's card gives, as codes; empty if it gives none, or `multilingual`."""
    from huggingface_hub import ModelCard

    try:
        languages = ModelCard((folder / "README.md").read_text(encoding="utf-8")).data.get("language")
    except (OSError, ValueError, TypeError, yaml.YAMLError):  # without a card, or one with metadata of another shape
        languages = None
    codes = {
        str(code).lower() for code in (languages if isinstance(languages, list) else [languages] if languages else [])
    }
    return codes if all(map(is_language, codes)) else set()


def _check_languages(plan: StagePlan, folder: Path) -> None:
    """Warn of text in a language that is none of the teacher's."""
    card = card_languages(folder)
    read = {corpus.source for corpus in plan.corpora}
    if compares_targets(plan):
        read |= {code for corpus in plan.corpora for code in corpus.languages}
    unknown = sorted(code for code in read if not any(fits(code, language) for language in card))
    if card and unknown:
        warn(
            f"stage {plan.stage.name}: by its card the teacher knows {', '.join(sorted(card))}, and it is given text "
            f"in {', '.join(unknown)}: name a multilingual teacher, such as {MULTILINGUAL}"
        )


def _check_models(recipe: Recipe, download: bool) -> list[str]:
    """Check layers and lengths against all models; returns the names of those that must be downloaded first."""
    absent: dict[str, None] = {}

    def layout(model: NamedModel | str) -> Layout | None:
        if is_external(model_name(model)):
            return None
        if (folder := _find_model(model_name(model), download)) is not None:
            return read_layout(folder)
        absent[model_name(model)] = None
        return None

    teachers = (recipe.teacher, *(model for plan in recipe.plans for model in plan.teachers.values()))
    for name in filter(is_external, dict.fromkeys(map(model_name, teachers))):
        open_external(name, None)
    teacher, body = layout(recipe.teacher), None
    assistant = recipe.assistant
    is_teacher = assistant.body == TEACHER if isinstance(assistant, Assistant) else assistant == TEACHER
    if is_external(model_name(recipe.teacher)) and is_teacher:
        raise InputError(
            f"assistant: its layers are those of the teacher, and {model_name(recipe.teacher)} has none: name a model"
        )
    positions: dict[str, int | None] = {"assistant": None, "student": None}
    scratch = recipe.student.scratch if isinstance(recipe.student, StudentShape) else None
    for key, owner in (("assistant", recipe.assistant), ("student.scratch", scratch)):
        file = owner.vocabulary.file if isinstance(owner, (Assistant, Scratch)) else None
        if file is not None and not Path(file).expanduser().is_file():
            raise InputError(f"{key}.vocabulary.file: {file}: no such file")
    if isinstance(recipe.assistant, Assistant):
        body = teacher if recipe.assistant.body == "teacher" else layout(recipe.assistant.body)
        positions["assistant"] = assistant_length = recipe.assistant.max_length
        if body is not None and body.max_length < assistant_length:
            raise InputError(
                f"assistant: max_length {assistant_length} is more than the {body.max_length} positions of its body; "
                f"set `max_length: {body.max_length}`"
            )
    elif recipe.assistant is not None:
        body = teacher if recipe.assistant == TEACHER else layout(recipe.assistant)
        positions["assistant"] = None if body is None else min(named_positions(recipe), body.max_length)
    if isinstance(recipe.student, StudentShape):
        positions["student"] = _check_shape(recipe, recipe.student, body, positions["assistant"])
    elif recipe.student is not None:
        named = layout(recipe.student)
        positions["student"] = None if named is None else named.max_length
    for plan in recipe.plans:
        stage = plan.stage
        for model in plan.teachers.values():
            if is_external(model_name(model)):
                _check_external(stage, model_name(model))
            elif (model_layout := teacher if model == recipe.teacher else layout(model)) is not None:
                _check_languages(plan, model_layout.folder)
                if model_layout.max_length < stage.max_length:
                    warn(
                        f"stage {stage.name}: the teacher {model_name(model)} reads the first "
                        f"{model_layout.max_length} tokens of a text, "
                        f"the stage's max_length is {stage.max_length}"
                    )
        most = positions[stage.role]
        if most is not None and stage.max_length > most:
            raise InputError(
                f"stage {stage.name}: max_length {stage.max_length} is more than the {stage.role}'s {most} positions"
            )
    return list(absent)


def _check_external(stage: Stage, teacher: str) -> None:
    """Refuse what a teacher without layers and prompts cannot give."""
    compared = [use.label for use in stage.objective if use.options.get("layers", "none") != "none"]
    inside = {"teacher_states_BLH", "teacher_BTH"}
    compared += [use.label for use in stage.objective if inside & set(find_objective(use.name).inputs)]
    if compared:
        raise InputError(f"stage {stage.name}: {compared[0]} compares layers, and the teacher {teacher} has none")
    if is_table(teacher) and stage.teacher_prompts is not None:
        raise InputError(f"stage {stage.name}: teacher_prompts: {teacher} has the vectors of texts without prompts")


def _check_shape(recipe: Recipe, shape: StudentShape, body: Layout | None, longest: int | None) -> int:
    """Positions of a student with random weights, or cut from an assistant of `longest` positions."""
    source = recipe.assistant if shape.scratch is None else shape.scratch
    vocabulary = None if source is None or isinstance(source, (NamedModel, str)) else source.vocabulary
    size = None if vocabulary is None or vocabulary.file is not None else vocabulary.train
    if shape.base_rows is not None and size is not None and shape.base_rows >= size:
        raise InputError(f"student: a base of {shape.base_rows} rows is no smaller than the vocabulary of {size}")
    config = {} if body is None or shape.scratch is not None else body.config
    depths = [config[key] for key in ("num_hidden_layers", "n_layers", "unit") if isinstance(config.get(key), int)]
    stored = len(shape.layers or ()) or shape.unit or (shape.scratch.layers if shape.scratch else (*depths, 1)[0])
    if stored * (shape.repeats or 1) > LAYERS:
        raise InputError(f"student: {stored} layers x {shape.repeats} repeats are more than the {LAYERS} allowed")
    if shape.scratch is not None:
        return shape.max_length
    if recipe.assistant is None:
        raise InputError("student: a cut needs an assistant, and the recipe has none")
    if longest is not None and longest < shape.max_length and "max_length" in shape.model_fields_set:
        warn(f"student: max_length {shape.max_length} is reduced to {longest}, the assistant's positions")
    last = max(shape.layers or range(shape.unit or 1))
    if depths and last >= depths[0]:
        raise InputError(f"student: layers has {last} (counted from 0), the assistant has {depths[0]} layers")
    return min(shape.max_length, longest or shape.max_length)
