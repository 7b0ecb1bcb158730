"""What a run reads, by content: text, graded and excluded files, local models; it is continued with the same only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.exclusion import excluded_files, matching_files
from msdc.distill.data.tables import file_hash, source_key, tables_folder
from msdc.distill.recipe import Assistant, Recipe, StudentShape, model_name
from msdc.encoders.folder import locate_model
from msdc.encoders.source import ModelSource

Inputs = dict[str, str]  # hashes by `KIND NAME`


def read_inputs(recipe: Recipe) -> Inputs:
    """The hashes of all that a recipe reads from this machine, without `exclude` applied.

    What is downloaded is in `downloads.json` instead; a resumed run reports what changed of it.
    """
    folder, found = tables_folder(recipe), Inputs()
    for source in open_corpora(tuple(dict.fromkeys(recipe.all_corpora))):
        if source.files and not source.corpus.is_remote:
            found[f"corpus {source.name}"] = source_key(source, folder)
    files = [*excluded_files(recipe.exclude), *map(Path, (*recipe.heldout.graded, *recipe.report))]
    vocabularies = [one.vocabulary.file for one in (recipe.assistant,) if isinstance(one, Assistant)]
    if isinstance(recipe.student, StudentShape) and recipe.student.scratch is not None:
        vocabularies.append(recipe.student.scratch.vocabulary.file)
    for path in [*files, *(Path(name) for name in vocabularies if name)]:
        for one in matching_files(str(path)):
            found[f"file {path}"] = file_hash(one, folder)
    models = [one for one in (recipe.teacher, recipe.assistant, recipe.student) if one is not None]
    names = [model_name(one) for one in models if not isinstance(one, (Assistant, StudentShape))]
    names += [stage.teacher for stage in recipe.stages if stage.teacher_role not in (None, "teacher", "assistant")]  # type: ignore[misc]
    for name in dict.fromkeys(names):
        if Path(name).expanduser().is_dir():
            found[f"model {name}"] = ModelSource(locate_model(name)).identity()
    return found


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The inputs that are not the same, each with what happened to it."""
    gone = [f"{name}: removed" for name in before if name not in now]
    added = [f"{name}: added" for name in now if name not in before]
    return [*(f"{name}: changed" for name in before if now.get(name, before[name]) != before[name]), *gone, *added]
