"""Checkpoints: written whole or not at all, verified when they are read.

A checkpoint is `step-N.pt` (tensors and plain values, read back with weights_only=True) and `step-N.json` (its sha256,
written last: a checkpoint without it was never finished).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from msdc.errors import MsdcError
from msdc.files import atomic_path, read_json, sha256_file, write_json

KEEP = 2


def random_states() -> dict[str, Any]:
    """Every random state a run depends on, as plain values and tensors."""
    kind, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 (libraries may draw from it)
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [
            str(kind),
            torch.from_numpy(np.asarray(keys).astype(np.int64)),
            int(position),
            int(has_gauss),
            float(cached),
        ],
        "python": [random.getstate()[0], list(random.getstate()[1]), random.getstate()[2]],
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_states(state: dict[str, Any]) -> None:
    """Undo `random_states`."""
    torch.set_rng_state(state["torch"])
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
    version, values, gauss = state["python"]
    random.setstate((version, tuple(values), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def save_checkpoint(folder: Path, step: int, state: dict[str, Any], name: str | None = None) -> Path:
    """Write checkpoint `step` (under another name if one is given) and drop all but the newest two."""
    path = folder / f"{name or f'step-{step:08d}'}.pt"
    with atomic_path(path) as temporary:
        torch.save(state, temporary)
    write_json(path.with_suffix(".json"), {"step": step, "sha256": sha256_file(path)})
    for old in sorted(folder.glob("step-*.json"))[:-KEEP]:
        old.unlink(missing_ok=True)
        old.with_suffix(".pt").unlink(missing_ok=True)
    return path


def step_of(path: Path) -> int:
    """The step of a checkpoint, from its name."""
    return int(path.stem.removeprefix("step-"))


def checkpoints(folder: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    return [path.with_suffix(".pt") for path in sorted(folder.glob("step-*.json"), reverse=True)]


def load_checkpoint(path: Path) -> dict[str, Any]:
    """Read one checkpoint.

    Raises:
        MsdcError: damaged; the message names the newest good one and how to continue from it.
    """
    try:
        whole = path.is_file() and sha256_file(path) == read_json(path.with_suffix(".json"))["sha256"]
    except (MsdcError, KeyError, TypeError):
        whole = False
    if whole:
        try:
            state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
            return state
        except Exception:
            pass
    others = [p for p in checkpoints(path.parent) if p != path]
    hint = "no other checkpoint is left in this stage; remove its folder to start the stage again"
    if others:
        hint = f"remove {path.name} and {path.with_suffix('.json').name} to continue from {others[0].name}"
    raise MsdcError(f"{path}: this checkpoint is damaged; {hint}")
