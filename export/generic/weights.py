"""int8 weights of any torch model: every linear per output channel, the token table per row.

Shapes: V vocabulary, H hidden.
"""

from __future__ import annotations

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from msdc.compress.quantization.plan import int8_rows
from msdc.compress.quantization.rounding import torchao_weight
from msdc.export.executorch.modules import TableInt8
from msdc.export.generic.model import GenericModel, Table, text_part


class ScaledTable(nn.Module):
    """An int8 token table, times the factor that some models apply to its rows (Gemma)."""

    def __init__(self, tokens: nn.Embedding) -> None:
        super().__init__()
        part = int8_rows(tokens.weight.detach().cpu().numpy(), "tokens")
        factor: Any = getattr(tokens, "embed_scale", None)
        # Into the scales: one product less per token.
        scale_V1 = torch.from_numpy(part.scale)
        self.table = TableInt8(torch.from_numpy(part.values), scale_V1 if factor is None else scale_V1 * float(factor))

    def forward(self, ids_BT: Tensor) -> Tensor:
        """Rows [B, T, H] of ids [B, T]."""
        rows_BTH: Tensor = self.table(ids_BT)
        return rows_BTH


class RootMeanSquareNorm(nn.Module):
    """x * weight / sqrt(mean(x^2) + eps) in operators that XNNPACK delegates; the mean is a product with 1 / H."""

    mean: Tensor

    def __init__(self, weight_H: Tensor, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight_H.detach().clone(), requires_grad=False)
        self.register_buffer("mean", torch.full((1, len(weight_H)), 1.0 / len(weight_H)))
        self.eps = eps

    def forward(self, hidden: Tensor) -> Tensor:
        """The same shape, [.., H]."""
        square = nn.functional.linear(hidden * hidden, self.mean)
        return hidden * torch.rsqrt(square + self.eps) * self.weight


def _norm(module: nn.Module) -> nn.Module | None:
    kind = type(module).__name__
    weight: Any = getattr(module, "weight", None)
    if not kind.endswith(("RMSNorm", "T5LayerNorm")) or weight is None or weight.ndim != 1:
        return None
    eps: Any = next(value for value in (getattr(module, n, None) for n in ("eps", "variance_epsilon")) if value)
    # Gemma stores the weight minus one. Told apart by what the module computes, not by its name.
    probe = torch.full((1, len(weight)), 0.5)
    for offset in (0.0, 1.0):
        made = RootMeanSquareNorm(weight.float() + offset, float(eps))
        if torch.allclose(made(probe), module(probe), atol=1e-5, rtol=1e-4):
            return made
    return None


def replace_modules(model: nn.Module, make: Any) -> None:
    """Replace every module below `model` for which `make` returns one."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            made = make(child)
            if made is not None:
                setattr(parent, name, made)


def with_norms(model: GenericModel) -> GenericModel:
    """A copy whose RMS norms are written in delegated operators; weights are shared."""
    memo = {id(value): value for value in [*model.parameters(), *model.buffers()]}
    made = copy.deepcopy(model, memo)
    replace_modules(made, _norm)
    return made


def linears(model: nn.Module) -> dict[str, nn.Linear]:
    """Every linear map by name."""
    return {name: module for name, module in model.named_modules() if type(module) is nn.Linear}


def quantized(model: GenericModel) -> GenericModel:
    """A copy with torchao's int8 linears (activations int8 per token) and an int8 token table, for ExecuTorch."""
    made = copy.deepcopy(model)
    for name, linear in linears(made).items():
        part = int8_rows(linear.weight.detach().cpu().numpy(), name)
        linear.weight = nn.Parameter(torchao_weight(part), requires_grad=False)
    table = ScaledTable(made.tokens)
    if isinstance(made.steps[0], Table):
        made.steps[0].tokens = table
    else:
        text_part(made.body).set_input_embeddings(table)
    return made


def parameter_counts(model: GenericModel) -> dict[str, int]:
    """`total`, `embedding` (the token table) and `encoder` parameters of what is exported."""
    body = text_part(model.body) if model.body is not None else None
    parts = [model] if body is None or body is model.body else [body, *model.steps[1:]]
    total = sum(math.prod(p.shape) for part in parts for p in {id(q): q for q in part.parameters()}.values())
    table = math.prod(model.tokens.weight.shape)
    return {"total": total, "embedding": table, "encoder": total - table}
