"""An ONNX program in ONNX Runtime: ids in, vectors out.

Shapes: N texts, B batch, T tokens, D sentence width.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime

from msdc.errors import InputError, MsdcError
from msdc.machine import quota_threads, thread_count

# The states of so many tokens stay in the cache of a core: a quarter faster than 4096 tokens on texts of 56.
BATCH_TOKENS, MAX_BATCH = 512, 64
# A smaller program runs a text in one thread, and the batches of a list side by side: sharing the products of a student
# among threads makes a single text take half as long again.
SMALL_BYTES = 2**26


class OnnxRunner:
    """An open `.onnx`; rows are padded, masked and batched by length; if not `padded`, only rows of one length.

    `threads` run each batch; None is chosen by the size of the program, within the quota of a container.
    """

    name = "onnx"

    def __init__(
        self, program: Path | bytes, *, pad_id: int = 0, threads: int | None = None, padded: bool = True
    ) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        # Spinning threads are fast on an idle machine and slow on a busy one.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.batches_at_once = 1
        if threads is None and _size(program) < SMALL_BYTES:
            threads, self.batches_at_once = 1, thread_count()
        threads = threads or quota_threads()
        if threads is not None:
            options.intra_op_num_threads = threads
            options.inter_op_num_threads = 1
        self.pad_id, self.padded = pad_id, padded
        try:
            what = program if isinstance(program, bytes) else str(program)
            self.session = onnxruntime.InferenceSession(what, options, providers=["CPUExecutionProvider"])
        except Exception as error:
            name = "the program" if isinstance(program, bytes) else program
            raise InputError(f"{name}: ONNX Runtime refuses it ({' '.join(str(error).split())[:300]})") from error
        self.metadata: dict[str, str] = self.session.get_modelmeta().custom_metadata_map
        self.takes_prompt = any(value.name == "prompt_tokens" for value in self.session.get_inputs())

    def run(self, rows: Sequence[Sequence[int]], prompt_tokens: int = 0) -> np.ndarray:
        """float32 [N, D] of ragged rows of ids; see `Runner.run`."""
        if len(rows) == 1:
            return self._batch(rows, prompt_tokens)
        batches, order = [], sorted(range(len(rows)), key=lambda i: -len(rows[i]))
        while order:
            # Rows of similar length, longest first, at most BATCH_TOKENS tokens with padding.
            T = len(rows[order[0]])
            count = max(1, min(MAX_BATCH, BATCH_TOKENS // max(1, T)))
            if not self.padded:
                count = min(count, sum(len(rows[i]) == T for i in order))
            batches.append(order[:count])
            order = order[count:]
        workers = min(self.batches_at_once, len(batches))
        parts = [[rows[i] for i in batch] for batch in batches]
        if workers > 1:
            with ThreadPoolExecutor(workers) as pool:
                computed = list(pool.map(lambda part: self._batch(part, prompt_tokens), parts))
        else:
            computed = [self._batch(part, prompt_tokens) for part in parts]
        vectors_ND = np.empty((len(rows), computed[0].shape[1]), np.float32)
        for batch, sentence_BD in zip(batches, computed, strict=True):
            vectors_ND[batch] = sentence_BD
        return vectors_ND

    def _batch(self, rows: Sequence[Sequence[int]], prompt_tokens: int) -> np.ndarray:
        """Vectors [B, D] of rows that are run together; the first is the longest."""
        if len(rows[-1]) == len(rows[0]):  # no row is padded
            ids_BT = np.array(rows, dtype=np.int64)
            mask_BT = np.ones(ids_BT.shape, np.int64)
        else:
            ids_BT = np.full((len(rows), len(rows[0])), self.pad_id, dtype=np.int64)
            mask_BT = np.zeros_like(ids_BT)
            for slot, row in enumerate(rows):
                ids_BT[slot, : len(row)] = row
                mask_BT[slot, : len(row)] = 1
        feed: dict[str, np.ndarray] = {"input_ids": ids_BT, "attention_mask": mask_BT}
        if self.takes_prompt:
            feed["prompt_tokens"] = np.full(len(rows), prompt_tokens, dtype=np.int64)
        try:
            sentence_BD: np.ndarray = self.session.run(["sentence_embedding"], feed)[0]
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise MsdcError(f"ONNX Runtime failed to run the model: {reason}") from error
        return sentence_BD


def _size(program: Path | bytes) -> int:
    """Bytes of a program, with those of its external data."""
    if isinstance(program, bytes):
        return len(program)
    data = program.with_name(f"{program.name}.data")
    return sum(path.stat().st_size for path in (program, data) if path.is_file())
