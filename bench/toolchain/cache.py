"""The user's cache of builds and downloads: one folder per recipe, complete or absent, safe for parallel processes."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from msdc.files import disk_errors, staged_folder, user_cache

STAMP = "recipe.json"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(path, "w")  # noqa: SIM115
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def recipe_key(recipe: dict[str, Any]) -> str:
    """Twelve hex digits of a recipe's JSON."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]


def cached_folder(kind: str, recipe: dict[str, Any], make: Callable[[Path], None], *, force: bool = False) -> Path:
    """The folder that `make` fills for `recipe`: found in the cache, or made now and kept.

    A second process with the same recipe waits for the first. A failed `make` leaves nothing.
    """
    target = user_cache() / kind / recipe_key(recipe)
    if target.is_dir() and not force:
        return target
    with _locked(target.with_suffix(".lock")):
        if not target.is_dir() or force:
            with staged_folder(target, force=True) as stage:
                make(stage)
                (stage / STAMP).write_text(json.dumps(recipe, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    return target
