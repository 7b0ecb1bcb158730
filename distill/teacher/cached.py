"""A frozen teacher whose outputs are computed once: vectors and, where a task needs them, states of chosen layers.

Stores (`msdc.distill.teacher.store`) are kept apart by model, maximum length, layers and precision: outputs of
different models or settings never mix.

Shapes: N sentences, D sentence width, L layers, H hidden, W width of a stored row (D + L x H).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
from msdc.text.tokenizer import pack_by_length, pad, text_key


def default_cache() -> Path:
    """The user's cache folder for teacher outputs."""
    return user_cache() / "teacher-vectors"


@dataclass(frozen=True)
class TeacherOutput:
    """The outputs for N sentences: vectors float32 [N, D], and states of chosen layers float32 [N, L, H].

    A state is the first token's ([CLS], <s>): teacher and student may tokenize a sentence differently. `states_NLH` is
    None if no layer is chosen.
    """

    sentence_ND: np.ndarray
    states_NLH: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.sentence_ND)

    def rows(self, start: int, end: int) -> TeacherOutput:
        """The output for sentences `start` to `end`."""
        states = None if self.states_NLH is None else self.states_NLH[start:end]
        return TeacherOutput(self.sentence_ND[start:end], states)


class CachedTeacher:
    """A frozen encoder whose outputs come from a store, or are computed and stored.

    Args:
        encoder: the teacher; frozen here. With `layers` its module becomes the equal `Student`.
        cache: folder of all stores; None computes every output where it is needed, and stores none.
        max_length: longer texts are truncated to this many tokens.
        precision: `float32` or `bfloat16`, of the forward pass.
        layers: applied layers, from 1, whose states are part of the output.
    """

    def __init__(
        self,
        encoder: Encoder,
        cache: Path | None,
        max_length: int,
        precision: str = "float32",
        layers: tuple[int, ...] = (),
    ) -> None:
        fingerprint = encoder.fingerprint()
        encoder.max_length = min(encoder.max_length, max_length)
        self._student = to_student(encoder) if layers else None
        encoder.module = self._student or encoder.module
        encoder.module.eval().requires_grad_(False)
        self.encoder, self.precision, self.layers = encoder, precision, layers
        self.width = encoder.width
        self.hidden = 0 if self._student is None else self._student.config.hidden
        name = f"{fingerprint[:32]}-{encoder.max_length}"
        if layers:
            name += f"-layers-{'-'.join(map(str, layers))}"
        if precision != "float32":
            name += f"-{precision}"
        self.row_width = self.width + len(layers) * self.hidden
        self.store = None if cache is None else VectorStore(cache / name, self.row_width)

    def vectors(self, texts: Sequence[str], progress: bool = False) -> np.ndarray:
        """Sentence vectors only, float32 [N, D]; see `outputs`."""
        return self.outputs(texts, progress=progress).sentence_ND

    def outputs(self, texts: Sequence[str], shared: bool = False, progress: bool = False) -> TeacherOutput:
        """The outputs for `texts`; missing ones are computed once and stored.

        Args:
            shared: all processes call this with the same texts, and each computes a part of what any of them misses.
                Computed rows are exchanged, so that the processes need no common folder.
            progress: show a bar while computing.

        Raises:
            MsdcError: an output is not finite.
        """
        # The published DistilCSE code left its teacher in train mode.
        if self.encoder.module.training or any(p.requires_grad for p in self.encoder.module.parameters()):
            raise InputError(f"teacher {self.encoder.name} is not frozen: it must be in eval mode without gradients")
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
        mine = missing[rank::world]
        fresh_MW = self._compute([texts[first[at]] for at in mine], progress)
        if not np.isfinite(fresh_MW).all():
            wrong = texts[first[mine[np.flatnonzero(~np.isfinite(fresh_MW).all(1))[0]]]]
            raise MsdcError(f"teacher {self.encoder.name}: its output for {wrong[:60]!r} is not finite")
        for part, rows_MW in enumerate(parallel.exchange(fresh_MW) if world > 1 else [fresh_MW]):
            rows_UW[missing[part::world]] = rows_MW
        if self.store is not None and len(absent):
            self.store.write(keys[first[absent]], rows_UW[absent])
            rows_UW[absent] = as_stored(rows_UW[absent])
        rows_NW = rows_UW[back]
        states_NLH = None
        if self.layers:
            states_NLH = rows_NW[:, self.width :].reshape(len(rows_NW), len(self.layers), self.hidden)
        return TeacherOutput(rows_NW[:, : self.width], states_NLH)

    def rows(self, texts: Sequence[str]) -> np.ndarray:
        """Rows of the store for `texts`, float32 [N, W]: computed now where they are missing."""
        output = self.outputs(texts)
        states = () if output.states_NLH is None else (output.states_NLH.reshape(len(output), -1),)
        return np.concatenate([output.sentence_ND, *states], axis=1)

    def stored(self, keys: np.ndarray) -> np.ndarray:
        """Stored rows float32 [N, W]; NaN where one is missing."""
        if self.store is None:
            return np.full((len(keys), self.row_width), np.nan, np.float32)
        return self.store.read(keys)

    def _compute(self, texts: Sequence[str], progress: bool) -> np.ndarray:
        """Rows of the store: the sentence vector, then the states, float32 [N, D + L x H]."""
        if not texts:
            return np.zeros((0, self.row_width), np.float32)
        student = self._student
        if student is None:
            return self.encoder.encode(texts, show_progress_bar=progress, precision=self.precision)
        device = next(student.parameters()).device
        ids = self.encoder.tokenize(with_prompt(self.encoder.defaults.prompt(), texts))
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
