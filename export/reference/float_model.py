"""The float student that an export starts from, and what is asked of it by running it.

PyTorch runs it where it is installed, else ONNX Runtime runs its float program (`msdc.export.onnx.float_program`). The
weights of the artifacts come from `weights` in both cases; what the runs decide, the scales of smoothing, lies on a
grid coarser than their rounding, so that artifacts are equal.

Shapes: N texts, T tokens, D sentence width, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from msdc.compress.student.weights import StudentWeights

# A power mean is close to the largest value of a channel, without depending on one token.
POWER = 8


class FloatModel(Protocol):
    """A float student that can be run."""

    @property
    def weights(self) -> StudentWeights:
        """Its weights."""

    def vectors(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Sentence vectors [N, D] of rows of ids."""

    def channel_sizes(self, rows: Sequence[Sequence[int]]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """Power mean of |x| per channel at each layer's input and at its feed-forward input, float64 [H] each."""


class PowerMeans:
    """Collects states and gives their power means per channel."""

    def __init__(self, layers: int, hidden: int) -> None:
        self.totals = np.zeros((layers, hidden))
        self.tokens = np.zeros(layers, dtype=np.int64)

    def add(self, layer: int, hidden: NDArray[Any]) -> None:
        """Count the states [.., H] of some tokens at a layer."""
        states_TH = hidden.astype(np.float64).reshape(-1, self.totals.shape[1])
        self.totals[layer] += (states_TH**POWER).sum(0)
        self.tokens[layer] += len(states_TH)

    def means(self) -> list[NDArray[Any]]:
        """float64 [H] per layer."""
        return [
            (total_H / max(1, int(tokens))) ** (1 / POWER)
            for total_H, tokens in zip(self.totals, self.tokens, strict=True)
        ]


class TorchModel:
    """A `Student`, run by PyTorch one row at a time, without padding."""

    def __init__(self, student: Any) -> None:
        self.student = student.eval()
        self.weights: StudentWeights = student.numbers()

    def vectors(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """See `FloatModel`."""
        return np.stack([self._run(row) for row in rows])

    def _run(self, row: Sequence[int]) -> NDArray[np.float32]:
        import torch

        with torch.inference_mode():
            ids_1T = torch.tensor([list(row)], dtype=torch.int64)
            vector_D: NDArray[np.float32] = self.student(ids_1T, torch.ones_like(ids_1T))[0].float().numpy()
        return vector_D

    def channel_sizes(self, rows: Sequence[Sequence[int]]) -> tuple[list[NDArray[Any]], list[NDArray[Any]]]:
        """See `FloatModel`."""
        config = self.weights.config
        entry, middle = (PowerMeans(config.unit, config.hidden) for _ in range(2))

        def watch(found: PowerMeans, index: int) -> Any:
            return lambda module, inputs: found.add(index, inputs[0].numpy())

        hooks = []
        for index, layer in enumerate(self.student.layers):
            hooks.append(layer.query.register_forward_pre_hook(watch(entry, index)))
            hooks.append(layer.up.register_forward_pre_hook(watch(middle, index)))
        try:
            for row in rows:
                self._run(row)
        finally:
            for hook in hooks:
                hook.remove()
        return entry.means(), middle.means()
