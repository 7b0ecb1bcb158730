"""An ONNX program in ONNX Runtime: ids in, vectors out.

Shapes: N texts, B batch, T tokens, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime

from msdc.errors import InputError, MsdcError
from msdc.machine import quota_threads
from msdc.processes import quiet

# The states of so many tokens stay in the cache of a core: a quarter faster than 4096 tokens on texts of 56.
BATCH_TOKENS, MAX_BATCH = 512, 64


class OnnxRunner:
    """An open `.onnx`; rows are padded, masked and batched by length; if not `padded`, only rows of one length."""

    name = "onnx"

    def __init__(
        self, program: Path | bytes, *, pad_id: int = 0, threads: int | None = None, padded: bool = True
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Spinning threads are fast on an idle machine and slow on a busy one.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        threads = threads or quota_threads()
        if threads is not None:
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
        self.pad_id, self.padded = pad_id, padded
        try:
            with quiet():
                what = program if isinstance(program, bytes) else str(program)
                self.session = onnxruntime.InferenceSession(what, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            name = "the program" if isinstance(program, bytes) else program
            raise InputError(f"{name}: ONNX Runtime refuses it ({' '.join(str(error).split())[:300]})") from error
        self.metadata: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        self.takes_prompt = any(value.name == "prompt_tokens" for value in self.session.get_inputs())

    def run(self, rows: Sequence[Sequence[int]], prompt_tokens: int = 0) -> np.ndarray:
        """float32 [N, D] of ragged rows of ids; see `Runner.run`."""
        vectors: dict[int, np.ndarray] = {}
        order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
        while order:
            # Rows of similar length, longest first, at most BATCH_TOKENS tokens with padding.
            T = len(rows[order[0]])
            count = max(1, min(MAX_BATCH, BATCH_TOKENS // max(1, T)))
            if not self.padded:
                count = min(count, sum(len(rows[index]) == T for index in order))
            batch, order = order[:count], order[count:]
            ids_BT = np.full((len(batch), T), self.pad_id, dtype=np.int64)
            mask_BT = np.zeros((len(batch), T), dtype=np.int64)
            for slot, index in enumerate(batch):
                ids_BT[slot, : len(rows[index])] = rows[index]
                mask_BT[slot, : len(rows[index])] = 1
            feed: dict[str, np.ndarray] = {"input_ids": ids_BT, "attention_mask": mask_BT}
            if self.takes_prompt:
                feed["prompt_tokens"] = np.full(len(batch), prompt_tokens, dtype=np.int64)
            try:
                sentence_BD = self.session.run(["sentence_embedding"], feed)[0]
            except Exception as error:
                reason = " ".join(str(error).split())[:200]
                raise MsdcError(f"ONNX Runtime failed to run the model: {reason}") from error
            vectors.update(zip(batch, sentence_BD, strict=True))
        return np.stack([vectors[index] for index in range(len(rows))]).astype(np.float32, copy=False)
