"""The state of training. Checkpoints are written atomically and verified when they are read.

A checkpoint is `step-N.pt` (tensors and plain values, read back with weights_only=True), `step-N.safetensors` (a link
to the best weights so far) and `step-N.json` (sha256 of both, written last: a checkpoint without it was never
finished). `end-N` is the end of a stage that can be extended.
"""

from __future__ import annotations

import json
import random
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from msdc.distill.training.feed import BatchFeed, Position
from msdc.errors import InputError, MsdcError
from msdc.files import (
    atomic_path,
    first_damaged,
    link_file,
    read_json,
    regular_size,
    sha256_file,
    without_system_files,
    write_json,
)
from msdc.progress import warn

BEST = "best.safetensors"
KEEP = {"step": 2, "end": 1}  # newest checkpoints that are kept
PLAIN = ("best", "history", "losses", "recent", "parts", "by_language", "seconds")


@dataclass
class TrainState:
    """All that a step depends on, besides the recipe: a resumed stage takes the same steps."""

    task: nn.Module
    optimizer: torch.optim.Optimizer
    feed: BatchFeed  # has the position in the text
    best: tuple[float, int, dict[str, float]] | None = None  # choice, step and numbers of the best validation
    history: list[dict[str, Any]] = field(default_factory=list)  # numbers of all validations
    # Since the last row of metrics: losses of the steps, and weighted parts of the loss, summed
    losses: list[float] = field(default_factory=list)
    recent: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)  # the same, summed over the stage
    by_language: dict[str, list[float]] = field(default_factory=dict)  # sum and number of losses since a validation
    seconds: float = 0.0  # training time so far

    def as_saved(self) -> dict[str, Any]:
        """The whole state, with all random states, as tensors and plain values."""
        return {
            "task": {name: value.detach().clone() for name, value in self.task.state_dict().items()},
            "optimizer": self.optimizer.state_dict(),
            "random": random_states(),
            "position": list(astuple(self.feed.position)),
            "plain": json.dumps({name: getattr(self, name) for name in PLAIN}),
        }

    def restore(self, saved: dict[str, Any]) -> None:
        """Undo `as_saved`."""
        try:
            self.task.load_state_dict(saved["task"])
            # Rates and decay are the recipe's, which may have changed since.
            rates = [{key: group[key] for key in ("base", "weight_decay")} for group in self.optimizer.param_groups]
            self.optimizer.load_state_dict(saved["optimizer"])
            for group, settings in zip(self.optimizer.param_groups, rates, strict=True):
                group.update(settings)
            self.feed.position = Position(*saved["position"])
            for name, value in json.loads(saved["plain"]).items():
                setattr(self, name, value)
            restore_random_states(saved["random"])
        except InputError:
            raise
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise MsdcError(f"the checkpoint belongs to another recipe ({str(error).splitlines()[0]})") from error


def random_states() -> dict[str, Any]:
    """Every random state a run depends on, as plain values and tensors."""
    kind, keys, position, has_gauss, cached = np.random.get_state()  # noqa: NPY002 (libraries may draw from it)
    numpy_keys = torch.from_numpy(np.asarray(keys).astype(np.int64))
    version, values, gauss = random.getstate()
    state: dict[str, Any] = {
        "torch": torch.get_rng_state(),
        "numpy": [str(kind), numpy_keys, int(position), int(has_gauss), float(cached)],
        "python": [version, list(values), gauss],
    }
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()  # of this process's GPU
    return state


def restore_random_states(state: dict[str, Any]) -> None:
    """Undo `random_states`."""
    torch.set_rng_state(state["torch"])
    kind, keys, position, has_gauss, cached = state["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, cached))  # noqa: NPY002
    version, values, gauss = state["python"]
    random.setstate((version, tuple(values), gauss))
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])


def save_checkpoint(folder: Path, step: int, state: dict[str, Any], kind: str = "step") -> None:
    """Write checkpoint `step` with the best weights so far, and drop all but the newest of its kind."""
    path = folder / f"{kind}-{step:08d}.pt"
    if (folder / BEST).is_file():
        path.with_suffix(".safetensors").unlink(missing_ok=True)
        link_file(folder / BEST, path.with_suffix(".safetensors"))
    with atomic_path(path) as temporary:
        torch.save(state, temporary)
    best = path.with_suffix(".safetensors")
    hashes = {"sha256": sha256_file(path), "best": sha256_file(best) if best.is_file() else None}
    write_json(path.with_suffix(".json"), {"step": step, **hashes})
    for old in sorted(folder.glob(f"{kind}-*.json"))[: -KEEP[kind]]:
        remove(old)


def remove(path: Path) -> None:
    """Remove a checkpoint."""
    for suffix in (".json", ".pt", ".safetensors"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def restore_best(path: Path) -> None:
    """Restore the best weights of a checkpoint: those in the folder may be of steps after it."""
    weights_file = path.with_suffix(".safetensors")
    if weights_file.is_file():  # there are none before the first evaluation
        with atomic_path(path.with_name(BEST)) as temporary:
            temporary.unlink()
            link_file(weights_file, temporary)


def step_of(path: Path) -> int:
    """The step of a checkpoint, from its name."""
    return int(path.stem.split("-")[1])


def checkpoints(folder: Path) -> list[Path]:
    """Finished checkpoints, newest first."""
    files = without_system_files(folder.glob("*-*.json"))
    return [path.with_suffix(".pt") for path in sorted(files, key=step_of, reverse=True)]


def newest(folder: Path) -> Path | None:
    """The newest checkpoint whose files are whole; None without any. Newer ones that are damaged are removed.

    Raises:
        MsdcError: there are checkpoints, and none is whole.
    """
    stored = checkpoints(folder)
    for number, path in enumerate(stored):
        if path.is_file():
            regular_size(path)  # refuses a pointer of Git LFS, which is not damaged
        if not (damaged := _damaged_file(path)):
            for other in stored[:number]:
                remove(other)
            return path
        if number + 1 < len(stored):
            warn(f"{damaged}: this checkpoint is damaged; the stage continues from {stored[number + 1].name}")
    if stored:
        raise MsdcError(
            f"{_damaged_file(stored[0])}: this checkpoint is damaged, and no other one of the stage is whole; remove "
            f"{folder.parent} to train the stage again with `resume`"
        )
    return None


def _damaged_file(path: Path) -> Path | None:
    """The file of a checkpoint that is not as it was written."""
    best = path.with_suffix(".safetensors")
    try:
        written = read_json(path.with_suffix(".json"))
        hashes = {path: written["sha256"]}
        if written["best"] is not None:
            hashes[best] = written["best"]
    except (InputError, KeyError, TypeError, AttributeError):
        return path.with_suffix(".json")
    return first_damaged(hashes)


def load_newest(folder: Path) -> dict[str, Any] | None:
    """The newest whole checkpoint, with the best weights as they were then; None without one."""
    path = newest(folder)
    if path is None:
        return None
    try:
        saved: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # its bytes are those that were written, by a version of torch that differs
        raise MsdcError(f"{path}: this checkpoint cannot be read: {' '.join(str(error).split())[:200]}") from error
    restore_best(path)
    return saved


def is_finite(state: dict[str, Any]) -> bool:
    """Whether all weights of a saved state are numbers."""
    return all(bool(value.isfinite().all()) for value in state["task"].values() if value.is_floating_point())
