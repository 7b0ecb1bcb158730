"""The float student as an ONNX program in memory: for an encoder, and for the start of an export without PyTorch.

Shapes: N texts, D sentence width, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from msdc.compress.student.plan import PrecisionPlan
from msdc.compress.student.weights import StudentWeights
from msdc.export.onnx.runner import OnnxRunner
from msdc.export.onnx.write import Taps, build_onnx
from msdc.export.smoothing import PowerMean, Sizes, not_smoothed
from msdc.extras import missing

FLOAT = PrecisionPlan(precision="fp32", weights={})
# What protobuf can serialize is a little less than 2 GiB.
LARGEST = 2**31 - 2**24


def check_size(weights: StudentWeights) -> None:
    """Refuse a student whose float program would be larger than ONNX allows."""
    size = sum(4 * value.size for value in weights.arrays.values())
    if size > LARGEST:
        raise missing("torch", f"a student of {size / 2**30:.1f} GiB")


class FloatProgram:
    """The float ONNX program of a student, a `FloatModel` that ONNX Runtime runs."""

    def __init__(self, weights: StudentWeights, threads: int | None = None) -> None:
        self.weights = weights
        check_size(weights)
        self.runner = OnnxRunner(self._program(None), pad_id=weights.config.pad_id, threads=threads)

    def _program(self, taps: Taps | None) -> bytes:
        config = self.weights.config
        model = build_onnx(not_smoothed(self.weights), FLOAT, config.positions, "linux", taps)
        serialized: bytes = model.SerializeToString()
        return serialized

    def vectors(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """See `FloatModel`."""
        return self.runner.run(rows)

    def channel_sizes(self, rows: Sequence[Sequence[int]]) -> Sizes:
        """See `FloatModel`."""
        config = self.weights.config
        taps = Taps([[] for _ in range(config.unit)], [[] for _ in range(config.unit)])
        session = OnnxRunner(self._program(taps), pad_id=config.pad_id).session
        entry, middle = ([PowerMean() for _ in range(config.unit)] for _ in range(2))
        layers = zip([*entry, *middle], [*taps.entry, *taps.middle], strict=True)
        watched = [(mean, name) for mean, names in layers for name in names]
        for row in rows:
            ids_1T = np.asarray([list(row)], dtype=np.int64)
            states = session.run([name for _, name in watched], {"input_ids": ids_1T, "attention_mask": ids_1T * 0 + 1})
            for (mean, _), state in zip(watched, states, strict=True):
                mean.add(state)
        return [mean.value for mean in entry], [mean.value for mean in middle]
