"""What is wrong with a recipe, found before any work: objectives, models, lengths, corpora, graded files.

A run calls `check_recipe` before it creates its folder, so that a mistake neither costs hours nor leaves a folder that
blocks the next attempt. `--dry-run` calls it without downloading anything.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from msdc.compress.student.model import Student, StudentConfig
from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.exclusion import read_exclusion
from msdc.distill.objectives import find_objective
from msdc.distill.recipe import TEACHER, Assistant, Corpus, NamedModel, Recipe, Stage, StudentShape, model_name
from msdc.distill.tasks.sentence import DOMAINS, LABELS, TASK_OPTIONS, count_domains
from msdc.distill.training.validation import read_graded
from msdc.encoders.folder import Layout, locate_model, read_layout
from msdc.errors import InputError
from msdc.progress import warn

TRIPLE_KINDS = ("triples", "nli")
ASSISTANT_POSITIONS = 128  # of a multilingual model by name (msdc.distill.assistant)


def needs_network(corpus: Corpus) -> bool:
    """Whether a corpus is downloaded (a hub or OPUS name)."""
    return corpus.hub is not None or corpus.opus is not None


def stage_corpora(recipe: Recipe, stage: Stage) -> tuple[Corpus, ...]:
    """The corpora that a stage reads."""
    return recipe.corpora if stage.corpora is None else stage.corpora


def find_model(name: str, download: bool) -> Path | None:
    """The folder of a model; None for a hub model that is not on this machine, unless `download`.

    Raises:
        InputError: no such model.
    """
    hub_like = name.count("/") == 1 and not name.startswith((".", "/", "~")) and not Path(name).exists()
    if download or not hub_like:
        return locate_model(name)
    try:
        from huggingface_hub import snapshot_download

        hub_id, _, revision = name.partition("@")
        return Path(snapshot_download(hub_id, revision=revision or None, local_files_only=True))
    except Exception:
        # Not in the hub's cache, or no name that the hub could have: the run would ask the hub.
        return None


def _example(name: str) -> Tensor:
    """A small tensor for an input of an objective, by the shape suffix of its name."""
    sizes = {"B": 3, "K": 4, "P": 2, "T": 5, "L": 2, "H": 4, "D": 4, "V": 6, "M": 3, "C": 3, "F": 12}
    suffix = name.rsplit("_", 1)[-1]
    shape = [sizes[letter] for letter in suffix]
    if "mask_" in name:
        return torch.ones(shape)
    if suffix in ("B", "BT", "M"):
        return torch.zeros(shape, dtype=torch.long)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def check_objectives(recipe: Recipe, stage: Stage) -> None:
    """Objectives with their options (by computing them on a tiny example), and what they need of the stage.

    Raises:
        InputError: an unknown objective or option, a value that an objective refuses, no guide or third sentence.
    """
    for use in stage.objective:
        objective = find_objective(use.name)
        where = f"stage {stage.name}: {use.name}"
        options = {key: value for key, value in use.options.items() if key not in TASK_OPTIONS}
        try:
            objective({name: _example(name) for name in objective.inputs}, **options)
        except (TypeError, ValueError) as error:
            raise InputError(f"{where}: {error}") from error
        except InputError as error:
            raise InputError(f"stage {stage.name}: {error}") from error
        embedding = "guide_BTH" in objective.inputs
        if embedding != (stage.train == "student.embedding"):
            raise InputError(f"{where} {'needs' if embedding else 'cannot be used with'} train: student.embedding")
        if stage.guide is None and any(name.startswith(("teacher_", "guide_")) for name in objective.inputs):
            raise InputError(f"{where} needs a guide, and the stage has none")
        if "negative_BD" in objective.inputs:
            wrong = [c for c in stage_corpora(recipe, stage) if c.kind not in TRIPLE_KINDS]
            if wrong:
                raise InputError(f"{where} needs triples: set `kind: triples` or `kind: nli` for each of its corpora")
        for kind in (LABELS[name] for name in objective.inputs if name in LABELS):
            if any(corpus.kind != kind for corpus in stage_corpora(recipe, stage)):
                raise InputError(f"{where} needs labels: set `kind: {kind}` for each of its corpora")
        if DOMAINS in objective.inputs:
            count_domains(stage)
    if (stage.guide or "").split(".")[0] == "assistant" and recipe.assistant is None:
        raise InputError(f"stage {stage.name}: the guide is the assistant, but the recipe has none")
    if stage.role == "assistant" and recipe.assistant is None:
        raise InputError(f"stage {stage.name}: trains the assistant, but the recipe has none")
    if stage.quantize is not None:
        from msdc.compress.quantization.plan import plan_for

        tiny = StudentConfig(vocabulary=8, hidden=64, heads=2, intermediate=64, unit=1, positions=4)
        plan_for(Student(tiny), stage.quantize)


def _layout(model: Any, download: bool) -> Layout | None:
    """The layout of a model that is on this machine, else None."""
    folder = find_model(model_name(model), download)
    return None if folder is None else read_layout(folder)


def _depth(layout: Layout) -> int | None:
    """Stored layers of a model."""
    for key in ("num_hidden_layers", "n_layers", "unit"):
        if isinstance(layout.config.get(key), int):
            return int(layout.config[key])
    return None


def _check_code(recipe: Recipe, shape: StudentShape) -> None:
    """A fitted code that the vocabulary is too small for, where its size is known.

    Raises:
        InputError: as many base rows as pieces, or more.
    """
    pieces = None
    if shape.scratch is not None:
        pieces = shape.scratch.vocabulary.train if shape.scratch.vocabulary.file is None else None
    elif isinstance(recipe.assistant, Assistant) and recipe.assistant.vocabulary.file is None:
        pieces = recipe.assistant.vocabulary.train
    if shape.base_rows is not None and pieces is not None and shape.base_rows >= pieces:
        raise InputError(f"student: a base of {shape.base_rows} rows is no smaller than the vocabulary of {pieces}")


def check_models(recipe: Recipe, download: bool = True) -> list[str]:
    """Find all models, and compare layers and lengths with them; names of those that must be downloaded first.

    Raises:
        InputError: no such model, a student with more layers than the assistant has, or a stage whose texts are longer
            than the positions of the model that it trains.
    """
    absent: list[str] = []

    def layout(model: NamedModel | str) -> Layout | None:
        found = _layout(model, download)
        if found is None and model_name(model) not in absent:
            absent.append(model_name(model))
        return found

    teacher = layout(recipe.teacher)
    positions: dict[str, int | None] = {"assistant": None, "student": None}
    body: Layout | None = None
    if isinstance(recipe.assistant, Assistant):
        body = teacher if recipe.assistant.body == "teacher" else layout(recipe.assistant.body)
        positions["assistant"] = recipe.assistant.max_length
        file = recipe.assistant.vocabulary.file
        if file is not None and not Path(file).expanduser().is_file():
            raise InputError(f"assistant.vocabulary.file: {file}: no such file")
    elif recipe.assistant is not None:
        body = teacher if recipe.assistant == TEACHER else layout(recipe.assistant)
        positions["assistant"] = None if body is None else min(ASSISTANT_POSITIONS, body.max_length)
    if isinstance(recipe.student, StudentShape):
        longest = positions["assistant"] if recipe.student.scratch is None else None
        positions["student"] = min(recipe.student.max_length, longest or recipe.student.max_length)
        if (
            longest is not None
            and longest < recipe.student.max_length
            and "max_length" in recipe.student.model_fields_set
        ):
            asked = recipe.student.max_length
            warn(f"student: max_length {asked} asked, {longest} made: the assistant has no more positions")
        _check_code(recipe, recipe.student)
        if recipe.student.scratch is None:
            if recipe.assistant is None:
                raise InputError("student: it is cut from the assistant, but the recipe has none")
            depth = None if body is None else _depth(body)
            wanted = recipe.student.layers or range(recipe.student.unit or 1)
            if depth is not None and max(wanted) >= depth:
                raise InputError(f"student: layer {max(wanted)} is wanted (from 0), the assistant has {depth} layers")
    elif recipe.student is not None:
        named = layout(recipe.student)
        positions["student"] = None if named is None else named.max_length
    for stage in recipe.stages:
        if stage.guide is not None and stage.guide.split(".")[0] not in ("teacher", "assistant"):
            layout(stage.guide)
        most = positions[stage.role]
        if most is not None and stage.max_length > most:
            raise InputError(
                f"stage {stage.name}: max_length {stage.max_length} is more than the {stage.role}'s {most} positions"
            )
        if stage.role == "student" and recipe.student is None:
            raise InputError(f"stage {stage.name}: trains the student, but the recipe has none")
    return absent


def check_corpora(recipe: Recipe, download: bool = True) -> list[str]:
    """Open every corpus and read its first usable row; names of those that must be downloaded first.

    Raises:
        InputError: a corpus that is missing, unreadable, or without a usable row; likewise an excluded file.
    """
    absent: list[str] = []
    seen: set[Corpus] = set()
    without = read_exclusion(recipe.exclude)
    for corpora in (recipe.corpora, *(stage.corpora or () for stage in recipe.stages)):
        for corpus in corpora:
            if corpus in seen:
                continue
            seen.add(corpus)
            if needs_network(corpus) and not download:
                absent.append(str(corpus.hub or corpus.opus))
                continue
            for source in open_corpora((corpus,), without):
                rows = source.read()
                next(rows, None)
                rows.close()  # type: ignore[attr-defined]
    return absent


def check_recipe(recipe: Recipe, download: bool = True) -> list[str]:
    """Everything that can be wrong with a recipe before it is run; names of what must be downloaded first.

    Args:
        recipe: as resolved.
        download: fetch models and corpora by name, as a run does in any case; without, they are named in the result.

    Raises:
        InputError: the first thing that is wrong.
    """
    for stage in recipe.stages:
        check_objectives(recipe, stage)
    absent = check_models(recipe, download)
    for path in recipe.heldout.graded:
        read_graded(path, limit=recipe.heldout.graded_pairs)
    for path in recipe.report:
        read_graded(path, choosing=False)
    absent += check_corpora(recipe, download)
    if recipe.cache is not None:
        existing = next(
            p for p in (Path(recipe.cache).expanduser(), *Path(recipe.cache).expanduser().parents) if p.exists()
        )
        if not existing.is_dir() or not os.access(existing, os.W_OK):
            raise InputError(f"cache: {recipe.cache}: {existing} is not a folder that can be written to")
    return absent
