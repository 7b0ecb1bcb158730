"""What a run reads, by content: text, graded and excluded files, models.

`inputs.json` of a run has the hashes of what is on this machine: it is continued with the same only. `downloads.json`
has those of what was downloaded; a resumed run reports what changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msdc.compress.loading import find_model
from msdc.distill.data.corpora import open_corpora
from msdc.distill.data.download import fetch_hub, fetch_opus, load_hub
from msdc.distill.data.exclusion import excluded_files
from msdc.distill.data.tables import file_hash, source_key, tables_folder
from msdc.distill.recipe import (
    Assistant,
    Corpus,
    NamedModel,
    Recipe,
    StudentShape,
    external_file,
    is_external,
    model_name,
)
from msdc.encoders.source import ModelSource
from msdc.files import matching_files, read_json, sha256_file, write_json
from msdc.progress import warn

Inputs = dict[str, str]  # hashes by `KIND NAME`
# Files of a model folder that its numbers depend on.
_MODEL_FILES = re.compile(r".*\.(safetensors|json|model|txt)$|pytorch_model.*\.bin$")


def _models(recipe: Recipe) -> list[str]:
    """The models that a recipe names, each once."""
    models = (
        recipe.teacher,
        recipe.assistant,
        recipe.student,
        *(name for stage in recipe.stages for name in stage.teachers),
    )
    names = [model_name(model) for model in models if isinstance(model, (str, NamedModel))]
    return [name for name in dict.fromkeys(names) if name not in ("teacher", "assistant")]


def read_inputs(recipe: Recipe) -> Inputs:
    """The hashes of all that a recipe reads from this machine, without `exclude` applied."""
    from msdc.distill.objectives import find_objective  # imports torch

    folder, inputs = tables_folder(recipe), Inputs()
    for source in open_corpora(tuple(dict.fromkeys(recipe.all_corpora)), languages=recipe.languages):
        if source.files and not source.corpus.is_remote:
            inputs[f"corpus {source.name}"] = source_key(source, folder)
    files = [*excluded_files(recipe.exclude), *map(Path, (*recipe.heldout.graded, *recipe.report))]
    vocabularies = [assistant.vocabulary.file for assistant in (recipe.assistant,) if isinstance(assistant, Assistant)]
    if isinstance(recipe.student, StudentShape) and recipe.student.scratch is not None:
        vocabularies.append(recipe.student.scratch.vocabulary.file)
    for path in [*files, *(Path(name) for name in vocabularies if name)]:
        for file in matching_files(str(path)):
            inputs[f"file {path}"] = file_hash(file, folder)
    for objective in {
        use.name: find_objective(use.name) for stage in recipe.stages for use in stage.objective
    }.values():
        if objective.file is not None:
            inputs[f"file {objective.file}"] = objective.content
    for name in _models(recipe):
        if is_external(name):
            inputs[f"file {name}"] = sha256_file(external_file(name))
        elif Path(name).expanduser().is_dir():
            inputs[f"model {name}"] = ModelSource(find_model(name)).identity()
    return inputs


def is_folder(model: object) -> bool:
    """Whether a model is given as a folder: it is one, or is written like one."""
    return isinstance(model, str) and (model.startswith((".", "/", "~")) or Path(model).expanduser().is_dir())


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The inputs that are not the same, each with what happened to it.

    An input is its content: files that were moved or renamed are the same, if they are read in the same order.
    """
    differences = []
    for kind in dict.fromkeys(name.split(" ")[0] for name in (*before, *now)):
        old, new = ({name: v for name, v in inputs.items() if name.split(" ")[0] == kind} for inputs in (before, now))
        if list(old.values()) == list(new.values()):
            continue
        gone, added = Counter(old.values()) - Counter(new.values()), Counter(new.values()) - Counter(old.values())
        changed = [name for name, content in old.items() if new.get(name, content) != content]
        differences += [f"{name}: changed" for name in changed]
        differences += [f"{name}: removed" for name, content in old.items() if content in gone and name not in changed]
        differences += [f"{name}: added" for name, content in new.items() if content in added and name not in changed]
        differences += [] if gone or added else [f"{next(iter(new))}: the files of this kind come in another order"]
    return differences


# --- what was downloaded ----------------------------------------------------------------------------------------------


def _revision(path: Path) -> str | None:
    """The commit of a file or folder in the hub's cache (`.../snapshots/COMMIT/...`)."""
    match = re.search(r"snapshots[/\\]([0-9a-f]{40})(?=[/\\]|$)", str(path))
    return match and match[1]


def _hub_entry(corpus: Corpus) -> dict[str, Any]:
    """Hashes and revision of the files of a hub data set."""
    if fetched := [path for path, _ in fetch_hub(corpus)]:
        revision = _revision(fetched[0])
        names = [re.sub(r".*snapshots[/\\][0-9a-f]{40}[/\\]", "", str(path)) for path in fetched]
        files = {name: sha256_file(path) for name, path in zip(names, fetched, strict=True)}
        return {"files": files} | ({"revision": revision} if revision else {})
    # Else the addresses of its files, which contain the commit, with hashes or sizes.
    files = {}
    for data, _ in load_hub(corpus):
        sums = data.info.download_checksums or {}
        files |= {
            str(url): str(facts.get("checksum") or f"{facts.get('num_bytes')} bytes") for url, facts in sums.items()
        }
        if not sums:
            files[str(data.info.config_name)] = str(data._fingerprint)
    return {"files": files}


def find_downloads(recipe: Recipe) -> dict[str, Any]:
    """Files and hashes, by name, of corpora from the hub and OPUS, and of models in the hub's cache."""
    downloads: dict[str, Any] = {}

    def add(name: str, entry: dict[str, Any]) -> None:
        old = downloads.setdefault(name, {"files": {}})
        downloads[name] = old | entry | {"files": old["files"] | entry["files"]}

    for corpus in dict.fromkeys(recipe.all_corpora):
        if corpus.hub is not None:
            add(f"hub {corpus.hub}", _hub_entry(corpus))
        elif corpus.opus is not None:
            paths = [path for source_file, target_file, _ in fetch_opus(corpus) for path in (source_file, target_file)]
            add(f"opus {corpus.opus}", {"files": {path.name: sha256_file(path) for path in paths}})
    for name in filter(lambda name: not is_external(name), _models(recipe)):
        folder = find_model(name)
        if revision := _revision(folder):
            paths = [p for p in sorted(folder.rglob("*")) if p.is_file() and _MODEL_FILES.match(p.name)]
            files = {path.relative_to(folder).as_posix(): sha256_file(path) for path in paths}
            add(f"model {name}", {"files": files, "revision": revision})
    return downloads


def record_downloads(recipe: Recipe, folder: Path) -> None:
    """Write downloads.json into a run folder if the recipe downloads anything; warn about files that changed."""
    file = folder / "downloads.json"
    now = find_downloads(recipe)
    if not now:
        return
    if not file.is_file():
        write_json(file, now)
    before = read_json(file)
    for name, entry in now.items():
        old = before.get(name, {}).get("files", {})
        changed = sorted(n for n in entry["files"].keys() | old.keys() if entry["files"].get(n) != old.get(n))
        if changed:
            warn(f"warning: {name}: changed since this run started: {', '.join(changed)[:300]} (see {file})")
