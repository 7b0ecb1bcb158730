"""Pooling and head of a bare transformer folder, which says nothing about either.

SimCSE's models (princeton-nlp/sup-simcse-*) are such folders: their sentence vector is a dense layer with tanh over the
last state of [CLS], stored as the pooler or under its training name `mlp`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal, cast

import torch
from safetensors import safe_open
from torch import Tensor, nn

from msdc.encoders.encoder import Encoder, load_encoder
from msdc.encoders.sentence_model import SentenceModel
from msdc.errors import InputError

PoolingName = Literal["mean", "cls", "max"]
HeadName = Literal["mlp"]
HEAD_NAMES = ("mlp.dense", "pooler.dense")
START_STD = 0.02


def load_bare_encoder(
    name: str | Path, pooling: PoolingName | None = None, head: HeadName | None = None, new_head_seed: int | None = None
) -> Encoder:
    """A model folder without `modules.json` with the pooling and head that the caller names; others as they are.

    Args:
        name: a folder or hub id.
        pooling: mean, cls or max; None keeps the folder's own.
        head: "mlp": a dense layer with tanh after pooling, whose weights are the folder's `mlp` or pooler.
        new_head_seed: seed of a random head where the folder holds none (a student before training); None refuses.

    Raises:
        InputError: the folder says its pooling itself, or it holds no head of that kind.
    """
    encoder = load_encoder(name)
    if pooling is None and head is None:
        return encoder
    from sentence_transformers.sentence_transformer.modules import Dense, Pooling

    module = encoder.module
    assert encoder.folder is not None
    if not isinstance(module, SentenceModel) or (encoder.folder / "modules.json").is_file():
        raise InputError(f"{name}: its folder says how it pools; pooling and head are for folders without modules.json")
    found = [part for part in module.after if isinstance(part, Pooling)]
    if len(found) != 1:
        raise InputError(f"{name}: its transformer gives sentence vectors itself; pooling and head do not apply")
    if pooling is not None:
        found[0].pooling_mode = pooling
    state = None
    if head is not None:
        hidden = int(cast(int, module.width))
        state = _head_weights(encoder.folder, hidden)
        dense = Dense(hidden, hidden, activation_function=nn.Tanh())
        linear = dense.linear.requires_grad_(False)
        if state is not None:
            linear.load_state_dict(state)
        elif new_head_seed is not None:
            generator = torch.Generator().manual_seed(new_head_seed)
            linear.weight.normal_(std=START_STD, generator=generator)
            linear.bias.zero_()
        else:
            raise InputError(f"{name}: head: mlp, but its weights hold no {' or '.join(HEAD_NAMES)}")
        linear.requires_grad_(True)
        module.after.append(dense)
    # Outputs are cached under the fingerprint: another reading of the same files is another encoder.
    drawn = new_head_seed if head is not None and state is None else None
    text = f"{encoder.fingerprint()} pooling={pooling} head={head} drawn={drawn}"
    encoder.set_fingerprint(hashlib.sha256(text.encode()).hexdigest())
    return encoder


def _head_weights(folder: Path, hidden: int) -> dict[str, Tensor] | None:
    """Weight and bias of the head in the folder's safetensors; None without one."""
    for wanted in HEAD_NAMES:
        found: dict[str, Tensor] = {}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as tensors:
                for key in tensors.keys():  # noqa: SIM118 (not a mapping)
                    for part in ("weight", "bias"):
                        if key == f"{wanted}.{part}" or key.endswith(f".{wanted}.{part}"):
                            found[part] = tensors.get_tensor(key).float()
        if found.keys() == {"weight", "bias"} and found["weight"].shape == (hidden, hidden):
            return found
    return None
