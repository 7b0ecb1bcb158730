"""What a run has downloaded, with hashes: `downloads.json` in its folder.

A name at a hub or at OPUS may stand for other bytes tomorrow. The record says which ones a run was trained on, and a
resumed run says so where they have changed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msdc.distill.data.download import fetch_hub, fetch_opus
from msdc.distill.data.saved import hub_record
from msdc.distill.recipe import TEACHER, Corpus, NamedModel, Recipe, model_name
from msdc.encoders.folder import locate_model
from msdc.errors import InputError
from msdc.files import read_json, sha256_file, write_json
from msdc.progress import warn

FILE_NAME = "downloads.json"
# Files of a model folder that its numbers depend on.
_MODEL_FILES = re.compile(r".*\.(safetensors|json|model|txt)$")


def _revision(path: Path) -> str | None:
    """The commit of a file or folder in the hub's cache (`.../snapshots/COMMIT/...`)."""
    parts = path.parts
    commits = (parts[n + 1] for n, part in enumerate(parts[:-1]) if part == "snapshots")
    return next((commit for commit in commits if re.fullmatch(r"[0-9a-f]{40}", commit)), None)


def _entry(files: list[Path], root: Path | None = None) -> dict[str, Any]:
    names = [path.name if root is None else path.relative_to(root).as_posix() for path in files]
    found: dict[str, Any] = {"files": {name: sha256_file(path) for name, path in zip(names, files, strict=True)}}
    # A corpus file is our own link into the hub's cache.
    revisions = {_revision(path.readlink() if path.is_symlink() and root is None else path) for path in files} - {None}
    if len(revisions) == 1:
        found["revision"] = revisions.pop()
    return found


def _models(recipe: Recipe) -> list[str]:
    # An assistant that is a copy of the teacher is no model of its own.
    assistant = None if recipe.assistant == TEACHER else recipe.assistant
    named = [m for m in (recipe.teacher, assistant, recipe.student) if isinstance(m, (str, NamedModel))]
    guides = [stage.guide for stage in recipe.stages if stage.guide is not None]
    own = [guide for guide in guides if guide.split(".")[0] not in ("teacher", "assistant")]
    return list(dict.fromkeys([*map(model_name, named), *own]))


def find_downloads(recipe: Recipe) -> dict[str, Any]:
    """Files and hashes, by name, of corpora from the hub and OPUS, and of models in the hub's cache.

    Raises:
        InputError: something cannot be fetched.
    """
    found: dict[str, Any] = {}
    corpora: list[Corpus] = [*recipe.corpora, *(c for stage in recipe.stages for c in stage.corpora or ())]
    for corpus in dict.fromkeys(corpora):
        if corpus.hub is not None:
            files = found.setdefault(f"hub {corpus.hub}", {"files": {}})
            fetched = fetch_hub(corpus)
            more = _entry(fetched) if fetched else hub_record(corpus)
            files["files"] |= more.pop("files")
            files |= more
        elif corpus.opus is not None:
            files = found.setdefault(f"opus {corpus.opus}", {"files": {}})
            for first, second, _ in fetch_opus(corpus):
                files["files"] |= _entry([first, second])["files"]
    for name in _models(recipe):
        folder = locate_model(name)
        if _revision(folder) is not None:
            files = [p for p in sorted(folder.rglob("*")) if p.is_file() and _MODEL_FILES.match(p.name)]
            found[f"model {name}"] = _entry(files, folder)
    return found


def record_downloads(recipe: Recipe, folder: Path) -> None:
    """Write downloads.json into a run folder, where the recipe downloads anything; say what changed since then.

    Raises:
        InputError: something cannot be fetched, or the record is damaged.
    """
    file = folder / FILE_NAME
    now = find_downloads(recipe)
    if not now:
        return
    if not file.is_file():
        write_json(file, now)
        return
    before = read_json(file)
    if not isinstance(before, dict):
        raise InputError(f"{file}: not a record of downloads; remove it to have it written again")
    for name, entry in now.items():
        old = (before.get(name) or {}).get("files", {})
        changed = sorted(n for n in entry["files"].keys() | old.keys() if entry["files"].get(n) != old.get(n))
        if changed:
            warn(f"warning: {name}: changed since this run began: {', '.join(changed)[:300]} (see {file})")
