"""A frozen teacher whose outputs are computed once.

An output is a sentence vector and, where a task needs them, states of chosen layers: the first token's ([CLS], <s>),
because teacher and student may tokenize a sentence differently.

Stores (`msdc.distill.teacher.store`) are kept apart by model, maximum length, layers and precision: outputs of
different models or settings never mix.

Shapes: N sentences, D sentence width, L layers, H hidden, W width of a stored row (D + L x H).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from msdc.compress.student.stock import to_student
from msdc.distill import parallel
from msdc.distill.teacher.store import VectorStore, as_stored
from msdc.encoders.encoder import BATCH_TOKENS, Encoder
from msdc.encoders.folder import with_prompt
from msdc.errors import InputError, MsdcError
from msdc.files import user_cache
from msdc.progress import track
from msdc.text.tokenizer import pack_by_length, pad, require_texts, text_key

FILLED_TOGETHER = 4096  # texts


def default_cache() -> Path:
    """The user's cache folder for teacher outputs."""
    return user_cache() / "teacher-vectors"


def fill(teacher: CachedTeacher, texts: Iterable[str]) -> int:
    """Compute and store the outputs of `texts` that are missing; returns how many they were."""
    remaining, computed = iter(texts), 0
    for block in track(
        iter(lambda: list(islice(remaining, FILLED_TOGETHER)), []), f"filled with {teacher.encoder.name}", size=len
    ):
        require_texts(block)
        distinct = list(dict.fromkeys(block))
        keys = np.fromiter((text_key(text) for text in distinct), dtype=np.uint64, count=len(distinct))
        absent = np.flatnonzero(np.isnan(teacher.stored(keys)[:, 0]))
        teacher.rows([distinct[number] for number in absent])
        computed += len(absent)
    return computed


class CachedTeacher:
    """A frozen encoder whose outputs come from a store, or are computed and stored.

    Args:
        encoder: the teacher; frozen here. With `layers` its module becomes the equal `Student`.
        cache: folder of all stores; None computes every output where it is needed, and stores none.
        max_length: longer texts are truncated to this many tokens.
        precision: `float32` or `bfloat16`, of the forward pass.
        layers: applied layers, from 1, whose states are part of the output.
        prompted: texts come with their prompts, and the default prompt is not added.
    """

    def __init__(
        self,
        encoder: Encoder,
        cache: Path | None,
        max_length: int,
        precision: str = "float32",
        layers: tuple[int, ...] = (),
        prompted: bool = False,
    ) -> None:
        fingerprint = encoder.fingerprint()
        self._prompt = "" if prompted else encoder.defaults.prompt()
        encoder.max_length = min(encoder.max_length, max_length)
        self._student = to_student(encoder) if layers else None
        encoder.module = self._student or encoder.module
        encoder.module.eval().requires_grad_(False)
        self.encoder, self.precision, self.layers, self.name = encoder, precision, layers, encoder.name
        self.width = encoder.width
        self.hidden = 0 if self._student is None else self._student.config.hidden
        name = f"{fingerprint[:32]}-{encoder.max_length}"
        if layers:
            name += f"-layers-{'-'.join(map(str, layers))}"
        if precision != "float32":
            name += f"-{precision}"
        if prompted and encoder.defaults.prompt():
            name += "-prompted"
        self.row_width = self.width + len(layers) * self.hidden
        self.store = None if cache is None else VectorStore(cache / name, self.row_width)

    def vectors(self, texts: Sequence[str], shared: bool = False, progress: bool = False) -> np.ndarray:
        """Sentence vectors only, float32 [N, D]; see `rows`."""
        return self.rows(texts, shared, progress)[:, : self.width]

    def rows(self, texts: Sequence[str], shared: bool = False, progress: bool = False) -> np.ndarray:
        """The outputs for `texts` as rows of the store, float32 [N, W]; missing ones are computed once and stored.

        Args:
            shared: all processes call this with the same texts, and each computes a part of what any of them misses.
                Computed rows are exchanged, so that the processes need no common folder.
            progress: show a bar while computing.

        Raises:
            MsdcError: an output is not finite.
        """
        self._require_frozen()
        keys = np.fromiter((text_key(text) for text in texts), dtype=np.uint64, count=len(texts))
        _, first, back = np.unique(keys, return_index=True, return_inverse=True)
        rows_UW = self.stored(keys[first])
        absent = np.flatnonzero(np.isnan(rows_UW[:, 0]))
        missing = absent
        rank, world = parallel.rank_and_world() if shared else (0, 1)
        if world > 1:
            missing = np.unique(np.concatenate(parallel.exchange(absent)))
        # In the order of the texts, as one process computes them.
        missing = missing[np.argsort(first[missing])]
        local = missing[rank::world]
        fresh_MW = self._compute([texts[first[index]] for index in local], progress)
        if not np.isfinite(fresh_MW).all():
            wrong = texts[first[local[np.flatnonzero(~np.isfinite(fresh_MW).all(1))[0]]]]
            raise MsdcError(f"teacher {self.name}: its output for {wrong[:60]!r} is not finite")
        for part, rows_MW in enumerate(parallel.exchange(fresh_MW) if world > 1 else [fresh_MW]):
            rows_UW[missing[part::world]] = rows_MW
        if self.store is not None and len(absent):
            self.store.write(keys[first[absent]], rows_UW[absent])
            rows_UW[absent] = as_stored(rows_UW[absent])
        found_NW: np.ndarray = rows_UW[back]
        return found_NW

    def stored(self, keys: np.ndarray) -> np.ndarray:
        """Stored rows float32 [N, W]; NaN where one is missing."""
        if self.store is None:
            return np.full((len(keys), self.row_width), np.nan, np.float32)
        return self.store.read(keys)

    def _require_frozen(self) -> None:
        # The published DistilCSE code left its teacher in train mode.
        if self.encoder.module.training or any(p.requires_grad for p in self.encoder.module.parameters()):
            raise InputError(f"teacher {self.name} is not frozen: it must be in eval mode without gradients")

    def _compute(self, texts: Sequence[str], progress: bool) -> np.ndarray:
        """Rows of the store: the sentence vector, then the states, float32 [N, D + L x H]."""
        if not texts:
            return np.zeros((0, self.row_width), np.float32)
        student = self._student
        if student is None:
            return self.encoder.encode(texts, show_progress_bar=progress, precision=self.precision, prompt=self._prompt)
        device = next(student.parameters()).device
        ids = self.encoder.tokenize(with_prompt(self._prompt, texts))
        rows = np.zeros((len(texts), self.row_width), dtype=np.float32)
        batches = pack_by_length([len(row) for row in ids], BATCH_TOKENS)
        for batch in track(batches, f"encode with {self.encoder.name}", enabled=progress):
            ids_BT, mask_BT = pad([ids[i] for i in batch], self.encoder.tokenizer.pad_id)
            half = self.precision == "bfloat16"
            with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=half):
                sentence_BD, states_BLH = student.layer_states(ids_BT.to(device), mask_BT.to(device), self.layers)
            rows[batch, : self.width] = sentence_BD.float().cpu().numpy()
            rows[batch, self.width :] = states_BLH.flatten(1).float().cpu().numpy()
        return rows
