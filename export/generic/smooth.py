"""Smooth the inputs of a generic model's linear maps: export/reference/smooth.py without knowing the architecture.

x W^T = (x / s) (s W)^T. Where the canonical way divides inside the norm before, here the division is an operator of its
own: one product per number of an activation, little beside the linear map that follows. Only what comes out of a norm
is smoothed, as there.

Shapes: T tokens, K inputs of a linear map.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from msdc.export.generic.model import GenericModel
from msdc.export.reference.float_model import POWER
from msdc.export.reference.smooth import scales_for


class SmoothedLinear(nn.Module):
    """A linear map of `x * inverse`, its weight multiplied by 1 / `inverse`."""

    inverse: Tensor

    def __init__(self, linear: nn.Linear, scale_K: Tensor) -> None:
        super().__init__()
        self.linear = copy.copy(linear)
        self.linear._parameters = dict(linear._parameters)
        self.linear.weight = nn.Parameter(linear.weight.detach() * scale_K, requires_grad=False)
        self.register_buffer("inverse", 1.0 / scale_K)

    @property
    def weight(self) -> Tensor:
        """The smoothed weight; some models look at its type."""
        return self.linear.weight

    def forward(self, x: Tensor) -> Tensor:
        """[.., K] -> [.., N]."""
        y: Tensor = self.linear(x * self.inverse)
        return y


@torch.inference_mode()
def _sizes(model: GenericModel, rows: Sequence[Sequence[int]]) -> tuple[dict[str, Tensor], dict[str, int]]:
    """Power mean of |x| per channel for each linear that reads a norm; a number that linears with one input share."""
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    groups: dict[str, int] = {}
    # Kept alive until the end of the first row, so that no two inputs have one id.
    seen: list[Tensor] = []
    normed: list[Tensor] = []

    def keep(module: nn.Module, inputs: Any, output: Any) -> None:
        if isinstance(output, Tensor):
            normed.append(output)

    def watch(name: str) -> Any:
        def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            if name not in groups and not any(tensor is inputs[0] for tensor in normed):
                return
            x_TK = inputs[0].double().reshape(-1, inputs[0].shape[-1])
            sums[name] = sums.get(name, torch.zeros(x_TK.shape[1], dtype=torch.float64)) + (x_TK**POWER).sum(0)
            counts[name] = counts.get(name, 0) + len(x_TK)
            if name not in groups:
                known = [i for i, tensor in enumerate(seen) if tensor is inputs[0]]
                groups[name] = known[0] if known else len(seen)
                seen.append(inputs[0])

        return note

    hooks = [
        module.register_forward_pre_hook(watch(name))
        for name, module in model.named_modules()
        if type(module) is nn.Linear
    ]
    hooks += [m.register_forward_hook(keep) for m in model.modules() if type(m).__name__.endswith("Norm")]
    try:
        for row in rows:
            normed.clear()
            model(torch.tensor([list(row)], dtype=torch.int64))
    finally:
        for hook in hooks:
            hook.remove()
    return {name: (total / counts[name]) ** (1 / POWER) for name, total in sums.items()}, groups


def smooth_generic(model: GenericModel, rows: Sequence[Sequence[int]]) -> GenericModel:
    """A copy of `model` that computes the same, with smoothed inputs of its linear maps; `rows` calibrate."""
    sizes, groups = _sizes(model, [row for row in rows if row])
    memo = {id(value): value for value in [*model.parameters(), *model.buffers()]}
    made = copy.deepcopy(model, memo)
    linears = {name: made.get_submodule(name) for name in sizes}
    for name, linear in linears.items():
        weights: list[Any] = [linears[other].weight for other in sizes if groups[other] == groups[name]]
        scale_K = scales_for(sizes[name].numpy(), [weight.detach().float().cpu().numpy() for weight in weights])
        parent, _, leaf = name.rpartition(".")
        assert isinstance(linear, nn.Linear)
        setattr(made.get_submodule(parent), leaf, SmoothedLinear(linear, torch.from_numpy(scale_K)))
    return made
