"""Models of a recipe by name, with the pooling and head that a bare folder does not state itself."""

from __future__ import annotations

from pathlib import Path

from msdc.distill.recipe import NamedModel
from msdc.encoders.encoder import Encoder, load_encoder


def load_named(model: NamedModel | str | Path, new_head_seed: int | None = None) -> Encoder:
    """The encoder that a recipe names.

    Args:
        model: a name or folder, or one with pooling and head.
        new_head_seed: seed of a random head where a student's folder holds none; None refuses.

    Raises:
        InputError: as `load_encoder`, or pooling and head for a folder that states its own.
    """
    if isinstance(model, NamedModel):
        return load_encoder(model.model, pooling=model.pooling, head=model.head, head_seed=new_head_seed)
    return load_encoder(model)
