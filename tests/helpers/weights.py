"""Model folders compared bit for bit."""

from pathlib import Path

import torch
from safetensors.torch import load_file


def same_weights(one: Path, other: Path) -> bool:
    """Whether two model folders have equal tensors of equal names."""
    first, second = (load_file(folder / "model.safetensors") for folder in (one, other))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
