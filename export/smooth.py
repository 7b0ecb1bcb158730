"""Make activations easy to quantize: move the outliers of a few channels from activations into weights.

The idea is SmoothQuant's (Xiao et al. 2023): x W^T = (x / s) (s W)^T for any s > 0 per channel. The outputs of layer
norms are divided by s through the norm's own weight and bias; where a residual needs the full value, one product per
norm is added. On all-MiniLM-L6-v2 the mean cosine of an int8 artifact to float over the golden texts rises from
0.9980 to 0.9989 (ExecuTorch, asymmetric activations) and from 0.9955 to 0.9986 (ONNX, symmetric ones).

Shapes: T tokens, H hidden.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from msdc.compress.quantization.weights import NORM_READERS, PrecisionPlan, reads_int8
from msdc.compress.student.model import Layer, Student
from msdc.text.quickstart import parallel_table
from msdc.text.tokenizer import Tokenizer

CALIBRATION_ROWS = 20
SMALLEST, LARGEST = 2.0**-4, 2.0**8
# A power mean: close to the largest value of a channel, without depending on one token. Chosen with ALPHA on
# all-MiniLM-L6-v2 among p = 2, 4, 8, maximum and ALPHA = 0.4 to 0.8; neighbours differ by 0.0002 of mean cosine.
POWER = 8
ALPHA = 0.65
# Scales are eighth powers of two, so that another machine's last bits almost never change an artifact.
GRID = 8


@dataclass(frozen=True)
class Smoothed:
    """A student whose hidden states are divided by scales, and the scales that residuals and pooling put back.

    `entry[i]` [H] belongs to the input of layer i (the last layer's output and the embedding carry `entry[0]`),
    `middle[i]` [H] to the input of its feed-forward part; None where nothing was scaled.
    """

    student: Student
    entry: list[Tensor | None]
    middle: list[Tensor | None]

    @property
    def end(self) -> Tensor | None:
        """Scale by which the last hidden state must be multiplied, None for none."""
        return self.entry[0]


def not_smoothed(student: Student) -> Smoothed:
    """`student` without any scaling."""
    nothing: list[Tensor | None] = [None] * len(student.layers)
    return Smoothed(student, nothing, nothing)


def calibration_texts() -> list[str]:
    """Sentences of the embedded corpus, every language, evenly spread."""
    _, rows = parallel_table()
    step = max(1, len(rows) // CALIBRATION_ROWS)
    return [text for row in rows[::step] for text in row if text]


@torch.inference_mode()
def channel_sizes(student: Student, rows: Sequence[Sequence[int]]) -> tuple[list[Tensor], list[Tensor]]:
    """Power mean of |x| per channel at each layer's input and at its feed-forward input, [H] each, over all tokens."""
    entry = [torch.zeros(student.config.hidden, dtype=torch.float64) for _ in student.layers]
    middle = [torch.zeros(student.config.hidden, dtype=torch.float64) for _ in student.layers]
    tokens = sum(len(row) for row in rows) * student.config.repeats

    def watch(found: list[Tensor], index: int) -> Any:
        def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            found[index] += (inputs[0].double().reshape(-1, student.config.hidden) ** POWER).sum(0)

        return note

    hooks = []
    for index, layer in enumerate(_layers(student)):
        hooks.append(layer.query.register_forward_pre_hook(watch(entry, index)))
        hooks.append(layer.up.register_forward_pre_hook(watch(middle, index)))
    try:
        for row in rows:
            ids_1T = torch.tensor([list(row)], dtype=torch.int64)
            student(ids_1T, torch.ones_like(ids_1T))
    finally:
        for hook in hooks:
            hook.remove()
    means = [[(total / max(1, tokens)) ** (1 / POWER) for total in totals] for totals in (entry, middle)]
    return means[0], means[1]


def scales_for(activation_H: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """size(x)^ALPHA / max|W|^(1 - ALPHA) per channel, relative to the median channel, on the grid; float32 [H]."""
    weight_H = torch.stack([weight_RH.abs().amax(0) for weight_RH in weights]).amax(0).double()
    wanted_H = activation_H.clamp(min=1e-6) ** ALPHA / weight_H.clamp(min=1e-6) ** (1 - ALPHA)
    steps_H = torch.round(torch.log2(wanted_H / wanted_H.median()) * GRID)
    return torch.exp2(steps_H / GRID).clamp(SMALLEST, LARGEST).float()


def smooth(student: Student, plan: PrecisionPlan, tokenizer: Tokenizer, max_length: int) -> Smoothed:
    """Smooth the inputs of the int8 products of `student` (eval mode); the float function stays the same.

    Left as they are: inputs of float and of 4-bit products (a student for those was trained against its own groups).
    Integers read from an int8 folder are recomputed for the scaled weights; on msdc-mini that costs far less than plain
    activations do (mean cosine on ONNX 0.9995 in place of 0.9978).
    """
    layers = range(len(student.layers))
    int8 = {state: [reads_int8(plan, index, state) for index in layers] for state in NORM_READERS}
    if not any(int8["entry"] + int8["middle"]):
        return not_smoothed(student)
    rows = tokenizer.encode(calibration_texts(), max_length)
    entry_size, middle_size = channel_sizes(student, rows)
    # Weights are replaced below, not written in place: the copy may share them with the original.
    memo = {id(value): value for value in [*student.parameters(), *student.buffers()]}
    made = copy.deepcopy(student, memo).eval()
    entry: list[Tensor | None] = []
    middle: list[Tensor | None] = []
    for index, layer in enumerate(_layers(student)):
        three = [part.weight.detach() for part in (layer.query, layer.key, layer.value)]
        entry.append(scales_for(entry_size[index], three) if int8["entry"][index] else None)
        middle.append(scales_for(middle_size[index], [layer.up.weight.detach()]) if int8["middle"][index] else None)
    for index, layer in enumerate(_layers(made)):
        _multiply_inputs([layer.query, layer.key, layer.value], entry[index])
        _multiply_inputs([layer.up], middle[index])
        _divide_outputs(layer.attention_norm, middle[index])
        _divide_outputs(layer.output_norm, entry[(index + 1) % len(entry)])
    projected = made.embedding.project if made.config.place == "embedding" else None
    _divide_outputs(projected if projected is not None else made.embedding.norm, entry[0])
    return Smoothed(made, entry, middle)


def _layers(student: Student) -> list[Layer]:
    return [layer for layer in student.layers if isinstance(layer, Layer)]


def _multiply_inputs(linears: Sequence[nn.Linear], scale_H: Tensor | None) -> None:
    if scale_H is None:
        return
    for linear in linears:
        linear.weight = nn.Parameter(linear.weight.detach() * scale_H, requires_grad=False)


def _divide_outputs(module: nn.Linear | nn.LayerNorm, scale_H: Tensor | None) -> None:
    if scale_H is None:
        return
    by = scale_H.unsqueeze(1) if isinstance(module, nn.Linear) else scale_H
    module.weight = nn.Parameter(module.weight.detach() / by, requires_grad=False)
    if module.bias is not None:
        module.bias = nn.Parameter(module.bias.detach() / scale_H, requires_grad=False)
