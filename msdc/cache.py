"""Builds and downloads in the user's cache.

A cached folder is complete or absent, and safe for parallel processes. It holds the sha256 of its files, which is
compared at every use: what is in it will be executed.
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
    files = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            files[name] = f"-> {os.readlink(path)}"
        elif path.is_file() and name != CONTENTS:
            files[name] = sha256_file(path)
    return files


def _intact(folder: Path) -> bool:
    """Whether a cached folder has the files that it was made with."""
    try:
        return bool(read_json(folder / CONTENTS) == contents(folder))
    except (MsdcError, OSError):
        return False


def cached_folder(kind: str, recipe: dict[str, Any], make: Callable[[Path], None], *, force: bool = False) -> Path:
    """The folder that `make` fills for `recipe`: found in the cache, or made now and kept.

    A second process with the same recipe waits for the first. A failed `make` leaves nothing. A folder whose files do
    not have the hashes that they were made with is rebuilt.
    """
    target = user_cache() / kind / recipe_key(recipe)
    if not force and _intact(target):
        return target
    with locked(target.with_suffix(".lock")):
        if force or not _intact(target):
            if target.is_dir() and not force:
                warn(f"{target}: its files have changed; rebuilt")
            with staged_folder(target, force=True) as stage:
                make(stage)
                (stage / STAMP).write_text(json.dumps(recipe, indent=2, sort_keys=True) + "\n", encoding="utf-8")
                write_json(stage / CONTENTS, contents(stage))
    return target
