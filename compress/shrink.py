"""Cut a student out of a larger one: chosen layers become the recurring unit, the table gets its bottleneck.

Source: Ding et al. 2022: the unit is the first M layers of the assistant (`layers` may choose others), the bottleneck
starts from the frequency-weighted SVD (compress.bottleneck).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from compress.bottleneck import weighted_svd
from compress.student import Embedding, Student, StudentConfig
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
    keep_bottleneck: bool = False,
) -> Student:
    """A student with `layers` of `large` as its unit (None: all of them), applied `repeats` times.

    With no layer left out the result differs from `large` only by what the SVD drops: with `place: word` of the table,
    with `place: embedding` of table and positions, whose sum the narrow layer norm then scales a little otherwise.
    `bottleneck: None` multiplies a bottleneck that `large` has out to a V x H table, unless `keep_bottleneck`.

    Raises:
        InputError: a layer that is not there, or a longer input than `large` has positions for.
    """
    old = large.config
    keep_bottleneck = keep_bottleneck and bottleneck is None and old.bottleneck is not None
    if old.place == "embedding" and old.bottleneck is not None and not keep_bottleneck:
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
            "bottleneck": old.bottleneck if keep_bottleneck else bottleneck,
            "place": old.place if keep_bottleneck else place if bottleneck else "word",
            "positions": positions,
            "dropout": old.dropout if dropout is None else dropout,
        }
    )
    small = Student(config)
    table_VH = wide_table(large)
    position_PH = large.embedding.position.weight[:positions]
    norm = large.embedding.norm
    if keep_bottleneck:
        state = large.embedding.state_dict()
        state["position.weight"] = state["position.weight"][:positions]
        small.embedding.load_state_dict(state)
    elif bottleneck is None:
        small.embedding.table.weight.copy_(table_VH)
        small.embedding.position.weight.copy_(position_PH)
        small.embedding.norm.load_state_dict(norm.state_dict())
    elif place == "word":
        table_VE, project_EH = weighted_svd(table_VH, frequency_V, bottleneck)
        assert small.embedding.project is not None
        small.embedding.table.weight.copy_(table_VE)
        small.embedding.project.weight.copy_(project_EH.T)
        small.embedding.position.weight.copy_(position_PH)
        small.embedding.norm.load_state_dict(norm.state_dict())
    else:
        _start_narrow(small.embedding, table_VH, position_PH, norm, frequency_V)
    for target, index in zip(small.layers, picked, strict=True):
        target.load_state_dict(large.layers[index].state_dict())
    if large.dense is not None and small.dense is not None:
        small.dense.load_state_dict(large.dense.state_dict())
    return small.eval()


@torch.no_grad()
def _start_narrow(
    target: Embedding, table_VH: Tensor, position_PH: Tensor, norm: nn.LayerNorm, frequency_V: Tensor | None
) -> None:
    """Start `place: embedding`, where positions and layer norm stand before the map, near the wide embedding.

    A layer norm sees a row only up to its mean, so rows are centred first; what then counts is that the narrow rows
    keep their length and have mean 0 as well. The singular vectors keep the length; a reflection puts the least of
    them on the diagonal (1, .., 1), which the narrow norm removes. With E = H nothing is lost.
    """
    V, H = table_VH.shape
    E = target.table.weight.shape[1]
    rows_VH = table_VH - table_VH.mean(1, keepdim=True)
    centred_PH = position_PH - position_PH.mean(1, keepdim=True)
    # Every token stands at some position: together the near ones weigh as much as the tokens.
    near = min(len(centred_PH), 32)
    weight_V = torch.ones(V) if frequency_V is None else frequency_V.float()
    weight = torch.cat([weight_V, (weight_V.sum() / near).repeat(near)])
    _, project_EH = weighted_svd(torch.cat([rows_VH, centred_PH[:near]]), weight, E)
    mirror_E = torch.full((E,), -(E**-0.5))
    mirror_E[-1] += 1
    length = mirror_E.norm()
    if float(length) > 1e-6:
        mirror_E /= length
        project_EH = project_EH - 2 * torch.outer(mirror_E, mirror_E @ project_EH)
    assert target.project is not None
    target.table.weight.copy_(rows_VH @ project_EH.T)
    target.position.weight.copy_(centred_PH @ project_EH.T)
    # The narrow norm gives rows of length sqrt(E), the wide one sqrt(H) with its own gain and shift.
    target.project.weight.copy_(project_EH.T * norm.weight[:, None] * (H / E) ** 0.5)
    target.project.bias.copy_(norm.bias)
