"""Run a checked `.onnx` with ONNX Runtime: ids in, vectors out.

Shapes: N texts, B batch, T tokens, D sentence width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from msdc.errors import InputError, MsdcError
from msdc.export.executorch.quiet import quiet

BATCH_TOKENS = 4096
MAX_BATCH = 64


class OnnxRunner:
    """An open `.onnx`; rows are padded, masked and batched by length."""

    name = "onnx"

    def __init__(self, program: Path | bytes, *, pad_id: int = 0, threads: int | None = None) -> None:
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
                what = program if isinstance(program, bytes) else str(program)
                self.session = onnxruntime.InferenceSession(what, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            name = "the program" if isinstance(program, bytes) else program
            raise InputError(f"{name}: ONNX Runtime refuses it ({' '.join(str(error).split())[:300]})") from error
        self.takes_prompt = any(value.name == "prompt_tokens" for value in self.session.get_inputs())

    def run(self, rows: Sequence[Sequence[int]], prompt_tokens: int = 0) -> np.ndarray:
        """float32 [N, D] of ragged rows of ids.

        `prompt_tokens`: see `Runner.run`.

        Raises:
            MsdcError: the model failed at run time.
        """
        vectors: dict[int, np.ndarray] = {}
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        for batch in _batches(order, [len(row) for row in rows]):
            T = len(rows[batch[0]])
            ids_BT = np.full((len(batch), T), self.pad_id, dtype=np.int64)
            mask_BT = np.zeros((len(batch), T), dtype=np.int64)
            for slot, i in enumerate(batch):
                ids_BT[slot, : len(rows[i])] = rows[i]
                mask_BT[slot, : len(rows[i])] = 1
            feed: dict[str, np.ndarray] = {"input_ids": ids_BT, "attention_mask": mask_BT}
            if self.takes_prompt:
                feed["prompt_tokens"] = np.full(len(batch), prompt_tokens, dtype=np.int64)
            try:
                sentence_BD = self.session.run(["sentence_embedding"], feed)[0]
            except Exception as error:
                raise MsdcError(
                    f"ONNX Runtime failed to run the model: {' '.join(str(error).split())[:200]}"
                ) from error
            vectors.update(zip(batch, sentence_BD, strict=True))
        return np.stack([vectors[i] for i in range(len(rows))]).astype(np.float32, copy=False)


def _batches(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Batches of indices of rows of similar length, longest first, at most BATCH_TOKENS tokens each."""
    start = 0
    while start < len(order):
        count = max(1, min(MAX_BATCH, BATCH_TOKENS // max(1, lengths[order[start]])))
        yield list(order[start : start + count])
        start += count
