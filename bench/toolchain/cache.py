"""The user's cache of builds and downloads: one folder per recipe, complete or absent, safe for parallel processes.

A folder holds the sha256 of its files, which is compared at every use: what is in it will be executed.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msdc.errors import MsdcError
from msdc.files import locked, read_json, sha256_file, staged_folder, user_cache, write_json
from msdc.progress import warn

STAMP, CONTENTS = "recipe.json", "contents.json"


def recipe_key(recipe: dict[str, Any]) -> str:
    """Twelve hex digits of a recipe's JSON."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]


def contents(folder: Path) -> dict[str, str]:
    """Relative path -> sha256 of each file, or `-> TARGET` of a link; without the list itself."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = f"-> {os.readlink(path)}"
        elif path.is_file() and name != CONTENTS:
            found[name] = sha256_file(path)
    return found


def damage(folder: Path) -> str | None:
    """What is wrong with a cached folder, None when every file is as it was made."""
    try:
        listed = read_json(folder / CONTENTS)
        now = contents(folder)
    except (MsdcError, OSError):
        return "its list of hashes cannot be read"
    if not isinstance(listed, dict):
        return "its list of hashes cannot be read"
    changed = sorted(name for name in listed.keys() | now.keys() if listed.get(name) != now.get(name))
    return f"{changed[0]} has changed" if changed else None


def _usable(target: Path) -> bool:
    if not target.is_dir():
        return False
    wrong = damage(target)
    if wrong is not None:
        warn(f"{target}: {wrong}; made anew")
    return wrong is None


def cached_folder(kind: str, recipe: dict[str, Any], make: Callable[[Path], None], *, force: bool = False) -> Path:
    """The folder that `make` fills for `recipe`: found in the cache, or made now and kept.

    A second process with the same recipe waits for the first. A failed `make` leaves nothing. A folder whose files do
    not have the hashes that they were made with is made anew.
    """
    target = user_cache() / kind / recipe_key(recipe)
    if not force and target.is_dir() and damage(target) is None:
        return target
    with locked(target.with_suffix(".lock")):
        if force or not _usable(target):
            with staged_folder(target, force=True) as stage:
                make(stage)
                (stage / STAMP).write_text(json.dumps(recipe, indent=2, sort_keys=True) + "\n", encoding="utf-8")
                write_json(stage / CONTENTS, contents(stage))
    return target
