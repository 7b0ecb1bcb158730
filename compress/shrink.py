"""Cut a student out of a larger one: chosen layers become the recurring unit, the table gets its bottleneck.

Source: Ding et al. 2022: the unit is the first M layers of the assistant (`layers` may choose others), the bottleneck
starts from the frequency-weighted SVD (compress.bottleneck).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from compress.bottleneck import weighted_svd
from compress.student import Student, StudentConfig
from msdc.errors import InputError


def wide_table(student: Student) -> Tensor:
    """The table as the layers see it, [V, H]: narrow rows times the bottleneck map where there is one."""
    table = student.embedding.table.weight.detach()
    project = student.embedding.project
    return table if project is None else table @ project.weight.detach().T


@torch.no_grad()
def shrink(
    large: Student,
    *,
    layers: Sequence[int] | None = None,
    repeats: int = 1,
    bottleneck: int | None = None,
    place: str = "word",
    frequency_V: Tensor | None = None,
    max_length: int | None = None,
    dropout: float | None = None,
) -> Student:
    """A student with `layers` of `large` as its unit (None: all of them), applied `repeats` times.

    With `place: word` and no layer left out the result differs from `large` only by what the SVD drops. With
    `place: embedding` positions and layer norm move to the narrow side and only training makes up for it.

    Raises:
        InputError: a layer that is not there, or a longer input than `large` has positions for.
    """
    old = large.config
    if old.place == "embedding" and old.bottleneck is not None:
        raise InputError("this model already has its bottleneck before positions and norm; it cannot be cut again")
    picked = list(range(len(large.layers))) if layers is None else list(layers)
    wrong = [i for i in picked if not 0 <= i < len(large.layers)]
    if wrong or not picked:
        raise InputError(f"layers {wrong or picked} are not in a model of {len(large.layers)} layers")
    positions = max_length or old.positions
    if positions > old.positions:
        raise InputError(f"longest input {positions} exceeds the {old.positions} positions of the model")
    config = StudentConfig(
        **{
            **old.model_dump(),
            "unit": len(picked),
            "repeats": repeats,
            "bottleneck": bottleneck,
            "place": place if bottleneck else "word",
            "positions": positions,
            "dropout": old.dropout if dropout is None else dropout,
        }
    )
    small = Student(config)
    table_VH = wide_table(large)
    position_PH = large.embedding.position.weight[:positions]
    norm = large.embedding.norm
    if bottleneck is None:
        small.embedding.table.weight.copy_(table_VH)
        small.embedding.position.weight.copy_(position_PH)
        small.embedding.norm.load_state_dict(norm.state_dict())
    else:
        table_VE, project_EH = weighted_svd(table_VH, frequency_V, bottleneck)
        assert small.embedding.project is not None
        small.embedding.table.weight.copy_(table_VE)
        if place == "word":
            small.embedding.project.weight.copy_(project_EH.T)
            small.embedding.position.weight.copy_(position_PH)
            small.embedding.norm.load_state_dict(norm.state_dict())
        else:
            # The narrow norm rescales each row to unit variance; the map starts with the scale the wide norm gives.
            small.embedding.position.weight.copy_(position_PH @ project_EH.T)
            scale = norm.weight.mean() * (table_VE.shape[1] / table_VH.shape[1]) ** 0.5
            small.embedding.project.weight.copy_(project_EH.T * scale)
            small.embedding.project.bias.copy_(norm.bias)
    for target, index in zip(small.layers, picked, strict=True):
        target.load_state_dict(large.layers[index].state_dict())
    if large.dense is not None and small.dense is not None:
        small.dense.load_state_dict(large.dense.state_dict())
    return small.eval()
