"""Run a checked artifact: ids in, vectors out, on ExecuTorch or ONNX Runtime.

Files are only opened here after their hash was compared, or in a child process (export/inspect).

Shapes: N texts, B batch, T tokens, H hidden, D sentence width.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from msdc.errors import InputError, MsdcError
from msdc.export.executorch.pte import METHODS
from msdc.export.executorch.quiet import quiet

ONNX_BATCH_TOKENS = 4096
ONNX_MAX_BATCH = 64


@functools.cache
def _executorch() -> Any:
    with quiet():
        # The import registers quantized operators (the int8 and int4 token tables) with the runtime.
        import executorch.kernels.quantized  # noqa: F401
        from executorch.runtime import Runtime

        return Runtime.get()


def set_executorch_threads(threads: int) -> None:
    """Threads of XNNPACK's pool, for the whole process."""
    from executorch.extension.pybindings import portable_lib

    with quiet():
        portable_lib._unsafe_reset_threadpool(threads)


class ExecutorchRunner:
    """A `.pte` at batch 1; `style` and `repeats` come from the manifest."""

    name = "executorch"

    def __init__(self, path: Path, *, style: str, repeats: int, threads: int | None = None) -> None:
        import torch
        from executorch.runtime import Verification

        self._torch = torch
        self.repeats = repeats
        runtime = _executorch()
        if threads is not None:
            set_executorch_threads(threads)
        chatter = None
        try:
            with quiet() as chatter:
                self.program = runtime.load_program(path, verification=Verification.InternalConsistency)
                self.methods: dict[str, Any] = {name: self.program.load_method(name) for name in METHODS[style]}
        except Exception as error:
            said = chatter.last_line() if chatter else ""
            raise InputError(f"{path}: ExecuTorch refuses the program ({said or error})") from error

    def _one(self, ids: Sequence[int]) -> np.ndarray:
        ids_1T = self._torch.tensor([list(ids)], dtype=self._torch.int64)
        if "forward" in self.methods:
            return self.methods["forward"].execute([ids_1T])[0].numpy()[0]
        hidden_1TH = self.methods["embed"].execute([ids_1T])[0]
        for _ in range(self.repeats):
            hidden_1TH = self.methods["unit"].execute([hidden_1TH])[0]
        return self.methods["pool"].execute([hidden_1TH])[0].numpy()[0]

    def run(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """float32 [N, D] of ragged rows of ids.

        Raises:
            MsdcError: the program failed at run time.
        """
        try:
            return np.stack([self._one(row) for row in rows]).astype(np.float32, copy=False)
        except RuntimeError as error:
            raise MsdcError(f"ExecuTorch failed to run the program: {' '.join(str(error).split())[:200]}") from error


class OnnxRunner:
    """An `.onnx` with padding and mask, a few rows at a time."""

    name = "onnx"

    def __init__(self, path: Path, *, pad_id: int = 0, threads: int | None = None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Spinning threads are fast on an idle machine and slow on a busy one.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if threads is not None:
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
        self.pad_id = pad_id
        try:
            with quiet():
                self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            raise InputError(
                f"{path}: ONNX Runtime refuses the model ({' '.join(str(error).split())[:300]})"
            ) from error

    def run(self, rows: Sequence[Sequence[int]]) -> np.ndarray:
        """float32 [N, D] of ragged rows of ids.

        Raises:
            MsdcError: the model failed at run time.
        """
        vectors: dict[int, np.ndarray] = {}
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        for batch in _batches(order, [len(row) for row in rows]):
            T = len(rows[batch[0]])
            ids_BT = np.full((len(batch), T), self.pad_id, dtype=np.int64)
            mask_BT = np.zeros((len(batch), T), dtype=np.int64)
            for place, i in enumerate(batch):
                ids_BT[place, : len(rows[i])] = rows[i]
                mask_BT[place, : len(rows[i])] = 1
            feed = {"input_ids": ids_BT, "attention_mask": mask_BT}
            try:
                sentence_BD = self.session.run(["sentence_embedding"], feed)[0]
            except Exception as error:
                raise MsdcError(
                    f"ONNX Runtime failed to run the model: {' '.join(str(error).split())[:200]}"
                ) from error
            vectors.update(zip(batch, sentence_BD, strict=True))
        return np.stack([vectors[i] for i in range(len(rows))]).astype(np.float32, copy=False)


def _batches(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Rows of near-equal length together, longest first, within a budget of tokens (no torch needed here)."""
    start = 0
    while start < len(order):
        count = max(1, min(ONNX_MAX_BATCH, ONNX_BATCH_TOKENS // max(1, lengths[order[start]])))
        yield list(order[start : start + count])
        start += count
