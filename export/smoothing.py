"""The float student that an export starts from, and the smoothing that makes its activations easy to quantize.

Outliers of a few channels move from activations into weights. The idea is SmoothQuant's (Xiao et al. 2023):
x W^T = (x / s) (s W)^T for any s > 0 per channel. The outputs of layer norms are divided by s through the norm's own
weight and bias; where a residual needs the full value, one product per norm is added. On all-MiniLM-L6-v2 the mean
cosine of an int8 artifact to float over the golden texts rises from 0.9980 to 0.9989 (ExecuTorch, asymmetric
activations) and from 0.9955 to 0.9986 (ONNX, symmetric ones).

PyTorch runs the float student where it is installed (`TorchModel`), else ONNX Runtime runs its float program
(`msdc.export.onnx.float_program`). The weights of the artifacts come from `weights` in both cases; what the runs
decide, the scales, is on a grid coarser than their rounding, so that artifacts are equal.

Shapes: N texts, T tokens, D sentence width, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from msdc.compress.student.plan import NORM_READERS, PrecisionPlan, QuantizedWeight, reads_int8
from msdc.compress.student.weights import StudentWeights, integers
from msdc.encoders.folder import SHIPPED
from msdc.text.quickstart import parallel_table
from msdc.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from msdc.compress.student.model import Student

Scale = NDArray[np.float32]
# float64 [H] per layer: the size of each channel at a layer's input, and at its feed-forward input.
Sizes = tuple[list[NDArray[Any]], list[NDArray[Any]]]

CALIBRATION_ROWS = 20
BATCH_ROWS = 32
SMALLEST, LARGEST = 2.0**-4, 2.0**8
# A power mean is close to the largest value of a channel, without depending on one token.
POWER = 8
# Chosen on all-MiniLM-L6-v2 with POWER, among p = 2, 4, 8, maximum and ALPHA = 0.4 to 0.8; neighbours differ by 0.0002
# of mean cosine.
ALPHA = 0.65
# Scales are eighth powers of two, so that another machine's last bits almost never change an artifact.
GRID = 8


class PowerMean:
    """The power mean of |x| per channel, of states that are added one after another."""

    def __init__(self) -> None:
        self.total: Any = 0.0
        self.tokens = 0

    def add(self, hidden: NDArray[Any]) -> None:
        """Count the states [.., H] of some tokens."""
        states_TH = hidden.astype(np.float64).reshape(-1, hidden.shape[-1])
        self.total = self.total + (states_TH**POWER).sum(0)
        self.tokens += len(states_TH)

    @property
    def value(self) -> NDArray[Any]:
        """float64 [H]."""
        mean: NDArray[Any] = (self.total / max(1, self.tokens)) ** (1 / POWER)
        return mean


class FloatModel(Protocol):
    """A float student that can be run."""

    weights: StudentWeights

    def vectors(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Sentence vectors [N, D] of rows of ids."""

    def channel_sizes(self, rows: Sequence[Sequence[int]]) -> Sizes:
        """Power means of |x| per channel."""


class TorchModel:
    """A `FloatModel` that PyTorch runs without padding: a batch has rows of one length."""

    def __init__(self, student: Any) -> None:
        self.student = student.eval()
        self.weights: StudentWeights = student.to_numpy()

    def vectors(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """See `FloatModel`."""
        vectors: dict[int, NDArray[np.float32]] = {}
        for length in {len(row) for row in rows}:
            numbers = [number for number, row in enumerate(rows) if len(row) == length]
            for start in range(0, len(numbers), BATCH_ROWS):
                batch = numbers[start : start + BATCH_ROWS]
                vectors |= zip(batch, self._run([rows[number] for number in batch]), strict=True)
        return np.stack([vectors[number] for number in range(len(rows))])

    def _run(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Vectors [B, D] of rows of one length."""
        import torch

        with torch.inference_mode():
            ids_BT = torch.tensor([list(row) for row in rows], dtype=torch.int64)
            vectors_BD: NDArray[np.float32] = self.student(ids_BT, torch.ones_like(ids_BT)).float().numpy()
        return vectors_BD

    def channel_sizes(self, rows: Sequence[Sequence[int]]) -> Sizes:
        """See `FloatModel`."""
        entry, middle = ([PowerMean() for _ in self.student.layers] for _ in range(2))

        def watch(mean: PowerMean) -> Any:
            return lambda module, inputs: mean.add(inputs[0].numpy())

        readers = [layer.query for layer in self.student.layers] + [layer.up for layer in self.student.layers]
        hooks = [
            reader.register_forward_pre_hook(watch(mean))
            for reader, mean in zip(readers, [*entry, *middle], strict=True)
        ]
        try:
            for row in rows:  # in this order, whose sums are those of every export
                self._run([row])
        finally:
            for hook in hooks:
                hook.remove()
        return [mean.value for mean in entry], [mean.value for mean in middle]


@dataclass(frozen=True)
class Smoothed:
    """A student whose hidden states are divided by scales, and the scales that residuals and pooling put back.

    `entry[i]` [H] belongs to the input of layer i (the last layer's output and the embedding carry `entry[0]`),
    `middle[i]` [H] to the input of its feed-forward part; None where nothing was scaled.
    """

    weights: StudentWeights
    entry: list[Scale | None]
    middle: list[Scale | None]
    _integers: dict[str, dict[str, QuantizedWeight]] = field(default_factory=dict, repr=False)

    def integers(self, plan: PrecisionPlan) -> dict[str, QuantizedWeight]:
        """Integers and scales of the weights that `plan` quantizes, computed once for all runtimes."""
        key = plan.model_dump_json()
        if key not in self._integers:
            self._integers[key] = integers(self.weights, plan)
        return self._integers[key]

    @property
    def end(self) -> Scale | None:
        """Scale by which the last hidden state must be multiplied, None for none."""
        return next(iter(self.entry), None)

    @cached_property
    def student(self) -> Student:
        """The smoothed student as a torch module."""
        from msdc.compress.student.model import student_of

        return student_of(self.weights)


def not_smoothed(weights: StudentWeights) -> Smoothed:
    """A student without any scaling."""
    nothing: list[Scale | None] = [None] * weights.config.unit
    return Smoothed(weights, nothing, nothing)


def calibration_texts() -> list[str]:
    """Sentences of the embedded corpus, every language, evenly spread."""
    _, rows = parallel_table()
    step = max(1, len(rows) // CALIBRATION_ROWS)
    return [text for row in rows[::step] for text in row if text]


def scales_for(activation_H: NDArray[np.float64], weights: Sequence[NDArray[Any]]) -> Scale:
    """size(x)^ALPHA / max|W|^(1 - ALPHA) per channel, relative to the median channel, on the grid; float32 [H]."""
    weight_H = np.stack([np.abs(weight_RH).max(0) for weight_RH in weights]).max(0).astype(np.float64)
    wanted_H = np.maximum(activation_H, 1e-6) ** ALPHA / np.maximum(weight_H, 1e-6) ** (1 - ALPHA)
    # The lower of the two middle channels.
    median = np.sort(wanted_H)[(len(wanted_H) - 1) // 2]
    steps_H = np.rint(np.log2(wanted_H / median) * GRID)
    return np.clip(np.exp2(steps_H / GRID), SMALLEST, LARGEST).astype(np.float32)


def smooth(model: FloatModel, plan: PrecisionPlan, tokenizer: Tokenizer, max_length: int) -> Smoothed:
    """Smooth the inputs of the int8 products of a student; the float function stays the same.

    Left as they are: inputs of float and of 4-bit products (a student for those was trained against its own groups).
    Integers read from an int8 folder are recomputed for the scaled weights; on msdc-mini that costs far less than plain
    activations do (mean cosine on ONNX 0.9995 in place of 0.9978).
    """
    return smooth_by(
        model.weights, plan, lambda: model.channel_sizes(tokenizer.encode(calibration_texts(), max_length))
    )


def smooth_by(weights: StudentWeights, plan: PrecisionPlan, channel_sizes: Callable[[], Sizes]) -> Smoothed:
    """`smooth` by channel sizes, which are asked for where they are needed."""
    layers = range(weights.config.unit)
    int8 = {state: [reads_int8(plan, index, state) for index in layers] for state in NORM_READERS}
    if not any(int8["entry"] + int8["middle"]):
        return not_smoothed(weights)
    sizes = dict(zip(NORM_READERS, channel_sizes(), strict=True))
    arrays = dict(weights.arrays)
    scales: dict[str, list[Scale | None]] = {state: [] for state in NORM_READERS}
    for state, readers in NORM_READERS.items():
        for index in layers:
            names = [f"layers.{index}.{part}.weight" for part in readers]
            is_int8 = int8[state][index]
            scale_H = scales_for(sizes[state][index], [arrays[name] for name in names]) if is_int8 else None
            scales[state].append(scale_H)
            if scale_H is not None:
                arrays |= {name: arrays[name] * scale_H for name in names}
    for index in layers:
        _divide_outputs(arrays, f"layers.{index}.attention_norm", scales["middle"][index])
        _divide_outputs(arrays, f"layers.{index}.output_norm", scales["entry"][(index + 1) % len(layers)])
    projected = weights.config.place == "embedding" and weights.config.bottleneck is not None
    _divide_outputs(arrays, "embedding.project" if projected else "embedding.norm", scales["entry"][0])
    return Smoothed(replace(weights, arrays=arrays), scales["entry"], scales["middle"])


def shipped_sizes(identity: str) -> Sizes | None:
    """The channel sizes of the shipped model with this identity, as they were measured; None of any other."""
    from safetensors import safe_open

    with safe_open(SHIPPED / "channel_sizes.safetensors", "np") as file:
        names = [f"{identity}.{state}" for state in NORM_READERS]
        if not set(names) <= set(file.keys()):
            return None
        entry, middle = ([*file.get_tensor(name).astype(np.float64)] for name in names)
    return entry, middle


def _divide_outputs(arrays: dict[str, NDArray[Any]], module: str, scale_H: Scale | None) -> None:
    """Divide the outputs of a linear map or a norm, through its weight and bias."""
    if scale_H is None:
        return
    weight, bias = f"{module}.weight", f"{module}.bias"
    arrays[weight] = arrays[weight] / (scale_H[:, None] if arrays[weight].ndim == 2 else scale_H)
    if bias in arrays:
        arrays[bias] = arrays[bias] / scale_H
