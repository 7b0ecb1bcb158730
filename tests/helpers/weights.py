"""Model folders compared bit for bit."""

from pathlib import Path

import torch
from safetensors.torch import load_file


def same_weights(first_folder: Path, second_folder: Path) -> bool:
    """Whether two model folders have equal tensors of equal names."""
    first, second = (load_file(folder / "model.safetensors") for folder in (first_folder, second_folder))
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
