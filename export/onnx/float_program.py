"""The float student as an ONNX program in memory: an encoder, and the start of an export, without PyTorch.

Shapes: N texts, D sentence width, H hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from msdc.compress.student.plan import PrecisionPlan
from msdc.compress.student.weights import ReadBytes, StudentWeights, read_weights
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import EncodeDefaults, read_defaults
from msdc.export.onnx.program import OnnxRunner
from msdc.export.onnx.write import Taps, build_onnx
from msdc.export.smoothing import PowerMean, Sizes, not_smoothed
from msdc.extras import missing
from msdc.text.tokenizer import Tokenizer, load_tokenizer

FLOAT = PrecisionPlan(precision="fp32", weights={})
# What protobuf can serialize is a little less than 2 GiB.
LARGEST = 2**31 - 2**24


class FloatProgram:
    """The float ONNX program of a student, run by ONNX Runtime; see `msdc.export.smoothing.TorchModel`."""

    def __init__(self, weights: StudentWeights) -> None:
        self.weights = weights
        size = sum(4 * value.size for value in weights.arrays.values())
        if size > LARGEST:
            raise missing("torch", f"a student of {size / 2**30:.1f} GiB")
        self.runner = OnnxRunner(self._program(None), pad_id=weights.config.pad_id)

    def _program(self, taps: Taps | None) -> bytes:
        config = self.weights.config
        model = build_onnx(not_smoothed(self.weights), FLOAT, config.positions, "linux", taps)
        serialized: bytes = model.SerializeToString()
        return serialized

    def vectors(self, rows: Sequence[Sequence[int]]) -> NDArray[np.float32]:
        """Sentence vectors [N, D] of rows of ids."""
        return self.runner.run(rows)

    def channel_sizes(self, rows: Sequence[Sequence[int]]) -> Sizes:
        """Power means of |x| per channel."""
        config = self.weights.config
        taps = Taps([[] for _ in range(config.unit)], [[] for _ in range(config.unit)])
        session = OnnxRunner(self._program(taps), pad_id=config.pad_id).session
        entry, middle = ([PowerMean() for _ in range(config.unit)] for _ in range(2))
        layers = zip([*entry, *middle], [*taps.entry, *taps.middle], strict=True)
        wanted = [(mean, name) for mean, names in layers for name in names]
        for row in rows:
            ids_1T = np.asarray([list(row)], dtype=np.int64)
            states = session.run([name for _, name in wanted], {"input_ids": ids_1T, "attention_mask": ids_1T * 0 + 1})
            for (mean, _), state in zip(wanted, states, strict=True):
                mean.add(state)
        return [mean.value for mean in entry], [mean.value for mean in middle]


class _WithoutTorch:
    """Takes the place of an encoder's torch module."""

    def __init__(self, weights: StudentWeights) -> None:
        self.width, self.stored_plan = weights.config.width, weights.plan

    def __getattr__(self, name: str) -> object:
        raise missing("torch", "the torch module of a model")


class ProgramEncoder(Encoder):
    """A student of ours whose float model ONNX Runtime runs; its `module` cannot be used."""

    program: FloatProgram

    def __init__(
        self, program: FloatProgram, tokenizer: Tokenizer, name: str, folder: Path, defaults: EncodeDefaults
    ) -> None:
        config = program.weights.config
        super().__init__(_WithoutTorch(program.weights), tokenizer, config.positions, name, folder, defaults)
        self.program = program

    def _run(self, rows: Sequence[Sequence[int]], skip: int, precision: str) -> NDArray[np.float32]:
        if precision != "float32":
            raise missing("torch", f"precision {precision}")
        return self.program.vectors(rows)


def load_program_encoder(folder: Path, name: str, read: ReadBytes = Path.read_bytes) -> Encoder:
    """The float model in a folder of ours, its weights read by `read`, as an encoder that needs no PyTorch."""
    weights = read_weights(folder, read)
    tokenizer = load_tokenizer(folder, weights.config.pad_id)
    return ProgramEncoder(FloatProgram(weights), tokenizer, name, folder, read_defaults(folder))
